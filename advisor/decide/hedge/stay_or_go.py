"""Whether a hedged job in the cloud finishes there or starts again on-premise. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from advisor.decide.hedge.hedging import HedgeCase


def stays_at_slot(
    *,
    processors: int,
    slowdown: float,
    elapsed_seconds: float,
    own_limit_seconds: float | None,
    run_quantiles: Sequence[float] = (),
) -> bool:
    """Whether a job whose slot on-premise has come ends sooner in the cloud.

    Args:
        slowdown: s(c) = o*c + i.
        elapsed_seconds: Since its start in the cloud, after the boot.
        own_limit_seconds: The time limit its user gave.
        run_quantiles: Equally likely on-premise run times, seconds; empty: no forecast.

    Notes:
        Staying ends at s*r, starting again at elapsed + r. Without a forecast the job stays only where that
        is sooner for every run within the limit; without a limit it does not stay.
    """
    if len(run_quantiles):
        limit = math.inf if own_limit_seconds is None else own_limit_seconds
        runs = np.minimum(np.asarray(run_quantiles, dtype=np.float64), limit)
        mass = np.full(len(runs), 1.0 / len(runs))
        case = HedgeCase(
            processors=processors,
            slowdown=slowdown,
            boot_seconds=0.0,
            wait_mass=np.ones(1),
            run_mass=mass,
            waits=np.zeros(1),
            runs=runs,
        )
        return case.stays(elapsed_seconds)
    return own_limit_seconds is not None and elapsed_seconds > (slowdown - 1.0) * own_limit_seconds


def stays_past_stop(
    *,
    slowdown: float,
    elapsed_seconds: float,
    own_limit_seconds: float | None,
    further_wait_seconds: float | None,
) -> bool:
    """Whether a speculation goes on past its stop, because its slot on-premise has moved too far away.

    It does where it certainly ends in the cloud before its slot comes: bringing it back would only lose time.
    The paper (Ambati et al. 2021) has no such rule.

    Args:
        further_wait_seconds: Until slurmctld expects the slot; None when it expects none yet.
    """
    if own_limit_seconds is None or further_wait_seconds is None:
        return False
    return slowdown * own_limit_seconds - elapsed_seconds <= further_wait_seconds
