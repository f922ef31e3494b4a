"""What stands in for the module pyslurm where none can be built: its interface, over a `MemorySlurm`.

Names, types and what is left out are those of the documentation of pyslurm 22.5: attributes are None for what
is not set, a value of zero or an empty text in a change is not sent, an unknown attribute raises
AttributeError, and a refusal of slurmctld raises RPCError. `tests/slurm/test_contract.py` runs the same cases
against it and, where one is installed, against a real pyslurm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from advisor.model.cluster import Node
from advisor.model.errors import RetryLater
from advisor.model.snapshot import QueuedJob
from advisor.testing.memory_slurm import MemorySlurm
from advisor.testing.memory_slurm_records import ENDED

_JOB_CHANGES: Final[Mapping[str, str]] = {
    "admin_comment": "admincomment",
    "constraints": "features",
    "excluded_nodes": "excnodelist",
    "nice": "nice",
    "partitions": "partition",
    "site_factor": "sitefactor",
    "time_limit": "timelimit",
}
_NODE_CHANGES: Final[Mapping[str, str]] = {
    "active_features": "features",
    "address": "address",
    "hostname": "hostname",
    "reason": "reason",
    "state": "state",
    "weight": "weight",
}
_NODE_STATES: Final = frozenset(
    {
        *("CANCEL_REBOOT", "DOWN", "DRAIN", "FAIL", "FUTURE", "NORESP", "NO_RESP", "RESUME", "UNDRAIN"),
        *("POWER_DOWN", "POWER_DOWN_ASAP", "POWER_DOWN_FORCE", "POWER_UP"),
    }
)


class RPCError(Exception):
    """slurmctld has refused, or does not answer."""


class JobSubmitDescription:
    """Changes of a job."""

    def __init__(self, **changes: Any) -> None:
        for name in changes:
            if name not in _JOB_CHANGES:
                message = f"'JobSubmitDescription' object has no attribute '{name}'"
                raise AttributeError(message)
        self.said = {_JOB_CHANGES[name]: str(value) for name, value in changes.items() if value}


class MemoryPyslurm:
    """Takes the place of the module."""

    __version__ = "22.5.3"
    RPCError = RPCError
    JobSubmitDescription = JobSubmitDescription

    def __init__(self, slurm: MemorySlurm) -> None:
        self._slurm = slurm
        self.Jobs = _Jobs(self)
        self.Nodes = _Nodes(self)
        self.Node = _NodeChanges

    def Job(self, job_id: int) -> _JobHandle:  # noqa: N802 (pyslurm's name)
        """A job to be changed; nothing is asked yet."""
        return _JobHandle(self, job_id)

    def told(self, do: Callable[[], Any]) -> Any:
        """Do what a call of slurmctld does."""
        try:
            return do()
        except RetryLater as error:
            raise RPCError(str(error)) from error

    @property
    def slurm(self) -> MemorySlurm:
        """The cluster that is asked and told."""
        return self._slurm


class _Jobs:
    def __init__(self, module: MemoryPyslurm) -> None:
        self._module = module

    def load(self) -> dict[int, _Job | _Ended]:
        """Every job that slurmctld remembers, ended ones too."""
        slurm = self._module.slurm
        shown = self._module.told(lambda: slurm.snapshot(slurm.now()))
        ended = [_Ended(job.job_id, job.state) for job in slurm.jobs.values() if job.state in ENDED]
        found: list[_Job | _Ended] = [*map(_Job, shown.jobs), *ended]
        return {job.id: job for job in found}


class _Ended:
    """All of an ended job that is looked at."""

    def __init__(self, job_id: int, state: str) -> None:
        self.id, self.state = job_id, state


class _Job:
    def __init__(self, queued: QueuedJob) -> None:
        job = queued.job
        self.id = job.job_id
        self.array_id = queued.array_job_id if queued.is_of_array else None
        # the real one leaves the limit (%2) out of the tasks, and has it here
        self.array_tasks_waiting = f"1-{job.array_tasks}" if job.array_tasks > 1 else None
        self.array_tasks_parallel = job.array_at_once
        self.heterogeneous_id = job.job_id if job.heterogeneous else None
        self.state, self.state_reason = queued.state, queued.reason or "None"
        self.partition = ",".join(queued.partitions)
        self.submit_time = int(job.submit_time)
        self.start_time = None if queued.start_time is None else int(queued.start_time)
        self.time_limit = None if job.requested_time is None else int(job.requested_time // 60)
        self.cpus, self.num_nodes = job.processors, job.nodes or 1
        self.user_id, self.group_id = 0, 0
        self.name, self.account, self.qos, self.comment = job.name, job.account, job.qos, job.comment
        self.constraints = list(job.features or ())
        self.is_requeueable = job.requeue is not False
        self.licenses = job.licenses.split(",") if job.licenses else []
        self.reservation, self.required_nodes = job.reservation, job.node_list
        self.dependencies = _dependencies(job.dependency)
        self.gres_per_node: dict[str, int] = {"gpu": queued.gpus} if queued.gpus else {}
        self.memory_per_cpu, self.memory_per_node = None, queued.memory_mb // self.num_nodes or None
        self.resource_sharing = "NO" if job.whole_nodes else "OK"
        self.is_batch_job = not job.interactive
        self.requeue_count, self.priority = queued.restarts, queued.priority
        self.allocated_nodes = queued.nodes or None
        self.admin_comment = queued.admin_comment or None


def _dependencies(said: str | None) -> dict[str, Any] | None:
    """What the real one shows: "singleton" is always False, since slurmctld adds "(unfulfilled)" to it."""
    if said is None:
        return None
    kinds = ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok")
    found: dict[str, Any] = {kind: [] for kind in kinds}
    for part in re.split("[,?]", said):
        kind, _, jobs = part.partition(":")
        if jobs:
            found[kind] += jobs.split(":")
    return found | {"singleton": False, "satisfy": "any" if "?" in said else "all"}


class _JobHandle:
    def __init__(self, module: MemoryPyslurm, job_id: int) -> None:
        self._module, self._job_id = module, job_id

    def modify(self, changes: JobSubmitDescription) -> None:
        """Change the job."""
        self._module.told(lambda: self._module.slurm.update_job([self._job_id], changes.said))

    def requeue(self) -> None:
        """Requeue the job."""
        self._module.told(lambda: self._module.slurm.requeue([self._job_id]))

    def release(self) -> None:
        """Release the held job."""
        self._module.told(lambda: self._module.slurm.release([self._job_id]))


class _NodeChanges:
    def __init__(self, name: str | None = None, **changes: Any) -> None:
        self.name = name
        if (state := changes.get("state")) is not None and state.upper() not in _NODE_STATES:
            message = f"Invalid Node state: {state}"
            raise ValueError(message)
        if unknown := changes.keys() - _NODE_CHANGES.keys():
            raise KeyError(*unknown)
        self.said = {_NODE_CHANGES[name]: value for name, value in changes.items() if value}


class _Nodes:
    """`Nodes.load()`, and `Nodes([...]).modify(...)`."""

    def __init__(self, module: MemoryPyslurm, names: Iterable[str] = ()) -> None:
        self._module, self._names = module, list(names)

    def __call__(self, names: Iterable[str]) -> _Nodes:
        return _Nodes(self._module, names)

    def load(self) -> dict[str, _Node]:
        """Every node."""
        slurm = self._module.slurm
        shown = self._module.told(lambda: slurm.snapshot(slurm.now()))
        return {node.name: _Node(node) for node in shown.nodes}

    def modify(self, changes: _NodeChanges) -> None:
        """Change the nodes."""
        said: dict[str, Any] = changes.said
        self._module.told(lambda: self._module.slurm.update_node(self._names, **said))


class _Node:
    def __init__(self, node: Node) -> None:
        is_mixed = "MIXED" in node.states
        self.name, self.real_memory, self.total_cpus = node.name, node.memory_mb, node.processors
        self.state = "+".join(sorted(node.states - {"MIXED"} | ({"ALLOCATED"} if is_mixed else set())))
        self.allocated_cpus = 1 if is_mixed else node.processors if "ALLOCATED" in node.states else 0
        self.partitions = list(node.partitions) or None
        self.available_features = list(node.features) or None
        self.active_features = list(node.active_features or ()) or None
        self.address, self.reason, self.weight = node.address, node.reason, node.weight or None
        self.configured_gres: dict[str, Any] = {"gpu": node.gpus} if node.gpus else {}
