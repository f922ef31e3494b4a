"""What an admin is told without asking: troubles that last, their end, and how far the budget is spent.

The decision is pure: conditions of the moment and what was told before give what is to be told now. It is
made in a process of its own, which a timer starts, so that the end of either service is told, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from advisor.decide.price.period_budget import period_span
from advisor.model.bill import day_of
from advisor.service.state.records import ToldNotice, ToldNotices

WAIT_SECONDS: Final = 300.0
"""A trouble is told when it has lasted so long: a restart, or one refused call, is none."""
BUDGET_PERCENTS: Final = (50, 80, 100)
_MAX_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that an admin should know.

    Attributes:
        key: The same while it is the same trouble, whatever numbers its text has.
        text: What is so, and what to do.
        is_event: It is told at once, once, and has no end.
    """

    key: str
    text: str
    is_event: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to tell; ``is_over``: the trouble has ended."""

    key: str
    text: str
    is_over: bool = False


def conditions(report: Mapping[str, Any]) -> list[Condition]:
    """What is worth telling in a report of ``advisor status``."""
    parts = (_processes, _money, _cloud, _loops)
    return [condition for part in parts for condition in part(report)]


def _processes(report: Mapping[str, Any]) -> Iterator[Condition]:
    control = report["control"]
    if report["serve"]["running"] is False:
        yield Condition(
            key="serve.down",
            text="advisor serve does not answer: every job is accepted as submitted. Look at "
            "`systemctl status advisor-serve` and `journalctl -u advisor-serve`",
        )
    if control["running"] is False:
        yield Condition(
            key="control.down",
            text="advisor control does not run: it starts and ends no cloud node, and running ones are paid "
            "for. Look at `systemctl status advisor-control` and `journalctl -u advisor-control`",
        )
    elif not report["snapshot"]["usable"]:
        yield Condition(
            key="snapshot.old",
            text="advisor control has not read the queue for too long, so every job stays on-premise. Run "
            "`advisor doctor`",
        )
    if problem := control.get("history_problem"):
        yield Condition(
            key="history",
            text=f"the history cannot be used, so nothing is learned: {problem}. Run `advisor doctor`",
        )


def _money(report: Mapping[str, Any]) -> Iterator[Condition]:
    spend = (report["control"].get("cloud_report") or {}).get("spend") or {}
    if spend.get("launches_wait"):
        yield Condition(
            key="budget.doubt",
            text=f"no cloud node is started until today's spending is known: {spend['in_doubt']}. Run "
            "`advisor doctor`",
        )
    if not spend:
        return
    period = spend["budget_period"]
    begin, _ = period_span(float(report["time"]), period)
    limits = {"": spend.get("budget_usd"), **(spend.get("account_budgets_usd") or {})}
    for account, usd in limits.items():
        spent = spend["spent_by_account"].get(account, 0.0) if account else spend["spent_usd"]
        reached = [percent for percent in BUDGET_PERCENTS if usd and 100.0 * spent >= percent * usd]
        if reached:
            whose = f"account {account}" if account else "the site"
            todo = "`advisor spend` shows the days"
            if reached[-1] == 100:
                todo = f"jobs stay on-premise until the next {period}"
            yield Condition(
                key=f"budget.{day_of(begin)}.{period}.{account}.{reached[-1]}",
                text=f"{whose} has spent {spent:.2f} of the {usd:.2f} USD of this {period} "
                f"({reached[-1]} % or more); {todo}",
                is_event=True,
            )


def _cloud(report: Mapping[str, Any]) -> Iterator[Condition]:
    cloud = report["snapshot"].get("cloud") or {}
    if why := cloud.get("protected"):
        yield Condition(key="cloud.protected", text=f"no job is sent to the cloud: {why}")
    for option in ("spot", "on_demand"):
        if not cloud.get(f"{option}_open", True):
            yield Condition(
                key=f"pool.{option}",
                text=f"EC2 has refused {option.replace('_', '-')} capacity for five minutes or longer. "
                "`advisor pools` says which, and why; another type or subnet in ec2 may help",
            )
    counters = (report["control"].get("cloud_report") or {}).get("counters") or {}
    if collected := counters.get("orphans_collected"):
        yield Condition(
            key=f"orphans.{report['control'].get('pid')}.{collected}",
            text=f"{collected} instances without a node were ended since advisor control began. The log of "
            "advisor-control names them; EC2 has charged for them",
            is_event=True,
        )
    if stuck := counters.get("handovers_stuck"):
        yield Condition(
            key="handovers.stuck",
            text=f"hand-overs of slurmctld cannot be used; remove them by hand: {', '.join(stuck[:5])}",
        )


def _loops(report: Mapping[str, Any]) -> Iterator[Condition]:
    for name, loop in (report["control"].get("loops") or {}).items():
        for step, failure in (loop.get("open_failures") or {}).items():
            if not str(failure.get("code")).startswith("history."):
                yield Condition(
                    key=f"loop.{name}.{step}",
                    text=f"advisor control cannot {step}: {failure.get('message')} ({failure.get('code')})",
                )


def decide(
    found: Sequence[Condition], told: ToldNotices, *, now: float, repeat_seconds: float
) -> tuple[list[Notice], ToldNotices]:
    """What to tell now, and what will have been told then.

    Args:
        found: Of the moment.
        told: What is known of earlier moments.
        now: Epoch seconds.
        repeat_seconds: A trouble that lasts is told again after so long.
    """
    notices: list[Notice] = []
    kept: dict[str, ToldNotice] = {}
    for condition in found:
        before = told.notices.get(condition.key)
        since = now if before is None else before.since
        last = None if before is None else before.told_at
        is_due = condition.is_event or now - since >= WAIT_SECONDS
        if condition.is_event and last is not None:
            is_due = False
        elif last is not None:
            is_due = now - last >= repeat_seconds
        if is_due:
            notices.append(Notice(key=condition.key, text=condition.text))
            last = now
        kept[condition.key] = ToldNotice(since, last, condition.text, is_event=condition.is_event)
    for key, before in told.notices.items():
        if key in kept:
            continue
        if before.is_event:
            kept[key] = before
        elif before.told_at is not None:
            notices.append(Notice(key=key, text=f"over: {before.text}", is_over=True))
    newest = sorted(kept.items(), key=lambda item: item[1].since)[-_MAX_KEPT:]
    return notices, ToldNotices(dict(newest))
