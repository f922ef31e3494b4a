"""Which nodes count as steady, and in which order jobs without a wish use them. Pure.

Slurm knows no probability: a node has a feature or it has none, and a weight. Where all nodes are about
equally likely to stay there is nothing to choose between, and all are steady.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

SURE: Final = 0.95
"""A node this likely to stay is steady, however much likelier others are."""

SPREAD: Final = 0.1
"""Nodes whose probabilities lie closer together are not told apart: a forecast is no better than that."""

_STEPS: Final = 10


class Tier(enum.StrEnum):
    """How a node is expected to last."""

    FIXED = "fixed"  # nobody takes it back
    STEADY = "steady"
    SHAKY = "shaky"

    @property
    def is_steady(self) -> bool:
        """Whether a long job is well there."""
        return self is not Tier.SHAKY


def tiers(survives: Mapping[str, float | None]) -> dict[str, Tier]:
    """Tier of each node: a shaky one is nearer to the worst than to the best, and not sure to stay.

    Parameters
    ----------
    survives : mapping of node to probability
        Of being there for the time looked ahead; None: nobody takes it back.

    Examples
    --------
    >>> [tier.value for tier in tiers({"a": 0.5, "b": 0.8, "c": 0.75, "d": None}).values()]
    ['shaky', 'steady', 'steady', 'fixed']
    """
    known = [value for value in survives.values() if value is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    border = (least + most) / 2.0 if most - least >= SPREAD else least
    return {node: _tier(value, border) for node, value in survives.items()}


def _tier(value: float | None, border: float) -> Tier:
    if value is None:
        return Tier.FIXED
    return Tier.STEADY if value >= min(border, SURE) else Tier.SHAKY


def weight_offset(survives: float | None, *, steady_last: bool) -> int:
    """What is added to a node's weight, 0 to 10; Slurm fills nodes of low weight first.

    Parameters
    ----------
    survives : float or None
        Probability of staying; None: nobody takes it back.
    steady_last : bool
        Long jobs ask for steady nodes by themselves, so the others leave these to them; False: nobody asks,
        and all go to the steadiest first.
    """
    step = round(_STEPS * (1.0 if survives is None else survives))
    return step if steady_last else _STEPS - step
