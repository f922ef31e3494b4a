"""Short answers about long ledgers, for reports and pages: sums made by the database, and samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from advisor.decide.explanation.reasons import Reason
from advisor.history.ledger import Ledger
from advisor.history.ledger_rows import LedgerRow
from advisor.history.records import BriefRecord, decode_part
from advisor.history.schema import advice, job
from advisor.model.advice import Mode, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Waits of ended jobs that had advice in some time, seconds summed over the jobs.

    Attributes:
        jobs, moved: Ended jobs, and those of them that the advisor moved.
        with_us: The actual values.
        without_us: The same, with the forecast wait on-premise for the moved ones, after what they had waited
            when they were advised: an estimate.
    """

    jobs: int
    moved: int
    with_us: float
    without_us: float


def _waits() -> sa.Select[int, Any, Any, Any]:
    """Jobs, moved ones, and the sums of waits with and without us, of advice from ``since`` to ``until``."""
    waited = job.c.start_time - job.c.submit_time
    before = sa.case((advice.c.time > job.c.submit_time, advice.c.time - job.c.submit_time), else_=0.0)
    moved = sa.and_(
        advice.c.placement == Placement.BURST.value,
        advice.c.mode == Mode.ACT.value,
        advice.c.reason != Reason.EXPLICIT_BURST.value,
        advice.c.predicted_wait_seconds.is_not(None),
        sa.or_(job.c.partition_name.is_(None), job.c.partition_name == advice.c.partition_name),
    )
    return (
        sa.select(
            sa.func.count(),
            sa.func.sum(sa.case((moved, 1), else_=0)),
            sa.func.sum(waited),
            sa.func.sum(sa.case((moved, before + advice.c.predicted_wait_seconds), else_=waited)),
        )
        .select_from(advice.join(job, job.c.advice_id == advice.c.advice_id))
        .where(advice.c.time >= sa.bindparam("since"), advice.c.time < sa.bindparam("until"))
    )


_WAITS: Final = _waits()


class LedgerSummaries(Ledger):
    """The part of :class:`advisor.history.store.HistoryStore` that keeps the ledger and sums it up."""

    def waits(self, spans: Iterable[tuple[float, float]]) -> list[Waits]:
        """Waits of ended jobs whose advice was given in each ``[since, until)``, epoch seconds."""
        with self._database.reading() as connection:
            rows = [
                connection.execute(_WAITS, {"since": since, "until": until}).one() for since, until in spans
            ]
        return [
            Waits(jobs=jobs, moved=moved or 0, with_us=here or 0.0, without_us=there or 0.0)
            for jobs, moved, here, there in rows
        ]

    def sample(self, since: float, until: float, most: int) -> list[tuple[BriefRecord, LedgerRow]]:
        """At most so many pieces of advice of ``[since, until)``, evenly chosen, each with its ended jobs.

        Those whose job has not ended are left out.
        """
        within = sa.and_(advice.c.time >= since, advice.c.time < until)
        place = sa.func.row_number().over(order_by=(advice.c.time, advice.c.advice_id)) - 1
        numbered = sa.select(advice.c.advice_id, place.label("place")).where(within).subquery()
        with self._database.reading() as connection:
            count = sa.select(sa.func.count()).select_from(advice).where(within)
            step = max(1, -(-connection.execute(count).scalar_one() // most))
            places = sa.select(numbered.c.advice_id).where(numbered.c.place % step == 0)
            chosen = advice.c.advice_id.in_(places)
            found = connection.execute(sa.select(advice.c.advice_id, advice.c.record).where(chosen))
            records = {advice_id: record for advice_id, record in found.all()}  # noqa: C416 - rows are no pairs
        rows = self._ended(advice.c.advice_id.in_(list(records)))
        return [(decode_part(records[row.advice_id], BriefRecord), row) for row in rows]
