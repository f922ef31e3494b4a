"""Budgets as ``advisor budget`` shows and sets them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from advisor.model.bill import midnight
from advisor.model.errors import BadInput
from advisor.model.periods import (
    any_of,
    comes_again,
    is_user,
    payer_words,
    period_name,
    period_now,
    user_name,
)
from advisor.model.settings import Settings
from advisor.model.settings_price import BudgetSettings
from advisor.service.admin.cloud_written import spend_written
from advisor.service.exchange import status_file
from advisor.service.state.budget_records import SpendingLimit, limits_of

_DAY: Final = 86_400.0
_WEEK: Final = 7 * _DAY
_ROUNDING: Final = 0.005


def budgets_view(settings: Settings, now: float) -> dict[str, Any]:
    """Every budget in its present period, in US dollars, and the price now; errors as `spend_written`.

    ``forecast`` is what will be spent by the period's end, if it goes on as in the last seven days: no more
    than the budget, unless more is spent or promised already. ``left`` is neither spent nor promised to a
    node; ``may_commit_usd`` is what the site may commit now, None where no price counts its money.
    """
    written = spend_written(settings, now)
    price: Mapping[str, Any] = status_file.read(settings.paths.published).get("price") or {}
    rows = [_row(budget, written, now) for budget in written.get("budgets") or ()]
    return {
        "time": written["time"],
        "age_seconds": written["age_seconds"],
        "in_doubt": written.get("in_doubt"),
        "may_commit_usd": price.get("tokens_usd"),
        "usd_per_hour": price.get("usd_per_hour"),
        "price_unknown": price.get("unknown"),
        "budgets": rows,
        "not_applied": not_applied(settings, rows),
    }


def _row(budget: Mapping[str, Any], written: Mapping[str, Any], now: float) -> dict[str, Any]:
    most, taken = budget["usd"] + budget["carried"], budget["spent"] + budget["promised"]
    week = max(written.get("began") or 0.0, midnight(now) - _WEEK + _DAY)
    per_day = budget["spent_week"] * _DAY / max(_DAY, now - week)
    days = max(0.0, budget["end"] - now) / _DAY
    return {
        **{name: budget[name] for name in ("payer", "period", "usd", "carried", "spent", "promised", "end")},
        "left": most - taken,
        "forecast": max(taken, min(most, budget["spent"] + per_day * days)),
    }


def not_applied(settings: Settings, rows: list[dict[str, Any]]) -> list[str]:
    """Whose budgets the settings say otherwise than `advisor control` has read them."""
    known = {row["payer"]: (row["usd"], row["period"]) for row in rows}
    said = _set_budgets(limits_of(settings))
    changed = {payer for payer, budget in said.items() if known.get(payer) != budget}
    gone = {payer for payer in known if not any(limit.of(payer) is not None for limit in limits_of(settings))}
    return [payer_words(payer) for payer in sorted(changed | gone)]


def _set_budgets(limits: tuple[SpendingLimit, ...]) -> dict[str, tuple[float, str]]:
    """US dollars and period of each payer that the settings name; without those who are any other."""
    found = {}
    for limit in limits:
        if limit.usd:
            found[""] = limit.usd, limit.period
        found |= {payer: (usd, limit.period) for payer, usd in limit.payers.items() if any_of(payer) != payer}
    return found


def budget_table(result: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and cells, US dollars."""
    amounts = ("USD", "carried", "spent", "promised", "left", "forecast")
    headings: tuple[str, ...] = ("budget of", "for", *amounts, "days left")
    cells: list[tuple[str, ...]] = [
        (
            payer_words(row["payer"]),
            period_now(row["period"]),
            f"{row['usd']:,.2f}",
            f"{row['carried']:,.2f}",
            f"{row['spent']:,.2f}",
            f"{row['promised']:,.2f}",
            f"{max(0.0, row['left']):,.2f}",
            f"{row['forecast']:,.2f}",
            f"{max(0.0, row['end'] - result['time']) / _DAY:,.1f}",
        )
        for row in result["budgets"]
    ]
    return headings, cells


def budget_words(result: Mapping[str, Any]) -> list[str]:
    """What the table does not say, as sentences."""
    said = []
    if result["price_unknown"]:
        said.append(f"No job moves by a price: {result['price_unknown']}.")
    elif result["usd_per_hour"] is not None and math.isfinite(result["usd_per_hour"]):
        said.append(
            f"A job moves now if an hour that it saves costs {result['usd_per_hour']:,.2f} USD at most."
        )
    for row in result["budgets"]:
        may = result["may_commit_usd"]
        if not row["payer"] and may is not None and row["left"] > 0.0 and row["left"] - may >= _ROUNDING:
            said.append(
                f"{max(0.0, may):,.2f} USD of what is left to the site may be committed now: moved jobs wait "
                "for the rest, or it comes as it accrues, as demand or the budget is new in this period."
            )
        if row["left"] <= 0.0:
            jobs = "All jobs" if not row["payer"] else f"The jobs of {payer_words(row['payer'])}"
            period = row["period"]
            until = f" until the next {period_name(period)} begins" if comes_again(period) else ""
            said.append(f"{jobs} stay on-premise: nothing is left{until}.")
    if result["in_doubt"]:
        said.append(f"What was spent is in doubt, and nothing is launched: {result['in_doubt']}.")
    if result["not_applied"]:
        said.append(
            f"The settings say something else of {', '.join(result['not_applied'])}: run `systemctl reload "
            "advisor-serve advisor-control`."
        )
    return said


def changes_for(
    budget: BudgetSettings,
    payer: str,
    *,
    usd: float | None = None,
    period: str | None = None,
    carry_over: bool | None = None,
    remove: bool = False,
) -> dict[str, Any]:
    """Settings that give a payer (``""``: the site) another budget.

    Args:
        usd: Of a period; None: as it is.
        period: Of the site, of all accounts or of all users.

    Raises:
        BadInput: Nothing is to be changed, or a budget is to be set and removed.
    """
    if remove and usd is not None:
        raise BadInput(
            "a budget is either set or removed, and both are asked for",
            where="--remove",
            mend="Give the dollars or --remove",
        )
    changes: dict[str, Any] = {}
    kind = "user" if is_user(payer) else "account"
    if not payer:
        if usd is not None or remove:
            changes["budget.usd"] = 0.0 if remove else usd
    elif usd is not None or remove:
        name = user_name(payer)
        table = dict(budget.users if is_user(payer) else budget.accounts)
        table.pop(name, None)
        changes[f"budget.{kind}s"] = table if remove else {**table, name: usd}
    if period is not None:
        changes[f"budget.{kind}_period" if payer else "budget.period"] = period
    if carry_over is not None:
        changes["budget.carry_over"] = carry_over
    if not changes:
        raise BadInput("nothing is to be changed", where="budget set", mend="Give US dollars or an option")
    return changes
