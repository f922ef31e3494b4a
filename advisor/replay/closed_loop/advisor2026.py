"""The placement rule of release 2026 in a closed loop, as `advise` decides with its default settings.

Forecasts are those of the distribution forests. The record, the stakes and what moves may lose are kept as
`advisor.service.learn.placement_record` keeps them: a job that stayed adds what the cloud would have saved
it, a job that moved only what it has lost (docs/designs/0009-placement-rule.md). A job moves if the tokens
cover its time limit.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from advisor.decide.submission.advise import advise
from advisor.decide.submission.placement import PlacementCase
from advisor.decide.submission.proven import candidate_chance, worst_seconds
from advisor.decide.submission.proven_rows import case_of, earned_by_candidates
from advisor.decide.submission.record import RecordKeeper, could_have_saved
from advisor.decide.submission.table_row import job_of
from advisor.model.advice import Placement
from advisor.model.estimate import Estimates
from advisor.model.settings import ClusterSettings, PlacementSettings, Settings
from advisor.model.site import SiteState, TrackRecord
from advisor.predict.forecast.rolling import ForecastOptions
from advisor.predict.knn.tracker import ClusterTracker
from advisor.replay.closed_loop.cunha2017 import settings_of
from advisor.replay.closed_loop.forests import LoopForests
from advisor.replay.closed_loop.world import Policy, World

_NO_ESTIMATES: Final = Estimates()


class Advisor2026(Policy):
    """The default rule of release 2026: likely gains, and stakes that a record has earned.

    Args:
        options: How forests are grown.
    """

    name = "advisor2026"

    def __init__(self, options: ForecastOptions | None = None) -> None:
        self._options = options or ForecastOptions()
        self._settings: Settings
        self._forests: LoopForests
        self._tracker: ClusterTracker
        self._ledger: _Ledger

    def begin(self, world: World) -> None:
        """Grow the forests on the log's rows before the first job, and earn their record."""
        placement = settings_of(world.options, rule="advisor")
        self._settings = Settings(placement=placement, cluster=ClusterSettings(policy="advisor"))
        self._tracker = ClusterTracker(world.jobs.machine)
        self._forests = LoopForests(world, self._options, with_past=True)
        self._ledger = _Ledger(placement)
        past = self._forests.past_forecasts
        if past is not None:
            earned = earned_by_candidates(self._forests.past, past, placement)
            self._ledger.keeper.add(earned.record)

    def submitted(self, world: World, row: int) -> None:
        """Ask `advise`, once."""
        jobs, now = world.jobs, world.now
        job = job_of(jobs.table, jobs.first + row)
        estimates = self._forests.submitted(row, now)
        state = SiteState(time=now, cluster=self._tracker.state(now), record=self._ledger.record)
        if estimates is not None:
            case = case_of(job, estimates, self._settings.placement)
            self._ledger.submitted(row, case)
        advice = advise(job, state, estimates or _NO_ESTIMATES, self._settings, advice_id="rehearsal")
        moves = estimates is not None and advice.placement is Placement.BURST
        if moves and world.start_in_cloud(row, float(jobs.limit[row]), keeps_place=False):
            self._forests.left(row)
            self._ledger.moved(row)
            return
        self._tracker.submit(row, processors=job.processors, requested_time=job.requested_time, time=now)

    def started(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._tracker.start(row, world.now)
        self._forests.started(row, world.now)

    def ended(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._tracker.finish(row, world.now)
        self._forests.ended(row, world.now)
        turnaround = world.now - float(world.jobs.submit[row])
        self._ledger.ended(row, turnaround, float(world.jobs.run[row]))


class _Ledger:
    """The record of a live site: what candidates have earned, and what moved jobs have lost."""

    def __init__(self, placement: PlacementSettings) -> None:
        self._placement = placement
        self.keeper = RecordKeeper(placement.win_probability)
        self._of_moved = RecordKeeper(placement.win_probability)
        self._open: dict[int, tuple[PlacementCase, float | None]] = {}
        self._at_risk: dict[int, float] = {}

    @property
    def record(self) -> TrackRecord:
        """As of now."""
        record = self.keeper.record
        known = math.fsum(band.saved_seconds for band in self._of_moved.record.bands)
        return TrackRecord(
            bands=record.bands,
            at_risk_seconds=math.fsum(self._at_risk.values()),
            may_lose_seconds=self._placement.loss_share * could_have_saved(record) + known,
        )

    def submitted(self, row: int, case: PlacementCase) -> None:
        """A job with a forecast."""
        self._open[row] = case, candidate_chance(case)

    def moved(self, row: int) -> None:
        """It went to the cloud, and may lose so much at worst."""
        self._at_risk[row] = worst_seconds(self._open[row][0])

    def ended(self, row: int, turnaround: float, run: float) -> None:
        """What it would have saved, or has lost; both in seconds on-premise."""
        case, chance = self._open.pop(row, (None, None))
        if case is None:
            return
        if self._at_risk.pop(row, None) is None:
            if chance is not None:
                self.keeper.ended(row, turnaround - run - case.penalty_seconds(run), chance)
            return
        saved = case.wait.seconds + run - turnaround
        if saved < 0.0 and np.isfinite(saved):
            for keeper in (self.keeper, self._of_moved):
                keeper.ended(row, saved, chance)
