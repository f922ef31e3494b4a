"""Terminate instances in batches; one bad id fails a call, so that batch is split (F08 in docs/faults.md)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import structlog

from advisor.ec2.errors import Failure, FailureClass, answer_or_failure
from advisor.files import fence

_BATCH: Final = 1000  # EC2's limit
# Errors about single ids. Others (no permission, no credentials) would fail every part of the batch.
_ABOUT_ONE: Final = frozenset(
    {"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "OperationNotPermitted"}
)

_log = structlog.get_logger("advisor.ec2")


def terminate(ec2: Any, instance_ids: Sequence[str]) -> tuple[list[str], list[str], Failure | None]:
    """Terminate as many of these instances as EC2 accepts; terminating one twice is harmless.

    Returns:
        terminated: Ids that EC2 accepted.
        unknown: Ids that EC2 does not know: these instances are gone, or EC2 does not list them yet (F06).
        refused: Why EC2 did not end the others, as far as only the admin can mend it.
    """
    ids = list(dict.fromkeys(instance_ids))
    stack = [ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH)]
    terminated: list[str] = []
    unknown: list[str] = []
    refused: Failure | None = None
    while stack:
        batch = stack.pop()
        fence.check()
        _, failure = answer_or_failure(partial(ec2.terminate_instances, InstanceIds=batch))
        if failure is None:
            terminated += batch
        elif len(batch) > 1 and failure.code in _ABOUT_ONE:
            middle = len(batch) // 2
            stack += [batch[:middle], batch[middle:]]
        elif failure.kind is FailureClass.GONE:
            unknown += batch
        else:
            refused = failure if failure.kind is FailureClass.ADMIN else refused
            _log.warning(
                "terminate.failed",
                code=failure.code,
                message=failure.message,
                instances=batch[:20],
                number=len(batch),
                then="they cost money until it succeeds; it is tried again",
            )
    return terminated, unknown, refused
