"""Synthetic harvest nodes, calibrated to the published figures of Agarwal et al. (NSDI 2023), section 2.1.

Nothing of the paper's traces is public, but these figures are: for each cluster the share of changes within
an hour, the mean and 95th percentile of the time between changes; for C2 also the shares within one and ten
minutes; sizes of changes; cores by minimum size; and that half of C2's nodes change at most once in an hour
while the worst tenth change tens of times.

A node's times between changes are lognormal about a scale of its own, with bursts of sub-minute changes in
between. Scales are lognormal over nodes and are drawn anew every few days (Figure 3). The time distribution
over all *changes*, which the paper publishes, is then lognormal again, weighted by rates: with log-scales of
variance b and spread w within a node its log-mean lies b below the nodes' own, and its variance is b + w.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.model.errors import BadInput
from advisor.simulate.stability.nodes import Floats, Ints, NodeChanges, node_changes

MINUTE = 60.0
DAY = 86400.0
MINIMUM_SIZES = (2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class HarvestCluster:
    """One of the paper's clusters, by what is published of it.

    Attributes
    ----------
    log_median : float
        Of the time between changes, bursts left out, over all changes; natural logarithm of minutes.
    spread : float
        Standard deviation of its logarithm.
    size : float
        Mean magnitude of a change, cores.
    """

    log_median: float
    spread: float
    size: float


CLUSTERS = {
    "C1": HarvestCluster(log_median=2.61, spread=1.06, size=13.0),
    "C2": HarvestCluster(log_median=2.97, spread=1.28, size=11.0),
    "C3": HarvestCluster(log_median=3.02, spread=1.52, size=10.0),
    "C4": HarvestCluster(log_median=3.06, spread=1.74, size=9.0),
    "C5": HarvestCluster(log_median=3.09, spread=1.95, size=8.0),
    "C6": HarvestCluster(log_median=3.12, spread=2.16, size=7.0),
    "C7": HarvestCluster(log_median=3.83, spread=2.23, size=6.0),
    "C8": HarvestCluster(log_median=4.22, spread=2.16, size=5.0),
}
"""Fitted to section 2.1: two quantiles each (C1, C2, C6), share within an hour and mean (C7, C8); C3 to C5
lie between C2 and C6. Sizes: the paper says 5 to 13 cores on average, larger where there is more activity."""

BURSTS = 0.14
"""Share of changes that follow another within seconds: 16 % of C2's come within a minute, and a lognormal
through its other quantiles has 1 to 2 % there."""

BURST_SECONDS = 20.0
BETWEEN = 0.6
"""Share of the log-variance that lies between nodes; the rest is within. Half of C2's node-hours then see at
most one change and the worst tenth five and more."""

REGIME_DAYS = 3.0
"""Mean time for which a node keeps its ways (Figure 3 shows one change after four days)."""

LARGEST = 44
"""Cores of a server open to harvest: the top tenth of nodes hold 36 to 39 on average and some over 40."""

EVICTED = 0.03
"""Share of the shrinks below a node's minimum size that evict it; evictions are rare ([3] of the paper)."""


def harvest_nodes(generator: np.random.Generator, cluster: str, *, nodes: int, until: float) -> NodeChanges:
    """Nodes of one of the paper's clusters over time.

    Parameters
    ----------
    generator : numpy.random.Generator
        Source of chance.
    cluster : str
        "C1" to "C8".
    nodes : int
        How many.
    until : float
        Length of the trace, seconds.

    Raises
    ------
    BadInput
        Another cluster.
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
    usual = minimum + (LARGEST - minimum) * generator.beta(0.55, 1.1)
    cores = _levels(generator, cluster.size, len(times) + 1, minimum, usual)
    return int(cores[0]), times, cores[1:]


def _change_times(generator: np.random.Generator, cluster: HarvestCluster, until: float) -> Floats:
    """Moments at which one node changes: regimes of exponential length, each with a scale of its own."""
    between, within = BETWEEN * cluster.spread**2, (1.0 - BETWEEN) * cluster.spread**2
    found: list[Floats] = []
    begin = -generator.exponential(REGIME_DAYS * DAY)  # the trace begins somewhere within a regime
    while begin < until:
        end = begin + generator.exponential(REGIME_DAYS * DAY)
        scale = cluster.log_median + between + np.sqrt(between) * generator.standard_normal()
        mean_gap = MINUTE * np.exp(scale + within / 2.0)
        at = begin
        while at < end:
            count = int((end - at) / mean_gap * 1.5) + 16
            gaps = MINUTE * np.exp(scale + np.sqrt(within) * generator.standard_normal(count))
            burst = generator.random(count) < BURSTS
            gaps[burst] = generator.exponential(BURST_SECONDS, np.count_nonzero(burst))
            moments = at + np.cumsum(np.maximum(gaps, 1.0))
            found.append(moments[moments < end])
            at = float(moments[-1])
        begin = end
    times = np.concatenate(found)
    return np.sort(times[(times > 0) & (times < until)])


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
