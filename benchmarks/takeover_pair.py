"""A pair of slurmctld on one machine, jobs submitted to it all the time, and what became of each of them.

The second slurmctld has a host name of its own (UTS and mount namespaces) and the StateSaveLocation of the
first. Nothing here needs the advisor: `run_slurm_alone` is what Slurm itself does at a takeover.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from advisor.model.errors import AdvisorError, RetryLater
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import is_alive, pid_in, wait_until

BACKUP: Final = "backup"
STANDBY_SECONDS: Final = 30.0
"""From a hand-back to the next kill. A backup slurmctld 22.05 that is still ending its last duty (messages to
nodes that have gone, for 21 s) ends instead of taking over: two runs of ten takeovers stopped there.
"""
LIMIT_SECONDS: Final = 240.0
_HANGS_SECONDS: Final = 90.0
_ADDRESS: Final = "127.0.0.2"
_AS_BACKUP: Final = f'mount --bind {{}} /etc/hosts && hostname {BACKUP} && exec "$@"'
_JOB: Final = "echo $SLURM_JOB_ID $(date +%s.%N) >>{begun}; sleep {seconds:.1f}; echo $SLURM_JOB_ID >>{done}"
_FORGOTTEN: Final = "FORGOTTEN"

LAB: Final = LabOptions(
    nodes=1, processors=16, burst_nodes=8, database=True, suspend_seconds=4, suspend_timeout_seconds=2,
    resume_timeout_seconds=60, min_job_age_seconds=3600,
    # else a node that registers while no control acts has no address: slurmctld looks up its name for
    # 10 s, with its locks held, and sbatch is refused
    slurmctld_parameters=("cloud_reg_addrs",),
    extra=(
        f"SlurmctldHost={BACKUP}({_ADDRESS})", "SlurmctldTimeout=10",
        "CommunicationParameters=NoCtldInAddrAny",
    ),
)  # fmt: skip


class Second:
    """The second slurmctld: its own slurm.conf and programs; the state is shared.

    Args:
        lab: The first side.
        folder: Where the second side's files go.
        programs: What Slurm calls, if not those of the lab.

    Attributes:
        died, hung: How often it was started anew, since it had ended or never handed back.
    """

    def __init__(self, lab: Lab, folder: Path, programs: Path | None = None) -> None:
        self._lab = lab
        self._programs = programs
        self._hosts = folder / "hosts"
        self.died = 0
        self.hung = 0
        self._missed_since = math.inf
        self.folder = folder
        self.conf = folder / "etc" / "slurm.conf"
        # a host name of its own, which resolves to an address of its own
        self.alone = ("unshare", "--uts", "--mount", "sh", "-c", _AS_BACKUP.format(self._hosts), "sh")

    def install(self, changes: Mapping[str, str]) -> None:
        """Copy the first side's files, with the second side's paths."""
        (self.folder / "run").mkdir(parents=True)
        self._hosts.write_text(f"{Path('/etc/hosts').read_text()}\n{_ADDRESS} {BACKUP}\n")
        changes = {
            **changes,
            str(self._lab.conf.parent): str(self.conf.parent),
            "slurmctld.pid": "slurmctld-b.pid",
            "slurmctld.log": "slurmctld-b.log",
        }
        copied = [(self._lab.conf.parent, self.conf.parent)]
        if self._programs is not None:
            copied.append((self._programs, self.folder / "programs"))
        for source, target in copied:
            shutil.copytree(source, target)
            for path in target.iterdir():
                path.write_text(replaced(path.read_text(), changes))

    def start(self) -> None:
        """Start it; it stands by."""
        self._lab.run(*self.alone, "slurmctld", "-i", env={"SLURM_CONF": str(self.conf)})

    def both_are_up(self) -> bool:
        """Whether the first slurmctld acts and this one stands by; one that ended or hangs is started anew.

        One of 22.05 may die of a job's end as it hands back, or never end its duty: it then writes its
        heartbeat beside the first one's, and takes no message.
        """
        shown = self._lab.run("scontrol", "ping", check=False).stdout
        if "(primary) at" in shown and shown.count("UP") == 2:
            self._missed_since = math.inf
            return True
        self._missed_since = min(self._missed_since, time.monotonic())
        pid = self._pid()
        has_ended = pid is None or not is_alive(pid)
        hangs = "UP" in shown and time.monotonic() - self._missed_since > _HANGS_SECONDS
        if has_ended or hangs:
            self.died += has_ended
            self.hung += not has_ended
            self.stop()
            self.start()
            self._missed_since = math.inf
        return False

    def restart(self) -> None:
        """Restart it after its duty, as docs/operate.md says: one of 22.05 is not fit for a second duty."""
        pid = self._pid()
        if pid is not None and is_alive(pid):
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not is_alive(pid), seconds=LIMIT_SECONDS, what="the second slurmctld ends")
        self.start()

    def stop(self) -> None:
        """End it as a crash would."""
        pid = self._pid()
        if pid is not None and is_alive(pid):
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not is_alive(pid), seconds=LIMIT_SECONDS, what="the second slurmctld ends")

    def figures(self) -> dict[str, int]:
        """How often it was started anew."""
        return {"backup_slurmctld_died_by_itself": self.died, "backup_slurmctld_hung": self.hung}

    def _pid(self) -> int | None:
        return pid_in(self._lab.folder / "run" / "slurmctld-b.pid")


def replaced(text: str, changes: Mapping[str, str]) -> str:
    """A text with each old word replaced by its new one."""
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


@dataclass(slots=True)
class Load:
    """Submits jobs until it is told to stop; half of them need cloud nodes.

    Attributes:
        lab: Where to.
        drawn: Draws how long the jobs last.
        pause: Seconds between two submissions.
        jobs: Partition of each job that was accepted.
        refused: What sbatch said otherwise.
        slowest_seconds: Of all submissions.
        last_started: Monotonic seconds at which the last accepted submission began.
        kills: Wall time of each slurmctld's end.
    """

    lab: Lab
    drawn: random.Random
    pause: float
    jobs: dict[int, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    last_started: float = 0.0
    kills: list[float] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to submit, in a thread."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Submit no more."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(90.0)

    def _run(self) -> None:
        begun, done = self._files()
        while not self._ending.wait(self.pause):
            partition = ("burst", "onprem")[len(self.jobs) % 2]
            script = _JOB.format(seconds=self.drawn.uniform(1.0, 6.0), begun=begun, done=done)
            processors = {"burst": 4, "onprem": 1}[partition]
            began = time.monotonic()
            try:
                job = self.lab.sbatch(
                    f"-p{partition}", "--time=2", f"-n{processors}", "--no-requeue", script=script
                )
            except (AdvisorError, subprocess.TimeoutExpired) as error:
                self.refused.append(str(error)[-200:])
                continue
            self.jobs[job.job_id] = partition
            self.last_started = began
            self.slowest_seconds = max(self.slowest_seconds, job.seconds)

    def kill(self) -> None:
        """End the first slurmctld as a crash would."""
        self.lab.stop_slurmctld(kill=True)
        self.kills.append(time.time())

    def figures(self) -> dict[str, Any]:
        """What became of the jobs, once all have ended.

        A slurmctld writes its jobs down within five seconds (SAVE_MAX_WAIT, compiled in). What happened to a
        job in the last seconds before a kill is not known to the next one: it may have forgotten the job, or
        start it again. For each job that was lost or ran twice the seconds from its first begin to the next
        kill are given.
        """
        # a job that was started again while its first run had not ended drains its node ("Duplicate jobid")
        self.lab.run("scontrol", "update", "nodename=onprem1", "state=resume", check=False)
        ends = self._ends()
        begun, done = self._files()
        begins = [line.split() for line in begun.read_text().splitlines()]
        first = {int(job): float(when) for job, when in reversed(begins)}
        wrote = Counter(map(int, done.read_text().split()))

        def told(job: int) -> dict[str, Any]:
            kill = min(
                (kill - first[job] for kill in self.kills if kill > first.get(job, kill)), default=None
            )
            return {
                "state": ends[job],
                "began_before_a_kill_seconds": None if kill is None else round(kill, 1),
            }

        lost = [job for job in self.jobs if not wrote[job] and ends[job] != _FORGOTTEN]
        return {
            "submitted": len(self.jobs),
            "refused": self.refused,
            "slowest_submission_seconds": self.slowest_seconds,
            "ends": dict(Counter(ends.values())),
            "ran_twice": {job: told(job) for job, number in sorted(wrote.items()) if number > 1},
            "lost": {job: told(job) for job in lost},
        }

    def _files(self) -> tuple[Path, Path]:
        return self.lab.folder / "begun", self.lab.folder / "done"

    def _ends(self) -> dict[int, str]:
        """The state of each job once all have ended.

        A job whose end was reported while none acted stays RUNNING for Slurm until its time limit (22.05).
        """
        ends = dict.fromkeys(self.jobs, _FORGOTTEN)

        def all_ended() -> bool:
            shown = self.lab.run("squeue", "-h", "-a", "-tall", "-o", "%A %T", check=False).stdout
            states = {int(job): state for job, state in map(str.split, shown.splitlines())}
            ends.update({job: states[job] for job in self.jobs if job in states})
            return bool(states) and not set(ends.values()) & {
                "PENDING",
                "RUNNING",
                "COMPLETING",
                "CONFIGURING",
            }

        wait_until(all_ended, seconds=400.0, what="all jobs end")
        return ends


def wait(what: str, condition: Callable[[], bool], lab: Lab, *logs: Path) -> None:
    """Wait for something at a takeover.

    Raises:
        RetryLater: It did not come; the message ends with the last lines of the logs.
    """

    def is_so() -> bool:
        found = condition()
        time.sleep(0.0 if found else 0.1)  # not a command after the other
        return found

    try:
        wait_until(is_so, seconds=LIMIT_SECONDS, what=what)
    except RetryLater as late:
        found = [str(late)]
        for path in (*logs, *sorted((lab.folder / "log").glob("slurmctld*.log"))):
            found += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-30:]]
        raise RetryLater("\n".join(found), code=late.code) from None


def since(moment: float) -> float:
    """Seconds from a moment of the monotonic clock."""
    return round(time.monotonic() - moment, 1)


def run_slurm_alone(
    *, times: int, restarts: bool, seed: int, tell: Callable[[str], None], pause: float = 1.0
) -> dict[str, Any]:
    """The same kills and jobs without the advisor: a stand-in of the lab boots cloud nodes.

    Args:
        times: Takeovers.
        restarts: Whether the second slurmctld is restarted after each duty.
        seed: Of everything that is drawn.
        tell: Told what is being done.
        pause: Seconds between two submissions.
    """
    drawn = random.Random(seed)  # noqa: S311 -- a test's dice
    with tempfile.TemporaryDirectory(prefix="two-") as name, Lab(Path(name) / "lab", LAB) as lab:
        second = Second(lab, Path(name) / "b")
        second.install({})
        load = Load(lab, drawn, pause)
        rounds = []
        try:
            second.start()
            load.start()
            for number in range(times):
                time.sleep(drawn.uniform(2.0, 10.0) + STANDBY_SECONDS)
                wait("both slurmctld", second.both_are_up, lab)
                before = time.monotonic()
                load.kill()
                wait("a submission is taken", lambda: load.last_started > before, lab)  # noqa: B023 -- called here
                rounds.append({"first_submission_taken_after_seconds": since(before)})
                time.sleep(drawn.uniform(2.0, 10.0))
                lab.start_slurmctld()
                wait("both slurmctld", second.both_are_up, lab)
                if restarts:
                    second.restart()
                tell(f"{number + 1} of {times}: {json.dumps(rounds[-1])}")
            load.stop()
            tell("waiting for the end of all jobs")
            return {"rounds": rounds, **second.figures(), **load.figures()}
        finally:
            load.stop()
            second.stop()
