"""The ledger of advice in the database: decisions, their jobs and the jobs' outcomes.

`advisor control` writes what `advisor serve` has advised; commands and pages read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from advisor.history._rows import storable
from advisor.history.database import Database, insert_into
from advisor.history.ledger_rows import MODES, PLACEMENTS, LedgerRow, ended_jobs
from advisor.history.records import (
    AdviceRecord,
    BriefEstimate,
    BriefRecord,
    decode,
    decode_part,
    encode,
)
from advisor.history.schema import SAME_MOMENT_SECONDS, advice, advice_job, job
from advisor.model.advice import Mode, Placement

_BATCH = 1000
_PAGE = 2000
_KEY: Final = sa.tuple_(advice.c.time, advice.c.advice_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One advice and its jobs (none until its submission is known)."""

    record: AdviceRecord
    job_ids: tuple[int, ...]


class BriefDecision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of one advice that sums over a ledger need.

    Attributes:
        time: Epoch seconds.
        reason: Code of the decisive answer.
    """

    advice_id: str
    time: float
    placement: Placement
    mode: Mode
    reason: str
    account: str | None
    wait: BriefEstimate
    run: BriefEstimate


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
        return query if self.job_id is None else query.where(_is_of_job(self.job_id, sa.true(), sa.true()))


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

    def forget_before(self, time: float) -> int:
        """Delete advice that was given before a time, the oldest 1,000 at most; return how much it was."""
        old = sa.select(advice.c.advice_id).where(advice.c.time < time).order_by(advice.c.time).limit(_BATCH)
        with self._database.reading() as connection:
            found = connection.execute(old).scalars().all()
        if found:
            with self._database.writing() as connection:
                for table in (advice_job, advice):
                    connection.execute(sa.delete(table).where(table.c.advice_id.in_(found)))
        return len(found)

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

    def advice_of(
        self, job_id: int, *, source: str = "slurm", since: float = -math.inf, until: float = math.inf
    ) -> AdviceRecord | None:
        """The newest advice for a job id, by its link or by the finished job's own record.

        Slurm begins its ids anew after MaxJobId, or without its state: an older job may have had it.

        Args:
            since, until: When the advice was given, epoch seconds.
        """
        is_its = _is_of_job(job_id, advice_job.c.source == source, job.c.source == source)
        query = sa.select(advice.c.record).where(is_its, advice.c.time.between(since, until))
        query = query.order_by(advice.c.time.desc()).limit(1)
        with self._database.reading() as connection:
            record = connection.execute(query).scalar()
        return None if record is None else decode(record)

    def unlinked(self, since: float) -> list[AdviceRecord]:
        """Advice given at ``since`` (epoch seconds) or later that belongs to no job yet, oldest first."""
        query = (
            sa.select(advice.c.record)
            .where(advice.c.time >= since)
            # not NOT IN: PostgreSQL would read all links again for each of them
            .where(~sa.exists().where(advice_job.c.advice_id == advice.c.advice_id))
            .order_by(advice.c.time)
        )
        with self._database.reading() as connection:
            return [decode(record) for record in connection.execute(query).scalars()]

    def decisions(
        self, since: float | None = None, *, placement: Placement | None = None
    ) -> Iterator[Decision]:
        """Advice given at ``since`` or later (for a placement), oldest first, read in pages."""
        query = sa.select(advice.c.advice_id, advice.c.time, advice.c.record)
        if placement is not None:
            query = query.where(advice.c.placement == placement.value)
        for page in self._advice_pages(query, since):
            yield from self._with_jobs(page)

    def brief_decisions(self, since: float | None = None) -> Iterator[BriefDecision]:
        """Of advice given at ``since`` or later what sums need, oldest first, read in pages."""
        columns = (advice.c[name] for name in ("advice_id", "time", "placement", "mode", "reason", "record"))
        for page in self._advice_pages(sa.select(*columns), since):
            for advice_id, time, placement, mode, reason, record in page:
                brief = decode_part(record, BriefRecord)
                yield BriefDecision(
                    advice_id=advice_id,
                    time=time,
                    placement=PLACEMENTS[placement],
                    mode=MODES[mode],
                    reason=reason,
                    account=brief.job.account,
                    wait=brief.estimates.wait,
                    run=brief.estimates.run,
                )

    def newest_decisions(
        self, wanted: Wanted, limit: int, *, before: tuple[float, str] | None = None
    ) -> list[Decision]:
        """The newest ``limit`` decisions, newest first; ``before``: older than this time and advice id."""
        query = wanted.of(sa.select(advice.c.advice_id, advice.c.time, advice.c.record))
        if before is not None:
            query = query.where(_key(*before) > _KEY)
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

    def ledger(
        self, since: float | None = None, *, placement: Placement | None = None
    ) -> Iterator[LedgerRow]:
        """Predicted and actual values for advice (for a placement) since then whose job has ended."""
        of_placement = sa.true() if placement is None else advice.c.placement == placement.value
        query = sa.select(advice.c.time, advice.c.advice_id).where(of_placement)
        for page in self._advice_pages(query, since):
            rows = self._ended(sa.and_(_key(*page[0]) <= _KEY, _key(*page[-1]) >= _KEY, of_placement))
            yield from sorted(rows, key=lambda row: (row.time, row.advice_id, row.job_id))

    def outcomes_of(self, advice_id: str) -> list[LedgerRow]:
        """Predicted and actual values of the ended jobs of one advice, by job id."""
        return sorted(self._ended(advice.c.advice_id == advice_id), key=lambda row: row.job_id)

    def _ended(self, wanted: sa.ColumnElement[bool]) -> list[LedgerRow]:
        """The ended jobs of some advice, by submission."""
        with self._database.reading() as connection:
            return ended_jobs(connection, wanted)

    def _advice_pages(self, query: sa.Select[Any], since: float | None) -> Iterator[Sequence[Any]]:
        last: tuple[float, str] = (-math.inf if since is None else since, "")
        base = query.order_by(advice.c.time, advice.c.advice_id).limit(_PAGE)
        while True:
            with self._database.reading() as connection:
                page = connection.execute(base.where(_key(*last) < _KEY)).all()
            if page:
                yield page
            if len(page) < _PAGE:
                return
            last = (page[-1].time, page[-1].advice_id)


def _is_of_job(
    job_id: int, of_link: sa.ColumnElement[bool], of_job: sa.ColumnElement[bool]
) -> sa.ColumnElement[bool]:
    """Whether an advice is a job's, by its link or by the finished job's own record."""
    linked = sa.select(advice_job.c.advice_id).where(advice_job.c.job_id == job_id, of_link)
    told = sa.select(job.c.advice_id).where(job.c.job_id == job_id, of_job)
    return advice.c.advice_id.in_(linked.union(told))


def _key(time: float, advice_id: str) -> sa.Tuple:
    """A place in the ledger's order."""
    return sa.tuple_(sa.literal(time), sa.literal(advice_id))


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
    where = f"advice {given.advice_id}"
    stored = {name: storable(value, where) for name, value in row.items()}
    return stored | {"record": encode(record).decode()}
