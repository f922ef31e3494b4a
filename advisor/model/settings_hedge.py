"""Settings of the hedged start: a job starts in the cloud and keeps its place in the on-premise queue."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from advisor.model.settings_section import Dollars, Section, setting


class HedgeSettings(Section):
    """The hedged start: a job starts in the cloud and keeps its place on-premise (docs/designs/0013)."""

    enabled: bool = setting(
        False,
        "Whether any job may start hedged. It needs `advisor-places.socket`, through which placeholders are "
        "submitted for users.",
        why="It requeues jobs and runs a small helper as root; the site should decide for both.",
        expert=True,
    )
    by_default: bool = setting(
        False,
        "Hedge every job that may be requeued and does not refuse it by `opt_out_comment`.",
        why="Users should ask for it, or the site choose partitions, before all jobs may be requeued.",
        expert=True,
    )
    partitions: tuple[str, ...] = setting(
        (),
        "Partitions in which every job that may be requeued and does not refuse is hedged.",
        why="The list is empty because only the site knows whose jobs can be restarted.",
        expert=True,
    )
    opt_in_comment: str = setting(
        "hedge",
        "A job whose `--comment` contains this word asks to be hedged.",
        why="docs/users.md tells users about this word.",
        expert=True,
    )
    opt_out_comment: str = setting(
        "no-hedge",
        "A job whose `--comment` contains this word is never hedged.",
        why="docs/users.md tells users about this word.",
        expert=True,
    )
    stop_loss_core_hours: float = setting(
        64.0,
        "The most that one hedged job may use in the cloud before its turn on-premise comes; then it is "
        "requeued.",
        why="It is 16 hours of one c5.xlarge, less than 3 USD on-demand. A smaller stop-loss ends hedges "
        "that would have finished, a larger one makes each wrong guess dearer.",
        unit="core-h",
        gt=0.0,
        expert=True,
    )
    stop_loss_usd: Dollars = setting(
        0.0,
        "The same limit in money; 0 leaves it to the core hours.",
        why="Core hours need no price list.",
        unit="USD",
        expert=True,
    )
    budget_core_hours: float = setting(
        0.0,
        "The most that all hedges together may use in the cloud per `budget_period`. It is never exceeded. "
        "0 means no such budget; if there is none in money either, only the stop-loss limits each job.",
        why="Only the site knows its budget.",
        unit="core-h",
        ge=0.0,
        expert=True,
    )
    budget_usd: Dollars = setting(
        0.0,
        "The same budget in money, at the on-demand price of whole nodes; 0 leaves it to the core hours.",
        why="Only the site knows its budget.",
        unit="USD",
        expert=True,
    )
    budget_period: Literal["day", "month"] = setting(
        "month",
        "The period of the budget, by the calendar of UTC.",
        why="AWS bills by the month of UTC.",
        expert=True,
    )
    slot_held_seconds: float = setting(
        180.0,
        "The longest time for which an on-premise slot is held while its job is brought back. Then the slot "
        "is given up.",
        why="A requeue takes seconds, or KillWait for a job that ignores SIGTERM; three minutes cover a "
        "restart of `advisor control`, too. The slot is idle meanwhile.",
        unit="s",
        ge=10.0,
        le=3600.0,
        expert=True,
    )
    helper_socket: Path = setting(
        Path("/run/advisor-places.sock"),
        "The socket of the helper that submits placeholders as root.",
        why="The unit `advisor-places.socket` opens it there.",
        expert=True,
    )

    @property
    def has_budget(self) -> bool:
        """Whether what hedges use is limited in all."""
        return self.budget_core_hours > 0.0 or self.budget_usd > 0.0

    def budget_core_seconds(self, usd_per_core_hour: float) -> float:
        """The budget of a period, at a price."""
        hours = self.budget_core_hours or math.inf
        if self.budget_usd and usd_per_core_hour > 0.0:
            hours = min(hours, self.budget_usd / usd_per_core_hour)
        return 3600.0 * hours
