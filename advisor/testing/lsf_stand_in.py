"""A stand-in for a small LSF: its commands as programs, and the files that mbatchd writes.

It says and writes what volclava 2.2 was seen to (``tests/lsf/test_contract.py`` runs the same cases against
both). A job's command is not run: the number after ``sleep`` is its run time, and any other command ends at
once. Jobs start in the order of their queues' priority and their submission, on the first hosts with room.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self, TypeAlias

from advisor.lsf.live_job import elements
from advisor.model.job_id import job_name
from advisor.testing import lsf_records as records
from advisor.testing.lsf_programs import (
    CHANGED,
    bad_option,
    begin_time,
    changes_of,
    modified,
    options_of,
    parameters_of,
    write_programs,
)
from advisor.testing.lsf_records import ENDED, StandInJob, StandInQueue, resources_of

COMMANDS: Final = (
    "badmin", "bhosts", "bjobs", "bkill", "bmgroup", "bmod", "bparams", "bqueues", "brequeue", "bresume",
    "bsub", "bswitch", "lshosts",
)  # fmt: skip
_ROUND_SECONDS: Final = 0.05
Said: TypeAlias = tuple[str, str, int]


class LsfStandIn:
    """One cluster in a folder; a context manager.

    Args:
        folder: Empty; ``etc`` below it is the LSF_ENVDIR.
        hosts: Slots of each host.
        queues: All of them; the default one is where jobs without ``-q`` go.
        resources: Boolean resources of hosts, for ``select[...]``; other hosts have none.
        max_priority: ``MAX_USER_PRIORITY``; None: jobs have no priorities.
        version: Of the records, of a release of IBM's; empty: they are volclava's.
        requeue_seconds: From the end of a job that is requeued to its waiting again.
        speed: Seconds of a job's sleep that pass in one second.
    """

    def __init__(
        self,
        folder: Path,
        *,
        hosts: Mapping[str, int],
        queues: Sequence[StandInQueue],
        resources: Mapping[str, str] = MappingProxyType({}),
        max_priority: int | None = None,
        version: str = "",
        requeue_seconds: float = 0.2,
        speed: float = 1.0,
    ) -> None:
        self.folder = folder
        self._hosts, self._resources = dict(hosts), dict(resources)
        self._queues = {queue.name: queue for queue in queues}
        self._max_priority, self._version = max_priority, version
        self._requeue_seconds, self._speed = requeue_seconds, speed
        self._closed = set[str]()
        self._jobs: dict[int, StandInJob] = {}
        self._requeued: dict[int, float] = {}
        self._next = 1
        self._lock = threading.RLock()
        self._stop = threading.Event()

    @property
    def environment_folder(self) -> Path:
        """What LSF_ENVDIR names."""
        return self.folder / "etc"

    @property
    def log_folder(self) -> Path:
        """Where lsb.events and lsb.acct are."""
        return self.folder / "work" / "logdir"

    def __enter__(self) -> Self:
        """Write its files and programs, and begin."""
        commands = self.folder / "bin"
        for folder in (self.environment_folder, commands, self.folder / "sbin", self.log_folder):
            folder.mkdir(parents=True)
        (self.environment_folder / "lsf.conf").write_text(
            f"LSF_BINDIR={commands}\nLSB_SHAREDIR={self.folder / 'work'}\nLSF_UNIT_FOR_LIMITS=MB\n"
        )
        (self.log_folder / "lsb.events").write_text(records.FIRST_LINE)
        (self.log_folder / "lsb.acct").touch()
        self._short = Path(tempfile.mkdtemp(prefix="lsf-"))  # a socket's path has 107 characters at most
        self._short.chmod(0o755)
        write_programs(self.folder, self._short / "mbatchd", COMMANDS)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(self._short / "mbatchd"))
        (self._short / "mbatchd").chmod(0o777)
        self._socket.listen(64)
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._serve, self._rounds)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, and leave the files."""
        self._stop.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join()
        shutil.rmtree(self._short)

    def begin_new_events_file(self) -> None:
        """What mbatchd does now and then: the live jobs are written anew into a new file."""
        with self._lock:
            path = self.log_folder / "lsb.events"
            path.rename(path.with_name("lsb.events.1"))
            path.write_text(records.FIRST_LINE)
            for job in list(self._jobs.values()):
                if job.state not in ENDED:
                    self._log(records.new(job, self._version))
                    if job.hosts:
                        self._log(records.start(job))

    def add_host(self, name: str, slots: int, queue: str, resources: str = "") -> None:
        """A host joins the cluster, for one queue."""
        with self._lock:
            self._hosts[name] = slots
            self._resources[name] = resources
            self._queues[queue] = replace(
                self._queues[queue], hosts=tuple(dict.fromkeys((*self._queues[queue].hosts, name)))
            )

    def remove_host(self, name: str) -> None:
        """A host leaves it; its jobs are requeued."""
        with self._lock:
            self._hosts.pop(name, None)
            self._closed.discard(name)
            for queue in self._queues.values():
                left = tuple(host for host in queue.hosts if host != name)
                self._queues[queue.name] = replace(queue, hosts=left)
            for key, job in list(self._jobs.items()):
                if job.state == "RUN" and name in job.hosts:
                    self._end(key, "EXIT")
                    self._requeued[key] = time.time()

    def wanted(self, queue: str) -> list[tuple[int, frozenset[str]]]:
        """Slots and resources that each job waiting in a queue asks for."""
        with self._lock:
            jobs = (job for job in self._jobs.values() if job.queue == queue and job.state == "PEND")
            return [(job.processors, resources_of(job)) for job in jobs]

    def idle(self, host: str) -> bool:
        """Whether no job is on a host."""
        with self._lock:
            return not self._taken(host)

    # ------------------------------------------------------------------------------------- its threads

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("r") as asked:
                user, name, *words = json.loads(asked.readline())
                with self._lock:
                    answer: Callable[[int, list[str]], Said] = getattr(self, f"_{name}")
                    try:
                        said = answer(user, words)
                    except ValueError as error:  # an option that it does not know
                        said = "", f"{name}: {error}\n", 255
                with suppress(OSError):
                    connection.sendall((json.dumps(said) + "\n").encode())

    def _rounds(self) -> None:
        while not self._stop.wait(_ROUND_SECONDS):
            with self._lock:
                now = time.time()
                for key in [key for key, due in self._requeued.items() if due <= now]:
                    del self._requeued[key]
                    self._set(key, state="PEND", hosts=(), start_time=0.0, end_time=0.0)
                    self._log(records.requeue(self._jobs[key]))
                for key, job in list(self._jobs.items()):
                    if job.state == "RUN" and job.start_time + job.seconds / self._speed <= now:
                        self._end(key, "DONE")
                self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        waiting = [job for job in self._jobs.values() if job.state == "PEND" and job.begin_time <= now]
        for job in sorted(
            waiting, key=lambda job: (-self._queues[job.queue].priority, -self._priority(job), job.key)
        ):
            hosts = self._room_for(job)
            if hosts:  # LSF keeps nothing free for a job that does not fit yet
                self._set(job.key, state="RUN", hosts=hosts, start_time=now)
                self._log(records.start(self._jobs[job.key]))

    def _priority(self, job: StandInJob) -> int:
        return (self._max_priority or 0) // 2 if job.priority is None else job.priority

    def _room_for(self, job: StandInJob) -> tuple[str, ...]:
        found: list[str] = []
        wanted = resources_of(job)
        for host in self._queues[job.queue].hosts:
            if host in self._closed or not wanted.issubset(self._resources.get(host, "").split()):
                continue
            free = self._hosts[host] - self._taken(host)
            found += [host] * min(free, job.processors - len(found))
        return tuple(found) if len(found) == job.processors else ()

    def _taken(self, host: str) -> int:
        return sum(job.hosts.count(host) for job in self._jobs.values() if job.state == "RUN")

    def _set(self, key: int, **changes: object) -> None:
        self._jobs[key] = replace(self._jobs[key], **changes)  # type: ignore[arg-type]  # names and types of its fields

    def _end(self, key: int, state: str) -> None:
        self._set(key, state=state, end_time=time.time())
        job = self._jobs[key]
        self._log(records.status(job))
        with (self.log_folder / "lsb.acct").open("a") as file:
            file.write(records.finish(job))

    def _log(self, line: str) -> None:
        with (self.log_folder / "lsb.events").open("a") as file:
            file.write(line.replace('"22"', f'"{self._version}"', 1) if self._version else line)

    # ------------------------------------------------------------------------------------ its commands

    def _bsub(self, user: int, words: list[str]) -> Said:
        given, rest = options_of(words, _BSUB, flags="H r")
        given = modified(given, given.pop("esub", ""))
        if refused := bad_option(given, self._max_priority):
            return "", f"{refused}. Job not submitted.\n", 255
        queue = given.get("q") or next(name for name, one in self._queues.items() if one.is_default)
        if queue not in self._queues:
            return "", f"{queue}: No such queue. Job not submitted.\n", 255
        minutes, owner = int(given["W"]) if "W" in given else None, pwd.getpwuid(user).pw_name
        if why := self._queues[queue].refuses(minutes, owner):
            return "", f"{why}. Job not submitted.\n", 255
        number, self._next = self._next, self._next + 1
        name, _, array = given.get("J", "").partition("[")
        now = time.time()
        job = StandInJob(
            key=number, user_id=user, user=owner, queue=queue,
            explicit_queue="q" in given, processors=int(given.get("n", "1")), submit_time=now, name=name,
            begin_time=begin_time(given.get("b"), now), state="PSUSP" if "H" in given else "PEND",
            minutes=minutes, command=" ".join(rest),
            resource_request=given.get("R", ""), project=given.get("P", "default"),
            description=given.get("Jd", ""), asked_hosts=tuple(given.get("m", "").split()),
            priority=int(given["sp"]) if "sp" in given else None,
            dependency=given.get("w", ""), rerunnable="r" in given, array=array.rstrip("]"),
        )  # fmt: skip
        indices = elements(job.array) if job.array else (0,)
        self._log(records.new(replace(job, name=f"{name}[{job.array}]") if job.array else job, self._version))
        for index in indices:
            key = index << 32 | number
            self._jobs[key] = replace(job, key=key, name=f"{name}[{index}]" if index else name)
        kind = "queue" if "q" in given else "default queue"
        return f"Job <{number}> is submitted to {kind} <{queue}>.\n", "", 0

    def _esub(self, _user: int, words: list[str]) -> Said:
        """What an esub is told of a submission."""
        return parameters_of(options_of(words, _BSUB, flags="H r")[0]), "", 0

    def _bparams(self, _user: int, _words: list[str]) -> Said:
        return records.parameters_page(self._max_priority), "", 0

    def _keys(self, word: str) -> list[int]:
        """The live jobs that a word names: ``95``, of an array all elements, or ``95[2]``; ``0``: all."""
        number, _, rest = word.partition("[")
        wanted = set(elements(rest.rstrip("]"))) if rest else None
        return [
            key
            for key, job in self._jobs.items()
            if number in {"0", str(key & 0xFFFFFFFF)}
            and (wanted is None or key >> 32 in wanted)
            and job.state not in ENDED
        ]

    def _each(
        self,
        user: int,
        words: Sequence[str],
        act: Callable[[int], str],
        refuses: Callable[[int], str] = lambda _key: "",
    ) -> Said:
        """Do it to each job, of its user or for an administrator; 255 where one is not there, or refused."""
        out = err = ""
        for word in words:
            keys = self._keys(word)
            is_his = user in {0, os.getuid()} or all(self._jobs[key].user_id == user for key in keys)
            why = "" if keys else "No matching job found"
            why = why or ("" if is_his else "User permission denied")
            why = why or next(filter(None, map(refuses, keys)), "")
            err += f"Job <{word}>: {why}\n" if why else ""
            out += "" if why else "".join(f"Job <{job_name(key)}> is {act(key)}\n" for key in keys)
        return out, err, 255 if err else 0

    def _bswitch(self, user: int, words: list[str]) -> Said:
        queue, *named = words
        if queue not in self._queues:
            return "", f"{queue}: No such queue\n", 255

        def switch(key: int) -> str:  # jobs that run as well
            reruns = self._jobs[key].rerunnable or self._queues[queue].is_rerunnable
            self._set(key, queue=queue, rerunnable=reruns)
            self._log(records.switch(self._jobs[key], user))
            return f"switched to queue <{queue}>"

        name = None if user in {0, os.getuid()} else pwd.getpwuid(user).pw_name
        return self._each(
            user, named, switch, lambda key: self._queues[queue].refuses(self._jobs[key].minutes, name)
        )

    def _bmod(self, user: int, words: list[str]) -> Said:
        given, rest = options_of(
            [word.removesuffix("/head") for word in words], "Jd W R sp", flags="Rn Wn rn"
        )
        if refused := bad_option(given, self._max_priority):
            return "", f"{refused}. Job not modified.\n", 255

        def modify(key: int) -> str:
            self._set(key, **changes_of(given))
            return "changed"

        out, err, code = self._each(user, rest, modify)
        for word in rest if not err else ():
            job = self._jobs[self._keys(word)[0]]
            changed = {name: given[letter] for letter, name in CHANGED.items() if letter in given}
            record = records.modify(job, word, user, changed)
            self._log(records.modify_by_ibm(job, word, self._version) if self._version else record)
        return out and "".join(f"Parameters of job <{word}> are being changed\n" for word in rest), err, code

    def _bkill(self, user: int, words: list[str]) -> Said:
        def kill(key: int) -> str:
            self._end(key, "EXIT")
            return "being terminated"

        return self._each(user, words, kill)

    def _brequeue(self, user: int, words: list[str]) -> Said:
        for word in words:
            if any(self._jobs[key].state != "RUN" for key in self._keys(word)):
                return "", f"Job <{word}> : Job has not started yet\n", 255

        def requeue(key: int) -> str:
            self._end(key, "EXIT")
            self._requeued[key] = time.time() + self._requeue_seconds
            return "being requeued "

        return self._each(user, words, requeue)

    def _bresume(self, user: int, words: list[str]) -> Said:
        def resume(key: int) -> str:
            if self._jobs[key].state == "PSUSP":
                self._set(key, state="PEND")
                self._log(records.status(self._jobs[key]))
            return "being resumed"

        return self._each(user, words, resume)

    def _bjobs(self, _user: int, words: list[str]) -> Said:
        """``bjobs -u all -json -o "jobid stat queue jobindex"``, or ``bjobs -p``."""
        page = records.reasons_page if words[-1:] == ["-p"] else records.jobs_json
        return page([job for job in self._jobs.values() if job.state not in ENDED]), "", 0

    def _bhosts(self, _user: int, _words: list[str]) -> Said:
        taken = {host: self._taken(host) for host in self._hosts}
        return records.hosts_table(self._hosts, taken, self._closed), "", 0

    def _lshosts(self, _user: int, _words: list[str]) -> Said:
        return records.hardware_table(self._hosts, self._resources), "", 0

    def _badmin(self, _user: int, words: list[str]) -> Said:
        """``badmin hclose -C why host``: nothing more starts there."""
        self._closed.add(words[-1])
        return f"Close <{words[-1]}> ...... done\n", "", 0

    def _bmgroup(self, _user: int, _words: list[str]) -> Said:
        return "", "host group: No host group defined in the system\n", 255

    def _bqueues(self, _user: int, words: list[str]) -> Said:
        given, named = options_of(words, "u", flags="l w r")
        queues = [one for one in self._queues.values() if not named or one.name in named]
        if user := given.get("u"):
            queues = [one for one in queues if not one.users or user in one.users]
        if not queues:
            return "", f"{user or named[0]}: User cannot use the queue\n", 255
        if "-l" not in words:
            rows = ((queue.name, queue.priority) for queue in queues)
            return records.queues_table(rows, is_wide="-w" in words), "", 0
        return records.RULE.join(map(records.queue_page, queues)), "", 0


_BSUB: Final = "q n W J Jd b R P m w sp esub"
