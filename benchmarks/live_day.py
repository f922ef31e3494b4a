"""A synthetic day under a budget, squeezed to minutes: its jobs, its past, and the settings of its site.

Each day of the week before had a busy spell like this one. The price begins with that week's demand, and one
day's budget is at hand, so that seconds of the day stand for minutes of a real one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Bools
from advisor.decide.price.tokens import DAY
from advisor.model.job import Job, JobOutcome
from advisor.model.machine import Machine
from advisor.model.table import UNKNOWN_CODE, JobTable
from advisor.papers.cluster.demand import demand_of
from advisor.papers.cluster.engine import simulate
from advisor.replay.closed_loop.log import LoopJobs, loop_jobs
from advisor.service.price.first_price import SiteTerms, rehearsed_demand
from advisor.service.state.budget_records import BudgetRecord
from advisor.service.state.records import PriceRecord
from advisor.service.state.state_files import BUDGET, PRICE

NODES: Final = 24
NODE_PROCESSORS: Final = 2
"""On-premise and in the cloud; every job takes whole nodes."""
CLOUD_NODES: Final = 60
PROCESSORS: Final = NODES * NODE_PROCESSORS
SLOWDOWN: Final = 1.05
USD_PER_NODE_HOUR: Final = 0.36
SUSPEND_SECONDS: Final = 15
REQUEUE_SECONDS: Final = 5
EARLIER_DAYS: Final = 7
_BEFORE: Final = timedelta(minutes=10)
"""From the beginning of the budget's period to the first submission."""
_PROGRAMS: Final = 12
_LIMITS: Final = (1, 2, 3, 5)  # minutes
_SHORTEST: Final = 2.0
_LONGEST: Final = 110.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LiveDay:
    """The jobs of a day and of the days before it.

    Attributes:
        window: The day's jobs; earlier rows of their log are the past. Times are seconds.
        may_requeue: Of each job of the day.
        usd: The budget of a day.
        boot_seconds: That the settings expect of a cloud node.
    """

    window: LoopJobs
    may_requeue: Bools
    usd: float
    boot_seconds: float

    def __len__(self) -> int:
        return len(self.window)

    @property
    def begins_at(self) -> float:
        """Epoch seconds of the first submission."""
        return self._table.start_of_log + float(self.window.submit[0])

    @property
    def _table(self) -> JobTable:
        return self.window.table

    def begun_at(self, time: float) -> LiveDay:
        """The same day with its first submission at ``time``, epoch seconds."""
        table = replace(self._table, start_of_log=time - float(self.window.submit[0]))
        return replace(self, window=replace(self.window, table=table))

    def with_overhead(self, seconds: NDArray[np.float64]) -> LiveDay:
        """The same day where each job holds its nodes so many seconds longer; the past stays."""
        return replace(self, window=replace(self.window, run=self.window.run + seconds))

    def past(self) -> list[JobOutcome]:
        """The earlier days' jobs, as accounting has them."""
        table = self._table
        found = []
        for row in range(self.window.first):
            submit = table.start_of_log + float(table.submit[row])
            job = Job(
                job_id=1_000_000 + row,
                submit_time=submit,
                processors=int(table.processors[row]),
                user="root",
                group="root",
                name=program(int(table.executable[row])),
                queue="onprem",
                requested_time=float(table.requested_time[row]),
            )
            start = submit + float(table.wait[row])
            found.append(JobOutcome(job=job, start_time=start, end_time=start + float(table.run[row])))
        return found

    def write_price(self, state: Path, *, slices: bool = True) -> None:
        """Write what `advisor control` would have left on the evening before, with a day's budget at hand."""
        now, table = self.begins_at, self._table
        past = table.select(np.arange(self.window.first))
        here = replace(past, submit=past.submit + past.start_of_log, start_of_log=0.0)
        terms = SiteTerms(
            usd_per_day=self.usd,
            usd_per_core_hour=USD_PER_NODE_HOUR / NODE_PROCESSORS,
            boot_seconds=self.boot_seconds,
            slowdown=SLOWDOWN,
            loss_weight=1.0,
            has_slices=slices,
            node_processors=NODE_PROCESSORS,
        )
        kept = rehearsed_demand(here, (Machine(("onprem",), PROCESSORS),), terms, now)
        if kept is None:
            msg = "the days before have too few jobs for a price"
            raise ValueError(msg)
        BUDGET.at(state).write(BudgetRecord.empty(began=now - DAY))
        PRICE.at(state).write(
            PriceRecord(
                observed_since=kept.since,
                price=kept.price,
                next_reading=kept.next_reading,
                seen=kept.seen,
            )
        )

    def _period(self) -> str:
        """A day of 24 hours that has just begun: the price depends on how much of the period is left."""
        begin = datetime.fromtimestamp(self.begins_at // 60.0 * 60.0, UTC) - _BEFORE
        first, last = (f"{time:%Y-%m-%dT%H:%M}" for time in (begin, begin + timedelta(days=1)))
        return f"{first} until {last}"

    def settings(self, *, slices: bool) -> dict[str, dict[str, Any]]:
        """What differs from a small site's settings."""
        return {
            "cluster": {"policy": "price", "default_mode": "act"},
            "budget": {"usd": self.usd, "period": self._period()},
            "capacity": {"use_spot": False},
            "ec2": {"on_demand_usd_per_hour": USD_PER_NODE_HOUR},
            "placement": {
                "boot_seconds": self.boot_seconds,
                "baseline": SLOWDOWN,
                "overhead_per_processor": 0.0,
            },
            # a poll of Slurm takes half a second on a busy machine
            "loops": {"snapshot_seconds": 1.0, "learn_seconds": 10.0, "reconcile_seconds": 2.0},
            "hedge": {"enabled": slices, "slot_held_seconds": 30.0},
        }


def program(code: int) -> str:
    """Name of a program's jobs."""
    return f"job{code}"


def draw_live_day(
    seed: int,
    *,
    jobs: int,
    seconds: float,
    budget_share: float,
    share_requeued: float = 0.7,
    boot_seconds: float = 5.0,
) -> LiveDay:
    """Draw a day, and seven before it, of the same users' programs.

    Args:
        seconds: In which the jobs of a day arrive, most of them in its first half.
        budget_share: Of a day's core-seconds.
        share_requeued: Of the jobs that may be requeued.
    """
    drawn = np.random.default_rng(seed)
    table = _drawn_jobs(drawn, jobs=jobs, seconds=seconds, name=f"day {seed}")
    start = simulate(demand_of(table), PROCESSORS).start
    window = loop_jobs(replace(table, wait=start - table.submit), skip=EARLIER_DAYS * jobs, nodes=PROCESSORS)
    core_hours = window.core_seconds / 3600.0
    return LiveDay(
        window=window,
        may_requeue=drawn.random(jobs) < share_requeued,
        usd=round(budget_share * core_hours * USD_PER_NODE_HOUR / NODE_PROCESSORS, 4),
        boot_seconds=boot_seconds,
    )


def _drawn_jobs(drawn: np.random.Generator, *, jobs: int, seconds: float, name: str) -> JobTable:
    """Draw the jobs of all days; their waits are 0."""
    centres = drawn.uniform(1.0, 3.4, _PROGRAMS)
    widths = drawn.choice([2, 4, 8], _PROGRAMS, p=[0.5, 0.3, 0.2])
    limits = drawn.choice(_LIMITS, _PROGRAMS, p=[0.4, 0.3, 0.2, 0.1])
    count = (EARLIER_DAYS + 1) * jobs
    ran = drawn.integers(0, _PROGRAMS, count)
    run = np.exp(drawn.normal(centres[ran], 0.5))
    run = np.where(drawn.random(count) < 0.15, 3.0 * run, run)  # now and then much longer
    run = np.clip(run, _SHORTEST, _LONGEST)
    limit = np.maximum(60.0 * limits[ran], 60.0 * np.ceil((run + 8.0) / 60.0))
    offset = np.sort(seconds * drawn.beta(1.0, 1.6, (EARLIER_DAYS + 1, jobs)), axis=1)
    return JobTable(
        job_id=np.arange(count),
        submit=(offset + DAY * np.arange(EARLIER_DAYS + 1)[:, None]).ravel(),
        wait=np.zeros(count),
        run=run,
        processors=widths[ran].astype(np.int64),
        requested_time=limit,
        user=np.zeros(count, np.int64),
        group=np.full(count, UNKNOWN_CODE, np.int64),
        queue=np.full(count, UNKNOWN_CODE, np.int64),
        status=np.ones(count, np.int64),
        executable=ran.astype(np.int64),
        total_processors=PROCESSORS,
        name=name,
    )
