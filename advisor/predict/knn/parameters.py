"""Parameters of the k-NN estimator, as the genetic algorithm tunes them (Cunha et al. 2017, section IV-A)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from advisor.arrays import Floats
from advisor.model.errors import BadInput
from advisor.predict.knn.features import FeatureSchema

MAX_NEIGHBOURS: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class KnnParameters:
    """The chromosome ``[k, omega, s, w_1 .. w_n]`` that the genetic algorithm tunes (section IV-A).

    Args:
        k: Neighbours, 1 to 1000.
        omega: Width of the Gaussian kernel (Eq. 2), above 0.
        s: Cases that the knowledge base keeps, at least 1; the oldest is dropped first.
        weights: One per feature (Eq. 1), finite and at least 0.

    Raises:
        BadInput: A value is out of its range.
    """

    k: int
    omega: float
    s: int
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        checks = {
            f"k is {self.k}, not within 1 to {MAX_NEIGHBOURS}": 1 <= self.k <= MAX_NEIGHBOURS,
            f"omega is {self.omega}, not above 0": 0 < self.omega < math.inf,
            f"s is {self.s}, not at least 1": self.s >= 1,
            "a weight is negative or not finite": all(0 <= w < math.inf for w in self.weights),
            "there are no weights": len(self.weights) > 0,
        }
        for problem, holds in checks.items():
            if not holds:
                raise BadInput(
                    problem, where="k-NN parameters", mend="Run `advisor tune`", code="knn.parameters"
                )

    @classmethod
    def untuned(cls, schema: FeatureSchema, *, k: int = 16, omega: float = 0.5, s: int = 10_000) -> Self:
        """A weight of 1 for every feature. Live, ``untuned_of`` takes k, omega and s from the settings."""
        return cls(k, omega, s, (1.0,) * len(schema))

    @property
    def chromosome(self) -> Floats:
        """``[k, omega, s, w_1 .. w_n]``, as stored; shape (3 + features,)."""
        return np.array([self.k, self.omega, self.s, *self.weights], np.float64)

    @classmethod
    def from_chromosome(cls, chromosome: Floats) -> Self:
        """Rebuild the parameters from :attr:`chromosome`; raises BadInput where one is out of its range."""
        k, omega, s, *weights = chromosome.tolist()
        return cls(int(k), omega, int(s), tuple(weights))
