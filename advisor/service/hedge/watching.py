"""The watch loop: it follows hedged jobs in the cloud, and jobs that were wrongly taken for small.

A slice, a speculation or a promised job starts in the cloud, and a placeholder
(:mod:`advisor.slurm.placeholders`) waits in the on-premise queue. The placeholder's start shows that the job
could have started there: the job stays in the cloud if that is better, else it is requeued and takes the
placeholder's slot. At its stop it is requeued behind its placeholder, or gets another slice. Each intent is
on disk before it is acted upon, and each step polls Slurm first, so that a kill at any point loses nothing
and repeats nothing (docs/designs/0013-hedged-start.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from advisor.decide.hedge.stay_or_go import ends_sooner_there, stays_past_stop
from advisor.decide.submission.rules import may_be_brought_back
from advisor.model.advice import HedgeKind
from advisor.model.snapshot import CONFIGURING, PENDING, RUNNING, STOPPED, SUSPENDED, QueuedJob
from advisor.service.exchange.announcing import Announced
from advisor.service.hedge.bringing_back import BringingBack, view_of
from advisor.service.hedge.going_again import GoingAgain
from advisor.service.hedge.placing import Placing, has_place, jobs_others_wait_for
from advisor.service.hedge.small_jobs import SmallJobs
from advisor.service.hedge.watch_context import WatchContext
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.observation.placeholders import placeholders_of, was_changed
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import Step, UrgentTask
from advisor.service.state.hedge_entries import HedgeEntry, Phase

log = structlog.get_logger(__name__)

_STOPPED: Final = frozenset({SUSPENDED, STOPPED})
_MAY_COME_BACK: Final = frozenset({PENDING, CONFIGURING, RUNNING})


class WatchLoop:
    """Watches jobs that may have to be requeued.

    Args:
        pause: Sleeps for some seconds; None: by the clock.
    """

    name = "watch"

    def __init__(self, context: WatchContext, *, pause: Callable[[float], None] | None = None) -> None:
        self._settings, self._places, self._view = context.settings, context.places, context.view
        self._record, self._clock = context.record, context.clock
        self._slices, self._slowdown = context.slices, context.slowdown
        self.small_jobs = SmallJobs(context)
        self._placing = Placing(context)
        self._back = BringingBack(context, pause=pause or context.clock.sleep, between=self._placing.between)
        self._again = GoingAgain(context)

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`; with hedge entries at most a poll's period."""
        loops = self._settings.loops
        return min(loops.watch_seconds, loops.snapshot_seconds) if len(self._record) else loops.watch_seconds

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            # first, as the nodes of a slot that has come are idle
            Step("follow", self.follow),
            Step("bring back", self.bring_back),
            Step("go again", self.go_again),
            self.urgent_task.step,
            Step("keep places", self.keep_places),
            Step("make up for delays", self._placing.make_up_for_delays),
            Step("forget", self.forget),
            Step("small jobs", self.small_jobs.check),
        )

    @property
    def follows_polls(self) -> bool:
        """Whether a round is due after each poll of Slurm: there are hedge entries, or may be."""
        return len(self._record) > 0 or self._keeps_places

    def stop_of(self, job_id: int) -> float | None:
        """The stop of a job that keeps a place, seconds in the cloud; infinite once it stays; for any thread.

        None: it keeps none.
        """
        return self._record.stop_of(job_id)

    def due_at(self, started_at: Callable[[int], float | None]) -> float:
        """When time alone next gives a round something to do, epoch seconds; -inf: at the next round.

        ``started_at`` says when a job in the cloud began to run, epoch seconds; None: it does not run yet.
        """

        def due(entry: HedgeEntry) -> float:
            if entry.phase is Phase.SETTLED or entry.only_waits:
                return math.inf
            if entry.phase is not Phase.OPEN:
                return -math.inf
            started = started_at(entry.job_id)
            return math.inf if started is None or entry.stop_seconds is None else started + entry.stop_seconds

        return min(map(due, self._record.all()), default=math.inf)

    def report(self) -> Mapping[str, Any]:
        """The fields of `advisor status`: hedge entries by phase, and counts since the first start."""
        return {
            "now": dict(Counter(entry.phase.value for entry in self._record.all() if has_place(entry))),
            "without": sum(not has_place(entry) for entry in self._record.all()),
            "counts": dict(self._record.counts),
            "small_requeued": self.small_jobs.requeued_jobs,
            "small_left": self.small_jobs.left_jobs,
        }

    def gauges(self) -> dict[str, tuple[float, str]]:
        """For the metrics page."""
        counts = self._record.counts
        return {
            "places_now": (float(len(self._record)), "Hedged jobs that have or need a placeholder."),
            "places_kept": (float(counts.get("places_kept", 0)), "Placeholders submitted so far."),
            "hedges_brought_back": (float(counts.get("brought_back", 0)), "Jobs brought back so far."),
            "hedges_stayed": (float(counts.get("stayed", 0)), "Jobs that stayed in the cloud so far."),
            "hedge_slots_lost": (
                float(counts.get("slots_lost", 0)),
                "Slots in which the job did not start within hedge.slot_held_seconds.",
            ),
            "small_jobs_requeued": (
                float(self.small_jobs.requeued_jobs),
                "Jobs put first as small and requeued as large since the start.",
            ),
        }

    # ------------------------------------------------------------------------------------- keep

    def expect(self, jobs: Iterable[Announced]) -> None:
        """Await jobs that the submit server has just answered; may be called by any thread."""
        self._placing.awaited.expect(jobs)

    @property
    def urgent_task(self) -> UrgentTask:
        """Submit placeholders of announced jobs: it cannot wait, so it also runs between a round's steps."""
        placing = self._placing
        return UrgentTask(Step("keep announced places", placing.keep_announced), placing.awaited.due_in)

    @property
    def _keeps_places(self) -> bool:
        return self._settings.hedge.enabled or self._settings.speculates

    def keep_places(self) -> None:
        """Submit a placeholder for each hedged job that has none."""
        if self._keeps_places:
            self._places.prepare()
        self._placing.keep(self._view.fresh())

    # ----------------------------------------------------------------------------------- follow

    def follow(self) -> None:
        """Decide for each hedged job in the cloud: go on, stay until its end, or come back."""
        snapshot = self._view.fresh()
        seen = {queued.job.job_id: queued for queued in snapshot.jobs}
        needed = jobs_others_wait_for(snapshot)
        opened = [
            entry
            for entry in self._record.all()
            if entry.phase is Phase.PLACING
            or (entry.phase is Phase.OPEN and entry.is_shown(snapshot.time, self._clock.wall()))
        ]

        def follow(entry: HedgeEntry) -> None:
            self._placing.between()
            self._follow(entry, seen, is_needed=entry.job_id in needed)

        for_each(opened, follow)

    def _follow(self, entry: HedgeEntry, seen: dict[int, QueuedJob], *, is_needed: bool) -> None:
        queued = seen.get(entry.job_id)
        if queued is None or _advice_id(queued) != entry.advice_id:
            return  # it has ended: `forget` drops the entry
        if queued.partitions != (self._settings.cluster.burst_partition,):
            if queued.state == RUNNING:
                self._settle(entry, "it runs in another partition")
            else:  # the cloud had no room, or its user moved it: the user has its place
                self._come_back(entry, queued, "it was moved")
            return
        if is_needed or not may_be_brought_back(queued.job, self._settings):
            self._settle(entry, "it may not be requeued any more")
            return
        place = seen.get(entry.placeholder)
        if place is not None and place.job.placeholder_for != entry.job_id:
            place = None
        if entry.phase is Phase.PLACING:
            # no placeholder could be submitted so far, or too many were: the stop-loss applies nevertheless
            self._check_stop(entry, queued)
        elif place is None:
            if self._places.place(entry.placeholder, entry.job_id) is None:
                self._settle(entry, "its placeholder was cancelled")
        elif place.state in (RUNNING, CONFIGURING):  # the latter while PrologSlurmctld runs
            self._slot_came(entry, queued)
        else:
            self._check_stop(entry, queued)

    def _slot_came(self, entry: HedgeEntry, queued: QueuedJob) -> None:
        place = self._places.place(entry.placeholder, entry.job_id)
        if place is not None and was_changed(entry, place):
            self._record.count("places_changed")
            self._settle(entry, "its placeholder was changed")  # and `forget` cancels it
            return
        # a requeue would lose its work, and slurmctld leaves it held
        if queued.state in _STOPPED or (queued.state == RUNNING and queued.is_held):
            self._settle(entry, "its slot came while it was suspended or held")
        elif queued.state == RUNNING and queued.start_time is not None and self._stays(entry, queued):
            self._settle(entry, "its slot came, and the cloud is still better")
        elif queued.state in _MAY_COME_BACK:  # in any other the next poll tells more: it may end just now
            self._come_back(entry, queued, "its slot came")

    def _stays(self, entry: HedgeEntry, queued: QueuedJob) -> bool:
        slices = self._slices() if entry.kind in {HedgeKind.SLICE, HedgeKind.PROMISE} else None
        if slices is not None:
            elapsed = self._elapsed(queued)
            held = 0.0 if entry.stop_seconds is None else max(0.0, entry.stop_seconds - elapsed)
            return slices.stays(queued, elapsed, held, entry.ran_seconds)
        return ends_sooner_there(
            slowdown=self._slowdown(queued),
            elapsed_seconds=self._elapsed(queued),
            own_limit_seconds=entry.limit_seconds,
        )

    def _elapsed(self, queued: QueuedJob) -> float:
        return max(0.0, self._clock.wall() - (queued.start_time or self._clock.wall()))

    def _check_stop(self, entry: HedgeEntry, queued: QueuedJob) -> None:
        elapsed = self._elapsed(queued)
        if queued.state != RUNNING or queued.is_held:
            return
        if entry.stop_seconds is None or elapsed < entry.stop_seconds:
            return
        if entry.kind == HedgeKind.SPECULATION and entry.placeholder:
            place = self._places.place(entry.placeholder, entry.job_id)
            expected = place.start_time if place is not None else None
            if stays_past_stop(
                slowdown=self._slowdown(queued),
                elapsed_seconds=elapsed,
                own_limit_seconds=entry.limit_seconds,
                further_wait_seconds=None if expected is None else expected - self._clock.wall(),
            ):
                self._record.count("rounds_past_stop")
                return
        slices = self._slices() if entry.kind == HedgeKind.SLICE else None
        if slices is not None:
            stop = slices.next_stop(queued, elapsed, entry.placeholder)
            if stop is not None and stop > elapsed:
                self._record.count("slices_continued")
                self._record.put(entry, stop_seconds=stop)
                log.info("hedge.next_slice", job=entry.job_id, stop_seconds=round(stop))
                return
        self._come_back(entry, queued, "its time in the cloud is over")

    def _come_back(self, entry: HedgeEntry, queued: QueuedJob, why: str) -> None:
        # `bring_back` acts, once this is on disk
        self._record.count("brought_back")
        ran = max(entry.ran_seconds, self._elapsed(queued)) if queued.state == RUNNING else entry.ran_seconds
        changes: dict[str, Any] = {"restarts": queued.restarts, "ran_seconds": ran, "why": why}
        if (moved := moved_by_us(queued)) is not None:  # a limit that was set since its move stays
            changes["limit_seconds"] = moved.users_limit(queued.job.requested_time)
        self._record.put(entry, phase=Phase.RETURNING, **changes)
        log.info("hedge.return_decided", job=entry.job_id, why=why)

    def _settle(self, entry: HedgeEntry, why: str) -> None:
        self._record.count("stayed")
        self._record.put(entry, phase=Phase.SETTLED, why=why)
        log.info("hedge.stays_in_cloud", job=entry.job_id, why=why)

    # ------------------------------------------------------------------------ bring back, forget

    def bring_back(self) -> None:
        """Continue the return of each job that is to be brought back."""
        self._back.go_on(self._view.fresh())

    def go_again(self) -> None:
        """Start jobs that have come back in the cloud once more, where that is worth the price now."""
        self._again.consider(self._view.fresh())

    def forget(self) -> None:
        """Cancel placeholders that are no longer needed, and drop the entries of jobs that have ended."""
        snapshot = self._view.fresh()
        seen = {queued.job.job_id: _advice_id(queued) for queued in snapshot.jobs}
        known = placeholders_of(snapshot.jobs)
        concerned = [
            entry
            for entry in self._record.all()
            if entry.is_shown(snapshot.time, self._clock.wall())
            and (
                seen.get(entry.job_id) != entry.advice_id
                or (entry.phase is Phase.SETTLED and (entry.placeholder in seen or entry.job_id in known))
            )
        ]

        def forget(entry: HedgeEntry) -> None:
            self._placing.between()
            self._forget(entry, known.get(entry.job_id, ()))

        for_each(concerned, forget)

    def _forget(self, entry: HedgeEntry, known: Sequence[QueuedJob]) -> None:
        # a placeholder that is not in the entry (a crash, an sbatch without an answer) is found by its name
        placeholders = {queued.job.job_id for queued in known} | {entry.placeholder} - {0}
        ended = self._is_gone(entry)  # asked again: an incomplete snapshot must not cancel a placeholder
        if ended or entry.phase is Phase.SETTLED:
            for_each(sorted(placeholders), lambda found: self._places.cancel(found, entry.job_id))
        if ended:
            self._record.drop(entry.job_id)

    def _is_gone(self, entry: HedgeEntry) -> bool:
        """Whether the job has ended; a job with its id and other advice is another one."""
        view = view_of(self._places, entry)
        return view is None or view.advice_id != entry.advice_id


def _advice_id(queued: QueuedJob) -> str | None:
    advice = moved_by_us(queued)
    return None if advice is None else advice.advice_id
