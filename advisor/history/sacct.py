"""Read ended jobs from the output of ``sacct``, and make its arguments; nothing is run here.

Users type names and comments, and Slurm 22.05 prints them unchanged, with delimiters, line ends, control
characters or whole lines that look like another job (tried on a real slurmdbd). So the delimiter contains a
random word, the first and last columns are numbers that no user can type, and a record ends with its last
column, not with a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from advisor.decide.explanation.admin_comment import RecordedAdvice, parse_admin_comment
from advisor.history.ingest_report import IngestReport
from advisor.model.errors import BadInput
from advisor.model.job import PLACEHOLDER_COMMENT, Job, JobOutcome, JobState, placeholder_target
from advisor.model.job_words import MEBIBYTES

WANTED: Final = (
    "JobIDRaw",  # first: a number
    "JobID",
    "State",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "ElapsedRaw",
    "TimelimitRaw",
    "ReqCPUS",
    "AllocCPUS",
    "AllocTRES",
    "ReqNodes",
    "ReqMem",
    "Partition",
    "User",
    "UID",
    "Group",
    "Account",
    "QOS",
    "NodeList",
    "Reservation",
    "Constraints",
    "Restarts",
    "Licenses",
    "AdminComment",
    "Comment",
    "JobName",
    "DBIndex",  # last: a number
)
"""Fields of sacct that are asked for, in this order."""
_NOT_IN_EVERY_RELEASE: Final = frozenset(
    {"Eligible", "AllocTRES", "Constraints", "Restarts", "Licenses", "AdminComment", "DBIndex"}
)
_LAST_RESORT: Final = "CPUTimeRAW"  # also a number; every release in use has it

ENDED_STATES: Final = ("CD", "F", "CA", "TO", "OOM", "NF", "PR", "RQ", "BF", "DL", "RS")
ENVIRONMENT: Final = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}
"""Environment for sacct: times in epoch seconds, so that no time zone is guessed."""

_STATES: Final = {
    "COMPLETED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
    "DEADLINE": JobState.TIMEOUT,
    "OUT_OF_MEMORY": JobState.OUT_OF_MEMORY,
    "NODE_FAIL": JobState.NODE_FAIL,
    "BOOT_FAIL": JobState.NODE_FAIL,
    "PREEMPTED": JobState.PREEMPTED,
}
_INTERRUPTED: Final = frozenset({"REQUEUED", "RESIZING", "SPECIAL_EXIT"})
_MAYBE_CONTINUED: Final = frozenset({"NODE_FAIL", "BOOT_FAIL", "PREEMPTED"})
_UNFINISHED: Final = frozenset({"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING"})

_MAX_PLACE_SECONDS: Final = 3600.0 + 600.0  # the most of hedge.slot_held_seconds, and to end
MIN_INELIGIBLE_SECONDS: Final = 60  # shorter, the scheduler may only have been busy
_MAX_RECORD_CHARACTERS = 1024 * 1024
_MAX_TEXT = 1000
_MAX_HELD = 2**53  # sums of such numbers are still numbers of 64 bits
_WHOLE = re.compile(r"[0-9]{1,15}")
_MEMORY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?)([KMGTP]?)([cn]?)")
_MEMORY_HELD = re.compile(r"(?:^|,)mem=([^,]+)")
_GPUS_HELD = re.compile(r"(?:^|,)gres/gpu(:[^=,]*)?=([0-9]{1,6})(?=,|$)")
"""In a list such as ``cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1``: GPUs of a type, and all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """One ended run of a job, not always its last.

    Attributes:
        outcome: None for a run that was certainly not the last (state ``REQUEUED``).
        job_id: Slurm's raw id, also for an array task or a component.
        submit_time, end_time: Epoch seconds of this run. After a requeue SubmitTime is the requeue's, after a
            resize (``scontrol update NumNodes=`` of a running job) the resize's.
        start_time: None when it never started. A resize does not change it, so it is before `submit_time`.
        may_continue: Whether another run of the same job may follow.
    """

    outcome: JobOutcome | None
    job_id: int
    submit_time: float
    start_time: float | None
    end_time: float
    may_continue: bool
    partition: str | None = None
    nodes: str | None = None

    @property
    def was_resized(self) -> bool:
        """Whether it is the rest of a run that was resized."""
        return self.start_time is not None and self.start_time < self.submit_time


def choose_fields(helpformat: str) -> tuple[str, ...]:
    """The columns to request, of those that ``sacct --helpformat`` prints; 22.05 has no ``Restarts``.

    Raises BadInput when a column is missing that every release has.
    """
    known = set(helpformat.split())
    missing = [name for name in WANTED if name not in known and name not in _NOT_IN_EVERY_RELEASE]
    if missing:
        raise BadInput(
            f"it has no columns {', '.join(missing)}",
            where="sacct --helpformat",
            mend="Check that paths.slurm_bin names the folder of Slurm's own commands, of 22.05 or newer",
            code="sacct.fields",
        )
    chosen = tuple(name for name in WANTED if name in known)
    return chosen if chosen[-1] == "DBIndex" else (*chosen, _LAST_RESORT)


def delimiter(word: str) -> str:
    """The column delimiter of one call; ``word`` is random, of at least 16 letters or digits."""
    return f"\x1e{word}\x1f"


def arguments(
    fields: Sequence[str], *, since: float, until: float | None, delimited_by: str
) -> tuple[str, ...]:
    """Arguments of sacct (with :data:`ENVIRONMENT`) for runs that ended in a period.

    ``since`` and ``until`` are epoch seconds; ``until=None`` means now. 22.05 takes no epoch seconds as
    arguments, hence UTC dates.
    """
    start = datetime.fromtimestamp(max(0.0, since), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    end = "now" if until is None else datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return (
        "--allusers",
        "--allocations",  # no steps
        "--duplicates",  # the earlier runs of requeued jobs
        "--parsable2",
        "--noheader",
        f"--delimiter={delimited_by}",
        f"--format={','.join(fields)}",
        f"--starttime={start}",
        f"--endtime={end}",  # without it a state selects nothing
        f"--state={','.join(ENDED_STATES)}",
    )


def parse(
    lines: Iterable[str], fields: Sequence[str], delimited_by: str, report: IngestReport
) -> Iterator[EndedRun]:
    """Read the ended runs in sacct's output, given as lines with or without their line ends.

    ``fields`` and ``delimited_by`` are those given to :func:`arguments`. ``report`` counts the records that
    cannot be read, and the jobs that never started.
    """
    for record in _records(lines, len(fields), delimited_by, report):
        run = _run_of(dict(zip(fields, record, strict=True)), report)
        if run is not None:
            yield run


def _records(
    lines: Iterable[str], columns: int, delimited_by: str, report: IngestReport
) -> Iterator[list[str]]:
    """Join the lines of each record: names may contain line ends."""
    held = ""
    for line in lines:
        text = line.removesuffix("\n")
        held = f"{held}\n{text}" if held else text
        found = held.count(delimited_by) + 1
        if found > columns or len(held) > _MAX_RECORD_CHARACTERS:
            report.malformed_record(f"{found} columns instead of {columns}: {held[:80]!a}")
            held = ""
        elif found == columns:
            yield held.split(delimited_by)
            held = ""
    if held:
        report.malformed_record(f"the output ends inside a record: {held[:80]!a}")


def _run_of(record: dict[str, str], report: IngestReport) -> EndedRun | None:
    if "." in record["JobIDRaw"]:
        return None
    words = record["State"].split()  # "CANCELLED by 1000"
    state = words[0].rstrip("+") if words else ""
    job_id, submit = _whole(record["JobIDRaw"]), _whole(record["Submit"])
    start, end = _whole(record["Start"]), _whole(record["End"])
    # A short job's end may reach slurmdbd seconds before its start, which has the partition, limit etc.
    # (tried on 22.05): an incomplete record is read again by the next call, whose period overlaps.
    if state in _UNFINISHED or not record["Partition"]:
        return None
    if job_id is None or submit is None or end is None or state not in _STATES.keys() | _INTERRUPTED:
        why = ", ".join(f"{name}={record[name][:40]!a}" for name in ("JobIDRaw", "State", "Submit", "End"))
        report.malformed_record(why)
        return None
    started = start is not None and max(submit, start) <= end
    if state in _INTERRUPTED:
        outcome = None
    elif _is_placeholder(record, job_id, start, end):  # it only slept: nothing to learn
        return None
    elif started and start is not None:
        outcome = _outcome_of(record, job_id, (submit, start, end), _STATES[state])
    else:
        # cancelled in the queue, or times in an impossible order
        report.never_started += 1
        return None
    return EndedRun(
        outcome=outcome,
        job_id=job_id,
        submit_time=float(submit),
        start_time=float(start) if started and start is not None else None,
        end_time=float(end),
        may_continue=state in _INTERRUPTED | _MAYBE_CONTINUED,
        partition=_text(record["Partition"]),
        nodes=_text(record["NodeList"]),
    )


def _is_placeholder(record: dict[str, str], job_id: int, start: int | None, end: int) -> bool:
    """Whether a job is a placeholder; the name alone does not prove it, because users type names.

    The comment is empty where the site does not store comments (``AccountingStoreFlags``).
    """
    other = placeholder_target(record["JobName"])
    if other is None or other >= job_id or record["Comment"] not in {"", PLACEHOLDER_COMMENT}:
        return False
    return start is None or end - start <= _MAX_PLACE_SECONDS


def _outcome_of(
    record: dict[str, str], job_id: int, times: tuple[int, int, int], state: JobState
) -> JobOutcome:
    submit, start, end = times
    if (elapsed := _whole(record.get("ElapsedRaw", ""))) is not None and start >= submit:
        end = min(end, start + elapsed)  # without the time in which it was suspended
    used = _whole(record["AllocCPUS"]) or 0
    processors = max(1, _whole(record["ReqCPUS"]) or used)
    advised = _advised(record.get("AdminComment", ""))
    minutes = _whole(record["TimelimitRaw"])  # else UNLIMITED, Partition_Limit or nothing
    limit = None if minutes is None else minutes * 60.0
    if advised is not None:  # estimators need the user's limit, not the one extended for the slower cloud
        limit = advised.users_limit(limit)
    nodes, held = _whole(record["ReqNodes"]), record.get("AllocTRES", "")
    memory_held = _MEMORY_HELD.search(held)
    late = min(_whole(record.get("Eligible", "")) or submit, start) - submit
    constraint = _text(record.get("Constraints"))
    job = Job(
        job_id=job_id,
        submit_time=float(submit),
        processors=processors,
        user=_text(record["User"]) or _text(record["UID"]),  # a deleted user still has a number
        group=_text(record["Group"]),
        queue=_text(record["Partition"].partition(",")[0]),
        requested_time=limit,
        nodes=nodes if nodes and nodes > 1 else None,  # Slurm also writes 1 for jobs that asked for none
        memory_mb=_memory_mb(record["ReqMem"], processors, nodes or 1),
        name=_text(record["JobName"]),
        account=_text(record["Account"]),
        qos=_text(record["QOS"]),
        comment=_text(record["Comment"]),
        features=tuple(word for word in re.split(r"[&|,\[\]()]", constraint or "") if word),
        licenses=_text(record.get("Licenses")),
        reservation=_text(record["Reservation"]),
        heterogeneous="+" in record["JobID"],
        array_job_id=_whole(record["JobID"].partition("_")[0]) if "_" in record["JobID"] else None,
    )
    return JobOutcome(
        job=job,
        start_time=float(start),
        end_time=float(end),
        state=state,
        processors_used=used or processors,
        memory_held_mb=min(_MAX_HELD, _memory_mb(memory_held[1], processors, 1) or 0) if memory_held else 0,
        gpus_held=_gpus_held(held),
        ineligible_seconds=float(late) if late >= MIN_INELIGIBLE_SECONDS else 0.0,
        restarts=_whole(record.get("Restarts", "")) or 0,
        partition=_text(record["Partition"]),
        nodes=_text(record["NodeList"]),
        advice_id=None if advised is None else advised.advice_id,
    )


def _advised(admin_comment: str) -> RecordedAdvice | None:
    recorded = parse_admin_comment(admin_comment)
    return recorded if recorded and len(recorded.advice_id) <= 100 else None


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def _text(value: str | None) -> str | None:
    if value is None or value in {"", "Unknown", "None assigned", "(null)"}:
        return None
    return value[:_MAX_TEXT]


def _gpus_held(text: str) -> int:
    """GPUs of the whole job; the sum of those of each type where the site counts no others."""
    number_of: dict[str, int] = {kind: int(number) for kind, number in _GPUS_HELD.findall(text)}
    return number_of.get("", sum(number_of.values()))


def _memory_mb(text: str, processors: int, nodes: int) -> int | None:
    """MiB of the whole job; ``4G`` is the job's, and before 21.08 ``4Gc`` per processor, ``4Gn`` per node."""
    match = _MEMORY.fullmatch(text)
    if not match:
        return None
    times = {"c": processors, "n": nodes, "": 1}[match[3]]
    return round(float(match[1]) * MEBIBYTES[match[2]] * times) or None
