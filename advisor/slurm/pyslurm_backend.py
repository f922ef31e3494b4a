"""The Slurm back end that calls slurmctld through pyslurm, and runs Slurm's commands for what it cannot do.

pyslurm (GPL-2) is optional, and its branch has to be that of the site's Slurm. By the documentation of its
branch 22.5.x, and by trying it on slurmctld 22.05, it cannot

- set a number to zero or clear a text: it takes both for "not given" (``nice``, ``reason`` ...),
- set ``prefer``, or a start time relative to now, nor read ``prefer``,
- read the SuspendTime of a partition, so partitions are read by the command line,
- change all tasks of an array, or all components of a heterogeneous job, in one call.

Such a change is made by the command line as a whole, so none is half made. A read that fails by anything but
slurmctld's refusal, such as a job name that is no UTF-8, is repeated by the command line, too. pyslurm holds
Python's lock while it waits for slurmctld: no other loop of the process runs then.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Collection, Container, Mapping
from pathlib import Path
from typing import Any, Final, Unpack

import structlog

from advisor.model.errors import BadInput, RetryLater
from advisor.model.scheduler import NodeChange
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, ClusterSnapshot, SubmittedJob
from advisor.slurm.cli import PARTITION_ATTEMPTS, CliBackend, one_line
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.pyslurm_records import node_of, queued_job

log = structlog.get_logger(__name__)

_ENDED: Final = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)
"""Jobs that slurmctld still remembers, and squeue does not show."""
_MAX_CHANGES: Final = 10
"""More jobs than this scontrol changes: it starts in 8 ms, and is twice as fast where there are many."""
_JOB_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "admincomment": ("admin_comment", lambda value: one_line(value, 16384)),
    "excnodelist": ("excluded_nodes", one_line),
    "features": ("constraints", one_line),
    "nice": ("nice", int),
    "partition": ("partitions", one_line),
    "sitefactor": ("site_factor", int),
    "timelimit": ("time_limit", int),
}
"""Fields of ``scontrol update job``: pyslurm's name, and the value that it takes."""


def backend_of(settings: Settings) -> SlurmBackend:
    """The back end that the settings ask for.

    Raises:
        BadInput: pyslurm is asked for, and cannot be used (``slurm.pyslurm``).
    """
    commands = CliBackend.of(settings)
    if settings.cluster.slurm_api != "pyslurm":
        return commands
    return PyslurmBackend(load_pyslurm(settings.paths.slurm_conf, commands.version()), commands)


def load_pyslurm(slurm_conf: Path, release: tuple[int, ...]) -> Any:
    """Import pyslurm for a site.

    Args:
        slurm_conf: The file that libslurm reads as it is loaded; without it libslurm ends the process.
        release: Release of the site's Slurm, e.g. ``(22, 5, 8)``.

    Raises:
        BadInput: It cannot be imported, or it is of another release (``slurm.pyslurm``).
    """

    def refused(what: str, mend: str) -> BadInput:
        other = 'or set cluster.slurm_api = "commands", which needs nothing'
        return BadInput(what, where="cluster.slurm_api", mend=f"{mend}, {other}", code="slurm.pyslurm")

    if not os.access(slurm_conf, os.R_OK):
        raise refused(f"pyslurm needs {slurm_conf}, which cannot be read", "Make it readable for this user")
    os.environ["SLURM_CONF"] = str(slurm_conf)
    try:
        module = importlib.import_module("pyslurm")
    except ImportError as error:
        raise refused(
            f"pyslurm cannot be imported: {error}",
            "Install it for this Python, built from the branch of this Slurm's release (docs/install.md)",
        ) from error
    built_for = tuple(int(part) for part in str(module.__version__).split(".")[:2])
    if built_for != release[:2]:
        raise refused(
            f"pyslurm {module.__version__} is not for Slurm {'.'.join(map(str, release))}",
            "Install the pyslurm whose first two numbers are those of Slurm's release",
        )
    return module


class PyslurmBackend:
    """Reads, moves, requeues and changes nodes through pyslurm; all else through `commands`.

    Args:
        pyslurm: The module.
        commands: The back end for what pyslurm cannot do.
        monotonic: A clock in seconds.
    """

    def __init__(
        self, pyslurm: Any, commands: SlurmBackend, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._pyslurm = pyslurm
        self._commands = commands
        self._monotonic = monotonic
        self._single: frozenset[int] = frozenset()
        """Jobs of the last read that are no part of an array or of a heterogeneous job."""
        self.by_commands = 0
        """How often pyslurm could not do what was asked, so that the command line did it."""
        self.accounting = commands.accounting
        self.ping = commands.ping
        self.partitions = commands.partitions
        self.reservations = commands.reservations
        self.config = commands.config
        self.is_administrator = commands.is_administrator
        self.version = commands.version

    # ---------------------------------------------------------------------------------------- reads

    def snapshot(self, now: float) -> ClusterSnapshot:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        began = self._monotonic()
        try:
            jobs = tuple(queued_job(job) for job in self._jobs())
            loaded = self._called("to show its nodes", self._pyslurm.Nodes.load)
            nodes = tuple(node_of(node) for node in loaded.values())
        except (AttributeError, TypeError, ValueError) as error:
            self._turn_to_commands("snapshot", error)
            return self._commands.snapshot(now)
        if not nodes:
            raise RetryLater(
                "slurmctld shows no node. Run `sinfo -N` as the user of this service: a node must be shown",
                code="slurm.unreadable",
            )
        return ClusterSnapshot(time=now, jobs=jobs, nodes=nodes, seconds=self._monotonic() - began)

    def waiting(self, known: Container[int]) -> Mapping[int, SubmittedJob | None]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`; only about new jobs squeue is asked."""
        try:
            waiting = [int(job.id) for job in self._jobs() if job.state == PENDING]
        except (AttributeError, TypeError, ValueError) as error:
            self._turn_to_commands("waiting", error)
            return self._commands.waiting(known)
        if all(job_id in known for job_id in waiting):
            return dict.fromkeys(waiting)
        return self._commands.waiting(known)

    def _jobs(self) -> list[Any]:
        """Jobs that squeue would show."""
        loaded = self._called("to show its jobs", self._pyslurm.Jobs.load)
        jobs = [job for job in loaded.values() if job.state not in _ENDED]
        self._single = frozenset(int(job.id) for job in jobs if not (job.array_id or job.heterogeneous_id))
        return jobs

    # -------------------------------------------------------------------------------------- changes

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        if len(job_ids) > _MAX_CHANGES:
            self._commands.update_job(job_ids, changes)
            return
        said = _job_changes(changes)
        single, others = self._divided(job_ids) if said is not None else ([], list(job_ids))
        refusal: RetryLater | None = None
        for job_id in single:
            try:
                self._modify(job_id, said or {})
            except RetryLater as error:
                refusal = error
        if others:
            self._commands.update_job(others, changes)
        if refusal is not None:
            raise refusal

    def update_jobs(self, changes: Mapping[int, Mapping[str, str]]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        if len(changes) > _MAX_CHANGES:
            self._commands.update_jobs(changes)
            return
        refusal: RetryLater | None = None
        others: dict[int, Mapping[str, str]] = {}
        for job_id, fields in changes.items():
            said = _job_changes(fields)
            if said is None or job_id not in self._single:
                others[job_id] = fields
                continue
            try:
                self._modify(job_id, said)
            except RetryLater as error:
                refusal = error
        self.by_commands += bool(others)
        if others:
            self._commands.update_jobs(others)
        if refusal is not None:
            raise refusal

    def _modify(self, job_id: int, said: Mapping[str, Any]) -> None:
        attempts = PARTITION_ATTEMPTS if "partitions" in said else 1
        while True:
            attempts -= 1
            try:
                self._called(
                    f"to change job {job_id}",
                    lambda: self._pyslurm.Job(job_id).modify(self._pyslurm.JobSubmitDescription(**said)),
                )
            except RetryLater:
                if not attempts:
                    raise
            else:
                return

    def _divided(self, job_ids: Collection[int]) -> tuple[list[int], list[int]]:
        """Single jobs, and those that only the command line changes as a whole."""
        others = [job_id for job_id in job_ids if job_id not in self._single]
        self.by_commands += bool(others)
        return [job_id for job_id in job_ids if job_id in self._single], others

    def update_node(self, nodes: Collection[str], **change: Unpack[NodeChange]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        said: dict[str, Any] = {**change}
        if "reason" in change:
            said["reason"] = one_line(change["reason"])
        if "features" in change:
            said["active_features"] = list(said.pop("features"))
        if not said or not nodes:
            return
        is_list = "address" in change and len(nodes) > 1  # each node has an address of its own there
        if is_list or not all(said.values()) or self._pyslurm_refuses(said):
            self.by_commands += 1
            self._commands.update_node(nodes, **change)
            return
        changes = self._pyslurm.Node(**said)
        self._called(
            f"to change {len(nodes)} nodes", lambda: self._pyslurm.Nodes(list(nodes)).modify(changes)
        )

    def _pyslurm_refuses(self, said: Mapping[str, Any]) -> bool:
        try:
            self._pyslurm.Node(**said)
        except (AttributeError, KeyError, TypeError, ValueError):  # a state that it has no word for
            return True
        return False

    def requeue(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`; pyslurm would run ended jobs again."""
        self.by_commands += 1
        self._commands.requeue(job_ids)

    def requeue_ended(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        self.by_commands += 1
        self._commands.requeue_ended(job_ids)

    def release(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        single, others = self._divided(job_ids)
        for job_id in single:
            self._called(f"to release job {job_id}", self._pyslurm.Job(job_id).release)
        if others:
            self._commands.release(others)

    def _called(self, asked: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._pyslurm.RPCError as error:
            raise RetryLater(
                f"slurmctld was asked {asked}, by pyslurm, and did not: {error}. If it does not answer, "
                "`scontrol ping` says so; slurmctld's log has what it refuses",
                code="slurm.command_failed",
            ) from error

    def _turn_to_commands(self, what: str, error: Exception) -> None:
        self.by_commands += 1
        log.info("pyslurm.cannot_read", what=what, why=str(error)[:200], then="it is read by commands")


def _job_changes(changes: Mapping[str, str]) -> dict[str, Any] | None:
    """Arguments of a JobSubmitDescription; None where pyslurm cannot make the change as it is meant."""
    said: dict[str, Any] = {}
    for name, value in changes.items():
        attribute, as_value = _JOB_FIELDS.get(name.lower(), ("", str))
        try:
            said[attribute] = as_value(value)
        except ValueError:
            return None
        if not attribute or not said[attribute]:
            return None
    return said
