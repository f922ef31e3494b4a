"""The order in which the jobs of LSF's queues with fairshare start, by the shares of their users. Pure.

LSF starts the next job of the account whose dynamic priority, shares / load, is the highest, from the top of
the tree of accounts down; each slot of a started job adds to the load, and leaves it as the job ends. Here
the jobs that wait are started one after another in that way. The jobs that run end in the order of their
starts, each as its slots are needed.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from advisor.model.queue_order import QueueOrder, ShareAccount
from advisor.model.snapshot import QueuedJob

_STEP: Final = 1 << 21
"""Between the priorities of two jobs: more than ``size.small_priority_offset``, for LSF puts a small job
first among the jobs of its own user alone."""
_MAX_PARTS: Final = 1000
_MAX_PARTS_OF_ALL: Final = 20_000
"""Of all arrays together: half a second of work at each poll."""
_SHARE_OF_A_PART: Final = 8
"""Tasks of an array that start together take at most this part of the slots that jobs hold."""
_MAX_PLACES: Final = 1 << 18
_numbers: Final = itertools.count()


class _Part(NamedTuple):
    """Tasks of a waiting job that start together."""

    number: int
    tasks: int
    slots: int


@dataclass(slots=True, eq=False)
class _Account:
    """An account, or the queue itself, and the parts of its jobs that wait."""

    shares: float = 1.0
    load: float = 0.0
    run_load: float = 0.0
    parent: _Account | None = None
    members: dict[str, _Account] = field(default_factory=dict)
    parts: deque[_Part] = field(default_factory=deque)
    heap: list[tuple[float, int, int, _Account]] = field(default_factory=list)
    is_open: bool = True
    running_slots: int = 0
    place_of_new: int = 0

    def rank(self) -> tuple[float, int]:
        """Smaller: it is first. Of two with the same priority the one with the earlier job is."""
        return -self.shares / max(self.load, 0.01), self.parts[0].number if self.parts else _MAX_PLACES

    def add(self, load: float) -> None:
        """Add to its load, and to that of the accounts above it; put each anew among those beside it."""
        account = self
        while account.parent is not None:
            account.load += load
            heapq.heappush(account.parent.heap, (*account.rank(), next(_numbers), account))
            account = account.parent

    def put_members(self) -> None:
        """Put all accounts below it into the heaps."""
        self.heap = [(*one.rank(), next(_numbers), one) for one in self.members.values()]
        heapq.heapify(self.heap)
        for one in self.members.values():
            one.put_members()

    def next(self) -> _Account | None:
        """The account that starts the next job; None: every one has had its turn."""
        account = self
        while account.members:
            heap = account.heap
            while heap and not (heap[0][3].is_open and heap[0][:2] == heap[0][3].rank()):
                heapq.heappop(heap)  # it has changed since, and is in the heap once more
            if heap:
                account = heap[0][3]
            elif account.parent is None:
                return None
            else:
                account.is_open = False
                account = account.parent
        return account


class _Tree:
    """The accounts of one queue."""

    def __init__(self, order: QueueOrder) -> None:
        self._slot_load, self._default = order.slot_load, order.default_shares or 1.0
        self.root = _Account()
        self.users: dict[str, _Account] = {}
        accounts = {one.path: one for one in sorted(order.accounts, key=lambda one: len(one.path))}
        for account, own in [(account, self._put(account)) for account in accounts.values()]:
            for user in () if own.members else account.users or account.path[-1:]:
                if user not in self.users or own.rank() < self.users[user].rank():
                    self.users[user] = own
        self.of("")

    def _put(self, account: ShareAccount) -> _Account:
        parent = self.root
        for name in account.path[:-1]:
            parent = parent.members.setdefault(name, _Account(self._default, self._slot_load, parent=parent))
        own = _Account(account.shares, account.load, account.run_load, parent)
        parent.members[account.path[-1]] = own
        return own

    def of(self, user: str) -> _Account:
        """The account of a user; one who is in none has one of their own."""
        if user not in self.users:
            own = _Account(self._default, self._slot_load, parent=self.root)
            self.users[user] = self.root.members[f"{user}\n"] = own
        return self.users[user]

    def places(self, waiting: Sequence[QueuedJob], running: Iterable[QueuedJob]) -> list[list[int]]:
        """How many jobs start before each that waits; of an array, before each part of its tasks."""
        ends = deque(self._ends(running))
        waits = sum(queued.job.array_tasks * queued.job.processors for queued in waiting)
        held = sum(slots for _, slots, _ in ends)
        at_once = max(1, held // _SHARE_OF_A_PART, waits // _MAX_PARTS_OF_ALL)
        for number, queued in enumerate(waiting):
            self.of(queued.job.user or "").parts.extend(_parts(number, queued, at_once))
        self.root.put_members()
        places: list[list[int]] = [[] for _ in waiting]
        count = free = 0
        while True:
            while free < 1 and ends:
                ended, slots, load = ends.popleft()
                ended.add(-load)
                free += slots
            if (account := self.root.next()) is None:
                return places
            if not account.parts:
                account.place_of_new, account.is_open = count, False
                continue
            part = account.parts.popleft()
            places[part.number].append(count)
            count += part.tasks
            account.add(self._slot_load * part.slots)
            ends.append((account, part.slots, self._slot_load * part.slots))
            free -= part.slots

    def _ends(self, running: Iterable[QueuedJob]) -> Iterator[tuple[_Account, int, float]]:
        """Account, slots and load of each running job, the oldest first."""
        jobs = sorted(running, key=lambda queued: queued.start_time or 0.0)
        held = [(self.of(queued.job.user or ""), queued.job.processors) for queued in jobs]
        for account, slots in held:
            account.running_slots += slots
        for account, slots in held:
            yield account, slots, slots * (self._slot_load + account.run_load / account.running_slots)


def _parts(number: int, queued: QueuedJob, slots: int) -> Iterator[_Part]:
    tasks = queued.job.array_tasks
    parts = min(tasks, _MAX_PARTS, -(-tasks * queued.job.processors // slots))
    for part in range(parts):
        own = tasks // parts + (part < tasks % parts)
        yield _Part(number, own, own * queued.job.processors)


class ByShares(NamedTuple):
    """Waiting jobs in the order in which they start.

    Attributes:
        waiting: With the priorities that say so.
        tasks: Of arrays, by id: the priority of each part of its tasks.
        first: The priorities of new jobs, by `Job.priority_keys`.
    """

    waiting: list[QueuedJob]
    tasks: Mapping[int, Sequence[int]]
    first: Mapping[str, float]


def by_shares(
    waiting: Sequence[QueuedJob], running: Sequence[QueuedJob], orders: Mapping[str, QueueOrder]
) -> ByShares:
    """The waiting jobs in the order in which they start; `waiting` is by priority, the first one first."""
    first = {f"\n{name}": float(order.first_priority) for name, order in orders.items()}
    priorities = dict[int, list[int]]()
    for name, order in orders.items():
        if order.default_shares is None:
            continue
        rows = [row for row, queued in enumerate(waiting) if queued.partitions[0] == name]
        tree, there = _Tree(order), [queued for queued in running if queued.partitions[0] == name]
        found = tree.places([waiting[row] for row in rows], there)
        priorities |= {
            row: [_priority(order, place) for place in places]
            for row, places in zip(rows, found, strict=True)
        }
        for user, account in tree.users.items():
            first[f"{user}\n{name}"] = _priority(order, account.place_of_new) + 1.0
    ranked = [
        replace(queued, priority=priorities[row][0]) if row in priorities else queued
        for row, queued in enumerate(waiting)
    ]
    ranked.sort(key=lambda queued: -queued.priority)
    tasks = {waiting[row].job.job_id: parts for row, parts in priorities.items() if len(parts) > 1}
    return ByShares(ranked, tasks, first)


def _priority(order: QueueOrder, place: int) -> int:
    return order.first_priority - _STEP * min(place, _MAX_PLACES)
