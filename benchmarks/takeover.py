"""Two controllers: the first one dies at random moments, under load. Is anything lost, doubled or refused?

A real pair of slurmctld with one StateSaveLocation, and on each side `advisor serve` and `advisor control`
with one `paths.state`. The second side has a host name of its own (UTS and mount namespaces). Nothing is
judged here.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from advisor.ec2.tags import INTENT_TAG, node_of
from advisor.history.store import HistoryStore
from advisor.model.bill import MIN_SECONDS
from advisor.model.errors import AdvisorError, RetryLater
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.lease_file import LEASE, read_holder
from advisor.testing.lab import LabOptions
from advisor.testing.lab_processes import is_alive, pid_in
from advisor.testing.site import Daemon, Site, SiteOptions

_BACKUP: Final = "backup"
_ADDRESS: Final = "127.0.0.2"
_AS_BACKUP: Final = f'mount --bind {{}} /etc/hosts && hostname {_BACKUP} && exec "$@"'
_JOB: Final = "sleep {seconds:.1f}; echo $SLURM_JOB_ID >>{done}"
_ALIVE: Final = ("pending", "running")
_STANDBY_SECONDS: Final = 30.0
"""From a hand-back to the next kill. A backup slurmctld 22.05 that is still ending its last duty (messages to
nodes that have gone, for 21 s) ends instead of taking over: two runs of ten takeovers stopped there.
"""
_STOPPED_SECONDS: Final = 25.0  # longer than the lease
_LIMIT_SECONDS: Final = 120.0
_FORGOTTEN: Final = "FORGOTTEN"


class Backup:
    """The second side: its own slurm.conf, programs, hook, settings and processes; the state is shared."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.folder = site.folder / "b"
        self.conf = self.folder / "etc" / "slurm.conf"
        self._hosts = self.folder / "hosts"
        # a host name of its own, which resolves to an address of its own
        self._alone = ("unshare", "--uts", "--mount", "sh", "-c", _AS_BACKUP.format(self._hosts), "sh")
        config = self.folder / "advisor.toml"
        environment = {**site.environment, "ADVISOR_CONFIG": str(config), "SLURM_CONF": str(self.conf)}
        self.config = config
        self.serve, self.control = (
            Daemon(command, config, self.folder / f"{command}.log", environment, self._alone)
            for command in ("serve", "control")
        )

    def install(self) -> None:
        """Copy the first side's files, with the second side's paths."""
        site = self._site
        (self.folder / "run").mkdir(parents=True)
        self._hosts.write_text(f"{Path('/etc/hosts').read_text()}\n{_ADDRESS} {_BACKUP}\n")
        changes = {
            str(site.folder / "run"): str(self.folder / "run"),
            str(site.programs): str(self.folder / "programs"),
            str(site.lab.conf.parent): str(self.conf.parent),
            "slurmctld.pid": "slurmctld-b.pid",
            "slurmctld.log": "slurmctld-b.log",
        }
        for source, target in (
            (site.lab.conf.parent, self.conf.parent),
            (site.programs, self.folder / "programs"),
        ):
            shutil.copytree(source, target)
        for path in (*self.conf.parent.iterdir(), *(self.folder / "programs").iterdir()):
            path.write_text(_replaced(path.read_text(), changes))
        self.config.write_text(_replaced(site.config.read_text(), changes))

    def start(self) -> None:
        """Start its slurmctld, `advisor control` and `advisor serve`."""
        self._start_slurmctld()
        self.control.start()
        self.serve.start()

    def _start_slurmctld(self) -> None:
        self._site.lab.run(*self._alone, "slurmctld", "-i", env={"SLURM_CONF": str(self.conf)})

    def revived(self) -> bool:
        """Start its slurmctld anew if it has ended: one of 22.05 may die of a job's end as it hands back."""
        pid = pid_in(self._site.lab.folder / "run" / "slurmctld-b.pid")
        if pid is not None and is_alive(pid):
            return False
        self._start_slurmctld()
        return True

    def stop(self) -> None:
        """End them."""
        self.control.stop()
        self.serve.stop()
        pid = pid_in(self._site.lab.folder / "run" / "slurmctld-b.pid")
        if pid is not None and is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def _replaced(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


@dataclass(slots=True)
class _Load:
    """Submits jobs until it is told to stop; half of them need cloud nodes."""

    site: Site
    done: Path
    drawn: random.Random
    pause: float
    jobs: dict[int, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0
    last_started: float = 0.0  # monotonic seconds at which the last accepted submission began
    ending: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.ending.wait(self.pause):
            partition = ("burst", "onprem")[len(self.jobs) % 2]
            script = _JOB.format(seconds=self.drawn.uniform(1.0, 6.0), done=self.done)
            processors = {"burst": 4, "onprem": 1}[partition]
            began = time.monotonic()
            try:
                job = self.site.lab.sbatch(
                    f"-p{partition}", "--time=2", f"-n{processors}", "--no-requeue", script=script
                )
            except (AdvisorError, subprocess.TimeoutExpired) as error:
                self.refused.append(str(error)[-200:])
                continue
            self.jobs[job.job_id] = partition
            self.last_started = began
            self.slowest_seconds = max(self.slowest_seconds, job.seconds)


def run(
    *,
    times: int = 10,
    only_control: bool = False,
    pause: float = 1.0,
    seed: int = 1,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Kill the first controller again and again.

    Args:
        times: Takeovers.
        only_control: Only `advisor control` ends, by SIGKILL and by SIGSTOP in turns; otherwise slurmctld and
            both services of the first side are killed together.
        pause: Seconds between two submissions.
        seed: Of everything that is drawn.
        tell: Told what is being done.
    """
    lab = LabOptions(
        nodes=1, processors=16, burst_nodes=8, database=True, suspend_seconds=4, suspend_timeout_seconds=2,
        resume_timeout_seconds=60, min_job_age_seconds=3600,
        # else a node that registers while no control acts has no address: slurmctld looks up its name for
        # 10 s, with its locks held, and sbatch is refused
        slurmctld_parameters=("cloud_reg_addrs",),
        extra=(
            f"SlurmctldHost={_BACKUP}({_ADDRESS})", "SlurmctldTimeout=10",
            "CommunicationParameters=NoCtldInAddrAny",
        ),
    )  # fmt: skip
    settings: dict[str, dict[str, Any]] = {
        "paths": {"shared": True},
        "loops": {"orphan_grace_seconds": 20.0},
    }
    with tempfile.TemporaryDirectory(prefix="two-") as name:
        site = Site(Path(name), SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        tell("starting a site")
        with site:
            (site.state / LEASE).touch()
            # slow launches, so that a kill often comes between an intent and its answer
            site.ec2.faults(
                [{"service": "ec2", "action": "RunInstances", "prob": 0.5, "seed": seed, "latency": 1.0}]
            )
            backup = Backup(site)
            backup.install()
            try:
                site.start_advisor()
                backup.start()
                drawn = random.Random(seed)  # noqa: S311 -- a test's dice
                trial = _Trial(site, backup, drawn, only_control=only_control, tell=tell)
                return trial.run(times, pause)
            finally:
                backup.stop()


class _Trial:
    def __init__(
        self,
        site: Site,
        backup: Backup,
        drawn: random.Random,
        *,
        only_control: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._only_control = only_control
        self._site = site
        self._backup = backup
        self._drawn = drawn
        self._tell = tell
        self._here = os.uname().nodename
        self._revived = 0

    def run(self, times: int, pause: float) -> dict[str, Any]:
        began = time.monotonic()
        load = _Load(self._site, self._site.folder / "done", self._drawn, pause)
        thread = threading.Thread(target=load.run, daemon=True)
        thread.start()
        rounds = []
        try:
            for number in range(times):
                time.sleep(self._drawn.uniform(2.0, 10.0) + (0.0 if self._only_control else _STANDBY_SECONDS))
                if not self._only_control:
                    self._wait("both slurmctld", self._both_are_up)
                how = "stop" if self._only_control and number % 2 else "kill"
                rounds.append(self._round(load, how))
                self._tell(f"{number + 1} of {times}: {json.dumps(rounds[-1])}")
        finally:
            load.ending.set()
            thread.join(90.0)
        figures = {"backup_slurmctld_died_by_itself": self._revived, **self._figures(load)}
        return {"rounds": rounds, **figures, "seconds": time.monotonic() - began}

    # ------------------------------------------------------------------------ one takeover

    def _round(self, load: _Load, how: str) -> dict[str, Any]:
        site = self._site
        number = read_holder(site.state).fence
        advised = self._advised_there()
        before = time.monotonic()
        if how == "stop":
            site.control.signal(signal.SIGSTOP)
        else:
            site.control.kill()
        if not self._only_control:
            site.serve.kill()
            site.lab.stop_slurmctld(kill=True)
        result: dict[str, Any] = {"how": how}
        self._wait("the backup has the lease", lambda: read_holder(site.state).host == _BACKUP)
        result["lease_taken_after_seconds"] = _since(before)
        self._wait("a submission is taken", lambda: load.last_started > before)
        result["first_submission_taken_after_seconds"] = _since(before)
        self._wait("the backup launches", lambda: self._launched_by(number + 1) > 0)
        result["first_launch_after_seconds"] = _since(before)
        if not self._only_control:
            self._wait("the backup advises", lambda: self._advised_there() > advised)
            result["advised_by_the_backup"] = self._advised_there() - advised
        if how == "stop":
            time.sleep(max(0.0, _STOPPED_SECONDS - (time.monotonic() - before)))
            site.control.signal(signal.SIGCONT)
            self._wait(
                "it ends", lambda: not site.control.is_running
            )  # it has seen that it has lost the lease
        self._bring_back()
        result["hand_back_seconds"] = self._hand_back()
        return result

    def _bring_back(self) -> None:
        site = self._site
        if not self._only_control:
            site.lab.start_slurmctld()
            self._wait("both slurmctld", self._both_are_up)
            site.serve.start()
        site.control.start()

    def _hand_back(self) -> float:
        """An admin stops the holder: the first side's process takes over at once."""
        before = time.monotonic()
        self._backup.control.stop()
        self._wait("it has the lease back", lambda: read_holder(self._site.state).host == self._here)
        seconds = _since(before)
        self._backup.control.start()
        return seconds

    def _both_are_up(self) -> bool:
        self._revived += self._backup.revived()
        shown = self._ping()
        return "(primary) at" in shown and shown.count("UP") == 2

    def _ping(self) -> str:
        return self._site.lab.run("scontrol", "ping", check=False).stdout

    def _advised_there(self) -> int:
        with SubmitClient(self._backup.folder / "run" / "submit.sock", timeout=2.0) as client:
            return client.ping().advice_given

    def _launched_by(self, number: int) -> int:
        start = f"advisor-{number}-"
        return sum(item["tags"].get(INTENT_TAG, "").startswith(start) for item in self._site.ec2.instances())

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        try:
            self._site.wait_until(what, condition, seconds=_LIMIT_SECONDS)
        except RetryLater as late:
            found = [str(late)]
            slurm = sorted((self._site.lab.folder / "log").glob("slurmctld*.log"))
            for path in (self._backup.control.log, *slurm):
                found += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-30:]]
            raise RetryLater("\n".join(found), code=late.code) from None

    # ------------------------------------------------------------------------- the figures

    def _figures(self, load: _Load) -> dict[str, Any]:
        site = self._site
        self._tell("waiting for the end of all jobs and nodes")
        # a killed slurmctld's last five seconds are not on the disk: the next one may give a job's number
        # again, or start it again, and then drains its node ("Duplicate jobid")
        site.lab.run("scontrol", "update", "nodename=onprem1", "state=resume", check=False)
        ends = self._ends(load)
        wrote = Counter(map(int, load.done.read_text().split()))
        orphans = self._left_over()
        instances = site.ec2.instances()
        by_node: dict[str, list[tuple[float, float]]] = {}
        for item in instances:
            node = node_of(item["tags"], item["launch_index"]) or "?"
            by_node.setdefault(node, []).append((item["launched"], item["ended"] or time.time()))
        doubles = [
            node
            for node, lives in by_node.items()
            for one, next_one in pairwise(sorted(lives))
            if next_one[0] < one[1]
        ]
        return {
            "submitted": len(load.jobs),
            "refused": load.refused,
            "slowest_submission_seconds": load.slowest_seconds,
            "ends": dict(Counter(ends.values())),
            "ran_twice": sorted(job for job, number in wrote.items() if number > 1),
            "lost": sorted(job for job in load.jobs if not wrote[job] and ends[job] != _FORGOTTEN),
            "launches": len(instances),
            "orphans": orphans,
            "nodes_with_two_instances": doubles,
            **self._paid(instances),
            "takeovers": read_holder(site.state).fence - 1,
        }

    def _ends(self, load: _Load) -> dict[int, str]:
        """The state of each job once all have ended.

        A killed slurmctld may have forgotten the newest ones; a job whose end was reported while none acted
        stays RUNNING for Slurm until its time limit (22.05).
        """
        ends = dict.fromkeys(load.jobs, _FORGOTTEN)

        def all_ended() -> bool:
            shown = self._site.lab.run("squeue", "-h", "-a", "-tall", "-o", "%A %T", check=False).stdout
            states = {int(job): state for job, state in map(str.split, shown.splitlines())}
            ends.update({job: states[job] for job in load.jobs if job in states})
            return bool(states) and not set(ends.values()) & {
                "PENDING",
                "RUNNING",
                "COMPLETING",
                "CONFIGURING",
            }

        self._site.wait_until("all jobs end", all_ended, seconds=400.0)
        return ends

    def _left_over(self) -> list[str]:
        end = time.monotonic() + 90.0
        while True:
            alive = [item["id"] for item in self._site.ec2.instances() if item["state"] in _ALIVE]
            if not alive or time.monotonic() > end:
                return alive
            time.sleep(1.0)

    def _paid(self, instances: list[dict[str, Any]]) -> dict[str, Any]:
        """Seconds that the history has as paid, beside those that EC2 bills."""
        billed = sum(
            max(MIN_SECONDS, (item["ended"] or time.time()) - item["launched"]) for item in instances
        )
        with HistoryStore(f"sqlite:///{self._site.state / 'history.db'}") as store:
            paid = store.paid_since(0.0)
        of_instance: dict[str, list[tuple[float, float]]] = {}
        for piece in paid:
            of_instance.setdefault(piece.instance_id, []).append((piece.since, piece.until))
        twice = [
            name
            for name, pieces in of_instance.items()
            if any(later[0] < one[1] for one, later in pairwise(sorted(pieces)))
        ]
        return {
            "billed_seconds": billed,
            "paid_seconds": sum(piece.until - piece.since for piece in paid),
            "paid_twice": twice,
        }


def _since(moment: float) -> float:
    return round(time.monotonic() - moment, 1)
