"""The burst partition as the portfolio's simulator sees it: rented nodes and waiting jobs. Pure.

A simulated node is a whole node: each job that shares a node counts as using all of it. Slurm packs such
jobs, so a limit on nodes is rather too high than too low.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from advisor.model.cluster import Node, NodePower
from advisor.model.errors import BadInput
from advisor.model.job import Job
from advisor.model.node_sets import expand
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, ClusterSnapshot, QueuedJob
from advisor.service.observation.advice_of_jobs import predicted_cloud_seconds
from advisor.service.observation.site_view import active_features, burst_nodes
from advisor.simulate.heap import Records
from advisor.simulate.portfolio.online import Situation, empty_jobs
from advisor.simulate.portfolio.state import NODE

_UNKNOWN_SECONDS: Final = 3600.0
_COMPLETING_SECONDS: Final = 5.0
_RENTED: Final = (NodePower.UP, NodePower.POWERING_UP)
RESERVED: Final = frozenset({"RESERVED", "MAINT", "MAINTENANCE"})
"""Slurm's states of a node in a reservation."""
_MAX_JOBS: Final = 500
"""Waiting jobs (and array tasks) that are simulated: the time grows with their square."""
_LIMITED: Final = ("QOS", "Assoc", "Licenses", "JobArrayTaskLimit", "Reservation", "PartitionDown")
"""Beginnings of Slurm's pending reasons that no node can resolve."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BurstView:
    """The burst partition at one moment.

    Attributes:
        rented: Nodes of ``situation.profile``, in its order.
        waiting: Jobs of ``situation.jobs``, in its order; an array once for each of its tasks.
        usable: Nodes that may run jobs, rented or not.
        processors_per_node: Processors of the smallest usable node.
        asleep: Usable nodes that are powered down or powering down.
    """

    situation: Situation
    rented: tuple[Node, ...]
    waiting: tuple[QueuedJob, ...]
    usable: int
    processors_per_node: int
    asleep: tuple[Node, ...]


class LastTwo:
    """Mean of the last two run times (Deng et al. 2013, section 3.2) of similar jobs, else of the user."""

    def __init__(self) -> None:
        self._runs: dict[tuple[object, ...], tuple[float, ...]] = {}

    def ended(self, job: Job, run_seconds: float) -> None:
        """Add a job that ran."""
        for key in self._keys(job):
            self._runs[key] = (*self._runs.get(key, ()), run_seconds)[-2:]

    def mean(self, job: Job) -> float | None:
        """Expected run time, seconds; None for an unknown user."""
        for key in self._keys(job):
            if known := self._runs.get(key):
                return sum(known) / len(known)
        return None

    @staticmethod
    def _keys(job: Job) -> tuple[tuple[object, ...], ...]:
        return (job.user, job.requested_time, job.processors), (job.user,)


def expected_run(queued: QueuedJob, last: LastTwo) -> float:
    """Expected run time, seconds: the submission's forecast, else the user's last two, else the limit."""
    predicted = predicted_cloud_seconds(queued)
    found = last.mean(queued.job) if predicted is None else predicted
    limit = queued.job.requested_time
    if found is None:
        return limit if limit is not None else _UNKNOWN_SECONDS
    return max(1.0, found if limit is None else min(found, limit))


def nodes_of(job: Job, processors_per_node: int) -> int:
    """Whole nodes that a job takes."""
    return max(job.nodes or 1, math.ceil(job.processors / max(processors_per_node, 1)))


@dataclass(frozen=True, slots=True)
class Want:
    """Nodes that a job should find open.

    ``memory_mb`` is the least memory of each node. ``takes_any``: other nodes are opened as well once too few
    fit.
    """

    job: Job
    nodes: int
    memory_mb: int = 0
    takes_any: bool = False


def wanted_first(
    asleep: Sequence[Node], wants: Iterable[Want], *, most: int | None = None
) -> dict[str, None]:
    """Powered-down nodes in the order in which jobs need them: each job's own first, then by weight.

    To open a node that the next job cannot use would be in vain.

    Args:
        most: The order after so many nodes does not matter.
    """
    left = sorted(asleep, key=lambda node: (node.power is not NodePower.DOWN, node.weight or 0))
    words = {node.name: frozenset(active_features(node)) for node in left}
    fitting: dict[tuple[object, ...], list[str]] = {}
    found: dict[str, None] = {}
    enough = len(left) if most is None else min(most, len(left))
    for want in wants:
        if len(found) >= enough:
            break
        kind = (want.job.features, want.job.node_list, want.memory_mb)
        if kind not in fitting:
            fitting[kind] = _fitting(left, words, want)
        # taken nodes are skipped once, not again for each job of that kind
        candidates = fitting[kind] = [name for name in fitting[kind] if name not in found]
        taken = candidates[: want.nodes]
        found |= dict.fromkeys(taken)
        if want.takes_any and len(taken) < want.nodes:
            others = (node.name for node in left if node.name not in found)
            found |= dict.fromkeys(islice(others, want.nodes - len(taken)))
    return found | dict.fromkeys(node.name for node in left)


def _fitting(nodes: Sequence[Node], words: Mapping[str, frozenset[str]], want: Want) -> list[str]:
    """Nodes that a job may use, as far as its constraint, its node list and its memory tell.

    They have all words of the constraint; if no node has (``a|b``), those with one of the words.
    """
    named = None
    if want.job.node_list:
        with suppress(BadInput):  # text from outside
            named = set(expand(want.job.node_list))
    asked = set(want.job.features)
    known = [
        node.name
        for node in nodes
        if (named is None or node.name in named) and node.memory_mb >= want.memory_mb
    ]
    every = [name for name in known if asked <= words[name]]
    return every or [name for name in known if asked & words[name]]


def view_of(
    snapshot: ClusterSnapshot,
    settings: Settings,
    *,
    last: LastTwo,
    launched: Callable[[str], float | None],
    boot_seconds: float,
    closed: Collection[str] = (),
) -> BurstView:
    """Build the view from a snapshot of the whole cluster.

    Args:
        launched: When a node was rented, epoch seconds; None if unknown.
        closed: Nodes that we reserved; nodes in other reservations are left out.
    """
    usable = [
        node
        for node in burst_nodes(snapshot, settings)
        if node.is_cloud
        and not (node.is_down or node.is_draining)
        and node.power is not NodePower.UNKNOWN
        and (node.name in closed or not node.states & RESERVED)
    ]
    rented = tuple(node for node in usable if _is_rented(node))
    per_node = min((node.processors for node in usable), default=1)
    waiting = _waiting(snapshot, settings, widest=len(usable), per_node=per_node)
    jobs = empty_jobs(len(waiting))
    for row, queued in zip(jobs, waiting, strict=True):
        row["submit"] = min(queued.job.submit_time, snapshot.time)
        row["estimate"] = row["run"] = expected_run(queued, last)
        row["processors"] = nodes_of(queued.job, per_node)
    profile = np.zeros(len(rented), NODE)
    on_node = snapshot.jobs_on
    for row, node in zip(profile, rented, strict=True):
        since = min(launched(node.name) or snapshot.time, snapshot.time)
        ends = [_expected_end(queued, snapshot.time, last) for queued in on_node.get(node.name, ())]
        _describe(row, node, ends, since=since, now=snapshot.time, boot_seconds=boot_seconds)
    return BurstView(
        situation=Situation(now=snapshot.time, profile=profile, jobs=jobs),
        rented=rented,
        waiting=waiting,
        usable=len(usable),
        processors_per_node=per_node,
        asleep=tuple(node for node in usable if not _is_rented(node)),
    )


def _is_rented(node: Node) -> bool:
    """Whether a node is up or powering up; a job may have got it a moment before its boot began."""
    return node.power in _RENTED or (node.power is NodePower.DOWN and node.is_busy)


def _waiting(
    snapshot: ClusterSnapshot, settings: Settings, *, widest: int, per_node: int
) -> tuple[QueuedJob, ...]:
    """Jobs that wait only for nodes of the burst partition, by submission; each array task on its own."""
    mine = [
        queued
        for queued in snapshot.jobs
        if queued.state == PENDING
        and queued.is_queued
        and settings.cluster.burst_partition in queued.partitions
        and not queued.reason.startswith(_LIMITED)
        and not queued.job.reservation
        and nodes_of(queued.job, per_node) <= widest
    ]
    mine.sort(key=lambda queued: (queued.job.submit_time, queued.job.job_id))
    tasks = (queued for queued in mine for _ in range(min(queued.job.array_tasks, _MAX_JOBS)))
    return tuple(islice(tasks, _MAX_JOBS))


def _expected_end(queued: QueuedJob, now: float, last: LastTwo) -> tuple[float, float]:
    """Start and expected end; a job that exceeds its expectation takes twice its time so far."""
    begun = min(queued.start_time or now, now)
    end = begun + expected_run(queued, last)
    return begun, end if end > now else now + max(now - begun, 1.0)


def _describe(
    row: Records,
    node: Node,
    ends: Sequence[tuple[float, float]],
    *,
    since: float,
    now: float,
    boot_seconds: float,
) -> None:
    """Fill in one node's row of the profile (`advisor.simulate.portfolio.state.NODE`)."""
    is_booting = node.power is not NodePower.UP
    free = max(since + boot_seconds, now + 1.0) if is_booting else now
    row["since"] = since
    row["begun"] = min((begun for begun, _ in ends), default=since if is_booting else now)
    row["row"] = 0 if ends or not is_booting else -1  # which job it is does not matter: only -1 has a meaning
    if ends:
        # a job that waits for the boot has all its time before it
        free = max(end for _, end in ends) + (free - now if is_booting else 0.0)
    elif node.is_busy:
        free = max(free, now + _COMPLETING_SECONDS)
    row["ready"] = free
    row["estimate"] = free - row["begun"]
