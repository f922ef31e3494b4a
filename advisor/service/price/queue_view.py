"""The on-premise queue of a snapshot, and the forecast of its starts. Pure.

The poll hands the queue to `advisor serve`; the price loop and slices ask for the starts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from advisor.arrays import Floats
from advisor.model.cluster import Node
from advisor.model.job import NO_LIMIT_SECONDS, limit_seconds
from advisor.model.limits import NONE_HELD, HeldJobs, held_jobs, never_starts
from advisor.model.machine import Asked, Machine, PartitionTerms, machine_index_by_partition
from advisor.model.settings import Settings
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.observation.node_subsets import MachineNodes, NamedBy, subsets_of
from advisor.service.observation.placeholders import standing_for_others
from advisor.service.observation.reserved_nodes import Reserved, nodes_among, reserved_of, unusable_nodes
from advisor.service.observation.site_view import Visitor, visitors, without_doubles
from advisor.service.price.array_rows import MAX_TASKS, tasks_apart
from advisor.service.price.node_ends import node_ends
from advisor.service.price.partition_tiers import added_by_tiers, in_order
from advisor.service.price.share_order import by_shares
from advisor.simulate.pool.closed_queue import NONE_LIMITED, ClosedQueue, closed_queue_starts
from advisor.simulate.pool.start_profile import NODE_COLUMNS, no_sooner


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPremiseQueue:
    """Jobs that have or wait for on-premise processors.

    Attributes:
        time: Epoch seconds of the snapshot.
        machines: What the on-premise partitions consist of: jobs of one machine never wait for another's.
        running: The running jobs, in no order.
        waiting: The waiting jobs in Slurm's order of priority; jobs that are held, wait for a time or another
            job, have a reservation, or can't start as they are, are left out.
        places: Job id to the number of the machine that it has or waits for; empty where there is one.
        names: The job names that placeholders stand for, by their ids.
        lost: Id of a running job to the number of its nodes that are not among those of the machines.
        nodes: What each machine consists of, as far as it is known.
        reserved: The next reservations of each machine; empty where there is none.
        held: The jobs that count towards limits of users, accounts and the like that hold some.
        task_priorities: Of arrays whose tasks do not start together: that of each part, by id.
        tasks_apart: Tasks of one array that the forecast tells apart.
        first_priorities: Of new jobs, by `Job.priority_keys`, as far as the scheduler's order is known.
    """

    time: float
    machines: tuple[Machine, ...]
    running: tuple[QueuedJob, ...]
    waiting: tuple[QueuedJob, ...]
    places: Mapping[int, int] = field(default_factory=dict)
    names: Mapping[int, str | None] = field(default_factory=dict)
    lost: Mapping[int, int] = field(default_factory=dict)
    nodes: tuple[MachineNodes, ...] = ()
    on_node: Mapping[str, Sequence[QueuedJob]] = field(default_factory=dict)
    reserved: tuple[tuple[Reserved, ...], ...] = ()
    held: HeldJobs = NONE_HELD
    task_priorities: Mapping[int, Sequence[int]] = field(default_factory=dict)
    tasks_apart: int = MAX_TASKS
    first_priorities: Mapping[str, float] = field(default_factory=dict)

    @property
    def waiting_processors(self) -> int:
        """Processors that waiting jobs ask for."""
        return sum(queued.job.processors * queued.job.array_tasks for queued in self.waiting)

    def waiting_jobs(self) -> list[int]:
        """The number of jobs (array tasks) that wait for each machine."""
        found = [0] * len(self.machines)
        for queued in self.waiting:
            found[self.place_of(queued)] += queued.job.array_tasks
        return found

    def place_of(self, queued: QueuedJob) -> int:
        """The number of the machine that a job has or waits for."""
        return self.places[queued.job.job_id] if self.places else 0

    def nodes_of(self, place: int) -> MachineNodes:
        """What a machine consists of."""
        return self.nodes[place] if self.nodes else MachineNodes()

    def reserved_on(self, place: int) -> Sequence[Reserved]:
        """The next reservations of a machine."""
        return self.reserved[place] if self.reserved else ()


AskRuns = Callable[[OnPremiseQueue], tuple[Floats, Floats]]
"""The run times that are expected of the running and of the waiting jobs, from their starts, seconds."""


def run_to_limits(queue: OnPremiseQueue) -> tuple[Floats, Floats]:
    """Every job runs to its limit: where no run times are known."""
    return _limits(queue.running), _limits(queue.waiting)


def on_premise_queue(snapshot: ClusterSnapshot, settings: Settings) -> OnPremiseQueue:
    """The queue of the on-premise partitions; those that share nodes are one machine."""
    ours = settings.cluster.on_premise_partitions
    known = set(ours)
    here = [queued for queued in without_doubles(snapshot.jobs) if known.intersection(queued.partitions)]
    queued = [q for q in here if q.is_queued and not (q.job.reservation or never_starts(q))]
    tiers = added_by_tiers(ours, snapshot.sharing.partitions)
    unusable, foreign = unusable_nodes(snapshot), visitors(snapshot, settings)
    running = tuple(queued for queued in here if queued.uses_processors)
    running += tuple(visitor.queued for visitor in foreign.values())
    waiting, tasks, first = by_shares(in_order(queued, tiers), running, snapshot.queue_orders)
    machines, nodes = _machines(ours, snapshot, unusable, (*running, *waiting))
    return OnPremiseQueue(
        time=snapshot.time,
        machines=machines,
        running=running,
        waiting=tuple(waiting),
        places=_places(machines, running, waiting, foreign) if len(machines) > 1 else {},
        names=_names_of_placeholders(snapshot.jobs),
        lost=_lost(nodes_among(snapshot, unusable), foreign),
        nodes=nodes,
        on_node=snapshot.jobs_on,
        reserved=reserved_of(snapshot, machines, unusable, [each.members for each in nodes]),
        held=held_jobs((*running, *waiting)),
        first_priorities=first or {f"\n{name}": float(added) for name, added in tiers.items()},
        task_priorities=tasks,
        tasks_apart=tasks_apart(waiting),
    )


def _lost(unusable: Mapping[int, int], foreign: Mapping[int, Visitor]) -> Mapping[int, int]:
    """The nodes of running jobs that are not among those of the machines, by id."""
    return {**unusable, **{job_id: one.queued.asked.nodes - one.nodes for job_id, one in foreign.items()}}


def _machines(
    ours: Sequence[str], snapshot: ClusterSnapshot, unusable: Collection[str], jobs: Sequence[QueuedJob]
) -> tuple[tuple[Machine, ...], tuple[MachineNodes, ...]]:
    """The machines, in the order of their first partitions in the settings, and their nodes."""
    joined, named = {name: {name} for name in ours}, NamedBy.jobs(jobs)
    kinds: dict[tuple[str, ...], list[Node]] = {}  # few differ, of thousands of nodes
    for node in snapshot.nodes:
        if not node.is_cloud and not joined.keys().isdisjoint(node.partitions):
            usable = kinds.setdefault(node.partitions, [])
            if node.name not in unusable:
                usable.append(node)
    for partitions in kinds:
        together = set[str]().union(*(joined[name] for name in partitions if name in joined))
        joined |= dict.fromkeys(together, together)
    found = dict.fromkeys(tuple(name for name in ours if name in joined[first]) for first in ours)
    machines, parts = [], []
    for names in found:
        nodes = [node for kind, those in kinds.items() if not set(names).isdisjoint(kind) for node in those]
        subsets = subsets_of(names, nodes, named)
        machines.append(
            Machine(
                names,
                sum(node.processors for node in nodes),
                len(nodes),
                sum(node.memory_mb for node in nodes) if snapshot.sharing.memory else 0,
                sum(node.gpus for node in nodes),
                tuple(snapshot.sharing.partitions.get(name, PartitionTerms()) for name in names),
                tuple(one.subset for one in subsets),
                min((node.threads for node in nodes), default=1) if snapshot.sharing.by_core else 1,
                max((node.gpus for node in nodes), default=0),
            )
        )
        members = tuple(one.nodes for one in subsets)
        inside = tuple(nodes_among(snapshot, names) for names in members)
        parts.append(MachineNodes(tuple(nodes), members, inside))
    return tuple(machines), tuple(parts)


def _places(
    machines: Sequence[Machine],
    running: Iterable[QueuedJob],
    waiting: Iterable[QueuedJob],
    foreign: Mapping[int, Visitor],
) -> dict[int, int]:
    """The machine of each job. A job that waits for several gets the one with the least work ahead of it."""
    machine_of = machine_index_by_partition(machines)
    work = [0.0] * len(machines)
    found: dict[int, int] = {}
    for queued in (*running, *waiting):
        job = queued.job
        names = foreign[job.job_id].partitions if job.job_id in foreign else queued.partitions
        may = {machine_of[name] for name in names if name in machine_of}
        place = min(may, key=lambda one: (work[one] / max(1, machines[one].processors), one))
        work[place] += job.processors * job.array_tasks * limit_seconds(job)
        found[job.job_id] = place
    return found


def _names_of_placeholders(jobs: Sequence[QueuedJob]) -> Mapping[int, str | None]:
    standing = standing_for_others(jobs)
    if not standing:
        return {}
    names = {queued.job.job_id: queued.job.name for queued in jobs}
    return {own: names[other] for own, other in standing.items()}


def forecast_waits(queue: OnPremiseQueue, runs: AskRuns = run_to_limits) -> dict[int, float]:
    """Job id to the seconds until the job (of an array its first task) would start, were no job to come.

    A job larger than its machine waits a year. Jobs that a limit holds of which no other job runs on the
    machine are left out: nothing tells when it lets them start.
    """
    found: dict[int, float] = {}
    for part in _parts(queue, runs) if queue.waiting else ():
        if not part.waiting:
            continue
        rows = _rows(part)
        starts = np.maximum(
            closed_queue_starts(_closed(part, rows, queue.time), queue.time), _no_sooner(part, rows)
        )
        waits = np.clip(starts - queue.time, 0.0, NO_LIMIT_SECONDS).tolist()
        # of an array the first task: the last that is written
        every = zip(reversed(rows), reversed(waits), strict=True)
        held = queue.held.counted
        found |= {
            row.job_id: wait for row, wait in every if wait < NO_LIMIT_SECONDS or row.job_id not in held
        }
    return found


def seen_queues(queue: OnPremiseQueue, runs: AskRuns = run_to_limits) -> tuple[SeenQueue, ...]:
    """The queue of each machine, for the submit server."""
    found = []
    for part in _parts(queue, runs):
        rows = _rows(part)
        closed = _closed(part, rows, queue.time)
        ranks = np.array([row.priority for row in rows], np.float64)
        found.append(SeenQueue.of(part.machine, *closed[1:], priorities=ranks, nodes=_room(part)))
    return tuple(found)


class _Part(NamedTuple):
    """The queue of one machine, with the run times that are expected of its jobs, seconds."""

    machine: Machine
    running: Sequence[QueuedJob]
    running_runs: Floats
    waiting: Sequence[QueuedJob]
    waiting_runs: Floats
    reserved: Sequence[Reserved]
    nodes: MachineNodes
    queue: OnPremiseQueue


def _parts(queue: OnPremiseQueue, runs: AskRuns) -> Iterator[_Part]:
    running_runs, waiting_runs = runs(queue)
    if len(queue.machines) == 1:
        jobs = queue.running, running_runs, queue.waiting, waiting_runs
        yield _Part(queue.machines[0], *jobs, queue.reserved_on(0), queue.nodes_of(0), queue)
        return
    for place, machine in enumerate(queue.machines):
        ahead, behind = (
            [row for row, queued in enumerate(jobs) if queue.place_of(queued) == place]
            for jobs in (queue.running, queue.waiting)
        )
        yield _Part(
            machine,
            [queue.running[row] for row in ahead],
            running_runs[ahead],
            [queue.waiting[row] for row in behind],
            waiting_runs[behind],
            queue.reserved_on(place),
            queue.nodes_of(place),
            queue,
        )


def _room(part: _Part) -> Floats:
    """What is free on the nodes, and until when the running jobs hold the rest."""
    now, runs = part.queue.time, part.running_runs.tolist()
    ends = {
        queued.job.job_id: max(now + 1.0, (queued.start_time or now) + min(run, limit_seconds(queued.job)))
        for queued, run in zip(part.running, runs, strict=True)
    }
    there, shares_memory = part.nodes, part.machine.memory_mb > 0
    return node_ends(there.nodes, there.members, part.queue.on_node, ends, shares_memory=shares_memory)


def _no_sooner(part: _Part, rows: Sequence[_Row]) -> Floats:
    """The moment before which no node, or too few nodes, have room for the job of a row; epoch seconds."""
    now = part.queue.time
    room_of = {queued.job.job_id: part.machine.room_for(queued.asked) for queued in part.waiting}
    different = {room for room in room_of.values() if room is not None}
    nodes = _room(part) if different else np.zeros((0, NODE_COLUMNS))
    starts = {room: no_sooner(nodes, np.array(room, np.float64), now) for room in different}
    found = {room: start for room, start in starts.items() if start < np.inf}  # else one may be down
    return np.array([found.get(room_of[row.job_id] or (), now) for row in rows])


class _Row(NamedTuple):
    """A waiting job's id and tasks, what they need, time limit, expected run time, and priority."""

    job_id: int
    tasks: int
    needs: tuple[int, ...]
    limit: float
    run: float
    priority: int


def _rows(part: _Part) -> list[_Row]:
    """The rows of the forecast, by priority."""
    machine, at_once_of, apart = part.machine, _at_once(part), part.queue.tasks_apart
    rows: list[_Row] = []
    for queued, run in zip(part.waiting, part.waiting_runs.tolist(), strict=True):
        job, limit, needs = queued.job, limit_seconds(queued.job), machine.needs(queued.asked)
        parts = part.queue.task_priorities.get(job.job_id, (queued.priority,))
        each = [parts[n * len(parts) // job.array_tasks] for n in range(min(job.array_tasks, apart + 1))]
        rows += (_Row(job.job_id, 1, needs, limit, run, priority) for priority in each[:apart])
        if job.array_tasks > apart:
            tasks = job.array_tasks - apart
            at_once = min(machine.at_once(needs, tasks), at_once_of.get(job.job_id, tasks))
            rounds = -(-tasks // at_once)
            rest = tuple(at_once * own for own in needs)
            rows.append(_Row(job.job_id, at_once, rest, limit * rounds, run * rounds, each[-1]))
    rows.sort(key=lambda row: -row.priority)
    return rows


def _at_once(part: _Part) -> dict[int, int]:
    """Job id to the number of tasks that a limit lets run at a time, at least one, as far as it is known."""
    counted, left = part.queue.held.counted, (0.0, *part.queue.held.left)
    if not counted:
        return {}
    whole = list(left)
    for queued in part.running:
        number, units = counted.get(queued.job.job_id, (0, 0.0))
        whole[number] += units
    taking = ((job_id, number, units) for job_id, (number, units) in counted.items() if units)
    return {job_id: max(1, int(whole[number] // units)) for job_id, number, units in taking}


def _closed(part: _Part, rows: Sequence[_Row], now: float) -> ClosedQueue:
    machine, sizes = part.machine, np.array(part.machine.sizes, np.float64)
    windows = [
        (one.begin, one.end, resource, machine.sizes[resource] - takes, one)
        for one in part.reserved
        for resource, takes in enumerate(one.takes)
        if takes
    ]
    running = []
    for queued, run in zip(part.running, part.running_runs.tolist(), strict=True):
        job_id, asked, limit = queued.job.job_id, queued.asked, limit_seconds(queued.job)
        has = [
            *machine.held_by(asked.on(asked.nodes - part.queue.lost.get(job_id, 0))),
            *(
                subset.held_by(asked.on(inside.get(job_id, 0)))
                for subset, inside in zip(machine.subsets, part.nodes.inside, strict=True)
            ),
        ]
        rest = [
            _outside(part, job_id, asked, resource, one) if job_id in one.inside else has[resource]
            for _, _, resource, _, one in windows
        ]
        processors = has.pop(0) * queued.job.array_tasks
        running.append((processors, queued.start_time or now, limit, run, *has, *rest))
    waiting = [(row.needs[0], row.limit, row.run, *row.needs[1:]) for row in rows]
    return ClosedQueue(
        sizes,
        np.array(running, np.float64).reshape(-1, 3 + len(sizes) + len(windows)),
        np.array(waiting, np.float64).reshape(-1, 2 + len(sizes)),
        np.array([window[:4] for window in windows], np.float64).reshape(-1, 4),
        _limited(part, rows),
        np.array((0.0, *part.queue.held.left)),
    )


def _outside(part: _Part, job_id: int, asked: Asked, resource: int, reserved: Reserved) -> int:
    """What a running job has of a resource on nodes that are not reserved."""
    number = resource - len(part.machine.sizes) + len(part.machine.subsets)
    if number < 0:
        left = asked.nodes - reserved.inside.get(job_id, 0)
        return part.machine.held_by(asked.on(left))[resource]
    left = part.nodes.inside[number].get(job_id, 0) - reserved.in_subsets[number].get(job_id, 0)
    return part.machine.subsets[number].held_by(asked.on(left))


def _limited(part: _Part, rows: Sequence[_Row]) -> Floats:
    """The limit of each running job and each row, and what it takes of it; empty where none holds a job."""
    counted, none = part.queue.held.counted, (0, 0.0)
    if not counted:
        return NONE_LIMITED
    running = [counted.get(queued.job.job_id, none) for queued in part.running]
    found = np.array([*running, *(counted.get(row.job_id, none) for row in rows)], np.float64).reshape(-1, 2)
    found[len(running) :, 1] *= [row.tasks for row in rows]
    return found


def _limits(jobs: Sequence[QueuedJob]) -> Floats:
    return np.array([limit_seconds(queued.job) for queued in jobs], np.float64)
