"""A whole site on one machine: real Slurm, EC2 endpoint emulator, both daemons of the advisor.

Everything is what a real site runs: the hook in slurmctld, `advisor serve`, `advisor control`, the programs
that Slurm calls for cloud nodes. Only the machines behind the instances are processes on this one.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import tomlkit

from advisor.config.hook import hook_settings
from advisor.model.errors import RetryLater
from advisor.model.settings import PathSettings, Settings
from advisor.model.settings_service import SubmitSettings
from advisor.testing.ec2 import Ec2Emulator
from advisor.testing.hypervisor import Hypervisor
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import public_python
from advisor.testing.place_socket import PlaceSocket
from advisor.testing.service_user import give_to, group_of, python_as

HOOKS: Final = Path(__file__).resolve().parent.parent.parent / "slurm_hooks"
_READY_SECONDS: Final = 300.0  # a slow, busy machine that compiles everything anew
_SHOWN_LINES: Final = 60
_STOP_SECONDS: Final = 60.0  # as systemd's TimeoutStopSec
_ENTRY: Final = ("-c", "from advisor.cli.main import run; run()")

Tables = Mapping[str, Mapping[str, Any]]
"""TOML tables: section to key to value."""

PATIENT: Final = {"budget_seconds": 0.5}
"""``[submit]`` of a site whose tests need an answer to each submission, however busy the machine is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOptions:
    """What a site is made of.

    Attributes:
        lab: The cluster; hook and cloud programs are filled in.
        settings: What differs from `Site.default_settings`.
        boot_seconds: How long an instance takes from running to its slurmd.
        hooks: Folder of ``job_submit.lua``, ``resume``, ``suspend`` and ``resume_fail``.
        programs: Further lines of ``advisor_programs.conf``.
        service_user: Who the daemons run as, in slurmctld's group, without rights of root; empty: ourselves.
    """

    lab: LabOptions = field(default_factory=lambda: LabOptions(database=True))
    settings: Tables = field(default_factory=dict)
    boot_seconds: float = 2.0
    hooks: Path = HOOKS
    programs: str = ""
    service_user: str = ""


def _free_port() -> int:
    """Find a port of the loopback address that no process listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Daemon:
    """One of the advisor's processes, started as systemd would start it.

    Args:
        command: ``serve`` or ``control``.
        config: ``advisor.toml``.
        log: Where its output goes.
        environment: Added to ours.
        python: The interpreter, or a command that runs it in place of itself.
    """

    def __init__(
        self,
        command: str,
        config: Path,
        log: Path,
        environment: Mapping[str, str],
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        self._python = python
        self.command = command
        self.log = log
        self._config = config
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id; None before the first start and after the end."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start and wait until it says READY.

        Raises:
            RetryLater: It ended, or said nothing in time; the message names its log.
        """
        address = str(self.log.parent / f"{self.command}.notify")
        Path(address).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, self.log.open("ab") as output:
            manager.bind(address)
            Path(address).chmod(0o666)  # the daemon may be another user's
            manager.settimeout(0.2)
            self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and module
                [*self._python, *_ENTRY, self.command, "--config", str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment, "NOTIFY_SOCKET": address},
            )
            end = time.monotonic() + _READY_SECONDS
            while time.monotonic() < end and self.is_running:
                try:
                    if b"READY=1" in manager.recv(4096):
                        return
                except TimeoutError:
                    continue
        msg = f"advisor {self.command} did not become ready; see {self.log}"
        raise RetryLater(msg, code="site.daemon")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; one that stops the process holds when this returns."""
        if self._process is not None:
            self._process.send_signal(number)
            if number == signal.SIGSTOP:  # until it holds a thread may still answer on another core
                os.waitpid(self._process.pid, os.WUNTRACED)

    def kill(self) -> None:
        """End it as a crash would."""
        self.signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        """End it as systemd would."""
        if self._process is None:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        self._wait()

    def _wait(self) -> None:
        if self._process is not None:
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class Site:
    """A site in one short folder.

    Args:
        folder: Made if missing.
        options: What it is made of.
    """

    def __init__(self, folder: Path, options: SiteOptions | None = None) -> None:
        self.options = options or SiteOptions()
        self.folder = folder
        self.config = folder / "advisor.toml"
        self.programs = folder / "programs"
        self.state = folder / "advisor"
        self.ec2 = Ec2Emulator(log=None)
        self.lab = Lab(folder / "lab", self._lab_options())
        self._stack = ExitStack()
        self.hypervisor: Hypervisor | None = None
        self.serve = self._daemon("serve")
        self.control = self._daemon("control")
        self.web = self._daemon("web")
        self.web_port = _free_port()
        self.places = PlaceSocket(
            folder / "places.sock",
            [sys.executable, *_ENTRY, "place-helper"],
            self.environment,
            folder / "places.log",
            self.options.service_user,
        )

    def _lab_options(self) -> LabOptions:
        has_hook = self.options.settings.get("cluster", {}).get("hook", True)
        return replace(
            self.options.lab,
            hook=self.options.hooks / "job_submit.lua" if has_hook else None,
            hook_settings=self._hook_settings(),
            cloud_programs=self.programs,
        )

    def _hook_settings(self) -> dict[str, str]:
        """What `advisor config hook` would write for this site."""
        settings = Settings(
            submit=SubmitSettings.model_validate(self.options.settings.get("submit", {})),
            paths=PathSettings(run=self.folder / "run"),
        )
        lines = hook_settings(settings).splitlines()
        return {name: value for name, _, value in (line.partition(" = ") for line in lines)}

    def _daemon(self, command: str) -> Daemon:
        return Daemon(command, self.config, self.folder / f"{command}.log", self.environment, self.python)

    @property
    def python(self) -> list[str]:
        """The interpreter, as systemd runs it for the daemons where they have a user of their own."""
        user, slurm_user = self.options.service_user, self.options.lab.slurm_user
        return python_as(user, group_of(slurm_user), self.state) if user else [sys.executable]

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the daemons and of `advisor` commands about this site, with made-up credentials."""
        return {
            "ADVISOR_CONFIG": str(self.config),
            "SLURM_CONF": str(self.lab.conf),
            **self.credentials(),
        }

    def default_settings(self) -> dict[str, dict[str, Any]]:
        """Settings of a small site with short periods, acting on its advice."""
        return {
            "cluster": {
                "name": self.options.lab.cluster,
                "on_premise_partitions": ["onprem"],
                "burst_partition": "burst",
                "default_mode": "act",
            },
            # tests look at held jobs, which stay otherwise
            "rules": {"move_deferred": True},
            "paths": {
                "state": str(self.state),
                "run": str(self.folder / "run"),
                "slurm_conf": str(self.lab.conf),
            },
            "ec2": {
                "image_id": "ami-12c6146b",
                "instance_type": "c5.xlarge",
                "endpoint_url": self.ec2.url,
                "node_address": "loopback",
                "interruption_queue_url": self.ec2.interruption_queue(),
            },
            "loops": {
                "snapshot_seconds": 0.5,
                "learn_seconds": 1.0,
                "reconcile_seconds": 1.0,
                "metrics_port": 0,
            },
            "hedge": {"helper_socket": str(self.folder / "places.sock")},
            "web": {"port": self.web_port},
        }

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the emulator and the cluster; the daemons wait for `start_advisor`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        for name in ("run", "advisor", "programs", "advisor/handover"):
            (self.folder / name).mkdir(exist_ok=True)
        if self.options.service_user:
            give_to(self.options.service_user, group_of(self.options.lab.slurm_user), self.folder)
        os.environ.update(self.credentials())
        self._stack.enter_context(self.ec2)
        self._install_programs()
        self._stack.callback(self.lab.stop, remove=False)
        self.lab.start()
        self._write_config()
        self.hypervisor = Hypervisor(
            self.ec2, self.lab.node_up, self.lab.node_down, boot_seconds=self.options.boot_seconds
        )
        self._stack.enter_context(self.hypervisor)
        if self._tables()["hedge"].get("enabled"):
            self._stack.enter_context(self.places)

    def start_advisor(self) -> None:
        """Start `advisor control`, then `advisor serve`."""
        self.control.start()
        self._stack.callback(self.control.stop)
        self.serve.start()
        self._stack.callback(self.serve.stop)

    def start_web(self) -> None:
        """Start `advisor web` on `web_port` of the loopback address."""
        self.web.start()
        self._stack.callback(self.web.stop)

    def stop(self) -> None:
        """End everything, in the right order; repeating it is harmless."""
        self._stack.close()

    def advisor(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run an `advisor` command about this site.

        Raises:
            RetryLater: It failed and `check` is set; the message has its standard error.
        """
        done = subprocess.run(  # noqa: S603 -- our own interpreter and module
            [*self.python, *_ENTRY, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, **self.environment},
            timeout=600,
            check=False,
        )
        if check and done.returncode:
            msg = f"advisor {' '.join(arguments)}: {done.stderr.strip()[-2000:]}"
            raise RetryLater(msg, code="site.command")
        return done

    def wait_until(self, what: str, condition: Callable[[], bool], *, seconds: float = 400.0) -> None:
        """Wait for something to become true.

        Raises:
            RetryLater: It did not; the message ends with the last lines of the daemons' logs.
        """
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                msg = f"not within {seconds:g} s: {what} (logs in {self.folder})\n{self._last_lines()}"
                raise RetryLater(msg, code="site.late")
            time.sleep(0.1)

    def _last_lines(self) -> str:
        """The end of each log: its folder is often gone by the time that the error is read."""
        found = []
        for log in (self.control.log, self.serve.log, self.folder / "programs.log"):
            if log.exists():
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                found += [f"--- {log.name}", *lines[-_SHOWN_LINES:]]
        return "\n".join(found)

    def credentials(self) -> dict[str, str]:
        """Made-up credentials, so that no real ones are ever used here."""
        return {name: value for name, value in self.ec2.environment.items() if name != "AWS_ENDPOINT_URL"}

    def _install_programs(self) -> None:
        """Copy the programs Slurm calls, with their settings beside them."""
        for name in ("resume", "suspend", "resume_fail", "prolog_slurmctld"):
            text = (self.options.hooks / name).read_text(encoding="utf-8")
            first, _, rest = text.partition("\n")
            target = self.programs / name
            target.write_text(f"#!{public_python()} -IS\n{rest}" if first.startswith("#!") else text)
            target.chmod(0o755)
        (self.programs / "advisor_programs.conf").write_text(
            f"control_socket = {self.folder / 'run' / 'control.sock'}\n"
            f"handover_folder = {self.state / 'handover'}\n"
            f"log_file = {self.folder / 'programs.log'}\n"
            f"slurm_conf = {self.lab.conf}\n"
            f"{self.options.programs}",
            encoding="utf-8",
        )

    def _write_config(self) -> None:
        self.config.write_text(tomlkit.dumps(self._tables()), encoding="utf-8")

    def _tables(self) -> dict[str, dict[str, Any]]:
        tables = self.default_settings()
        for section, values in self.options.settings.items():
            tables.setdefault(section, {}).update(values)
        return tables
