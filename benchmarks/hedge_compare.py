"""What the runs of ``benchmarks.hedge`` say, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

_LATE_SECONDS: Final = 5.0
_REQUEUE_SECONDS: Final = 3.0
_SAME_MOMENT_SECONDS: Final = 1.0
"""Two starts nearer than this are in no order: one pass of the scheduler makes both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One job of the stream.

    Attributes:
        at: Seconds since the stream's begin.
        cores: Asked for.
        run_seconds: On-premise; in the cloud longer.
        limit_minutes: Its user's time limit.
        stop_seconds: Stop-loss of its hedge; None: it is none of those that may be hedged.
    """

    at: float
    cores: int
    run_seconds: float
    limit_minutes: int
    stop_seconds: float | None


@dataclass(slots=True)
class Ran:
    """One job in one run: what it wrote itself, seconds since the stream's begin, and what Slurm says.

    Attributes:
        job_id: Slurm's.
        is_hedged: It started in the cloud and kept its place.
        begun, ended: Partition and time.
        state, restarts: Slurm's word.
        start, place_start: By slurmctld's clock, whole seconds: the job's last start, and its placeholder's,
            if that had one.
        submitted: When it was in the queue.
        place_id: Its placeholder's id: whoever has one between the two came in between.
        place_seconds: From its submission until its placeholder was in the queue and written down.
        requeued: By slurmctld's clock, whole seconds; None: it never was.
    """

    job_id: int
    is_hedged: bool = False
    begun: list[tuple[str, float]] = field(default_factory=list)
    ended: list[tuple[str, float]] = field(default_factory=list)
    state: str = ""
    restarts: int = 0
    start: float | None = None
    place_start: float | None = None
    submitted: float = 0.0
    place_id: int | None = None
    place_seconds: float | None = None
    requeued: float | None = None

    @property
    def start_here(self) -> float | None:
        """When it began on-premise."""
        return next((at for where, at in self.begun if where == "onprem"), None)

    @property
    def ended_as_it_was_requeued(self) -> bool:
        """Whether its end in the cloud and its requeue were one moment; it may have waited since then."""
        if len(self.ended) != 2 or self.ended[0][0] != "burst" or self.requeued is None:
            return False
        return abs(self.requeued - self.ended[0][1]) < _REQUEUE_SECONDS

    @property
    def is_back(self) -> bool:
        """Whether it was hedged and began on-premise in the end."""
        return self.is_hedged and self.start_here is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One run of the stream."""

    ran: Sequence[Ran]
    counts: dict[str, int]
    kills: int
    places_left: int


def compared(jobs: Sequence[Arrival], waited: Sequence[Record], kept: Sequence[Record]) -> dict[str, Any]:
    """What became of the hedged jobs, and of the others; each run with places against that of its number."""
    pairs = list(zip(waited, kept, strict=True))
    everything = range(len(jobs))

    def later(choose: Callable[[Ran], bool]) -> list[float]:
        rows = [[n for n in everything if choose(second.ran[n])] for _, second in pairs]
        found = [_later(chosen, *pair) for chosen, pair in zip(rows, pairs, strict=True)]
        return [value for each in found for value in each]

    hedged = [ran for run in kept for ran in run.ran if ran.is_hedged]
    back = [ran for ran in hedged if ran.is_back]
    return {
        "hedged": len(hedged),
        "ended_in_the_cloud": len(hedged) - len(back),
        "brought_back": len(back),
        "counts": [run.counts for run in kept],
        "brought_back_later_seconds": spread(later(lambda ran: ran.is_back)),
        "brought_back_after_own_place_seconds": spread(_after_own_place(back)),
        "brought_back_not_overtaken": _not_overtaken(jobs, pairs),
        "before_the_place": before_the_place(waited, kept),
        "others_later_seconds": spread(later(lambda ran: not ran.is_hedged)),
        "turnaround_saved_seconds": spread(
            [gain for first, second in pairs for gain in _saved(first, second)]
        ),
        "integrity": integrity([*waited, *kept]),
        "requeued_as_they_ended": requeued_as_they_ended(kept),
        "latest": _latest(jobs, pairs),
        "odd_jobs": [
            f"{what}: {job}"
            for what, runs in (("all wait", waited), ("places kept", kept))
            for run in runs
            for job in run.ran
            if len(job.ended) != 1 or job.state != "COMPLETED"
        ][:20],
    }


def by_chance(waited: Sequence[Record], kept: Sequence[Record]) -> dict[str, Any]:
    """By how much runs differ in which all wait: the jobs that came back in each pair, and all.

    Every pair's run of waiting jobs stands against all others of its kind, as if one of them were the run
    with places.
    """
    same, everything = list[float](), list[float]()
    for (number, first), (other, second) in itertools.permutations(enumerate(waited), 2):
        back = [n for n, ran in enumerate(kept[number].ran) if ran.is_back]
        same += _later(back, first, second)
        if number < other:
            everything += _later(range(len(first.ran)), first, second)
    return {"the_same_jobs_later_seconds": spread(same), "all_jobs_later_seconds": spread(everything)}


def _later(rows: Sequence[int], first: Record, second: Record) -> list[float]:
    """By how much each job starts later on-premise in the second run."""
    pairs = [(first.ran[n].start_here, second.ran[n].start_here) for n in rows]
    return [b - a for a, b in pairs if a is not None and b is not None]


def _after_own_place(back: Sequence[Ran]) -> list[float]:
    """Seconds from the start of each job's placeholder, a job like it that simply waited, to its own."""
    return [
        ran.start - ran.place_start for ran in back if ran.start is not None and ran.place_start is not None
    ]


def before_the_place(waited: Sequence[Record], kept: Sequence[Record]) -> dict[str, Any]:
    """What happened between each hedged job's submission and its placeholder's, and whom it cost its turn.

    A job that came in between and started before the placeholder, or before the job where that never ran,
    may have had its slot: not every one of them has, so this is the most that may be put down to it.
    """
    hedged = [(run, n, ran) for run in kept for n, ran in enumerate(run.ran) if ran.is_hedged]
    came = [len(_in_between(run, ran)) for run, _, ran in hedged if ran.place_id is not None]
    passed, late = 0, 0
    for first, run in zip(waited, kept, strict=True):
        for n, ran in enumerate(run.ran):
            begun = ran.place_start if ran.place_start is not None else ran.start
            if not ran.is_back or begun is None:
                continue
            if any(other.start is not None and other.start < begun for other in _in_between(run, ran)):
                passed += 1
                late += sum(seconds > _LATE_SECONDS for seconds in _later([n], first, run))
    return {
        "seconds": spread([ran.place_seconds for _, _, ran in hedged if ran.place_seconds is not None]),
        "jobs_in_between": {
            "mean": float(np.mean(came)),
            "most": max(came),
            "share_with_none": float(np.mean([count == 0 for count in came])),
        }
        if came
        else {},
        "brought_back_passed_by_them": passed,
        f"of_these_later_than_{_LATE_SECONDS:.0f}_s": late,
    }


def _in_between(run: Record, ran: Ran) -> list[Ran]:
    """Jobs that went to the on-premise queue after a job and before its placeholder."""
    end = ran.place_id
    return [
        other
        for other in run.ran
        if end is not None and ran.job_id < other.job_id < end and not other.is_hedged
    ]


def _not_overtaken(jobs: Sequence[Arrival], pairs: Sequence[tuple[Record, Record]]) -> dict[str, Any]:
    """Share of the jobs brought back that nobody has overtaken who came later and asked for no less.

    Where all wait nobody overtakes so, but by chance: that share of the same jobs stands beside it.
    """
    kept, waited = list[bool](), list[bool]()
    for first, second in pairs:
        for n, ran in enumerate(second.ran):
            if ran.is_back:
                kept.append(not _overtakers(jobs, second, n))
                waited.append(not _overtakers(jobs, first, n))
    if not kept:
        return {"jobs": 0}
    return {"jobs": len(kept), "share": float(np.mean(kept)), "share_where_all_wait": float(np.mean(waited))}


def _overtakers(jobs: Sequence[Arrival], run: Record, row: int) -> list[int]:
    own, start = jobs[row], run.ran[row].start_here
    if start is None:
        return []
    return [
        n
        for n in range(row + 1, len(jobs))
        if jobs[n].cores >= own.cores
        and jobs[n].limit_minutes >= own.limit_minutes
        and (other := run.ran[n].start_here) is not None
        and other < start - _SAME_MOMENT_SECONDS
    ]


def _latest(jobs: Sequence[Arrival], pairs: Sequence[tuple[Record, Record]]) -> list[dict[str, Any]]:
    """The ten jobs brought back latest, for whoever wants to know why."""
    found = list[dict[str, Any]]()
    for number, (first, second) in enumerate(pairs):
        for n, ran in enumerate(second.ran):
            then, now = first.ran[n].start_here, ran.start_here
            if not ran.is_back or then is None or now is None:
                continue
            found.append(
                {
                    "pair": number,
                    "job": ran.job_id,
                    "cores": jobs[n].cores,
                    "submitted": jobs[n].at,
                    "stop_seconds": jobs[n].stop_seconds,
                    "start_had_it_waited": then,
                    "later_seconds": now - then,
                    "after_own_place_seconds": next(iter(_after_own_place([ran])), None),
                    "overtaken_by": len(_overtakers(jobs, second, n)),
                    "placeholder_after_seconds": ran.place_seconds,
                    "came_in_between": len(_in_between(second, ran)),
                }
            )
    return sorted(found, key=lambda job: float(job["later_seconds"]), reverse=True)[:10]


def _saved(waited: Record, kept: Record) -> list[float]:
    ends = [(then.ended, now.ended) for then, now in zip(waited.ran, kept.ran, strict=True) if now.is_hedged]
    return [a[0][1] - b[-1][1] for a, b in ends if a and b]


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean, quantiles, and the shares that are not above zero and a few seconds."""
    if not values:
        return {"jobs": 0}
    found = np.asarray(values)
    low, middle, high = np.quantile(found, [0.05, 0.5, 0.95])
    shares = {
        f"share_not_later_than_{seconds}_s": float((found <= seconds).mean()) for seconds in (1, 2, 3, 5)
    }
    return {
        "jobs": len(found),
        "mean": float(found.mean()),
        "p5": float(low),
        "median": float(middle),
        "p95": float(high),
        "most": float(found.max()),
        "share_not_later": float((found <= 0.0).mean()),
        **shares,
    }


def requeued_as_they_ended(runs: Sequence[Record]) -> int:
    """Jobs that ended in the cloud in the moment they were requeued, and were done once more here.

    slurmctld takes the requeue if it comes before the node's report: nobody can know better. Never both at
    once.
    """
    return sum(job.ended_as_it_was_requeued for run in runs for job in run.ran)


def integrity(runs: Sequence[Record]) -> dict[str, int]:
    """What must not happen, counted."""
    ran = [job for each in runs for job in each.ran]
    return {
        "jobs": len(ran),
        "lost": sum(not job.ended for job in ran),
        "ended_twice": sum(len(job.ended) > 1 and not job.ended_as_it_was_requeued for job in ran),
        "begun_twice_on_premise": sum(
            len([where for where, _ in job.begun if where == "onprem"]) > 1 for job in ran
        ),
        "begun_in_the_cloud_after_on_premise": sum(
            "onprem" in [where for where, _ in job.begun[:-1]] for job in ran
        ),
        "not_completed": sum(job.state != "COMPLETED" for job in ran),
        "restarted_more_than_once": sum(job.restarts > 1 for job in ran),
        "placeholders_left": sum(each.places_left for each in runs),
    }
