"""One record of the ledger, an advice with its job and estimates; to JSON and back."""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar

import msgspec

from advisor.model.advice import Advice, Quantity
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimates
from advisor.model.job import Job, JobOutcome

_MAX_BYTES = 1024 * 1024
_ACCOUNTED_SECONDS: Final = 1.0


class AdviceRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One decision, as the spool and the ledger keep it.

    Attributes:
        job: The job as submitted; ``job.job_id`` is 0 when the advice was given inside ``sbatch``.
    """

    advice: Advice
    job: Job
    estimates: Estimates = msgspec.field(default_factory=Estimates)

    @property
    def is_of_one_job(self) -> bool:
        """False for an array: its forecast wait is that of its first task, whichever that will be."""
        return self.job.array_tasks == 1

    def wait_of(self, outcome: JobOutcome) -> float | None:
        """Seconds from the advice to the job's first start, by which its forecast wait is judged.

        None where that is unknown, or no forecast of the queue can know it: of an array, and of a job that
        might not start at once.
        """
        start = outcome.first_start_time if outcome.restarts else outcome.start_time
        if start is None or outcome.ineligible_seconds or not self.is_of_one_job:
            return None
        return waited_since(self.advice.time, start)


def waited_since(time: float, start: float) -> float | None:
    """Seconds from a time, such as that of an advice, to a start; None where the start was before.

    The accounting has whole seconds: a job that starts in the second of its advice has not waited.
    """
    waited = start - time
    return max(0.0, waited) if waited > -_ACCOUNTED_SECONDS else None


def encode(record: AdviceRecord) -> bytes:
    """One line of JSON without line end; NaN and infinities are strings such as ``"nan"``."""
    return msgspec.json.encode(_finite(msgspec.to_builtins(record)))


def decode(line: bytes | str) -> AdviceRecord:
    """Read what :func:`encode` wrote; unknown fields (a newer release's) are ignored.

    Raises:
        BadInput: The line is no such record, or longer than 1 MiB.
    """
    if len(line) > _MAX_BYTES:
        raise _no_record(line, "longer than 1 MiB")
    try:
        return msgspec.convert(msgspec.json.decode(line), AdviceRecord, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _no_record(line, error) from None


class BriefEstimate(msgspec.Struct, frozen=True, gc=False):
    """An :class:`Estimate` without its distribution."""

    seconds: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    coverage: float = 0.9


class _BriefEstimates(msgspec.Struct, frozen=True, gc=False):
    wait: BriefEstimate = BriefEstimate()
    run: BriefEstimate = BriefEstimate()


class _BriefJob(msgspec.Struct, frozen=True, gc=False):
    account: str | None = None


class BriefRecord(msgspec.Struct, frozen=True, gc=False):
    """The few fields of an :class:`AdviceRecord` that sums over a ledger need: a fifth of the time to read.

    Attributes:
        job: Its ``account``.
    """

    job: _BriefJob
    estimates: _BriefEstimates = _BriefEstimates()


class _NumbersOfAnswer(msgspec.Struct, frozen=True, gc=False):
    numbers: tuple[tuple[str, Quantity], ...] = ()


class _NumbersOfAdvice(msgspec.Struct, frozen=True, gc=False):
    answers: tuple[_NumbersOfAnswer, ...]


class NumbersRecord(msgspec.Struct, frozen=True, gc=False):
    """The numbers of an advice, without the rest of its record."""

    advice: _NumbersOfAdvice

    def values(self) -> dict[str, float]:
        """All numbers of the answers by name; later answers win."""
        return {name: number.value for answer in self.advice.answers for name, number in answer.numbers}


_Part = TypeVar("_Part", BriefRecord, NumbersRecord)


def decode_part(line: str, kind: type[_Part]) -> _Part:
    """Read a part of what :func:`encode` wrote.

    Raises:
        BadInput: The line is no such record.
    """
    try:
        return msgspec.json.decode(line, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _no_record(line, error) from None


def _no_record(line: bytes | str, error: object) -> BadInput:
    return BadInput(
        f"not an advice record: {error}",
        where=f"history, table advice, the record that begins {line[:100]!a}",
        mend="Remove this row, or install the release that wrote it; until then the ledger stops here",
        code="ledger.record",
    )


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    return value
