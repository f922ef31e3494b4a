"""One record of the ledger, an advice with its job and estimates; to JSON and back."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from advisor.model.advice import Advice
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimates
from advisor.model.job import Job

_MAX_BYTES = 1024 * 1024


class AdviceRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One decision, as the spool and the ledger keep it.

    Attributes:
        job: The job as submitted; ``job.job_id`` is 0 when the advice was given inside ``sbatch``.
        estimates: The estimates behind questions 2 and 3.
    """

    advice: Advice
    job: Job
    estimates: Estimates = msgspec.field(default_factory=Estimates)


def encode(record: AdviceRecord) -> bytes:
    """One line of JSON without line end; NaN and infinities are strings such as ``"nan"``."""
    return msgspec.json.encode(_finite(msgspec.to_builtins(record)))


def decode(line: bytes | str) -> AdviceRecord:
    """Read what :func:`encode` wrote; unknown fields (a newer release's) are ignored.

    Raises:
        BadInput: The line is no such record, or longer than 1 MiB.
    """
    if len(line) > _MAX_BYTES:
        raise BadInput(
            "longer than 1 MiB", where="advice record", mend="Remove the line", code="ledger.record"
        )
    try:
        return msgspec.convert(msgspec.json.decode(line), AdviceRecord, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(
            f"not an advice record: {error}",
            where="advice record",
            mend="Remove the line; the others are read",
            code="ledger.record",
        ) from None


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value
