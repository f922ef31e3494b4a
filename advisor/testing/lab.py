"""A real Slurm with on-premise and cloud nodes on one machine: for tests, benchmarks and the demo.

munged, slurmctld, several slurmds and, on request, MariaDB and slurmdbd, all of the lab's own, all under one
short folder, none of them known to systemd. Up in a third of a second (two and a half with a database), and
gone without a trace afterwards, also when its owner is killed.

>>> with Lab.temporary(LabOptions(nodes=1)) as lab:  # doctest: +SKIP
...     job = lab.sbatch("--ntasks=1", script="hostname")
...     lab.wait_for_jobs([job.job_id])
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final, Self

from advisor.model.errors import BadInput, RetryLater, TellAdmin
from advisor.testing import lab_guardian, lab_ports
from advisor.testing.lab_database import LabDatabase
from advisor.testing.lab_options import LabOptions, gres_conf, plugin_folder, slurm_conf
from advisor.testing.lab_processes import pid_in, public_python, stop, sweep, wait_until

__all__ = ["Lab", "LabOptions", "Submission"]

_STAND_IN: Final = ("resume", "suspend", "resume_fail", "prolog")
_MAX_SOCKET_PATH: Final = 107
_MESSAGE_SECONDS: Final = 13.0
"""MessageTimeout and some: so long slurmctld tries to tell a machine that is gone to end its job. One of the
same name that was up sooner would be told, and end that job's next start; no real machine boots as fast.
"""
_COMMANDS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
_DATABASE_COMMANDS: Final = ("slurmdbd", "mariadbd", "mariadb", "mariadb-install-db")
_ENDED: Final = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What sbatch said.

    Attributes:
        job_id: Slurm's id.
        message: What it wrote to the user's terminal (standard error).
        seconds: How long it took.
    """

    job_id: int
    message: str
    seconds: float


class Lab:
    """One lab in one folder.

    Args:
        folder: Made if missing. Short: Unix socket paths end at 107 bytes.
        options: What it looks like.

    Notes:
        Best run as root: then jobs of several users can run. As another user everything runs as that user
        (SlurmUser too), and only that user's jobs.
    """

    def __init__(self, folder: Path, options: LabOptions | None = None) -> None:
        self.folder = folder.absolute()
        self.options = options or LabOptions()
        self._guardian: subprocess.Popen[str] | None = None
        self._database: LabDatabase | None = None
        self._lost: dict[str, float] = {}  # nodes that went with a job on them: monotonic seconds

    # ------------------------------------------------------------------------------- life

    @classmethod
    def temporary(cls, options: LabOptions | None = None) -> Self:
        """A lab in a new folder that is removed with it."""
        folder = Path(tempfile.mkdtemp(prefix="lab-"))
        folder.chmod(0o755)  # clients of every user reach munge's socket in it
        return cls(folder, options)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop(remove=False)  # its logs say why
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Everything up, every on-premise node idle.

        Raises:
            BadInput: Slurm is not installed, or the folder's path is too long.
            RetryLater: Something does not come up in time; the message names its log.
        """
        self._check()
        self._make_folders()
        if self._guardian is None:
            self._guardian = lab_guardian.start(self.folder)
        base = lab_ports.take_block(self.folder)
        (self.folder / "run" / "port").write_text(str(base), encoding="ascii")
        self._write_configuration()
        self._start_munge()
        if self.options.database:
            self._database = LabDatabase(self.folder, self.options, base, self.env)
            self._database.start()
        self.start_slurmctld()
        for index in range(1, self.options.nodes + 1):
            self.node_up(f"onprem{index}")
        wait_until(self._all_idle, seconds=120, what=f"on-premise nodes idle (see {self.folder}/log)")
        lab_guardian.await_ready(self._guardian)

    def stop(self, *, remove: bool = True) -> None:
        """End every process of the lab and, by default, remove its folder. Repeating it is harmless."""
        self._end_processes()
        base = self._base_port_or_none()
        if base is not None:
            lab_ports.give_back(base)
        if remove:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.keep_running()

    def keep_running(self) -> None:
        """Dismiss the guardian: the lab stays when this process ends."""
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            try:
                guardian.communicate("done", timeout=10)
            except (OSError, subprocess.TimeoutExpired):
                guardian.kill()
                guardian.wait()

    @classmethod
    def clean_up(cls, folder: Path) -> None:
        """Stop and remove a lab that was left behind."""
        cls(folder).stop()

    def _end_processes(self) -> None:
        run, mark = self.folder / "run", str(self.folder)
        # slurmctld first and alone: while it lives it may start a cloud program, and with it a slurmd
        stop([run / "slurmctld.pid"], mark=mark)
        stop(sorted(run.glob("slurmd-*.pid")), mark=mark)
        for _ in range(2):  # a cloud program may have started a slurmd just now
            sweep(self.conf, programs=frozenset(_STAND_IN))
        stop([run / "slurmdbd.pid"], mark=mark)
        stop([run / "mariadb.pid", self.folder / "munge" / "pid"], mark=mark)
        if self._database is not None:
            self._database.stop()
            self._database = None

    # ---------------------------------------------------------------------------- clients

    @property
    def conf(self) -> Path:
        """The lab's slurm.conf."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """Environment for clients of this lab."""
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            "LC_ALL": "C.UTF-8",
            "SLURM_CONF": str(self.conf),
        }

    @property
    def base_port(self) -> int:
        """First of the lab's 200 ports; the last ten (base + 190 to 199) are free for the lab's user."""
        base = self._base_port_or_none()
        if base is None:
            raise RetryLater(f"no lab runs in {self.folder}", code="lab.not_running")
        return base

    def run(
        self,
        *command: str,
        check: bool = True,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a client command and collect its output.

        Raises:
            TellAdmin: It failed and ``check`` is set; the message has its standard error.
        """
        done = subprocess.run(  # noqa: S603 - a test's own command, no shell
            command,
            env=self.env | dict(env or {}),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise TellAdmin(f"{' '.join(command)[:200]}: {done.stderr.strip()}", code="lab.command")
        return done

    def sbatch(
        self, *arguments: str, script: str = "true", env: Mapping[str, str] | None = None
    ) -> Submission:
        """Submit a batch job; its output goes to the lab's ``jobs`` folder.

        Args:
            arguments: Options of sbatch.
            script: Shell commands.
        """
        before = time.perf_counter()
        output = f"--output={self.folder}/jobs/%j.out"
        done = self.run(
            "sbatch", "--parsable", output, "--chdir=/", *arguments, stdin=f"#!/bin/sh\n{script}\n", env=env
        )
        seconds = time.perf_counter() - before
        return Submission(
            job_id=int(done.stdout.partition(";")[0]), message=done.stderr.strip(), seconds=seconds
        )

    def job(self, job_id: int) -> dict[str, str]:
        """One job as scontrol shows it, by field. Text with spaces in it is cut there: for tests."""
        shown = self.run("scontrol", "-o", "show", "job", str(job_id)).stdout
        pairs = (word.partition("=") for word in shown.split())
        return {name: value for name, found, value in pairs if found}

    def wait_for_jobs(self, job_ids: Iterable[int], *, seconds: float = 180.0) -> dict[int, str]:
        """Wait until all have ended; the state of each.

        Raises:
            RetryLater: Some have not ended in time; the message says which.
        """
        wanted = sorted(job_ids)
        states: dict[int, str] = {}

        def ended() -> bool:
            shown = self.run(
                "squeue", "-h", "--states=all", f"--jobs={','.join(map(str, wanted))}", "-o", "%A %T"
            )
            states.update({int(a): b for a, b in (line.split() for line in shown.stdout.splitlines())})
            return all(states.get(job_id) in _ENDED for job_id in wanted)

        try:
            wait_until(ended, seconds=seconds, what="jobs end")
        except RetryLater as late:
            open_jobs = {i: states.get(i) for i in wanted if states.get(i) not in _ENDED}
            raise RetryLater(f"{late}: {open_jobs}", code=late.code) from None
        return states

    # -------------------------------------------------------------------------- machinery

    def node_up(self, node: str) -> None:
        """Start one node's slurmd, as if it had booted now."""
        (self.folder / "spool" / node).mkdir(parents=True, exist_ok=True)
        time.sleep(max(0.0, self._lost.pop(node, -_MESSAGE_SECONDS) + _MESSAGE_SECONDS - time.monotonic()))
        # -b: the boot time is now; else a resumed node is taken for not rebooted
        self.run("slurmd", "-b", "-N", node)

    def node_down(self, node: str) -> None:
        """The machine goes away: its slurmd ends, and so does all that runs there."""
        stop([self.folder / "run" / f"slurmd-{node}.pid"], mark=str(self.folder))
        if sweep(self.conf, node=node):
            self._lost[node] = time.monotonic()

    def start_slurmctld(self) -> None:
        """Start slurmctld and wait for its answer."""
        self.run("slurmctld", "-i")
        wait_until(self._answers, seconds=60, what=f"slurmctld answers (see {self.folder}/log/slurmctld.log)")

    def stop_slurmctld(self, *, kill: bool = False) -> None:
        """Stop slurmctld; ``kill``: as a crash would."""
        stop([self.folder / "run" / "slurmctld.pid"], mark=str(self.folder), kill=kill)

    def restart_slurmctld(self, *, kill: bool = False) -> None:
        """Stop and start slurmctld; state is kept."""
        self.stop_slurmctld(kill=kill)
        self.start_slurmctld()

    def slurmctld_pid(self) -> int | None:
        """Process id of slurmctld; None when it does not run."""
        return pid_in(self.folder / "run" / "slurmctld.pid")

    def _base_port_or_none(self) -> int | None:
        try:
            return int((self.folder / "run" / "port").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None

    def _check(self) -> None:
        plugin_folder()
        wanted = _COMMANDS + (_DATABASE_COMMANDS if self.options.database else ())
        missing = [name for name in wanted if shutil.which(name, path=self.env["PATH"]) is None]
        if missing:
            raise BadInput(
                f"{', '.join(missing)} not found",
                where="lab",
                mend="Install the Debian packages (make system)",
                code="lab.no_slurm",
            )
        longest = len(str(self.folder / "munge" / "sock.lock"))
        if longest > _MAX_SOCKET_PATH:
            raise BadInput(
                f"the path is {longest - _MAX_SOCKET_PATH} bytes too long for Unix sockets",
                where=str(self.folder),
                mend="Choose a shorter folder, or set TMPDIR to a short one",
                code="lab.path_too_long",
            )

    def _make_folders(self) -> None:
        if (self.folder / "run" / "port").exists():  # a process crashed here: nothing of it may live on
            self.stop(remove=False)
        for name in ("etc", "state", "spool", "log", "run", "munge", "cloud", "jobs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        (self.folder / "munge").chmod(0o755)
        (self.folder / "jobs").chmod(0o1777)
        if self.options.slurm_user:
            for name in ("state", "log"):
                shutil.chown(self.folder / name, self.options.slurm_user)
        key = self.folder / "munge" / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(os.urandom(1024))
            key.chmod(0o400)

    def _write_configuration(self) -> None:
        etc, cloud = self.folder / "etc", self.folder / "cloud"
        self.conf.write_text(slurm_conf(self.options, self.folder, self.base_port), encoding="utf-8")
        if devices := gres_conf(self.options):
            (etc / "gres.conf").write_text(devices, encoding="utf-8")
        hook = etc / "job_submit.lua"
        hook.unlink(missing_ok=True)
        if self.options.hook is not None:
            shutil.copyfile(self.options.hook, hook)
            module = self.options.hook.with_name("advisor_submit.lua")
            if module.exists():
                shutil.copyfile(module, etc / module.name)
            lines = [f"{name} = {value}" for name, value in self.options.hook_settings.items()]
            (etc / "advisor_hook.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
        source = files("advisor.testing") / "lab_files" / "cloud_stand_in.py"
        program = f"#!{public_python()} -I\n{source.read_text(encoding='utf-8')}"
        for name in _STAND_IN:
            (cloud / name).write_text(program, encoding="utf-8")
            (cloud / name).chmod(0o755)
        (cloud / "stand_in.json").write_text(
            f'{{"folder": "{self.folder}", "boot_seconds": {self.options.boot_seconds}}}', encoding="utf-8"
        )

    def _start_munge(self) -> None:
        munge = self.folder / "munge"
        self.run(
            "munged",
            f"--key-file={munge}/key",
            f"--socket={munge}/sock",
            f"--pid-file={munge}/pid",
            f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        )

    def _answers(self) -> bool:
        return "UP" in self.run("scontrol", "ping", check=False).stdout

    def _all_idle(self) -> bool:
        shown = self.run("sinfo", "-h", "-N", "-p", "onprem", "-t", "idle", "-o", "%N", check=False)
        return len(set(shown.stdout.split())) == self.options.nodes
