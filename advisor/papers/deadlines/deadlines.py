"""Jobs with a deadline, begun at many times of spot traces, by each policy on the same starts."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.papers.deadlines.moment import Market, Moment, safe, worked
from advisor.papers.deadlines.omniscient import omniscient
from advisor.papers.deadlines.plan import plan_deadline, planned, step_of
from advisor.papers.deadlines.published import greedy, uniform_progress
from advisor.papers.deadlines.spot_spells import ages_in_spell, spot_chances
from advisor.replay.spot_traces import read_spot_counts

Progress = Callable[[str, int, int], None]
"""Called with (trace, jobs done, jobs)."""
Rule = Callable[[Moment, int], Market]
"""A market, from the moment and the number of the tick in the trace."""

GREEDY: Final = "greedy"
UNIFORM_PROGRESS: Final = "uniform_progress"
PLANNED: Final = "advisor"
OMNISCIENT: Final = "omniscient"
_HOUR: Final = 3600.0
_ROUNDING: Final = 1e-3  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineOptions:
    """The jobs, and the market.

    Attributes:
        hours: Run time of each job.
        fraction: Run time over the time from a job's begin to its deadline.
        changeover_hours: Time without work at each start; rounded to seconds.
        nodes: Instances that a job needs: spot can be had where a trace has as many.
        spot_price: Price of an hour on spot over that of an hour on-demand.
        starts: Jobs of each trace, begun at equal distances.
        history_hours: Begin of each trace before the first job, known to policies that learn.
    """

    hours: float = 48.0
    fraction: float = 0.8
    changeover_hours: float = 0.2
    nodes: int = 1
    spot_price: float = 0.3
    starts: int = 24
    history_hours: float = 72.0

    @property
    def work(self) -> float:
        """Run time, seconds."""
        return self.hours * _HOUR

    @property
    def time(self) -> float:
        """From begin to deadline, seconds."""
        return self.work / self.fraction

    @property
    def changeover(self) -> int:
        """Seconds."""
        return round(self.changeover_hours * _HOUR)


class SpotMarket(NamedTuple):
    """Whether spot can be had at each tick of a trace, shape (ticks,), and the seconds between two ticks."""

    name: str
    tick: int
    has_spot: NDArray[np.bool_]


class Followed(NamedTuple):
    """The time that a job used in each market, and its turnaround; seconds."""

    on_demand: float
    spot: float
    done: float


def follow(rule: Rule, market: SpotMarket, start: int, options: DeadlineOptions) -> Followed:
    """Run a job from tick `start` on by a rule, which :func:`safe` overrules where it could be late."""
    left, time_left, running, starting = options.work, options.time, Market.IDLE, 0.0
    used = [0.0, 0.0, 0.0]
    at = start
    while left > _ROUNDING:
        has_spot = bool(market.has_spot[at])
        if running is Market.SPOT and not has_spot:
            running, starting = Market.IDLE, 0.0
        moment = Moment(left, time_left, running, starting, has_spot, options.changeover, market.tick)
        chosen = safe(moment, rule(moment, at))
        starting = 0.0 if chosen is Market.IDLE else moment.starting_in(chosen)
        done = worked(moment, chosen)
        passed = market.tick if done < left - _ROUNDING else starting + done
        used[chosen] += passed
        left, time_left = left - done, time_left - passed
        running, starting, at = chosen, max(0.0, starting - passed), at + 1
    return Followed(used[Market.ON_DEMAND], used[Market.SPOT], options.time - time_left)


def replay_deadlines(
    paths: Sequence[Path], options: DeadlineOptions, progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Run the jobs of all traces by each policy.

    Returns:
        For each trace, and for all jobs (``all``), by policy: means of a job's hours in each market and cost
        (hours on-demand), and missed deadlines; and how much of the way from Uniform Progress to the
        omniscient plan it goes, by on-demand hours and by cost.

    Raises:
        BadInput: A trace that is malformed or too short, or jobs that no policy could end in time.
    """
    begun = clock.monotonic()
    _check(options)
    markets = [_market(path, options) for path in paths]
    rows = []
    jobs: list[dict[str, NDArray[np.float64]]] = []
    for market in markets:
        jobs.append(_replay_one(market, options, progress))
        rows.append(
            {
                "trace": market.name,
                "tick_seconds": market.tick,
                "available_share": float(market.has_spot.mean()),
                **_summary(jobs[-1]),
            }
        )
    together = {name: np.concatenate([found[name] for found in jobs]) for name in jobs[0]}
    return {
        **asdict(options),
        "traces": rows,
        "all": _summary(together),
        "seconds": clock.monotonic() - begun,
    }


def _replay_one(
    market: SpotMarket, options: DeadlineOptions, progress: Progress
) -> dict[str, NDArray[np.float64]]:
    """By policy, jobs' (on-demand hours, spot hours, cost, missed), shape (starts, 4)."""
    work, time = options.work, options.time
    rules: dict[str, Rule] = {
        GREEDY: lambda moment, _: greedy(moment),
        UNIFORM_PROGRESS: lambda moment, _: uniform_progress(moment, work, time),
    }
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in (*rules, PLANNED, OMNISCIENT)}
    starts = _starts(market, options)
    for n, start in enumerate(starts):
        progress(market.name, n, len(starts))
        for name, rule in (*rules.items(), (PLANNED, _planned_from(market, start, options))):
            used = follow(rule, market, start, options)
            found[name].append(_row(used.on_demand, used.spot, used.done, options))
        best = omniscient(
            market.has_spot[start:],
            tick=market.tick,
            work=work,
            time=time,
            changeover=options.changeover,
            spot_price=options.spot_price,
        )
        found[OMNISCIENT].append(_row(best.on_demand, best.spot, 0.0, options))
    return {name: np.array(rows) for name, rows in found.items()}


def _planned_from(market: SpotMarket, start: int, options: DeadlineOptions) -> Rule:
    """The advisor's rule for a job that begins at a tick: planned once, from the trace before it."""
    plan = plan_deadline(
        spot_chances(market.has_spot[:start], market.tick, step_of(options.time, market.tick)),
        work=options.work,
        time=options.time,
        changeover=options.changeover,
        spot_price=options.spot_price,
    )
    ages = ages_in_spell(market.has_spot, market.tick)
    return lambda moment, at: planned(moment, float(ages[at]), plan)


def _row(on_demand: float, spot: float, done: float, options: DeadlineOptions) -> tuple[float, ...]:
    hours = on_demand / _HOUR, spot / _HOUR
    return *hours, hours[0] + options.spot_price * hours[1], float(done > options.time + _ROUNDING)


def _summary(jobs: dict[str, NDArray[np.float64]]) -> dict[str, Any]:
    means = {name: rows.mean(axis=0) for name, rows in jobs.items()}
    worst, best = means[UNIFORM_PROGRESS], means[OMNISCIENT]

    def way(column: int, name: str) -> float | None:
        gap = worst[column] - best[column]
        return float((worst[column] - means[name][column]) / gap) if gap > _ROUNDING else None

    return {
        "jobs": len(jobs[OMNISCIENT]),
        "policies": {
            name: {
                "on_demand_hours": float(means[name][0]),
                "spot_hours": float(means[name][1]),
                "cost": float(means[name][2]),
                "missed": int(rows[:, 3].sum()),
                "way_by_on_demand_hours": way(0, name),
                "way_by_cost": way(2, name),
            }
            for name, rows in jobs.items()
        },
    }


def _check(options: DeadlineOptions) -> None:
    if options.time - options.work < options.changeover:
        raise BadInput(
            f"{options.hours:g} h of work do not fit into {options.time / _HOUR:g} h "
            f"with a changeover of {options.changeover_hours:g} h",
            where="--fraction",
            mend="Choose a smaller fraction, or a shorter changeover",
            code="deadline.too_tight",
        )


def _market(path: Path, options: DeadlineOptions) -> SpotMarket:
    gap, counts = read_spot_counts(path)
    if gap < 1.0:
        raise BadInput(
            f"its ticks are {gap:g} s apart",
            where=str(path),
            mend="Give a trace with at least a second between two ticks",
            code="deadline.trace",
        )
    tick = round(gap)
    name = path.name.removesuffix(".gz").removesuffix(".json")
    market = SpotMarket(name, tick, counts >= options.nodes)
    needed = options.history_hours * _HOUR + options.time
    if len(counts) * tick < needed + tick:
        raise BadInput(
            f"it has {len(counts) * tick / _HOUR:.1f} h, and {needed / _HOUR:.1f} h are needed",
            where=str(path),
            mend="Choose shorter jobs (--hours), less history (--history), or a longer trace",
            code="deadline.trace",
        )
    return market


def _starts(market: SpotMarket, options: DeadlineOptions) -> list[int]:
    """Ticks at which jobs begin, at equal distances from the end of the history to the last that fits."""
    first = int(np.ceil(options.history_hours * _HOUR / market.tick))
    last = len(market.has_spot) - int(np.ceil(options.time / market.tick))
    return sorted({int(start) for start in np.linspace(first, last, options.starts)})
