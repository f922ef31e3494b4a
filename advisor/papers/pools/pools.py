"""Jobs on spot traces of several zones and types: lost work and money, by who chooses the pool."""

from __future__ import annotations

import heapq
import time as clock
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from advisor.decide.spot.pools import rounds_for_run
from advisor.decide.submission.capacity import MAX_SPOT_INTERRUPTIONS
from advisor.ec2.pools import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS
from advisor.model.errors import BadInput
from advisor.model.spot_pools import SpotPool
from advisor.papers.pools.markets import MarketPool, draw_markets, groups_of, read_prices
from advisor.predict.survival.pool_survival import Life, PoolSurvival, pool_survival
from advisor.service.state.life_record import MAX_ENDED

Progress = Callable[[str, int, int], None]
"""Called with (what is simulated, draws done, draws)."""

CHEAPEST_TYPE: Final = "cheapest_type"
CHEAPEST_POOL: Final = "cheapest_pool"
CHOSEN: Final = "chosen"
ON_DEMAND: Final = "on_demand"
_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_REFIT_SECONDS: Final = 3600.0
_RESTART_SECONDS: Final = 120.0
USUAL_TYPES: Final = ("c4.4xlarge=0.796", "c5.4xlarge=0.68", "m4.4xlarge=0.80", "m5.4xlarge=0.768")
"""Types of 16 vCPU and their on-demand prices in us-east-1, 2021."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """The jobs, each on one instance, and what is known of them.

    Attributes:
        on_demand: US dollars per hour of each instance type.
        shortest_hours, longest_hours: Run times, drawn evenly on a logarithmic scale.
        jobs_per_hour: Rate of the random arrivals.
        error: Standard deviation of the logarithm of forecast over true run time.
        draws: Number of draws of types, zones, beginnings and jobs.
        history_hours: Survival is learned from jobs that arrive before this time; they are not counted.
    """

    on_demand: Mapping[str, float]
    shortest_hours: float = 1.0
    longest_hours: float = 24.0
    jobs_per_hour: float = 2.0
    error: float = 0.5
    draws: int = 6
    seed: int = 1
    history_hours: float = 24.0


@dataclass(slots=True)
class _Used:
    """The use of a policy's jobs: hours of instances, hours of work, and US dollars."""

    jobs: int = 0
    work: float = 0.0
    lost: float = 0.0
    on_demand: float = 0.0
    usd: float = 0.0

    def add(self, other: _Used) -> None:
        self.jobs += other.jobs
        self.work += other.work
        self.lost += other.lost
        self.on_demand += other.on_demand
        self.usd += other.usd


@dataclass(frozen=True, slots=True)
class _Job:
    arrives: float
    run: float
    forecast: float


@dataclass(slots=True)
class _World:
    """One draw: the pools and the lives of instances so far."""

    pools: Sequence[MarketPool]
    on_demand: float
    lives: list[Life] = field(default_factory=list)
    model: PoolSurvival | None = None
    fitted_at: float = -np.inf
    closed: dict[str, tuple[float, float]] = field(default_factory=dict)  # until when, length of the pause

    def survival(self, now: float) -> PoolSurvival:
        """The survival learned from the instances that were launched in the pools until now."""
        if self.model is None or now - self.fitted_at >= _REFIT_SECONDS:
            seen = [
                life if life.end <= now else Life(pool=life.pool, start=life.start, end=now, was_taken=False)
                for life in self.lives[-MAX_ENDED:]
            ]
            self.model = pool_survival(seen, now, [pool.key for pool in self.pools])
            self.fitted_at = now
        return self.model

    def is_open(self, key: str, now: float) -> bool:
        """Whether a pool may be tried, as live: its last launch was not refused, or the pause is over."""
        return now >= self.closed.get(key, (now, 0.0))[0]

    def launch(self, pools: Sequence[MarketPool], now: float) -> Sequence[MarketPool]:
        """Those of the tried pools with room, of which EC2 takes one; where none has room all are closed."""
        if free := [pool for pool in pools if pool.free(now) > 0]:
            return free
        for pool in pools:
            pause = min(MAX_PAUSE_SECONDS, 2.0 * self.closed.get(pool.key, (0.0, FIRST_PAUSE_SECONDS / 2))[1])
            self.closed[pool.key] = now + pause, pause
        return ()


Choice = Callable[[_World, _Job, float, int], Sequence[MarketPool]]
"""Function that chooses pools with capacity for a job, of which EC2 takes one; none: on-demand."""


def _cheapest(world: _World, _: _Job, now: float, __: int) -> Sequence[MarketPool]:
    """The cheapest of those that have capacity, as if that were known."""
    free = [pool for pool in world.pools if pool.free(now) > 0]
    return (min(free, key=lambda pool: pool.price(now)),) if free else ()


def _chosen(world: _World, job: _Job, now: float, tries: int) -> Sequence[MarketPool]:
    """The rule that runs live, with the data known at that moment: a launch says which pools have no room."""
    model = world.survival(now)
    offers = [
        SpotPool(
            key=pool.key,
            usd_per_hour=pool.price(now),
            lasts=model.lasts(pool.key),
            is_open=world.is_open(pool.key, now),
        )
        for pool in world.pools
    ]
    for tried in rounds_for_run(offers, job.forecast, world.on_demand, tries):
        keys = {offer.key for offer in tried}
        if free := world.launch([pool for pool in world.pools if pool.key in keys], now):
            return free
    return ()


def _none(*_: Any) -> Sequence[MarketPool]:
    return ()


def replay_pools(
    paths: Sequence[Path], price_file: Path, options: PoolOptions, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Run the same jobs by each policy; a job that spot was taken from twice goes on-demand.

    ``cheapest_type`` has one instance type, the one of the lowest mean price, in all its zones; ``chosen`` is
    the rule of `advisor.decide.spot.pools`. Where no pool has capacity, or none is worth it, a job is
    launched on-demand, as the cheapest type. Jobs take no capacity from each other, and an instance costs the
    price of its launch to its end.

    Raises:
        BadInput: Files that cannot be used, too few instance types with prices, or no job to be counted.
    """
    begun = clock.monotonic()
    groups, prices = groups_of(paths), read_prices(price_file)
    _check(groups, prices.keys(), options)
    totals: dict[str, _Used] = {}
    for draw in range(options.draws):
        progress("draws", draw, options.draws)
        generator = np.random.default_rng((options.seed, draw))
        pools = draw_markets(groups, prices, sorted(options.on_demand), generator)
        until = min(len(pool.capacity.counts) * pool.capacity.gap_seconds for pool in pools)
        jobs = _jobs(until, options, generator)
        cheapest = _cheapest_type(pools, until)
        of_type = [pool for pool in pools if pool.instance_type == cheapest]
        for name, of, choice in (
            (CHEAPEST_TYPE, of_type, _cheapest),
            (CHEAPEST_POOL, pools, _cheapest),
            (CHOSEN, pools, _chosen),
            (ON_DEMAND, pools, _none),
        ):
            world = _World(of, options.on_demand[cheapest])
            used = _run(world, jobs, choice, options, np.random.default_rng((options.seed, draw, 1)))
            totals.setdefault(name, _Used()).add(used)
    base = totals[CHEAPEST_TYPE]
    if not base.jobs:
        raise BadInput(
            f"no job arrives after the first {options.history_hours:g} hours, which are only learned from",
            where="--spot",
            mend="Give longer traces, or more jobs an hour (--jobs)",
            code="pools.no_jobs",
        )
    return {
        **asdict(options),
        "on_demand": dict(options.on_demand),
        "groups": {name: [path.name for path in files] for name, files in groups.items()},
        "rows": [_row(name, used, base) for name, used in totals.items()],
        "seconds": clock.monotonic() - begun,
    }


def _run(
    world: _World,
    jobs: Sequence[_Job],
    choice: Choice,
    options: PoolOptions,
    generator: np.random.Generator,
) -> _Used:
    used = _Used()
    waiting = [(job.arrives, number, 0) for number, job in enumerate(jobs)]
    heapq.heapify(waiting)
    while waiting:
        now, number, losses = heapq.heappop(waiting)
        job = jobs[number]
        counts = job.arrives >= options.history_hours * _HOUR
        if losses == 0 and counts:
            used.jobs += 1
            used.work += job.run / _HOUR
        tries = MAX_SPOT_INTERRUPTIONS - losses
        good = choice(world, job, now, tries) if tries > 0 else ()
        if not good:
            if counts:
                used.on_demand += job.run / _HOUR
                used.usd += world.on_demand * job.run / _HOUR
            continue
        # EC2 chooses among the pools that are as good, and it is not known which instance it takes back first
        pool = good[int(generator.integers(len(good)))]
        world.closed.pop(pool.key, None)
        taken = pool.end_of(now, int(generator.integers(pool.free(now))))
        end = min(taken, now + job.run)
        world.lives.append(Life(pool=pool.key, start=now, end=end, was_taken=taken < now + job.run))
        if counts:
            used.usd += pool.price(now) * (end - now) / _HOUR
        if taken < now + job.run:
            used.lost += (end - now) / _HOUR if counts else 0.0
            heapq.heappush(waiting, (end + _RESTART_SECONDS, number, losses + 1))
    return used


def _jobs(until: float, options: PoolOptions, generator: np.random.Generator) -> list[_Job]:
    number = generator.poisson(options.jobs_per_hour * until / _HOUR)
    arrives = np.sort(generator.uniform(0.0, until, number))
    low, high = np.log(options.shortest_hours), np.log(options.longest_hours)
    runs = _HOUR * np.exp(generator.uniform(low, high, number))
    forecasts = runs * np.exp(generator.normal(0.0, options.error, number))
    return [_Job(*map(float, row)) for row in zip(arrives, runs, forecasts, strict=True)]


def _cheapest_type(pools: Sequence[MarketPool], until: float) -> str:
    """The instance type of the lowest mean price over the replay, which this baseline knows ahead."""
    means: dict[str, list[float]] = {}
    for pool in pools:
        means.setdefault(pool.instance_type, []).extend(
            pool.price(t) for t in np.arange(0.0, until, _DAY / 4)
        )
    return min(means, key=lambda name: float(np.mean(means[name])))


def _row(name: str, used: _Used, base: _Used) -> dict[str, Any]:
    def against(value: float, other: float) -> float | None:
        return value / other - 1.0 if other else None

    return {
        "policy": name,
        "jobs": used.jobs,
        "lost_work_share": used.lost / used.work,
        "usd_per_work_hour": used.usd / used.work,
        "on_demand_share": used.on_demand / used.work,
        "lost_vs_cheapest_type": against(used.lost, base.lost),
        "usd_vs_cheapest_type": against(used.usd, base.usd),
    }


def _check(
    groups: Mapping[str, Sequence[Path]], priced: Collection[tuple[str, str]], options: PoolOptions
) -> None:
    zones = {kind: sum(each == kind for each, _ in priced) for kind in options.on_demand}
    most = max(len(files) for files in groups.values())
    poor = sorted(kind for kind, number in zones.items() if number < most)
    if len(options.on_demand) < len(groups) or poor:
        what = f"no prices of {poor[0]} in {most} zones" if poor else f"{len(groups)} kinds of traces"
        raise BadInput(
            f"{what}; {len(options.on_demand)} instance types are named",
            where="--type",
            mend="Name at least as many types as there are kinds of traces, all with prices in enough zones",
            code="pools.types",
        )
