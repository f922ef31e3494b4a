"""What cloud nodes have cost and which jobs were on them: written by `advisor control`, read by views."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from advisor.history.database import Database, insert_into
from advisor.history.schema import node_use, paid_time
from advisor.model.bill import Bill, NodeUse, PaidTime, bill, used

_BATCH: Final = 500


class PaidTimes:
    """The part of :class:`advisor.history.store.HistoryStore` that keeps what the cloud has cost."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_paid(self, paid: Iterable[PaidTime]) -> None:
        """Note stretches of paid time; one that has grown replaces itself, and what began inside it."""
        with self._database.writing() as connection:
            for piece in paid:
                inside = (paid_time.c.since > piece.since) & (paid_time.c.since < piece.until)
                connection.execute(
                    sa.delete(paid_time).where(paid_time.c.instance_id == piece.instance_id, inside)
                )
                values = {
                    "instance_id": piece.instance_id,
                    "node": piece.node,
                    "since": piece.since,
                    "until": piece.until,
                    "usd_per_hour": piece.usd_per_hour,
                }
                connection.execute(
                    insert_into(connection, paid_time)
                    .values(values)
                    .on_conflict_do_update(index_elements=["instance_id", "since"], set_=values)
                )

    def add_uses(self, uses: Iterable[NodeUse]) -> None:
        """Note runs; what was noted of the same run from the queue makes room for them."""
        with self._database.writing() as connection:
            for use in uses:
                if not use.is_final and _is_told(connection, use):
                    continue
                connection.execute(
                    sa.delete(node_use).where(
                        node_use.c.node == use.node,
                        node_use.c.job_id == use.job_id,
                        node_use.c.is_final.is_(False),
                        node_use.c.start_time <= use.end,
                    )
                )
                values = _values(use)
                insert = insert_into(connection, node_use).values(values)
                key = ["node", "job_id", "start_time"]
                connection.execute(insert.on_conflict_do_update(index_elements=key, set_=values))

    def bill(self, since: float = -math.inf, until: float = math.inf) -> Bill:
        """What cloud nodes have cost in a period (epoch seconds), and who used them."""
        with self._database.reading() as connection:
            paid = _paid(connection, since, until)
            return bill(paid, _uses(connection, since, until), since, until)

    def costs_of(self, job_ids: Collection[int]) -> dict[NodeUse, float]:
        """US dollars of every run of these jobs on a cloud node; those without paid time are left out."""
        wanted = sorted(set(job_ids))
        with self._database.reading() as connection:
            runs = [use for part in _parts(wanted) for use in _select_uses(connection, _of_jobs(part))]
            if not runs:
                return {}
            begin, end = min(use.start for use in runs), max(use.end for use in runs)
            names = sorted({use.node for use in runs})
            paid = _paid(connection, begin, end, names)
            beside = _uses(connection, begin, end, names)
        mine = set(wanted)
        return {use: usd for use, usd in used(paid, beside).items() if use.job_id in mine}

    def beside(self, uses: Iterable[NodeUse]) -> set[int]:
        """Ended jobs that shared a node with one of these runs, and the jobs of the runs themselves."""
        found = set[int]()
        with self._database.reading() as connection:
            for use in uses:
                there = (node_use.c.node == use.node) & node_use.c.is_final
                same = (node_use.c.start_time < use.end) & (node_use.c.end_time > use.start)
                found.update(connection.execute(sa.select(node_use.c.job_id).where(there, same)).scalars())
                found.add(use.job_id)
        return found

    def jobs_ended_after(self, time: float) -> set[int]:
        """Jobs whose run on a cloud node has ended since then: more paid time may still be theirs."""
        query = sa.select(node_use.c.job_id).where(node_use.c.is_final, node_use.c.end_time >= time)
        with self._database.reading() as connection:
            return set(connection.execute(query).scalars())


def _is_told(connection: Connection, use: NodeUse) -> bool:
    """Whether accounting has said how this run ended: a look at the queue may be older."""
    same_job = (node_use.c.node == use.node) & (node_use.c.job_id == use.job_id)
    told = sa.select(node_use.c.job_id).where(same_job, node_use.c.is_final, node_use.c.end_time > use.start)
    return connection.execute(told.limit(1)).first() is not None


def _values(use: NodeUse) -> dict[str, Any]:
    return {
        "node": use.node,
        "job_id": use.job_id,
        "start_time": use.start,
        "end_time": use.end,
        "processors": use.processors,
        "account": use.account,
        "is_final": use.is_final,
    }


def _parts(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[begin : begin + _BATCH] for begin in range(0, len(values), _BATCH))


def _of_jobs(job_ids: Sequence[int]) -> sa.ColumnElement[bool]:
    return node_use.c.job_id.in_(job_ids)


def _paid(
    connection: Connection, since: float, until: float, nodes: Sequence[str] | None = None
) -> list[PaidTime]:
    found: list[PaidTime] = []
    for names in [None] if nodes is None else _parts(nodes):
        query = sa.select(paid_time).where(paid_time.c.until > since, paid_time.c.since < until)
        if names is not None:
            query = query.where(paid_time.c.node.in_(names))
        found += [
            PaidTime(
                instance_id=row.instance_id,
                node=row.node,
                since=row.since,
                until=row.until,
                usd_per_hour=row.usd_per_hour,
            )
            for row in connection.execute(query)
        ]
    return found


def _uses(
    connection: Connection, since: float, until: float, nodes: Sequence[str] | None = None
) -> list[NodeUse]:
    overlaps = (node_use.c.end_time > since) & (node_use.c.start_time < until)
    if nodes is None:
        return _select_uses(connection, overlaps)
    return [
        use
        for names in _parts(nodes)
        for use in _select_uses(connection, overlaps, node_use.c.node.in_(names))
    ]


def _select_uses(connection: Connection, *which: sa.ColumnElement[bool]) -> list[NodeUse]:
    return [
        NodeUse(
            job_id=row.job_id,
            node=row.node,
            start=row.start_time,
            end=row.end_time,
            processors=row.processors,
            account=row.account,
            is_final=bool(row.is_final),
        )
        for row in connection.execute(sa.select(node_use).where(*which))
    ]
