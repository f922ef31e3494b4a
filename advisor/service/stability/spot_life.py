"""How long this site's spot nodes last, for what is planned with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from advisor.history.state_file import StateFile
from advisor.model.settings import Settings
from advisor.predict.pool_survival import Life
from advisor.service.stability.record import LifeRecord
from advisor.simulate.waiting.costs import fitted_spot_mean

LEAST_TAKEN: Final = 20
"""Nodes that EC2 took before their mean life is told: its relative error is then about 0.2."""


def mean_life_seconds(lives: Sequence[Life]) -> float | None:
    """Mean life of spot nodes, those that ended otherwise censored; None where too few were taken."""
    taken = np.array([life.was_taken for life in lives], np.bool_)
    if np.count_nonzero(taken) < LEAST_TAKEN:
        return None
    return fitted_spot_mean(np.array([life.end - life.start for life in lives]), taken)


def lives_of(settings: Settings) -> list[Life]:
    """What `advisor control` has written down of this site's spot instances; nothing where it never ran."""
    return LifeRecord(StateFile(settings.paths.state / "lives.json")).lives()
