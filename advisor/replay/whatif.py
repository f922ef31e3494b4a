"""What other settings would have done with a site's own jobs: the same decision function, the same forecasts.

Every job of a window is advised twice, under the settings in force and under changed ones, from what was
known at its submission. The outcome is computed from what happened: a moved job saves its wait and pays for
the boot and the slower run; a hedged job comes back as :mod:`advisor.decide.hedge.hedging` says. The queue
stays as it was: the time that a move would have saved the jobs behind is not counted, so the savings
are underestimated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from advisor.decide.hedge._hedge_curves import outcome
from advisor.decide.hedge.hedge_offer import hedge_case, worst_core_seconds
from advisor.decide.submission.advise import advise
from advisor.decide.submission.capacity import boot_seconds, cores_billed, cost_usd, usd_per_core_hour
from advisor.decide.submission.placement import PlacementCase, as_case, ratio_of
from advisor.decide.submission.proven import candidate_chance, worst_seconds
from advisor.decide.submission.proven_rows import Fate, RecordInTime
from advisor.model.advice import Advice, Capacity, HedgeKind, Mode, Placement
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState
from advisor.model.table import JobTable
from advisor.predict.knn.tracker import StateColumns
from advisor.replay.learned_price import LearnedPrice

Rows = NDArray[np.int64]
JobAt = Callable[[int], Job]
EstimatesAt = Callable[[int], Estimates]

_DAY: Final = 86_400.0
_STEP: Final = 256
NOTHING_SEEN: Final = SiteState(time=0.0, cluster=None)


@dataclass(slots=True)
class WhatIfRow:
    """What one set of settings would have done.

    Attributes:
        jobs, cloud_jobs, hedged_jobs, slower_jobs: Jobs judged; jobs that would have started in the cloud;
            hedged ones among these; jobs that would have ended later than they did.
        saved_seconds, lost_seconds: Turnaround saved by all together, losses subtracted; those losses (a
            positive number).
        cost_usd, dearest_day_usd: Of all, and of the dearest day by the site's clock.
        cloud_core_hours: Processors times hours, boots included.
        capacity: Jobs by the purchase option.
        reasons: Jobs by the reason that decided.
        mean_turnaround_seconds: Of all jobs judged.
    """

    jobs: int = 0
    cloud_jobs: int = 0
    hedged_jobs: int = 0
    slower_jobs: int = 0
    saved_seconds: float = 0.0
    lost_seconds: float = 0.0
    cost_usd: float = 0.0
    dearest_day_usd: float = 0.0
    cloud_core_hours: float = 0.0
    capacity: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    mean_turnaround_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Jobs to be advised, with what is known of them.

    Attributes:
        table: Jobs that ran on-premise, in submission order, earlier ones included.
        rows: Rows that are advised; the record begins with the first of them.
        first_judged: Position in `rows` from which jobs are counted; those before only make the record.
        states: What each row of the table met.
        job_at, estimates_at: A row's submission; the forecasts of a position in `rows`.
    """

    table: JobTable
    rows: Rows
    first_judged: int
    states: StateColumns
    job_at: JobAt
    estimates_at: EstimatesAt


def window_rows(table: JobTable, since: float, *, before: int) -> tuple[Rows, int]:
    """Rows to advise, and the position of the first one submitted at ``since`` (epoch seconds) or later.

    Args:
        table: In submission order.
        since: Epoch seconds.
        before: Number of earlier rows that are advised too, for the record.

    Raises:
        BadInput: Nothing was submitted since.
    """
    # a job that was cut short has no run time, and the wait of some requeued jobs is unknown
    rows = np.flatnonzero((table.whole_run > 0) & np.isfinite(table.first_wait))
    first = int(np.searchsorted(table.submit[rows] + table.start_of_log, since))
    if first == len(rows):
        raise BadInput(
            "no finished on-premise job was submitted since then",
            where="--since",
            mend="Go further back, or run `advisor ingest` first",
            code="whatif.empty",
        )
    begin = max(0, first - before)
    return rows[begin:], first - begin


def decide_again(
    history: History, settings: Settings, tick: Callable[[int], None], seen: SiteState = NOTHING_SEEN
) -> WhatIfRow:
    """Advise the jobs of a history one after another under these settings.

    Nothing is known earlier than it was: the record takes in each candidate when it has ended, the day's
    money is that of the moves so far, and the price of hedges is learned on the way. Shadow mode makes no
    difference: what would be done counts.

    Args:
        history: The jobs.
        settings: How they are decided.
        tick: Called with the number of jobs done since the last call.
        seen: The site as last seen. Used of it: what the cloud's nodes are like, their boot time and prices,
            the published rule's cutoff, and the learned s(c). What is unknown is as the settings say.
    """
    again = _Again(history, settings, seen)
    for position, row in enumerate(history.rows.tolist()):
        again.decide(position, row)
        if (position + 1) % _STEP == 0:
            tick(_STEP)
    return again.sums.row()


class _Again:
    """Advises jobs in submission order and keeps what would be known on the way."""

    def __init__(self, history: History, settings: Settings, seen: SiteState) -> None:
        acting = settings.cluster.model_copy(update={"default_mode": Mode.ACT, "modes": {}})
        self._settings = settings.model_copy(update={"cluster": acting})
        self._history = history
        self._seen = seen
        start = history.table.start_of_log
        self._account = _Account(self._settings, start, seen.cloud)
        self._boot = boot_seconds(seen.cloud, self._settings)
        hedge = settings.hedge
        price = usd_per_core_hour(Capacity.ON_DEMAND, seen.cloud, self._settings)
        has_prices = hedge.enabled and hedge.has_budget
        self._prices = LearnedPrice(hedge, price, start) if has_prices else None
        self.sums = _Sums(start + history.table.utc_offset_seconds)

    def decide(self, position: int, row: int) -> None:
        """Advise the job of a row, which is at this position of the history's rows."""
        history, table, prices = self._history, self._history.table, self._prices
        job, estimates = history.job_at(row), history.estimates_at(position)
        now, run = float(table.submit[row]), float(table.run[row])
        wait = max(0.0, float(table.first_wait[row]))
        case = as_case(
            processors=job.processors,
            requested_time=job.requested_time,
            estimates=estimates,
            boot=self._boot,
            settings=self._settings.placement,
            tasks=job.array_tasks,
            ratio=ratio_of(job, self._seen.ratios),
        )
        self._account.settle(now)
        has_hedges = self._settings.hedge.enabled or self._settings.waiting.speculate
        forecast = hedge_case(case) if has_hedges else None
        state = self._state(row, now)
        advice = advise(job, state, estimates, self._settings, advice_id="what-if")
        moved = None
        if advice.placement is Placement.BURST and advice.capacity is not None:
            stays = forecast is not None and forecast.stays(wait)
            moved = self._move(row, job, advice, advice.capacity, case, state.cloud, wait, stays=stays)
        if prices is not None and forecast is not None:
            prices.submitted(row, forecast, now, wait, run)
        # a hedged job keeps its place on-premise, so it risks no time
        risks = moved is not None and advice.hedge is None
        fate = Fate(now, wait, run, case.penalty_seconds(run))
        self._account.follow(row, fate, case, risks=risks)
        if position >= history.first_judged:
            self.sums.add(job, advice, now, wait + run, moved)

    def _state(self, row: int, now: float) -> SiteState:
        """What the site would know at a row's submission."""
        prices, seen = self._prices, self._seen
        return SiteState(
            time=now,
            cluster=self._history.states.state(row),
            cloud=self._account.cloud,
            record=self._account.record.now,
            hedge_price=None if prices is None else prices.at(now),
            hedge_left_core_seconds=None if prices is None else prices.left,
            cutoff=seen.cutoff,
            ratios=seen.ratios,
        )

    def _move(
        self,
        row: int,
        job: Job,
        advice: Advice,
        capacity: Capacity,
        case: PlacementCase,
        cloud: CloudState,
        wait: float,
        *,
        stays: bool,
    ) -> _Moved:
        """Start a job in the cloud; ``stays``: its hedge would let it end there."""
        table, prices = self._history.table, self._prices
        cores = cores_billed(job, cloud)
        hedged = advice.hedge is not None and advice.hedge.kind is HedgeKind.HEDGE
        if prices is not None and hedged and advice.hedge is not None:
            prices.reserve(row, worst_core_seconds(advice.hedge, job, cloud, case.boot_seconds))
            longest = case.boot_seconds + case.performance_ratio * (job.requested_time or math.inf)
            stays = stays and prices.reserve(row, cores * longest)
        saved, seconds = _outcome(advice, case, wait, float(table.run[row]), stays=stays)
        usd = cost_usd(job, seconds - case.boot_seconds, capacity, cloud, self._settings)
        self._account.spend(job, usd)
        if prices is not None and hedged:
            prices.hedged(row, float(table.submit[row]) + seconds, cores * seconds)
        return _Moved(saved_seconds=saved, cloud_seconds=seconds, usd=usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """A job that would have started in the cloud: seconds saved, seconds there, dollars."""

    saved_seconds: float
    cloud_seconds: float
    usd: float


def _outcome(
    advice: Advice, case: PlacementCase, wait: float, run: float, *, stays: bool
) -> tuple[float, float]:
    """Seconds saved, and seconds in the cloud, of a job that starts there."""
    boot, slowdown = case.boot_seconds, case.performance_ratio
    if advice.hedge is None:
        return wait - case.penalty_seconds(run), boot + slowdown * run
    # the hedge stops it that long after its boot
    saved, spent, _ = outcome(wait, run, slowdown, boot, boot + advice.hedge.stop_seconds, stays)
    return saved, spent


class _Account:
    """Keeps the record and the day's money as they would be known at each submission."""

    def __init__(self, settings: Settings, start_of_log: float, cloud: CloudState) -> None:
        self._start_of_log = start_of_log
        self._cloud = cloud
        self._day = -1
        self._spent = 0.0
        self._by_account = dict[str, float]()
        self.record = RecordInTime(settings.placement)

    def settle(self, now: float) -> None:
        """Take in what has ended by now; caps count days of UTC (`advisor.service.state.budget`)."""
        self.record.settle(now)
        day = int((now + self._start_of_log) // _DAY)
        if day != self._day:
            self._day, self._spent, self._by_account = day, 0.0, {}

    @property
    def cloud(self) -> CloudState:
        """The cloud with what was committed today."""
        return structs.replace(
            self._cloud,
            spent_today_usd=self._spent,
            spent_today_by_account=MappingProxyType(dict(self._by_account)),
        )

    def spend(self, job: Job, usd: float) -> None:
        """Commit what a job costs."""
        self._spent += usd
        if job.account is not None:
            self._by_account[job.account] = self._by_account.get(job.account, 0.0) + usd

    def follow(self, key: int, fate: Fate, case: PlacementCase, *, risks: bool) -> None:
        """Remember a job for the record; ``risks``: it may lose time until it ends."""
        chance = candidate_chance(case) if case.wait.quantiles and case.run.quantiles else None
        self.record.submitted(key, fate, chance)
        if risks:
            self.record.moved(key, fate, case.tasks * worst_seconds(case))


class _Sums:
    """Adds up the outcomes of the jobs judged."""

    def __init__(self, clock_offset_seconds: float) -> None:
        self._offset = clock_offset_seconds
        self._row = WhatIfRow()
        self._by_day = dict[int, float]()
        self._turnaround = 0.0

    def add(self, job: Job, advice: Advice, now: float, turnaround: float, moved: _Moved | None) -> None:
        """Count one job; ``turnaround`` is what it really took, seconds."""
        row = self._row
        row.jobs += 1
        row.reasons[advice.decisive.reason] += 1
        self._turnaround += turnaround
        if moved is None or advice.capacity is None:
            return
        self._turnaround -= moved.saved_seconds
        row.cloud_jobs += 1
        row.hedged_jobs += advice.hedge is not None
        row.slower_jobs += moved.saved_seconds < 0.0
        row.saved_seconds += moved.saved_seconds
        row.lost_seconds += max(0.0, -moved.saved_seconds)
        row.cost_usd += moved.usd
        row.cloud_core_hours += job.processors * moved.cloud_seconds / 3600.0
        row.capacity[advice.capacity.value] += 1
        day = int((now + self._offset) // _DAY)
        self._by_day[day] = self._by_day.get(day, 0.0) + moved.usd

    def row(self) -> WhatIfRow:
        """The sums as a row."""
        row = self._row
        row.mean_turnaround_seconds = self._turnaround / row.jobs if row.jobs else math.nan
        row.dearest_day_usd = max(self._by_day.values(), default=0.0)
        return row


def clairvoyant(history: History, settings: Settings, seen: SiteState = NOTHING_SEEN) -> WhatIfRow:
    """The clairvoyant's row: it knows waits and run times, and moves each job that ends sooner in the cloud.

    Its cost is NaN, because it depends on which purchase options were open.
    """
    placement, table = settings.placement, history.table
    rows = history.rows[history.first_judged :]
    processors, run, wait = table.processors[rows], table.run[rows], np.maximum(table.first_wait[rows], 0.0)
    ratio = placement.overhead_per_processor * processors + placement.baseline
    if seen.ratios is not None:
        learned = (ratio_of(history.job_at(row), seen.ratios) for row in rows.tolist())
        ratio = np.array([one.factor for one in learned if one is not None])
    boot = boot_seconds(seen.cloud, settings)
    saved = wait - boot - (ratio - 1.0) * run
    seconds = boot + ratio * run
    faster = saved > 0.0
    return WhatIfRow(
        jobs=len(rows),
        cloud_jobs=int(faster.sum()),
        saved_seconds=float(saved[faster].sum()),
        cost_usd=math.nan,
        dearest_day_usd=math.nan,
        cloud_core_hours=float((processors * seconds)[faster].sum() / 3600.0),
        mean_turnaround_seconds=float((wait + run - np.where(faster, saved, 0.0)).mean()),
    )
