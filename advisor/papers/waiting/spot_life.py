"""How long this site's spot nodes last, for what is planned with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from advisor.model.settings import Settings
from advisor.predict.survival.pool_survival import Life
from advisor.service.state.life_record import LifeRecord
from advisor.service.state.state_files import LIVES

MIN_TAKEN: Final = 20
"""Nodes that EC2 took before their mean life is told: its relative error is then about 0.2."""


def mean_life_seconds(lives: Sequence[Life]) -> float | None:
    """Mean life of spot nodes, those that ended otherwise censored; None where too few were taken."""
    taken = np.array([life.was_taken for life in lives], np.bool_)
    if np.count_nonzero(taken) < MIN_TAKEN:
        return None
    return fitted_spot_mean(np.array([life.end - life.start for life in lives]), taken)


def lives_of(settings: Settings) -> list[Life]:
    """What `advisor control` has written down of this site's spot instances; nothing where it never ran."""
    return LifeRecord(LIVES.at(settings.paths.state)).lives()


def fitted_spot_mean(
    lived_seconds: np.ndarray[tuple[int], np.dtype[np.float64]],
    was_revoked: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> float:
    """Mean spot life by maximum likelihood of an exponential with nodes that ended otherwise censored.

    Args:
        lived_seconds: float64, shape (nodes,): How long the site had each node.
        was_revoked: bool, shape (nodes,): Whether EC2 took it.

    Returns:
        Seconds; infinite when none was ever taken.
    """
    revoked = int(np.count_nonzero(was_revoked))
    return float(lived_seconds.sum()) / revoked if revoked else math.inf
