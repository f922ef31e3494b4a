"""The jobs advised since the last snapshot, and the site's state with these jobs added to it.

`advisor control` looks at the queue every few seconds. Without this, a thousand submissions within that time
would each be judged on the queue as it was before the first of them: all would stay (the queue looks empty)
or all would be moved (the budget looks unspent). So the submit server keeps its own account:

* A job that stays joins the on-premise queue (:class:`QueueForecast`): queue size and queued work grow. If no
  job waits and its processors are free, it is taken to start at once, as first come first served would do,
  and takes them.
* A job that is moved commits its predicted money to what was spent, its nodes if they are reserved, and
  takes its place in the cloud's queue.
* A new snapshot replaces the account of everything submitted before its poll began. A submission whose RPC
  is still under way at that moment (milliseconds) is then missing for one period. It is left out and not
  counted twice, because a queue that looks too long moves jobs for money.
* Until the next snapshot waiting and running jobs grow older, and running ones have less work left. The ends
  of jobs are not guessed.

The server does not hear of a submission that slurmctld refused afterwards; it is forgotten with the next
snapshot.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec import structs

from advisor.arrays import Floats
from advisor.model.burst_limits import counted_as
from advisor.model.cluster import ClusterState
from advisor.model.job import ANYBODY, NO_LIMIT_SECONDS, Job, limit_seconds
from advisor.model.machine import Asked, machine_index_by_partition
from advisor.model.site import CloudState, Price, SiteState
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.simulate.pool.start_profile import NODE_COLUMNS, QueueProfiles, no_sooner

_MAX_SUBMISSIONS: Final = 200_000
_NOTHING_KNOWN: Final[Mapping[str, float]] = MappingProxyType({})
_MAX_TASKS: Final = 8
"""The number of tasks of an array that are simulated one by one; the others are simulated as one wide job."""


class Submission(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The effect of one advised job on the site until a snapshot shows it.

    Attributes:
        time: When it was advised, seconds since the epoch.
        processors, tasks: Processors of one task; tasks of the array (1 for a plain job).
        at_once: How many of these may run at a time; 0: all.
        requested_seconds, expected_seconds: Time limit and forecast run time; 0 if it is unknown.
        on_premise: True if the job joins the on-premise queue.
        queue: The partitions for which it waits there.
        committed_usd: Predicted cost, which counts as spent until a snapshot shows the job.
        payers: The account and the user that pay for it.
        reserved_nodes, node_class: Number of nodes that are paid for already, and their class.
        cloud_processors: Processors of the cloud's nodes that it uses
            (:meth:`~advisor.model.site.CloudState.processors_taken_by`).
        worst_usd: Highest cost, by which the budget's tokens (the money free at this moment) fall.
        promised_to: The user, if they name a time by which the job is to be done.
        is_small: Whether it is put before all jobs that are not.
        keys: By what its priority is known.
        asked: What a task takes of a machine on-premise; None: processors alone.
    """

    time: float
    processors: int
    tasks: int = 1
    at_once: int = 0
    requested_seconds: float = 0.0
    expected_seconds: float = 0.0
    on_premise: bool = True
    queue: str = ""
    committed_usd: float = 0.0
    payers: tuple[str, ...] = ()
    reserved_nodes: int = 0
    node_class: str = ""
    cloud_processors: int = 0
    worst_usd: float = 0.0
    promised_to: str | None = None
    is_small: bool = False
    keys: tuple[str, ...] = ()
    asked: Asked | None = None


class QueueLevel(NamedTuple):
    """A queue as a new job meets it that so many of the waiting rows are before."""

    rows: int
    profiles: QueueProfiles


class QueueLevels(NamedTuple):
    """The levels of a queue, its end last, the priorities of its waiting rows, ascending, and its nodes."""

    levels: tuple[QueueLevel, ...]
    ranks: Sequence[float] = ()
    nodes: Floats = np.zeros((0, NODE_COLUMNS))


class _MachineQueue:
    """The queue of one machine, as new jobs of several priorities meet it; the last level is its end."""

    def __init__(self, queue: SeenQueue, known: QueueLevels) -> None:
        self._machine = queue.machine
        self._before_small = queue.before_small
        self._ranks = known.ranks
        self._nodes = known.nodes
        self._levels = list(known.levels)
        self._joined: set[int] = set()  # levels that are copies

    def rows_before(self, priority: float | None, *, is_small: bool) -> int:
        """The number of waiting rows that are before a new job; ``priority`` None: it is not known."""
        if priority is not None:
            return len(self._ranks) - bisect.bisect_left(self._ranks, priority)
        if is_small and self._before_small is not None:
            return self._before_small
        return self._levels[-1].rows

    def of(self, rows: int) -> QueueProfiles:
        """What a job waits for that so many rows are before, or a few more."""
        found = (level.profiles for level in self._levels if level.rows >= rows)
        return next(found, self._levels[-1].profiles)

    def needs(self, asked: Asked) -> Floats:
        """What a job takes of each of the machine's resources."""
        return np.array(self._machine.needs(asked), np.float64)

    def no_sooner(self, asked: Asked, now: float) -> float:
        """The moment before which no node, or too few nodes, have room for a job."""
        room = self._machine.room_for(asked) if len(self._nodes) else None
        if room is None:
            return now
        found = no_sooner(self._nodes, np.array(room, np.float64), now)
        return now if found == math.inf else found  # a node that has enough may be down

    def join(self, job: Submission, rows: int, limit: float, run: float) -> None:
        """Add a job that so many rows are before."""
        needs = self._machine.needs(_asked(job))
        each = np.array(needs, np.float64)
        lanes = min(job.tasks, job.at_once or job.tasks)
        in_each, more = divmod(job.tasks, max(1, lanes))  # tasks that run one after another
        rest = lanes - _MAX_TASKS
        for profiles in self._joinable(rows):
            for lane in range(min(lanes, _MAX_TASKS)):
                rounds = in_each + (lane < more)
                _join(profiles, each, limit * rounds, run * rounds, job.time)
            if rest > 0:
                at_once = self._machine.at_once(needs, rest)
                others, rounds = at_once * each, (in_each + (more > _MAX_TASKS)) * -(-rest // at_once)
                _join(profiles, others, limit * rounds, run * rounds, job.time)

    def _joinable(self, rows: int) -> Iterator[QueueProfiles]:
        """The profiles of the levels behind so many rows, each copied the first time."""
        for number, level in enumerate(self._levels):
            if level.rows < rows and number < len(self._levels) - 1:
                continue
            if number not in self._joined:
                self._joined.add(number)
                copies = QueueProfiles(*(profile.copy() for profile in level.profiles))
                self._levels[number] = QueueLevel(level.rows, copies)
            yield self._levels[number].profiles


def _join(profiles: QueueProfiles, needs: Floats, limit: float, run: float, now: float) -> None:
    profiles.expected.join(needs, limit, now, run)
    profiles.planned.join(needs, limit, now, limit)


def _asked(job: Submission) -> Asked:
    return job.asked or Asked(job.processors, partition=job.queue)


class QueueForecast:
    """Forecasts when a job submitted now would start on-premise.

    The queue of each machine is simulated as Slurm schedules it, by time limits, while jobs run as long as
    expected. How far actual waits are from those with jobs that run to their limits is learned
    (`advisor.predict.intervals`, `advisor.predict.promised`). A job that names partitions of several machines
    starts where it can start first.

    Args:
        priorities: With what priority a new job begins, by its keys; empty: it is the last.
        small_offset: What is added to the priority of a small job.
    """

    def __init__(
        self,
        queues: Sequence[SeenQueue],
        levels: Sequence[QueueLevels],
        priorities: Mapping[str, float] = _NOTHING_KNOWN,
        small_offset: int = 0,
    ) -> None:
        self._machines = [_MachineQueue(*parts) for parts in zip(queues, levels, strict=True)]
        self._priorities = priorities
        self._small_offset = small_offset
        self._place_of = machine_index_by_partition(queue.machine for queue in queues)

    def waits(self, job: Job, now: float, *, is_small: bool = False) -> tuple[float, float]:
        """Seconds from now until the job, or the first task of an array, starts; infinite: never.

        The second is the same if jobs ran to their limits.

        Args:
            is_small: Whether it is put before all jobs that are not.
        """
        asked, limit = Asked.by(job), limit_seconds(job)
        expected = planned = math.inf
        priority = self._priority(job.priority_keys, is_small=is_small) if self._priorities else None
        for machine in self._of(job.queue):
            profiles = machine.of(machine.rows_before(priority, is_small=is_small))
            needs, soonest = machine.needs(asked), machine.no_sooner(asked, now)
            expected = min(expected, max(soonest, profiles.expected.start_of(needs, limit, now)))
            planned = min(planned, max(soonest, profiles.planned.start_of(needs, limit, now)))
        return expected - now, planned - now

    def join(self, job: Submission) -> None:
        """Add a job that stays on-premise to the queue."""
        limit = job.requested_seconds or NO_LIMIT_SECONDS
        run = min(limit, job.expected_seconds or limit)
        priority = self._priority(job.keys, is_small=job.is_small) if self._priorities else None
        machine, *others = self._of(job.queue)
        rows = machine.rows_before(priority, is_small=job.is_small)
        if others:
            asked, start = _asked(job), math.inf
            for one in (machine, *others):
                before = one.rows_before(priority, is_small=job.is_small)
                found = one.of(before).expected.start_of(one.needs(asked), limit, job.time)
                if found < start:
                    machine, rows, start = one, before, found
        machine.join(job, rows, limit, run)

    def _priority(self, keys: Sequence[str], *, is_small: bool) -> float | None:
        """The priority with which a job begins; None: it is not known."""
        for key in (*keys, ANYBODY):
            if (found := self._priorities.get(key)) is not None:
                return found + self._small_offset if is_small else found
        return None

    def _of(self, partitions: str | None) -> Sequence[_MachineQueue]:
        """The machines of a job's partitions (a comma between them); the first for any other partition."""
        if len(self._machines) == 1 or not partitions:
            return self._machines[:1]
        places = {self._place_of[name] for name in partitions.split(",") if name in self._place_of}
        return [self._machines[place] for place in places or (0,)]


class RecentSubmissions:
    """The account of jobs advised since the last snapshot. Not thread-safe: its owner holds a lock."""

    def __init__(self, since: Iterable[Submission] = ()) -> None:
        self._since: deque[Submission] = deque(since, maxlen=_MAX_SUBMISSIONS)
        self.added = 0
        self._base: SiteState | None = None
        self.queue: QueueForecast | None = None
        """The on-premise queue with these jobs; None where it is unknown."""
        self._clear()

    def __len__(self) -> int:
        return len(self._since)

    def _clear(self) -> None:
        base = self._base.cluster if self._base is not None else None
        self._free = base.free_processors if base is not None else 0
        self._queue_empty = base is None or base.queue_size == 0
        self._waiting = self._started = 0
        self._queued_work = self._started_work = 0.0
        self._cloud_now: CloudState | None = None
        self._usd = 0.0
        self._usd_by_account: dict[str, float] = {}
        self._worst_usd = 0.0
        self._worst_by_account: dict[str, float] = {}
        self._reserved_nodes = Counter[str]()
        self._cloud_processors = 0
        self._promised: dict[str, int] = {}
        self._moved = Counter[str]()

    def rebase(self, base: SiteState | None, queue: QueueForecast | None = None) -> None:
        """Use a new snapshot and its queue; submissions up to its time are in it and leave the account."""
        self._base, self.queue = base, queue
        if base is not None:
            while self._since and self._since[0].time <= base.time:
                self._since.popleft()
        self._clear()
        for submission in self._since:
            self._count(submission)

    @property
    def since(self) -> Sequence[Submission]:
        """The jobs, those advised last at the end."""
        return tuple(self._since)

    def add(self, submission: Submission) -> None:
        """Count one advised job.

        Those with a later time were advised before the clock was set back: no snapshot would take them, or
        any that come after them, out of the account.
        """
        while self._since and self._since[-1].time > submission.time:
            self._since.pop()
        self.added += 1
        self._since.append(submission)
        self._count(submission)

    def _count(self, job: Submission) -> None:
        if job.promised_to is not None and self._base is not None:
            known = self._base.promised_jobs.get(job.promised_to, 0)
            self._promised[job.promised_to] = self._promised.get(job.promised_to, known) + 1
        if not job.on_premise:
            self._cloud_now = None
            self._moved.update(dict.fromkeys(counted_as(job.payers), job.tasks))
            self._usd += job.committed_usd
            if job.worst_usd:
                self._worst_usd += job.worst_usd
                for payer in job.payers:
                    self._worst_by_account[payer] = self._worst_by_account.get(payer, 0.0) + job.worst_usd
            if job.reserved_nodes:
                self._reserved_nodes[job.node_class] += job.reserved_nodes
            self._cloud_processors += job.cloud_processors
            for payer in job.payers if job.committed_usd else ():
                self._usd_by_account[payer] = self._usd_by_account.get(payer, 0.0) + job.committed_usd
            return
        if self.queue is not None:
            self.queue.join(job)
        starting = min(job.tasks, max(0, self._free) // job.processors) if self._queue_empty else 0
        waiting = job.tasks - starting
        work = job.processors * job.requested_seconds
        if starting:
            self._free -= starting * job.processors
            self._started += starting
            self._started_work += starting * work
        if waiting:
            self._queue_empty = False
            self._waiting += waiting
            self._queued_work += waiting * work

    def state(self, now: float, *, ages: bool = True) -> SiteState:
        """The site at ``now`` (seconds): the snapshot, aged, with the jobs advised since.

        Args:
            ages: False leaves the on-premise cluster as it was seen, where only the queue is asked.
        """
        if self._base is None:
            return SiteState(time=now, cluster=None)
        cluster, limits, promised = self._base.cluster, self._base.burst_limits, self._base.promised_jobs
        return structs.replace(
            self._base,
            time=now,
            cluster=self._cluster(cluster, self._base.time, now) if ages and cluster is not None else cluster,
            cloud=self._cloud(self._base.cloud),
            price=self._price(self._base.price),
            burst_limits=limits and structs.replace(limits, since=self._moved),
            promised_jobs=promised | self._promised if self._promised else promised,
        )

    def _price(self, base: Price | None) -> Price | None:
        """The price, with the tokens that jobs advised since have left."""
        if base is None or not self._worst_usd:
            return base
        return base.committed(self._worst_usd, self._worst_by_account)

    def _cluster(self, base: ClusterState, base_time: float, now: float) -> ClusterState:
        busy = max(0, base.total_processors - base.free_processors)
        done = max(0.0, now - base_time) * busy
        return ClusterState(
            time=now,
            queue_size=base.queue_size + self._waiting,
            queued_work_core_seconds=base.queued_work_core_seconds + self._queued_work,
            remaining_work_core_seconds=max(0.0, base.remaining_work_core_seconds - done)
            + self._started_work,
            free_processors=self._free,
            total_processors=base.total_processors,
            running_jobs=base.running_jobs + self._started,
        )

    def _cloud(self, base: CloudState) -> CloudState:
        if not (self._usd or self._reserved_nodes or self._cloud_processors):
            return base
        if self._cloud_now is None:
            # with the money and nodes that jobs moved since then have committed
            self._cloud_now = base.committed(
                self._usd, self._usd_by_account, self._reserved_nodes, self._cloud_processors
            )
        return self._cloud_now
