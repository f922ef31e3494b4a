"""One ``JOB_FINISH`` record of ``lsb.acct``, of any release since LSF 5, or of volclava.

The fields are in the order of IBM's page "lsb.acct" (Spectrum LSF 10.1 configuration reference), except for
the run limit (:mod:`advisor.lsf.run_limit`). Releases append fields: LSF 5.1 ends after the reservation, 7.06
after the job's description. So the fields up to the array index are required, those after it are read as long
as they are as expected, and fields of later releases are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Final

from advisor.lsf.fields import Fields, MalformedRecord, layout
from advisor.lsf.resource_request import MemoryUnit
from advisor.lsf.run_limit import choose_run_limit

RECORD_TYPE: Final = "JOB_FINISH"

_SUBMISSION: Final = layout(
    "version:s event_time:d job_id:d user_id:d options:d processors:d submit_time:d begin_time:d -:d"
    " start_time:d user:s queue:s resource_request:s dependency:s -:s -:s -:s -:s -:s -:s -:s"
)
"""The last seven: pre-execution command, submission host, folder, input, output and error file, job file."""
_RESULT: Final = layout("status:d host_factor:f name:s -:s user_seconds:f system_seconds:f")
_REST_OF_RUSAGE: Final = layout("-:f " * 17)
_IDENTITY: Final = layout("-:s project:s exit_status:d max_processors:d -:s")
_MEMORY: Final = layout("max_resident_kb:d -:d -:s -:s")
_RESERVATION: Final = layout("reservation:s")
_TERMINATION: Final = layout(
    "service_class:s -:d -:s exit_info:d -:s -:d share_account:s -:s application:s -:s -:d -:s"
    " requeue_exit_values:s -:d -:s -:d long_reservation:s description:s"
)
_AFTER_LIMIT: Final = layout(
    "effective_resource_request:s -:s -:d -:s -:d -:d -:s -:d -:d -:s running_seconds:d -:s"
)
_NETWORK: Final = layout("-:s -:d")
_ENERGY: Final = layout("-:s -:f -:f -:f -:f -:f")
_NO_INDEX: Final = 2**31
"""LSF's ids have 64 bits, of which the index has the upper half."""
_MAX_HOSTS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFinish:
    """The fields of a ``JOB_FINISH`` record; None where the record ends before the field.

    Attributes:
        version: Version of the log's format, e.g. ``"10.108"``.
        event_time, submit_time, begin_time, start_time, requeue_time: Epoch seconds of the end, the
            submission, the earliest start (0: at once), the last dispatch (0: never) and the last requeue (0:
            never).
        array_index: Index in the array: 0 for a plain job, -1 for several elements killed before their start.
        options: Bits of ``bsub``'s options (``SUB_*`` in lsbatch.h).
        processors, max_processors: ``bsub -n``: the smallest and the largest number.
        resource_request, effective_resource_request: ``bsub -R``, and its combination with the queue's.
        dependency, reservation, long_reservation, service_class, description: ``-w``, ``-U`` (long ones are
            in a later field), ``-sla``, ``-Jd``.
        asked_hosts, hosts: ``-m``; the execution hosts: one entry per slot, or ``4*hostA``.
        status, exit_status, exit_info: ``JOB_STAT_*`` bits (32 exit, 64 done), the wait status, the
            termination reason (``TERM_*``).
        host_factor: CPU factor of the first host.
        user_seconds, system_seconds: CPU time; -1 unknown.
        max_resident_kb: Largest resident memory of all processes together, KB.
        share_account: Path in the fairshare tree: ``/group/user``.
        requeue_exit_values: ``-Q``.
        run_limit_seconds, has_no_run_limit: ``-W``, and whether the record says that none was given.
        running_seconds: Time in the state RUN, without suspensions.
        allocated_slots: Slots at its end.
        ineligible_seconds: Time in which it might not start; -1 without ``TRACK_ELIGIBLE_PENDINFO``.
    """

    version: str
    event_time: int
    job_id: int
    user_id: int
    options: int
    processors: int
    submit_time: int
    begin_time: int
    start_time: int
    user: str
    queue: str
    resource_request: str
    dependency: str
    asked_hosts: tuple[str, ...]
    hosts: tuple[str, ...]
    status: int
    host_factor: float
    name: str
    user_seconds: float
    system_seconds: float
    project: str
    exit_status: int
    max_processors: int
    array_index: int
    max_resident_kb: int | None = None
    reservation: str | None = None
    service_class: str | None = None
    exit_info: int | None = None
    share_account: str | None = None
    application: str | None = None
    requeue_exit_values: str | None = None
    long_reservation: str | None = None
    description: str | None = None
    run_limit_seconds: float | None = None
    has_no_run_limit: bool = False
    effective_resource_request: str | None = None
    running_seconds: int | None = None
    allocated_slots: int | None = None
    requeue_time: int | None = None
    ineligible_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteTerms:
    """What records leave to their site's configuration.

    Attributes:
        memory_unit: ``LSF_UNIT_FOR_LIMITS``.
        reserves_per_task: ``RESOURCE_RESERVE_PER_TASK``.
        limits: Queue to the run limit of a job that gives none, seconds.
    """

    memory_unit: MemoryUnit = "MB"
    reserves_per_task: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)


USUAL_TERMS: Final = SiteTerms()


_NAMES: Final = frozenset(field.name for field in fields(JobFinish))


def record_type(found: Fields) -> str:
    """Take the record's type; raises MalformedRecord when the line begins with something else."""
    name = found.text("record_type")
    if not (name.isascii() and name.replace("_", "").isalnum() and name.isupper()):
        raise MalformedRecord(f"{name[:40]!a} is no type of a record")
    return name


def read_job_finish(found: Fields) -> JobFinish:
    """Read the fields after the record's type.

    Raises:
        MalformedRecord: A field that every release has is missing or of another kind.
    """
    values: dict[str, Any] = {}
    _read_common_fields(found, values)
    with suppress(MalformedRecord):
        _read_later_fields(found, values)
    return JobFinish(**{name: value for name, value in values.items() if name in _NAMES})


def _read_common_fields(found: Fields, values: dict[str, Any]) -> None:
    values.update(found.all_of(_SUBMISSION))
    values["asked_hosts"] = found.texts("asked hosts")
    values["hosts"] = found.texts("execution hosts")
    values.update(found.all_of(_RESULT))
    found.all_of(_REST_OF_RUSAGE)
    values.update(found.all_of(_IDENTITY))
    if found.next_is_text():
        found.text("time event")  # volclava, whose format is LSF 4's, has none
    values["array_index"] = found.whole("array_index")
    if values["processors"] < 0 or not -1 <= values["array_index"] < _NO_INDEX:
        raise MalformedRecord("a number of processors below 0, or no index of an array")


def _read_later_fields(found: Fields, values: dict[str, Any]) -> None:
    """Add each complete group of fields; raises MalformedRecord at the first one that cannot be read."""
    values.update(found.all_of(_MEMORY))
    values.update(found.all_of(_RESERVATION))
    values.update(found.all_of(_TERMINATION))
    for _ in range(_count(found, "submission extensions")):
        found.whole("key")
        found.text("value")
    # For each host: its name, and four or five numbers (memory, swap, user and system time; since 9.1 also a
    # count). Those of the last host are followed by run limit, flags and average memory, then by a string.
    numbers = _numbers_after_hosts(found)
    values["run_limit_seconds"] = choose_run_limit(*numbers, _ran(values))
    values["has_no_run_limit"] = -1 in numbers
    values.update(found.all_of(_AFTER_LIMIT))
    for _ in range(_count(found, "networks")):
        found.all_of(_NETWORK)
    found.all_of(_ENERGY)
    values["allocated_slots"] = _slots(found.texts("allocated slots"))
    values["ineligible_seconds"] = found.whole("ineligible pending time")
    for _ in range(_count(found, "index ranges") * 3):
        found.whole("index range")
    values["requeue_time"] = found.whole("requeue_time")


def _numbers_after_hosts(found: Fields) -> tuple[int, int]:
    hosts = _count(found, "hosts with their own usage")
    numbers: list[int] = []
    for _ in range(hosts):
        found.word("host")
        numbers = found.wholes("usage")
    if not hosts:
        numbers = found.wholes("limit")
    if len(numbers) not in ((7, 8) if hosts else (3,)):
        raise MalformedRecord("the run limit is not at its place")
    return numbers[-3], numbers[-2]


def _count(found: Fields, name: str) -> int:
    count = found.whole(f"number of {name}")
    if not 0 <= count <= min(_MAX_HOSTS, len(found)):
        raise MalformedRecord(f"{count} {name}, but {len(found)} fields are left")
    return count


def _ran(values: dict[str, Any]) -> float | None:
    start, end = values["start_time"], values["event_time"]
    return float(end - start) if 0 < start <= end else None


def _slots(hosts: tuple[str, ...]) -> int:
    return sum(slots_and_host(host)[0] for host in hosts)


def slots_and_host(text: str) -> tuple[int, str]:
    """Slots and host of ``4*hostA`` (``LSF_HPC_EXTENSIONS="SHORT_EVENTFILE"``); a bare name is one slot.

    Examples:
        >>> slots_and_host("16*node7"), slots_and_host("node7")
        ((16, 'node7'), (1, 'node7'))
    """
    count, star, host = text.partition("*")
    if star and count.isascii() and count.isdigit() and len(count) <= 6 and host:
        return int(count), host
    return 1, text
