"""Whether a hedged job finishes in the cloud or starts again on-premise: the watch loop asks. Pure.

A hedged job runs in the cloud while a placeholder keeps its place in the on-premise queue (docs/glossary.md).
Its slot is the on-premise start that becomes possible when the placeholder starts.
"""

from __future__ import annotations


def ends_sooner_there(*, slowdown: float, elapsed_seconds: float, own_limit_seconds: float | None) -> bool:
    """Whether a job whose on-premise slot is available now certainly ends sooner in the cloud.

    If it stays, it ends in ``slowdown * run - elapsed`` seconds; if it starts again on-premise, in ``run``
    seconds. For every run time up to the limit it ends sooner by staying if
    ``elapsed > (slowdown - 1) * limit``.

    Args:
        slowdown: s(c): run time in the cloud over run time on-premise.
        elapsed_seconds: Time since its start in the cloud, without the boot.
        own_limit_seconds: The time limit that its user set; None: there is none, and nothing is certain.
    """
    return own_limit_seconds is not None and elapsed_seconds > (slowdown - 1.0) * own_limit_seconds


def stays_past_stop(
    *,
    slowdown: float,
    elapsed_seconds: float,
    own_limit_seconds: float | None,
    further_wait_seconds: float | None,
) -> bool:
    """Whether a speculation goes on past its stop because its on-premise slot is too far in the future.

    A speculation (Ambati et al. 2021) is a hedged job that gets a fixed time in the cloud; its stop is the
    end of that time. It goes on if it certainly ends in the cloud before its slot is available: to bring it
    back would only lose time. The paper has no such rule.

    Args:
        slowdown: s(c): run time in the cloud over run time on-premise.
        elapsed_seconds: Time since its start in the cloud, without the boot.
        own_limit_seconds: The time limit that its user set; None: there is none, and nothing is certain.
        further_wait_seconds: Time until slurmctld expects the slot; None: slurmctld expects none yet.
    """
    if own_limit_seconds is None or further_wait_seconds is None:
        return False
    return slowdown * own_limit_seconds - elapsed_seconds <= further_wait_seconds
