"""Jobs of many tasks, as the paper's seismic and genomics workloads are (Agarwal et al., section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput

MINUTE = 60.0
Runtimes: TypeAlias = Literal["uniform", "gaussian", "pareto"]
RUNTIMES: tuple[Runtimes, ...] = ("uniform", "gaussian", "pareto")
CORES = np.array([1, 2, 4])
CORE_SHARES = np.array([0.4, 0.35, 0.25])


@dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """Tasks in order of submission; arrays of length n, seconds.

    Attributes:
        job: Whose task it is; 0 to the number of jobs - 1. A job is complete when its last task is.
        submit: Ascending.
        duration: How long it truly runs.
        estimate: How long the scheduler believes it runs.
        cores: What it needs, from start to end.
    """

    job: Ints
    submit: Floats
    duration: Floats
    estimate: Floats
    cores: Ints

    def __len__(self) -> int:
        return len(self.job)

    def misjudged(self, generator: np.random.Generator, error: float) -> Tasks:
        """The same with estimates off by up to ``error`` (a fraction) either way, uniformly.

        In section 4.2.1 all errors of a run have one sign.
        """
        off = generator.uniform(-error, error, len(self))
        return replace(self, estimate=np.maximum(self.duration * (1.0 + off), 1.0))


def draw_runtimes(generator: np.random.Generator, runtimes: str, count: int, longest: float) -> Floats:
    """Run times of the paper's shapes, up to ``longest`` seconds; it prints no parameter of the last two.

    Uniform from a minute on (Seismic A); Gaussian about the middle of that (Seismic B); Pareto with exponent
    1 from a fifteenth of the longest on (Genomics): many short ones, some of the longest.

    Raises:
        BadInput: Another shape.
    """
    if runtimes == "uniform":
        return generator.uniform(MINUTE, longest, count)
    if runtimes == "gaussian":
        middle = (MINUTE + longest) / 2.0
        drawn = middle + generator.standard_normal(count) * (longest - MINUTE) / 6.0
        return np.clip(drawn, MINUTE, longest)
    if runtimes == "pareto":
        low = longest / 15.0
        share = generator.random(count)
        found: Floats = low / (1.0 - share * (1.0 - low / longest))
        return found
    raise BadInput(
        f"no distribution {runtimes!r}",
        where="--tasks",
        mend="Choose uniform, gaussian, pareto or a file",
        code="tasks.runtimes",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMix:
    """What jobs look like.

    Attributes:
        runtimes: {"uniform", "gaussian", "pareto"}: Shape of the run times.
        longest: Longest task, seconds; tails of the paper's workloads reach over 75 minutes.
        tasks_per_job: Mean; a job's is uniform between a fifth and nine fifths of it.
        most_cores: Tasks never ask for more.
    """

    runtimes: str = "uniform"
    longest: float = 75 * MINUTE
    tasks_per_job: float = 50.0
    most_cores: int = 4


def draw_tasks(
    generator: np.random.Generator,
    mix: TaskMix,
    *,
    cores: float,
    load: float,
    begin: float,
    until: float,
    most: int,
) -> Tasks:
    """Jobs arriving as a Poisson process (section 4.1) that keep so many cores busy to a share ``load``.

    Args:
        generator: Source of chance.
        mix: What jobs look like.
        cores: Mean cores of the cluster.
        load: Core-seconds asked for over core-seconds there are.
        begin, until: Jobs arrive in between, seconds.
        most: Stop after so many tasks.
    """
    choices = CORES[: max(1, np.count_nonzero(mix.most_cores >= CORES))]
    shares = CORE_SHARES[: len(choices)] / CORE_SHARES[: len(choices)].sum()
    sample = draw_runtimes(np.random.default_rng(0), mix.runtimes, 4096, mix.longest)
    work_per_task = float(sample.mean() * (choices * shares).sum())
    gap = work_per_task * mix.tasks_per_job / (load * cores)
    jobs = int(min(most / mix.tasks_per_job, (until - begin) / gap)) + 1
    arrivals = begin + np.cumsum(generator.exponential(gap, jobs))
    arrivals = arrivals[arrivals < until] if np.any(arrivals < until) else np.array([begin])
    low, high = max(1, round(mix.tasks_per_job / 5)), max(1, round(mix.tasks_per_job * 9 / 5))
    sizes = generator.integers(low, high + 1, len(arrivals))
    count = int(sizes.sum())
    duration = draw_runtimes(generator, mix.runtimes, count, mix.longest)
    return Tasks(
        job=np.repeat(np.arange(len(arrivals)), sizes),
        submit=np.repeat(arrivals, sizes),
        duration=duration,
        estimate=duration.copy(),
        cores=generator.choice(choices, count, p=shares),
    )
