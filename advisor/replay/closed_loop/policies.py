"""The policies of a rehearsal by name, with those of their settings that the world knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from advisor.model.errors import BadInput
from advisor.model.settings_decision import WaitingSettings
from advisor.model.site import Cutoff
from advisor.replay.closed_loop.ambati2021 import PUBLISHED, Ambati2021
from advisor.replay.closed_loop.cunha2017 import Cunha2017
from advisor.replay.closed_loop.learned_runs import LearnedRuns
from advisor.replay.closed_loop.plain_policies import Clairvoyant, Overflow, Starburst
from advisor.replay.closed_loop.price_policy import PricePolicy
from advisor.replay.closed_loop.world import Policy
from advisor.replay.closed_loop.zrigui2022 import Zrigui2022

ALL_ON_PREMISE: Final = "all-on-premise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A policy, and the settings that it has of its own; each policy reads only its own.

    Attributes:
        loss_weight: `price`: how many saved hours one lost hour outweighs.
        fixed_price: `price`: seconds that a core-second has to save; None: the budget sets the price.
        uncertainty_limit: `price`: largest standard deviation of a saving, seconds.
        cutoff: `cunha2017`: a and b; None: chosen on the rows before the window.
        waiting: `ambati2021`: t and b.
    """

    policy: str
    loss_weight: float = 1.0
    fixed_price: float | None = None
    uncertainty_limit: float = math.inf
    cutoff: Cutoff | None = None
    waiting: WaitingSettings = PUBLISHED


def _price(terms: Terms) -> Policy:
    return PricePolicy(
        LearnedRuns,
        loss_weight=terms.loss_weight,
        fixed_price=terms.fixed_price,
        uncertainty_limit=terms.uncertainty_limit,
    )


POLICIES: Final[Mapping[str, Callable[[Terms], Policy]]] = MappingProxyType(
    {
        ALL_ON_PREMISE: lambda _: Policy(),
        "overflow": lambda _: Overflow(),
        "cunha2017": lambda terms: Cunha2017(cutoff=terms.cutoff),
        "ambati2021": lambda terms: Ambati2021(terms.waiting),
        "zrigui2022": lambda _: Zrigui2022(),
        "starburst": lambda _: Starburst(),
        "price": _price,
        "clairvoyant": lambda _: Clairvoyant(),
    }
)
"""By name, in the order of the rows: what makes a new one of its terms."""

ALWAYS: Final = (ALL_ON_PREMISE, "overflow", "cunha2017", "ambati2021", "starburst", "price", "clairvoyant")
"""Policies that are always shown."""


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The policies always shown and the named ones, in the order of the table.

    Raises:
        BadInput: A name is not known.
    """
    unknown = [name for name in names if name not in POLICIES]
    if unknown:
        raise BadInput(
            f"there is no policy {unknown[0]!r}",
            where="--policies",
            mend=f"Name some of: {', '.join(POLICIES)}",
            code="rehearse.policy",
        )
    return tuple(name for name in POLICIES if name in ALWAYS or name in names)
