"""Money as commands and pages show it: the bill's rows, and today's spending beside the budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from advisor.decide.explanation.display import clean, significant, usd
from advisor.history.store import HistoryStore
from advisor.model.bill import Bill, as_rows, midnight
from advisor.model.periods import ANY
from advisor.model.settings import Settings
from advisor.service.admin.cloud_written import spend_written

NO_ACCOUNT: Final = "no account"
IDLE: Final = "idle time"
SUM: Final = "together"
KNOWN_DAYS: Final = 31
"""Days of `spend_view`, today's among them."""
_DAY: Final = 86_400.0
_MAX_ACCOUNTS: Final = 25
_ROUNDING: Final = 0.005


def money_view(store: HistoryStore, since: float) -> dict[str, Any]:
    """Cost of cloud nodes since then (epoch seconds), by account and by day of UTC."""
    return _plain(store.bill(since))


def _plain(found: Bill) -> dict[str, Any]:
    days = [{"day": day, **as_rows(rows)} for day, rows in found.days.items()]
    return {**as_rows(found), "days": days}


def money_rows(money: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Names and US dollars of each row, largest accounts first; the last row is the sum."""
    by_account = sorted(money["by_account"].items(), key=lambda item: (-item[1], item[0]))
    rows = [(clean(name, 40), amount) for name, amount in by_account[:_MAX_ACCOUNTS]]
    if others := by_account[_MAX_ACCOUNTS:]:
        rows.append((f"{len(others):,} other accounts", math.fsum(amount for _, amount in others)))
    return [
        *rows,
        (NO_ACCOUNT, money["no_account_usd"]),
        (IDLE, money["idle_usd"]),
        (SUM, money["spent_usd"]),
    ]


def money_in_words(money: Mapping[str, Any]) -> str:
    """A sentence on the cost of cloud nodes; empty where no node was paid for."""
    if not money.get("spent_usd"):
        return ""
    accounts = math.fsum(money["by_account"].values())
    return (
        f"Cloud nodes have cost {usd(money['spent_usd'])}: {usd(accounts)} for jobs with an account, "
        f"{usd(money['no_account_usd'])} for jobs without one, {usd(money['idle_usd'])} while idle."
    )


def days_before(store: HistoryStore, now: float) -> Bill:
    """The days before today (UTC), which hardly change any more."""
    return store.bill(midnight(now) - (KNOWN_DAYS - 1) * _DAY, midnight(now))


def spend_view(
    settings: Settings, store: HistoryStore, now: float, before: Bill | None = None
) -> dict[str, Any]:
    """Today's money (UTC) beside the budget, and the last days; errors as `spend_written`.

    ``spent_today_usd`` is the bill's, ``reckoned_today_usd`` the one that the budget uses. ``budget_usd`` of
    an account is that of its period, that of the site has what was carried over; None: there is none.
    ``before`` is the result of :func:`days_before`, if the caller has it.
    """
    written = spend_written(settings, now)
    today = _plain(store.bill(midnight(now)))
    days = [*_plain(before or days_before(store, now))["days"], *today["days"]]
    site = (one["usd"] + one["carried"] for one in written.get("budgets") or () if not one["payer"])
    budgets: Mapping[str, float] = written.get("account_budgets_usd") or {}
    promised: Mapping[str, float] = written.get("promised_by_account") or {}
    spent: Mapping[str, float] = today["by_account"]
    return {
        "time": written["time"],
        "age_seconds": written["age_seconds"],
        "spent_today_usd": today["spent_usd"],
        "promised_usd": written.get("promised_usd", 0.0),
        "paid": written.get("paid", []),
        "budget_usd": next(site, written.get("budget_usd")),
        "budget_period": written.get("budget_period", "day"),
        "spent_usd": written.get("spent_usd", 0.0),
        "reckoned_today_usd": written.get("spent_today_usd", 0.0),
        "launches_wait": written.get("launches_wait", False),
        "rebuilt_today": written.get("rebuilt_today"),
        "by_account": [
            {
                "account": account,
                "spent_today_usd": spent.get(account, 0.0),
                "promised_usd": promised.get(account, 0.0),
                "budget_usd": budgets.get(account, budgets.get(ANY)),
            }
            for account in sorted({*spent, *budgets, *promised})
        ],
        "no_account_usd": today["no_account_usd"],
        "idle_usd": today["idle_usd"],
        "days": _days(days, written.get("days") or []),
    }


def _days(known: list[dict[str, Any]], older: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Days of the bill; of days before the bill, the budget has the sum and the accounts."""
    first = known[0]["day"] if known else "9999"
    unknown = {"no_account_usd": None, "idle_usd": None}
    rows = [{"usd": day["spent_usd"], **day} for day in known]
    return [{**day, **unknown} for day in older if day["day"] < first] + rows


def paid_in_words(row: Mapping[str, Any]) -> str:
    """One purchase, what of it is used, and by whom."""
    where = " ".join(clean(str(part), 40) for part in (row["instance_type"], row["zone"]) if part)
    total, others, ours = (significant(row[name], 3) for name in ("total", "used_by_others", "used_by_us"))
    unit = "USD an hour" if row["unit"] == "USD/h" else "instances"
    until = "" if row["until"] is None else f", until {_moment(row['until'])}"
    return (
        f"{row['kind']} {clean(row['name'], 60)}{' of ' + where if where else ''}: {total} {unit}, "
        f"{ours} used by our jobs and {others} by others, room for {row['free_nodes']:,} more nodes{until}"
    )


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC")


def reckoned_in_words(spend: Mapping[str, Any]) -> str:
    """Why the budget uses another figure than what was spent; empty where they do not."""
    reckoned, spent = spend["reckoned_today_usd"], spend["spent_today_usd"]
    if abs(reckoned - spent) < _ROUNDING:
        return ""
    return (
        f"The budget uses {usd(reckoned)} for today: it includes money from before the history kept paid "
        "time or while the history could not be written, or it was estimated anew, on the high side."
    )
