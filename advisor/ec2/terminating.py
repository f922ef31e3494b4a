"""Ending instances in batches; one bad id fails a whole batch of EC2's, so a failed batch is split (F08)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import structlog

from advisor.ec2.errors import Failure, FailureClass, failure_of

_BATCH: Final = 1000  # EC2's limit
# Errors about single ids. Others (no permission, no credentials) are the same for every part of the batch.
_ABOUT_ONE: Final = frozenset(
    {"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "OperationNotPermitted"}
)

_log = structlog.get_logger("advisor.ec2")


def terminate(ec2: Any, instance_ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Terminate instances, as many as can be.

    Parameters
    ----------
    ec2 : botocore client
        Repeats throttled calls itself; terminating twice is harmless.
    instance_ids : sequence of str
        Ids; doubles count once.

    Returns
    -------
    going : list of str
        Ids that EC2 took.
    unknown : list of str
        Ids that EC2 does not know: gone for good, or so young that it does not know them yet (F06).
    """
    ids = list(dict.fromkeys(instance_ids))
    stack = [ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH)]
    going: list[str] = []
    unknown: list[str] = []
    while stack:
        batch = stack.pop()
        failure = _terminate_batch(ec2, batch)
        if failure is None:
            going += batch
        elif len(batch) > 1 and failure.code in _ABOUT_ONE:
            middle = len(batch) // 2
            stack += [batch[:middle], batch[middle:]]
        elif failure.kind is FailureClass.GONE:
            unknown += batch
        else:
            _log.warning("terminate.failed", code=failure.code, instances=batch[:20], number=len(batch))
    return going, unknown


def _terminate_batch(ec2: Any, batch: list[str]) -> Failure | None:
    try:
        ec2.terminate_instances(InstanceIds=batch)
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        return failure
    return None
