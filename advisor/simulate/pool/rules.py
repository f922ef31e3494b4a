"""How a site's slurmctld backfills, read from its slurm.conf (`advisor rehearse --slurm-conf`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

_ALL: Final = 1 << 40
_WINDOW_SECONDS: Final = 30.0  # compiled into Slurm


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Slurm's rules for jobs that take whole nodes: reservations are sets of nodes.

    Attributes:
        cycle_seconds: Period of backfilling, for the jobs behind the head; 0: whenever a job comes or ends.
        reservations: So many waiting jobs get a reservation that no later job may delay.
        depth: Waiting jobs that a cycle considers at most.
        horizon_seconds: A job that would start later than this from now gets no reservation.
        window_seconds: Planned ends of running jobs that lie this near count as one, at the last of them;
            each later window is twice as long. 0: every end counts.
        widening_seconds: Each later window is longer by this instead, unless it is 0.
    """

    cycle_seconds: float = 30.0
    reservations: int = _ALL
    depth: int = 500
    horizon_seconds: float = 86_400.0
    window_seconds: float = _WINDOW_SECONDS
    widening_seconds: float = 0.0

    @classmethod
    def of_slurm(cls, scheduler_parameters: str, scheduler_type: str = "") -> Self:
        """The rules that ``SchedulerParameters`` of slurm.conf set; Slurm's defaults for what it leaves out.

        Jobs at the head start in Slurm's main scheduler, at each submission and end. The backfill scheduler
        plans all jobs anew each ``bf_interval`` seconds, and reserves for all of them that would start within
        ``bf_window`` minutes, unless ``bf_job_part_count_reserve`` says for how many (man page slurm.conf).
        ``SchedulerType`` sched/builtin and ``bf_interval=-1`` do not backfill.
        """
        pairs = (word.partition("=") for word in scheduler_parameters.split(","))
        said = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if scheduler_type.strip().lower() == "sched/builtin" or said.get("bf_interval") == "-1":
            return cls(depth=0)

        def number(name: str, default: int) -> int:
            """What is out of range counts as not said, as in Slurm."""
            return int(said[name]) or default if said.get(name, "").isdecimal() else default

        return cls(
            cycle_seconds=float(number("bf_interval", 30)),
            reservations=number("bf_job_part_count_reserve", 0) or _ALL,
            depth=number("bf_max_job_test", 500),
            horizon_seconds=60.0 * number("bf_window", 1440),
            widening_seconds=float(number("bf_window_linear", 0)),
        )
