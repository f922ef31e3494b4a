"""One job as ``lsb.events`` tells of it: how ``JOB_NEW`` makes it, and how ``JOB_MODIFY2`` changes it.

The fields are in the order in which volclava writes them (version "22"): both records leave out fields that
their option bits do not name. IBM's releases begin JOB_NEW in the same order (a record of 9.13 that others
have published, and the page on lsb.events) and write more fields after the project, of which only those of
known meaning are read. The record of a change by bmod has another order there and is not read
(:mod:`advisor.lsf.bjobs_fields`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from advisor.lsf.fields import Fields, MalformedRecord

_SUB_NAME: Final = 0x01
_SUB_QUEUE: Final = 0x02
_SUB_HOST: Final = 0x04
_SUB_EXCLUSIVE: Final = 0x40
_SUB_PRE_EXECUTION: Final = 0x100000
_SUB_MAIL_USER: Final = 0x400000
_SUB_RERUNNABLE: Final = 0x4000
_SUB_HOST_SPEC: Final = 0x10000
_SUB_DEPENDENCY: Final = 0x20000
_SUB_RESOURCES: Final = 0x40000
_SUB_PROJECT: Final = 0x2000000
_SUB_INTERACTIVE: Final = 0x4000000
_SUB_POST_EXECUTION: Final = 0x40000000
_SUB2_HOLD: Final = 0x01
_SUB2_COMMAND: Final = 0x02
_SUB2_BLOCK: Final = 0x04
_SUB2_QUEUE_RERUNNABLE: Final = 0x40
_SUB2_INPUT_SPOOL: Final = 0x80
_SUB2_COMMAND_SPOOL: Final = 0x100
_SUB2_PRIORITY: Final = 0x200
_SUB2_RESERVATION: Final = 0x8000
_SUB2_DESCRIPTION: Final = 0x2000
_TEXTS_BEFORE_PROJECT: Final = (0x08, 0x10, 0x20)
"""Options with one text each: input, output and error file."""

WAITING: Final = frozenset({"PEND", "PSUSP"})
"""States of a job that waits."""
_LIMITS: Final = 11
_RUN_LIMIT: Final = 9
_DELETED: Final = -2
_UNCHANGED_PROCESSORS: Final = 2147483646
_MAX_ELEMENTS: Final = 100_000
_ARRAY: Final = re.compile(r"(.*)\[([0-9,:\- ]+)\](?:%([0-9]{1,9}))?", re.DOTALL)
_LIMIT_ALONE: Final = re.compile(r"%([0-9]{1,9})")
"""All that ``bmod -J`` may change of an array."""
_RANGE: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6})(?::([0-9]{1,6}))?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A job, or one element of an array, at one moment.

    Attributes:
        job_id, array_index: LSF's id, which all elements share, and the element's index; 0 for a plain job.
        state: ``bjobs``' word: PEND, PSUSP, RUN, SSUSP, USUSP, DONE, EXIT, UNKWN.
        processors: ``bsub -n``, the smaller number.
        submit_time, begin_time, start_time, end_time: Epoch seconds; a begin time of 0: at once; None while
            it has not started, or not ended.
        run_limit_seconds: ``-W`` as the record has it (:func:`~advisor.lsf.run_limit.limit_as_given`); None
            without one. A queue's limit is not in the record.
        limit_host: The host, or its model, by which the limit is normalised; empty: the site's default.
        limit_factor: Its CPU factor.
        asked_hosts: ``-m``.
        hosts: One entry for each slot; empty while it waits.
        priority: ``-sp``; None: its user gave none, and no one has since.
        rerunnable: Whether it is started again if its host fails.
        rerunnable_by_queue: Whether that is its queue's word alone, which a move to another queue takes back.
        exclusive: Whether it gets whole hosts (``-x``).
        array_at_once: How many elements of its array may run at a time (``[1-100]%5``); None: all.
        gpus: What it asks for of them by ``-gpu``, or by its profile or queue; of releases of IBM LSF.
        reserved: Whether it is for an advance reservation (``-U``).
        deferred: Whether it was submitted held or with a begin time.
        is_ibm_lsf: Whether a release of IBM LSF wrote the record: queue and description of a waiting job are
            then read from bjobs.
        is_changed: Whether the job was changed in a way that cannot be read: the advisor does not touch it.
        is_unshown: Whether bjobs, which may be some seconds behind, does not show it yet, or not any more.
        is_switched: Whether a JOB_SWITCH record says its queue, of a job that is no element of an array.
        switched_running: Whether the job was switched to another queue while it ran, and stays in that queue.
    """

    job_id: int
    array_index: int = 0
    state: str = "PEND"
    user: str
    queue: str
    processors: int
    submit_time: int
    begin_time: int = 0
    start_time: int | None = None
    end_time: int | None = None
    run_limit_seconds: int | None = None
    limit_host: str = ""
    limit_factor: float = 1.0
    resource_request: str = ""
    dependency: str = ""
    asked_hosts: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    name: str = ""
    command: str = ""
    project: str = ""
    description: str = ""
    priority: int | None = None
    rerunnable: bool = False
    rerunnable_by_queue: bool = False
    interactive: bool = False
    exclusive: bool = False
    gpus: str = ""
    reserved: bool = False
    array_at_once: int | None = None
    deferred: bool = False
    is_ibm_lsf: bool = False
    is_changed: bool = False
    is_unshown: bool = False
    is_switched: bool = False
    switched_running: bool = False
    restarts: int = 0


def read_job_new(fields: Fields, *, is_ibm_lsf: bool = False) -> tuple[LiveJob, ...]:
    """The job of a ``JOB_NEW`` record whose type, version and time were taken: one, or an array's elements.

    Raises:
        MalformedRecord: A field is not as expected.
    """
    job_id = fields.whole("job id")
    fields.whole("user id")
    options = fields.whole("options")
    processors, submitted, begin = (
        fields.whole(name) for name in ("processors", "submit time", "begin time")
    )
    _skip(fields, "ending time, signal, checkpoint period, restart", 4)
    user = fields.text("user")
    limit = _run_limit(fields)
    limit_host = fields.text("host specification")
    factor = fields.real("host factor")
    fields.whole("umask")
    queue, resources = fields.text("queue"), fields.text("resource request")
    _skip_texts(fields, "submission host, folder, checkpoint folder, input, output, error, home, job file", 8)
    hosts = fields.texts("asked hosts")
    dependency = fields.text("dependency")
    if is_ibm_lsf and not fields.next_is_text():
        fields.whole("time event")
    has_two = options & _SUB_POST_EXECUTION and not is_ibm_lsf
    _skip_texts(fields, "pre-execution command", 2 if has_two else 1)
    name, command = fields.text("name"), fields.text("command")
    for _ in range(fields.whole("number of transferred files")):
        _skip_texts(fields, "transferred file", 2)
        fields.whole("transfer options")
    fields.text("mail user")
    project = fields.text("project")
    options2, index, priority = _tail(fields, options, is_ibm_lsf=is_ibm_lsf)
    job = LiveJob(
        job_id=job_id, array_index=index, state="PSUSP" if options2 & _SUB2_HOLD else "PEND", user=user,
        queue=queue, processors=max(1, processors), submit_time=submitted, begin_time=begin,
        run_limit_seconds=limit if limit is not None and limit > 0 else None, limit_factor=factor,
        limit_host=limit_host,
        resource_request=resources,
        dependency=dependency, asked_hosts=hosts, name=name, command=command, project=project,
        description="" if is_ibm_lsf or not len(fields) else fields.text("description"),
        is_ibm_lsf=is_ibm_lsf,
        priority=None if priority < 0 else priority,
        rerunnable=bool(options & _SUB_RERUNNABLE),
        rerunnable_by_queue=bool(options2 & _SUB2_QUEUE_RERUNNABLE),
        interactive=bool(options & _SUB_INTERACTIVE), exclusive=bool(options & _SUB_EXCLUSIVE),
        deferred=bool(begin or options2 & _SUB2_HOLD),
        reserved=bool(options2 & _SUB2_RESERVATION),
    )  # fmt: skip
    match = None if index else _ARRAY.fullmatch(name)
    if match is None:
        return (job,)
    return tuple(
        replace(job, array_index=one, name=f"{match[1]}[{one}]", array_at_once=int(match[3] or 0) or None)
        for one in elements(match[2])
    )


def _tail(fields: Fields, options: int, *, is_ibm_lsf: bool) -> tuple[int, int, int]:
    """Second word of options, array index, priority; takes all up to the description."""
    _skip(fields, "port, largest number of processors", 2 if options & _SUB_INTERACTIVE else 1)
    _skip_texts(fields, "host type, login shell", 2)
    while is_ibm_lsf and fields.next_is_text():
        fields.text("user group, exceptions and the like")
    options2, index = fields.whole("second options"), fields.whole("array index")
    if options2 & _SUB2_BLOCK and not fields.next_is_text():
        fields.whole("port")
    _skip_texts(fields, "spooled input, spooled command, spool folder", 3)
    return options2, index, fields.whole("user priority")


def elements(text: str) -> tuple[int, ...]:
    """The indices of an array such as ``1,4-8:2``.

    Examples:
        >>> elements("1,4-8:2")
        (1, 4, 6, 8)

    Raises:
        MalformedRecord: It is no list of indices, or has more than 100,000.
    """
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise MalformedRecord(f"{text[:40]!a} is no list of array indices")
        first = int(match[1])
        found += range(first, int(match[2] or first) + 1, max(1, int(match[3] or 1)))
        if len(found) > _MAX_ELEMENTS:
            raise MalformedRecord(f"an array of more than {_MAX_ELEMENTS:,} elements")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a ``JOB_MODIFY2`` record changes of a job (``bmod``).

    Attributes:
        indices: The elements it is for; empty for a plain job or a whole array.
        values: New values of fields of :class:`LiveJob`.
    """

    job_id: int
    indices: tuple[int, ...]
    values: Mapping[str, Any]

    def applied_to(self, job: LiveJob) -> LiveJob:
        """The job with the change."""
        values = dict(self.values)
        if "name" in values and job.array_index:
            name = values.pop("name")
            if limits := _LIMIT_ALONE.fullmatch(name):
                values["array_at_once"] = int(limits[1]) or None
            else:
                match = _ARRAY.fullmatch(name)
                values["name"] = f"{match[1] if match else name}[{job.array_index}]"
        return replace(job, **values)


def read_job_modify(fields: Fields) -> Change:
    """The change of a ``JOB_MODIFY2`` record whose type, version and time were taken.

    Raises:
        MalformedRecord: A field is not as expected.
    """
    job_id, indices = read_id(fields.text("job id"))
    options, options2, deleted, _ = (
        fields.whole(name) for name in ("options", "second options", "deleted options", "user id")
    )
    fields.text("user")
    _skip(fields, "time of the change, umask", 2)
    processors, begin = fields.whole("processors"), fields.whole("begin time")
    _skip(fields, "ending time, signal, restart", 3)
    name = fields.text("name") if options & _SUB_NAME else None
    queue = fields.text("queue") if options & _SUB_QUEUE else None
    hosts = fields.texts("asked hosts") if options & _SUB_HOST else None
    resources = fields.text("resource request") if options & _SUB_RESOURCES else None
    limit = _run_limit(fields)
    if options & _SUB_HOST_SPEC:
        fields.text("host specification")
    dependency = fields.text("dependency") if options & _SUB_DEPENDENCY else None
    project, priority, description = _tail_of_change(fields, options, options2)
    rerunnable = _said(_SUB_RERUNNABLE, options, deleted)
    said = {
        "queue": queue,
        "name": name,
        "processors": None if processors in (0, _UNCHANGED_PROCESSORS) else processors,
        "begin_time": begin or None,
        "deferred": True if begin else None,
        "resource_request": "" if deleted & _SUB_RESOURCES else resources,
        "dependency": "" if deleted & _SUB_DEPENDENCY else dependency,
        "asked_hosts": () if deleted & _SUB_HOST else hosts,
        "project": project,
        "description": description,
        "priority": priority,
        "rerunnable": rerunnable,
        "rerunnable_by_queue": None if rerunnable is None else False,
        "exclusive": _said(_SUB_EXCLUSIVE, options, deleted),
    }
    values: dict[str, Any] = {field: value for field, value in said.items() if value is not None}
    if limit is not None and (limit > 0 or limit == _DELETED):
        # mbatchd logs a limit as bmod was told it
        values |= {"run_limit_seconds": None if limit == _DELETED else limit, "limit_factor": 1.0}
    return Change(job_id=job_id, indices=indices, values=values)


def _tail_of_change(fields: Fields, options: int, options2: int) -> tuple[str | None, int | None, str | None]:
    """Project, priority and description; None where unchanged."""
    fields.text("home")
    files = [options & bit for bit in _TEXTS_BEFORE_PROJECT]
    files[0] |= options2 & _SUB2_INPUT_SPOOL
    _skip_texts(fields, "input, output or error file", sum(map(bool, files)))
    _skip_texts(fields, "command", 1 if options2 & _SUB2_COMMAND else 0)
    _skip(fields, "checkpoint period", 1 if options & 0x400 else 0)
    _skip_texts(fields, "checkpoint folder", 1 if options & 0x800 else 0)
    for _ in range(fields.whole("number of transferred files") if options & 0x80000 else 0):
        _skip_texts(fields, "transferred file", 2)
        fields.whole("transfer options")
    _skip_texts(fields, "job file, submission host, folder", 3)
    commands = [_SUB_PRE_EXECUTION, _SUB_POST_EXECUTION, _SUB_MAIL_USER]
    _skip_texts(fields, "commands and mail user", sum(bool(options & bit) for bit in commands))
    project = fields.text("project") if options & _SUB_PROJECT else None
    _skip(fields, "port, largest number of processors", 2)
    _skip_texts(fields, "login shell and host type", 2 if options & 0x200000 else 1)
    fields.whole("deleted second options")
    spooled = [options2 & _SUB2_INPUT_SPOOL, options2 & _SUB2_COMMAND_SPOOL]
    _skip_texts(fields, "spooled files", sum(map(bool, spooled)))
    priority = fields.whole("user priority") if options2 & _SUB2_PRIORITY else None
    return project, priority, fields.text("description") if options2 & _SUB2_DESCRIPTION else None


def read_id(text: str) -> tuple[int, tuple[int, ...]]:
    """A job's number and the elements that are meant, of ``95`` or ``95[1-3]``.

    Raises:
        MalformedRecord: It is no such id.
    """
    number, bracket, rest = text.partition("[")
    if not (number.isascii() and number.isdecimal() and len(number) < 16):
        raise MalformedRecord(f"{text[:40]!a} is no job id")
    return int(number), elements(rest.rstrip("]")) if bracket else ()


def _said(bit: int, options: int, deleted: int) -> bool | None:
    """What bmod says of an option without a value; None: nothing."""
    return False if deleted & bit else True if options & bit else None


def _run_limit(fields: Fields) -> int | None:
    limits = [fields.whole("limit") for _ in range(_LIMITS)]
    return None if limits[_RUN_LIMIT] == -1 else limits[_RUN_LIMIT]


def _skip(fields: Fields, name: str, count: int) -> None:
    for _ in range(count):
        fields.whole(name)


def _skip_texts(fields: Fields, name: str, count: int) -> None:
    for _ in range(count):
        fields.text(name)
