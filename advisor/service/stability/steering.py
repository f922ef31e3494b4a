"""Node preferences that the match loop gives long waiting jobs: soft, visible in Slurm, and with an end.

A steered job *prefers* the feature of nodes that last (``Prefer=`` in ``scontrol show job``). slurmctld
starts it on such a node if there is one at that moment and on any other if not, so a preference makes no job
wait and needs no process of ours. Only a job that the match would rather have wait is held off the shaky
nodes (``ExcNodeList=``), for a limited time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, Protocol

import structlog

from advisor.files.state_file import StateFile
from advisor.model.advice import CAPACITY_FEATURES
from advisor.model.errors import RetryLater
from advisor.model.node_sets import fold
from advisor.model.scheduler import CloudScheduler
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import do_all, for_each
from advisor.service.state.records import HeldJob, SteeredJobs
from advisor.slurm.running_jobs import NodeConstraints

log = structlog.get_logger(__name__)

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]+(&[A-Za-z0-9_.-]+)*")
_MAX_REMEMBERED: Final = 20_000
_MAX_CHANGES: Final = 50  # of preferences in one round: two commands each


class NodeConstraintSource(Protocol):
    """What the loop uses of :class:`advisor.slurm.running_jobs.RunningJobs`."""

    def node_constraints(self, job_id: int) -> NodeConstraints:
        """Which nodes the job asks for, prefers and excludes."""
        ...


def preferring(constraints: NodeConstraints, feature: str) -> str | None:
    """The preference to give a job; None if it has one of its user's own, which must stay.

    slurmctld uses a preference that it can satisfy *instead of* the constraint, so the constraint is repeated
    in it.

    Examples:
        >>> preferring(NodeConstraints(features="cloud", prefer="cloud&spot"), "steady")
        'cloud&spot&steady'
        >>> preferring(NodeConstraints(prefer="avx512"), "steady") is None
        True
    """
    own, prefer = _words(constraints.features), _words(constraints.prefer)
    if own is None or prefer is None or set(prefer) - set(own) - CAPACITY_FEATURES - {feature}:
        return None
    return "&".join(dict.fromkeys((*own, *prefer, feature)))


def without(prefer: str, feature: str, constraint: str) -> str:
    """The preference that a job had before; empty if it only repeats the constraint."""
    words = [word for word in _words(prefer) or () if word != feature]
    return "" if set(words) <= set(_words(constraint) or ()) else "&".join(words)


def _words(expression: str) -> tuple[str, ...] | None:
    """Features joined by ``&``; None for any richer expression."""
    if not expression:
        return ()
    return tuple(expression.split("&")) if _PLAIN.fullmatch(expression) else None


class JobSteering:
    """Changes waiting jobs, and undoes its changes. Used by one thread.

    Args:
        feature: The feature of nodes that last.
        max_delay_seconds: How long a job may be held off; 0: never.

    Attributes:
        steered, held_off: Jobs since the start.
    """

    def __init__(
        self,
        *,
        slurm: CloudScheduler,
        jobs: NodeConstraintSource,
        state: StateFile[SteeredJobs],
        clock: Clock,
        feature: str,
        max_delay_seconds: float,
    ) -> None:
        self._slurm = slurm
        self._jobs = jobs
        self._state = state
        self._clock = clock
        self._feature = feature
        self._max_delay = max_delay_seconds
        content = state.read()
        self._preferring = set(content.preferring)
        self._giving = set(content.giving)  # jobs that slurmctld may or may not have given our preference
        self._holds = content.holds
        self._set_in_slurm: dict[int, str] = {}  # excluded nodes that this process has set
        self._waiting: frozenset[int] | None = None  # None: not known yet
        self._not_ours: set[int] = set()  # jobs with a preference of their users' own
        self.steered = self.held_off = 0

    @property
    def now_steered(self) -> frozenset[int]:
        """Jobs that wait with a preference of ours."""
        return frozenset(self._preferring)

    @property
    def now_held(self) -> frozenset[int]:
        """Jobs that are held off shaky nodes now."""
        return frozenset(job for job in self._excluding() if not self._holds[job].is_over)

    @property
    def is_empty(self) -> bool:
        """Whether no job has a change of ours."""
        held = any(hold.given for hold in self._holds.values())
        return not (self._preferring or self._giving or held)

    def forget(self, waiting: Collection[int], others: Collection[int] = ()) -> None:
        """Drop jobs that do not wait any more.

        ``waiting`` are the pending jobs, the only ones that can be changed. ``others`` are running jobs:
        their exclusions are still there if they are requeued, and are undone then.
        """
        self._waiting = frozenset(waiting)
        there = self._waiting.union(others)
        before = (len(self._preferring), len(self._giving), len(self._holds))
        self._preferring &= self._waiting
        self._giving &= self._waiting
        self._not_ours &= self._waiting
        self._holds = {job: hold for job, hold in self._holds.items() if job in there}
        self._set_in_slurm = {
            job: excluded for job, excluded in self._set_in_slurm.items() if job in self._holds
        }
        if before != (len(self._preferring), len(self._giving), len(self._holds)):
            self._save()

    def _excluding(self) -> list[int]:
        """Waiting jobs that exclude nodes because of us."""
        waiting = self._waiting
        return sorted(
            job for job, hold in self._holds.items() if hold.given and (waiting is None or job in waiting)
        )

    def prefer(self, wanted: Collection[int]) -> None:
        """Let these waiting jobs, the most urgent first, prefer nodes that last, and the others not any more.

        A call changes 50 jobs at most.

        Raises:
            RetryLater: slurmctld refused one; the next call tries it again.
        """
        giving = [job for job in wanted if job not in self._preferring and job not in self._not_ours]
        giving = giving[:_MAX_CHANGES]
        taking = sorted((self._preferring | self._giving).difference(wanted))[: _MAX_CHANGES - len(giving)]
        if not (giving or taking):
            return
        if not self._giving.issuperset(giving):
            self._giving.update(giving)
            self._save()  # first: each preference of ours must be on record
        try:
            do_all(lambda: for_each(giving, self._give), lambda: for_each(taking, self._take))
        finally:
            self._save()

    def _give(self, job_id: int) -> None:
        constraints = self._jobs.node_constraints(job_id)
        prefer = preferring(constraints, self._feature)
        if prefer is None:
            self._not_ours.add(job_id)
            self._giving.discard(job_id)
            return
        if prefer != constraints.prefer:  # else its advice has set it at submission
            self._slurm.update_job([job_id], {"prefer": prefer})
            self.steered += 1
            log.info("job.steered", job=job_id, prefer=prefer)
        self._giving.discard(job_id)
        self._preferring.add(job_id)

    def _take(self, job_id: int) -> None:
        constraints = self._jobs.node_constraints(job_id)
        if self._feature in (_words(constraints.prefer) or ()):
            self._slurm.update_job(
                [job_id], {"prefer": without(constraints.prefer, self._feature, constraints.features)}
            )
        self._preferring.discard(job_id)
        self._giving.discard(job_id)

    def hold_off(self, wanted: Collection[int], shaky: Collection[str]) -> None:
        """Hold these jobs off shaky nodes for now, and release the others.

        The caller sees to it that at least one other node can run them.

        Raises:
            RetryLater: slurmctld refused a change; the next call tries it again.
        """
        self._end_overdue()
        expression, held = fold(sorted(shaky)), set[int]()
        if shaky and self._max_delay > 0.0:
            held = {job for job in wanted if job not in self._holds or not self._holds[job].is_over}
        releasing = [job for job in self._excluding() if job not in held]
        do_all(lambda: self._hold(sorted(held), expression), lambda: self._release(releasing))

    def _end_overdue(self) -> None:
        now = self._clock.wall()
        for hold in self._holds.values():
            hold.is_over = hold.is_over or not 0.0 <= now - hold.since < self._max_delay

    def _hold(self, job_ids: Sequence[int], expression: str) -> None:
        changed: list[int] = []

        def prepare(job_id: int) -> None:
            hold = self._holds.get(job_id)
            if hold is None:
                hold = HeldJob(self._clock.wall(), self._jobs.node_constraints(job_id).excluded)
                self._holds[job_id] = hold
                self.held_off += 1
            hold.given = ",".join(filter(None, (hold.own, expression)))
            if self._set_in_slurm.get(job_id) != hold.given:
                changed.append(job_id)

        def exclude(job_id: int) -> None:
            given = self._holds[job_id].given
            self._slurm.update_job([job_id], {"excnodelist": given})
            self._set_in_slurm[job_id] = given
            log.info("job.held_off", job=job_id, nodes=expression, at_most_seconds=self._max_delay)

        def exclude_all() -> None:
            if changed:
                self._save()  # first: an unrecorded exclusion would stay for ever
                for_each(changed, exclude)

        do_all(lambda: for_each(job_ids, prepare), exclude_all)

    def _release(self, job_ids: Sequence[int]) -> None:
        if not job_ids:
            return
        try:
            for_each(job_ids, self._release_one)
        finally:
            self._save()

    def _release_one(self, job_id: int) -> None:
        hold = self._holds[job_id]
        try:
            self._slurm.update_job([job_id], {"excnodelist": hold.own})
        except RetryLater:
            if self._jobs.node_constraints(job_id).excluded == hold.given:
                raise  # else our list is gone already
        hold.given, hold.is_over = "", True  # a job is held off only once
        self._set_in_slurm.pop(job_id, None)
        log.info("job.released", job=job_id)

    def release_overdue(self) -> None:
        """Release jobs that have been held off for the longest time allowed.

        Raises:
            RetryLater: slurmctld refused one; the next call tries it again.
        """
        self._end_overdue()
        self._release([job for job in self._excluding() if self._holds[job].is_over])

    def release_all(self) -> None:
        """Release all jobs held off: at the end of the process, and if nodes cannot be told apart."""
        self._release(self._excluding())

    def _save(self) -> None:
        content = SteeredJobs(
            preferring=sorted(self._preferring)[-_MAX_REMEMBERED:],
            giving=sorted(self._giving),
            holds=self._holds,
        )
        self._state.keep(content, "steering.not_saved")
