"""The watch loop: jobs in the cloud that keep their place on-premise, and small jobs that are none.

A hedged or speculative job starts in the cloud, and a placeholder (:mod:`advisor.slurm.places`) queues for it
here. When the placeholder starts, the job's turn has come: it stays where that is sooner, else it is
requeued, once, and takes the placeholder's slot. At its stop-loss it is requeued before that, and takes the
placeholder's place in the queue. Each intent is on disk before it is acted upon, and each step looks at Slurm
first, so that a kill at any point loses nothing and does nothing twice (docs/designs/0013-hedged-start.md).
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from advisor.decide.hedge_offer import may_be_brought_back
from advisor.decide.stay_or_go import stays_at_slot, stays_past_stop
from advisor.decide.wording import RecordedAdvice
from advisor.ec2.state_file import StateFile
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import HedgeKind
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.service.accounting import SOURCE
from advisor.service.advice_of import home_of, moved_by_us, own_features
from advisor.service.bringing_back import BringingBack, sight_of
from advisor.service.clock import Clock
from advisor.service.hedge_record import HedgeRecord, Kept, Phase
from advisor.service.isolating import for_each
from advisor.service.loops import Step
from advisor.service.place_keeper import PlaceKeeper
from advisor.service.placeholders import placeholders_of, shape_kept, submitted_for, was_changed
from advisor.service.small_jobs import SmallJobs
from advisor.service.view import SharedView
from advisor.slurm.places import Wish
from advisor.slurm.protocol import RUNNING, QueuedJob, SlurmBackend, SlurmSnapshot

log = structlog.get_logger(__name__)

_JOB_ID: Final = re.compile(r"\d+")
_PLACING_SECONDS: Final = 5.0  # a round
_RETRY_SECONDS: Final = 30.0
_TROUBLE_FOR_ALL: Final = frozenset(
    {"slurm.timeout", "hedge.helper", "hedge.no_helper", "hedge.not_root", "slurm.no_command"}
)
"""Failures that the next job's placeholder would meet as well."""

AskQuantiles = Callable[[int], Sequence[float]]
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
        Places kept, on disk.
    small_jobs : SmallJobs
        The safeguard of the size classes.
    quantiles : callable
        Forecast run times of a job.
    clock : Clock
        Time.
    pause : callable
        Sleeps.
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
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._places = places
        self._view = view
        self._record = record
        self._small_jobs = small_jobs
        self._quantiles = quantiles
        self._clock = clock
        self._back = BringingBack(
            settings, slurm=slurm, places=places, record=record, clock=clock, pause=pause
        )

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.loops.Loop`; as often as Slurm is looked at while a place is kept."""
        loops = self._settings.loops
        return min(loops.watch_seconds, loops.snapshot_seconds) if len(self._record) else loops.watch_seconds

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.loops.Loop`."""
        return (
            # whose turn has come first: his slot idles
            Step("follow", self.follow),
            Step("bring back", self.bring_back),
            Step("keep places", self.keep_places),
            Step("make up for delays", self.make_up_for_delays),
            Step("forget", self.forget),
            Step("small jobs", self._small_jobs.check),
        )

    @property
    def follows_looks(self) -> bool:
        """Whether a round is due after each look at Slurm: places are kept, or may be wanted."""
        hedge, waiting = self._settings.hedge, self._settings.waiting
        return len(self._record) > 0 or hedge.enabled or waiting.speculate

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows: places kept now by phase, and what has happened so far."""
        return {
            "now": dict(Counter(kept.phase.value for kept in self._record.all())),
            "counts": dict(self._record.counts),
            "small_requeued": self._small_jobs.requeued_jobs,
            "small_left": self._small_jobs.left_jobs,
        }

    # ------------------------------------------------------------------------------------- keep

    def keep_places(self) -> None:
        """Submit a placeholder for each job that was promised one."""
        snapshot = self._view.fresh()
        for_each(self._newcomers(snapshot), self._adopt)
        known = placeholders_of(snapshot.jobs)
        end = self._clock.monotonic() + _PLACING_SECONDS
        placing = [kept for kept in self._record.all() if kept.phase is Phase.PLACING]
        is_over = False

        def place(kept: Kept) -> None:
            nonlocal is_over
            if is_over or self._clock.monotonic() >= end:
                return  # the next round goes on: whose turn has come must not wait for hundreds of sbatch
            try:
                self._place(kept, snapshot, known.get(kept.job_id, ()))
            except AdvisorError as error:
                is_over = error.code in _TROUBLE_FOR_ALL
                raise

        for_each(placing, place)

    def _newcomers(self, snapshot: SlurmSnapshot) -> list[tuple[QueuedJob, RecordedAdvice]]:
        needed = _jobs_others_wait_for(snapshot)
        found = []
        for queued in snapshot.jobs:
            job_id = queued.job.job_id
            if job_id in self._record or queued.restarts or self._record.is_full:
                continue
            if queued.job.keeps_place_of is not None:
                continue
            if queued.partitions != (self._settings.cluster.burst_partition,):
                continue
            advice = moved_by_us(queued)
            if advice is None or advice.hedge is None:
                continue
            if queued.array_job_id == job_id and job_id not in needed and self._may_come_back(queued):
                found.append((queued, advice))
        return found

    def _may_come_back(self, queued: QueuedJob) -> bool:
        return may_be_brought_back(queued.job, self._settings)

    def _adopt(self, newcomer: tuple[QueuedJob, RecordedAdvice]) -> None:
        queued, advice = newcomer
        hedge = advice.hedge
        if hedge is None:
            return
        is_small = advice.size == "small"
        self._record.put(
            Kept(
                job_id=queued.job.job_id,
                advice_id=advice.advice_id,
                kind=hedge.kind.value,
                submitted=queued.job.submit_time,
                stop_seconds=hedge.stop_seconds if hedge.stop_seconds < 1e9 else None,
                partition=home_of(advice, self._settings),
                limit_seconds=advice.users_limit(queued.job.requested_time),
                features=own_features(queued),
                site_factor=self._settings.size.small_priority_offset if is_small else 0,
            )
        )

    def _place(self, kept: Kept, snapshot: SlurmSnapshot, known: Sequence[QueuedJob]) -> None:
        """Find the placeholder that was submitted before a crash, else submit one."""
        if snapshot.time <= kept.acted or (not known and self._clock.wall() < kept.tries_after):
            return
        own = sight_of(self._places, kept)
        if own is None or own.advice_id != kept.advice_id:
            return  # `forget` knows
        placeholder = submitted_for(kept, own, known)
        now = self._clock.wall()
        if placeholder == 0:
            if now < kept.tries_after:
                return
            # an sbatch that is not answered in time may yet have been done: the next looks will show it
            kept = self._record.put(kept, acted=now, tries_after=now + _RETRY_SECONDS)
            placeholder = self._places.reserve(
                Wish(
                    job_id=kept.job_id,
                    partition=kept.partition,
                    limit_seconds=kept.limit_seconds,
                    held_seconds=self._settings.hedge.slot_held_seconds,
                    features=kept.features,
                )
            )
        found = self._as_the_job(kept, placeholder)
        self._record.count("places_kept")
        self._record.put(kept, placeholder=placeholder, phase=Phase.OPEN, acted=self._clock.wall(), **found)
        log.info("hedge.place_kept", job=kept.job_id, placeholder=placeholder, kind=kept.kind)

    def _as_the_job(self, kept: Kept, placeholder: int) -> dict[str, Any]:
        """Give a new placeholder what the job had at first; what is to be noted of it."""
        sight, own = self._places.place(placeholder, kept.job_id), self._places.sight(kept.job_id)
        if sight is None or own is None:
            return {}
        shape = shape_kept(sight, own)
        if not sight.is_pending:
            return shape
        if kept.site_factor or not self._places.knows_site_factors:
            self._places.raise_priority(placeholder, by=kept.site_factor, to=own.priority)
            sight = self._places.place(placeholder, kept.job_id) or sight
        late = max(0.0, sight.submit_time - kept.submitted)
        return {**shape, "priority": sight.priority, "delay_seconds": late}

    def make_up_for_delays(self) -> None:
        """Give placeholders the age that the job had when they were submitted, once ages are reckoned anew.

        Not before: until then all priorities are of the last reckoning, minutes ago, nobody submitted since
        has any age, and a second of it would put the placeholder before all of them.
        """
        late = [k for k in self._record.all() if k.phase is Phase.OPEN and k.delay_seconds > 0.0]
        for kept in sorted(late, key=lambda kept: kept.acted):
            points = self._places.age_points(kept.delay_seconds)
            place = self._places.place(kept.placeholder, kept.job_id) if points else None
            is_waiting = place is not None and place.is_pending
            if place is not None and is_waiting and place.priority == kept.priority:
                return  # not yet, and those submitted later have not been either
            if is_waiting:
                by = kept.site_factor + points
                self._places.raise_priority(kept.placeholder, by=by, to=None)
            self._record.put(kept, delay_seconds=0.0)

    # ----------------------------------------------------------------------------------- follow

    def follow(self) -> None:
        """Decide for each job in the cloud: go on, stay for good, or come back."""
        snapshot = self._view.fresh()
        seen = {queued.job.job_id: queued for queued in snapshot.jobs}
        needed = _jobs_others_wait_for(snapshot)
        opened = [
            kept
            for kept in self._record.all()
            if kept.phase is Phase.PLACING or (kept.phase is Phase.OPEN and snapshot.time > kept.acted)
        ]
        for_each(opened, lambda kept: self._follow(kept, seen, is_needed=kept.job_id in needed))

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
        if is_needed or not self._may_come_back(queued):
            self._settle(kept, "it may not be requeued any more")
            return
        place = seen.get(kept.placeholder)
        if place is not None and place.job.keeps_place_of != kept.job_id:
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
        elif queued.state == RUNNING and queued.start_time is not None and self._stays(kept, queued):
            self._settle(kept, "its turn came, and it is sooner done where it is")
        else:
            self._come_back(kept, queued, "its turn came")

    def _stays(self, kept: Kept, queued: QueuedJob) -> bool:
        return stays_at_slot(
            processors=queued.job.processors,
            slowdown=self._settings.placement.performance_ratio(queued.job.processors),
            elapsed_seconds=self._elapsed(queued),
            own_limit_seconds=kept.limit_seconds,
            run_quantiles=self._quantiles(kept.job_id),
        )

    def _elapsed(self, queued: QueuedJob) -> float:
        return max(0.0, self._clock.wall() - (queued.start_time or self._clock.wall()))

    def _look_at_stop(self, kept: Kept, queued: QueuedJob) -> None:
        elapsed = self._elapsed(queued)
        if queued.state != RUNNING or kept.stop_seconds is None or elapsed < kept.stop_seconds:
            return
        if kept.kind == HedgeKind.SPECULATION and kept.placeholder:
            place = self._places.place(kept.placeholder, kept.job_id)
            expected = place.start_time if place is not None else None
            if stays_past_stop(
                slowdown=self._settings.placement.performance_ratio(queued.job.processors),
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
        for_each(concerned, lambda kept: self._forget(kept, known.get(kept.job_id, ())))

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
        sight = sight_of(self._places, kept)
        return sight is None or sight.advice_id != kept.advice_id


def watch_loop(
    settings: Settings,
    *,
    slurm: SlurmBackend,
    places: PlaceKeeper,
    view: SharedView,
    store: HistoryStore,
    clock: Clock,
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
        state=StateFile(settings.paths.state / "small_jobs.json"),
        divider=divider,
        clock=clock,
    )
    return WatchLoop(
        settings,
        slurm=slurm,
        places=places,
        view=view,
        record=HedgeRecord(StateFile(settings.paths.state / "places.json")),
        small_jobs=small_jobs,
        quantiles=quantiles,
        clock=clock,
    )


def _jobs_others_wait_for(snapshot: SlurmSnapshot) -> frozenset[int]:
    """Every number in a dependency: rather one job too many than one whose dependants are misled."""
    return frozenset(
        int(number)
        for queued in snapshot.jobs
        if queued.job.dependency
        for number in _JOB_ID.findall(queued.job.dependency[:100_000])
    )


def _advice_id(queued: QueuedJob) -> str | None:
    advice = moved_by_us(queued)
    return None if advice is None else advice.advice_id
