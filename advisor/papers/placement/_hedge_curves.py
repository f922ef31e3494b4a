"""What a hedged start may bring and cost, for every stop-loss at once (compiled)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.compiled import compiled


@compiled
def stays(run_mass: Floats, runs: Floats, slowdown: float, elapsed: float) -> bool:
    """Whether a job still in the cloud after `elapsed` seconds is expected sooner there than restarted.

    It has not ended, so its run time is longer than what it has done; the mean of those that remain decides:
    staying ends at ``s * r``, restarting at ``elapsed + r``. Without a remaining run time nothing is
    known, and the slot is certain.
    """
    probability, total = 0.0, 0.0
    for i in range(len(runs)):
        if slowdown * runs[i] > elapsed:
            probability += run_mass[i]
            total += run_mass[i] * runs[i]
    return probability > 0.0 and elapsed > (slowdown - 1.0) * total / probability


@compiled
def expected_curves(
    wait_mass: Floats,
    waits: Floats,
    run_mass: Floats,
    runs: Floats,
    slowdown: float,
    stops: Floats,
    gain: Floats,
    seconds: Floats,
) -> None:
    """Fill the expected gain and the expected seconds in the cloud for each stop-loss.

    Args:
        wait_mass, run_mass: float64, shape (bins,): Probabilities, taken as independent.
        waits, runs: float64, shape (bins,): Seconds they belong to.
        slowdown: s(c); a cloud node is up at once, as in the paper.
        stops: float64, shape (k,): Stop-losses in seconds, ascending; the first is 0: no hedge.
        gain, seconds: float64, shape (k,): Written.
    """
    gain[:] = 0.0
    seconds[:] = 0.0
    for j in range(len(waits)):
        if wait_mass[j] <= 0.0:
            continue
        wait = waits[j]
        stay = stays(run_mass, runs, slowdown, wait)
        for i in range(len(runs)):
            probability = wait_mass[j] * run_mass[i]
            if probability <= 0.0:
                continue
            in_cloud = slowdown * runs[i]
            won = wait + runs[i] - in_cloud
            for k in range(1, len(stops)):
                if in_cloud <= wait and in_cloud <= stops[k]:
                    gain[k] += probability * won
                    seconds[k] += probability * in_cloud
                elif stops[k] < wait:
                    seconds[k] += probability * stops[k]
                elif stay:
                    gain[k] += probability * won
                    seconds[k] += probability * in_cloud
                else:
                    seconds[k] += probability * wait


@compiled
def spent(
    wait: float,
    run: float,
    slowdown: float,
    stop: float,
    stay: bool,  # noqa: FBT001 (compiled functions take positions only)
) -> float:
    """Seconds in the cloud of a hedge, when the truth is known."""
    if stop <= 0.0:
        return 0.0
    in_cloud = slowdown * run
    if in_cloud <= wait and in_cloud <= stop:
        return in_cloud
    if stop < wait:
        return stop
    return in_cloud if stay else wait


@compiled
def best_stop(gain: Floats, seconds: Floats, price: float, count: int) -> int:
    """Stop-loss with the largest gain less price times seconds, of the first `count`.

    The shortest of equals, 0 where none pays.
    """
    best, value = 0, 0.0
    for k in range(1, count):
        worth = gain[k] - price * seconds[k]
        if worth > value:
            best, value = k, worth
    return best


@compiled
def at_prices(  # noqa: PLR0917 (compiled functions take positions only)
    gain: Floats,
    stay_seconds: Floats,
    slowdown: float,
    processors: float,
    wait: float,
    run: float,
    stay: bool,  # noqa: FBT001 (as above)
    stops: Floats,
    prices: Floats,
    seconds: NDArray[np.float32],
) -> None:
    """Work out what one job costs at every price, now that its wait and run time are known.

    Args:
        gain, stay_seconds, slowdown, stops: As :func:`expected_curves` fills or takes them.
        processors: c.
        wait, run: What they really were, seconds.
        stay: Whether it stays in the cloud when its slot comes (:func:`stays`).
        prices: float64, shape (levels,): Of a core-second.
        seconds: float32, shape (levels,): Written: seconds in the cloud.
    """
    for level in range(len(prices)):
        best = best_stop(gain, stay_seconds, prices[level] * processors, len(stops))
        seconds[level] = spent(wait, run, slowdown, stops[best], stay)
