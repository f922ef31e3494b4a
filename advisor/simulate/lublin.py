"""The workload model of Lublin and Feitelson for batch jobs: `advisor.simulate.workload` draws from it.

U. Lublin and D. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of rigid
jobs", J. Parallel and Distributed Computing 63(11), 2003. Sizes, run times and arrivals with the published
parameters for batch jobs, drawn as arrays: a million jobs take a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from advisor.arrays import Floats, Ints

SECONDS_PER_DAY = 86_400.0
SLOTS_PER_DAY = 48
SECONDS_PER_SLOT = SECONDS_PER_DAY / SLOTS_PER_DAY
FIRST_SLOT_OF_DAY = 11  # the published cycle begins in the early morning, where arrivals are fewest


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchParameters:
    """Published parameters of batch jobs.

    Attributes:
        serial_probability, power_of_two_probability: Shares of all jobs on one processor and on a power of
            two.
        smallest_log2: Lower bound of the two-stage uniform distribution; 1.2 instead of 1 makes two
            processors less frequent.
        middle_below_largest, first_stage_probability: The stages meet this far below log2 of the machine's
            size; share of the lower stage.
        short_shape, short_scale, long_shape, long_scale: The two gamma distributions of ln(run time in
            seconds).
        short_slope, short_intercept: Probability of the first gamma for n processors: ``slope * n +
            intercept``, clipped to 0 to 1.
        longest_log_run, longest_log_gap: Larger logarithms are drawn again (about two and five days).
        gap_shape, gap_scale: Gamma of ln(inter-arrival time in seconds) in the rush hours, with the published
            factor that makes it hold for all hours.
        cycle_shape, cycle_scale: Gamma over the half hours of the day, from 5:00 on.
    """

    serial_probability: float = 0.2927
    power_of_two_probability: float = 0.6686
    smallest_log2: float = 1.2
    middle_below_largest: float = 2.0
    first_stage_probability: float = 0.875
    short_shape: float = 6.57
    short_scale: float = 0.823
    long_shape: float = 639.1
    long_scale: float = 0.0156
    short_slope: float = -0.003
    short_intercept: float = 0.6986
    longest_log_run: float = 12.0
    longest_log_gap: float = 13.0
    gap_shape: float = 6.0415 * 1.0519
    gap_scale: float = 0.8531
    cycle_shape: float = 6.1271
    cycle_scale: float = 5.2740


BATCH = BatchParameters()


def sizes(generator: np.random.Generator, count: int, processors: int) -> Ints:
    """Processors of ``count`` jobs, 1 to ``processors``, shape (count,): one, a power of two, or any.

    Powers and others are two-stage uniform in the logarithm.
    """
    largest = math.log2(processors)
    smallest = min(BATCH.smallest_log2, largest)
    middle = max(smallest, largest - BATCH.middle_below_largest)
    kind = generator.random(count)
    lower_stage = generator.random(count) <= BATCH.first_stage_probability
    position = generator.random(count)
    exponent = np.where(
        lower_stage, smallest + position * (middle - smallest), middle + position * (largest - middle)
    )
    is_power = kind <= BATCH.serial_probability + BATCH.power_of_two_probability
    exponent = np.where(is_power, np.floor(exponent + 0.5), exponent)
    drawn = np.where(kind <= BATCH.serial_probability, 1.0, np.floor(np.exp2(exponent) + 0.5))
    return np.clip(drawn, 1, processors).astype(np.int64)


def short_probability(job_processors: Ints) -> Floats:
    """Probability that a job with so many processors is drawn from the gamma of short run times."""
    line = BATCH.short_slope * job_processors + BATCH.short_intercept
    probability: Floats = np.clip(line, 0.0, 1.0)
    return probability


def run_times(quantiles: Floats, job_processors: Ints) -> Floats:
    """Run times at the given quantiles (0 to 1, shape (n,)) for jobs of the given processors (shape (n,)).

    The distribution is the hyper-gamma of each job's size; the result is whole seconds, at least 1. Quantiles
    are used instead of draws so that a user's repeated jobs can have similar run times while all jobs
    together keep the published distribution (see ``workload``).
    """
    grid = np.linspace(0.0, BATCH.longest_log_run, 4097)
    short = special.gammainc(BATCH.short_shape, grid / BATCH.short_scale)
    long = special.gammainc(BATCH.long_shape, grid / BATCH.long_scale)
    logarithm = np.empty(len(quantiles))
    distinct, which = np.unique(job_processors, return_inverse=True)
    rows_by_size = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    for share, rows in zip(short_probability(distinct), rows_by_size, strict=True):
        cumulative = share * short + (1.0 - share) * long
        # values beyond the longest are drawn again, which is the distribution cut off there
        logarithm[rows] = np.interp(quantiles[rows] * cumulative[-1], cumulative, grid)
    seconds: Floats = np.maximum(1.0, np.floor(np.exp(logarithm)))
    return seconds


def day_weights() -> Floats:
    """Relative arrival rate in the day's 48 half hours from midnight; their mean is 1."""
    slots = np.arange(FIRST_SLOT_OF_DAY, FIRST_SLOT_OF_DAY + SLOTS_PER_DAY)
    share = special.gammainc(BATCH.cycle_shape, (slots + 0.5) / BATCH.cycle_scale)
    share = share - special.gammainc(BATCH.cycle_shape, (slots - 0.5) / BATCH.cycle_scale)
    weights = np.empty(SLOTS_PER_DAY)
    weights[(slots - 1) % SLOTS_PER_DAY] = share / share.mean()
    return weights


def gaps(generator: np.random.Generator, count: int) -> Floats:
    """Inter-arrival times in seconds of an average hour, before the daily cycle is applied."""
    logarithm = generator.gamma(BATCH.gap_shape, BATCH.gap_scale, count)
    while np.any(too_long := logarithm > BATCH.longest_log_gap):
        logarithm[too_long] = generator.gamma(BATCH.gap_shape, BATCH.gap_scale, np.count_nonzero(too_long))
    return np.exp(logarithm)


def arrival_times(average_gaps: Floats) -> Floats:
    """Apply the daily cycle to inter-arrival times: seconds since the midnight before the first job.

    A half hour with a low weight uses up its gaps slowly: ten minutes at noon last hours at night.
    """
    weights = day_weights()
    paid = np.concatenate(([0.0], np.cumsum(weights))) * SECONDS_PER_SLOT
    edges = np.arange(SLOTS_PER_DAY + 1) * SECONDS_PER_SLOT
    total = np.cumsum(average_gaps)
    days = np.floor(total / SECONDS_PER_DAY)
    seconds: Floats = np.floor(
        days * SECONDS_PER_DAY + np.interp(total - days * SECONDS_PER_DAY, paid, edges)
    )
    return seconds
