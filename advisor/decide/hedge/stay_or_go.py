"""Whether a job in the cloud that keeps a place finishes there or starts again on-premise. Pure."""

from __future__ import annotations


def ends_sooner_there(*, slowdown: float, elapsed_seconds: float, own_limit_seconds: float | None) -> bool:
    """Whether a job whose slot on-premise has come certainly ends sooner in the cloud.

    Staying ends after slowdown * run - elapsed seconds, starting again after run seconds; staying is sooner
    for every run within the limit if elapsed > (slowdown - 1) * limit.

    Args:
        slowdown: s(c) = o*c + i.
        elapsed_seconds: Since its start in the cloud, after the boot.
        own_limit_seconds: The time limit its user gave; None: none, and nothing is certain.
    """
    return own_limit_seconds is not None and elapsed_seconds > (slowdown - 1.0) * own_limit_seconds


def stays_past_stop(
    *,
    slowdown: float,
    elapsed_seconds: float,
    own_limit_seconds: float | None,
    further_wait_seconds: float | None,
) -> bool:
    """Whether a speculation goes on past its stop, because its slot on-premise has moved too far away.

    It does where it certainly ends in the cloud before its slot comes: bringing it back would only lose time.
    The paper (Ambati et al. 2021) has no such rule.

    Args:
        further_wait_seconds: Until slurmctld expects the slot; None when it expects none yet.
    """
    if own_limit_seconds is None or further_wait_seconds is None:
        return False
    return slowdown * own_limit_seconds - elapsed_seconds <= further_wait_seconds
