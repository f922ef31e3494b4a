"""Run one of Slurm's commands: no shell, absolute path, a time limit and a limit of output.

Back ends and loops of `advisor control` run them so, and commands; `advisor serve` runs none.
"""

from __future__ import annotations

import math
import os
import re
import resource
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final

from advisor.files import fence
from advisor.history.sacct import ENVIRONMENT as _EPOCH_TIMES
from advisor.model.errors import BadInput, RetryLater
from advisor.model.node_sets import expand
from advisor.model.snapshot import Reservation
from advisor.slurm import parsing
from advisor.slurm.reservations import read_reservations

_STDERR_CHARACTERS: Final = 500
MAX_BYTES: Final = 256 * 1024 * 1024
"""Longest output that is read: 500,000 jobs of half a kilobyte."""
_TASK: Final = re.compile(r"([0-9]+) ([0-9]+_[0-9]+)\s*")
_MAX_LINES_BYTES: Final = 64 * MAX_BYTES
_CONF_SECONDS: Final = 60.0


def release_in(text: str) -> tuple[int, ...]:
    """Release numbers in a text such as ``slurm-wlm 22.05.8``; empty when there are none."""
    match = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups() if part) if match else ()


class Commands:
    """Runs commands of one Slurm installation.

    Args:
        folder: The folder of squeue, sinfo, scontrol and sacct.
        slurm_conf: Their ``SLURM_CONF``; None leaves it to Slurm's own default.
        timeout: Longest a query may take, seconds.
        more: Further environment variables.
    """

    def __init__(
        self,
        folder: Path,
        slurm_conf: Path | None,
        *,
        timeout: float = 20.0,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self._timeout = timeout
        self._environment: dict[str, str] = {
            "PATH": f"{folder}:/usr/bin:/bin",
            # index expressions of arrays in full, not cut at 64 characters
            "SLURM_BITSTR_LEN": "0",
            # jobs and nodes of this cluster alone, also of a federation with FederationParameters=fed_display
            **dict.fromkeys(("SACCT_LOCAL", "SCONTROL_LOCAL", "SINFO_LOCAL", "SQUEUE_LOCAL"), "1"),
            **_EPOCH_TIMES,
            **more,
        }
        self._release: tuple[int, tuple[int, ...]] | None = None
        if slurm_conf is not None:
            self._environment["SLURM_CONF"] = str(slurm_conf)

    def release(self) -> tuple[int, ...]:
        """The release of the installed commands, such as ``(22, 5, 8)``; empty where they do not tell it.

        It is asked again when squeue is replaced.

        Raises:
            RetryLater: As :meth:`text`.
        """
        try:
            changed = (self._folder / "squeue").stat().st_mtime_ns
            if self._release is None or self._release[0] != changed:
                self._release = changed, release_in(self.text("squeue", "--version"))
        except OSError:
            return ()
        return self._release[1]

    def text(self, name: str, *arguments: str, timeout: float | None = None, given: str = "") -> str:
        """Standard output of a command as text; bytes that are no UTF-8 are replaced. It reads ``given``.

        Raises:
            RetryLater: The command failed (``slurm.command_failed``), took too long (``slurm.timeout``) or
                wrote too much (``slurm.too_long``).
            BadInput: There is no such command (``slurm.no_command``), or no slurm.conf for it
                (``slurm.no_conf``).
        """
        in_memory = os.fdopen(os.memfd_create(name), "w+b")  # closed by _output
        limits = (timeout or self._timeout, MAX_BYTES)
        with self._output(name, arguments, *limits, in_memory, given.encode()) as file:
            return file.read().decode("utf-8", "replace")

    @contextmanager
    def lines(self, name: str, *arguments: str, timeout: float) -> Iterator[Iterator[str]]:
        """The same line by line, for answers that may be long.

        Only a line feed ends a line here; names may contain every other kind of line end.
        """
        with self._output(name, arguments, timeout, _MAX_LINES_BYTES, tempfile.TemporaryFile()) as file:
            yield (line.decode("utf-8", "replace") for line in file)

    @contextmanager
    def _output(
        self,
        name: str,
        arguments: tuple[str, ...],
        timeout: float,
        limit: int,
        output: IO[bytes],
        given: bytes = b"",
    ) -> Iterator[IO[bytes]]:
        """Give the file with the output of a command that has succeeded; it is closed afterwards."""
        with output, tempfile.TemporaryFile() as errors, _readable(given) as source:
            code = self._run(name, arguments, (source, output, errors), timeout, limit)
            if code == -signal.SIGXFSZ or os.fstat(output.fileno()).st_size >= limit:
                is_queue = name in {"squeue", "scontrol"}
                mend = "Reduce MaxJobCount in slurm.conf" if is_queue else "Please report it"
                raise RetryLater(
                    f"{_called(name, arguments)}: its answer is longer than {limit} bytes and is not read. "
                    f"{mend}",
                    code="slurm.too_long",
                )
            if code:
                self._check_slurm_conf(name)
                errors.seek(0)
                message = errors.read(4 * _STDERR_CHARACTERS).decode("utf-8", "replace").strip()
                told = f"{_called(name, arguments)} ended with {code}: "
                told += message[:_STDERR_CHARACTERS] or "no message"
                if not message or "contact" in message:  # else slurmctld has said what it refuses
                    told += ". Run `scontrol ping` as the user of this service"
                raise RetryLater(told, code="slurm.command_failed")
            output.seek(0)
            yield output

    def _run(
        self,
        name: str,
        arguments: tuple[str, ...],
        files: tuple[IO[bytes], IO[bytes], IO[bytes]],
        timeout: float,
        limit: int,
    ) -> int:
        """Exit status of a command with these standard files; negative: the signal that ended it."""
        path = self._folder / name
        fence.check()
        try:
            process = subprocess.Popen(  # noqa: S603 - absolute path, no shell, arguments checked by the caller
                [str(path), *arguments],
                env=self._environment_now(),
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                cwd="/",
            )
        except OSError as error:
            raise BadInput(
                f"cannot be run ({error.strerror})",
                where=str(path),
                mend="Set paths.slurm_bin to the folder of Slurm's commands",
                code="slurm.no_command",
            ) from error
        except ValueError as error:  # a NUL byte in an argument
            raise RetryLater(
                f"{name} cannot be called with these arguments: {error}. "
                "This is an error of the advisor: please report it",
                code="slurm.command_failed",
            ) from error
        with suppress(OSError):  # it has ended already
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._check_slurm_conf(name)
            raise RetryLater(
                f"{_called(name, arguments)}: no answer within {timeout:g} s. `scontrol ping` says whether "
                "slurmctld answers, `sacctmgr ping` whether slurmdbd does",
                code="slurm.timeout",
            ) from None
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()

    def _check_slurm_conf(self, name: str) -> None:
        """Raise BadInput for a command that has failed and whose slurm.conf does not exist."""
        conf = self._environment.get("SLURM_CONF")
        if conf and not Path(conf).exists():
            raise BadInput(
                f"no such file, and {name} failed",
                where=conf,
                mend="Set paths.slurm_conf, or SLURM_CONF, to the cluster's slurm.conf",
                code="slurm.no_conf",
            )

    def _environment_now(self) -> Mapping[str, str]:
        """The environment, without SLURM_CONF where that file does not exist.

        Slurm waits a minute for a file that SLURM_CONF names. Without SLURM_CONF it looks where a login node
        without a file of its own (configless Slurm) gets its settings from, at last by DNS.
        """
        conf = self._environment.get("SLURM_CONF")
        if conf is None or Path(conf).exists():
            return self._environment
        others = {name: value for name, value in self._environment.items() if name != "SLURM_CONF"}
        return others | {"RES_OPTIONS": "timeout:1 attempts:1"}


class SlurmConf:
    """slurm.conf as slurmctld has it, read again after a minute: an admin may reconfigure at any time."""

    def __init__(self, commands: Commands, *, monotonic: Callable[[], float]) -> None:
        self._commands = commands
        self._monotonic = monotonic
        self._values: Mapping[str, str] = {}
        self._until = -math.inf

    def values(self) -> Mapping[str, str]:
        """Values of ``scontrol show config`` by name; RetryLater when slurmctld does not say."""
        now = self._monotonic()
        if now >= self._until:
            self._values = parsing.config(self._commands.text("scontrol", "show", "config"))
            self._until = now + _CONF_SECONDS
        return self._values


def _readable(given: bytes) -> IO[bytes]:
    file = os.fdopen(os.memfd_create("given"), "w+b")
    file.write(given)
    file.seek(0)
    return file


def _called(name: str, arguments: tuple[str, ...]) -> str:
    """A command as messages name it: with its first words, without options."""
    words = [word[:60] for word in arguments if not word.startswith("-")]
    return " ".join((name, *words[:3]))


def named(commands: Commands, job_ids: str) -> str:
    """Comma-separated job ids as scontrol and scancel need them: a task of an array as ``20_5``.

    The last task of an array has the array's own id, by which they change, requeue or signal all its tasks.

    Raises:
        RetryLater: slurmctld does not say, or does not know the only job.
    """
    shown = commands.text("squeue", "--noheader", "--states=all", f"--jobs={job_ids}", "--format=%A %i")
    tasks = {match[1]: match[2] for match in map(_TASK.fullmatch, shown.splitlines()) if match}
    return ",".join(tasks.get(job_id, job_id) for job_id in job_ids.split(","))


def reserve_nodes(commands: Commands, name: str, *words: str) -> None:
    """Make a reservation of nodes; a job that got one of them a moment ago keeps it (``ignore_jobs``)."""
    options = (f"reservationname={name}", *words, "users=root", "flags=ignore_jobs")
    commands.text("scontrol", "create", "reservation", *options)


def delete_reservation(commands: Commands, name: str) -> None:
    """Delete a reservation; no error where there is none."""
    try:
        commands.text("scontrol", "delete", f"reservationname={name}")
    except RetryLater:
        if any(one.name == name for one in reservations_of(commands)):
            raise


def nodes_in_topology(commands: Commands) -> frozenset[str]:
    """The nodes of all switches of topology.conf; RetryLater when slurmctld does not say."""
    found = re.findall(r"\bNodes=(\S+)", commands.text("scontrol", "show", "topology"))
    return frozenset(name for nodes in found for name in expand(nodes))


def reservations_of(commands: Commands) -> tuple[Reservation, ...]:
    """All reservations; RetryLater when slurmctld does not say."""
    return read_reservations(commands.text("scontrol", "--oneliner", "show", "reservations"))
