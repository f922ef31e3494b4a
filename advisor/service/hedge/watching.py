"""The watch loop: jobs in the cloud that keep their place on-premise, and small jobs that are none.

A hedged or speculative job starts in the cloud, and a placeholder (:mod:`advisor.slurm.placeholders`) waits
in the on-premise queue. When the placeholder starts, the job could have started there: it stays where it is
if that ends sooner, else it is requeued once and takes the placeholder's slot. At its stop-loss it takes the
placeholder's place in the queue. Each intent is on disk before it is acted upon, and each step looks at Slurm
first, so that a kill at any point loses nothing and does nothing twice (docs/designs/0013-hedged-start.md).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from advisor.decide.hedge.hedge_offer import may_be_brought_back
from advisor.decide.hedge.stay_or_go import stays_at_slot, stays_past_stop
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import HedgeKind
from advisor.model.settings import Settings
from advisor.service.exchange.announcing import Announced
from advisor.service.hedge.bringing_back import BringingBack, view_of
from advisor.service.hedge.place_keeper import PlaceKeeper
from advisor.service.hedge.placing import Placing, jobs_others_wait_for
from advisor.service.hedge.small_jobs import SmallJobs
from advisor.service.observation.accounting import SOURCE
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.observation.placeholders import placeholders_of, was_changed
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import for_each
from advisor.service.running.loops import Step, UrgentTask
from advisor.service.state.hedge_budget import HedgeBudget
from advisor.service.state.hedge_entries import Fate, HedgeRecord, Kept, Phase
from advisor.service.state.state_files import HEDGE_ENTRIES, SMALL_JOBS
from advisor.slurm.protocol import RUNNING, QueuedJob, SlurmBackend

log = structlog.get_logger(__name__)

AskQuantiles = Callable[[int], Sequence[float]]
AskSlowdown = Callable[[QueuedJob], float]
"""Job id to equally likely on-premise run times, seconds; empty when nothing was forecast."""


class WatchLoop:
    """Watches jobs that may have to be requeued.

    Parameters
    ----------
    settings : Settings
        In force.
    slurm : SlurmBackend
        Requeues and changes jobs.
    places : PlaceKeeper
        Keeps places.
    view : SharedView
        What the look loop saw.
    record : HedgeRecord
        Placeholders kept, on disk.
    small_jobs : SmallJobs
        The safeguard of the size classes.
    quantiles : callable
        Forecast run times of a job.
    clock : Clock
        Time.
    slowdown : callable, optional
        How many times longer a job in the cloud runs than here; as the settings say without it.
    pause : callable
        Sleeps.
    budget : HedgeBudget, optional
        What hedges may use in all.
    """

    name = "watch"

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        places: PlaceKeeper,
        view: SharedView,
        record: HedgeRecord,
        small_jobs: SmallJobs,
        quantiles: AskQuantiles,
        clock: Clock,
        slowdown: AskSlowdown | None = None,
        pause: Callable[[float], None] = time.sleep,
        budget: HedgeBudget | None = None,
    ) -> None:
        self._settings = settings
        self._budget = budget
        self._places = places
        self._view = view
        self._record = record
        self._small_jobs = small_jobs
        self._quantiles = quantiles
        self._slowdown = slowdown or (
            lambda queued: settings.placement.performance_ratio(queued.job.processors)
        )
        self._clock = clock
        self._placing = Placing(settings, places=places, record=record, clock=clock)
        self._back = BringingBack(
            settings,
            slurm=slurm,
            places=places,
            record=record,
            clock=clock,
            pause=pause,
            between=self._placing.between,
        )

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`; while a place is kept, at every poll."""
        loops = self._settings.loops
        return min(loops.watch_seconds, loops.snapshot_seconds) if len(self._record) else loops.watch_seconds

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            # whose turn has come first: his slot idles
            Step("follow", self.follow),
            Step("bring back", self.bring_back),
            self.urgent_task.step,
            Step("keep places", self.keep_places),
            Step("make up for delays", self._placing.make_up_for_delays),
            Step("forget", self.forget),
            Step("small jobs", self._small_jobs.check),
        )

    @property
    def follows_polls(self) -> bool:
        """Whether a round is due after each poll of Slurm: places are kept, or may be wanted."""
        hedge, waiting = self._settings.hedge, self._settings.waiting
        return len(self._record) > 0 or hedge.enabled or waiting.speculate

    def fate(self, job_id: int, advice_id: str) -> Fate | None:
        """What became of an ended job's place (:meth:`HedgeRecord.fate`)."""
        return self._record.fate(job_id, advice_id)

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows: places kept now by phase, and what has happened so far."""
        return {
            "now": dict(Counter(kept.phase.value for kept in self._record.all())),
            "counts": dict(self._record.counts),
            "small_requeued": self._small_jobs.requeued_jobs,
            "small_left": self._small_jobs.left_jobs,
        }

    def gauges(self) -> dict[str, tuple[float, str]]:
        """For the metrics page."""
        counts = self._record.counts
        return {
            "places_now": (float(len(self._record)), "Jobs in the cloud that keep a place on-premise."),
            "places_kept": (float(counts.get("places_kept", 0)), "Placeholders submitted so far."),
            "hedges_brought_back": (float(counts.get("brought_back", 0)), "Jobs brought back so far."),
            "hedges_stayed": (float(counts.get("stayed", 0)), "Jobs that stayed in the cloud so far."),
            "hedge_slots_lost": (
                float(counts.get("slots_lost", 0)),
                "Turns that came and that the job did not take within hedge.slot_held_seconds.",
            ),
            "small_jobs_requeued": (
                float(self._small_jobs.requeued_jobs),
                "Jobs put first as small and requeued as large since the start.",
            ),
        }

    # ------------------------------------------------------------------------------------- keep

    def expect(self, jobs: Iterable[Announced]) -> None:
        """Look for jobs that the submit server has just answered; may be called by any thread."""
        self._placing.expect(jobs)

    @property
    def urgent_task(self) -> UrgentTask:
        """Submit placeholders of announced jobs, between the steps of a round, too: they cannot wait."""
        return UrgentTask(Step("keep announced places", self._placing.keep_announced), self._placing.due_in)

    def keep_places(self) -> None:
        """Submit a placeholder for each job that was promised one."""
        if self._settings.hedge.enabled or self._settings.waiting.speculate:
            self._places.prepare()
        self._placing.keep(self._view.fresh())

    # ----------------------------------------------------------------------------------- follow

    def follow(self) -> None:
        """Decide for each job in the cloud: go on, stay for good, or come back."""
        snapshot = self._view.fresh()
        seen = {queued.job.job_id: queued for queued in snapshot.jobs}
        needed = jobs_others_wait_for(snapshot)
        opened = [
            kept
            for kept in self._record.all()
            if kept.phase is Phase.PLACING or (kept.phase is Phase.OPEN and snapshot.time > kept.acted)
        ]

        def follow(kept: Kept) -> None:
            self._placing.between()
            self._follow(kept, seen, is_needed=kept.job_id in needed)

        for_each(opened, follow)

    def _follow(self, kept: Kept, seen: dict[int, QueuedJob], *, is_needed: bool) -> None:
        queued = seen.get(kept.job_id)
        if queued is None or _advice_id(queued) != kept.advice_id:
            return  # `forget` knows
        if queued.partitions != (self._settings.cluster.burst_partition,):
            if queued.state == RUNNING:
                self._settle(kept, "it runs elsewhere")
            else:  # the cloud had no room, or its user fetched it: its place is his
                self._come_back(kept, queued, "it was moved")
            return
        if is_needed or not may_be_brought_back(queued.job, self._settings):
            self._settle(kept, "it may not be requeued any more")
            return
        place = seen.get(kept.placeholder)
        if place is not None and place.job.placeholder_for != kept.job_id:
            place = None
        if kept.phase is Phase.PLACING:
            # no placeholder could be had so far: the stop-loss holds all the same
            self._look_at_stop(kept, queued)
        elif place is None:
            if self._places.place(kept.placeholder, kept.job_id) is None:
                self._settle(kept, "its place was given up")
        elif place.state in (RUNNING, "CONFIGURING"):  # the latter while PrologSlurmctld runs
            self._slot_came(kept, queued)
        else:
            self._look_at_stop(kept, queued)

    def _slot_came(self, kept: Kept, queued: QueuedJob) -> None:
        place = self._places.place(kept.placeholder, kept.job_id)
        if place is not None and was_changed(kept, place):
            self._record.count("places_changed")
            self._settle(kept, "its place was changed")  # and `forget` ends it
            return
        started = place.start_time if place is not None else None
        kept = replace(kept, turn=self._clock.wall() if started is None else started)
        if queued.state == RUNNING and queued.start_time is not None and self._stays(kept, queued):
            self._settle(kept, "its turn came, and it is sooner done where it is")
        else:
            self._come_back(kept, queued, "its turn came")

    def _stays(self, kept: Kept, queued: QueuedJob) -> bool:
        is_sooner = stays_at_slot(
            processors=queued.job.processors,
            slowdown=self._slowdown(queued),
            elapsed_seconds=self._elapsed(queued),
            own_limit_seconds=kept.limit_seconds,
            run_quantiles=self._quantiles(kept.job_id),
        )
        if not is_sooner or self._budget is None or kept.kind != HedgeKind.HEDGE:
            return is_sooner
        limit = queued.job.requested_time
        return self._budget.may_stay(kept.advice_id, None if limit is None else limit - self._elapsed(queued))

    def _elapsed(self, queued: QueuedJob) -> float:
        return max(0.0, self._clock.wall() - (queued.start_time or self._clock.wall()))

    def _look_at_stop(self, kept: Kept, queued: QueuedJob) -> None:
        if kept.kind == HedgeKind.HEDGE and self._budget and not self._budget.may_go_on(kept.advice_id):
            self._record.count("over_budget")
            self._come_back(kept, queued, "the budget of hedges does not allow it")
            return
        elapsed = self._elapsed(queued)
        if queued.state != RUNNING or kept.stop_seconds is None or elapsed < kept.stop_seconds:
            return
        if kept.kind == HedgeKind.SPECULATION and kept.placeholder:
            place = self._places.place(kept.placeholder, kept.job_id)
            expected = place.start_time if place is not None else None
            if stays_past_stop(
                slowdown=self._slowdown(queued),
                elapsed_seconds=elapsed,
                own_limit_seconds=kept.limit_seconds,
                further_wait_seconds=None if expected is None else expected - self._clock.wall(),
            ):
                self._record.count("rounds_past_stop")
                return
        self._come_back(kept, queued, "its time in the cloud is over")

    def _come_back(self, kept: Kept, queued: QueuedJob, why: str) -> None:
        # nothing is done yet: `bring_back` acts, once this is on disk
        self._record.count("brought_back")
        self._record.put(kept, phase=Phase.RETURNING, restarts=queued.restarts, why=why)
        log.info("hedge.comes_back", job=kept.job_id, why=why)

    def _settle(self, kept: Kept, why: str) -> None:
        self._record.count("stayed")
        self._record.put(kept, phase=Phase.SETTLED, why=why)
        log.info("hedge.settled", job=kept.job_id, why=why)

    # ------------------------------------------------------------------------ bring back, forget

    def bring_back(self) -> None:
        """Go on with each job that is to be brought back, from wherever it is."""
        self._back.go_on(self._view.fresh())

    def forget(self) -> None:
        """Take away places that nobody needs any more, and forget jobs that have ended."""
        snapshot = self._view.fresh()
        seen = {queued.job.job_id: _advice_id(queued) for queued in snapshot.jobs}
        known = placeholders_of(snapshot.jobs)
        concerned = [
            kept
            for kept in self._record.all()
            if snapshot.time > kept.acted
            and (
                seen.get(kept.job_id) != kept.advice_id
                or (kept.phase is Phase.SETTLED and (kept.placeholder in seen or kept.job_id in known))
            )
        ]

        def forget(kept: Kept) -> None:
            self._placing.between()
            self._forget(kept, known.get(kept.job_id, ()))

        for_each(concerned, forget)

    def _forget(self, kept: Kept, known: Sequence[QueuedJob]) -> None:
        # one that a crash, or an sbatch not answered in time, kept from being noted is found by its name
        placeholders = {queued.job.job_id for queued in known} | {kept.placeholder} - {0}
        ended = self._is_gone(kept)  # a second look: half a queue ends nobody's place
        if ended or kept.phase is Phase.SETTLED:
            for_each(sorted(placeholders), lambda found: self._places.cancel(found, kept.job_id))
        if ended:
            self._record.drop(kept.job_id)

    def _is_gone(self, kept: Kept) -> bool:
        """Whether the job has ended; another's under its id is not it."""
        view = view_of(self._places, kept)
        return view is None or view.advice_id != kept.advice_id


def watch_loop(
    settings: Settings,
    *,
    slurm: SlurmBackend,
    places: PlaceKeeper,
    view: SharedView,
    store: HistoryStore,
    clock: Clock,
    slowdown: AskSlowdown | None = None,
    budget: HedgeBudget | None = None,
) -> WatchLoop:
    """Put the loop together; what was forecast is read from the ledger."""

    def advice_of(job_id: int) -> AdviceRecord | None:
        return store.advice_of(job_id, source=SOURCE)

    def quantiles(job_id: int) -> Sequence[float]:
        record = advice_of(job_id)
        return () if record is None else record.estimates.run.quantiles

    def divider(job_id: int) -> float:
        record = advice_of(job_id)
        return math.nan if record is None else record.estimates.size.divider_seconds

    small_jobs = SmallJobs(
        settings,
        slurm=slurm,
        places=places,
        view=view,
        state=SMALL_JOBS.at(settings.paths.state),
        divider=divider,
        clock=clock,
    )
    return WatchLoop(
        settings,
        slurm=slurm,
        places=places,
        view=view,
        record=HedgeRecord(HEDGE_ENTRIES.at(settings.paths.state)),
        small_jobs=small_jobs,
        quantiles=quantiles,
        clock=clock,
        budget=budget,
        slowdown=slowdown,
    )


def _advice_id(queued: QueuedJob) -> str | None:
    advice = moved_by_us(queued)
    return None if advice is None else advice.advice_id
