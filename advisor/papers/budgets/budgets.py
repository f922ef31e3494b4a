"""A month's budget that is paced by the price, against a daily cap of the same sum, in the same closed loop.

Each user is an account with a budget of their own beside the site's, and a start needs the money of both. A
log that ends within a month may spend what that whole month has, so that on a short window the month's row
can have more money than the daily caps: 8.6 % on six weeks of KTH-SP2. ``spent_share`` says so.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from advisor.arrays import Ints
from advisor.decide.price.period_budget import PeriodMoney
from advisor.decide.price.slices import Slice
from advisor.model.bill import day_of
from advisor.model.errors import BadInput
from advisor.model.periods import period_span
from advisor.papers.budgets.period_tokens import PeriodBudget, PeriodTokens
from advisor.parallel import Tick, side_by_side
from advisor.replay.closed_loop.learned_runs import LearnedRuns
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.plain_policies import Overflow
from advisor.replay.closed_loop.price_policy import PricePolicy
from advisor.replay.closed_loop.world import LoopResult, Policy, World, WorldOptions

_DAY: Final = 86_400.0
_MONTH: Final = 365.25 / 12.0 * _DAY
_HOUR: Final = 3600.0
_ROUNDING: Final = 1e-6

ON_PREMISE: Final = "on-premise"
DAILY_FIRST: Final = "daily cap, first come"
DAILY_PRICE: Final = "daily cap, price"
PERIOD_PRICE: Final = "month, price"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTerms:
    """The parameters of the replay.

    Attributes:
        has_users: Whether each user has a budget: the share of what they use in a month in which they submit.
        carries_over: Whether what a period has left is there in the next one.
        world: The cloud, the clock, and the share of the log's core-hours that the budgets can buy, for the
            site and for each user.
        processes: Rows that are simulated at the same time.
    """

    has_users: bool
    carries_over: bool
    world: WorldOptions
    processes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """How a way to spend has kept its budgets.

    Attributes:
        spent_share: Share spent of the site's budgets over the time of the log.
        demand_share: What was spent of each budget and period over what could have been: the budget, or what
            jobs that would have saved time cost, whichever is less; nan where that is not recorded.
        budgets: Number of budgets of the site and of users, times periods with spending.
        exceeded: Those of them that were exceeded.
    """

    spent_share: float = 0.0
    demand_share: float = math.nan
    budgets: int = 0
    exceeded: int = 0


class _AskedPolicy(PricePolicy):
    """The one price, with a record of what each job would have cost that could have saved time."""

    def __init__(self, tokens: PeriodTokens) -> None:
        super().__init__(LearnedRuns)
        self.asked: dict[tuple[str, int], tuple[float, float]] = {}
        self._tokens = tokens
        self._span, self._day = (0.0, 0.0), ""

    def _is_worth(self, world: World, row: int, elapsed: float, wait: float, offered: Slice) -> bool:
        if offered.value > 0.0:
            most = world.most(row, elapsed, offered.stop, 0.0)
            key = self._period(), row
            before = self.asked.get(key, (0.0, 0.0))
            self.asked[key] = max(before, (offered.cost, most))
        return super()._is_worth(world, row, elapsed, wait, offered)

    def _period(self) -> str:
        now = self._tokens.now
        if not self._span[0] <= now < self._span[1]:
            self._span = period_span(now, self._tokens.site.period)
            self._day = day_of(self._span[0])
        return self._day


_WAYS: Final[Mapping[str, tuple[str, Callable[[PeriodTokens], Policy]]]] = {
    DAILY_FIRST: ("day", lambda _: Overflow()),
    DAILY_PRICE: ("day", _AskedPolicy),
    PERIOD_PRICE: ("month", _AskedPolicy),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Task:
    name: str
    jobs: LoopJobs
    terms: BudgetTerms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Done:
    result: LoopResult
    spending: Spending
    seconds: float


def replay_budgets(jobs: LoopJobs, terms: BudgetTerms, tick: Tick | None = None) -> dict[str, Any]:
    """Run the ways to spend side by side, and report them as ``advisor replay budget --format json``.

    Raises:
        BadInput: The log does not say when it began, or the share is not positive.
    """
    began = time.perf_counter()
    if not jobs.table.start_of_log:
        raise BadInput(
            "the log's header does not say when time 0 was (UnixStartTime), so that it has no calendar",
            where=jobs.table.name,
            mend="Add the line `; UnixStartTime: <epoch seconds>` to its header",
            code="budget.no_calendar",
        )
    share = terms.world.budget_share
    if not 0.0 < share < math.inf:
        raise BadInput(
            f"a budget cannot be {share:g} times what the log's jobs use",
            where="--budget-share",
            mend="Give a share of the log's core-hours above 0, such as 0.05",
            code="budget.share",
        )
    tasks = [_Task(name=name, jobs=jobs, terms=terms) for name in (ON_PREMISE, *_WAYS)]
    sizes = [len(jobs)] * len(tasks)
    done = side_by_side(_simulate, tasks, sizes, processes=terms.processes, tick=tick)
    usual = done[0].result.end - jobs.submit
    rows = [_row(task.name, jobs, one, usual) for task, one in zip(tasks[1:], done[1:], strict=True)]
    capped = max(row["saved_hours"] for row in rows if row["name"] != PERIOD_PRICE)
    paced = next(row["saved_hours"] for row in rows if row["name"] == PERIOD_PRICE)
    return {
        "trace": jobs.table.name,
        "jobs": len(jobs),
        "days": jobs.span / _DAY,
        "budget_share": share,
        "users": len(_user_amounts(jobs, terms)),
        "carry_over": terms.carries_over,
        "on_premise_mean_wait_seconds": float((usual - jobs.run).mean()),
        "saved_vs_daily_cap": paced / capped if capped > 0.0 else None,
        "rows": rows,
        "seconds": time.perf_counter() - began,
    }


def _row(name: str, jobs: LoopJobs, done: _Done, usual: np.ndarray[Any, Any]) -> dict[str, Any]:
    """One way to spend the same sum; the hours saved are those of all jobs, against all on-premise."""
    turnaround = done.result.end - jobs.submit
    spending = asdict(done.spending)
    if math.isnan(done.spending.demand_share):
        spending["demand_share"] = None
    return {
        "name": name,
        "saved_hours": float((usual - turnaround).sum()) / _HOUR,
        "mean_wait_seconds": float((turnaround - jobs.run).mean()),
        "core_hours": float(done.result.cost.sum()) / _HOUR,
        **spending,
        "moved_jobs": int(done.result.moved.sum()),
        "seconds": done.seconds,
    }


def _simulate(task: _Task, tick: Tick | None) -> _Done:
    began = time.perf_counter()
    progress = None if tick is None else lambda done, total: tick(task.name, done, total)
    jobs, terms = task.jobs, task.terms
    if task.name == ON_PREMISE:
        result = World(jobs, terms.world, Policy()).run(progress)
        return _Done(result=result, spending=Spending(), seconds=time.perf_counter() - began)
    period, make = _WAYS[task.name]
    tokens = _tokens(jobs, terms, period)
    policy = make(tokens)
    result = World(jobs, terms.world, policy, tokens).run(progress)
    until = tokens.now
    spent = {
        (payer, begin): money
        for payer, budget in ((None, tokens.site), *tokens.accounts.items())
        for begin, money in budget.periods(until).items()
    }
    exceeded = sum(money.spent > money.allowance * (1.0 + _ROUNDING) for money in spent.values())
    demand = math.nan
    if isinstance(policy, _AskedPolicy):
        demand = _demand_share(policy.asked, tokens, spent, result)
    spending = Spending(
        spent_share=float(result.cost.sum()) / (terms.world.budget_share * jobs.core_seconds),
        demand_share=demand,
        budgets=sum(money.spent > 0.0 for money in spent.values()),
        exceeded=exceeded,
    )
    return _Done(result=result, spending=spending, seconds=time.perf_counter() - began)


def _tokens(jobs: LoopJobs, terms: BudgetTerms, period: str) -> PeriodTokens:
    first, epoch = float(jobs.submit[0]), jobs.table.start_of_log
    per_second = terms.world.budget_share * jobs.core_seconds / max(jobs.span, 1.0)

    def budget(core_seconds_per_month: float) -> PeriodBudget:
        amount = core_seconds_per_month * (_DAY / _MONTH if period == "day" else 1.0)
        return PeriodBudget(amount, period, time=epoch + first, carries_over=terms.carries_over)

    return PeriodTokens(
        budget(per_second * _MONTH),
        {user: budget(amount) for user, amount in _user_amounts(jobs, terms).items()},
        _users(jobs),
        epoch=epoch,
        time=first,
        per_day=per_second * _DAY,
    )


def _users(jobs: LoopJobs) -> Ints:
    return jobs.table.user[jobs.first : jobs.first + len(jobs)]


def _user_amounts(jobs: LoopJobs, terms: BudgetTerms) -> dict[int, float]:
    """Each user's budget of a month, core-seconds: a share of their use in a month with a submission."""
    if not terms.has_users:
        return {}
    users, used = _users(jobs), jobs.run * jobs.processors
    months = ((jobs.submit - jobs.submit[0]) / _MONTH).astype(np.int64)
    found = dict[int, float]()
    for user in np.unique(users[users >= 0]).tolist():
        own = users == user
        found[user] = terms.world.budget_share * float(used[own].sum()) / len(np.unique(months[own]))
    return found


def _demand_share(
    asked: Mapping[tuple[str, int], tuple[float, float]],
    tokens: PeriodTokens,
    spent: Mapping[tuple[int | None, str], PeriodMoney],
    result: LoopResult,
) -> float:
    """The money spent of each budget and period, over the money available.

    A job that never moved could have been paid if its worst case fits into a whole budget of the period. What
    users have no money for, the site could not have spent either.
    """
    refused, still_payable = dict.fromkeys(spent, 0.0), defaultdict[str, float](float)
    for (begin, row), (cost, most) in asked.items():
        if result.moved[row]:
            continue
        user = tokens.account_of(row)
        for payer in (None,) if user is None else (None, user):
            budget = tokens.site if payer is None else tokens.accounts[payer]
            if most <= budget.amount:
                refused[payer, begin] += cost
                still_payable[begin] += cost if user is None else 0.0
    could = {key: min(money.allowance, money.spent + refused[key]) for key, money in spent.items()}
    for (payer, begin), money in spent.items():
        if payer is not None:
            still_payable[begin] += could[payer, begin] - money.spent
    for (payer, begin), money in spent.items():
        if payer is None:
            could[payer, begin] = min(could[payer, begin], money.spent + still_payable[begin])
    whole = sum(could.values())
    return sum(money.spent for money in spent.values()) / whole if whole > 0.0 else math.nan
