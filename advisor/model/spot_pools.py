"""How long instances of each spot pool (one instance type in one subnet) last, for question 4. Pure."""

from __future__ import annotations

import math
from typing import Final

import msgspec

LASTS_HOURS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Ages at which a pool's survival is known."""
NEGLIGIBLE: Final = 1e-9
"""A smaller probability counts as this, a smaller expected number of losses as none."""


class SpotPool(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One instance type in one subnet, as spot.

    Attributes:
        key: Its name in state files and metrics.
        usd_per_hour: Present price of an instance.
        lasts: Probability that an instance launched now lives for each of ``LASTS_HOURS``.
        classes: Classes of nodes that it serves; ``""``: the nodes that no class names.
        is_open: False while its circuit breaker is open.
    """

    key: str
    usd_per_hour: float
    lasts: tuple[float, ...]
    classes: tuple[str, ...] = ("",)
    is_open: bool = True

    def outlook(self, run_seconds: float) -> tuple[float, float]:
        """The prospects of a run on a new instance; the hazard is constant between known ages, and after.

        Returns:
            stays: Probability that the instance lives for the whole run.
            lived: Expected share of the run until its end or the instance's.
        """
        run = run_seconds / 3600.0
        if run <= 0.0:
            return 1.0, 1.0
        age, alive, lived, hazard = 0.0, 1.0, 0.0, 0.0
        for until, share in zip(LASTS_HOURS, self.lasts, strict=True):
            after = min(alive, max(share, NEGLIGIBLE))
            hazard = math.log(alive / after) / (until - age)
            if until >= run:
                break
            lived += _area(alive, hazard, until - age)
            age, alive = until, after
        return alive * math.exp(-hazard * (run - age)), (lived + _area(alive, hazard, run - age)) / run


def _area(alive: float, hazard: float, hours: float) -> float:
    """Integral of the survival over some hours of constant hazard."""
    return alive * (hours if hazard * hours < NEGLIGIBLE else -math.expm1(-hazard * hours) / hazard)
