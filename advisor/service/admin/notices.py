"""The notices for an admin: problems that last, their end, and the share of the budget that is spent.

The decision is pure: from the present conditions and the notices sent before follow the notices to send now.
A process of its own makes it, which a timer starts, so that the end of either service is noticed, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from advisor.history.models import maker_of
from advisor.model.bill import day_of
from advisor.model.periods import comes_again, payer_words, period_name, period_now
from advisor.service.admin.model_troubles import training_failure
from advisor.service.admin.status_report import closed_by_ec2
from advisor.service.state.records import ToldNotice, ToldNotices

WAIT_SECONDS: Final = 300.0
"""A problem is sent when it has lasted for this time: a restart, or one refused call, is not a problem."""
BUDGET_PERCENTS: Final = (50, 80, 100)
_MAX_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that an admin should know.

    Attributes:
        key: Identifies the problem; it stays the same while numbers in the text change.
        is_event: It is sent at once and only once, and has no end.
    """

    key: str
    text: str
    is_event: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notice; ``is_over``: the problem has ended."""

    key: str
    text: str
    is_over: bool = False


def conditions(report: Mapping[str, Any]) -> list[Condition]:
    """The conditions in a report of ``advisor status`` that an admin should know."""
    parts = (_processes, _money, _cloud, _forecasts, _models, _loops)
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
            text=f"no cloud node is started until it is known what was spent: {spend['in_doubt']}. Run "
            "`advisor doctor`",
        )
    if not spend:
        return
    for budget in spend.get("budgets") or ():
        payer, period, spent = budget["payer"], budget["period"], budget["spent"]
        usd = budget["usd"] + budget["carried"]
        reached = [percent for percent in BUDGET_PERCENTS if usd and 100.0 * spent >= percent * usd]
        if reached:
            todo = "`advisor budget` shows all budgets"
            if reached[-1] == 100:
                then = f"until the next {period_name(period)}, or " if comes_again(period) else ""
                todo = f"its jobs stay on-premise {then}until `advisor budget set` raises it"
            yield Condition(
                # a budget that is raised is told of again
                key=f"budget.{day_of(budget['begin'])}.{period}.{usd:.0f}.{payer}.{reached[-1]}",
                text=f"{payer_words(payer)} has spent {spent:.2f} of the {usd:.2f} USD for "
                f"{period_now(period)} ({reached[-1]} % or more); {todo}",
                is_event=True,
            )


def _cloud(report: Mapping[str, Any]) -> Iterator[Condition]:
    cloud = report["snapshot"].get("cloud") or {}
    if why := cloud.get("protected"):
        yield Condition(
            key="cloud.protected",
            text=f"no job is sent to the cloud: {why}. `advisor doctor` says how to mend it; where nodes do "
            "not boot, `advisor nodes` and the console output of an instance show why",
        )
    for option, until in closed_by_ec2(cloud):
        yield Condition(
            key=f"pool.{option}",
            text=f"EC2 has refused {option.replace('_', '-')} capacity for five minutes or longer, and "
            f"jobs stay away from it {until}. `advisor pools` says which, and why; "
            "another type or subnet in ec2 may help",
        )
    counters = (report["control"].get("cloud_report") or {}).get("counters") or {}
    if collected := counters.get("orphans_collected"):
        yield Condition(
            key=f"orphans.{report['control'].get('pid')}.{collected}",
            text=f"instances without a node that advisor control has ended since it began: {collected}. EC2 "
            "has charged for them; `journalctl -u advisor-control` names them",
            is_event=True,
        )
    if stuck := counters.get("handovers_stuck"):
        yield Condition(
            key="handovers.stuck",
            text="hand-overs of slurmctld cannot be used. In the folder handover of paths.state, remove them "
            f"by hand: {', '.join(stuck[:5])}",
        )


def _forecasts(report: Mapping[str, Any]) -> Iterator[Condition]:
    for name, one in (report["control"].get("fallen_back") or {}).items():
        yield Condition(
            key=f"drift.{name}",
            text=f"jobs of the partition {name} stay on-premise until forecasts hold again: {one['why']}. "
            "`advisor ledger` shows them beside what happened, `advisor doctor` what to do",
        )


def _models(report: Mapping[str, Any]) -> Iterator[Condition]:
    """Models that `advisor serve` does not load, and the weekly trainings; only `advisor notify` looks."""
    for kind, problem in (report.get("models_refused") or {}).items():
        yield Condition(
            key=f"model.{kind}",
            text=f"the model {kind} is refused, and `advisor serve` goes on with what it has: {problem}. "
            "Look who has written it; remove its folder in models of paths.state, then run "
            f"{maker_of(kind)}",
        )
    for command, run in (report.get("trainings") or {}).items():
        if why := training_failure(run, float(report["time"])):
            yield Condition(
                key=f"training.failed.{command}",
                text=f"the weekly training `advisor {command}` has failed: {why}. The model in force stays. "
                "Look at `journalctl -u advisor-retrain`, then `systemctl start advisor-retrain`",
            )
        elif run["refused"]:
            yield Condition(
                key=f"training.refused.{command}.{run['began']:.0f}",
                text=f"the result of `advisor {command}` is not used: {run['refused']}. The model in force "
                "stays; `advisor retrain --force` uses the new one all the same",
                is_event=True,
            )


def _loops(report: Mapping[str, Any]) -> Iterator[Condition]:
    for name, loop in (report["control"].get("loops") or {}).items():
        for step, failure in (loop.get("open_failures") or {}).items():
            if not str(failure.get("code")).startswith("history."):
                yield Condition(
                    key=f"loop.{name}.{step}",
                    text=f"the step `{step}` of advisor control fails: {failure.get('message')} "
                    f"({failure.get('code')}). "
                    "`journalctl -u advisor-control` says more",
                )


def unkept(problem: str) -> Condition:
    """What to tell where the record of notices cannot be written in `paths.state`."""
    return Condition(
        key="notices.unkept",
        text=f"`advisor notify` cannot keep its record, so it tells what it finds now: {problem}",
    )


def unremembered(found: Sequence[Condition], *, known_at: float, now: float) -> list[Notice]:
    """The notices to send while their record cannot be written: all, when that has lasted for a while.

    Args:
        known_at: When it was written last, epoch seconds; later than `now`: when notices are due again.
    """
    if now - known_at < WAIT_SECONDS:
        return []
    return [Notice(key=one.key, text=one.text) for one in found]


def decide(
    found: Sequence[Condition], told: ToldNotices, *, now: float, repeat_seconds: float
) -> tuple[list[Notice], ToldNotices]:
    """The notices to send now, and the record of notices after that.

    Args:
        now: Epoch seconds.
        repeat_seconds: A problem that lasts is sent again after this time.
    """
    notices: list[Notice] = []
    kept: dict[str, ToldNotice] = {}
    for condition in found:
        before = told.notices.get(condition.key)
        # a time to come is of a clock that was ahead
        since = now if before is None else min(now, before.since)
        last = None if before is None or before.told_at is None else min(now, before.told_at)
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
