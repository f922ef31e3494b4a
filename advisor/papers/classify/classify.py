"""Zrigui et al., section 4.3: a log classified week by week, each week by the model of the weeks before.

What "right" means: in week *k* (of seven days from the first submission, k = 1, 2, ...) the divider is the
median run time of all jobs that had finished before that week began; a job submitted in it is *small* when
its run time is below that divider. Nothing is looked ahead; the paper's Table 2 takes the whole log's median,
its section 5.2 that of the previous week.
The first week has neither model nor divider: its jobs are classed large and not judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.model.table import JobTable
from advisor.papers.classify.published import PaperTraining, paper_rows
from advisor.predict.size.size_features import replay_features
from advisor.predict.size.size_history import WEEK_SECONDS, SizeHistory, WeeklyDividers
from advisor.predict.size.size_training import ADVISOR, SizeTraining, fit, training_set
from advisor.predict.trees.forest import TreeEnsemble

Progress = Callable[[int, int], None]
Flavour: TypeAlias = Literal["paper", "advisor"]
TRAINING: Final[dict[Flavour, SizeTraining]] = {"paper": PaperTraining(), "advisor": ADVISOR}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassifiedJobs:
    """A classified log; all columns have the table's length and order.

    Attributes:
        probability: The model's vote for small; 0 where there was no model (first week).
        divider: Seconds; the divider in force at the submission, NaN in the first week.
        is_small: The class at the probability cut asked for.
        week: Week of the submission, from 0.
        truly_small: Run time below the divider in force.
        judged: There was a divider, and the job ran.
        train_seconds: What each training took.
    """

    probability: NDArray[np.float64]
    divider: NDArray[np.float64]
    is_small: NDArray[np.bool_]
    week: NDArray[np.int64]
    truly_small: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    train_seconds: NDArray[np.float64]

    def score(self, jobs: NDArray[np.bool_] | None = None) -> dict[str, float]:
        """Equations 1 to 3 on the judged jobs (among ``jobs``, when given).

        ``false_small_share`` is the share of all judged jobs that were classed small and ran for the divider
        or longer: what the watch loop restarts. NaN where a ratio has no denominator.
        """
        judged = self.judged if jobs is None else self.judged & jobs
        said, true = self.is_small[judged], self.truly_small[judged]
        count = len(said)
        true_small = int(np.sum(said & true))
        return {
            "accuracy": _ratio(int(np.sum(said == true)), count),
            "precision": _ratio(true_small, int(np.sum(said))),
            "recall": _ratio(true_small, int(np.sum(true))),
            "false_small_share": _ratio(int(np.sum(said & ~true)), count),
        }


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def classify_table(
    table: JobTable,
    mode: Flavour = "advisor",
    *,
    probability_cut: float = 0.5,
    parameters: SizeTraining | None = None,
    progress: Progress | None = None,
) -> ClassifiedJobs:
    """Class every job of a log from what was known when it was submitted, training once a week.

    Args:
        table: A log, e.g. ``read_table(path, keep="ran")``.
        mode: {"paper", "advisor"}: The published classifier or the product's.
        probability_cut: A job is small from this probability on.
        parameters: Another way to train than the mode's own (for ablations).
        progress: Called with (weeks done, weeks).
    """
    training = parameters if parameters is not None else TRAINING[mode]
    history = SizeHistory.from_table(table)
    dividers = WeeklyDividers.of(history)
    rows = paper_rows(history, dividers) if mode == "paper" else replay_features(history, dividers).rows
    probability, seconds = _weekly(history, dividers, rows, training, progress)
    divider = dividers.at(history.submit)
    back = np.empty(len(table), np.int64)
    back[np.argsort(table.submit, kind="stable")] = np.arange(len(table))
    with np.errstate(invalid="ignore"):
        truly_small = history.run < divider
    return ClassifiedJobs(
        probability=probability[back],
        divider=divider[back],
        is_small=((probability >= probability_cut) & ~np.isnan(divider))[back],
        week=dividers.week_of(history.submit)[back],
        truly_small=truly_small[back],
        judged=(history.ran & ~np.isnan(divider))[back],
        train_seconds=np.array(seconds),
    )


def _weekly(
    history: SizeHistory,
    dividers: WeeklyDividers,
    rows: NDArray[np.float32],
    training: SizeTraining,
    progress: Progress | None,
) -> tuple[NDArray[np.float64], list[float]]:
    """Probabilities of all jobs, and what each training took."""
    probability = np.zeros(len(history))
    seconds: list[float] = []
    for week, jobs in _weeks(history, dividers, progress):
        began = time.perf_counter()
        model = _trained(history, dividers, rows, training, week)
        if model is None:
            continue
        seconds.append(time.perf_counter() - began)
        probability[jobs] = model.predict(rows[jobs])
    return probability, seconds


def _trained(
    history: SizeHistory,
    dividers: WeeklyDividers,
    rows: NDArray[np.float32],
    training: SizeTraining,
    week: int,
) -> TreeEnsemble | None:
    now = dividers.origin + week * WEEK_SECONDS
    chosen = training_set(history, now, float(dividers.seconds[week]), training)
    return fit(rows[chosen.jobs], chosen.small, training)


def _weeks(
    history: SizeHistory, dividers: WeeklyDividers, progress: Progress | None
) -> Iterator[tuple[int, slice]]:
    """Weeks after the first that have jobs and a divider, and their rows."""
    week = dividers.week_of(history.submit)
    last = int(week[-1]) if len(week) else 0
    for number in range(1, last + 1):
        begin, end = np.searchsorted(week, [number, number + 1])
        if begin < end and not np.isnan(dividers.seconds[number]):
            yield number, slice(int(begin), int(end))
        if progress is not None:
            progress(number, last)


def report(
    table: JobTable,
    modes: tuple[Flavour, ...] = ("paper", "advisor"),
    *,
    probability_cut: float = 0.5,
    progress: Callable[[Flavour, int, int], None] | None = None,
) -> dict[str, Any]:
    """What ``advisor replay classify --format json`` prints.

    ``divider_seconds`` is the last week's divider; ``train_seconds_per_week`` the mean over the trainings of
    the last mode asked for (the product's, by default).
    """
    began = time.perf_counter()
    classified: dict[Flavour, ClassifiedJobs] = {}
    for mode in modes:
        tick = None if progress is None else _bound(progress, mode)
        classified[mode] = classify_table(table, mode, probability_cut=probability_cut, progress=tick)
    last = classified[modes[-1]]
    return {
        "trace": table.name,
        "jobs_judged": int(last.judged.sum()),
        "probability_cut": probability_cut,
        "modes": {mode: _of_mode(jobs) for mode, jobs in classified.items()},
        "weeks": _of_weeks(classified),
        "train_seconds_per_week": float(last.train_seconds.mean()) if len(last.train_seconds) else None,
        "seconds": time.perf_counter() - began,
    }


def _bound(progress: Callable[[Flavour, int, int], None], mode: Flavour) -> Progress:
    return lambda done, total: progress(mode, done, total)


def _of_mode(jobs: ClassifiedJobs) -> dict[str, Any]:
    dividers = jobs.divider[jobs.judged]
    return {
        **jobs.score(),
        "divider_seconds": float(dividers[-1]) if len(dividers) else None,
        "small_share": float(jobs.truly_small[jobs.judged].mean()) if len(dividers) else None,
        "train_seconds_per_week": float(jobs.train_seconds.mean()) if len(jobs.train_seconds) else None,
    }


def _of_weeks(classified: dict[Flavour, ClassifiedJobs]) -> list[dict[str, Any]]:
    some = next(iter(classified.values()))
    weeks = []
    for week in np.unique(some.week[some.judged]).tolist():
        jobs = some.week == week
        judged = some.judged & jobs
        weeks.append(
            {
                "week": week,
                "jobs": int(judged.sum()),
                "divider_seconds": float(some.divider[judged][0]),
                "modes": {mode: found.score(jobs) for mode, found in classified.items()},
            }
        )
    return weeks
