"""A lab's processes: their interpreter, and their end, by pid file or environment. Never by name alone."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from advisor.model.errors import RetryLater

_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_DAEMONS: Final = frozenset({"slurmd", "slurmstepd", "slurmctld", "slurmscriptd"})


def public_python() -> str:
    """The path of a Python that any user may run: ours, or the system's where ours is in a home directory."""
    ours = Path(sys.executable).resolve()
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in ours.parents):
        return sys.executable
    return f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Poll a condition until it holds.

    Raises:
        RetryLater: It does not hold in time; the message says what was waited for.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= end:
            raise RetryLater(f"not within {seconds:g} s: {what}", code="lab.timeout")
        time.sleep(_POLL_SECONDS)


def is_alive(pid: int) -> bool:
    """True for a process that runs; a zombie counts as dead (some containers reap late)."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def pid_in(file: Path) -> int | None:
    """Process id in a pid file; None when there is none."""
    try:
        text = file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) > 1 else None


def stop(pid_files: Iterable[Path], *, mark: str, kill: bool = False) -> None:
    """End the processes named by pid files: TERM, up to ten seconds of patience, KILL.

    Args:
        mark: Text that must be in a process's command line or environment (a lab: its folder), so that a pid
            file left by a crash never hits the process that has the number today.
        kill: KILL at once, as a crash would.
    """
    files = list(pid_files)
    pids = [pid for file in files if (pid := pid_in(file)) is not None and _carries(pid, mark)]
    for pid in pids:
        _signal(pid, signal.SIGKILL if kill else signal.SIGTERM)
    end = time.monotonic() + _STOP_SECONDS
    while any(is_alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    for pid in pids:
        _signal(pid, signal.SIGKILL)
    for file in files:
        file.unlink(missing_ok=True)


def sweep(slurm_conf: Path, *, node: str | None = None, programs: frozenset[str] = frozenset()) -> int:
    """Kill what has no pid file: job steps outlive their slurmd, cloud programs may still run.

    A process is the lab's when its environment names the lab's slurm.conf, and it is a Slurm daemon, one of
    ``programs``, or belongs to a job.

    Args:
        node: Only what runs on this node.

    Returns:
        How many processes that were.
    """
    ours = f"SLURM_CONF={slurm_conf}"
    killed = 0
    for pid, variables in _environments():
        if ours not in variables:
            continue
        if node is not None:
            if f"SLURMD_NODENAME={node}" not in variables:
                continue
        elif _name_of(pid) not in _DAEMONS | programs and not _is_in_a_job(variables):
            continue
        _signal(pid, signal.SIGKILL)
        killed += 1
    return killed


def _is_in_a_job(variables: frozenset[str]) -> bool:
    return any(variable.startswith("SLURM_JOB_ID=") for variable in variables)


def _environments() -> Iterator[tuple[int, frozenset[str]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                raw = (entry / "environ").read_bytes()
            except OSError:
                continue
            yield int(entry.name), frozenset(raw.decode("utf-8", "replace").split("\0"))


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _carries(pid: int, mark: str) -> bool:
    for name in ("cmdline", "environ"):
        try:
            if mark.encode() in Path(f"/proc/{pid}/{name}").read_bytes():
                return True
        except OSError:
            continue
    return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
