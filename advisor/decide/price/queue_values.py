"""The value of each waiting job's best slice, for a whole queue at once. Pure.

A slice is a limited time in the cloud that is bought for a job (`advisor.decide.price.slices`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from advisor.arrays import Bools, Floats
from advisor.compiled import compiled
from advisor.decide.price.slices import best_of_stops


class QueueOffers(NamedTuple):
    """The terms at which each of n waiting jobs would run in the cloud; arrays of shape ``(n,)``.

    Attributes:
        limits: Time limit, seconds.
        waits: Time until the job's start on-premise, seconds.
        starts: Time until the job would run in the cloud, seconds.
        slowdowns: s(c): run time in the cloud over run time on-premise.
        usd_per_second: Price of the nodes that the job would use, US dollars per second.
        paid_starts: The part of ``starts`` that is paid, seconds: the boot, where EC2 bills it.
        are_whole: True for a job that must not be requeued: it gets one slice up to its limit.
        checkpoints: Run time there that the job loses at most when it is stopped, seconds; infinite: all.
    """

    limits: Floats
    waits: Floats
    starts: Floats
    slowdowns: Floats
    usd_per_second: Floats
    paid_starts: Floats
    are_whole: Bools
    checkpoints: Floats


class QueueValues(NamedTuple):
    """The best slice of each job; arrays of shape ``(n,)``.

    Attributes:
        values: Expected saving over expected cost, seconds per US dollar; negative: no slice saves time.
        stops: Run time at which the slice ends, seconds of on-premise run time.
        costs: Expected US dollars.
    """

    values: Floats
    stops: Floats
    costs: Floats


def value_queue(chances: Floats, edges: Floats, offers: QueueOffers, *, loss_weight: float) -> QueueValues:
    """Value every waiting job by its best slice (`advisor.decide.price.slices.best_slice`).

    Args:
        chances: Probability of each bin of each job's run time on-premise, shape ``(n, bins)``.
        edges: Upper edges of the bins, shape ``(bins,)``, seconds, ascending.
        loss_weight: Number of saved hours that one lost hour outweighs.
    """
    found = np.empty((3, len(offers.limits)))
    _value(chances, edges, *offers, loss_weight, found)
    return QueueValues(*found)


@compiled
def _value(  # noqa: PLR0917  (compiled: no keywords)
    chances: Floats,
    edges: Floats,
    limits: Floats,
    waits: Floats,
    starts: Floats,
    slowdowns: Floats,
    usd_per_second: Floats,
    paid_starts: Floats,
    are_whole: Bools,
    checkpoints: Floats,
    loss_weight: float,
    found: Floats,
) -> None:
    for i in range(limits.shape[0]):
        value, stop, cost, _saving, _chance = best_of_stops(
            chances[i],
            edges,
            limits[i],
            0.0,  # elapsed seconds: the job has not started
            waits[i],
            starts[i],
            slowdowns[i],
            usd_per_second[i],
            paid_starts[i],
            are_whole[i],
            loss_weight,
            math.inf,  # the money at hand is asked for when one of them is to move
            checkpoints[i] / slowdowns[i],
        )
        found[0, i], found[1, i], found[2, i] = value, stop, cost
