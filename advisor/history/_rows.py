"""Convert finished jobs to database rows and back."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from msgspec import structs
from sqlalchemy import Row

from advisor.model.errors import BadInput
from advisor.model.job import Job, JobOutcome, JobState

_MAX_CHARACTERS = 4096
_MAX_INTEGER = 2**63 - 1
_JOB_COLUMNS = {
    "job_id": "job_id",
    "submit_time": "submit_time",
    "processors": "processors",
    "user": "user_name",
    "group": "group_name",
    "queue": "queue",
    "requested_time": "requested_time",
    "nodes": "nodes",
    "memory_mb": "memory_mb",
    "name": "name",
    "account": "account",
    "qos": "qos",
}
"""Fields of :class:`Job` that have a column of their own."""

_DETAILS = {
    field.name: field.default for field in msgspec.structs.fields(Job) if field.name not in _JOB_COLUMNS
}
"""The other fields and their defaults: kept as JSON, so that the record may grow without a migration."""

_OUTCOME_COLUMNS = {
    "start_time": "start_time",
    "end_time": "end_time",
    "processors_used": "processors_used",
    "restarts": "restarts",
    "partition": "partition_name",
    "nodes": "node_list",
    "advice_id": "advice_id",
}
"""Field of :class:`JobOutcome` to column, without ``job`` and ``state``."""

_HELD = ("memory_held_mb", "gpus_held", "ineligible_seconds")
"""Fields of :class:`JobOutcome` that stand among the details, 0 where they do not."""


class Held(msgspec.Struct):
    """What the details of a row say of what its job held, and how long it might not start."""

    memory_held_mb: int = 0
    gpus_held: int = 0
    ineligible_seconds: float = 0.0


_held_of = msgspec.json.Decoder(Held).decode


def held_of(details: str | None) -> Held:
    """Read what a job held, and how long it might not start."""
    return _held_of(details) if details else Held()


def row_of(outcome: JobOutcome, source: str) -> dict[str, Any]:
    """One row of the ``job`` table.

    Raises:
        BadInput: A time is not finite or a number does not fit.
    """
    job = outcome.job
    where = f"{source}, job {job.job_id}"
    row = {column: storable(getattr(job, name), where) for name, column in _JOB_COLUMNS.items()}
    row |= {column: storable(getattr(outcome, name), where) for name, column in _OUTCOME_COLUMNS.items()}
    details = {
        name: storable(getattr(job, name), where)
        for name, default in _DETAILS.items()
        if getattr(job, name) != default
    }
    details |= {name: value for name in _HELD if (value := getattr(outcome, name))}
    row |= {
        "source": source,
        "state": outcome.state.value,
        "details": json.dumps(details) if details else None,
    }
    if any(row[name] is None for name in ("submit_time", "start_time", "end_time")):
        raise BadInput(
            "its submission, start or end is not a number",
            where=where,
            mend="Correct its record in the log, or leave the job out",
        )
    return row


def storable(value: Any, where: str) -> Any:
    """The value as both databases take it: text without NUL and lone surrogates, no NaN, 64-bit numbers.

    Raises:
        BadInput: A whole number has more than 64 bits; ``where`` names its job.
    """
    match value:
        case str():
            clean = value[:_MAX_CHARACTERS].replace("\0", "")
            return clean.encode("utf-8", "replace").decode("utf-8")
        case tuple():
            return [storable(item, where) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case int() if abs(value) > _MAX_INTEGER:
            raise BadInput(
                f"the number {value} has more than 64 bits",
                where=where,
                mend="Correct its record in the log, or leave the job out",
            )
    return value


def outcome_of(row: Row[Any], first_start_time: float | None = None) -> JobOutcome:
    """The finished job of a row; a requeued job's first start comes from its earlier runs."""
    values = row._mapping  # noqa: SLF001 - SQLAlchemy's documented way to columns by name
    submitted: dict[str, Any] = {name: values[column] for name, column in _JOB_COLUMNS.items()}
    if values["details"]:
        # unknown fields were written by a newer release
        submitted |= {k: v for k, v in json.loads(values["details"]).items() if k in _DETAILS}
    return JobOutcome(
        job=msgspec.convert(submitted, Job),
        state=JobState(values["state"]),
        first_start_time=first_start_time,
        **structs.asdict(held_of(values["details"])),
        **{name: values[column] for name, column in _OUTCOME_COLUMNS.items()},
    )
