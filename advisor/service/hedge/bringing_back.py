"""Bring a job back to its place on-premise: requeue, move, give it its place, end its placeholder.

Every step looks at Slurm first and does what is missing, so that it goes on from wherever a crash, of this
process or of slurmctld, has left it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import structlog

from advisor.model.settings import Settings
from advisor.service.hedge.place_keeper import PlaceKeeper
from advisor.service.observation.advice_of_jobs import changes_home
from advisor.service.observation.placeholders import was_changed
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import for_each
from advisor.service.state.hedge_entries import HedgeRecord, Kept, Phase
from advisor.slurm.protocol import PENDING, RUNNING, JobView, SlurmBackend, SlurmSnapshot

log = structlog.get_logger(__name__)

_TOP_FACTOR: Final = 1_000_000_000
_TOP_PRIORITY: Final = 4_294_960_000  # priority/basic counts down from 4,294,901,760
"""For the fraction of a second between the placeholder's end and the job's start in its slot."""
_LOOKS: Final = 10  # then whoever else's turn has come is seen to
_PAUSE_SECONDS: Final = 0.1
_MIN_SLOT_SECONDS: Final = 60.0  # its processes may take KillWait to end
_QUICK_SECONDS: Final = 5.0
"""A job starts in its slot sooner, or something is in its way: then one look a round is enough."""
_STEPS: Final = 6
"""More than a job has from the cloud to its place."""


def view_of(places: PlaceKeeper, kept: Kept) -> JobView | None:
    """A kept job as it is now, also one that only our requeue has ended (see `PlaceKeeper.killed`)."""
    view = places.view(kept.job_id)
    if view is None and kept.is_requeued and kept.phase is Phase.RETURNING:
        return places.killed(kept.job_id)
    return view


def _only_waits(kept: Kept, states: Mapping[int, str]) -> bool:
    """Whether a job waits behind its placeholder, its age given back, and neither has moved."""
    return kept.in_place and states.get(kept.job_id) == states.get(kept.placeholder) == PENDING


class BringingBack:
    """Moves jobs whose return is decided and written down.

    Parameters
    ----------
    settings : Settings
        In force.
    slurm : SlurmBackend
        Requeues and changes jobs.
    places : PlaceKeeper
        Placeholders.
    record : HedgeRecord
        How far each job is.
    clock : Clock
        Time.
    pause : callable
        Sleeps: a requeued job needs a moment until it waits again.
    between : callable
        What may not wait until all have been seen to; called after each.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        places: PlaceKeeper,
        record: HedgeRecord,
        clock: Clock,
        pause: Callable[[float], None],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self._burst = settings.cluster.burst_partition
        self._slot_held_seconds = max(settings.hedge.slot_held_seconds, _MIN_SLOT_SECONDS)
        self._slurm = slurm
        self._places = places
        self._record = record
        self._clock = clock
        self._pause = pause
        self._between = between

    def go_on(self, snapshot: SlurmSnapshot) -> None:
        """Do what is missing for every job that is to come back, as far as it can be done now.

        All go on together: while one ends in the cloud, the slots of the others must not idle. A job that
        waits here behind its placeholder needs nothing until a look shows that either has moved.
        """
        states = {queued.job.job_id: queued.state for queued in snapshot.jobs}
        for _ in range(_LOOKS):
            waiting: list[int] = []

            def advance(kept: Kept, waiting: list[int] = waiting) -> None:
                if self._advance(kept):
                    waiting.append(kept.job_id)
                self._between()

            returning = [kept for kept in self._record.all() if kept.phase is Phase.RETURNING]
            for_each([kept for kept in returning if not _only_waits(kept, states)], advance)
            if not waiting:
                return
            self._pause(_PAUSE_SECONDS)
            self._between()

    def _advance(self, kept: Kept) -> bool:
        """Take one job as far as it goes without waiting; True: look again in a moment."""
        for _ in range(_STEPS):
            view = view_of(self._places, kept)
            if view is None or view.advice_id != kept.advice_id:
                return False  # ended or cancelled: the watch loop's `forget` takes the place away
            if view.partition == self._burst:
                waiting = self._leave_cloud(kept, view)
            elif view.is_pending:
                return self._take_place(kept, view)
            elif view.state in (RUNNING, "CONFIGURING"):
                self._arrived(kept)
                return False
            else:
                waiting = True
            kept = next((k for k in self._record.all() if k.job_id == kept.job_id), kept)
            if waiting or kept.phase is not Phase.RETURNING:
                return waiting
        return True

    def _leave_cloud(self, kept: Kept, view: JobView) -> bool:
        """Requeue it, once; when it waits again, move it. True: look again in a moment."""
        if view.is_pending:
            self._move(kept)
            return False
        if view.state == "COMPLETING":
            return True
        if view.restarts > kept.restarts:
            # it was requeued and has started in the cloud again before it could be moved: never a second time
            self._record.count("restarted_in_cloud")
            self._record.put(kept, phase=Phase.SETTLED, why="it started in the cloud again")
            log.warning("hedge.restarted_in_cloud", job=kept.job_id)
            return False
        if view.state == "CONFIGURING" and not self._places.may_requeue_booting:
            return True
        if not kept.is_requeued:
            self._record.put(kept, is_requeued=True)
        self._slurm.requeue([kept.job_id])
        log.info("hedge.requeued", job=kept.job_id, why=kept.why)
        return True

    def _move(self, kept: Kept) -> None:
        changes = changes_home(kept.partition, kept.limit_seconds, kept.features)
        self._slurm.update_job([kept.job_id], {**changes, "starttime": "now"})

    def _take_place(self, kept: Kept, view: JobView) -> bool:
        """Give the waiting job its placeholder's place, or slot."""
        if view.reason == "BeginTime":
            self._slurm.update_job([kept.job_id], {"starttime": "now"})
        place = self._places.place(kept.placeholder, kept.job_id) if kept.placeholder else None
        if place is None and kept.has_slot:  # its slot is free, and it is first in the queue
            return self._wait_for_start(kept, view)
        if place is None:  # somebody has cancelled it: the job's age is all that is left of its place
            self._age_anew(kept, view)
            self._done(kept, "without a placeholder")
            return False
        if place.state == "COMPLETING":
            return True
        if was_changed(kept, place) and not kept.has_slot:  # its user would be first with any job he likes
            self._places.cancel(kept.placeholder, kept.job_id)
            self._age_anew(kept, view)
            self._record.count("places_changed")
            self._done(kept, "without its place, which was changed")
            return False
        if not place.is_pending:
            acted = kept.acted if kept.has_slot else self._clock.wall()
            self._record.put(kept, has_slot=True, acted=acted)
            self._places.raise_priority(kept.job_id, by=_TOP_FACTOR, to=_TOP_PRIORITY)
            self._places.cancel(kept.placeholder, kept.job_id)
            return True
        self._wait_behind(kept, view)
        return False

    def _wait_for_start(self, kept: Kept, view: JobView) -> bool:
        """First in the queue for a moment, not for ever: it may be held, or kept waiting by a limit."""
        since = self._clock.wall() - kept.acted
        is_held = view.reason.startswith("JobHeld")
        if not is_held and since <= self._slot_held_seconds:
            return since <= _QUICK_SECONDS
        # a priority set by hand would release a job that is held
        priority = kept.priority if kept.priority > 0 and not is_held else None
        self._age_anew(kept, view, to=priority)
        self._record.count("slots_lost")
        self._done(kept, "without its slot, which it did not take")
        return False

    def _wait_behind(self, kept: Kept, view: JobView) -> None:
        """Leave the placeholder where it is until it starts: no priority of ours would be its place.

        A requeue takes the job's age. It is given back as soon as slurmctld reckons ages anew, for whatever
        may become of the placeholder: until then all priorities are of its last reckoning, minutes ago, and
        any age would put the job before everybody who came since.
        """
        now, period = self._clock.wall(), self._places.recalculation_seconds
        if not kept.is_raised:
            self._record.put(kept, is_raised=True, priority=view.priority, acted=now)
        elif view.priority != kept.priority or now - kept.acted >= 2.0 * period:
            self._age_anew(kept, view)
            self._record.put(kept, in_place=True, acted=now)

    def _age_anew(self, kept: Kept, view: JobView, to: int | None = None) -> None:
        age = self._places.age_points(view.ages_since - kept.submitted)
        self._places.raise_priority(kept.job_id, by=kept.site_factor + age, to=to)

    def _arrived(self, kept: Kept) -> None:
        """It runs here: nobody may profit from its priority any more."""
        if kept.placeholder:
            self._places.cancel(kept.placeholder, kept.job_id)
        self._places.raise_priority(kept.job_id, by=kept.site_factor, to=None)
        self._done(kept, "in its slot")

    def _done(self, kept: Kept, how: str) -> None:
        self._record.put(kept, phase=Phase.SETTLED, acted=self._clock.wall())
        log.info("hedge.is_back", job=kept.job_id, how=how, why=kept.why)
