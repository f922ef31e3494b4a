"""What hedges may use in a day or month, live: reserved before they start, settled when they have ended.

Hedges are known by the ids of their advice. Each snapshot of Slurm shows which hedges are in the cloud and
what they have used. `advisor serve` learns what is left and promises no more. A hedge that started although
its worst case was not left (a restart forgot its promise) is brought back. What is reserved and used is on
disk before `advisor serve` learns what is left.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Final

import structlog

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.hedge.hedge_budget import ENDING_SECONDS, Budget, period_end, period_of
from advisor.decide.hedge.hedge_offer import worst_core_seconds
from advisor.decide.submission.capacity import boot_seconds, cores_billed, usd_per_core_hour
from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity, Hedge, HedgeKind
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.service.state.records import HedgesUsed
from advisor.slurm.protocol import CONFIGURING, RUNNING, QueuedJob, SlurmSnapshot

log = structlog.get_logger(__name__)

_MORE_SECONDS: Final = 600.0
"""How much longer a hedge may go on for each time that it reserves more."""


class HedgeBudget:
    """Keeps the budget. Safe to be used by several threads.

    Args:
        settings: Give the budget and its period.
        state: Keeps the budget when the process ends.
    """

    def __init__(self, settings: Settings, state: StateFile[HedgesUsed]) -> None:
        self._settings = settings
        self._state = state
        self._lock = threading.Lock()
        self._budget = Budget(0.0)
        self._cores: dict[str, float] = {}
        self._used: dict[str, float] = {}
        # the period, the times of the last and the present snapshot, the period's highest USD per core-hour
        self._period, self._looked, self._now, self._dearest = "", 0.0, 0.0, 0.0
        self._is_saved = True
        # whether what was used is unknown, and in which period; empty: the period is not known yet
        self._is_lost, self._lost_in = False, ""
        if self.is_set:
            self._take_up()

    @property
    def is_set(self) -> bool:
        """Whether there is a budget."""
        return self._settings.hedge.has_budget

    @property
    def left_core_seconds(self) -> float | None:
        """Core-seconds neither used nor reserved; None without a budget. 0 while it cannot be saved."""
        if not self.is_set:
            return None
        with self._lock:
            return max(0.0, self._budget.left) if self._is_saved else 0.0

    @property
    def unspent(self) -> tuple[float, float]:
        """Core-seconds not used in this period, and seconds until it ends."""
        with self._lock:
            return self._budget.unspent, period_end(self._period) - self._now if self._period else math.inf

    def report(self) -> Mapping[str, float]:
        """What `advisor status` shows, core-hours."""
        if not self.is_set:
            return {}
        with self._lock:
            budget = self._budget
            return {
                "core_hours": budget.core_seconds / 3600.0,
                "used_core_hours": budget.spent / 3600.0,
                "left_core_hours": max(0.0, budget.left) / 3600.0,
            }

    def saw(self, snapshot: SlurmSnapshot, cloud: CloudState) -> None:
        """Take in a snapshot: what hedges have used, which have ended, which are new."""
        if not self.is_set:
            return
        with self._lock:
            self._begin_period(snapshot.time, cloud)
            seen = set[str]()
            for queued in snapshot.jobs:
                if (found := self._hedged(queued)) is not None:
                    seen.add(found[0])
                    self._follow(*found, queued, cloud)
            for key in {*map(str, self._budget.keys()), *self._cores} - seen:
                self._budget.settle(key)
                self._cores.pop(key, None)
                self._used.pop(key, None)
            self._looked = snapshot.time
            self._save()

    def may_go_on(self, advice_id: str) -> bool:
        """Whether a hedge may use the cloud until the next round.

        It may until a snapshot has shown it. From then on it may if what it needs is, or can be, reserved.
        """
        if not self.is_set:
            return True
        with self._lock:
            if advice_id not in self._cores:  # no snapshot has shown it yet
                return True
            soon = self._used[advice_id] + self._cores[advice_id] * ENDING_SECONDS
            if soon <= self._budget.reserved(advice_id):
                return True
            return self._reserve(advice_id, soon + self._cores[advice_id] * _MORE_SECONDS)

    def may_stay(self, advice_id: str, seconds: float | None) -> bool:
        """Whether a hedge may run to its end in the cloud, for ``seconds`` more at most.

        A hedge without a time limit (None) may not: no budget holds its worst case.
        """
        if not self.is_set:
            return True
        with self._lock:
            if seconds is None or advice_id not in self._cores:
                return False
            return self._reserve(
                advice_id, self._used[advice_id] + self._cores[advice_id] * (seconds + ENDING_SECONDS)
            )

    def _reserve(self, key: str, core_seconds: float) -> bool:
        if not self._budget.reserve(key, core_seconds):
            return False
        self._save()
        return self._is_saved

    def _follow(self, key: str, hedge: Hedge, queued: QueuedJob, cloud: CloudState) -> None:
        cores = float(cores_billed(queued.job, cloud))
        self._cores[key] = max(cores, self._cores.get(key, 0.0))
        used = self._used.get(key, 0.0)
        # a job uses cores while its node boots, too; Slurm sets its start time anew when the node is up
        if queued.state in (RUNNING, CONFIGURING) and queued.start_time is not None:
            used += self._cores[key] * max(0.0, self._now - max(self._looked, queued.start_time))
        self._used[key] = used
        self._budget.use(key, used)
        worst = worst_core_seconds(hedge, queued.job, cloud, boot_seconds(cloud, self._settings))
        if not self._budget.reserved(key) and not self._budget.reserve(key, worst):
            log.warning("hedge.no_budget", job=queued.job.job_id, core_hours=worst / 3600.0)

    def _hedged(self, queued: QueuedJob) -> tuple[str, Hedge] | None:
        if self._settings.cluster.burst_partition not in queued.partitions:
            return None
        advice = parse_admin_comment(queued.admin_comment)
        if advice is None or advice.hedge is None or advice.hedge.kind is not HedgeKind.HEDGE:
            return None
        return advice.advice_id, advice.hedge

    def _begin_period(self, now: float, cloud: CloudState) -> None:
        hedge = self._settings.hedge
        period = period_of(now, hedge.budget_period)
        self._now = now
        price = usd_per_core_hour(Capacity.ON_DEMAND, cloud, self._settings)
        is_new = period != self._period
        # a budget in USD buys core-hours at the highest price of the period so far
        self._dearest = price if is_new else max(self._dearest, price)
        core_seconds = hedge.budget_core_seconds(self._dearest)
        if is_new:
            self._period = period
            self._budget.begin(core_seconds)
        self._is_lost &= self._lost_in in ("", period)
        self._lost_in = period if self._is_lost else ""
        self._budget.core_seconds = 0.0 if self._is_lost else core_seconds

    def _save(self) -> None:
        try:
            self._state.write(
                HedgesUsed(
                    period=self._period,
                    lost_in=self._lost_in,
                    looked=self._looked,
                    dearest=self._dearest,
                    cores=self._cores,
                    used=self._used,
                    spent=self._budget.spent,
                    hedges=self._budget.hedges(),
                )
            )
            self._is_saved = True
        except OSError as error:
            if self._is_saved:
                log.warning("hedge.budget_not_saved", file=str(self._state.path), error=error.strerror)
            self._is_saved = False

    def _take_up(self) -> None:
        try:
            content = self._state.load()
            if content is None:
                return
            self._period, self._lost_in = content.period, content.lost_in
            self._is_lost = bool(self._lost_in)
            self._looked, self._dearest = content.looked, content.dearest
            self._budget.take_up(content.spent, content.hedges)
            self._cores = content.cores
            self._used = {key: content.used[key] for key in self._cores}
            period_end(self._period)
        except (AdvisorError, KeyError, ValueError) as error:
            # what was used is not known: nothing is left until the period ends
            self._state.set_aside(f"{type(error).__name__}: {error}")
            self._is_lost = True
            self._period, self._lost_in, self._budget = "", "", Budget(0.0)
            self._cores, self._used = {}, {}
            self._save()  # without a period, so that the next start does not take it for a first one
