"""How a change of a job is said to LSF, and the refusals of LSF. Pure.

A change is a mapping as `advisor.slurm.protocol` has it for ``scontrol update job``: its words are Slurm's,
and ``partition`` is a queue of LSF.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final, TypeVar

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.wording import recorded_why
from advisor.lsf.answers import Queue
from advisor.lsf.joining import OUR_WORDS
from advisor.lsf.live_job import WAITING, LiveJob
from advisor.lsf.run_limit import limit_as_given
from advisor.model.errors import RetryLater
from advisor.model.job_id import job_name

# Words of a change that LSF has a command for, or that it may be told without (`LsfBackend.update_jobs`).
_CHANGES: Final = frozenset(
    {
        "admincomment",
        "excnodelist",
        "features",
        "partition",
        "prefer",
        "requeue",
        "sitefactor",
        "starttime",
        "timelimit",
    }
)
Value = TypeVar("Value")
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_OFF_SPOT: Final = "select[on_demand]"
_OUR_SELECT: Final = re.compile(r"\s*select\[(on_demand|spot|reserved)( && (on_demand|spot|reserved))*\]$")


class RefusedByLsf(RetryLater):
    """LSF has refused to change a job, or the job is not as it was; `is_late`: LSF may still change it."""

    code = "lsf.refused"

    def __init__(self, job_id: int, why: str, *, is_late: bool = False) -> None:
        super().__init__(f"job {job_name(job_id)}: {why}")
        self.job_id = job_id
        self.is_late = is_late


def ids_of(refusals: Iterable[RefusedByLsf]) -> set[int]:
    """The jobs that were refused."""
    return {refusal.job_id for refusal in refusals}


def without(found: Mapping[int, Value], refusals: Iterable[RefusedByLsf]) -> dict[int, Value]:
    """What is there of the jobs that were not refused."""
    refused_ids = ids_of(refusals)
    return {job_id: value for job_id, value in found.items() if job_id not in refused_ids}


def values_of(changes: Mapping[int, Mapping[str, str]], word: str) -> dict[int, str]:
    """One word of each change that has it, by job."""
    return {job_id: said[word] for job_id, said in changes.items() if word in said}


def after_move(job: LiveJob, there: Queue | None, on_premise: Container[str]) -> list[str]:
    """How bmod keeps LSF from running a job twice whose user has not said `-r`; empty: it need not.

    bswitch makes every job rerunnable in a queue with RERUNNABLE.

    Args:
        job: As it was before.
    """
    if there is None or there.name in on_premise or job.rerunnable or not there.is_rerunnable:
        return []
    return ["-rn"]


def words_for_user(was: str, comment: str) -> str:
    """What the user of a moved job is told: from which queue, and why, by its advice."""
    recorded = parse_admin_comment(comment)
    why = "" if recorded is None else f". {recorded_why(recorded).removesuffix('.')}"
    return f"{OUR_WORDS}starts in the cloud, was in queue {was}{why}"


def resources(changes: Mapping[str, str], job: LiveJob, on_premise: Container[str]) -> list[str]:
    """How bmod sets what a job asks for: hosts of a capacity, or what its user asked for where it returns.

    Args:
        on_premise: The names of the on-premise queues.

    Returns:
        Options of bmod; empty: nothing is to be set.
    """
    asked = _OUR_SELECT.sub("", job.resource_request)
    if changes.get("features"):
        wanted = changes["features"].replace("-", "_").split("&")
        asked = f"{asked} select[{' && '.join(wanted)}]".strip()
    elif changes.get("excnodelist"):  # it was interrupted too often
        asked = f"{asked} {_OFF_SPOT}".strip()
    elif changes.get("partition") not in on_premise:
        return []
    if asked == job.resource_request:
        return []
    return _requested(asked)


def _requested(asked: str) -> list[str]:
    return ["-R", asked] if asked else ["-Rn"]


def taken_back(changes: Mapping[str, str], job: LiveJob, *, is_absolute: bool) -> list[str]:
    """How bmod takes back what was set for a move that was not made.

    Args:
        changes: What was to be changed; empty: it is not known, and a raised limit stays.
        job: As it was before, or, where `changes` is empty, as it is.
        is_absolute: ``ABS_RUNLIMIT``.
    """
    options: list[str] = []
    if "timelimit" in changes:
        given, factor = job.run_limit_seconds, job.limit_factor
        seconds = 0.0 if given is None else limit_as_given(given, factor, is_absolute=is_absolute)
        options = ["-Wn"] if given is None else limit(f"{seconds / 60.0:.0f}", job)
    asked = _OUR_SELECT.sub("", job.resource_request)
    may_be_set = bool(changes.get("features")) if changes else job.is_ibm_lsf
    return options + (_requested(asked) if may_be_set or asked != job.resource_request else [])


def limit(minutes: str, job: LiveJob) -> list[str]:
    """How bmod sets a limit: in minutes of the same host as before, not of the one on which bmod runs."""
    is_host = _HOST.fullmatch(job.limit_host) is not None
    return ["-W", f"{minutes}/{job.limit_host}" if is_host else minutes]


def with_limit_of_home(
    changes: Mapping[str, str], job: LiveJob, queues: Mapping[str, Queue], on_premise: Container[str]
) -> Mapping[str, str]:
    """A move to the cloud with the limit that a job without one has here: there it would have that queue's.

    Slurm's hook does the same.
    """
    here, there = queues.get(job.queue), queues.get(changes.get("partition", ""))
    if here is None or there is None or there.name in on_premise or job.run_limit_seconds is not None:
        return changes
    if here.limit_minutes in {None, there.limit_minutes}:
        return changes
    return {"timelimit": str(here.limit_minutes), **changes}


def refused(
    changes: Mapping[int, Mapping[str, str]],
    jobs: Mapping[int, LiveJob],
    ours: Container[int],
    lets_in: Callable[[str, str], bool],
) -> list[RefusedByLsf]:
    """Changes that LSF need not be told: the jobs cannot, or must not, be changed so.

    Args:
        jobs: As they are now.
        ours: Jobs that the advisor may have changed before.
        lets_in: Whether a user may use a queue.
    """
    found = {
        job_id: _obstacle(said, jobs.get(job_id), lets_in, is_ours=job_id in ours)
        for job_id, said in changes.items()
    }
    return [RefusedByLsf(job_id, why) for job_id, why in found.items() if why]


def _obstacle(
    changes: Mapping[str, str],
    job: LiveJob | None,
    lets_in: Callable[[str, str], bool],
    *,
    is_ours: bool,
) -> str:
    """Why a job cannot be changed so; empty: it can."""
    if job is None:
        return "it has ended"
    if "partition" in changes and job.state not in WAITING:
        return "it has begun"
    if job.is_changed and not is_ours and changes.keys() != {"admincomment"}:
        return "it was changed meanwhile, or bjobs does not show it"
    if "partition" in changes and not lets_in(job.user, changes["partition"]):
        return f"the queue {changes['partition']} is not for its user"  # bswitch lets an administrator do it
    unknown = changes.keys() - _CHANGES
    return f"LSF has no {', '.join(sorted(unknown))}" if unknown else ""
