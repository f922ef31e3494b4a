"""The rules of Wu et al., NSDI 2024, as published: greedy and Uniform Progress."""

from __future__ import annotations

from advisor.papers.deadlines.moment import Market, Moment


def _too_late_to_wait(moment: Moment) -> bool:
    """The safety net, R(t) < C(t) + 2 d: a job that is not on spot goes on-demand and stays there.

    On-demand keeps R - C from there on but for its changeover, so that the condition holds to the end.
    """
    return moment.running is not Market.SPOT and moment.slack < 2.0 * moment.changeover


def greedy(moment: Moment) -> Market:
    """Spot where it can be had, else wait; on-demand by the safety net."""
    if _too_late_to_wait(moment):
        return Market.ON_DEMAND
    return Market.SPOT if moment.has_spot else Market.IDLE


def uniform_progress(moment: Moment, work: float, time: float) -> Market:
    """Uniform Progress: on-demand while less is done than ep(t) = t C0 / R0.

    Exploitation: stay on spot until it is taken away. Taking risks: use spot whenever it can be had.
    Hysteresis: on-demand stays until what is done reaches ep(t + 2 d).

    Args:
        work: C0, run time of the whole job, seconds.
        time: R0, from its begin to the deadline, seconds.
    """
    if moment.running is Market.SPOT:
        return Market.SPOT
    if _too_late_to_wait(moment):
        return Market.ON_DEMAND
    pace = work / time
    passed, done = time - moment.time_left, work - moment.work_left
    if moment.running is Market.ON_DEMAND and done < pace * (passed + 2.0 * moment.changeover):
        return Market.ON_DEMAND
    if moment.has_spot:
        return Market.SPOT
    return Market.ON_DEMAND if done < pace * passed else Market.IDLE
