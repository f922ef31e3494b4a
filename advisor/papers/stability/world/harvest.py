"""Synthetic harvest nodes, calibrated to the published figures of Agarwal et al. (NSDI 2023), section 2.1.

Nothing of the paper's traces is public, but these figures are: for some clusters the share of changes within
an hour, the mean and the 95th percentile of the time between changes; for C2 also the shares within one and
ten minutes, how long a node must have been steady (Figure 13), and how many changes the hours of its nodes
see; sizes of changes; cores by minimum size. The tests measure and compare them.

The time between two changes, over all changes, is log-logistic: through the quantiles published that law
comes nearer to the published means and to Figure 13 than a lognormal. It is made of nodes that each have a
scale of their own and of lognormal times about it. Scales are drawn anew every few days (Figure 3). Now and
then a change is followed by a storm of others within seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput
from advisor.papers.stability.world.nodes import NodeChanges, node_changes

MINUTE = 60.0
DAY = 86400.0
MINIMUM_SIZES = (2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class HarvestCluster:
    """One of the paper's clusters, by what is published of it.

    Attributes:
        median: Of the time between changes, bursts left out, over all changes; minutes.
        steepness: Of the log-logistic law of that time: the power of time with which long intervals die out.
        size: Mean magnitude of a change, cores.
    """

    median: float
    steepness: float
    size: float


CLUSTERS = {
    "C1": HarvestCluster(median=17.2, steepness=1.98, size=18.0),
    "C2": HarvestCluster(median=18.5, steepness=1.30, size=14.0),
    "C3": HarvestCluster(median=19.8, steepness=1.18, size=12.5),
    "C4": HarvestCluster(median=21.0, steepness=1.07, size=11.0),
    "C5": HarvestCluster(median=22.3, steepness=0.96, size=9.5),
    "C6": HarvestCluster(median=23.5, steepness=0.85, size=8.0),
    "C7": HarvestCluster(median=34.0, steepness=0.64, size=6.7),
    "C8": HarvestCluster(median=66.0, steepness=0.64, size=5.5),
}
"""Fitted to section 2.1: share within an hour and 95th percentile (C1, C6), three shares (C2), share within
an hour and mean (C7, C8); C3 to C5 lie between C2 and C6. Mean sizes, drawn before a node's bounds cut them:
then 5 to 13 cores as published, larger where there is more activity."""

STORMS = 0.017
"""Share of changes that begin a storm: with those in storms 16 % of C2's come within a minute."""

STORM_CHANGES = 10.0
"""Mean changes in a storm: an hour of C2's worst tenth *can* see tens of changes."""

BURST_SECONDS = 20.0
BETWEEN = 0.6
"""Share of the log-variance that lies between nodes; the rest is within. No published figure tells it: node-
hours differ by less than their noise from 0.4 to 0.9, but half of C2's see a change only up to about 0.6."""

REGIME_DAYS = 7.0
"""Mean time for which a node keeps its ways: Figure 3 shows a change or two in fifteen days. With three
days the means of C6 to C8 come out a tenth and more lower."""

USUAL_CORES = (0.35, 1.1)
"""Beta distribution of a node's usual place between its minimum size and the largest."""

FASTEST = 0.0
"""Least log-scale: a node changes every minute at most, or one node in hundreds makes most of the changes."""

_SCALES = 4096  # points by which the law of scales is drawn

LARGEST = 44
"""Cores of a server open to harvest: the top tenth of nodes have 36 to 39 at least, and some over 40."""

EVICTED = 0.03
"""Share of the shrinks below a node's minimum size that evict it; evictions are rare ([3] of the paper)."""


def harvest_nodes(generator: np.random.Generator, cluster: str, *, nodes: int, until: float) -> NodeChanges:
    """Nodes of one of the paper's clusters over time.

    Args:
        generator: Source of chance.
        cluster: "C1" to "C8".
        nodes: How many.
        until: Length of the trace, seconds.

    Raises:
        BadInput: Another cluster.
    """
    if cluster not in CLUSTERS:
        raise BadInput(
            f"no cluster {cluster!r}", where="--nodes", mend="Choose C1 to C8", code="nodes.cluster"
        )
    shape = CLUSTERS[cluster]
    parts = [_one_node(generator, shape, until) for _ in range(nodes)]
    count = [len(time) for _, time, _ in parts]
    return node_changes(
        np.array([first for first, _, _ in parts], np.int64),
        np.concatenate([time for _, time, _ in parts]),
        np.repeat(np.arange(nodes), count),
        np.concatenate([cores for _, _, cores in parts]),
        until,
    )


def _one_node(
    generator: np.random.Generator, cluster: HarvestCluster, until: float
) -> tuple[int, Floats, Ints]:
    """Cores at time 0, times of changes and cores after each."""
    times = _change_times(generator, cluster, until)
    minimum = int(generator.choice(MINIMUM_SIZES))
    usual = minimum + (LARGEST - minimum) * generator.beta(*USUAL_CORES)
    cores = _levels(generator, cluster.size, len(times) + 1, minimum, usual)
    return int(cores[0]), times, cores[1:]


def _change_times(generator: np.random.Generator, cluster: HarvestCluster, until: float) -> Floats:
    """Moments at which one node changes: regimes of exponential length, each with a scale of its own."""
    within = np.pi / np.sqrt(3.0) / cluster.steepness * np.sqrt(1.0 - BETWEEN)
    scales, mean_gaps, cumulative = _scales(cluster, within)
    found: list[Floats] = []
    begin = -generator.exponential(REGIME_DAYS * DAY)  # the trace begins somewhere within a regime
    while begin < until:
        end = begin + generator.exponential(REGIME_DAYS * DAY)
        at = begin
        which = min(int(np.searchsorted(cumulative, generator.random())), _SCALES - 1)
        while at < end:
            count = int((end - at) / mean_gaps[which] * 1.5) + 16
            gaps = MINUTE * np.exp(scales[which] + within * generator.standard_normal(count))
            moments = at + np.cumsum(np.maximum(_with_storms(generator, gaps), 1.0))
            found.append(moments[moments < end])
            at = float(moments[-1])
        begin = end
    times = np.concatenate(found)
    return np.sort(times[(times > 0) & (times < until)])


def _scales(cluster: HarvestCluster, within: float) -> tuple[Floats, Floats, Floats]:
    """Log-scales in minutes, the mean gap of each in seconds, and how likely a node has no larger one.

    Over *changes* scales are logistic, as is published; a node has one with a weight of the time its changes
    take, of which a regime sets the bound.
    """
    share = (np.arange(_SCALES) + 0.5) / _SCALES
    scales = np.log(cluster.median) + np.sqrt(BETWEEN) / cluster.steepness * np.log(share / (1.0 - share))
    mean_gaps = MINUTE * np.exp(scales + within**2 / 2.0)
    weight = np.where(scales >= FASTEST, np.minimum(mean_gaps, REGIME_DAYS * DAY), 0.0)
    cumulative: Floats = np.cumsum(weight) / weight.sum()
    return scales, mean_gaps, cumulative


def _with_storms(generator: np.random.Generator, gaps: Floats) -> Floats:
    """The gaps, with runs of sub-minute ones of geometric number in between."""
    begins = generator.random(len(gaps)) < STORMS
    lasts = np.where(begins, generator.geometric(1.0 / STORM_CHANGES, len(gaps)), 0)
    places = np.repeat(np.arange(len(gaps)), lasts)
    return np.insert(gaps, places, generator.exponential(BURST_SECONDS, len(places)))


def _levels(generator: np.random.Generator, size: float, count: int, minimum: int, usual: float) -> Ints:
    """Cores after each change: exponential steps drawn back to the node's usual level."""
    steps = 1.0 + generator.exponential(max(size - 1.0, 0.5), count)
    towards = generator.random(count)
    evicts = generator.random(count) < EVICTED
    cores = np.empty(count, np.int64)
    level = float(np.clip(usual + generator.normal(0.0, size / 2.0), minimum, LARGEST))
    for at in range(count):
        cores[at] = round(level)
        shrinks = towards[at] < 0.5 + 0.45 * np.tanh((level - usual) / size)
        level = max(level, float(minimum)) + (-steps[at] if shrinks else steps[at])
        if level < minimum:
            level = 0.0 if evicts[at] else float(minimum)
        level = min(level, float(LARGEST))
        if round(level) == cores[at]:  # no room that way: the change goes the other way
            level = min(cores[at] + steps[at], LARGEST) if shrinks else max(cores[at] - steps[at], minimum)
    return cores
