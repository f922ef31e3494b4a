"""The simulated cluster that may rent: jobs and a policy in, what was waited and rented out."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Bools, Floats, Ints
from advisor.decide.submission.waiting_policy import LEAVES, RENTS, SPECULATES, WAITS
from advisor.model.errors import BadInput
from advisor.model.table import limits_of
from advisor.papers.waiting.world import _kernel
from advisor.papers.waiting.world._habits import HABIT, NOT_SURE, RUN_FEATURES
from advisor.papers.waiting.world._observe import FEATURES
from advisor.papers.waiting.world._state import (
    JOB,
    RENTED,
    RUNNING,
    SIZE_CLASSES,
    WORLD,
    Forest,
    Rules,
    World,
    heap,
)
from advisor.simulate.heap import ENDING

SAMPLE_COLUMNS = 2 + FEATURES
NO_TREES_EDGES = np.array([0.0, 1.0])


class Dispatch(enum.StrEnum):
    """Which waiting job starts next on fixed cores."""

    FCFS = "fcfs"
    """The first in the queue that fits, work-conserving (Ambati et al., section 2.3)."""
    SJF = "sjf"
    """The least core-seconds first among those that fit, work-conserving. True run times are known, as in the
    paper's SJF with perfect knowledge (section 2.3)."""
    EASY = "easy"
    """First come, first served, a reservation for the head, backfilling."""


class Length(enum.IntEnum):
    """How it is known whether a job is short."""

    GIVEN = _kernel.GIVEN
    FORECAST = _kernel.FORECAST
    SPECULATION = _kernel.SPECULATION


class Wait(enum.IntEnum):
    """How it is known whether a job would wait too long."""

    PATIENCE = _kernel.PATIENCE
    """It is not: a job waits and leaves when it has waited the longest wait."""
    MODEL = _kernel.MODEL
    FLUID = _kernel.FLUID
    """The predicted work before it, over the fixed cores."""


class Mode(enum.IntEnum):
    """What a job does that cannot start at once, where its length is given."""

    WAITS = WAITS
    LEAVES = LEAVES
    SPECULATES = SPECULATES
    RENTS = RENTS
    """It is rented for without even trying: known never to start on fixed cores."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """Jobs in submission order, one array of length n a column; seconds.

    Attributes:
        submit, run, requested: Submission (ascending), true run time (above 0), limit.
        processors: At least 1.
        user, program, alike: Codes of habits, each its own range: a user, what the user runs, and what the
            user asks for.
        queue: Code of the queue.
        revoked_after: Seconds after which a spot node would be taken from the job; infinite: never.
    """

    submit: Floats
    run: Floats
    requested: Floats
    processors: Ints
    user: Ints
    program: Ints
    alike: Ints
    queue: Ints
    revoked_after: Floats

    def __len__(self) -> int:
        return len(self.submit)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRules:
    """A policy as the simulated cluster follows it; see ``advisor.papers.waiting.waiting_policies``.

    Attributes:
        length, wait: What is known.
        dispatch: Which waiting job is next.
        trial_seconds: t: how long a job is tried out, and up to what a job is short.
        longest_wait_seconds: b.
        skip_below: No trial for a job whose chance of being short is less.
        ask_again_seconds: The wait model is asked again for the whole queue this often.
        keep_every: One in so many of what the model sees again is kept to learn from; 0: nothing is kept.
        learns: Run times are forecast and learned from here; other worlds are told the forecasts.
    """

    length: Length = Length.GIVEN
    wait: Wait = Wait.PATIENCE
    dispatch: Dispatch = Dispatch.FCFS
    trial_seconds: float = 900.0
    longest_wait_seconds: float = 86_400.0
    skip_below: float = 0.0
    ask_again_seconds: float = 7_200.0
    keep_every: int = 0
    learns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What became of each job; arrays of length n.

    Attributes:
        start: Of the run that finished, seconds; NaN before.
        on_fixed: Whether that was on fixed cores.
        spot_seconds, ondemand_seconds: Rented for the job (times its processors: core-seconds).
        restarts: 1 for a job tried out in vain.
        left_early: Sent to on-demand before its longest wait was over.
    """

    start: Floats
    on_fixed: Bools
    spot_seconds: Floats
    ondemand_seconds: Floats
    restarts: Ints
    left_early: Bools


def no_trees() -> Forest:
    """A forest that knows nothing."""
    empty = np.empty(0, np.int32)
    return Forest(
        roots=empty,
        feature=empty,
        threshold=np.empty(0),
        children=np.empty((0, 2), np.int32),
        leaf=empty,
        mean=np.empty(0),
        tail=np.empty((0, 2), np.float32),
        edges=NO_TREES_EDGES,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Simulation:
    """One policy's world, gone through step by step.

    Attributes:
        workload: The jobs.
        cores: Fixed cores; jobs larger than all of them are rented for.
        rules: The policy.
        modes: A `Mode` for each job, where lengths are given; all wait by default.
        sample_room: Newest samples that are kept.
    """

    workload: Workload
    cores: int
    rules: WorldRules
    modes: Ints | None = None
    sample_room: int = 1
    _world: World = field(init=False)
    _numbers: Rules = field(init=False)
    _scratch: Floats = field(init=False)

    def __post_init__(self) -> None:
        refuse_unsound(self.workload, self.cores)
        rules = self.rules
        self._numbers = Rules(
            total=self.cores,
            easy=rules.dispatch is Dispatch.EASY,
            trial=rules.trial_seconds,
            longest_wait=rules.longest_wait_seconds,
            knows_wait=int(rules.wait),
            length_from=int(rules.length),
            skip_below=rules.skip_below,
            ask_again=rules.ask_again_seconds,
            keep_every=rules.keep_every,
            learns=rules.learns,
        )
        self._world = self._fresh()
        self._scratch = np.zeros(FEATURES)

    def advance(
        self, until: float, *, waits: Forest | None = None, runs: Forest | None = None, price: float = 0.0
    ) -> None:
        """Go on with everything before ``until``.

        Args:
            until: Seconds; infinite: to the end.
            waits, runs: Trained forests of waits and of run times; none knows nothing.
            price: Core-seconds worth paying to save a job one second of waiting; 0: only b counts.
        """
        self._world.world["price"] = price
        nothing = no_trees()
        _kernel.advance(
            self._world, self._numbers, waits or nothing, runs or nothing, float(until), self._scratch
        )

    def outcome(self) -> Outcome:
        """What became of the jobs so far."""
        job = self._world.job
        return Outcome(
            start=np.where(job["where"] >= RUNNING, job["start"], np.nan),
            on_fixed=(job["where"] >= RUNNING) & (job["where"] != RENTED),
            spot_seconds=job["spot"].copy(),
            ondemand_seconds=job["ondemand"].copy(),
            restarts=job["restarts"].copy(),
            left_early=job["left_early"] == 1,
        )

    @property
    def jobs(self) -> NDArray[np.void]:
        """The kernel's records, for reading."""
        return self._world.job  # type: ignore[no-any-return]

    def ended(self, by: float) -> Bools:
        """Which jobs have ended by a moment, wherever they ran."""
        job = self._world.job
        found: Bools = (job["where"] >= RUNNING) & (job["end"] <= by)
        return found

    @property
    def run_samples(self) -> Floats:
        """What run times were forecast from, one row a job; rows of jobs not submitted yet are 0."""
        return self._world.run_samples

    def samples(self) -> tuple[Ints, Floats, Floats]:
        """What the wait model saw: rows of the jobs, times, features; oldest first."""
        count = int(self._world.world["samples"][0])
        room = len(self._world.samples)
        table = self._world.samples[:count]
        if count > room:
            table = np.roll(self._world.samples, -(count % room), axis=0)
        return table[:, 0].astype(np.int64), table[:, 1].copy(), table[:, 2:].copy()

    def take_forecasts(self, learner: Simulation) -> None:
        """Know of every job submitted there since this world stands what the learning world forecast."""
        new = slice(int(self._world.world["arrived"][0]), int(learner._world.world["arrived"][0]))
        for name in ("mean_run", "median_run", "short_chance"):
            self._world.job[name][new] = learner._world.job[name][new]

    def _fresh(self) -> World:
        count, load = len(self.workload), self.workload
        job = np.zeros(count, JOB)
        for name in ("submit", "run", "processors", "requested", "user", "program", "alike", "revoked_after"):
            job[name] = getattr(load, name)
        job["planned"] = job["mean_run"] = job["median_run"] = load.requested
        job["queue_code"] = load.queue
        job["short_chance"] = NOT_SURE
        job["start"] = job["end"] = job["queued"] = np.nan
        if self.rules.dispatch is Dispatch.SJF:
            job["key"] = load.run * load.processors
        if self.modes is not None:
            job["mode"] = self.modes
        learned = self.rules.learns
        codes = int(load.alike.max()) + 1 if count and learned else 1
        running = min(count, self.cores) + 1
        world = np.zeros(1, WORLD)
        world["free"] = self.cores
        classes = np.zeros((SIZE_CLASSES, 2))
        return World(
            job=job,
            queue=np.zeros(count + 1, np.int64),
            running=np.zeros(running, np.int64),
            ending=heap(running),
            trial=heap(count + 1 if self.rules.length is Length.SPECULATION else _held(self.modes, count)),
            lease=np.zeros(count + 1 if learned else 1, ENDING),
            classes=classes,
            samples=np.zeros((max(self.sample_room, 1), SAMPLE_COLUMNS)),
            habits=np.zeros((codes, HABIT)),
            run_samples=np.zeros((count if learned else 1, RUN_FEATURES)),
            world=world,
        )


def _held(modes: Ints | None, count: int) -> int:
    """Room for the jobs that may be tried out."""
    return 1 if modes is None else min(count, int(np.count_nonzero(modes == SPECULATES))) + 1


def refuse_unsound(workload: Workload, cores: int) -> None:
    """Refuse what no cluster could run.

    Raises:
        BadInput: Disorder, values out of range, or no cores.
    """
    troubles = {
        "a machine has no cores": cores < 1,
        "jobs are not in submission order": bool(np.any(np.diff(workload.submit) < 0)),
        "a job has no run time": not np.all((workload.run > 0) & np.isfinite(workload.run)),
        "a job has no processors": bool(np.any(workload.processors < 1)),
        "a requested time is not above 0": not np.all(workload.requested > 0),
    }
    for trouble, found in troubles.items():
        if found:
            raise BadInput(
                trouble, where="simulated workload", mend="Clean the jobs first", code="simulate.waiting"
            )


def workload_of(
    submit: Floats,
    run: Floats,
    processors: Ints,
    requested: Floats,
    *,
    user: Ints,
    program: Ints,
    queue: Ints,
    revoked_after: Floats | None = None,
) -> Workload:
    """Jobs with the codes of their habits.

    Args:
        submit, run, processors, requested: As in `Workload`; NaN where no time was requested, which counts as
            ``limits_of`` says.
        user, program, queue: Nominal codes; any numbers.
        revoked_after: Never, by default.
    """
    asked = np.where(np.isnan(requested), -1.0, requested)
    users = np.unique(user, return_inverse=True)[1]
    programs = _codes(user, program)
    alike = _codes(user, processors, asked)
    after_users = int(users.max(initial=-1)) + 1
    after_programs = after_users + int(programs.max(initial=-1)) + 1
    return Workload(
        submit=submit,
        run=run,
        requested=np.maximum(limits_of(requested, run), 1.0),
        processors=processors,
        user=users,
        program=programs + after_users,
        alike=alike + after_programs,
        queue=np.unique(queue, return_inverse=True)[1],
        revoked_after=np.full(len(submit), np.inf) if revoked_after is None else revoked_after,
    )


def _codes(*columns: NDArray[np.int64] | Floats) -> Ints:
    """One code for each different row of the columns."""
    table = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
    return np.unique(table, axis=0, return_inverse=True)[1].astype(np.int64).ravel()
