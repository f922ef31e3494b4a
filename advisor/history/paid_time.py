"""Cost of cloud nodes and the jobs that ran on them: written by `advisor control`, read by views."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from advisor.history.database import Database, insert_into
from advisor.history.schema import node_use, paid_time
from advisor.model.bill import Bill, NodeUse, PaidTime, bill, used

_BATCH: Final = 500
_THIS_USE: Final = sa.delete(node_use).where(
    node_use.c.node == sa.bindparam("on_node"),
    node_use.c.job_id == sa.bindparam("of_job"),
    node_use.c.start_time == sa.bindparam("from_start"),
)
_CHANGING: Final = ("end_time", "processors", "account", "is_final")
_USE_COLUMNS: Final = {
    name: {"start": "start_time", "end": "end_time"}.get(name, name) for name in NodeUse.__dataclass_fields__
}
"""Field of :class:`NodeUse` to column."""


class PaidTimes:
    """The part of :class:`advisor.history.store.HistoryStore` that keeps the cost of the cloud."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_paid(self, paid: Iterable[PaidTime]) -> None:
        """Store periods of paid time; a longer one replaces its earlier version and those within it."""
        rows = [asdict(piece) for piece in paid]
        if not rows:
            return
        column = paid_time.c
        same = column.instance_id == sa.bindparam("of_instance")
        inside = (column.since > sa.bindparam("begin")) & (column.since < sa.bindparam("end"))
        shorter = [
            {"of_instance": row["instance_id"], "begin": row["since"], "end": row["until"]} for row in rows
        ]
        with self._database.writing() as connection:
            insert = insert_into(connection, paid_time)
            changes = {name: insert.excluded[name] for name in ("node", "until", "usd_per_hour")}
            key = ["instance_id", "since"]
            connection.execute(insert.on_conflict_do_update(index_elements=key, set_=changes), rows)
            connection.execute(sa.delete(paid_time).where(same, inside), shorter)

    def paid_since(self, time: float) -> list[PaidTime]:
        """Whole periods of paid time that end after a moment (epoch seconds)."""
        with self._database.reading() as connection:
            return _paid(connection, time, math.inf)

    def add_uses(self, uses: Iterable[NodeUse]) -> None:
        """Store runs on cloud nodes, in transactions of 500; they replace earlier versions of the same run.

        A final run comes from the accounting; later polls of the queue, which may be older, do not change it.
        """
        for batch in _parts(list(uses)):
            with self._database.writing() as connection:
                known = _select_uses(connection, _of_jobs(sorted({use.job_id for use in batch})))
                of_run: dict[tuple[str, int], list[NodeUse]] = {}
                for one in known:
                    of_run.setdefault((one.node, one.job_id), []).append(one)
                stale: list[NodeUse] = []
                wanted: list[NodeUse] = []
                for use in batch:
                    same = of_run.get((use.node, use.job_id), [])
                    if not use.is_final and any(one.is_final and one.end > use.start for one in same):
                        continue
                    stale += [one for one in same if not one.is_final and one.start <= use.end]
                    wanted.append(use)
                if stale:
                    connection.execute(_THIS_USE, [_key(one) for one in stale])
                if wanted:
                    insert = insert_into(connection, node_use)
                    changes = {name: insert.excluded[name] for name in _CHANGING}
                    key = ["node", "job_id", "start_time"]
                    insert = insert.on_conflict_do_update(index_elements=key, set_=changes)
                    connection.execute(insert, [_values(use) for use in wanted])

    def bill(self, since: float = -math.inf, until: float = math.inf) -> Bill:
        """Cost of cloud nodes in a period (epoch seconds), by account."""
        with self._database.reading() as connection:
            paid = _paid(connection, since, until)
            return bill(paid, _uses(connection, since, until), since, until)

    def costs_of(self, job_ids: Collection[int]) -> dict[NodeUse, float]:
        """Cost in US dollars of each run of these jobs on a cloud node that has paid time."""
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
        """The jobs of these runs, and ended jobs that ran beside them on the same nodes."""
        found = set[int]()
        spans: dict[str, tuple[float, float]] = {}
        for use in uses:
            found.add(use.job_id)
            begin, end = spans.get(use.node, (use.start, use.end))
            spans[use.node] = min(begin, use.start), max(end, use.end)
        if not spans:
            return found
        first, last = min(begin for begin, _ in spans.values()), max(end for _, end in spans.values())
        column = node_use.c
        during = column.is_final & (column.start_time < last) & (column.end_time > first)
        wanted = sa.select(column.job_id, column.node, column.start_time, column.end_time).where(during)
        with self._database.reading() as connection:
            for names in _parts(sorted(spans)):
                for row in connection.execute(wanted.where(column.node.in_(names))):
                    begin, end = spans[row.node]
                    if row.start_time < end and row.end_time > begin:
                        found.add(row.job_id)
        return found

    def jobs_ended_after(self, time: float) -> set[int]:
        """Jobs whose run on a cloud node has ended since then; they may still get more paid time."""
        query = sa.select(node_use.c.job_id).where(node_use.c.is_final, node_use.c.end_time >= time)
        with self._database.reading() as connection:
            return set(connection.execute(query).scalars())


def _key(use: NodeUse) -> dict[str, Any]:
    return {"on_node": use.node, "of_job": use.job_id, "from_start": use.start}


def _values(use: NodeUse) -> dict[str, Any]:
    return {column: getattr(use, name) for name, column in _USE_COLUMNS.items()}


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
        found += [PaidTime(**row) for row in connection.execute(query).mappings()]
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
    columns = (node_use.c[column].label(name) for name, column in _USE_COLUMNS.items())
    return [NodeUse(**row) for row in connection.execute(sa.select(*columns).where(*which)).mappings()]
