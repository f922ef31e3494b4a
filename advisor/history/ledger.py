"""The ledger of advice in the database: decisions, their jobs and the jobs' outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import sqlalchemy as sa

from advisor.decide.explanation.reasons import Reason
from advisor.history._rows import storable
from advisor.history.database import Database, insert_into
from advisor.history.records import AdviceRecord, decode, encode
from advisor.history.schema import SAME_MOMENT_SECONDS, advice, advice_job, job
from advisor.model.advice import Mode, Placement

_BATCH = 1000
_PAGE = 2000
_NUMBERS = tuple(column for column in advice.c if column.name != "record")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
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
        processors: Requested processors.
        saved_seconds_estimate: Predicted on-premise wait minus actual wait of a moved job: an *estimate* of
            the wait avoided. None for other jobs, and for one that was brought back.
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
    processors: int
    saved_seconds_estimate: float | None
    cost_usd: float | None

    @property
    def is_users_choice(self) -> bool:
        """Whether its user submitted it to the burst partition, so that the advisor saved nothing."""
        return self.reason == Reason.EXPLICIT_BURST


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One advice and its jobs (none until its submission is known)."""

    record: AdviceRecord
    job_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter of advice: since then (epoch seconds), by user, placement, reason and job; None: any."""

    since: float
    user: str | None = None
    placement: Placement | None = None
    reason: str | None = None
    job_id: int | None = None

    def of(self, query: sa.Select[Any]) -> sa.Select[Any]:
        """The query with this filter."""
        query = query.where(advice.c.time >= self.since)
        equal = {
            advice.c.user_name: self.user,
            advice.c.reason: self.reason,
            advice.c.placement: self.placement,
        }
        for column, value in equal.items():
            if value is not None:
                query = query.where(column == str(value))
        if self.job_id is not None:
            linked = sa.select(advice_job.c.advice_id).where(advice_job.c.job_id == self.job_id)
            told = sa.select(job.c.advice_id).where(job.c.job_id == self.job_id)
            query = query.where(advice.c.advice_id.in_(linked) | advice.c.advice_id.in_(told))
        return query


class Ledger:
    """The part of :class:`advisor.history.store.HistoryStore` that keeps the ledger."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_advice(self, records: Iterable[AdviceRecord]) -> int:
        """Add advice, except for known ids; return how many were new."""
        stream = iter(records)
        added = 0
        while batch := list(islice(stream, _BATCH)):
            rows = {record.advice.advice_id: _row_of(record) for record in batch}
            with self._database.writing() as connection:
                known = set(
                    connection.execute(
                        sa.select(advice.c.advice_id).where(advice.c.advice_id.in_(sorted(rows)))
                    ).scalars()
                )
                new = [row for advice_id, row in rows.items() if advice_id not in known]
                if new:
                    connection.execute(insert_into(connection, advice).on_conflict_do_nothing(), new)
                added += len(new)
        return added

    def link(self, advice_id: str, job_id: int, *, source: str = "slurm") -> bool:
        """Link an advice to its job; False when there is no such advice. Repeating it is harmless.

        A finished job that was submitted when the advice was given gets the link, too.
        """
        with self._database.writing() as connection:
            time = connection.execute(
                sa.select(advice.c.time).where(advice.c.advice_id == advice_id)
            ).scalar()
            if time is None:
                return False
            values = {"advice_id": advice_id, "source": source, "job_id": job_id}
            connection.execute(insert_into(connection, advice_job).values(values).on_conflict_do_nothing())
            connection.execute(
                sa.update(job)
                .where(job.c.source == source, job.c.job_id == job_id, job.c.advice_id.is_(None))
                .where(job.c.submit_time.between(time - SAME_MOMENT_SECONDS, time + SAME_MOMENT_SECONDS))
                .values(advice_id=advice_id)
            )
        return True

    def advice_of(self, job_id: int, *, source: str = "slurm") -> AdviceRecord | None:
        """The newest advice for a job id, by its link or by the finished job's own record."""
        linked = sa.select(advice_job.c.advice_id).where(
            advice_job.c.job_id == job_id, advice_job.c.source == source
        )
        told = sa.select(job.c.advice_id).where(job.c.job_id == job_id, job.c.source == source)
        query = (
            sa.select(advice.c.record)
            .where(advice.c.advice_id.in_(linked) | advice.c.advice_id.in_(told))
            .order_by(advice.c.time.desc())
            .limit(1)
        )
        with self._database.reading() as connection:
            record = connection.execute(query).scalar()
        return None if record is None else decode(record)

    def decisions(self, since: float | None = None) -> Iterator[Decision]:
        """Advice given at ``since`` or later, oldest first, read in pages."""
        for page in self._advice_pages(sa.select(advice.c.advice_id, advice.c.time, advice.c.record), since):
            yield from self._with_jobs(page)

    def newest_decisions(
        self, wanted: Wanted, limit: int, *, before: tuple[float, str] | None = None
    ) -> list[Decision]:
        """The newest ``limit`` decisions, newest first; ``before``: older than this time and advice id."""
        query = wanted.of(sa.select(advice.c.advice_id, advice.c.time, advice.c.record))
        if before is not None:
            query = query.where(
                sa.tuple_(advice.c.time, advice.c.advice_id) < sa.tuple_(*map(sa.literal, before))
            )
        query = query.order_by(advice.c.time.desc(), advice.c.advice_id.desc()).limit(limit)
        with self._database.reading() as connection:
            page = list(connection.execute(query))
        return list(self._with_jobs(page))

    def decision_counts(self, wanted: Wanted) -> dict[tuple[Placement, Mode, str], int]:
        """Number of decisions by placement, mode and decisive reason."""
        by = (advice.c.placement, advice.c.mode, advice.c.reason)
        query = wanted.of(sa.select(*by, sa.func.count())).group_by(*by)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return {(Placement(row[0]), Mode(row[1]), row[2]): row[3] for row in rows}

    def _with_jobs(self, page: Sequence[sa.Row[Any]]) -> Iterator[Decision]:
        """Rows of advice with their jobs."""
        ids = [row.advice_id for row in page]
        jobs: dict[str, set[int]] = {advice_id: set() for advice_id in ids}
        linked = sa.select(advice_job.c.advice_id, advice_job.c.job_id)
        told = sa.select(job.c.advice_id, job.c.job_id)
        with self._database.reading() as connection:
            for query, column in ((linked, advice_job.c.advice_id), (told, job.c.advice_id)):
                for advice_id, job_id in connection.execute(query.where(column.in_(ids))):
                    jobs[advice_id].add(job_id)
        for row in page:
            yield Decision(record=decode(row.record), job_ids=tuple(sorted(jobs[row.advice_id])))

    def ledger(self, since: float | None = None) -> Iterator[LedgerRow]:
        """Predicted and actual values for advice given at ``since`` or later whose job has ended."""
        for page in self._advice_pages(sa.select(*_NUMBERS), since):
            rows = self._ended(page)
            yield from sorted(rows, key=lambda row: (row.time, row.advice_id, row.job_id))

    def outcomes_of(self, advice_id: str) -> list[LedgerRow]:
        """Predicted and actual values of the ended jobs of one advice, by job id."""
        query = sa.select(*_NUMBERS).where(advice.c.advice_id == advice_id)
        with self._database.reading() as connection:
            page = list(connection.execute(query))
        return sorted(self._ended(page), key=lambda row: row.job_id)

    def _ended(self, page: Sequence[sa.Row[Any]]) -> list[LedgerRow]:
        given = {row.advice_id: row for row in page}
        query = (
            sa.select(
                *(job.c[name] for name in ("advice_id", "job_id", "queue", "processors", "cost_usd")),
                job.c.partition_name,
                (job.c.start_time - job.c.submit_time).label("wait"),
                (job.c.end_time - job.c.start_time).label("run"),
            )
            .where(job.c.advice_id.in_(list(given)))
            .order_by(job.c.submit_time, job.c.job_id)
        )
        with self._database.reading() as connection:
            ended = connection.execute(query).all()
        return [_ledger_row(given[row.advice_id], row) for row in ended]

    def _advice_pages(self, query: sa.Select[Any], since: float | None) -> Iterator[list[sa.Row[Any]]]:
        last: tuple[float, str] = (-math.inf if since is None else since, "")
        base = query.order_by(advice.c.time, advice.c.advice_id).limit(_PAGE)
        while True:
            after = sa.tuple_(advice.c.time, advice.c.advice_id) > sa.tuple_(*map(sa.literal, last))
            with self._database.reading() as connection:
                page = list(connection.execute(base.where(after)))
            if page:
                yield page
            if len(page) < _PAGE:
                return
            last = (page[-1].time, page[-1].advice_id)


def _row_of(record: AdviceRecord) -> dict[str, Any]:
    given, estimates = record.advice, record.estimates
    row = {
        "advice_id": given.advice_id,
        "time": given.time,
        "user_name": record.job.user,
        "partition_name": given.partition or record.job.queue,
        "placement": given.placement.value,
        "mode": given.mode.value,
        "reason": given.decisive.reason if given.answers else "",
        "size_class": given.size,
        "predicted_wait_seconds": estimates.wait.seconds,
        "predicted_wait_variance": estimates.wait.variance,
        "predicted_run_seconds": estimates.run.seconds,
        "predicted_run_variance": estimates.run.variance,
    }
    return {name: storable(value) for name, value in row.items()} | {"record": encode(record).decode()}


def _ledger_row(given: Any, ended: Any) -> LedgerRow:
    placement, mode = Placement(given.placement), Mode(given.mode)
    predicted_wait = math.nan if given.predicted_wait_seconds is None else given.predicted_wait_seconds
    moved = (
        placement is Placement.BURST
        and mode is Mode.ACT
        and given.reason != Reason.EXPLICIT_BURST
        and math.isfinite(predicted_wait)
        and ended.partition_name in (given.partition_name, None)
    )
    return LedgerRow(
        advice_id=given.advice_id,
        time=given.time,
        job_id=ended.job_id,
        user=given.user_name,
        queue=ended.queue,
        placement=placement,
        mode=mode,
        reason=given.reason,
        size=given.size_class,
        predicted_wait_seconds=predicted_wait,
        predicted_wait_variance=_or_unknown(given.predicted_wait_variance, math.inf),
        predicted_run_seconds=_or_unknown(given.predicted_run_seconds, math.nan),
        predicted_run_variance=_or_unknown(given.predicted_run_variance, math.inf),
        actual_wait_seconds=ended.wait,
        actual_run_seconds=ended.run,
        processors=ended.processors,
        saved_seconds_estimate=predicted_wait - ended.wait if moved else None,
        cost_usd=ended.cost_usd,
    )


def _or_unknown(value: float | None, unknown: float) -> float:
    return unknown if value is None else value
