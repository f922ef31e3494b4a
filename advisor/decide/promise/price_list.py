"""A job's price list: the times by which it is done with a given probability, and their costs. Pure.

`advisor.decide.promise.promised` makes one for each job that names a time, inside ``sbatch`` and later.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from advisor.arrays import Floats
from advisor.decide.promise.chances import (
    kept_there,
    late_by_loss,
    mean_run,
    needed_share,
    not_started_by,
    ready_here,
    run_at,
)
from advisor.model.advice import Capacity
from advisor.model.checkpoint_word import NO_CHECKPOINT
from advisor.predict.promised.levels import Kind, most_in_vain

_HALF_WAY: Final = 0.5
_NOW: Final = 1.0  # seconds; a job that is forecast to wait less starts at once
_HALVINGS: Final = 20
_LISTED_IN_VAIN: Final = 0.35
"""A row between is listed where its start is expected to be in vain for less of its cost than this.

More may be in vain once it is promised (`most_in_vain`), for forecasts change.
"""
_RARELY: Final = 0.05
"""A row between whose job has mostly started on-premise by its last start is listed, too."""


class SpotLives(NamedTuple):
    """How long instances on spot last.

    Attributes:
        alive: P(an instance lives that long) by the edges of the grid.
        may_be_late: The chance that a loss makes a promised job late, at most.
        at_risk: Seconds of the job's run there that a loss undoes at most; infinite without checkpoints.
    """

    alive: Floats
    may_be_late: float
    at_risk: float = NO_CHECKPOINT


class Levels(NamedTuple):
    """The probability for which each row is stated, so that promises are kept as often as they claim."""

    free: float
    soonest: float
    between: float


class Outlook(NamedTuple):
    """The forecasts of one waiting job.

    Attributes:
        planned: Its wait by the plan of the queue, seconds.
        waits, shares: Likely waits from now on, seconds, and how likely each is.
        ended: P(run time over) by the edges of the grid.
        limit: Its time limit, seconds.
        start: Time from the request of a node in the cloud to the beginning of the run, seconds.
        slowdown: s(c), run time there over run time on-premise.
        price: US dollars (or core-seconds) per second there.
        keeps_place: Whether it keeps its place on-premise while it runs there, and may come back.
        spot: None: it may not use spot.
        thrift: 0 to 1; the dearer the job is, the lower: by it less of a start's cost may be in vain.
    """

    planned: float
    waits: Floats
    shares: Floats
    ended: Floats
    limit: float
    start: float
    slowdown: float
    price: float
    keeps_place: bool = False
    spot: SpotLives | None = None
    thrift: float = 1.0


class Offer(NamedTuple):
    """One row of a price list.

    Attributes:
        ready: Seconds from now within which the job is done.
        cost: Expected cost, in the unit of the outlook's price.
        last_start: Seconds from now to the last moment at which a start in the cloud still keeps it; 0: the
            job starts there now; infinite: it stays on-premise.
    """

    kind: Kind
    ready: float
    cost: float
    last_start: float


def price_list(outlook: Outlook, levels: Levels) -> tuple[Offer, ...]:
    """Rows of a price list, the soonest first; a job that starts at once, or is not sooner there, has one.

    A row is left out where its start would be too likely in vain.
    """
    ended, limit = outlook.ended, outlook.limit
    if outlook.planned <= _NOW:
        return (Offer(Kind.FREE, run_at(ended, levels.free, limit), 0.0, float("inf")),)
    free = float(ready_here(outlook.waits, outlook.shares, ended, levels.free, limit))
    soonest = outlook.start + outlook.slowdown * run_at(ended, levels.soonest, limit)
    rows: tuple[Offer, ...] = (Offer(Kind.FREE, free, 0.0, float("inf")),)
    if soonest >= free:
        return rows
    whole = outlook.price * outlook.slowdown * mean_run(ended, limit)
    # where starts of rows between were too late for long runs of late, it is later
    sooner = outlook.start + outlook.slowdown * run_at(ended, max(levels.soonest, levels.between), limit)
    between = sooner + _HALF_WAY * (free - sooner)
    last = last_start(outlook, between, levels.between)
    later = float(not_started_by(outlook.waits, outlook.shares, last))
    if sooner < free and (later <= _RARELY or _needed_at(outlook, between, last) >= 1.0 - _LISTED_IN_VAIN):
        rows = (Offer(Kind.BETWEEN, between, later * whole, last), *rows)
    if not goes(outlook, soonest, 1.0, Kind.SOONEST):
        return rows
    return (Offer(Kind.SOONEST, soonest, whole, 0.0), *rows)


def last_start(outlook: Outlook, left: float, level: float) -> float:
    """Seconds until the last moment at which a start in the cloud keeps a promise with probability ``level``.

    Args:
        left: Seconds until the deadline.
    """
    run = outlook.slowdown * run_at(outlook.ended, level, outlook.limit)
    return max(0.0, left - outlook.start - run)


def last_start_on_spot(outlook: Outlook, left: float, latest: float) -> float | None:
    """Seconds until the last moment at which a start on spot keeps a promise; None: there is none any more.

    Until then an instance that is lost leaves time for a start on-demand, but for a small chance.

    Args:
        left: Seconds until the deadline.
        latest: Seconds until the last start on-demand (:func:`last_start`).
    """
    spot = outlook.spot
    if spot is None:
        return None

    def is_late_after(seconds: float) -> bool:
        return late_on_spot(outlook, spot, left - seconds) > spot.may_be_late

    if is_late_after(0.0):
        return None
    low, high = 0.0, latest
    if not is_late_after(high):
        return high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_late_after(middle) else (middle, high)
    return low


def late_on_spot(outlook: Outlook, spot: SpotLives, left: float) -> float:
    """P(too late for the loss of its instance) of a job that starts on spot now (:func:`late_by_loss`)."""
    clock = left, outlook.start, outlook.slowdown, outlook.limit
    return float(late_by_loss(outlook.ended, spot.alive, *clock, spot.at_risk))


class PromisedStart(NamedTuple):
    """What keeps a promise now.

    Attributes:
        capacity: Where the job starts now; None: it waits.
        again_in: Seconds until it may have to start; 0: a start now would cost more than it is worth.
    """

    capacity: Capacity | None
    again_in: float


def start_for(outlook: Outlook, left: float, latest: float, strain: float, kind: Kind) -> PromisedStart:
    """Choose between a start on spot, one on-demand, and waiting.

    Args:
        left: Seconds until the deadline.
        latest: Seconds until the last start on-demand (:func:`last_start`).
        strain, kind: See :func:`goes`.
    """
    on_spot = last_start_on_spot(outlook, left, latest)
    first = latest if on_spot is None else on_spot
    if first > _NOW:
        return PromisedStart(None, first)
    if not goes(outlook, left, strain, kind):
        return PromisedStart(None, latest if latest > _NOW else 0.0)
    return PromisedStart(Capacity.ON_DEMAND if on_spot is None else Capacity.SPOT, 0.0)


def goes(outlook: Outlook, left: float, strain: float, kind: Kind) -> bool:
    """Whether a job starts in the cloud now: enough of what that costs keeps its promise.

    Args:
        left: Seconds until the deadline.
        strain: How often promises like this one are broken of late for want of a start, from 0 to 1. The
            share of the cost that has to keep the promise (:func:`needed_share`) is 1 less this, and at least
            1 less :func:`~advisor.predict.promised.levels.most_in_vain`; it is more for dear jobs
            (`Outlook.thrift`).
        kind: The row that was promised.
    """
    return _needed(outlook, left) >= _enough(strain, kind, outlook.thrift, keeps_place=outlook.keeps_place)


def _needed(seen: Outlook, left: float) -> float:
    """The share of the cost of a start now that keeps the promise (:func:`needed_share`)."""
    clock = left, seen.start, seen.slowdown, seen.limit
    return float(needed_share(seen.waits, seen.shares, seen.ended, *clock, seen.keeps_place))


def _needed_at(seen: Outlook, ready: float, last: float) -> float:
    """The same of a start after ``last`` seconds, where the job still waits then; done within ``ready``."""
    still = seen.waits > last
    shares = seen.shares[still]
    later = seen._replace(waits=seen.waits[still] - last, shares=shares / shares.sum())
    return _needed(later, ready - last)


def comes_back(
    ended: Floats,
    *,
    limit: float,
    slowdown: float,
    left: float,
    elapsed: float,
    boot_left: float,
    strain: float,
    kind: Kind,
    kept: float = 0.0,
) -> bool:
    """Whether a job in the cloud, whose place on-premise has come, goes there: it costs nothing more.

    Args:
        ended, limit, slowdown: See :class:`Outlook`.
        left: Seconds until the deadline.
        elapsed: Seconds of work in the cloud that it has done.
        boot_left: Seconds until it begins to run in the cloud; 0 where it runs.
        strain, kind: See :func:`goes`.
        kept: Its work of which it has a checkpoint, seconds of on-premise run time; 0: it begins anew.
    """
    done = elapsed / slowdown
    over = kept_there(ended, done, 0.0, 1.0, limit)
    alive = max(1e-9, 1.0 - over)
    here = kept_there(ended, left + kept, 0.0, 1.0, limit)
    there = kept_there(ended, done + max(0.0, left - boot_left) / slowdown, 0.0, 1.0, limit)
    return bool((there - here) / alive < _enough(strain, kind, 1.0, keeps_place=True))


def _enough(strain: float, kind: Kind, thrift: float, *, keeps_place: bool) -> float:
    """The share of a start's cost that has to keep the promise.

    A row between may be in vain as often as ever where many are broken; with a lower limit for dear jobs too
    few of these rows were kept (docs/measurements.md, "Dear starts, and rows between").
    """
    most = most_in_vain(kind, keeps_place=keeps_place)
    return 1.0 - min(thrift * strain, most if kind == Kind.BETWEEN else thrift * most)
