"""Which number of a ``JOB_FINISH`` record is the run limit, told from the numbers themselves.

IBM's page lists ``options3`` before ``runLimit``; what LSF writes is the other way round. Of the records seen
(versions 9.11, 9.12, 9.13, 10.1 and 10.108: the tests of ubccr/xdmod and of aws-samples/hpc-cost-simulator,
and others in public) every one that tells has the run limit first, in seconds:

- ``-W 12:00`` in the job's script and ``43200 0`` in the record, ``-W 1:00`` and ``3600 16``;
- ``2419200 33554432``, where the submission's own limits in the same record have 827366400 for the run time:
  2419200 times the host's CPU factor 342.0, which LSF normalises run limits by;
- ``-1 4194304`` and ``-1 64`` where there is no limit.

A page and a release may still disagree the other way, so that the order is not relied on. ``bsub -W`` takes
minutes, hence a limit is a multiple of 60. The bits of a flags word hardly ever are: 2 has order 4 modulo 15,
so that sums of one, two or three different bits are never a multiple of 60, and the words seen have one bit.
"""

from __future__ import annotations

from typing import Final

_MAX_SECONDS: Final = 10 * 366 * 86400
_OVER_THE_LIMIT: Final = 2.0
"""LSF scales the limit by CPU factors; a job that ran more than twice as long had another one."""
_GRACE_SECONDS: Final = 600.0
"""``bsub -W``: a job that has reached its limit may take ten minutes to end."""


def choose_run_limit(one: int, other: int, run_seconds: float | None) -> float | None:
    """The run limit among two numbers of which one is the limit and the other a word of flags.

    Parameters
    ----------
    one, other : int
        The two fields before the average memory, in any order.
    run_seconds : float or None
        How long the job ran; a limit far below it is none in seconds.

    Returns
    -------
    float or None
        Seconds. None where there is none, or where it cannot be told.

    Examples
    --------
    >>> choose_run_limit(43200, 0, 40368), choose_run_limit(4194304, -1, 3), choose_run_limit(64, 3600, 10)
    (43200.0, None, 3600.0)
    >>> choose_run_limit(3600, 7200, 10)  # flags that happen to be a multiple of 60
    """
    possible = {number for number in (one, other) if 0 < number <= _MAX_SECONDS and number % 60 == 0}
    if len(possible) != 1:
        return None
    limit = float(possible.pop())
    if run_seconds is not None and run_seconds > limit * _OVER_THE_LIMIT + _GRACE_SECONDS:
        return None
    return limit
