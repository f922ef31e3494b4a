"""Limits of users, accounts, QOS, arrays and licences that hold waiting jobs, read from Slurm's reasons.

Those of LSF (:mod:`advisor.lsf.pend_reasons`) are of users, projects and queues. Forecasts of the queue let
such jobs start when their limit has room.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from advisor.model.cluster import Limit
from advisor.model.snapshot import QueuedJob

_Key: TypeAlias = tuple[str | None, str | None, str | None, str]
"""User, account, QOS, and what else a limit is of."""
_JOBS: Final = "jobs"
_OF_WORDS: Final = (("job", _JOBS), ("node", "nodes"), ("mem", "memory"), ("gres", "gpus"))
_FOR_EVER: Final = ("perjob", "pernode", "timelimit", "submit", "notallowed", "qosmin", "wall", "usage")
"""In reasons of jobs that no other job's end lets start."""
_SPENT: Final = ("grpwall", "minutes")
"""In those of limits of all jobs of a QOS or account that no job's end lifts."""
_OF_LSF: Final = re.compile(r"(user|project|queue|queueuser)(?:slot|job|mem)limit")
_SEVERAL: Final = re.compile(r"qos|assoc|max[a-z]*per(?:account|user)$")


def limit_of(queued: QueuedJob) -> Limit | None:
    """The limit that holds a waiting job, by its reason; None for every other job."""
    if not queued.is_queued:
        return None
    job, reason, word = queued.job, queued.reason, queued.reason.casefold()
    if reason in {"JobArrayTaskLimit", "Licenses"}:
        array, licences = f"array {queued.array_job_id}", f"licences {job.licenses}"
        return Limit(other=licences if reason == "Licenses" else array, reason=reason)
    if not _SEVERAL.match(word):
        return _of_lsf(queued, word)
    unit = _unit_of(word)
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


def _unit_of(word: str) -> str:
    return next((unit for part, unit in _OF_WORDS if part in word), "processors")


def _of_lsf(queued: QueuedJob, word: str) -> Limit | None:
    """A queue's counts no job of another queue, nor of the cloud's."""
    found = _OF_LSF.fullmatch(word)
    if found is None:
        return None
    job, reason, whose, unit = queued.job, queued.reason, found[1], _unit_of(word)
    if whose == "user":
        return Limit(user=job.user, unit=unit, reason=reason)
    if whose == "project":
        return Limit(account=job.account, unit=unit, reason=reason)
    return Limit(other=_of_queue(queued, job.user if whose == "queueuser" else ""), unit=unit, reason=reason)


def _of_queue(queued: QueuedJob, user: str | None) -> str:
    return f"queue {queued.partitions[0]} {user}"


def never_starts(queued: QueuedJob) -> bool:
    """Whether a limit holds a waiting job that the end of no other job lifts, or its partition's terms do."""
    if queued.is_misfit:
        return True
    word = queued.reason.casefold()
    if not _SEVERAL.match(word):
        return False
    return any(part in word for part in _FOR_EVER) or ("minutes" in word and "runminutes" not in word)


def limits_there(
    jobs: Iterable[QueuedJob], ours: Collection[str], burst: str, qos_of: Mapping[str, str]
) -> tuple[Limit, ...]:
    """The limits that hold waiting jobs, and hold jobs in the burst partition as well.

    Where a partition has a QOS of its own, a limit of a QOS is taken to be that one's, which Slurm looks at
    first. It counts the partition's jobs, whatever QOS they name, and no job in the burst partition, unless
    that has the same.

    Args:
        ours: The on-premise partitions.
        burst: The burst partition.
        qos_of: The QOS of partitions that have one.
    """
    found, known = dict[Limit, None](), {burst, *ours}
    for queued in jobs:
        limit = None if known.isdisjoint(queued.partitions) else limit_of(queued)
        if limit is None or limit.other or (never_starts(queued) and not _is_spent(limit)):
            continue
        own = qos_of.get(queued.partitions[0])
        if limit.qos is None or own is None:
            found[limit] = None
        elif own == qos_of.get(burst):
            found[limit._replace(qos=None)] = None
    return tuple(found)


def far_from_start(jobs: Sequence[QueuedJob], burst: str) -> frozenset[int]:
    """Jobs in the burst partition that a limit of users, accounts or QOS holds and that cannot start next.

    Of those that a limit holds there, as many may start next as run anywhere of those that it counts.
    """
    there = [queued for queued in jobs if burst in queued.partitions and _is_held(queued)]
    if not there:
        return frozenset()
    held, found = held_jobs(jobs), set[int]()
    runs = Counter(held.number_of(queued) for queued in jobs if queued.holds_processors)
    for queued in sorted(there, key=lambda queued: (queued.job.submit_time, queued.job.job_id)):
        number = held.number_of(queued)
        if never_starts(queued) or runs[number] <= 0:
            found.add(queued.job.job_id)
        else:
            runs[number] -= queued.job.array_tasks
    return frozenset(found)


def _is_held(queued: QueuedJob) -> bool:
    limit = limit_of(queued)
    return limit is not None and not limit.other


def _is_spent(limit: Limit) -> bool:
    word = limit.reason.casefold()
    return "perjob" not in word and any(part in word for part in _SPENT)


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

    def number_of(self, queued: QueuedJob) -> int:
        """The number of the limit that counts a job; 0: none."""
        return self.counted.get(queued.job.job_id, (0, 0.0))[0]


NONE_HELD: Final = HeldJobs()


def held_jobs(jobs: Sequence[QueuedJob]) -> HeldJobs:
    """Find the limits that hold waiting jobs, and all jobs, running or waiting, that they count.

    Of several limits of the same user, account or QOS the first that is seen stands for all. An array of
    which so many tasks may run at a time is one, whatever it waits for now.
    """
    first: dict[_Key, Limit] = {}
    least: dict[_Key, float] = {}
    holds = [limit_of(queued) or _of_array(queued) for queued in jobs]
    for queued, limit in zip(jobs, holds, strict=True):
        if limit is not None:
            units = _units(queued, first.setdefault(limit[:4], limit))
            least[limit[:4]] = max(1.0, min(least.get(limit[:4], float("inf")), units))
    if not least:
        return NONE_HELD
    number_of = {key: number for number, key in enumerate(first, 1)}
    of_others = {key[3]: number for key, number in number_of.items() if key[3]}
    limits, counted = tuple(first.values()), dict[int, tuple[int, float]]()
    for queued, own in zip(jobs, holds, strict=True):
        number = number_of[own[:4]] if own is not None else _number(queued, number_of, of_others)
        if number:
            counted[queued.job.job_id] = number, _units(queued, limits[number - 1])
    left = {key: least[key] - 1.0 for key in first} | _left_of_arrays(jobs)
    return HeldJobs(limits, counted, tuple(left[key] for key in first))


def _of_array(queued: QueuedJob) -> Limit | None:
    """The limit of tasks that run at a time, of an array that waits for something else."""
    if not queued.is_queued or queued.job.array_at_once is None:
        return None
    return Limit(other=f"array {queued.array_job_id}", reason="JobArrayTaskLimit")


def _left_of_arrays(jobs: Iterable[QueuedJob]) -> dict[_Key, float]:
    """How many more tasks of each such array may run now."""
    runs = Counter(queued.array_job_id for queued in jobs if queued.holds_processors)
    return {
        limit[:4]: max(0.0, (queued.job.array_at_once or 0) - float(runs[queued.array_job_id]))
        for queued in jobs
        if (limit := _of_array(queued)) is not None
    }


def _number(queued: QueuedJob, numbers: Mapping[_Key, int], of_others: Mapping[str, int]) -> int:
    user, account, qos = queued.job.user, queued.job.account, queued.job.qos
    keys: Iterable[_Key] = (
        (user, None, qos, ""),
        (user, account, None, ""),
        (None, account, qos, ""),
        (None, account, None, ""),
        (None, None, qos, ""),
    )
    found = next((numbers[key] for key in keys if key in numbers), 0)
    if found or not of_others:
        return found
    names = (
        f"array {queued.array_job_id}",
        f"licences {queued.job.licenses}",
        _of_queue(queued, user),
        _of_queue(queued, ""),
    )
    return next((of_others[name] for name in names if name in of_others), 0)


def _units(queued: QueuedJob, limit: Limit) -> float:
    asked = queued.asked
    counts: dict[str, float] = {
        "nodes": asked.nodes,
        "memory": asked.memory_mb or 0,
        "gpus": asked.gpus,
        "processors": asked.processors,
    }
    return float(counts.get(limit.unit, 1.0))
