"""How long a moved job may run: its user's limit, stretched by what the cloud's nodes are slower.

A user sets his limit for the on-premise processors. In the cloud the same job runs s(c) = o*c + i times as
long (Cunha et al. 2017, section V-C) and would be killed shortly before its end: paid for, and lost.
"""

from __future__ import annotations

import math
from typing import Final

from advisor.model.advice import TimeLimit
from advisor.model.job import Job
from advisor.model.settings import PlacementSettings
from advisor.model.site import Ratio

_MINUTE: Final = 60.0
_ROUNDING: Final = 1e-6


def stretched(job: Job, settings: PlacementSettings, ratio: Ratio | None = None) -> TimeLimit | None:
    """Work out the limit of a job that is moved; None leaves the user's.

    With a performance ratio that was learned the limit has room for its doubt: one deviation more.

    Whole minutes, as Slurm counts, rounded up. Never below what the user asked for, and nothing where he
    asked for none: the partition's own limit holds then.
    """
    asked = job.requested_time
    if (
        not settings.stretch_time_limit
        or not job.explicit_time_limit
        or not asked
        or not math.isfinite(asked)
    ):
        return None
    slower = settings.performance_ratio(job.processors)
    if ratio is not None:
        slower = ratio.factor * (1.0 + ratio.deviation)
    factor = min(slower, settings.max_time_limit_factor)
    minutes = math.ceil(asked * factor / _MINUTE - _ROUNDING)
    given = min(minutes * _MINUTE, settings.max_time_limit_seconds)
    return TimeLimit(asked_seconds=asked, given_seconds=given) if given > asked else None
