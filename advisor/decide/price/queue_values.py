"""What every waiting job's best slice in the cloud is worth, for a whole queue at once. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.decide.price.slices import Floats, best_of_stops

Bools = NDArray[np.bool_]


class QueueOffers(NamedTuple):
    """What the cloud does to each waiting job; arrays of shape ``(n,)``.

    Attributes:
        limits: Time limits, seconds.
        waits: Until each job's turn on-premise, seconds.
        starts: Until it would run in the cloud, seconds.
        slowdowns: s(c), run time there over run time on-premise.
        usd_per_second: Price of what the job takes there.
        paid_starts: Seconds before its run that are paid there.
        are_whole: True for a job that may not be requeued: it gets one slice up to its limit.
    """

    limits: Floats
    waits: Floats
    starts: Floats
    slowdowns: Floats
    usd_per_second: Floats
    paid_starts: Floats
    are_whole: Bools


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
        chances: Of each job's run time on-premise by bin, shape ``(n, bins)``.
        edges: Upper edges of the bins, shape ``(bins,)``, seconds, ascending.
        offers: What the cloud does to each job.
        loss_weight: How many saved hours one lost hour outweighs.
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
    loss_weight: float,
    found: Floats,
) -> None:
    for i in range(limits.shape[0]):
        value, stop, cost, _saving, _chance = best_of_stops(
            chances[i],
            edges,
            limits[i],
            0.0,
            waits[i],
            starts[i],
            slowdowns[i],
            usd_per_second[i],
            paid_starts[i],
            are_whole[i],
            loss_weight,
        )
        found[0, i], found[1, i], found[2, i] = value, stop, cost
