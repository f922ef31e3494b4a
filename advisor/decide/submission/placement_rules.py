"""The placement rules by name (``placement.rule``)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from advisor.decide.submission.placement import PlacementCase, PlacementRule, published
from advisor.decide.submission.proven import proven
from advisor.model.advice import Answer

# A new rule is a function and a line here (and a word in PlacementSettings.rule).
PLACEMENT_RULES: Final[Mapping[str, PlacementRule]] = MappingProxyType(
    {"published": published, "advisor": proven}
)


def faster(case: PlacementCase) -> Answer:
    """Ask the placement rule in force."""
    return PLACEMENT_RULES[case.settings.rule](case)
