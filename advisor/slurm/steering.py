"""Close nodes of a burst partition to new jobs, and order its waiting jobs, for the portfolio loop.

Nodes are closed by a reservation whose end the loop keeps moving; when the loop stops, the reservation ends
and slurmctld opens the nodes again. docs/designs/0014-portfolio-live.md compares the other ways.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from advisor.model.errors import RetryLater
from advisor.model.job_words import mebibytes
from advisor.model.node_sets import expand, fold
from advisor.model.snapshot import Partition
from advisor.slurm import parsing, records
from advisor.slurm.commands import Commands, SlurmConf, delete_reservation, reservations_of, reserve_nodes
from advisor.slurm.records import Layout, Unread

RESERVATION: Final = "advisor_portfolio"
_COUNT: Final = re.compile(r":[0-9]+")  # SuspendExcNodes=node[1-9]:2 keeps any two of these nodes
_JOBS_A_CALL: Final = 500
_GENERIC: Final = ("tres-per-job", "tres-per-node", "tres-per-socket", "tres-per-task")
_DEMANDS: Final = ("JobID", "MinMemory", "tres-alloc", *_GENERIC, "UserID")  # numbers first and last
_STATES: Final = ("NodeList", "StateComplete", "Weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Nodes that are closed to new jobs, and the end of their reservation in epoch seconds."""

    nodes: frozenset[str]
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A waiting job's priority, and the site factor in it."""

    total: int
    site_factor: int

    @property
    def own(self) -> int:
        """The priority without the site factor."""
        return self.total - self.site_factor


class Ageing(NamedTuple):
    """What a job's age adds to its priority: ``weight`` times its share of ``seconds``, at most once."""

    weight: float
    seconds: float

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Ageing | None:
        """As Slurm is configured; None where each new job is the last. Without slurmdbd no job ages."""
        if not config.get("PriorityType", "").endswith("multifactor"):
            return None
        ages = "slurmdbd" in config.get("AccountingStorageType", "")
        weight = records.whole(config.get("PriorityWeightAge", "")) if ages else None
        return cls(float(weight or 0), records.seconds(config.get("PriorityMaxAge", "")) or math.inf)

    def of_a_job(self, age_seconds: float) -> float:
        """What it adds to the priority of a job that has waited for so long."""
        return self.weight * min(1.0, max(0.0, age_seconds) / self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The requirements of a waiting job on each of its nodes, as far as squeue shows them.

    ``memory_mb``: least memory. ``is_particular``: it asks for generic resources or excludes nodes.
    """

    memory_mb: int = 0
    is_particular: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSaving:
    """Slurm's power saving: when idle nodes are powered down.

    ``idle_seconds``: SuspendTime, infinite where none is; None when it is unknown. ``excluded``: nodes that
    are never powered down (SuspendExcNodes, SuspendExcParts, SuspendExcStates).
    """

    idle_seconds: float | None = None
    excluded: frozenset[str] = frozenset()


class BurstSteering:
    """The portfolio loop's interface to Slurm. Every method raises RetryLater when Slurm fails or refuses."""

    def __init__(self, commands: Commands, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._commands = commands
        self._conf = SlurmConf(commands, monotonic=monotonic)

    def closed(self) -> Closed | None:
        """Nodes that are closed now; None when there is no reservation."""
        every = reservations_of(self._commands)
        ours = (Closed(nodes=one.nodes, until=one.end) for one in every if one.name == RESERVATION)
        return next(ours, None)

    def close(self, nodes: Collection[str], *, seconds: float, known: Closed | None) -> None:
        """Close exactly these nodes for so long from now; ``known`` is what `closed` returned."""
        if not nodes:
            msg = "no node is named: open() is meant"
            raise ValueError(msg)
        changes = [f"endtime=now+{max(1, round(seconds)):d}"]
        if known is None or known.nodes != frozenset(nodes):
            changes.append(f"nodes={fold(sorted(nodes))}")
        if known is not None:
            self._commands.text("scontrol", "update", f"reservationname={RESERVATION}", *changes)
        else:
            reserve_nodes(self._commands, RESERVATION, *changes, "starttime=now")

    def open(self) -> None:
        """Open all nodes; no error when none are closed."""
        delete_reservation(self._commands, RESERVATION)

    @property
    def knows_site_factors(self) -> bool:
        """Whether waiting jobs can be put in order: ``priority/basic`` only numbers jobs in their order."""
        return self._conf.values().get("PriorityType") == "priority/multifactor"

    def priorities(self, partition: str | None = None, jobs: Collection[int] = ()) -> Mapping[int, Priority]:
        """Priorities of a partition's waiting jobs and of these jobs, by id; an array's tasks share one.

        slurmctld computes only these, not those of the whole queue.
        """
        found: dict[int, Priority] = {}
        if partition is not None:
            found |= self._priorities(f"--partition={partition}")
        left = [f"{job_id:d}" for job_id in jobs if job_id not in found]
        try:
            for begin in range(0, len(left), _JOBS_A_CALL):
                found |= self._priorities(f"--jobs={','.join(left[begin : begin + _JOBS_A_CALL])}")
        except RetryLater:
            # sprio 24.05 to 25.05 refuses every list of more than one job
            found |= {job_id: seen for job_id, seen in self._priorities().items() if job_id in jobs}
        return found

    def _priorities(self, *which: str) -> dict[int, Priority]:
        found: dict[int, Priority] = {}
        for line in self._commands.text("sprio", "--noheader", *which, "--format=%i|%Y|%S").splitlines():
            match [part.strip() for part in line.split("|")]:
                case [job_id, total, site] if records.whole(job_id) is not None:
                    numbers = records.whole(total), _signed(site)
                    if numbers[0] is not None and numbers[1] is not None:
                        # a job has a line for each partition; the portfolio leaves those with several alone
                        found.setdefault(int(job_id), Priority(total=numbers[0], site_factor=numbers[1]))
        return found

    def demands(self, partition: str) -> Mapping[int, Demand]:
        """Demands of a partition's waiting jobs, by id; only squeue's older format shows excluded nodes."""
        which = ("--noheader", "--states=PENDING", f"--partition={partition}")
        excluding = {
            int(job_id)
            for line in self._commands.text("squeue", *which, "--format=%A|%x").splitlines()
            for job_id, _, nodes in (line.strip().partition("|"),)
            if records.whole(job_id) is not None and records.text(nodes) is not None
        }
        layout = Layout.of(_DEMANDS)
        answer = self._commands.text("squeue", *which, f"--Format={layout.argument}")
        found: dict[int, Demand] = {}
        for row in layout.records(answer, Unread()):
            job_id = records.whole(row["JobID"])
            if job_id is not None:
                generic = any(records.text(row[name]) is not None for name in _GENERIC)
                memory, tres = mebibytes(row["MinMemory"]) or 0, parsing.tres_of(row)
                if memory and tres.get("node") == "1":  # with --mem-per-cpu squeue shows that of a processor
                    memory = max(memory, mebibytes(tres.get("mem", "")) or 0)
                found[job_id] = Demand(memory_mb=memory, is_particular=generic or job_id in excluding)
        return found

    def node_states(self, nodes: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Slurm's state words of exactly these nodes, now."""
        layout = Layout.of(_STATES)
        answer = self._commands.text(
            "sinfo",
            "--noheader",
            "--all",
            "--Node",
            f"--nodes={fold(sorted(nodes))}",
            f"--Format={layout.argument}",
        )
        return {
            row["NodeList"].strip(): frozenset(
                re.sub(r"[^A-Z_+]", "", row["StateComplete"].strip().upper()).split("+")
            )
            for row in layout.records(answer, Unread())
        }

    def power_saving(self, partition: str) -> PowerSaving:
        """Power saving of a partition's nodes."""
        values = self._conf.values()
        shown = self._commands.text("scontrol", "-o", "show", "partition", partition)
        own = next(iter(parsing.partitions(shown)), None)
        return PowerSaving(
            idle_seconds=idle_seconds(own, values),
            excluded=never_powered_down(values, partition, "" if own is None else own.nodes),
        )

    def set_site_factor(self, job_ids: Collection[int], value: int) -> None:
        """Set the site factor of waiting jobs; jobs that have ended meanwhile are ignored."""
        ids = ",".join(f"{job_id:d}" for job_id in job_ids)
        try:
            self._commands.text("scontrol", "update", f"jobid={ids}", f"sitefactor={value:d}")
        except RetryLater as error:
            # scontrol has changed the other jobs of the list
            if "already finished" not in str(error) and "Invalid job id" not in str(error):
                raise


def idle_seconds(partition: Partition | None, config: Mapping[str, str]) -> float | None:
    """SuspendTime of a partition's nodes, seconds: its own, else that of slurm.conf; None: not known."""
    own = None if partition is None else partition.suspend_seconds
    return records.suspend_seconds(config.get("SuspendTime", "")) if own is None else own


def never_powered_down(config: Mapping[str, str], partition: str, nodes: str) -> frozenset[str]:
    """Nodes that slurm.conf says are never powered down; `nodes`: the cloud nodes of a partition."""
    kept = config.get("SuspendExcNodes", "")
    for key, word in (("SuspendExcParts", partition), ("SuspendExcStates", "CLOUD")):
        if word in config.get(key, "").split(","):
            kept = nodes
    return frozenset(expand(_COUNT.sub("", kept))) if records.text(kept) is not None else frozenset()


def _signed(text: str) -> int | None:
    value = records.whole(text.removeprefix("-"))
    return None if value is None else -value if text.startswith("-") else value
