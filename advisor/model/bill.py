"""The bill: what cloud nodes have cost and which accounts used them. All sums of money are made here.

A node is paid for from its launch to its end, as EC2 bills it: by the second, 60 s at least, at the
price of its market at that time. While jobs are on it they share its whole price by the cores they hold
there, so the price of its unused cores is shared by the jobs that keep the node up. While no job is on it
(its boot, the time between jobs, the time until it is given back) its price is *idle* time, which is the
site's. What jobs without an account use is neither: it is a row of its own. The rows add up to what the nodes
have cost, to the last picodollar: shares are whole picodollars, and idle is the rest.

Days are days of UTC, by which EC2 bills and budgets start anew. *Spent* is what was paid until now,
*promised* what launched nodes are still expected to cost, *predicted* what a decision assumed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

MIN_SECONDS: Final = 60.0
"""EC2 bills at least this much of an instance."""
_DAY_SECONDS: Final = 86_400.0
_HOUR_SECONDS: Final = 3_600.0
_PICO: Final = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidTime:
    """A part of an instance's life at one price.

    Attributes:
        instance_id, node: The instance, and the Slurm node it served as.
        since, until: Epoch seconds.
        usd_per_hour: Price of the node; 0 for a reserved one, which is paid for whether it runs or not.
    """

    instance_id: str
    node: str
    since: float
    until: float
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """One run of a job on one node; a job on several nodes, or requeued, has several.

    Attributes:
        start, end: Epoch seconds; ``end`` of a running job is the last poll that showed it.
        processors: Cores it held there.
        account: Slurm account; empty for a job without one.
        is_final: False until accounting tells how the job ended; until then the queue's word is used.
    """

    job_id: int
    node: str
    start: float
    end: float
    processors: float
    account: str = ""
    is_final: bool = True


@dataclass(slots=True)
class Rows:
    """The cost of accounts, of jobs without an account and of idle time, and the sum.

    Kept in picodollars, shown in US dollars.
    """

    _spent: int = 0
    _by_account: dict[str, int] = field(default_factory=dict)

    @property
    def spent_usd(self) -> float:
        """The cost of the nodes."""
        return self._spent / _PICO

    @property
    def accounts(self) -> dict[str, float]:
        """The cost of each account's jobs."""
        return {name: pico / _PICO for name, pico in sorted(self._by_account.items()) if name}

    @property
    def no_account_usd(self) -> float:
        """The cost of jobs without an account."""
        return self._by_account.get("", 0) / _PICO

    @property
    def idle_usd(self) -> float:
        """Cost of boots and of the time between and after jobs."""
        return (self._spent - sum(self._by_account.values())) / _PICO

    def add(self, other: Rows) -> None:
        """Add another period's."""
        self._spent += other._spent
        for account, pico in other._by_account.items():
            self.use(account, pico)

    def pay(self, pico: int) -> None:
        """Count what a node has cost, picodollars."""
        self._spent += pico

    def use(self, account: str, pico: int) -> None:
        """Count the part of it that a job used, picodollars."""
        self._by_account[account] = self._by_account.get(account, 0) + pico


@dataclass(slots=True)
class Bill(Rows):
    """A period's rows, and those of each day of UTC (ISO dates)."""

    days: dict[str, Rows] = field(default_factory=dict)


def bill(
    paid: Iterable[PaidTime], uses: Iterable[NodeUse], since: float = -math.inf, until: float = math.inf
) -> Bill:
    """Add up a period.

    Args:
        paid: Instances or parts of their lives; parts of one instance do not overlap.
        uses: All uses that may overlap the period.
        since, until: The period, epoch seconds.
    """
    days: dict[str, Rows] = {}
    for line in _lines(paid, uses):
        for piece in line.paid:
            for day, begin, end in _days(max(piece.since, since), min(piece.until, until)):
                pico = _pico(piece, end) - _pico(piece, begin)
                days.setdefault(day, Rows()).pay(pico)
        for use in line.uses:
            for day, begin, end in _days(max(use.start, since, line.since), min(use.end, until, line.until)):
                days.setdefault(day, Rows()).use(use.account, line.share(use, begin, end))
    whole = Bill(days=dict(sorted(days.items())))
    for rows in days.values():
        whole.add(rows)
    return whole


def used(paid: Iterable[PaidTime], uses: Iterable[NodeUse]) -> dict[NodeUse, float]:
    """US dollars of each use whose node's paid time is known, counted by day as in :func:`bill`."""
    found: dict[NodeUse, int] = {}
    for line in _lines(paid, uses):
        for use in line.uses:
            for _, begin, end in _days(max(use.start, line.since), min(use.end, line.until)):
                found[use] = found.get(use, 0) + line.share(use, begin, end)
    return {use: pico / _PICO for use, pico in found.items()}


def cost_by_day(since: float, until: float, usd_per_hour: float) -> dict[str, float]:
    """US dollars of a period at one price, by day of UTC."""
    piece = PaidTime(instance_id="", node="", since=since, until=until, usd_per_hour=usd_per_hour)
    return {day: (_pico(piece, end) - _pico(piece, begin)) / _PICO for day, begin, end in _days(since, until)}


def shares(held: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Each account's share of a node's price, from account and cores of the jobs on it; empty when idle."""
    cores: dict[str, float] = {}
    for account, processors in held:
        cores[account] = cores.get(account, 0.0) + processors
    total = sum(cores.values())
    return {account: processors / total for account, processors in cores.items()} if total else {}


def day_of(time: float) -> str:
    """Day of UTC, as an ISO date."""
    return datetime.fromtimestamp(time, UTC).date().isoformat()


def midnight(time: float) -> float:
    """The midnight, UTC, at or before a time; epoch seconds."""
    return time - time % _DAY_SECONDS


class _Line:
    """One instance: its paid time and the jobs that ran on it."""

    def __init__(self, paid: list[PaidTime], uses: list[NodeUse]) -> None:
        self.paid = sorted(paid, key=lambda piece: piece.since)
        self.since, self.until = self.paid[0].since, max(piece.until for piece in self.paid)
        self.uses = [use for use in uses if use.start < self.until and use.end > self.since]
        self._times, self._per_core = self._accumulated()

    def _accumulated(self) -> tuple[list[float], list[float]]:
        """Cumulated picodollars of one held core, at each time at which jobs or the price changed."""
        came = [(use.start, 1, use.processors) for use in self.uses]
        went = [(use.end, -1, -use.processors) for use in self.uses]
        changes = sorted(came + went)
        edges = {edge for piece in self.paid for edge in (piece.since, piece.until)}
        times = sorted(edges.union(time for time, _, _ in changes))
        per_core, total = [0.0], 0.0
        jobs, cores, position, piece = 0, 0.0, 0, 0
        for begin, end in pairwise(times):
            while position < len(changes) and changes[position][0] <= begin:
                jobs, cores = jobs + changes[position][1], cores + changes[position][2]
                position += 1
            cores = cores if jobs else 0.0  # floating-point sums leave a remainder
            while piece < len(self.paid) and self.paid[piece].until <= begin:
                piece += 1
            if jobs and piece < len(self.paid) and self.paid[piece].since <= begin:
                total += (end - begin) * self.paid[piece].usd_per_hour / _HOUR_SECONDS * _PICO / cores
            per_core.append(total)
        return times, per_core

    def share(self, use: NodeUse, begin: float, end: float) -> int:
        """Picodollars of a use between two times, rounded down so that idle time is never negative."""
        return max(0, math.floor(use.processors * (self._at(end) - self._at(begin) - 1.0)))

    def _at(self, time: float) -> float:
        index = bisect_right(self._times, time) - 1
        if index < 0:
            return 0.0
        if index + 1 == len(self._times):
            return self._per_core[-1]
        before, after = self._times[index], self._times[index + 1]
        rise = self._per_core[index + 1] - self._per_core[index]
        return self._per_core[index] + rise * (time - before) / (after - before)


def _lines(paid: Iterable[PaidTime], uses: Iterable[NodeUse]) -> Iterator[_Line]:
    """Each instance with the runs that were on it.

    A node name is used by one instance after another, and the end of the first may be seen late: a run
    belongs to the newest instance that was launched before the run started.
    """
    of_instance: dict[tuple[str, str], list[PaidTime]] = {}
    for piece in paid:
        if piece.until > piece.since:
            of_instance.setdefault((piece.node, piece.instance_id), []).append(piece)
    on_node: dict[str, list[tuple[float, tuple[str, str]]]] = {}
    for key, pieces in of_instance.items():
        on_node.setdefault(key[0], []).append((min(piece.since for piece in pieces), key))
    for launches in on_node.values():
        launches.sort()
    there: dict[tuple[str, str], list[NodeUse]] = {}
    for use in uses:
        if use.end > use.start and use.processors > 0.0 and use.node in on_node:
            there.setdefault(_instance(on_node[use.node], use.start), []).append(use)
    for key, pieces in of_instance.items():
        yield _Line(pieces, there.get(key, []))


def _instance(launches: Sequence[tuple[float, tuple[str, str]]], start: float) -> tuple[str, str]:
    before = [key for launch, key in launches if launch <= start]
    return before[-1] if before else launches[0][1]


def _pico(piece: PaidTime, time: float) -> int:
    """Cost of a piece until a time. Whole picodollars, so that differences add up exactly."""
    return round((time - piece.since) * piece.usd_per_hour / _HOUR_SECONDS * _PICO)


def _days(since: float, until: float) -> Iterator[tuple[str, float, float]]:
    """Split a period at midnights, UTC: day, begin, end."""
    begin = since
    while begin < until:
        end = min(until, midnight(begin) + _DAY_SECONDS)
        yield day_of(begin), begin, end
        begin = end


def as_rows(rows: Rows) -> Mapping[str, object]:
    """The rows as plain data, US dollars."""
    return {
        "spent_usd": rows.spent_usd,
        "by_account": rows.accounts,
        "no_account_usd": rows.no_account_usd,
        "idle_usd": rows.idle_usd,
    }
