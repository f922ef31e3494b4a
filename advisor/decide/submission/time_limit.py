"""The time limit of a moved job: the user's limit, extended because cloud nodes are slower.

In the cloud a job runs s(c) = o*c + i times as long (Cunha et al. 2017, section V-C). With the user's limit,
which is meant for on-premise processors, it would be killed shortly before its end.
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
    """The limit of a moved job; None keeps the user's, or the partition's where the user set none.

    The limit is in whole minutes, rounded up, as Slurm counts, and never below the user's. A learned
    performance ratio counts with one standard deviation more.
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
