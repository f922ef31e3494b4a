"""Ambati et al. 2021 in a closed loop: short jobs never wait, all others wait at most b.

The functions are those of the submit server (`advisor.decide.submission.waiting_policy`). A job that cannot
start at once is tried out: it runs for t in the cloud, and returns to its place in the queue if it has not
ended by then (speculation, section 3.1). In the queue it leaves for the cloud when it would likely wait
longer than b (section 3.2), or has. Every start needs tokens; without them the job waits.
"""

from __future__ import annotations

from typing import Final

from advisor.decide.submission.waiting import in_time_chance, short_chance_of
from advisor.decide.submission.waiting_policy import LEAVES, SPECULATES, by_length, by_wait
from advisor.predict.forecast.distribution import ForestSettings
from advisor.predict.forecast.rolling import ForecastOptions
from advisor.replay.closed_loop.forests import LoopForests
from advisor.replay.closed_loop.world import Policy, World

SHORT_SECONDS: Final = 900.0
"""t."""
LONGEST_WAIT_SECONDS: Final = 86_400.0
"""b."""
ASK_AGAIN_SECONDS: Final = 7_200.0
_FORESTS: Final = ForecastOptions(retrain_jobs=1_000, forest=ForestSettings(trees=5))
_NOW: Final = 1.0  # seconds; a job that is forecast to wait less starts at once


class Ambati2021(Policy):
    """Long jobs wait, and short waits wait, with speculation.

    Args:
        short_seconds, longest_wait_seconds: t and b.
    """

    name = "ambati2021"

    def __init__(
        self, short_seconds: float = SHORT_SECONDS, longest_wait_seconds: float = LONGEST_WAIT_SECONDS
    ) -> None:
        self._short = short_seconds
        self._longest_wait = longest_wait_seconds
        self._forests: LoopForests
        self._next: float

    def begin(self, world: World) -> None:
        """Grow the forests on the log's rows before the first job."""
        self._forests = LoopForests(world, _FORESTS)
        self._next = world.now

    def submitted(self, world: World, row: int) -> None:
        """Try the job out in the cloud, if it cannot start at once."""
        estimates = self._forests.submitted(row, world.now)
        if world.forecast(world.jobs.limit)[row] - world.now <= _NOW:
            return
        trial = min(self._short / world.options.slowdown, float(world.jobs.limit[row]))
        chance = 0.5 if estimates is None else short_chance_of(estimates.run, trial)
        tries = by_length(chance, True, 0.0) == SPECULATES and world.may_be_stopped(row)
        if tries and self._start(world, row, trial):
            return
        self._by_wait(world, row)

    def round(self, world: World) -> None:
        """Send away who has waited b; now and then ask again who would."""
        is_due = world.now >= self._next
        if is_due:
            self._next = world.now + ASK_AGAIN_SECONDS
        for row in world.pool.waiting.tolist():
            if is_due or world.now - world.jobs.submit[row] >= self._longest_wait:
                self._by_wait(world, row)

    def slice_ended(self, world: World, row: int, elapsed: float) -> None:  # noqa: ARG002
        """The trial was too short: the job returns to its place."""
        self._forests.came_back(row)

    def started(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._forests.started(row, world.now)

    def ended(self, world: World, row: int) -> None:
        """See :class:`~advisor.replay.closed_loop.world.Policy`."""
        self._forests.ended(row, world.now)

    def _by_wait(self, world: World, row: int) -> None:
        waited = world.now - float(world.jobs.submit[row])
        left = self._longest_wait - waited
        in_time = 1.0
        if left > 0.0 and (estimates := self._forests.asked_again(row, world.now)) is not None:
            in_time = in_time_chance(estimates.wait, left)
        if by_wait(waited, self._longest_wait, in_time) == LEAVES:
            self._start(world, row, float(world.jobs.limit[row]))

    def _start(self, world: World, row: int, stop: float) -> bool:
        if not world.start_in_cloud(row, stop, keeps_place=False):
            return False
        self._forests.left(row)
        return True
