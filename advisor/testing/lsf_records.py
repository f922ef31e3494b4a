"""Records of lsb.events and lsb.acct, and tables of LSF's commands, as volclava 2.2 writes them.

With ``version`` JOB_NEW and JOB_MODIFY2 are those of a release of IBM's: the former after a record of 9.13
that others have published, the latter with the job's name alone, as no more of it is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

FIRST_LINE: Final = "#80                                   \n"
ENDED: Final = frozenset({"DONE", "EXIT"})
RULE: Final = "-" * 79 + "\n\n"
_STATUS: Final = {"PEND": 1, "PSUSP": 2, "RUN": 4, "EXIT": 32, "DONE": 64}
_NO_LIMITS: Final = "-1 " * 9
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_SELECT: Final = re.compile(r"select\[([^\]]*)\]")
_SLEEP: Final = "sleep "


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInJob:
    """A job of the stand-in, or an element of an array; times are epoch seconds, 0 for none.

    Attributes:
        key: Its 64-bit id.
        minutes: Its run limit; None: none.
        priority: ``-sp``; None: none was given.
        array: Indices of the array it belongs to; empty for a plain job.
    """

    key: int
    user_id: int
    user: str
    queue: str
    explicit_queue: bool
    processors: int
    submit_time: float
    state: str
    name: str
    command: str
    minutes: int | None
    begin_time: int
    resource_request: str
    project: str
    description: str
    asked_hosts: tuple[str, ...]
    dependency: str
    rerunnable: bool
    array: str
    priority: int | None = None
    hosts: tuple[str, ...] = ()
    start_time: float = 0.0
    end_time: float = 0.0

    @property
    def number(self) -> int:
        """What all elements of an array share."""
        return self.key & 0xFFFFFFFF

    @property
    def index(self) -> int:
        """Of an element of an array; 0 for a plain job."""
        return self.key >> 32

    @property
    def seconds(self) -> float:
        """For how long it sleeps."""
        word = self.command.removeprefix(_SLEEP)
        return float(word) if _NUMBER.fullmatch(word) else 0.0

    @property
    def options(self) -> int:
        """Bsub's option bits (lsbatch.h)."""
        return 33554432 | sum(
            bit
            for bit, is_given in (
                (0x01, bool(self.name)), (0x02, self.explicit_queue), (0x04, bool(self.asked_hosts)),
                (0x4000, self.rerunnable), (0x20000, bool(self.dependency)),
                (0x40000, bool(self.resource_request)),
            )
            if is_given
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInQueue:
    """A queue; `minutes` are its default and its longest run limit, None: none; `users` empty: all."""

    name: str
    hosts: tuple[str, ...]
    priority: int = 30
    minutes: tuple[int, int] | None = None
    is_default: bool = False
    users: tuple[str, ...] = ()
    is_rerunnable: bool = False

    def refuses(self, minutes: int | None, user: str | None) -> str:
        """Why it does not take a job; empty: it does. An administrator (None) may switch anybody's there."""
        if self.minutes is not None and minutes is not None and minutes > self.minutes[1]:
            return "Cannot exceed queue's hard limit(s)"
        is_let_in = user is None or not self.users or user in self.users
        return "" if is_let_in else "User cannot use the queue"


def resources_of(job: StandInJob) -> frozenset[str]:
    """The Boolean resources that a job's hosts must have."""
    chosen = _SELECT.search(job.resource_request)
    return frozenset(chosen[1].replace("&&", " ").split()) if chosen else frozenset()


def _text(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def _texts(values: tuple[str, ...]) -> str:
    return " ".join([str(len(values)), *map(_text, values)])


def _limits(minutes: int | None) -> str:
    return f"{_NO_LIMITS}{-1 if minutes is None else 60 * minutes} -1"


def new(job: StandInJob, version: str = "") -> str:
    """JOB_NEW."""
    submitted = int(job.submit_time)
    asked = " ".join(map(_text, job.asked_hosts))
    count = f"{len(job.asked_hosts)} {asked} " if asked else "0 "
    index, host = job.index, "" if job.minutes is None else "head"
    priority = -1 if job.priority is None else job.priority
    held = 1040 | (1 if job.state == "PSUSP" else 0) | (0 if job.priority is None else 0x200)
    tail = f'"" {held} {index} "" "" "" {priority} {_text(job.description)} ""\n'
    if version:
        tail = f'"" "" "" "" {held} {index} "" "" "" {priority} -1 -1 64 "" "" -1 "" 0 -1 "" 0 0 0 "" -1 ""\n'
    return (
        f'"JOB_NEW" "{version or "22"}" {submitted} {job.number} {job.user_id} {job.options}'
        f" {job.processors} {submitted}"
        f' {job.begin_time} 0 -65535 0 0 "{job.user}" {_limits(job.minutes)} "{host}" 1.00 18 "{job.queue}"'
        f' {_text(job.resource_request)} "head" "/tmp" "" "" "" "" "/home/{job.user}"'
        f' "{submitted}.{job.number}"'
        f' {count}{_text(job.dependency)} "" {_text(job.name)} {_text(job.command)} 0 "" {_text(job.project)}'
        f' {job.processors} "DEFAULT" {tail}'
    )


def start(job: StandInJob) -> str:
    """JOB_START."""
    return (
        f'"JOB_START" "22" {int(job.start_time)} {job.number} 4 0 0 1.0 {_texts(job.hosts)} "" "" 0'
        f' {job.index} "select[type == local] order[r15s:pg]"\n'
    )


def status(job: StandInJob) -> str:
    """JOB_STATUS."""
    when = int(job.end_time or job.submit_time)
    ended = int(job.end_time)
    return (
        f'"JOB_STATUS" "22" {when} {job.number} {_STATUS[job.state]} 0 0 0.0100 {ended} 0 0 {job.index} 0 0\n'
    )


def switch(job: StandInJob, user_id: int) -> str:
    """JOB_SWITCH."""
    return (
        f'"JOB_SWITCH" "22" {int(job.submit_time)} {user_id} {job.number} "{job.queue}"'
        f' {job.index} "{job.user}"\n'
    )


def modify(job: StandInJob, word: str, user_id: int, changed: Mapping[str, str]) -> str:
    """JOB_MODIFY2 with what was changed; `word` is the job as the command named it."""
    asked = "resource_request" in changed
    options = 8388608 | (0x40000 if asked else 0)
    options2 = 2048 | (0x2000 if "description" in changed else 0) | (0x200 if "priority" in changed else 0)
    deleted = (0x40000 if "no_resources" in changed else 0) | (0x4000 if "not_rerunnable" in changed else 0)
    minutes = int(changed["minutes"]) if "minutes" in changed else None
    limits = f"{_NO_LIMITS}-2 -1" if "no_minutes" in changed else _limits(minutes)
    resources = f"{_text(changed['resource_request'])} " if asked else ""
    priority = f" {changed['priority']}" if "priority" in changed else ""
    description = f" {_text(changed['description'])}" if "description" in changed else ""
    return (
        f'"JOB_MODIFY2" "22" {int(job.submit_time)} "{word}" {options} {options2} {deleted}'
        f' {user_id} "{job.user}"'
        f" {int(job.submit_time)} 18 2147483646 0 0 0 0 {resources}{limits}"
        f' "/root" "" "head" "" 0 2147483646 "" 0{priority}{description}\n'
    )


def modify_by_ibm(job: StandInJob, word: str, version: str) -> str:
    """JOB_MODIFY2 of a release of IBM's."""
    return f'"JOB_MODIFY2" "{version}" {int(job.submit_time)} "{word}" 8388608 0 0 0 0 "{job.user}"\n'


def requeue(job: StandInJob) -> str:
    """JOB_REQUEUE."""
    return f'"JOB_REQUEUE" "22" {int(job.submit_time)} {job.number} {job.index}\n'


def finish(job: StandInJob) -> str:
    """JOB_FINISH, of lsb.acct."""
    name = f"{job.name.partition('[')[0]}[{job.array}]" if job.array else job.name
    return (
        f'"JOB_FINISH" "22" {int(job.end_time)} {job.number} {job.user_id} {job.options} {job.processors}'
        f' {int(job.submit_time)} {job.begin_time} 0 {int(job.start_time)} "{job.user}" "{job.queue}"'
        f' {_text(job.resource_request)} {_text(job.dependency)} "" "head" "/tmp" "" "" ""'
        f' "{int(job.submit_time)}.{job.number}" {_texts(job.asked_hosts)} {_texts(job.hosts)}'
        f" {_STATUS[job.state]} 1.0 {_text(name)} {_text(job.command)} 0.005483 0.007172 6112 0 -1 0 0 827 0"
        f' 0 0 40 -1 0 0 0 16 12 -1 "" {_text(job.project)} 0 {job.processors} "" {job.index} 6784'
        ' 6784 "" ""\n'
    )


def reasons_page(jobs: Collection[StandInJob]) -> str:
    """``bjobs -p``; of dependencies, on the start or end of one job."""
    waiting = [job for job in jobs if job.state == "PEND"]
    waits_for = {str(job.number) for job in waiting}
    live = {str(job.number) for job in jobs}
    page = "JOBID   USER    STAT  QUEUE       FROM_HOST      JOB_NAME           SUBMIT_TIME\n"
    for job in waiting:
        verb, _, other = job.dependency.rstrip(")").partition("(")
        depends = other in (waits_for if verb == "started" else live)
        why = "Job dependency condition not satisfied" if depends else "Job slot limit reached"
        index = f"[{job.index}]" if job.index else ""
        name = f"{job.name.partition('[')[0]}{index}"
        page += f"{job.number:<7} {job.user} PEND  {job.queue} head {name} Nov 29 21:31\n {why}: 1 host;\n"
    return page


def jobs_json(jobs: Iterable[StandInJob]) -> str:
    """``bjobs -json``."""
    rows = [
        {
            "JOBID": str(job.number),
            "JOBINDEX": str(job.index or ""),
            "STAT": job.state,
            "QUEUE": job.queue,
            "JOB_NAME": job.name,
            "JOB_DESCRIPTION": job.description,
        }
        for job in jobs
    ]
    return json.dumps({"COMMAND": "bjobs", "JOBS": len(rows), "RECORDS": rows})


def queues_table(queues: Iterable[tuple[str, int]], *, is_wide: bool) -> str:
    """``bqueues``, of names and priorities; without ``-w`` names are cut."""
    rows = (f"{name if is_wide else name[:15]:<15} {priority:>4} Open:Active\n" for name, priority in queues)
    return "QUEUE_NAME      PRIO STATUS\n" + "".join(rows)


def hosts_table(hosts: Mapping[str, int], taken: Mapping[str, int], closed: Collection[str] = ()) -> str:
    """``bhosts -w``."""
    rows = ["HOST_NAME          STATUS          JL/U    MAX  NJOBS    RUN  SSUSP  USUSP    RSV\n"]
    for host, slots in hosts.items():
        used = taken[host]
        state = "closed_Adm" if host in closed else "closed_Full" if used >= slots else "ok"
        rows.append(f"{host:<18} {state:<15}    - {slots:>6} {used:>6} {used:>6}      0      0      0\n")
    return "".join(rows)


def hardware_table(hosts: Mapping[str, int], resources: Mapping[str, str]) -> str:
    """``lshosts -w``."""
    head = "HOST_NAME                       type       model  cpuf ncpus maxmem maxswp server RESOURCES\n"
    kind = "DEFAULT     DEFAULT   1.0"
    rows = [f"{host:<28} {kind} {n:>5} 24105M      -    Yes" for host, n in hosts.items()]
    names = [resources.get(host, "") for host in hosts]
    return head + "".join(f"{row} ({name})\n" for row, name in zip(rows, names, strict=True))


def parameters_page(max_priority: int | None) -> str:
    """What is read of ``bparams -l``."""
    said = "" if max_priority is None else f"    MAX_USER_PRIORITY = {max_priority}\n"
    return f"\nMaximal job priority defined for all users: \n{said}\n"


def queue_page(queue: StandInQueue) -> str:
    """A queue of ``bqueues -l``."""
    about = "  This is the default queue." if queue.is_default else ""
    limits = "".join(
        f"{word} LIMITS:\n RUNLIMIT                \n {one}.0 min                \n\n"
        for word, one in zip(("DEFAULT", "MAXIMUM"), queue.minutes or (), strict=False)
    )
    return (
        f"\nQUEUE: {queue.name}\n  -- A queue.{about}\n\nPARAMETERS/STATISTICS\n"
        "PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV\n"
        f"{queue.priority:>3}    0  Open:Active       -    -    -    -     0     0     0     0     0    0\n"
        f"Interval for a host to accept two jobs is 0 seconds\n\n{limits}"
        f"SCHEDULING PARAMETERS\n\nUSERS: {' '.join(queue.users) or ' all'}\n"
        f"HOSTS:  {' '.join(queue.hosts)} \n{'RERUNNABLE :  yes' * queue.is_rerunnable}\n\n"
    )
