"""Run one of Slurm's commands: no shell, absolute path, a time limit and a limit of output."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from advisor.history.sacct import ENVIRONMENT as _EPOCH_TIMES
from advisor.model.errors import BadInput, RetryLater

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

_CHUNK: Final = 1 << 18
_STDERR_BYTES: Final = 64 * 1024
MAX_BYTES: Final = 256 * 1024 * 1024
"""Longest output believed: 500,000 jobs of half a kilobyte."""


class Commands:
    """Runs commands of one Slurm installation.

    Parameters
    ----------
    folder : Path
        Where squeue, sinfo, scontrol and sacct are.
    slurm_conf : Path or None
        What they read; None leaves it to Slurm's own default.
    timeout : float
        Longest a query may take, seconds.
    """

    def __init__(self, folder: Path, slurm_conf: Path | None, *, timeout: float = 20.0) -> None:
        self._folder = folder
        self._timeout = timeout
        self._environment: dict[str, str] = {
            "PATH": f"{folder}:/usr/bin:/bin",
            # index expressions of arrays in full, not cut at 64 characters
            "SLURM_BITSTR_LEN": "0",
            **_EPOCH_TIMES,
        }
        if slurm_conf is not None:
            self._environment["SLURM_CONF"] = str(slurm_conf)

    @property
    def environment(self) -> Mapping[str, str]:
        """What the commands are run with."""
        return self._environment

    def text(self, name: str, *arguments: str, timeout: float | None = None) -> str:
        """Standard output of a command as text; bytes that are no UTF-8 are replaced.

        Raises
        ------
        RetryLater
            It failed (``slurm.command_failed``), took too long (``slurm.timeout``) or said too much
            (``slurm.too_long``).
        BadInput
            There is no such command (``slurm.no_command``), or no slurm.conf for it (``slurm.no_conf``).
        """
        collected = bytearray()
        self._run(name, arguments, collected.extend, timeout or self._timeout)
        return collected.decode("utf-8", "replace")

    @contextmanager
    def lines(self, name: str, *arguments: str, timeout: float) -> Iterator[Iterator[str]]:
        """The same as lines, kept in a temporary file: for answers that may be long.

        Only a line feed ends a line here; names may contain every other kind of line end.
        """
        with tempfile.TemporaryFile() as file:
            self._run(name, arguments, file.write, timeout, limit=64 * MAX_BYTES)
            file.seek(0)
            yield (line.decode("utf-8", "replace") for line in file)

    def _run(
        self,
        name: str,
        arguments: tuple[str, ...],
        sink: Callable[[bytes], object],
        timeout: float,
        limit: int = MAX_BYTES,
    ) -> None:
        errors = bytearray()
        with self._started(name, arguments) as process:
            try:
                self._collect(name, process, sink, errors, time.monotonic() + timeout, limit)
            except BaseException as error:
                process.kill()
                if isinstance(error, RetryLater):
                    self._check_slurm_conf(name)
                raise
        if process.returncode:
            self._check_slurm_conf(name)
            said = errors.decode("utf-8", "replace").strip()[:500]
            raise RetryLater(
                f"{name} ended with {process.returncode}: {said or 'no message'}", code="slurm.command_failed"
            )

    def _check_slurm_conf(self, name: str) -> None:
        """Tell why a command fails that has no slurm.conf; not before it has failed: it may do without."""
        conf = self._environment.get("SLURM_CONF")
        if conf and not Path(conf).exists():
            raise BadInput(
                f"no such file, and {name} failed",
                where=conf,
                mend="Set paths.slurm_conf, or SLURM_CONF, to the cluster's slurm.conf",
                code="slurm.no_conf",
            )

    def _environment_now(self) -> Mapping[str, str]:
        """What a command is run with where the slurm.conf that was named may not be there.

        Slurm waits a minute for a file that SLURM_CONF names. Without SLURM_CONF it looks where a login node
        without a file of its own (configless Slurm) has its settings from, by DNS at the last.
        """
        conf = self._environment.get("SLURM_CONF")
        if conf is None or Path(conf).exists():
            return self._environment
        others = {name: value for name, value in self._environment.items() if name != "SLURM_CONF"}
        return others | {"RES_OPTIONS": "timeout:1 attempts:1"}

    def _started(self, name: str, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        path = self._folder / name
        try:
            return subprocess.Popen(  # noqa: S603 - absolute path, no shell, arguments checked by the caller
                [str(path), *arguments],
                env=self._environment_now(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
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
            raise RetryLater(f"{name}: {error}", code="slurm.command_failed") from error

    def _collect(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        sink: Callable[[bytes], object],
        errors: bytearray,
        deadline: float,
        limit: int,
    ) -> None:
        size = 0
        with selectors.DefaultSelector() as selector:
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                for source, chunk in self._chunks(name, selector, deadline):
                    if not chunk:
                        selector.unregister(source)
                    elif source is process.stderr:
                        errors.extend(chunk[: _STDERR_BYTES - len(errors)])
                    else:
                        size += len(chunk)
                        if size > limit:
                            raise RetryLater(f"{name}: more than {limit} bytes", code="slurm.too_long")
                        sink(chunk)
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise _too_slow(name) from None

    @staticmethod
    def _chunks(
        name: str, selector: selectors.BaseSelector, deadline: float
    ) -> Iterator[tuple[FileDescriptorLike, bytes]]:
        left = deadline - time.monotonic()
        ready = selector.select(left) if left > 0 else []
        if not ready:
            raise _too_slow(name)
        for key, _ in ready:
            yield key.fileobj, os.read(key.fd, _CHUNK)


def _too_slow(name: str) -> RetryLater:
    return RetryLater(f"{name}: no answer in time", code="slurm.timeout")
