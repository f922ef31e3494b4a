"""The pool of experts: the forecast of each for a job, mixed with weights learned online by the log score.

Two pools are mixed. The logarithmic one, p(k) ~ prod_i p_i(k) ** w_i, is sharp where experts agree; the
linear one, p(k) = sum_i v_i p_i(k), keeps what one expert alone expects (Genest and Zidek, "Combining
probability distributions", Statistical Science 1986). All weights follow the gradient of the log score, which
is concave in w; the steps of w fall with the gradients seen (Duchi et al., "Adaptive subgradient methods",
JMLR 2011). An expert has a weight for each size of its sample, so that it counts by how much it has seen.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled_in_place
from advisor.predict.run_times._histograms import (
    DECAY_OF,
    EXPERTS,
    ORIGIN_OF,
    PARENT_OF,
    Memory,
    find,
    record,
)
from advisor.predict.run_times.grid import BINS

SIZES: Final = 8
"""Classes of sample sizes: 0, then by factors of about 1.7."""

_PRIOR_COUNT: Final = 2.0  # observations that an expert's parent counts for
_PRIOR_PLACE: Final = 0.75  # of the request's bin
_PRIOR_WIDTH: Final = 10.0  # bins
_FIRST_WEIGHT: Final = 0.12
_RATE: Final = 0.05
_FLOOR: Final = 1e-7  # of a probability in a logarithm
_UNIFORM: Final = 0.002  # share of the forecast that is spread evenly up to the request


class Weights(NamedTuple):
    """The learned weights of the experts.

    Attributes:
        power: Weights of the logarithmic pool by expert and its sample's size, shape (EXPERTS, SIZES).
        squares: Sums of their squared gradients, same shape.
        logit: Logits of the linear pool's weights, same shape.
        balance: Logit of the logarithmic pool's share, shape (1,).
    """

    power: Floats
    squares: Floats
    logit: Floats
    balance: Floats

    @classmethod
    def untrained(cls) -> Self:
        """The state of a new site: the prior, as long as no expert has learned from a job."""
        power = np.full((EXPERTS, SIZES), _FIRST_WEIGHT)
        is_first = PARENT_OF < 0
        power[:, 0] = np.where(is_first, 1.0 / np.sum(is_first), 0.0)
        shape = power.shape
        return cls(power, np.ones(shape), np.zeros(shape), np.zeros(1))


class Pooled(NamedTuple):
    """The forecasts of the experts and the pools for one job; each call overwrites them.

    Attributes:
        said: Each expert's distribution, shape (EXPERTS, BINS).
        sizes: Size of each expert's sample, shape (EXPERTS,).
        logs: Logarithms of ``said``, up to the request's bin.
        linear_weights: Weights in the linear pool, shape (EXPERTS,).
        logarithmic, linear: What each pool says, shape (BINS,).
        mixed: The forecast, shape (BINS,).
    """

    said: Floats
    sizes: Ints
    logs: Floats
    linear_weights: Floats
    logarithmic: Floats
    linear: Floats
    mixed: Floats

    @classmethod
    def empty(cls) -> Self:
        """Room for one job."""
        table, row = (EXPERTS, BINS), BINS
        return cls(
            said=np.zeros(table),
            sizes=np.zeros(EXPERTS, np.int64),
            logs=np.zeros(table),
            linear_weights=np.zeros(EXPERTS),
            logarithmic=np.zeros(row),
            linear=np.zeros(row),
            mixed=np.zeros(row),
        )


@compiled_in_place
def ask(memory: Memory, place: Ints, top: int, pooled: Pooled) -> None:
    """Write each expert's distribution, with nothing above ``top``, and the size of its sample."""
    for i in range(EXPERTS):
        of_expert = pooled.said[i]
        if PARENT_OF[i] < 0:
            _fill_prior(of_expert, top)
        else:
            for k in range(BINS):
                of_expert[k] = pooled.said[PARENT_OF[i], k]
        slot = find(memory, np.uint64(place[i]))
        pooled.sizes[i] = 0
        if slot >= 0:
            count = memory.observations[slot]
            pooled.sizes[i] = min(SIZES - 1, int(math.log2(1.0 + count) * 1.3 + 0.5))
            _blend(of_expert, memory.mass[slot], count, place[EXPERTS + ORIGIN_OF[i]])
        for k in range(top + 1, BINS):  # a site kills there
            of_expert[top] += of_expert[k]
            of_expert[k] = 0.0


@compiled_in_place
def _fill_prior(out: Floats, top: int) -> None:
    """Before any job has ended: wide, with its mode at a share of the request."""
    total = 0.0
    for k in range(BINS):
        out[k] = math.exp(-0.5 * ((k - _PRIOR_PLACE * top) / _PRIOR_WIDTH) ** 2)
        total += out[k]
    for k in range(BINS):
        out[k] /= total


@compiled_in_place
def _blend(out: Floats, mass: NDArray[np.float32], count: float, origin: int) -> None:
    """Mix a histogram, moved to its origin, into the parent's distribution in ``out``."""
    share = 1.0 / (count + _PRIOR_COUNT)
    for k in range(BINS):
        out[k] *= _PRIOR_COUNT * share
    for k in range(max(0, origin), min(BINS, origin + BINS)):
        out[k] += mass[k - origin] * share
    for k in range(max(0, BINS - origin), BINS):  # beyond the grid's end
        out[BINS - 1] += mass[k] * share
    for k in range(min(BINS, -origin)):  # before its beginning
        out[0] += mass[k] * share


@compiled_in_place
def pool(weights: Weights, pooled: Pooled, top: int) -> None:
    """Mix what the experts said, up to the bin ``top``."""
    _pool_logarithmic(weights, pooled, top)
    _pool_linear(weights, pooled, top)
    share = 1.0 / (1.0 + math.exp(-weights.balance[0]))
    pooled.mixed[:] = 0.0
    for k in range(top + 1):
        both = share * pooled.logarithmic[k] + (1.0 - share) * pooled.linear[k]
        pooled.mixed[k] = (1.0 - _UNIFORM) * both + _UNIFORM / (top + 1)


@compiled_in_place
def _pool_logarithmic(weights: Weights, pooled: Pooled, top: int) -> None:
    out = pooled.logarithmic
    out[:] = 0.0
    for i in range(EXPERTS):
        if pooled.sizes[i] == 0 and PARENT_OF[i] >= 0:  # it says what its parent says
            for k in range(BINS):
                pooled.logs[i, k] = pooled.logs[PARENT_OF[i], k]
        else:
            for k in range(top + 1):
                pooled.logs[i, k] = math.log(pooled.said[i, k] + _FLOOR)
        weight = weights.power[i, pooled.sizes[i]]
        for k in range(top + 1):
            out[k] += weight * pooled.logs[i, k]
    highest = out[0]
    for k in range(top + 1):
        highest = max(highest, out[k])
    total = 0.0
    for k in range(top + 1):
        out[k] = math.exp(out[k] - highest)
        total += out[k]
    for k in range(top + 1):
        out[k] /= total


@compiled_in_place
def _pool_linear(weights: Weights, pooled: Pooled, top: int) -> None:
    shares = pooled.linear_weights
    highest = -np.inf
    for i in range(EXPERTS):
        shares[i] = weights.logit[i, pooled.sizes[i]]
        highest = max(highest, shares[i])
    total = 0.0
    for i in range(EXPERTS):
        shares[i] = math.exp(shares[i] - highest)
        total += shares[i]
    out = pooled.linear
    out[:] = 0.0
    for i in range(EXPERTS):
        shares[i] /= total
        for k in range(top + 1):
            out[k] += shares[i] * pooled.said[i, k]
    total = 0.0
    for k in range(top + 1):
        total += out[k]
    for k in range(top + 1):  # histograms are kept in single precision
        out[k] /= total


@compiled_in_place
def adjust(weights: Weights, pooled: Pooled, top: int, run_bin: int) -> None:
    """One gradient step of the log score of what was said about a job that ended in ``run_bin``."""
    linear = pooled.linear[run_bin] + _FLOOR
    for i in range(EXPERTS):
        size = pooled.sizes[i]
        gradient = pooled.logs[i, run_bin]
        for k in range(top + 1):
            gradient -= pooled.logarithmic[k] * pooled.logs[i, k]
        weights.squares[i, size] += gradient * gradient
        weights.power[i, size] += _RATE * gradient / math.sqrt(weights.squares[i, size])
        share = pooled.linear_weights[i]
        weights.logit[i, size] += _RATE * share * ((pooled.said[i, run_bin] + _FLOOR) / linear - 1.0)
    share = 1.0 / (1.0 + math.exp(-weights.balance[0]))
    both = share * pooled.logarithmic[run_bin] + (1.0 - share) * pooled.linear[run_bin] + _FLOOR
    difference = pooled.logarithmic[run_bin] - pooled.linear[run_bin]
    weights.balance[0] += _RATE * share * (1.0 - share) * difference / both


@compiled_in_place
def tell(memory: Memory, place: Ints, run_bin: int) -> None:
    """Tell every expert the run time of a job that has ended."""
    memory.clock[0] += 1
    for i in range(EXPERTS):
        record(memory, np.uint64(place[i]), run_bin, place[EXPERTS + ORIGIN_OF[i]], DECAY_OF[i])
