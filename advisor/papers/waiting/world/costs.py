"""What cores cost: reserved, on-demand and spot, and how long spot lasts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from advisor.arrays import Floats
from advisor.model.errors import BadInput

DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Prices of a core-second as shares of on-demand's, and the mean life of a spot node.

    Attributes:
        reserved: Of fixed cores, used or not (a 3-year reservation; Ambati et al., section 2.3).
        on_demand: Of rented cores while they are held.
        spot: Of spot cores while they are held.
        spot_mean_seconds: Mean time until EC2 takes a spot node back; lives are exponential, where the paper
            draws them from the revocations that its reference 24 measured. Infinite: never.
    """

    reserved: float = 0.4
    on_demand: float = 1.0
    spot: float = 0.3
    spot_mean_seconds: float = DAY_SECONDS

    def __post_init__(self) -> None:
        prices = (self.reserved, self.on_demand, self.spot)
        if not (all(0.0 <= price < math.inf for price in prices) and self.spot_mean_seconds > 0.0):
            raise BadInput(
                f"the prices {prices} or the mean life of a spot node, {self.spot_mean_seconds} s, "
                "are out of range",
                where="cost model",
                mend="Give prices of 0 or more, and a life above 0 s",
                code="waiting.costs",
            )

    def revoked_after(self, count: int, generator: np.random.Generator) -> Floats:
        """Draw how long a spot node would last under each of so many jobs, seconds."""
        if math.isinf(self.spot_mean_seconds):
            return np.full(count, np.inf)
        return generator.exponential(self.spot_mean_seconds, count)
