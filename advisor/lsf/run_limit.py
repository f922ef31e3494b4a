"""Find the run limit among two numbers of a ``JOB_FINISH`` record by their values.

IBM's page lists ``options3`` before ``runLimit``; LSF writes them in the opposite order. In public records
(versions 9.11, 9.12, 9.13, 10.1 and 10.108: the tests of ubccr/xdmod and of aws-samples/hpc-cost-simulator,
and others) the run limit is first wherever the values show it, in seconds:

- ``-W 12:00`` in the job's script and ``43200 0`` in the record, ``-W 1:00`` and ``3600 16``;
- ``2419200 33554432`` in a record whose submission limits have 827366400 for the run time: 2419200 times the
  host's CPU factor 342.0, by which LSF normalises run limits;
- ``-1 4194304`` and ``-1 64`` where there is no limit.

A release may write IBM's order, so the order is not used. ``bsub -W`` takes minutes, so a limit is a multiple
of 60. A flags word is hardly ever one: 2 has order 4 modulo 15, so sums of one, two or three different bits
are never a multiple of 60, and the flags words seen have one bit.
"""

from __future__ import annotations

from typing import Final

_MAX_SECONDS: Final = 10 * 366 * 86400
_OVER_THE_LIMIT: Final = 2.0
"""LSF scales the limit by CPU factors; a number that the job exceeded by more than this is not its limit."""
_GRACE_SECONDS: Final = 600.0
"""A job that has reached its limit (``bsub -W``) may take ten minutes to end."""


def limit_as_given(seconds: float, factor: float, *, is_absolute: bool = False) -> float:
    """The limit of ``bsub -W`` in seconds, from that of a ``JOB_NEW`` record, which mbatchd has normalised.

    It multiplies the limit by the CPU factor of the host for which it is meant, unless lsb.params has
    ``ABS_RUNLIMIT=Y``. The record has that factor with two digits after the point. A number that no whole
    minutes would give was not multiplied.

    Examples:
        >>> limit_as_given(60_000, 100.0), limit_as_given(36_000, 100.0, is_absolute=True)
        (600.0, 36000.0)
        >>> limit_as_given(3600, 116.1)
        3600.0
    """
    if is_absolute or factor <= 0.0:
        return float(seconds)
    minutes = seconds / factor / 60.0
    whole = round(minutes)
    is_whole = whole > 0 and abs(minutes - whole) <= 0.01 + minutes * 0.005 / factor
    return 60.0 * whole if is_whole else float(seconds)


def choose_run_limit(one: int, other: int, run_seconds: float | None) -> float | None:
    """The run limit in seconds among run limit and flags, in any order; None if there is none, or two.

    A number far below `run_seconds`, the job's run time, is not taken for the limit.

    Examples:
        >>> choose_run_limit(43200, 0, 40368), choose_run_limit(4194304, -1, 3)
        (43200.0, None)
        >>> choose_run_limit(64, 3600, 10)
        3600.0
        >>> choose_run_limit(3600, 7200, 10)  # flags that happen to be a multiple of 60
    """
    possible = {number for number in (one, other) if 0 < number <= _MAX_SECONDS and number % 60 == 0}
    if len(possible) != 1:
        return None
    limit = float(possible.pop())
    if run_seconds is not None and run_seconds > limit * _OVER_THE_LIMIT + _GRACE_SECONDS:
        return None
    return limit
