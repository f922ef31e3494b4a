"""The value of a run in the cloud that is bought in slices: the best stop, and its saving over its cost.

A slice runs the job in the cloud until a stop. If the job has not ended by then, it is decided anew whether
it goes on or returns to its place in the on-premise queue, which a placeholder keeps. So a slice in which the
job does not end costs money and no time. The stop maximises expected saving over expected cost, as the index
of Gittins (1979) does for jobs that may be interrupted. It is asked for at a submission, by the price loop
about waiting jobs, and at each stop.

Costs are in the unit of `CloudOffer.cost_per_second` times seconds: US dollars live, core-seconds in the
closed loop's replays.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final, NamedTuple

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.model.checkpoint_word import NO_CHECKPOINT
from advisor.model.site import Price

MAX_CLOUD_STARTS: Final = 2
"""How often a job that keeps its place may go to the cloud: users expect few restarts.

On 14 windows of seven logs this saves as much as any number; once alone leaves 4 % more wait on thirteen of
them, and 52 % more on one (docs/measurements.md, "Policies at equal money").
"""
SHORTER_BELOW: Final = 0.5
"""At such a share of the price a job whose best slice an account cannot pay gets the best that it can.

Before, its money is kept for later jobs whose best slice it pays. On KTH-SP2 the saved hours were 4 % fewer
where shorter slices were bought at any share below 1, 1 % at one half (docs/measurements.md).
"""
_ROUNDING: Final = 1e-9
_MOMENT: Final = 1e-6  # seconds


class Slice(NamedTuple):
    """The best slice of a run in the cloud.

    Attributes:
        value: Expected saving over expected cost, seconds per unit of cost; negative: no slice saves time.
        stop: Run time at which it ends, seconds of on-premise run time from the job's start; the limit for a
            whole run.
        saving: Expected saving, seconds.
        chance: Probability that the job ends within the slice.
    """

    value: float
    stop: float
    cost: float
    saving: float
    chance: float


class CloudOffer(NamedTuple):
    """The terms at which one job would run in the cloud.

    Attributes:
        start_seconds: Time until it would run: the wait for a node and the boot; 0 while it runs there.
        slowdown: s(c): run time in the cloud over run time on-premise.
        cost_per_second: US dollars per second of its nodes, or its processors, where costs are core-seconds.
        paid_start_seconds: The part of ``start_seconds`` that is paid: the boot, where EC2 bills it.
        is_whole: True for a job that must not be requeued: it gets one slice up to its limit.
        checkpoint_seconds: Run time there that the job loses at most when it is stopped and started again;
            infinite: all of it.
    """

    start_seconds: float
    slowdown: float
    cost_per_second: float
    paid_start_seconds: float
    is_whole: bool
    checkpoint_seconds: float = NO_CHECKPOINT


def best_slice(
    probabilities: Floats,
    edges: Floats,
    *,
    limit: float,
    elapsed: float,
    wait: float,
    offer: CloudOffer,
    loss_weight: float,
    longest: float = math.inf,
) -> Slice:
    """The slice with the highest expected saving over expected cost.

    Args:
        probabilities: Probability of each bin of the run time on-premise, shape ``(bins,)``.
        edges: Upper edges of the bins, shape ``(bins,)``, seconds, ascending.
        limit: The job's time limit, seconds.
        elapsed: The time that it has run in the cloud already, in seconds of on-premise run time.
        wait: Seconds until its start on-premise, where it would begin anew, or from its last checkpoint.
        loss_weight: Number of saved hours that one lost hour outweighs.
        longest: The longest slice that the money at hand pays for, seconds of on-premise run time.
    """
    return Slice(
        *best_of_stops(
            probabilities,
            edges,
            limit,
            elapsed,
            wait,
            offer.start_seconds,
            offer.slowdown,
            float(offer.cost_per_second),
            offer.paid_start_seconds,
            offer.is_whole,
            loss_weight,
            longest,
            offer.checkpoint_seconds / offer.slowdown,
        )
    )


def usd_for_shorter(price: Price | None, payers: Collection[str]) -> float:
    """US dollars that a slice may cost at worst which is shorter than the best; 0: none is to be bought."""
    if price is None or price.share_of(payers) >= SHORTER_BELOW:
        return 0.0
    return max(0.0, price.tokens_of(payers)[0])


@compiled
def best_of_stops(  # noqa: PLR0917  (compiled: no keywords)
    probabilities: Floats,
    edges: Floats,
    limit: float,
    elapsed: float,
    wait: float,
    start: float,
    slowdown: float,
    cost_per_second: float,
    paid_start: float,
    is_whole: bool,  # noqa: FBT001  (compiled: no keywords)
    loss_weight: float,
    longest: float,
    checkpoint: float,
) -> tuple[float, float, float, float, float]:
    """Compiled :func:`best_slice`: (index, stop, cost, saving, chance).

    With checkpoints a slice in which the job does not end saves time as well: what it has kept when it stops,
    or when its slot on-premise comes before that, need not be done there.
    """
    best_index, best_stop, best_cost, best_saving, best_chance = -1.0, 0.0, 0.0, 0.0, 0.0
    left = 0.0
    past = elapsed * (1.0 + _ROUNDING) + _MOMENT
    for k in range(probabilities.shape[0]):
        if edges[k] > past:
            left += probabilities[k]
    if left <= 0.0:
        return best_index, best_stop, best_cost, best_saving, best_chance
    saving, ended_cost, chance = 0.0, 0.0, 0.0
    had = max(0.0, elapsed - checkpoint)
    slot = elapsed + max(0.0, wait - start) / slowdown  # its run time when its slot comes
    for k in range(probabilities.shape[0]):
        if edges[k] <= past or probabilities[k] == 0.0:
            continue
        share = probabilities[k] / left
        low = edges[k - 1] if k else edges[0] * edges[0] / edges[1]
        run = min(math.sqrt(max(low, elapsed) * edges[k]), limit)  # of the part of its bin that is left
        stop = min(edges[k], limit)
        if stop - elapsed > longest:
            break
        saved = wait + run - had - start - slowdown * (run - elapsed)
        saved = _saved_at_slot(saved, run - slot, slot - had, checkpoint, is_whole)
        saving += share * (saved if saved > 0.0 else loss_weight * saved)
        ended_cost += share * slowdown * (run - elapsed)
        chance += share
        others = max(0.0, 1.0 - chance)
        if is_whole and others > _ROUNDING:
            continue
        cost = cost_per_second * (ended_cost + others * slowdown * (stop - elapsed) + paid_start)
        kept = max(0.0, min(stop, slot) - checkpoint - had)
        all_saved = saving + others * kept if kept > _MOMENT else saving
        if cost > 0.0 and all_saved / cost > best_index:
            best_index, best_stop, best_cost = all_saved / cost, stop, cost
            best_saving, best_chance = all_saved, chance
    if best_chance > 1.0 - _ROUNDING and limit - elapsed <= longest:
        best_stop = limit
    return best_index, best_stop, best_cost, best_saving, best_chance


@compiled
def _saved_at_slot(
    saved: float,
    after_slot: float,
    done: float,
    checkpoint: float,
    is_whole: bool,  # noqa: FBT001  (compiled: no keywords)
) -> float:
    """The saving of a job that may come back when its slot on-premise comes, seconds.

    With checkpoints it comes back with what it has kept, unless it saves more where it is. Without them what
    it has done until then would be lost. A whole run goes on in any case.

    Args:
        saved: Saving if it goes on in the cloud.
        after_slot: Run time that is left when its slot comes; negative: it has ended by then.
        done: Run time until then.
    """
    if is_whole or after_slot <= 0.0 or checkpoint == math.inf:
        return saved
    kept = done - checkpoint
    return max(saved, kept if kept > _MOMENT else 0.0)


@compiled
def forget_below(probabilities: Floats, edges: Floats, elapsed: float) -> None:
    """Condition a run-time distribution, in place, on a run time of more than ``elapsed`` seconds."""
    left = 0.0
    past = elapsed * (1.0 + _ROUNDING) + _MOMENT
    last = -1
    for k in range(probabilities.shape[0]):
        if probabilities[k] > 0.0:
            last = k
        if edges[k] <= past:
            continue
        left += probabilities[k]
    if left <= 0.0:  # it has outrun all that was forecast: it may end in the bin it is in
        for k in range(probabilities.shape[0]):
            probabilities[k] = 0.0
        while last + 1 < probabilities.shape[0] and edges[max(last, 0)] <= past:
            last += 1
        probabilities[last] = 1.0
        return
    for k in range(probabilities.shape[0]):
        probabilities[k] = probabilities[k] / left if edges[k] > past else 0.0
