"""Finished jobs in the database."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from advisor.history._rows import outcome_of, row_of, storable
from advisor.history.columns import TableBuilder
from advisor.history.database import Database, insert_into
from advisor.history.schema import SAME_MOMENT_SECONDS, advice, advice_job, ingest_cursor, job, job_attempt
from advisor.model.job import CUT_SHORT, JobOutcome
from advisor.model.table import JobTable

_BATCH_JOBS = 1000
_PAGE_JOBS = 5000

_RowKey = tuple[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An ended run that another run of the same job may follow.

    Attributes:
        submit_time, end_time: Epoch seconds; Slurm's SubmitTime of the next run is the end of this one.
        start_time: None when it never started.
        first_submit_time: The job's first submission, epoch seconds.
        partition, nodes: The partition and the nodes on which it ran; None if unknown.
    """

    job_id: int
    submit_time: float
    end_time: float
    first_submit_time: float
    start_time: float | None = None
    restarts: int = 0
    partition: str | None = None
    nodes: str | None = None


_ATTEMPT_COLUMNS: Final = {
    name: {"partition": "partition_name", "nodes": "node_list"}.get(name, name)
    for name in Attempt.__dataclass_fields__
}


class FinishedJobs:
    """The part of :class:`advisor.history.store.HistoryStore` that keeps finished jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, outcomes: Iterable[JobOutcome], *, source: str = "slurm", cursor: str | None = None) -> int:
        """Add finished jobs in transactions of 1,000; return how many were new.

        Source, id and first submission identify a job. A later end of a known job (it was requeued) replaces
        the old one; if that run was cut short, the job gets a new position, so that learners see it again
        (:meth:`added_after`).

        Args:
            outcomes: Times are epoch seconds. An ``advice_id`` also links the job to that advice.
            source: E.g. ``"slurm"`` or ``"swf:HPC2N"``.
            cursor: How far the source has then been read; stored with the last transaction.

        Raises:
            RetryLater: The database is locked or does not answer; batches that were added before stay.
            BadInput: A time is not finite, or the database cannot be written.
        """
        stream = iter(outcomes)
        added = 0
        batch = list(islice(stream, _BATCH_JOBS))
        while batch or cursor is not None:
            following = list(islice(stream, _BATCH_JOBS))
            rows = [row_of(outcome, source) for outcome in batch]
            with self._database.writing() as connection:
                added += _add_rows(connection, rows, source)
                if not following and cursor is not None:
                    _set_cursor(connection, source, cursor)
            if not following:
                break
            batch = following
        return added

    def recent(
        self, count: int, *, source: str | None = None, partition: str | None = None
    ) -> list[JobOutcome]:
        """The ``count`` jobs that ended last (in a partition), oldest end first."""
        query = sa.select(job).order_by(job.c.end_time.desc(), job.c.position.desc()).limit(count)
        if source is not None:
            query = query.where(_is_of(source))
        if partition is not None:
            query = query.where(job.c.partition_name == partition)
        with self._database.reading() as connection:
            found = _outcomes(connection, connection.execute(query).all())
        return found[::-1]

    def outcomes(self, since: float = -math.inf) -> Iterator[JobOutcome]:
        """Jobs that ended at or after a time (epoch seconds), by end time, read in pages."""
        for page, first_starts in self._pages(since):
            for row in page:
                yield outcome_of(row, first_starts.get(row.position))

    def added_after(self, position: int, *, source: str | None = None) -> Iterator[tuple[int, JobOutcome]]:
        """Jobs in the order in which they were added, after a position, each with its own position.

        So a learner that keeps the last position sees each job once, however late it was added; a job whose
        run was cut short comes again with its later end.
        """
        while True:
            query = sa.select(job).where(job.c.position > position).order_by(job.c.position)
            if source is not None:
                query = query.where(_is_of(source))
            with self._database.reading() as connection:
                page = connection.execute(query.limit(_PAGE_JOBS)).all()
                first_starts = _first_starts(connection, page)
            for row in page:
                position = row.position
                yield position, outcome_of(row, first_starts.get(position))
            if len(page) < _PAGE_JOBS:
                return

    def last_position(self) -> int:
        """Position of the job that was added last; 0 while there is none."""
        with self._database.reading() as connection:
            return connection.execute(sa.select(sa.func.max(job.c.position))).scalar() or 0

    def of_job(self, job_id: int, *, source: str | None = None) -> JobOutcome | None:
        """The last finished job with this id (ids wrap around after years)."""
        query = sa.select(job).where(job.c.job_id == job_id).order_by(job.c.submit_time.desc()).limit(1)
        if source is not None:
            query = query.where(job.c.source == source)
        with self._database.reading() as connection:
            found = _outcomes(connection, connection.execute(query).all())
        return found[0] if found else None

    def table(
        self,
        since: float = -math.inf,
        *,
        utc_offset_seconds: float = 0.0,
        total_processors: int = 0,
    ) -> JobTable:
        """Jobs that ended at or after a time (epoch seconds), as columns in submission order.

        Names become codes in order of their first appearance; time 0 is the first submission.
        """
        builder = TableBuilder()
        for page, first_starts in self._pages(since):
            builder.add(page, first_starts)
        return builder.build(
            utc_offset_seconds=utc_offset_seconds,
            total_processors=total_processors,
            name="history",
        )

    def end_of_newest(self, count: int) -> float:
        """When the first of the ``count`` jobs that ended last has ended; minus infinity: there are fewer."""
        query = sa.select(job.c.end_time).order_by(job.c.end_time.desc()).offset(count - 1).limit(1)
        with self._database.reading() as connection:
            found: float | None = connection.execute(query).scalar()
        return -math.inf if found is None else found

    def count(self) -> int:
        """Number of jobs of all sources."""
        with self._database.reading() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(job)).scalar_one()

    def cursor(self, source: str) -> str | None:
        """How far a source has been read; None before the first ingestion."""
        query = sa.select(ingest_cursor.c.value).where(ingest_cursor.c.source == source)
        with self._database.reading() as connection:
            return connection.execute(query).scalar()

    def set_cursor(self, source: str, value: str) -> None:
        """Store how far a source has been read."""
        with self._database.writing() as connection:
            _set_cursor(connection, source, value)

    def set_costs(self, usd: Mapping[int, float], *, source: str = "slurm") -> int:
        """Store the cloud cost, US dollars, of the last finished job with each id; return how many exist."""
        known = 0
        with self._database.writing() as connection:
            for job_id, cost in usd.items():
                last = sa.select(sa.func.max(job.c.position)).where(
                    job.c.source == source, job.c.job_id == job_id
                )
                change = sa.update(job).where(job.c.position == last.scalar_subquery()).values(cost_usd=cost)
                known += connection.execute(change).rowcount
        return known

    def add_attempts(self, attempts: Iterable[Attempt], *, source: str = "slurm") -> None:
        """Store runs that another run may follow, and correct following runs that were stored before them."""
        with self._database.writing() as connection:
            for attempt in attempts:
                _add_attempt(connection, attempt, source)

    def attempts(self, job_ids: Iterable[int], *, source: str = "slurm") -> list[Attempt]:
        """The stored runs of these jobs, oldest first."""
        columns = [job_attempt.c[column].label(name) for name, column in _ATTEMPT_COLUMNS.items()]
        query = sa.select(*columns).where(
            job_attempt.c.source == source, job_attempt.c.job_id.in_(sorted(set(job_ids)))
        )
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(job_attempt.c.submit_time))
            return [Attempt(**row._mapping) for row in rows]  # noqa: SLF001 - documented access by name

    def _pages(self, since: float) -> Iterator[tuple[list[sa.Row[Any]], dict[int, float]]]:
        base = sa.select(job).order_by(job.c.end_time, job.c.position).limit(_PAGE_JOBS)
        last = (since, -1)
        while True:
            # row values compare like tuples in both databases and use the index job_by_end
            after = sa.tuple_(job.c.end_time, job.c.position) > sa.tuple_(*map(sa.literal, last))
            with self._database.reading() as connection:
                page = list(connection.execute(base.where(after)))
                first_starts = _first_starts(connection, page)
            if page:
                yield page, first_starts
            if len(page) < _PAGE_JOBS:
                return
            last = (page[-1].end_time, page[-1].position)


def _is_of(source: str) -> sa.ColumnElement[bool]:
    """Whether a job is of a source, for queries in an order: SQLite would sort all jobs of the source.

    It prefers the index that begins with the source to that of the order, but knows it by the bare column.
    """
    return job.c.source.concat("") == source


def _outcomes(connection: Connection, rows: Sequence[sa.Row[Any]]) -> list[JobOutcome]:
    first_starts = _first_starts(connection, rows)
    return [outcome_of(row, first_starts.get(row.position)) for row in rows]


def _first_starts(connection: Connection, rows: Sequence[sa.Row[Any]]) -> dict[int, float]:
    """First starts of requeued jobs in their last partition, by position, where all runs are known."""
    requeued = [row for row in rows if row.restarts]
    runs: dict[tuple[str, int, float], list[sa.Row[Any]]] = {}
    sources = sorted({row.source for row in requeued})  # the index begins with the source
    for begin in range(0, len(requeued), _BATCH_JOBS):
        job_ids = sorted({row.job_id for row in requeued[begin : begin + _BATCH_JOBS]})
        query = sa.select(job_attempt).where(
            job_attempt.c.source.in_(sources), job_attempt.c.job_id.in_(job_ids)
        )
        for run in connection.execute(query):
            runs.setdefault((run.source, run.job_id, run.first_submit_time), []).append(run)
    found: dict[int, float] = {}
    for row in requeued:
        earlier = [
            run
            for run in runs.get((row.source, row.job_id, row.submit_time), [])
            if run.end_time <= row.start_time
        ]
        # a run that is missing here may have been the first
        if len(earlier) >= row.restarts and all(run.partition_name is not None for run in earlier):
            here = [run.start_time for run in earlier if run.partition_name == row.partition_name]
            found[row.position] = min((start for start in here if start is not None), default=row.start_time)
    return found


def _set_cursor(connection: Connection, source: str, value: str) -> None:
    insert = insert_into(connection, ingest_cursor).values(source=source, value=value)
    connection.execute(insert.on_conflict_do_update(index_elements=["source"], set_={"value": value}))


def _add_rows(connection: Connection, rows: list[dict[str, Any]], source: str) -> int:
    """Insert new jobs, update known jobs that have a later end; return the number of new ones."""
    if not rows:
        return 0
    latest: dict[_RowKey, dict[str, Any]] = {}
    for row in rows:
        key = (row["job_id"], row["submit_time"])
        if key not in latest or latest[key]["end_time"] < row["end_time"]:
            latest[key] = row
    known = _known(connection, source, [key[0] for key in latest])
    wanted = [row for key, row in latest.items() if key not in known or known[key] < row["end_time"]]
    if not wanted:
        return 0
    _find_links(connection, source, wanted)
    insert = insert_into(connection, job)
    kept = {"source", "job_id", "submit_time"}
    changes = {name: insert.excluded[name] for name in wanted[0] if name not in kept}
    changes["advice_id"] = sa.func.coalesce(insert.excluded.advice_id, job.c.advice_id)
    is_cut_short = sa.or_(*(job.c.state == state.value for state in sorted(CUT_SHORT)))
    changes["position"] = sa.case((is_cut_short, _next_position(connection, insert)), else_=job.c.position)
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=["source", "job_id", "submit_time"],
            set_=changes,
            where=job.c.end_time < insert.excluded.end_time,
        ),
        wanted,
    )
    return sum((row["job_id"], row["submit_time"]) not in known for row in wanted)


def _next_position(connection: Connection, insert: Any) -> sa.ColumnElement[int]:
    """The position that a new row would get."""
    if connection.dialect.name == "postgresql":
        position: sa.ColumnElement[int] = insert.excluded.position  # from the sequence
        return position
    # SQLite counts from the largest; this transaction has the write lock
    return sa.select(sa.func.max(job.c.position) + 1).scalar_subquery()


def _known(connection: Connection, source: str, job_ids: list[int]) -> dict[_RowKey, float]:
    """End times of the rows that have one of these ids, by id and submission."""
    query = sa.select(job.c.job_id, job.c.submit_time, job.c.end_time).where(
        job.c.source == source, job.c.job_id.in_(sorted(set(job_ids)))
    )
    return {(row[0], row[1]): row[2] for row in connection.execute(query)}


def _find_links(connection: Connection, source: str, rows: list[dict[str, Any]]) -> None:
    """Set the advice of jobs whose own record does not name it, from stored links."""
    silent = sorted({row["job_id"] for row in rows if row["advice_id"] is None})
    if not silent:
        return
    query = (
        sa.select(advice_job.c.job_id, advice.c.advice_id, advice.c.time)
        .join(advice, advice.c.advice_id == advice_job.c.advice_id)
        .where(advice_job.c.source == source, advice_job.c.job_id.in_(silent))
        .order_by(advice.c.time)
    )
    links: dict[int, list[tuple[str, float]]] = {}
    for job_id, advice_id, time in connection.execute(query):
        links.setdefault(job_id, []).append((advice_id, time))
    for row in rows:
        for advice_id, time in links.get(row["job_id"], []):
            if row["advice_id"] is None and abs(time - row["submit_time"]) <= SAME_MOMENT_SECONDS:
                row["advice_id"] = advice_id


def _add_attempt(connection: Connection, attempt: Attempt, source: str) -> None:
    where = f"{source}, job {attempt.job_id}"
    values = {column: storable(getattr(attempt, name), where) for name, column in _ATTEMPT_COLUMNS.items()}
    values["source"] = source
    insert = insert_into(connection, job_attempt).values(values)
    connection.execute(insert.on_conflict_do_nothing())
    # a following run that was stored before this one has its own submission as the first
    followers = ((job, job.c.submit_time), (job_attempt, job_attempt.c.first_submit_time))
    for table, submitted in followers:
        if attempt.end_time == attempt.first_submit_time:
            continue
        connection.execute(
            sa.update(table)
            .where(table.c.source == source, table.c.job_id == attempt.job_id)
            .where(submitted == attempt.end_time)
            .values(
                {
                    submitted.name: attempt.first_submit_time,
                    "restarts": table.c.restarts + attempt.restarts + 1,
                }
            )
        )
