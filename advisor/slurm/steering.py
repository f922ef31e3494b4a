"""How a burst partition is steered, by means that an admin sees and that end by themselves.

Nodes are closed by a reservation whose end is put off as long as somebody does so; slurmctld opens them
again when nobody does. docs/designs/0014-portfolio-live.md compares the other ways.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from advisor.model.errors import BadInput, RetryLater
from advisor.slurm import parsing, records
from advisor.slurm.commands import Commands
from advisor.slurm.node_sets import expand, fold
from advisor.slurm.records import Layout, Unread

RESERVATION: Final = "advisor_portfolio"
_OWNER: Final = "root"
_PAIR: Final = re.compile(r"([A-Za-z]+)=(\S*)")
_COUNT: Final = re.compile(r":[0-9]+")  # SuspendExcNodes=node[1-9]:2 keeps any two of them
_MEMORY: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([MGTP]?)")
_MEGABYTES: Final = {"": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_JOBS_A_CALL: Final = 500
_GENERIC: Final = ("tres-per-job", "tres-per-node", "tres-per-socket", "tres-per-task")
_DEMANDS: Final = ("JobID", "MinMemory", *_GENERIC, "UserID")  # numbers first and last
_STATES: Final = ("NodeList", "StateComplete", "Weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Nodes closed to new jobs, and until when (epoch seconds) if nobody puts that off."""

    nodes: frozenset[str]
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A waiting job's priority, and the site factor in it."""

    total: int
    site_factor: int

    @property
    def own(self) -> int:
        """What it would be without a site factor."""
        return self.total - self.site_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a waiting job asks of each of its nodes, as far as squeue says it.

    ``memory_mb``: at least so much. ``is_particular``: generic resources, or nodes it refuses.
    """

    memory_mb: int = 0
    is_particular: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSaving:
    """What slurm.conf says of idle nodes.

    ``idle_seconds``: when they are powered down (SuspendTime); None when that is not known, or never.
    ``excluded``: nodes that never are (SuspendExcNodes, SuspendExcParts).
    """

    idle_seconds: float | None = None
    excluded: frozenset[str] = frozenset()


class BurstSteering(Protocol):
    """What the portfolio loop asks of Slurm besides the common back end.

    Every method raises RetryLater when Slurm does not answer or refuses.
    """

    def closed(self) -> Closed | None:
        """Nodes that are closed now; None when none are."""
        ...

    def close(self, nodes: Collection[str], *, seconds: float, known: Closed | None) -> None:
        """Close exactly these nodes for so long from now; ``known``: what `closed` said."""
        ...

    def open(self) -> None:
        """Open all; harmless when none are closed."""
        ...

    @property
    def knows_site_factors(self) -> bool:
        """Whether waiting jobs can be put in order."""
        ...

    def priorities(self, partition: str | None = None, jobs: Collection[int] = ()) -> Mapping[int, Priority]:
        """Of waiting jobs of a partition, and of these jobs, by id; an array's waiting tasks share one."""
        ...

    def demands(self, partition: str) -> Mapping[int, Demand]:
        """What the waiting jobs of a partition ask for, by id."""
        ...

    def node_states(self, nodes: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Slurm's words for the state of exactly these nodes, now."""
        ...

    def power_saving(self, partition: str) -> PowerSaving:
        """Of a partition's nodes."""
        ...

    def set_site_factor(self, job_ids: Collection[int], value: int) -> None:
        """Set waiting jobs' site factor; jobs that have ended meanwhile are left out."""
        ...


class Steering:
    """The same by Slurm's own commands.

    Parameters
    ----------
    commands : Commands
        How they are run.
    """

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._config: Mapping[str, str] | None = None
        self._power_saving: PowerSaving | None = None

    def closed(self) -> Closed | None:
        """See :class:`BurstSteering`."""
        said = self._commands.text("scontrol", "--oneliner", "show", "reservations")
        for line in said.splitlines():
            pairs = dict(_PAIR.findall(line))
            until = records.whole(pairs.get("EndTime", ""))
            if pairs.get("ReservationName") == RESERVATION and until is not None:
                nodes = pairs.get("Nodes", "(null)")
                return Closed(nodes=frozenset(expand(nodes) if nodes != "(null)" else ()), until=float(until))
        return None

    def close(self, nodes: Collection[str], *, seconds: float, known: Closed | None) -> None:
        """See :class:`BurstSteering`."""
        if not nodes:
            raise BadInput("no node is named", where="close", mend="Open the nodes instead")
        changes = [f"reservationname={RESERVATION}", f"endtime=now+{max(1, round(seconds)):d}"]
        if known is None or known.nodes != frozenset(nodes):
            changes.append(f"nodes={fold(sorted(nodes))}")
        if known is not None:
            self._commands.text("scontrol", "update", *changes)
            return
        # a job that got one of these nodes a moment ago keeps it: ignore_jobs
        self._commands.text(
            "scontrol",
            "create",
            "reservation",
            *changes,
            "starttime=now",
            f"users={_OWNER}",
            "flags=ignore_jobs",
        )

    def open(self) -> None:
        """See :class:`BurstSteering`."""
        try:
            self._commands.text("scontrol", "delete", f"reservationname={RESERVATION}")
        except RetryLater:
            if self.closed() is not None:
                raise

    @property
    def knows_site_factors(self) -> bool:
        """See :class:`BurstSteering`: ``priority/basic`` numbers jobs as they come."""
        return self._slurm_conf().get("PriorityType") == "priority/multifactor"

    def _slurm_conf(self) -> Mapping[str, str]:
        """Asked once."""
        if self._config is None:
            self._config = parsing.config(self._commands.text("scontrol", "show", "config"))
        return self._config

    def priorities(self, partition: str | None = None, jobs: Collection[int] = ()) -> Mapping[int, Priority]:
        """See :class:`BurstSteering`: slurmctld reckons these alone, not the cluster's whole queue."""
        found: dict[int, Priority] = {}
        if partition is not None:
            found |= self._priorities(f"--partition={partition}")
        left = [f"{job_id:d}" for job_id in jobs if job_id not in found]
        for begin in range(0, len(left), _JOBS_A_CALL):
            found |= self._priorities(f"--jobs={','.join(left[begin : begin + _JOBS_A_CALL])}")
        return found

    def _priorities(self, which: str) -> dict[int, Priority]:
        found: dict[int, Priority] = {}
        for line in self._commands.text("sprio", "--noheader", which, "--format=%i|%Y|%S").splitlines():
            match [part.strip() for part in line.split("|")]:
                case [job_id, total, site] if records.whole(job_id) is not None:
                    numbers = records.whole(total), _signed(site)
                    if numbers[0] is not None and numbers[1] is not None:
                        # of several partitions of a job the first line counts: such jobs are left alone
                        found.setdefault(int(job_id), Priority(total=numbers[0], site_factor=numbers[1]))
        return found

    def demands(self, partition: str) -> Mapping[int, Demand]:
        """See :class:`BurstSteering`; excluded nodes are told by squeue's older format alone."""
        which = ("--noheader", "--states=PENDING", f"--partition={partition}")
        refusing = {
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
                found[job_id] = Demand(
                    memory_mb=_memory_mb(row["MinMemory"]), is_particular=generic or job_id in refusing
                )
        return found

    def node_states(self, nodes: Collection[str]) -> Mapping[str, frozenset[str]]:
        """See :class:`BurstSteering`."""
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
        """See :class:`BurstSteering`: asked once."""
        if self._power_saving is None:
            values = self._slurm_conf()
            own = dict(_PAIR.findall(self._commands.text("scontrol", "-o", "show", "partition", partition)))
            times = [
                seconds
                for text in (own.get("SuspendTime", ""), values.get("SuspendTime", ""))
                if (seconds := records.leading(text))
            ]
            excluded = [values.get("SuspendExcNodes", "")]
            if partition in values.get("SuspendExcParts", "").split(","):
                excluded = [own.get("Nodes", "")]
            self._power_saving = PowerSaving(
                idle_seconds=float(times[0]) if times else None,
                excluded=frozenset(
                    name
                    for text in excluded
                    if records.text(text) is not None
                    for name in expand(_COUNT.sub("", text))
                ),
            )
        return self._power_saving

    def set_site_factor(self, job_ids: Collection[int], value: int) -> None:
        """See :class:`BurstSteering`."""
        ids = ",".join(f"{job_id:d}" for job_id in job_ids)
        try:
            self._commands.text("scontrol", "update", f"jobid={ids}", f"sitefactor={value:d}")
        except RetryLater as error:
            # scontrol goes on with the other jobs of the list
            if "already finished" not in str(error) and "Invalid job id" not in str(error):
                raise


def _memory_mb(text: str) -> int:
    match = _MEMORY.fullmatch(text.strip())
    return int(float(match[1]) * _MEGABYTES[match[2]]) if match else 0


def _signed(text: str) -> int | None:
    value = records.whole(text.removeprefix("-"))
    return None if value is None else -value if text.startswith("-") else value
