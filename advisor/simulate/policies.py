"""Queue policies of the simulated cluster (Zrigui et al., section 5.1) and how it backfills."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


class Order(enum.IntEnum):
    """In which order waiting jobs of one class are served; ties go to the earlier submission."""

    FCFS = 0
    """First come, first served."""
    WFP = 1
    """Largest (wait / planned)^3 x processors first; changes while jobs wait."""
    SPF = 2
    """Shortest requested time first."""
    SAF = 3
    """Smallest requested area (time x processors) first."""


class Backfill(enum.IntEnum):
    """In which order EASY tries the jobs behind the head."""

    QUEUE_ORDER = 0
    SHORTEST_FIRST = 1
    """Shortest planned time first (EASY++)."""


class Correction(enum.IntEnum):
    """What is expected of a running job whose planned end has passed."""

    ANY_MOMENT = 0
    """It ends within the next second; asked again at the next event."""
    STEPS = 1
    """Tsafrir's growing steps: 1, 5, 15, 30 minutes, 1, 2, 5, 10, 20, 50, 100 hours after its start's plan,
    never beyond the request."""


ANY_MOMENT_SECONDS = 1.0
"""A running job beyond its plan is expected to end so much from now: the clock of logs ticks in seconds."""

STEPS_SECONDS = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18000.0, 36000.0, 72000.0, 180000.0, 360000.0)
"""Tsafrir, Etsion and Feitelson, "Backfilling using system-generated predictions", section 4.2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How the simulated scheduler decides.

    Attributes
    ----------
    order : Order
        Order within a class.
    backfill : Backfill
        Order among the jobs that are tried behind the reserved head.
    starvation_seconds : float
        A job that waited longer goes before all others, first come first served among these ("threshold",
        section 5.1). Infinite: never.
    starvation_load_factor : float
        The threshold is never below this many times the load's own wait: processor-seconds planned by
        waiting jobs over processors of the machine. Under overload everything waits long, and a fixed
        threshold would turn every order into first come, first served. 0: fixed.
    starvation_at_most_seconds : float
        The load never lifts the threshold above this.
    predict_recent : bool
        Plan a job by the mean run time of its user's two last jobs, never above the request (EASY++).
    correction : Correction
        For running jobs that outlive their plan.
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
