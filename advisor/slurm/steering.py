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

RESERVATION: Final = "advisor_portfolio"
_OWNER: Final = "root"
_PAIR: Final = re.compile(r"([A-Za-z]+)=(\S*)")


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

    def priorities(self) -> Mapping[int, Priority]:
        """Of all waiting jobs by id; an array's waiting tasks share one."""
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
        self._is_multifactor: bool | None = None

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
        if self._is_multifactor is None:
            values = parsing.config(self._commands.text("scontrol", "show", "config"))
            self._is_multifactor = values.get("PriorityType") == "priority/multifactor"
        return self._is_multifactor

    def priorities(self) -> Mapping[int, Priority]:
        """See :class:`BurstSteering`."""
        found: dict[int, Priority] = {}
        for line in self._commands.text("sprio", "--noheader", "--format=%i|%Y|%S").splitlines():
            match [part.strip() for part in line.split("|")]:
                case [job_id, total, site] if records.whole(job_id) is not None:
                    numbers = records.whole(total), _signed(site)
                    if numbers[0] is not None and numbers[1] is not None:
                        # of several partitions of a job the first line counts: such jobs are left alone
                        found.setdefault(int(job_id), Priority(total=numbers[0], site_factor=numbers[1]))
        return found

    def set_site_factor(self, job_ids: Collection[int], value: int) -> None:
        """See :class:`BurstSteering`."""
        ids = ",".join(f"{job_id:d}" for job_id in job_ids)
        try:
            self._commands.text("scontrol", "update", f"jobid={ids}", f"sitefactor={value:d}")
        except RetryLater as error:
            # scontrol goes on with the other jobs of the list
            if "already finished" not in str(error) and "Invalid job id" not in str(error):
                raise


def _signed(text: str) -> int | None:
    value = records.whole(text.removeprefix("-"))
    return None if value is None else -value if text.startswith("-") else value
