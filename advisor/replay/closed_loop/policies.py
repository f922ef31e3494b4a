"""The policies of a rehearsal by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from advisor.model.errors import BadInput
from advisor.replay.closed_loop.advisor2026 import Advisor2026
from advisor.replay.closed_loop.ambati2021 import Ambati2021
from advisor.replay.closed_loop.cunha2017 import Cunha2017
from advisor.replay.closed_loop.learned_runs import LearnedRuns
from advisor.replay.closed_loop.plain_policies import Clairvoyant, Overflow, Starburst
from advisor.replay.closed_loop.price_policy import PricePolicy
from advisor.replay.closed_loop.world import Policy
from advisor.replay.closed_loop.zrigui2022 import Zrigui2022

ALL_ON_PREMISE: Final = "all-on-premise"

POLICIES: Final[Mapping[str, Callable[[], Policy]]] = MappingProxyType(
    {
        ALL_ON_PREMISE: Policy,
        "overflow": Overflow,
        "cunha2017": Cunha2017,
        "ambati2021": Ambati2021,
        "zrigui2022": Zrigui2022,
        "advisor2026": Advisor2026,
        "starburst": Starburst,
        "price": lambda: PricePolicy(LearnedRuns),
        "clairvoyant": Clairvoyant,
    }
)
"""In the order of the rows."""

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
