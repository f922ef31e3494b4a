"""Rows of the ledger: what was predicted of ended jobs that had advice, beside what came of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.engine import Connection

from advisor.decide.explanation.reasons import Reason
from advisor.history.records import NumbersRecord, decode_part, waited_since
from advisor.history.schema import advice, job
from advisor.model.advice import Mode, Placement
from advisor.model.job import CUT_SHORT

PLACEMENTS: Final = {placement.value: placement for placement in Placement}
MODES: Final = {mode.value: mode for mode in Mode}
_COLUMNS: Final = (
    *(column for column in advice.c if column.name != "record"),
    *(job.c[name] for name in ("job_id", "queue", "processors", "cost_usd", "start_time", "submit_time")),
    *(job.c[name] for name in ("state", "restarts", "details")),
    job.c.partition_name.label("ran_in"),
    (job.c.end_time - job.c.start_time).label("run"),
)
_CUT_SHORT: Final = frozenset(state.value for state in CUT_SHORT)


class _Details(msgspec.Struct, gc=False):
    """What a job's details say of its wait."""

    ineligible_seconds: float = 0.0
    array_job_id: int | None = None


_details_of = msgspec.json.Decoder(_Details).decode


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Predicted and actual values of one ended job that had advice.

    Attributes:
        time: Epoch seconds of the advice.
        job_id: The job (one of several for an array).
        reason: Code of the decisive answer.
        predicted_wait_seconds, predicted_wait_variance: Predicted wait on-premise, seconds and seconds
            squared; NaN and infinity when unknown.
        predicted_run_seconds, predicted_run_variance: The same for the run time.
        actual_wait_seconds, actual_run_seconds: From the first submission to the last start, and from there
            to the end.
        judged_wait_seconds, judged_run_seconds: By which the forecasts are judged, the wait from the advice
            on (`AdviceRecord.wait_of`); NaN for arrays, requeued jobs, those that might not start at once,
            and runs that were cut short.
        saved_seconds_estimate: Predicted on-premise wait minus actual wait of a moved job, both from its
            advice on: an *estimate* of the wait avoided. Of an array both are its first task's: the others
            wait for one another there as here. None for other jobs, and for one that was brought back.
        predicted_start_seconds, actual_start_seconds: From the advice of a moved job to its start in the
            cloud. None for others, and where nothing was predicted.
        cost_usd: Its cost in US dollars, including earlier runs in the cloud; None when unknown.
    """

    advice_id: str
    time: float
    job_id: int
    user: str | None
    queue: str | None
    placement: Placement
    mode: Mode
    reason: str
    size: str
    predicted_wait_seconds: float
    predicted_wait_variance: float
    predicted_run_seconds: float
    predicted_run_variance: float
    actual_wait_seconds: float
    actual_run_seconds: float
    judged_wait_seconds: float
    judged_run_seconds: float
    processors: int
    saved_seconds_estimate: float | None
    cost_usd: float | None
    predicted_start_seconds: float | None = None
    actual_start_seconds: float | None = None

    @property
    def is_users_choice(self) -> bool:
        """Whether its user submitted it to the burst partition, so that the advisor saved nothing."""
        return self.reason == Reason.EXPLICIT_BURST


def ended_jobs(connection: Connection, wanted: sa.ColumnElement[bool]) -> list[LedgerRow]:
    """The ended jobs of the advice that a condition names, by submission."""
    query = (
        sa.select(*_COLUMNS)
        .select_from(advice.join(job, job.c.advice_id == advice.c.advice_id))
        .where(wanted)
        .order_by(job.c.submit_time, job.c.job_id)
    )
    ended = connection.execute(query).all()
    rows = _with_first_of_array([_row(one) for one in ended])
    return _with_starts(connection, rows, [float(one.start_time) for one in ended])


def _with_first_of_array(rows: list[LedgerRow]) -> list[LedgerRow]:
    first: dict[str, float] = {}
    for row in rows:
        if row.saved_seconds_estimate is not None:
            first[row.advice_id] = max(row.saved_seconds_estimate, first.get(row.advice_id, -math.inf))
    return [
        replace(row, saved_seconds_estimate=first[row.advice_id])
        if row.saved_seconds_estimate not in {None, first.get(row.advice_id)}
        else row
        for row in rows
    ]


def _with_starts(connection: Connection, rows: list[LedgerRow], started: list[float]) -> list[LedgerRow]:
    """Rows of moved jobs with their start in the cloud: predicted, which the record has, and actual."""
    moved = sorted({row.advice_id for row in rows if row.saved_seconds_estimate is not None})
    if not moved:
        return rows
    query = sa.select(advice.c.advice_id, advice.c.record).where(advice.c.advice_id.in_(moved))
    found = {
        advice_id: decode_part(record, NumbersRecord).values()
        for advice_id, record in connection.execute(query).all()
    }
    return [
        replace(row, predicted_start_seconds=predicted, actual_start_seconds=max(0.0, start - row.time))
        if row.saved_seconds_estimate is not None
        and (predicted := _start_in_cloud(found[row.advice_id])) is not None
        else row
        for row, start in zip(rows, started, strict=True)
    ]


def _start_in_cloud(numbers: Mapping[str, float]) -> float | None:
    """The predicted time from the advice to the start in the cloud, seconds; None: nothing was predicted.

    Args:
        numbers: The advice's numbers by name.
    """
    whole = numbers.get("start_there")
    if whole is not None:
        return whole if math.isfinite(whole) else None
    known = [numbers[name] for name in ("cloud_wait", "boot", "staging") if name in numbers]
    return sum(known) if "boot" in numbers and all(map(math.isfinite, known)) else None


def _row(found: Any) -> LedgerRow:
    """One row; values are taken by place, because thousands are made for a page."""
    advice_id, time, user, partition, placement, mode, reason, size, *rest = found
    wait, wait_variance, run, run_variance, job_id, queue, processors, cost, start, *rest = rest
    submitted, state, restarts, details, ran_in, ran = rest
    predicted_wait = math.nan if wait is None else wait
    moved = (
        placement == Placement.BURST
        and mode == Mode.ACT
        and reason != Reason.EXPLICIT_BURST
        and math.isfinite(predicted_wait)
        and ran_in in (partition, None)
    )
    return LedgerRow(
        advice_id=advice_id,
        time=time,
        job_id=job_id,
        user=user,
        queue=queue,
        placement=PLACEMENTS[placement],
        mode=MODES[mode],
        reason=reason,
        size=size,
        predicted_wait_seconds=predicted_wait,
        predicted_wait_variance=math.inf if wait_variance is None else wait_variance,
        predicted_run_seconds=math.nan if run is None else run,
        predicted_run_variance=math.inf if run_variance is None else run_variance,
        actual_wait_seconds=start - submitted,
        actual_run_seconds=ran,
        judged_wait_seconds=math.nan if restarts else _judged_wait(details, time, start),
        judged_run_seconds=math.nan if state in _CUT_SHORT else ran,
        processors=processors,
        saved_seconds_estimate=predicted_wait - max(0.0, start - time) if moved else None,
        cost_usd=cost,
    )


def _judged_wait(details: str | None, advised: float, start: float) -> float:
    known = _details_of(details) if details else None
    if known is not None and (known.ineligible_seconds or known.array_job_id is not None):
        return math.nan
    waited = waited_since(advised, start)
    return math.nan if waited is None else waited
