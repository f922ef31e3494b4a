"""Promises made to every job of a log, and kept by starts in the cloud as late as they still keep them.

Each job is promised alone: the others do what they did all on-premise, so that its wait there is known to
the judge whatever it does, and so is what a clairvoyant would have paid. It keeps its place on-premise while
it runs in the cloud, and may begin anew there when its turn comes, as where ``hedge.enabled`` is set.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.decide.promise.chances import ended_of, mean_run, run_at
from advisor.decide.promise.price_list import (
    Levels,
    Offer,
    Outlook,
    SpotLives,
    comes_back,
    last_start,
    price_list,
    start_for,
)
from advisor.decide.spot.pools import lives_of, pools_for_run
from advisor.model.advice import Capacity
from advisor.model.spot_pools import LASTS_HOURS, SpotPool
from advisor.predict.promised.levels import Kind, PromiseLevels, may_be_lost
from advisor.predict.promised.waits import PlannedWaits, Plans
from advisor.predict.run_times.grid import GRID
from advisor.replay.closed_loop.learned_runs import LearnedRuns
from advisor.replay.closed_loop.log import LoopJobs
from advisor.replay.closed_loop.pool_runs import PoolRuns
from advisor.simulate.pool.pool import Event, Pool

Progress = Callable[[int, int], None]
"""Called with (jobs submitted, jobs)."""

_VALUES: Final = (1.0, 100.0)
"""Core-hours that an hour sooner is worth to a job's user: drawn for each job, log-uniform."""
_ROUND: Final = 600.0
"""Jobs that were not worth their start at their last moment are asked about again at such times, seconds."""
_ROUNDING: Final = 1e-6  # seconds
_LONG: Final = 0.95
"""The upper bound of a run time's 90 % interval, which the ledger has live."""
_NEVER: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseOptions:
    """The parameters of the promises and of the cloud.

    Attributes:
        confidence: Share of promises to be kept.
        boot_seconds: Time from the request of a node to the job's start there.
        slowdown: s, run time in the cloud over run time on-premise.
        seed: Seed of the random values that users put on an hour.
        keeps_place: Whether a job keeps its place on-premise while it runs in the cloud.
        spot_hours: Mean life of a spot instance, hours, exponentially distributed; 0: no spot.
        spot_price: Price of an hour on spot over that of an hour on-demand.
    """

    confidence: float = 0.95
    boot_seconds: float = 120.0
    slowdown: float = 1.05
    seed: int = 1
    keeps_place: bool = True
    spot_hours: float = 0.0
    spot_price: float = 0.3


@dataclass(slots=True)
class _Promise:
    """A promise made, and what has become of its job so far.

    Attributes:
        core_seconds: What its job is expected to use.
        began: When it started in the cloud, seconds; infinite: it did not.
        lost: When its spot instance is lost, seconds; infinite: it is not on spot, or ends before.
        price: Of where it runs in the cloud, over the price on-demand.
        paid: What it has cost on an instance that was lost, in seconds of on-demand.
        ends: When its own run ends, as far as it is decided; infinite: not yet.
        waited: Seconds of its wait on-premise that are learned.
    """

    kind: Kind
    third: int
    deadline: float
    plans: Plans
    ended: Floats
    core_seconds: float
    began: float = _NEVER
    lost: float = _NEVER
    price: float = 1.0
    paid: float = 0.0
    ends: float = _NEVER
    waited: float = 0.0
    is_judged: bool = False
    is_learned: bool = False


class PromiseReplay:
    """One log with a promise to every job.

    Attributes:
        kind, kept, cost: By row: the row of the price list that was chosen, whether it was kept, and what it
            cost in core-seconds.
        clairvoyant: What a clairvoyant pays for the promises that were kept, core-seconds by row.
        sooner: Seconds by which the deadline lies before that of the free row.
        returned: Jobs that came back from the cloud when their turn on-premise came.
        on_spot: Jobs that started on spot.
        lost: Those of them that lost their instances.
    """

    def __init__(self, jobs: LoopJobs, options: PromiseOptions) -> None:
        count = len(jobs)
        self.jobs, self.options = jobs, options
        self.kind = np.zeros(count, np.int64)
        self.kept = np.zeros(count, np.bool_)
        self.cost = np.zeros(count)
        self.clairvoyant = np.zeros(count)
        self.sooner = np.zeros(count)
        self.returned = self.on_spot = self.lost = 0
        self._pool = Pool(jobs.machine, count, float(jobs.submit[0]))
        self._waits = PlannedWaits()
        self._levels = PromiseLevels(options.confidence, len(Kind))
        self._runs = LearnedRuns()
        self._open: dict[int, _Promise] = {}
        self._unjudged: dict[int, int] = {}
        self._alarms: list[tuple[float, int]] = []
        self._queue = PoolRuns(jobs.limit, LearnedRuns.edges)
        self._planned_at, self._starts = -_NEVER, (np.empty(0), np.empty(0))
        low, high = np.log(_VALUES)
        drawn = np.random.default_rng(options.seed).random(len(jobs.table))[jobs.first : jobs.first + count]
        self._values: NDArray[np.float64] = np.exp(low + drawn * (high - low))
        self._pools, self._spot = _spot(options)
        self._lives = np.random.default_rng((options.seed, 1)).exponential(3600.0 * options.spot_hours, count)

    def run(self, progress: Progress | None = None) -> None:
        """Run until every job has ended."""
        jobs = self.jobs
        self._runs.learn_history(jobs, float(jobs.submit[0]))
        for row in range(len(jobs)):
            self._go_on(float(jobs.submit[row]))
            self._submit(row)
            if progress is not None and row % 500 == 0:
                progress(row, len(jobs))
        self._go_on(_NEVER)

    # ------------------------------------------------------------------------------------- the clock

    def _go_on(self, until: float) -> None:
        """Let the queue and the promises run to a time, in the order of their events."""
        while True:
            alarm = self._alarms[0][0] if self._alarms else _NEVER
            upto = min(alarm, until, self._pool.next_event)
            if upto == _NEVER:
                return
            for event in self._pool.advance(upto):
                self._take(event)
            while self._alarms and self._alarms[0][0] <= upto:
                self._due(heapq.heappop(self._alarms)[1], upto)
            if upto >= until:
                return

    def _take(self, event: Event) -> None:
        if event.has_started:
            self._turn_comes(event.row, event.time)
        else:
            self._queue.forget(event.row)

    def _due(self, row: int, now: float) -> None:
        promise = self._open.get(row)
        if promise is None:
            return
        if now >= promise.lost - _ROUNDING:
            self._lose(row, promise, now)
        if now >= promise.ends - _ROUNDING and not promise.is_learned:
            promise.is_learned = True
            self._runs.learn(self.jobs, row)
        if now >= min(promise.ends, promise.deadline + 1.0) - _ROUNDING:
            self._judge(row, promise, is_kept=promise.ends <= promise.deadline + _ROUNDING)
        if promise.is_judged and promise.is_learned and not self._pool.is_waiting(row):
            del self._open[row]
        elif promise.kind != Kind.FREE and promise.began == _NEVER and self._pool.is_waiting(row):
            self._consider(row, promise, now)

    # -------------------------------------------------------------------------------------- promises

    def _submit(self, row: int) -> None:
        self._planned_at = -_NEVER  # the queue has one more
        jobs, now = self.jobs, float(self.jobs.submit[row])
        limit, processors = float(jobs.limit[row]), int(jobs.processors[row])
        self._pool.add(row, processors=processors, limit=limit, run=float(jobs.run[row]), order=float(row))
        self._runs.submitted(jobs, row)
        chances = self._runs.forecast(jobs, row)
        self._queue.see(row, chances)
        ended = ended_of(chances)
        third = self._levels.third_of(processors * limit)
        self._levels.learn_size(processors * limit)
        core_seconds = processors * mean_run(ended, limit)
        outlook = self._outlook(row, ended, now, self._levels.thrift(third, core_seconds))
        user = int(jobs.table.user[jobs.first + row])
        alike = self._unjudged.get(user, 0)
        levels = Levels(*(self._levels.level(kind, third, alike, core_seconds) for kind in Kind))
        self._unjudged[user] = alike + 1
        offers = price_list(outlook, levels)
        chosen = self._choice(row, offers)
        plans = self._plans(row, now)
        promise = _Promise(chosen.kind, third, now + chosen.ready, plans, ended, core_seconds)
        self._levels.made_one(chosen.kind, third)
        self.kind[row] = chosen.kind
        self.sooner[row] = offers[-1].ready - chosen.ready
        self._open[row] = promise
        self._alarm(promise.deadline + 1.0, row)
        if chosen.kind != Kind.FREE:
            self._consider(row, promise, now, outlook)

    def _choice(self, row: int, offers: tuple[Offer, ...]) -> Offer:
        """The row of the list that is worth most to the job's user."""
        free, value = offers[-1], float(self._values[row])
        return max(
            reversed(offers), key=lambda offer: value * (free.ready - offer.ready) / 3600.0 - offer.cost
        )

    def _consider(self, row: int, promise: _Promise, now: float, outlook: Outlook | None = None) -> None:
        """Start a waiting job in the cloud where its promise needs that now."""
        if outlook is None:
            thrift = self._levels.thrift(promise.third, promise.core_seconds)
            outlook = self._outlook(row, promise.ended, now, thrift)
        left = promise.deadline - now
        if left <= 0.0:
            return
        latest = 0.0
        if promise.kind == Kind.BETWEEN:
            level = self._levels.level(promise.kind, promise.third, core_seconds=promise.core_seconds)
            latest = last_start(outlook, left, level)
        strain = self._levels.strain(promise.kind, promise.third)
        start = start_for(outlook, left, latest, strain, promise.kind)
        if start.capacity is not None:
            self._start(row, promise, now, start.capacity)
        elif start.again_in:
            self._alarm(now + start.again_in, row)
        else:
            self._alarm((now // _ROUND + 1.0) * _ROUND, row)

    def _start(self, row: int, promise: _Promise, now: float, capacity: Capacity) -> None:
        options = self.options
        promise.began = now
        promise.ends = now + options.boot_seconds + options.slowdown * float(self.jobs.run[row])
        promise.lost, promise.price = _NEVER, 1.0
        if capacity is Capacity.SPOT:
            self.on_spot += 1
            promise.price = options.spot_price
            if now + self._lives[row] < promise.ends:
                promise.lost, promise.ends = now + self._lives[row], _NEVER
        self._alarm(min(promise.lost, promise.ends), row)

    def _lose(self, row: int, promise: _Promise, now: float) -> None:
        """Begin anew on-demand, where EC2 takes back the spot instance."""
        self.lost += 1
        promise.paid += promise.price * self._paid_until(promise, now)
        self._start(row, promise, now, Capacity.ON_DEMAND)

    def _paid_until(self, promise: _Promise, now: float) -> float:
        """Seconds that a job has run in the cloud since its last start there."""
        return max(0.0, now - promise.began - self.options.boot_seconds)

    def _turn_comes(self, row: int, now: float) -> None:
        """The job starts on-premise, or its place has come while it runs, or has run, in the cloud."""
        jobs, options, promise = self.jobs, self.options, self._open[row]
        run, processors = float(jobs.run[row]), float(jobs.processors[row])
        here = now + run
        if promise.began == _NEVER:
            cost, promise.ends = 0.0, here
        elif promise.ends <= now or not self._is_back(row, promise, now):
            if promise.lost < _NEVER:
                self._lose(row, promise, promise.lost)
            cost = options.slowdown * run
        else:
            cost, promise.ends, promise.lost = self._paid_until(promise, now), here, _NEVER
            self.returned += 1
        cost = promise.paid + promise.price * cost
        if promise.ends > now:
            waited = now - float(jobs.submit[row])
            if promise.began == _NEVER or options.keeps_place:
                self._waits.learn(promise.plans, waited, has_started=True, since=promise.waited)
            self._alarm(promise.ends, row)
        else:
            self._due(row, now)
        self._settle(row, promise, processors * cost, here)

    def _is_back(self, row: int, promise: _Promise, now: float) -> bool:
        options = self.options
        if not options.keeps_place:
            return False
        return comes_back(
            promise.ended,
            limit=float(self.jobs.limit[row]),
            slowdown=options.slowdown,
            left=promise.deadline - now,
            elapsed=self._paid_until(promise, now),
            boot_left=max(0.0, promise.began + options.boot_seconds - now),
            strain=self._levels.strain(promise.kind, promise.third),
            kind=promise.kind,
        )

    def _settle(self, row: int, promise: _Promise, cost: float, here: float) -> None:
        self.cost[row] = cost
        self.kept[row] = promise.ends <= promise.deadline + _ROUNDING
        if self.kept[row] and here > promise.deadline + _ROUNDING:
            core_seconds = float(self.jobs.processors[row] * self.jobs.run[row])
            self.clairvoyant[row] = self.options.slowdown * core_seconds

    def _judge(self, row: int, promise: _Promise, *, is_kept: bool) -> None:
        if promise.is_judged:
            return
        promise.is_judged = True
        self._unjudged[int(self.jobs.table.user[self.jobs.first + row])] -= 1
        self._levels.learn(
            promise.kind,
            promise.third,
            is_kept=is_kept,
            by_run=promise.began < _NEVER or self._has_run_long(row, promise),
            core_seconds=promise.core_seconds,
        )
        if self._pool.is_waiting(row):
            # a job that ends in the cloud gives up its place: how long it would have waited stays unknown
            left = min(promise.ends, promise.deadline)
            left = left if self.options.keeps_place else min(left, promise.began)
            promise.waited = max(0.0, left - float(self.jobs.submit[row]))
            self._waits.learn(promise.plans, promise.waited, has_started=False)

    def _has_run_long(self, row: int, promise: _Promise) -> bool:
        """Whether a job that started on-premise has run longer by its deadline than one of twenty does."""
        if promise.ends == _NEVER:
            return False
        limit, run = float(self.jobs.limit[row]), float(self.jobs.run[row])
        ran = min(run, promise.deadline - (promise.ends - run))
        return ran > run_at(promise.ended, _LONG, limit)

    def _outlook(self, row: int, ended: Floats, now: float, thrift: float) -> Outlook:
        plans = self._plans(row, now)
        waits, shares = self._waits.spread(plans)
        slowdown, limit = self.options.slowdown, float(self.jobs.limit[row])
        is_worth = self._pools and pools_for_run(self._pools, slowdown * mean_run(ended, limit), 1.0, tries=1)
        return Outlook(
            planned=plans.limits,
            waits=waits,
            shares=shares,
            ended=ended,
            limit=limit,
            start=self.options.boot_seconds,
            slowdown=slowdown,
            price=float(self.jobs.processors[row]) / 3600.0,
            keeps_place=self.options.keeps_place,
            spot=self._spot if is_worth else None,
            thrift=thrift,
        )

    def _plans(self, row: int, now: float) -> Plans:
        """The waits from now on that are planned for a job."""
        if self._planned_at != now:
            self._planned_at = now
            self._starts = (self._pool.forecast(self.jobs.limit), self._queue.starts(self._pool))
        return Plans(*(max(0.0, float(starts[row]) - now) for starts in self._starts))

    def _alarm(self, when: float, row: int) -> None:
        heapq.heappush(self._alarms, (when, row))


def _spot(options: PromiseOptions) -> tuple[list[SpotPool], SpotLives | None]:
    """The one spot pool of a replay, and how long its instances last; neither where there is no spot."""
    if not options.spot_hours:
        return [], None
    lasts = tuple(math.exp(-hours / options.spot_hours) for hours in LASTS_HOURS)
    pools = [SpotPool(key="spot", usd_per_hour=options.spot_price, lasts=lasts)]
    return pools, SpotLives(lives_of(pools, GRID), may_be_lost(options.confidence))
