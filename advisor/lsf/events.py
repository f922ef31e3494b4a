"""Follow ``lsb.events``: the jobs of a running cluster, from the file that mbatchd writes as things happen.

mbatchd begins a new file now and then and writes into it again all records of the jobs it still knows. So the
live jobs are always the sum of one file: a reader that sees another file under the name begins anew, and
misses nothing. What a requeued job did before counts as a restart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Final

from advisor.files.log_file import unreadable
from advisor.lsf.fields import Fields, MalformedRecord
from advisor.lsf.job_finish import slots_and_host
from advisor.lsf.live_job import LiveJob, read_id, read_job_modify, read_job_new
from advisor.model.errors import BadInput, RetryLater

FINISHED: Final = frozenset({"DONE", "EXIT"})
_STATES: Final = {0x01: "PEND", 0x02: "PSUSP", 0x04: "RUN", 0x08: "SSUSP", 0x10: "USUSP", 0x20: "EXIT",
                  0x40: "DONE", 0x10000: "UNKWN"}  # fmt: skip
_VOLCLAVA: Final = "22"
_IBM: Final = re.compile(r"(?:9|1[0-9])\.[0-9.]{1,10}")
"""Versions that IBM's releases from 9.1 on write: the earliest record seen is 9.13's."""
_MAX_LINE_BYTES: Final = 8 * 1024 * 1024
_MAX_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsInEvents:
    """The jobs that have not finished, as of the last whole line.

    Attributes:
        jobs: The live jobs in the order of submission; each element of an array is a job.
        finished: Jobs that have finished since the last look.
        began_anew: Whether the file was another one than at the last look.
        malformed: Lines of this file that could not be read.
    """

    jobs: tuple[LiveJob, ...]
    finished: tuple[LiveJob, ...]
    began_anew: bool
    malformed: int
    problems: tuple[str, ...]


class EventsReader:
    """Reads what was appended to ``lsb.events`` since the last look.

    The file stays open, so that no later file can be taken for it.

    Args:
        path: The file, in LSB_SHAREDIR/logdir or LSB_SHAREDIR/cluster name/logdir.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._told: set[tuple[int, int, int]] = set()
        self._is_ibm_lsf = False
        self._takers: dict[str, Callable[[Fields, int], None]] = {
            "JOB_NEW": self._new,
            "JOB_START": self._start,
            "JOB_STATUS": self._status,
            "JOB_SWITCH": self._switch,
            "JOB_MODIFY2": self._modify,
            "JOB_REQUEUE": self._requeue,
            "JOB_SWITCH2": lambda _fields, _when: None,  # IBM's, of an array: bjobs says where it waits
            "JOB_CLEAN": self._clean,
        }
        self._reset()

    def _reset(self) -> None:
        self._jobs: dict[tuple[int, int], LiveJob] = {}
        self._of_id: dict[int, list[int]] = {}
        self._line = self._offset = self._malformed = 0
        self._problems: list[str] = []

    @property
    def is_ibm_lsf(self) -> bool:
        """Whether a release of IBM's wrote the last record that was read."""
        return self._is_ibm_lsf

    def close(self) -> None:
        """Close the file; the next look reads it from its beginning."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def look(self) -> JobsInEvents:
        """The jobs now.

        Raises:
            BadInput: There is no such file, it may not be read (``trace.unreadable``), or a release wrote it
                whose records are not known (``lsf.version``).
            RetryLater: It cannot be read at this moment (``lsf.unreadable``).
        """
        file, anew = self._open()
        try:
            for line in self._new_lines(file):
                self._take(line)
        except OSError as error:  # a file server's stale handle
            self.close()
            raise RetryLater(
                f"{self._path} cannot be read ({error.strerror}): the next poll opens it again",
                code="lsf.unreadable",
            ) from error
        except BadInput:
            self.close()  # the next look meets the same line, and does not take what follows for all jobs
            raise
        ended = {(*key, job.end_time or 0): job for key, job in self._jobs.items() if job.state in FINISHED}
        new = tuple(job for key, job in ended.items() if key not in self._told)
        self._told = set(ended)
        return JobsInEvents(
            jobs=tuple(job for job in self._jobs.values() if job.state not in FINISHED),
            finished=new,
            began_anew=anew,
            malformed=self._malformed,
            problems=tuple(self._problems),
        )

    def _open(self) -> tuple[IO[bytes], bool]:
        """The file, and whether it had to be opened."""
        try:
            if self._file is not None:
                mine, now = os.fstat(self._file.fileno()), self._path.stat()
                if os.path.samestat(mine, now) and now.st_size >= self._offset:
                    return self._file, False
            self.close()
            file = self._file = self._path.open("rb")
        except FileNotFoundError as error:
            if self._told or self._jobs:  # between the old file and the new one
                raise RetryLater(
                    f"{self._path} is not there at this moment: the next poll opens it again",
                    code="lsf.unreadable",
                ) from error
            raise unreadable(self._path, error) from None
        except OSError as error:
            raise unreadable(self._path, error) from None
        self._reset()
        return file, True

    def _new_lines(self, file: IO[bytes]) -> Iterator[bytes]:
        file.seek(self._offset)
        for line in file:
            if not line.endswith(b"\n"):
                return  # it is being written
            self._offset += len(line)
            self._line += 1
            if line.startswith(b'"'):
                yield line

    def _take(self, line: bytes) -> None:
        take = self._takers.get(line[1 : line.find(b'"', 1)].decode("ascii", "replace"))
        if take is None:
            return
        try:
            fields = _fields_of(line)
            self._is_ibm_lsf = self._read_version(fields.text("version"))
            take(fields, fields.whole("event time"))
        except MalformedRecord as error:
            self._malformed += 1
            if len(self._problems) < _MAX_PROBLEMS:
                self._problems.append(f"line {self._line}: {error}")

    def _read_version(self, version: str) -> bool:
        """Whether a release of IBM's wrote the record."""
        if version == _VOLCLAVA or _IBM.fullmatch(version):
            return version != _VOLCLAVA
        raise BadInput(
            f"its records are of version {version[:20]!a}; volclava's and those of LSF from 9.1 on are known",
            where=f"{self._path}, line {self._line}",
            mend="Jobs of such a release cannot be followed; use `advisor ingest lsb.acct`",
            code="lsf.version",
        )

    def _new(self, fields: Fields, _when: int) -> None:
        for job in read_job_new(fields, is_ibm_lsf=self._is_ibm_lsf):
            self._jobs[job.job_id, job.array_index] = job
            indices = self._of_id.setdefault(job.job_id, [])
            if job.array_index not in indices[-1:]:
                indices.append(job.array_index)

    def _start(self, fields: Fields, when: int) -> None:
        job_id = fields.whole("job id")
        _skip(fields, 3)  # status, process, process group
        fields.real("host factor")
        hosts = tuple(host for word in fields.texts("hosts") for host in _slots(word))
        fields.text("command before")
        fields.text("command after")
        fields.whole("flags")
        if fields.next_is_text():
            fields.text("user group")
        started = partial(replace, state="RUN", hosts=hosts, start_time=when, switched_running=False)
        self._change(job_id, fields.whole("array index"), started)

    def _status(self, fields: Fields, _when: int) -> None:
        job_id, status = fields.whole("job id"), fields.whole("status")
        _skip(fields, 2)  # reasons
        fields.real("processor time")
        ended = fields.whole("end time")
        if fields.whole("resource usage"):
            for _ in range(19):
                fields.real("resource usage")
        fields.whole("exit status")
        state = next((_STATES[bit] for bit in reversed(_STATES) if status & bit), None)
        if state is None:
            raise MalformedRecord(f"status {status} is unknown")
        self._change(job_id, fields.whole("array index"), lambda job: _in_state(job, state, ended))

    def _switch(self, fields: Fields, _when: int) -> None:
        fields.whole("user id")
        job_id, queue = fields.whole("job id"), fields.text("queue")
        self._change(job_id, fields.whole("array index"), lambda job: _in_queue(job, queue))

    def _modify(self, fields: Fields, _when: int) -> None:
        if self._is_ibm_lsf:
            job_id, indices = read_id(fields.text("job id"))
            for index in indices or (0,):
                self._change(job_id, index, lambda job: replace(job, is_changed=True))
            return
        change = read_job_modify(fields)
        for index in change.indices or (0,):
            self._change(change.job_id, index, change.applied_to)

    def _requeue(self, fields: Fields, _when: int) -> None:
        job_id = fields.whole("job id")
        self._change(
            job_id,
            fields.whole("array index"),
            lambda job: replace(_in_state(job, "PEND", 0), restarts=job.restarts + 1),
        )

    def _clean(self, fields: Fields, _when: int) -> None:
        job_id, index = fields.whole("job id"), fields.whole("array index")
        for one in [index] if index else list(self._of_id.get(job_id, ())):
            self._jobs.pop((job_id, one), None)

    def _change(self, job_id: int, index: int, change: Callable[[LiveJob], LiveJob]) -> None:
        """Change a job; of an array without an index, all elements that have not finished."""
        for one in [index] if index else self._of_id.get(job_id, ()):
            job = self._jobs.get((job_id, one))
            if job is not None and (one == index or job.state not in FINISHED):
                self._jobs[job_id, one] = change(job)


def _slots(word: str) -> Iterator[str]:
    """The slots of ``4*host1``, as LSF shortens long lists, or of ``host1``."""
    slots, host = slots_and_host(word)
    return iter([host] * slots)


def _fields_of(line: bytes) -> Fields:
    if len(line) > _MAX_LINE_BYTES:
        raise MalformedRecord(f"longer than {_MAX_LINE_BYTES:,} bytes")
    fields = Fields(line.decode("utf-8", "replace").rstrip("\r\n"))
    fields.text("type")
    return fields


def _in_queue(job: LiveJob, queue: str) -> LiveJob:
    runs = job.state not in {"PEND", "PSUSP"}
    return replace(job, queue=queue, switched_running=runs, is_switched=not job.array_index)


def _in_state(job: LiveJob, state: str, ended: int) -> LiveJob:
    if state in FINISHED:
        return replace(job, state=state, end_time=job.end_time or ended)
    if state in {"PEND", "PSUSP"}:
        return replace(job, state=state, hosts=(), start_time=None, end_time=None)
    return replace(job, state=state, end_time=None)


def _skip(fields: Fields, count: int) -> None:
    for _ in range(count):
        fields.whole("a field of no interest")
