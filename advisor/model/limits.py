"""Limits of users, accounts, QOS, arrays and licences that hold waiting jobs, read from Slurm's reasons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from advisor.model.cluster import Limit
from advisor.model.snapshot import QueuedJob

_JOBS: Final = "jobs"
_OF_WORDS: Final = (("job", _JOBS), ("node", "nodes"), ("mem", "memory"), ("gres", "gpus"))
_FOR_EVER: Final = ("perjob", "pernode", "timelimit", "submit", "notallowed", "notsatisfied", "wall", "usage")
"""In reasons of jobs that no other job's end lets start."""


def limit_of(queued: QueuedJob) -> Limit | None:
    """The limit that holds a waiting job, by its reason."""
    job, reason, word = queued.job, queued.reason, queued.reason.casefold()
    if queued.reason == "JobArrayTaskLimit":
        return Limit(other=f"array {queued.array_job_id}", reason=reason)
    if queued.reason == "Licenses":
        return Limit(other=f"licences {job.licenses}", reason=reason)
    if not word.startswith(("qos", "assoc")):
        return None
    unit = next((unit for part, unit in _OF_WORDS if part in word), "processors")
    if "peruser" in word:
        return Limit(user=job.user, qos=job.qos, unit=unit, reason=reason)
    if "peraccount" in word:
        return Limit(account=job.account, qos=job.qos, unit=unit, reason=reason)
    if word.startswith("qosgrp"):
        return Limit(qos=job.qos, unit=unit, reason=reason)
    if word.startswith("assocgrp"):
        return Limit(account=job.account, unit=unit, reason=reason)
    qos = job.qos if word.startswith("qos") else None
    return Limit(user=job.user, account=None if qos else job.account, qos=qos, unit=unit, reason=reason)


def never_starts(queued: QueuedJob) -> bool:
    """Whether a limit holds a waiting job that the end of no other job lifts."""
    word = queued.reason.casefold()
    if not word.startswith(("qos", "assoc")):
        return False
    return any(part in word for part in _FOR_EVER) or ("minutes" in word and "runminutes" not in word)


class HeldJobs(NamedTuple):
    """The jobs that count towards the limits that hold some.

    Attributes:
        limits: In the order of their numbers, from 1.
        counted: Job id to the number of its limit, and what one task takes of it.
        left: What each limit leaves, as far as is known: less than any job takes that it is seen to hold.
    """

    limits: tuple[Limit, ...] = ()
    counted: Mapping[int, tuple[int, float]] = {}
    left: tuple[float, ...] = ()


NONE_HELD: Final = HeldJobs()


def held_jobs(jobs: Sequence[QueuedJob]) -> HeldJobs:
    """Find the limits that hold waiting jobs, and all jobs, running or waiting, that they count."""
    least: dict[Limit, float] = {}
    for queued in jobs:
        if queued.is_queued and (limit := limit_of(queued)) is not None:
            least[limit] = min(least.get(limit, float("inf")), _units(queued, limit))
    if not least:
        return NONE_HELD
    number_of = {limit: number for number, limit in enumerate(least, 1)}
    numbers: dict[tuple[str | None, str | None, str | None, str], int] = {}
    for limit, number in number_of.items():
        numbers.setdefault(limit[:4], number)
    limits, counted = tuple(least), dict[int, tuple[int, float]]()
    for queued in jobs:
        own = limit_of(queued) if queued.is_queued else None
        number = number_of[own] if own is not None else _number(queued, numbers)
        if number:
            counted[queued.job.job_id] = number, _units(queued, limits[number - 1])
    return HeldJobs(limits, counted, tuple(max(0.0, needs - 1.0) for needs in least.values()))


def _number(queued: QueuedJob, numbers: Mapping[tuple[str | None, str | None, str | None, str], int]) -> int:
    user, account, qos = queued.job.user, queued.job.account, queued.job.qos
    keys: Iterable[tuple[str | None, str | None, str | None, str]] = (
        (user, None, qos, ""),
        (user, account, None, ""),
        (None, account, qos, ""),
        (None, account, None, ""),
        (None, None, qos, ""),
        (None, None, None, f"array {queued.array_job_id}"),
        (None, None, None, f"licences {queued.job.licenses}"),
    )
    return next((numbers[key] for key in keys if key in numbers), 0)


def _units(queued: QueuedJob, limit: Limit) -> float:
    asked = queued.asked
    counts: dict[str, float] = {
        "nodes": asked.nodes,
        "memory": asked.memory_mb or 0,
        "gpus": asked.gpus,
        "processors": asked.processors,
    }
    return max(1.0, float(counts.get(limit.unit, 1.0)))
