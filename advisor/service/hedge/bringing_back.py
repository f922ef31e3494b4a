"""Bring a job back on-premise: requeue and move it, give it the placeholder's slot, cancel the placeholder.

The watch loop does so at the placeholder's start, or at the job's stop.

Each step asks Slurm for the job's state first and does what is missing. So a return continues after a crash
of this process or of slurmctld at any point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import structlog

from advisor.model.errors import AdvisorError
from advisor.model.snapshot import CONFIGURING, PENDING, RUNNING, ClusterSnapshot, JobView
from advisor.service.hedge.watch_context import WatchContext
from advisor.service.observation.advice_of_jobs import changes_home
from advisor.service.observation.placeholders import was_changed
from advisor.service.running.isolating import for_each
from advisor.service.state.hedge_entries import HedgeEntry, Phase
from advisor.slurm.placeholders import Placeholders

log = structlog.get_logger(__name__)

_TOP_FACTOR: Final = 1_000_000_000
_TOP_PRIORITY: Final = 4_294_960_000  # priority/basic counts down from 4,294,901,760
"""Priority for the fraction of a second between the placeholder's end and the job's start in its slot."""
_MAX_POLLS: Final = 10  # a round: then other jobs' slots are looked after
_PAUSE_SECONDS: Final = 0.1
_MIN_SLOT_SECONDS: Final = 60.0  # the job's processes may take KillWait to end
_QUICK_SECONDS: Final = 5.0
"""A job that has not started in its slot by then is hindered: it is polled once a round."""
_MAX_STEPS: Final = 6
"""More than the steps that a return has."""


def view_of(places: Placeholders, entry: HedgeEntry) -> JobView | None:
    """A hedged job as it is now, also after the advisor's own requeue (`Placeholders.killed`)."""
    view = places.view(entry.job_id)
    if view is None and entry.is_requeued and entry.phase is Phase.RETURNING:
        return places.killed(entry.job_id)
    return view


def _only_waits(entry: HedgeEntry, states: Mapping[int, str]) -> bool:
    """Whether a job waits behind its placeholder with its age restored, and both are still pending."""
    return entry.only_waits and states.get(entry.job_id) == states.get(entry.placeholder) == PENDING


def _was_requeued(entry: HedgeEntry, view: JobView) -> bool:
    """Whether a begin time is that of a requeue; else it is the user's."""
    return entry.is_requeued or view.restarts > 0


class BringingBack:
    """Brings back the jobs whose return is decided and on disk.

    Args:
        pause: Sleeps for some seconds: a requeued job needs a moment until it is pending again.
        between: Urgent work; called after each job.
    """

    def __init__(
        self, context: WatchContext, *, pause: Callable[[float], None], between: Callable[[], None]
    ) -> None:
        settings = context.settings
        self._burst = settings.cluster.burst_partition
        self._slot_held_seconds = max(settings.hedge.slot_held_seconds, _MIN_SLOT_SECONDS)
        self._slurm, self._places = context.slurm, context.places
        self._record, self._clock = context.record, context.clock
        self._pause = pause
        self._between = between

    def go_on(self, snapshot: ClusterSnapshot) -> None:
        """Take every returning job as far as it can go now.

        All jobs take turns: while one ends in the cloud, the slots of the others must not idle. A job that
        waits behind its placeholder needs nothing until a snapshot shows that one of the two has started.
        """
        states = {queued.job.job_id: queued.state for queued in snapshot.jobs}
        going = {entry.job_id for entry in self._returning() if not _only_waits(entry, states)}
        failed: AdvisorError | None = None
        for _ in range(_MAX_POLLS):
            waiting = set[int]()

            def advance(entry: HedgeEntry, waiting: set[int] = waiting) -> None:
                if self._advance(entry):
                    waiting.add(entry.job_id)
                self._between()

            try:
                for_each([entry for entry in self._returning() if entry.job_id in going], advance)
            except AdvisorError as error:  # of one job: the slots of the others must not idle
                failed = error
            if not waiting:
                break
            going = waiting
            self._pause(_PAUSE_SECONDS)
            self._between()
        if failed is not None:
            raise failed

    def _returning(self) -> list[HedgeEntry]:
        return [entry for entry in self._record.all() if entry.phase is Phase.RETURNING]

    def _advance(self, entry: HedgeEntry) -> bool:
        """Take one job as far as it goes without waiting; True: poll it again in a moment."""
        for _ in range(_MAX_STEPS):
            view = view_of(self._places, entry)
            if view is None or view.advice_id != entry.advice_id:
                return False  # it has ended: the watch loop's `forget` cancels the placeholder
            if view.partition == self._burst:
                waiting = self._leave_cloud(entry, view)
            elif view.is_pending:
                return self._take_place(entry, view)
            elif view.state in (RUNNING, CONFIGURING):
                self._arrived(entry)
                return False
            else:
                waiting = True
            entry = next((k for k in self._record.all() if k.job_id == entry.job_id), entry)
            if waiting or entry.phase is not Phase.RETURNING:
                return waiting
        return True

    def _leave_cloud(self, entry: HedgeEntry, view: JobView) -> bool:
        """Requeue the job, once; when it is pending again, move it. True: poll it again in a moment."""
        if view.is_pending:
            self._move(entry, view)
            return False
        if view.state not in {RUNNING, CONFIGURING, "FAILED"}:  # suspended, or not known: nothing is done
            return view.state == "COMPLETING"
        if view.restarts > entry.restarts:
            # it was requeued and has started in the cloud again before the move: it is not requeued twice
            self._record.count("restarted_in_cloud")
            self._record.put(entry, phase=Phase.SETTLED, why="it started in the cloud again")
            log.warning("hedge.restarted_in_cloud", job=entry.job_id)
            return False
        if view.state == CONFIGURING and not self._places.may_requeue_booting:
            return True
        if not entry.is_requeued:
            self._record.put(entry, is_requeued=True)
        if view.state == "FAILED":  # see `view_of`
            self._slurm.requeue_ended([entry.job_id])
        else:
            self._slurm.requeue([entry.job_id])
        log.info("hedge.requeued", job=entry.job_id, why=entry.why)
        return True

    def _move(self, entry: HedgeEntry, view: JobView) -> None:
        changes = changes_home(entry.partition, entry.limit_seconds, entry.features)
        begin = {"starttime": "now"} if _was_requeued(entry, view) else {}
        self._slurm.update_job([entry.job_id], {**changes, **begin})

    def _take_place(self, entry: HedgeEntry, view: JobView) -> bool:
        """Keep the pending job behind its placeholder; give it the slot of a placeholder that has started."""
        if view.reason == "BeginTime" and _was_requeued(entry, view):
            self._slurm.update_job([entry.job_id], {"starttime": "now"})
        place = self._places.place(entry.placeholder, entry.job_id) if entry.placeholder else None
        if place is None and entry.has_slot:  # its slot is free, and it is first in the queue
            return self._wait_for_start(entry, view)
        if place is None:  # the placeholder was cancelled: the job gets only its age back
            self._restore_age(entry, view)
            self._done(entry, "without a placeholder")
            return False
        if place.state == "COMPLETING":
            return True
        if was_changed(entry, place) and not entry.has_slot:  # else users could put any job first
            self._places.cancel(entry.placeholder, entry.job_id)
            self._restore_age(entry, view)
            self._record.count("places_changed")
            self._done(entry, "without its placeholder, which was changed")
            return False
        if not place.is_pending:
            acted = entry.acted if entry.has_slot else self._clock.wall()
            self._record.put(entry, has_slot=True, acted=acted)
            if not view.is_held:  # slurmctld may refuse a priority for one that is
                self._places.raise_priority(entry.job_id, by=_TOP_FACTOR, to=_TOP_PRIORITY)
            self._places.cancel(entry.placeholder, entry.job_id)
            return True
        if entry.has_slot:  # the placeholder was requeued before it was cancelled
            entry = self._record.put(entry, has_slot=False, in_place=False)
        self._wait_behind(entry, view)
        return False

    def _wait_for_start(self, entry: HedgeEntry, view: JobView) -> bool:
        """Leave the job first in the queue for `slot_held_seconds`: it may be held, or wait for a limit."""
        since = abs(self._clock.wall() - entry.acted)  # a clock that was set back keeps no job first
        if not view.is_held and since <= self._slot_held_seconds:
            return since <= _QUICK_SECONDS
        # a priority set by hand would release a job that is held
        priority = entry.priority if entry.priority > 0 and not view.is_held else None
        self._restore_age(entry, view, to=priority)
        self._record.count("slots_lost")
        self._done(entry, "without its slot, in which it did not start")
        return False

    def _wait_behind(self, entry: HedgeEntry, view: JobView) -> None:
        """Restore the job's age, and leave the placeholder to wait: no priority can stand for its place.

        A requeue resets the job's age, which it needs should the placeholder be cancelled. It is restored
        once slurmctld has recalculated priorities (PriorityCalcPeriod, minutes): before that, jobs submitted
        since the last recalculation have no age, and any age would put this job before them.
        """
        now, period = self._clock.wall(), self._places.recalculation_seconds
        if not entry.is_raised:
            self._record.put(entry, is_raised=True, priority=view.priority, acted=now)
        elif view.priority != entry.priority or abs(now - entry.acted) >= 2.0 * period:
            self._restore_age(entry, view)
            self._record.put(entry, in_place=True, acted=now)

    def _restore_age(self, entry: HedgeEntry, view: JobView, to: int | None = None) -> None:
        age = self._places.age_points(view.ages_since - entry.submitted)
        self._places.raise_priority(entry.job_id, by=entry.site_factor + age, to=to)

    def _arrived(self, entry: HedgeEntry) -> None:
        """End a return: the job runs on-premise, and its raised priority must not outlive its start."""
        if entry.placeholder:
            self._places.cancel(entry.placeholder, entry.job_id)
        self._places.raise_priority(entry.job_id, by=entry.site_factor, to=None)
        self._done(entry, "in its slot")

    def _done(self, entry: HedgeEntry, how: str) -> None:
        self._record.put(entry, phase=Phase.SETTLED, acted=self._clock.wall())
        log.info("hedge.returned", job=entry.job_id, how=how, why=entry.why)
