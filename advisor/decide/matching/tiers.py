"""Nodes that are likely to survive, as Slurm features and weights, which the match loop sets.

Slurm has no probabilities: a node has a feature or not, and a weight. Nodes that are about equally likely to
survive all get the feature.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

SURE: Final = 0.95
"""A node this likely to survive gets the feature, however much likelier others are."""

SPREAD: Final = 0.1
"""Nodes whose probabilities differ by less are equal, because the forecast is not more precise."""

_STEPS: Final = 10


class Tier(enum.StrEnum):
    """Expected survival of a node."""

    FIXED = "fixed"  # not spot: EC2 does not interrupt it
    STEADY = "steady"
    SHAKY = "shaky"

    @property
    def is_steady(self) -> bool:
        """Whether long jobs should prefer the node."""
        return self is not Tier.SHAKY


def tiers(survives: Mapping[str, float | None]) -> dict[str, Tier]:
    """Tier of each node: a shaky one is closer to the worst than to the best, and less likely than `SURE`.

    Args:
        survives: Probability of surviving the lookahead time; None for a node that is not spot.

    Examples:
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
    """Offset of a node's weight, 0 to 10; Slurm fills nodes of low weight first.

    Args:
        survives: Probability of surviving; None for a node that is not spot.
        steady_last: Long jobs prefer steady nodes by feature, so other jobs get the shaky ones first; False:
            all jobs get the steadiest first.
    """
    step = round(_STEPS * (1.0 if survives is None else survives))
    return step if steady_last else _STEPS - step
