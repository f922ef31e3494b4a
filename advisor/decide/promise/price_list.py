"""A job's price list: by when it is done, in so many of 100 cases, for how much money. Pure."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from advisor.decide.promise.chances import (
    Floats,
    kept_here,
    kept_there,
    mean_run,
    not_started_by,
    ready_here,
    run_at,
)

GAIN: Final = 0.5
"""By how much a start in the cloud has to raise the chance that a promise is kept.

Below that the money is mostly spent in vain: the job would have been done in time on-premise. The levels
follow how often promises are kept, so what is not bought makes deadlines later, not promises worse. On rows
2,000 to 10,000 of seven logs gains of .3, .4, .5 and .6, none of them eased, cost 1.13, 1.10, 1.07 and 1.08
times what a clairvoyant pays (geometric means), and keep 95.1, 94.8, 94.4 and 93.8 % of all promises. Where
promises are broken more often than said, less is enough (:func:`goes`), and 95 % are kept.
"""
_HALF_WAY: Final = 0.5
_NOW: Final = 1.0  # seconds; a job that is forecast to wait less starts at once


class Kind(enum.IntEnum):
    """Rows of a price list. Their chances are judged apart, for what may go wrong differs."""

    FREE = 0
    SOONEST = 1
    BETWEEN = 2


class Levels(NamedTuple):
    """At which probability each row is named, so that promises are kept as often as was said."""

    free: float
    soonest: float
    between: float


class Outlook(NamedTuple):
    """What is known of one waiting job.

    Attributes:
        planned: Its wait by the plan of the queue, seconds.
        waits, shares: Likely waits from now on, seconds, and how likely each is.
        ended: P(run time over) by the edges of the grid.
        limit: Its time limit, seconds.
        start: From a start in the cloud to the run's beginning, seconds.
        slowdown: s(c), run time there over run time on-premise.
        price: US dollars (or core-seconds) per second there.
    """

    planned: float
    waits: Floats
    shares: Floats
    ended: Floats
    limit: float
    start: float
    slowdown: float
    price: float


class Offer(NamedTuple):
    """One row of a price list.

    Attributes:
        ready: Seconds from now within which the job is done.
        cost: Expected, in the unit of the outlook's price.
        last_start: Seconds from now to the last moment at which a start in the cloud still keeps it; 0: the
            job starts there now; infinite: it stays on-premise.
    """

    kind: Kind
    ready: float
    cost: float
    last_start: float


def price_list(outlook: Outlook, levels: Levels) -> tuple[Offer, ...]:
    """Rows of a price list, the soonest first; a job that starts at once, or is not sooner there, has one."""
    ended, limit = outlook.ended, outlook.limit
    if outlook.planned <= _NOW:
        return (Offer(Kind.FREE, run_at(ended, levels.free, limit), 0.0, float("inf")),)
    free = float(ready_here(outlook.waits, outlook.shares, ended, levels.free, limit))
    soonest = outlook.start + outlook.slowdown * run_at(ended, levels.soonest, limit)
    rows = (Offer(Kind.FREE, free, 0.0, float("inf")),)
    if soonest >= free:
        return rows
    whole = outlook.price * outlook.slowdown * mean_run(ended, limit)
    between = soonest + _HALF_WAY * (free - soonest)
    last = last_start(outlook, between, levels.between)
    later = not_started_by(outlook.waits, outlook.shares, last) * whole
    return (
        Offer(Kind.SOONEST, soonest, whole, 0.0),
        Offer(Kind.BETWEEN, between, float(later), last),
        *rows,
    )


def last_start(outlook: Outlook, left: float, level: float) -> float:
    """Seconds until the last moment at which a start in the cloud keeps a promise with probability ``level``.

    Args:
        left: Seconds until the deadline.
    """
    run = outlook.slowdown * run_at(outlook.ended, level, outlook.limit)
    return max(0.0, left - outlook.start - run)


def goes(outlook: Outlook, left: float, strain: float) -> bool:
    """Whether a start in the cloud now raises the chance to be done within ``left`` seconds by enough.

    Args:
        strain: From 0 to 1, how often promises like this one are broken of late: then less is enough.
    """
    return gain(outlook, left) >= GAIN * (1.0 - strain)


def gain(outlook: Outlook, left: float) -> float:
    """By how much a start in the cloud now raises the chance to be done within ``left`` seconds."""
    here = kept_here(outlook.waits, outlook.shares, outlook.ended, left, outlook.limit)
    there = kept_there(outlook.ended, left, outlook.start, outlook.slowdown, outlook.limit)
    return float(there - here)


def comes_back(outlook: Outlook, left: float, elapsed: float, boot_left: float, strain: float) -> bool:
    """Whether a job in the cloud, whose place on-premise has come, begins anew there: it costs nothing more.

    Args:
        left: Seconds until the deadline.
        elapsed: What it has run in the cloud, in seconds of on-premise run time.
        boot_left: Seconds until it begins to run in the cloud; 0 where it runs.
        strain: As for :func:`goes`.
    """
    ended, limit = outlook.ended, outlook.limit
    over = kept_there(ended, elapsed, 0.0, 1.0, limit)
    alive = max(1e-9, 1.0 - over)
    here = kept_there(ended, left, 0.0, 1.0, limit)
    there = kept_there(ended, elapsed + max(0.0, left - boot_left) / outlook.slowdown, 0.0, 1.0, limit)
    return bool((there - here) / alive < GAIN * (1.0 - strain))
