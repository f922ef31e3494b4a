"""The pool of experts: a weighted geometric mean of their distributions, its weights learned online.

Logarithmic opinion pool (Genest and Zidek, "Combining probability distributions", Statistical Science 1986):
p(k) ~ prod_i p_i(k) ** w_i. The log score of such a pool is concave in the weights, so gradient steps whose
size falls with the gradients seen (Duchi et al., "Adaptive subgradient methods", JMLR 2011) find them. An
expert has a weight for each size of its sample, so that what it says counts as much as it has seen.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict.run_times._contexts import DECAY_OF, EXPERTS, ORIGIN_OF, PARENT_OF, Integers
from advisor.predict.run_times._memory import Floats, Keys, Memory, find, record
from advisor.predict.run_times.grid import BINS

SIZES: Final = 8
"""Classes of sample sizes: 0, then by factors of about 1.7."""

_FIRST_WEIGHT: Final = 0.12
_RATE: Final = 0.05
_PRIOR_COUNT: Final = 2.0  # observations that an expert's parent counts for
_PRIOR_PLACE: Final = 0.75  # of the request's bin
_PRIOR_WIDTH: Final = 10.0  # bins
_FLOOR: Final = 1e-7  # of a probability in a logarithm
_UNIFORM: Final = 0.002  # share of the forecast that is spread evenly up to the request


class Weights(NamedTuple):
    """What was learned about the experts.

    Attributes:
        weight: Of each expert by its sample's size, shape (EXPERTS, SIZES).
        squares: Sums of squared gradients, same shape.
    """

    weight: Floats
    squares: Floats

    @classmethod
    def untrained(cls) -> Self:
        """What a new site begins with: the prior, as long as no expert has seen a job."""
        weight = np.full((EXPERTS, SIZES), _FIRST_WEIGHT)
        is_first = PARENT_OF < 0
        weight[:, 0] = np.where(is_first, 1.0 / np.sum(is_first), 0.0)
        return cls(weight, np.ones((EXPERTS, SIZES)))


@compiled
def ask_experts(
    memory: Memory, keys: Keys, origins: Integers, top: int, said: Floats, sizes: Integers
) -> None:
    """Write each expert's distribution, shape (EXPERTS, BINS), up to ``top``, and its sample's size."""
    for i in range(EXPERTS):
        of_expert = said[i]
        if PARENT_OF[i] < 0:
            _fill_prior(of_expert, top)
        else:
            of_expert[:] = said[PARENT_OF[i]]
        slot = find(memory, keys[i])
        sizes[i] = 0
        if slot >= 0:
            count = memory.observations[slot]
            sizes[i] = min(SIZES - 1, int(math.log2(1.0 + count) * 1.3 + 0.5))
            _blend(of_expert, memory.mass[slot], count, origins[ORIGIN_OF[i]])
        for k in range(top + 1, BINS):  # a site kills there
            of_expert[top] += of_expert[k]
            of_expert[k] = 0.0


@compiled
def _fill_prior(out: Floats, top: int) -> None:
    """Before any job has ended: wide, with its mode at a share of the request."""
    total = 0.0
    for k in range(BINS):
        out[k] = math.exp(-0.5 * ((k - _PRIOR_PLACE * top) / _PRIOR_WIDTH) ** 2)
        total += out[k]
    for k in range(BINS):
        out[k] /= total


@compiled
def _blend(out: Floats, mass: NDArray[np.float32], count: float, origin: int) -> None:
    """Mix a histogram, moved to its origin, into the parent's distribution in ``out``."""
    share = 1.0 / (count + _PRIOR_COUNT)
    for k in range(BINS):
        out[k] *= _PRIOR_COUNT * share
    for k in range(max(0, origin), min(BINS, origin + BINS)):
        out[k] += mass[k - origin] * share
    for k in range(BINS - origin, BINS):  # beyond the grid's end
        out[BINS - 1] += mass[k] * share
    for k in range(min(BINS, -origin)):  # before its beginning
        out[0] += mass[k] * share


@compiled
def pool(weights: Weights, said: Floats, sizes: Integers, top: int, logs: Floats, out: Floats) -> None:
    """Write the pooled distribution to ``out``, shape (BINS,), and the experts' logarithms to ``logs``."""
    out[:] = 0.0
    for i in range(EXPERTS):
        weight = weights.weight[i, sizes[i]]
        for k in range(top + 1):
            logs[i, k] = math.log(said[i, k] + _FLOOR)
            out[k] += weight * logs[i, k]
    highest = out[0]
    for k in range(top + 1):
        highest = max(highest, out[k])
    total = 0.0
    for k in range(top + 1):
        out[k] = math.exp(out[k] - highest)
        total += out[k]
    for k in range(top + 1):
        out[k] /= total


@compiled
def spread(probabilities: Floats, top: int) -> None:
    """Leave a little for everything up to the request, in place."""
    for k in range(top + 1):
        probabilities[k] = (1.0 - _UNIFORM) * probabilities[k] + _UNIFORM / (top + 1)


@compiled
def adjust(weights: Weights, sizes: Integers, top: int, logs: Floats, pooled: Floats, run_bin: int) -> None:
    """One gradient step of the log score of what the pool said about a job that ended in ``run_bin``."""
    for i in range(EXPERTS):
        gradient = logs[i, run_bin]
        for k in range(top + 1):
            gradient -= pooled[k] * logs[i, k]
        size = sizes[i]
        weights.squares[i, size] += gradient * gradient
        weights.weight[i, size] += _RATE * gradient / math.sqrt(weights.squares[i, size])


@compiled
def remember(memory: Memory, keys: Keys, origins: Integers, run_bin: int) -> None:
    """Tell every expert the run time of a job that has ended."""
    memory.clock[0] += 1
    for i in range(EXPERTS):
        record(memory, keys[i], run_bin, origins[ORIGIN_OF[i]], DECAY_OF[i])
