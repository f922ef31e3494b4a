"""What a hedged start may bring and cost, for every stop-loss at once (compiled)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.compiled import compiled

# How a hedge ended.
NOT_HEDGED, FINISHED, STOPPED, RESTARTED, STAYED = range(5)


@compiled
def stays(run_mass: Floats, runs: Floats, slowdown: float, boot: float, elapsed: float) -> bool:
    """Whether a job still in the cloud after `elapsed` seconds is expected sooner there than restarted.

    It has not ended, so its run time is longer than what it has done; the mean of those that remain decides:
    staying ends at ``boot + s * r``, restarting at ``elapsed + r``. Without a remaining run time nothing is
    known, and the slot is certain.
    """
    probability, total = 0.0, 0.0
    for i in range(len(runs)):
        if boot + slowdown * runs[i] > elapsed:
            probability += run_mass[i]
            total += run_mass[i] * runs[i]
    return probability > 0.0 and elapsed - boot > (slowdown - 1.0) * total / probability


@compiled
def expected_curves(  # noqa: PLR0917 (compiled functions take positions only)
    wait_mass: Floats,
    waits: Floats,
    run_mass: Floats,
    runs: Floats,
    slowdown: float,
    boot: float,
    stops: Floats,
    gain: Floats,
    seconds: Floats,
) -> None:
    """Fill the expected gain and the expected seconds in the cloud for each stop-loss.

    Args:
        wait_mass, run_mass: float64, shape (bins,): Probabilities, taken as independent.
        waits, runs: float64, shape (bins,): Seconds they belong to.
        slowdown, boot: s(c), and seconds until a cloud node is up.
        stops: float64, shape (k,): Stop-losses in seconds, ascending; the first is 0: no hedge.
        gain, seconds: float64, shape (k,): Written.
    """
    gain[:] = 0.0
    seconds[:] = 0.0
    for j in range(len(waits)):
        if wait_mass[j] <= 0.0:
            continue
        wait = waits[j]
        stay = stays(run_mass, runs, slowdown, boot, wait)
        for i in range(len(runs)):
            probability = wait_mass[j] * run_mass[i]
            if probability <= 0.0:
                continue
            in_cloud = boot + slowdown * runs[i]
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
def outcome(
    wait: float,
    run: float,
    slowdown: float,
    boot: float,
    stop: float,
    stay: bool,  # noqa: FBT001 (compiled functions take positions only)
) -> tuple[float, float, int]:
    """Seconds won, seconds in the cloud and ending of a hedge, when the truth is known."""
    in_cloud = boot + slowdown * run
    if stop <= 0.0:
        return 0.0, 0.0, NOT_HEDGED
    if in_cloud <= wait and in_cloud <= stop:
        return wait + run - in_cloud, in_cloud, FINISHED
    if stop < wait:
        return 0.0, stop, STOPPED
    if stay:
        return wait + run - in_cloud, in_cloud, STAYED
    return 0.0, wait, RESTARTED


@compiled
def expected_optimum(
    wait_mass: Floats, waits: Floats, run_mass: Floats, runs: Floats, slowdown: float, boot: float
) -> float:
    """Seconds a clairvoyant is expected to keep the job in the cloud: only where that is faster."""
    total = 0.0
    for i in range(len(runs)):
        in_cloud = boot + slowdown * runs[i]
        for j in range(len(waits)):
            if waits[j] + runs[i] > in_cloud:
                total += run_mass[i] * wait_mass[j] * in_cloud
    return total


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
    wait_mass: Floats,
    waits: Floats,
    run_mass: Floats,
    runs: Floats,
    slowdown: float,
    boot: float,
    processors: float,
    wait: float,
    run: float,
    stops: Floats,
    prices: Floats,
    saved: Floats,
    seconds: Floats,
    expected: Floats,
    ending: NDArray[np.int8],
    gain: Floats,
    stay_seconds: Floats,
) -> float:
    """Work out one job at every price, now that its wait and run time are known.

    Args:
        wait_mass, waits, run_mass, runs, slowdown, boot, stops: As in :func:`expected_curves`.
        processors: c.
        wait, run: What they really were, seconds.
        prices: float64, shape (levels,): Of a core-second.
        saved, seconds, expected, ending: shape (levels,): Written: seconds saved and spent in the cloud,
            core-seconds that were expected, how it ended.
        gain, stay_seconds: float64, shape (k,): Written: :func:`expected_curves`.

    Returns:
        Core-seconds a clairvoyant was expected to spend.
    """
    expected_curves(wait_mass, waits, run_mass, runs, slowdown, boot, stops, gain, stay_seconds)
    stay = stays(run_mass, runs, slowdown, boot, wait)
    for level in range(len(prices)):
        best = best_stop(gain, stay_seconds, prices[level] * processors, len(stops))
        won, spent, how = outcome(wait, run, slowdown, boot, stops[best], stay)
        saved[level], seconds[level], ending[level] = won, spent, how
        expected[level] = processors * stay_seconds[best]
    return processors * expected_optimum(wait_mass, waits, run_mass, runs, slowdown, boot)
