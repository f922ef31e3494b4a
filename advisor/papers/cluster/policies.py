"""Queue policies of the simulated cluster (Zrigui et al., section 5.1) and its backfilling."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


class Order(enum.IntEnum):
    """Order of waiting jobs within one class (small or large); ties go to the earlier submission."""

    FCFS = 0
    """First come, first served."""
    WFP = 1
    """Largest (wait / requested time)^3 x processors first; changes while jobs wait."""
    SPF = 2
    """Shortest requested time first."""
    SAF = 3
    """Smallest requested area (time x processors) first."""


class Backfill(enum.IntEnum):
    """Order in which EASY tries the jobs behind the first of the queue, which has a reservation."""

    QUEUE_ORDER = 0
    SHORTEST_FIRST = 1
    """Shortest planned time first (EASY++)."""


class Correction(enum.IntEnum):
    """Planned end of a running job that has outlived its plan."""

    ANY_MOMENT = 0
    """Within the next second; reconsidered at every event."""
    STEPS = 1
    """Tsafrir's growing steps beyond the plan, ``STEPS_SECONDS``, up to the request."""


ANY_MOMENT_SECONDS = 1.0
"""A running job beyond its plan is expected to end after this time: logs count whole seconds."""

STEPS_SECONDS = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18000.0, 36000.0, 72000.0, 180000.0, 360000.0)
"""Tsafrir, Etsion and Feitelson, "Backfilling using system-generated predictions", section 4.2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of the simulated scheduler.

    Attributes:
        order: Order within a class.
        backfill: Order of the candidates behind the reserved head.
        starvation_seconds: Jobs that waited longer go first, in the order of submission ("threshold", section
            5.1); infinite: never.
        starvation_load_factor: The threshold is at least this many times the planned processor-seconds of the
            queue over the machine's processors. Under overload all jobs wait long, and a fixed threshold
            would turn every order into first come, first served. 0: fixed threshold.
        starvation_at_most_seconds: Upper limit of the threshold as raised by the load.
        predict_recent: Plan a job by the mean run time of its user's last two jobs, at most the request
            (EASY++).
        correction: For running jobs that outlive their plan.
    """

    order: Order = Order.FCFS
    backfill: Backfill = Backfill.QUEUE_ORDER
    starvation_seconds: float = math.inf
    starvation_load_factor: float = 0.0
    starvation_at_most_seconds: float = math.inf
    predict_recent: bool = False
    correction: Correction = Correction.ANY_MOMENT


EASY = Policy()
"""First come, first served, with EASY backfilling."""

EASY_PLUS_PLUS = Policy(backfill=Backfill.SHORTEST_FIRST, predict_recent=True, correction=Correction.STEPS)
"""EASY++: planned by the user's last two jobs, shortest first behind the head (Tsafrir et al.)."""
