"""Long jobs that wait are told which nodes they would like: softly, visibly, and so that it ends by itself.

A steered job *prefers* the steady feature (``Prefer=`` in ``scontrol show job``). slurmctld starts it on a
steady node if one can be had at that moment and on any other if not, so a preference makes nobody wait, and
nothing depends on us once it is set. Only a job that the match maker would rather have wait is held off the
shaky nodes (``ExcNodeList=``), for a bounded time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, Protocol

import structlog

from advisor.files.state_file import StateFile
from advisor.model.errors import RetryLater
from advisor.service.observation.advice_of_jobs import CAPACITY_FEATURES
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import do_all, for_each
from advisor.service.state.records import HeldJob, SteeredJobs
from advisor.slurm.node_sets import fold
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.running_jobs import NodeConstraints

log = structlog.get_logger(__name__)

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]+(&[A-Za-z0-9_.-]+)*")
_MAX_REMEMBERED: Final = 20_000
_MAX_CHANGES: Final = 50  # of preferences in one round: two commands each


class AskWishes(Protocol):
    """What is asked of :class:`advisor.slurm.running_jobs.RunningJobs`."""

    def node_constraints(self, job_id: int) -> NodeConstraints:
        """Which nodes a job asks for, prefers and refuses."""
        ...


def preferring(wishes: NodeConstraints, feature: str) -> str | None:
    """The preference to give a job, or None: the user has said something of his own that must stay.

    Where slurmctld can satisfy a preference it uses it *instead of* the constraint, which is therefore
    repeated in it.

    Examples
    --------
    >>> preferring(NodeConstraints(features="cloud", prefer="cloud&spot"), "steady")
    'cloud&spot&steady'
    >>> preferring(NodeConstraints(prefer="avx512"), "steady") is None
    True
    """
    own, prefer = _words(wishes.features), _words(wishes.prefer)
    if own is None or prefer is None or set(prefer) - set(own) - CAPACITY_FEATURES - {feature}:
        return None
    return "&".join(dict.fromkeys((*own, *prefer, feature)))


def without(prefer: str, feature: str, constraint: str) -> str:
    """The preference a job had before; one that only repeats its constraint is none."""
    words = [word for word in _words(prefer) or () if word != feature]
    return "" if set(words) <= set(_words(constraint) or ()) else "&".join(words)


def _words(expression: str) -> tuple[str, ...] | None:
    """Features joined by ``&``; None for anything richer."""
    if not expression:
        return ()
    return tuple(expression.split("&")) if _PLAIN.fullmatch(expression) else None


class JobSteering:
    """Changes waiting jobs, and takes back what it changed. Used by one thread.

    Parameters
    ----------
    slurm : SlurmBackend
        Told.
    jobs : AskWishes
        What a job wishes already.
    state : StateFile of SteeredJobs
        Which jobs have a wish of ours, for the next process.
    clock : Clock
        Time.
    feature : str
        The steady feature.
    longest_delay_seconds : float
        How long a job may be held off; 0: never.

    Attributes
    ----------
    steered, held_off : int
        Jobs so far since the start.
    """

    def __init__(
        self,
        *,
        slurm: SlurmBackend,
        jobs: AskWishes,
        state: StateFile[SteeredJobs],
        clock: Clock,
        feature: str,
        longest_delay_seconds: float,
    ) -> None:
        self._slurm = slurm
        self._jobs = jobs
        self._state = state
        self._clock = clock
        self._feature = feature
        self._longest = longest_delay_seconds
        content = state.read()
        self._preferring = set(content.preferring)
        self._giving = set(content.giving)  # written down, but slurmctld may not have taken it
        self._holds = content.holds
        self._told: dict[int, str] = {}  # what a job refuses, as slurmctld took it from this process
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
        return frozenset(job for job in self._given() if not self._holds[job].is_over)

    @property
    def is_empty(self) -> bool:
        """Whether no job has a wish of ours."""
        held = any(hold.given for hold in self._holds.values())
        return not (self._preferring or self._giving or held)

    def forget(self, waiting: Collection[int], others: Collection[int] = ()) -> None:
        """Drop what concerns jobs that do not wait any more.

        Parameters
        ----------
        waiting : collection of int
            Pending jobs; only these can be changed.
        others : collection of int
            Jobs that run: what these refuse they refuse still when they are requeued, and it is undone then.
        """
        self._waiting = frozenset(waiting)
        there = self._waiting.union(others)
        before = (len(self._preferring), len(self._giving), len(self._holds))
        self._preferring &= self._waiting
        self._giving &= self._waiting
        self._not_ours &= self._waiting
        self._holds = {job: hold for job, hold in self._holds.items() if job in there}
        self._told = {job: told for job, told in self._told.items() if job in self._holds}
        if before != (len(self._preferring), len(self._giving), len(self._holds)):
            self._save()

    def _given(self) -> list[int]:
        """Waiting jobs that refuse nodes because of us."""
        waiting = self._waiting
        return sorted(
            job for job, hold in self._holds.items() if hold.given and (waiting is None or job in waiting)
        )

    def prefer(self, wanted: Collection[int]) -> None:
        """Let these waiting jobs prefer steady nodes, and the others not any more; some dozens in a call.

        Parameters
        ----------
        wanted : collection of int
            Waiting jobs, the most urgent first.

        Raises
        ------
        RetryLater
            slurmctld did not take one; it is tried again with the next call.
        """
        there = set(wanted)
        giving = [job for job in wanted if job not in self._preferring and job not in self._not_ours]
        giving = giving[:_MAX_CHANGES]
        taking = sorted((self._preferring | self._giving) - there)[: _MAX_CHANGES - len(giving)]
        if not (giving or taking):
            return
        if not self._giving.issuperset(giving):
            self._giving.update(giving)
            self._save()  # first: of each preference of ours somebody must know
        try:
            do_all(lambda: for_each(giving, self._give), lambda: for_each(taking, self._take))
        finally:
            self._save()

    def _give(self, job_id: int) -> None:
        wishes = self._jobs.node_constraints(job_id)
        prefer = preferring(wishes, self._feature)
        if prefer is None:
            self._not_ours.add(job_id)
            self._giving.discard(job_id)
            return
        if prefer != wishes.prefer:  # else the advice at its submission said so already
            self._slurm.update_job([job_id], {"prefer": prefer})
            self.steered += 1
            log.info("job.steered", job=job_id, prefer=prefer)
        self._giving.discard(job_id)
        self._preferring.add(job_id)

    def _take(self, job_id: int) -> None:
        wishes = self._jobs.node_constraints(job_id)
        if self._feature in (_words(wishes.prefer) or ()):
            self._slurm.update_job(
                [job_id], {"prefer": without(wishes.prefer, self._feature, wishes.features)}
            )
        self._preferring.discard(job_id)
        self._giving.discard(job_id)

    def hold_off(self, wanted: Collection[int], shaky: Collection[str]) -> None:
        """Hold these jobs off shaky nodes for now, and let go of the others.

        Parameters
        ----------
        wanted : collection of int
            Waiting jobs.
        shaky : collection of str
            Nodes; at least one other that can be had must be left, which is the caller's to see to.

        Raises
        ------
        RetryLater
            slurmctld did not take a change; it is tried again with the next call.
        """
        self._look_at_bounds()
        expression = fold(sorted(shaky)) if shaky else ""
        held = {
            job
            for job in wanted
            if expression and self._longest > 0.0 and (job not in self._holds or not self._holds[job].is_over)
        }
        letting_go = [job for job in self._given() if job not in held]
        do_all(lambda: self._hold(sorted(held), expression), lambda: self._let_them_go(letting_go))

    def _look_at_bounds(self) -> None:
        now = self._clock.wall()
        for hold in self._holds.values():
            hold.is_over = hold.is_over or not 0.0 <= now - hold.since < self._longest

    def _hold(self, job_ids: Sequence[int], expression: str) -> None:
        changed: list[int] = []

        def prepare(job_id: int) -> None:
            hold = self._holds.get(job_id)
            if hold is None:
                hold = HeldJob(self._clock.wall(), self._jobs.node_constraints(job_id).excluded)
                self._holds[job_id] = hold
                self.held_off += 1
            hold.given = ",".join(filter(None, (hold.own, expression)))
            if self._told.get(job_id) != hold.given:
                changed.append(job_id)

        def tell(job_id: int) -> None:
            given = self._holds[job_id].given
            self._slurm.update_job([job_id], {"excnodelist": given})
            self._told[job_id] = given
            log.info("job.held_off", job=job_id, nodes=expression, at_most_seconds=self._longest)

        def tell_all() -> None:
            if changed:
                self._save()  # first: a hold of which nobody knows would be there for ever
                for_each(changed, tell)

        do_all(lambda: for_each(job_ids, prepare), tell_all)

    def _let_them_go(self, job_ids: Sequence[int]) -> None:
        if not job_ids:
            return
        try:
            for_each(job_ids, self._let_go)
        finally:
            self._save()

    def _let_go(self, job_id: int) -> None:
        hold = self._holds[job_id]
        try:
            self._slurm.update_job([job_id], {"excnodelist": hold.own})
        except RetryLater:
            if self._jobs.node_constraints(job_id).excluded == hold.given:
                raise
        hold.given, hold.is_over = "", True  # once a job: who has waited goes next
        self._told.pop(job_id, None)
        log.info("job.let_go", job=job_id)

    def let_go_in_time(self) -> None:
        """Let go of those that have been held off for as long as any job may be.

        Raises
        ------
        RetryLater
            slurmctld did not take one; it is tried again with the next call.
        """
        self._look_at_bounds()
        self._let_them_go([job for job in self._given() if self._holds[job].is_over])

    def let_all_go(self) -> None:
        """Nobody is held off any more: at the end of the process, and where nodes are not told apart."""
        self._let_them_go(self._given())

    def _save(self) -> None:
        content = SteeredJobs(
            preferring=sorted(self._preferring)[-_MAX_REMEMBERED:],
            giving=sorted(self._giving),
            holds=self._holds,
        )
        self._state.keep(content, "steering.not_saved")
