"""Submitting placeholders: for what a look at the whole queue shows, and at once for what was announced.

A placeholder has the place of the moment at which it was submitted. So whoever is announced by the submit
server is looked for at once, in the queue of his user only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import structlog

from advisor.decide.explanation.admin_comment import RecordedAdvice
from advisor.decide.hedge.hedge_offer import may_be_brought_back
from advisor.model.advice import Hedge
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.service.exchange.announcing import Announced
from advisor.service.hedge.awaited import Awaited
from advisor.service.hedge.bringing_back import view_of
from advisor.service.hedge.place_keeper import PlaceKeeper
from advisor.service.observation.advice_of_jobs import home_of, moved_by_us, own_features
from advisor.service.observation.placeholders import placeholders_of, shape_kept, submitted_for
from advisor.service.running.clock import Clock
from advisor.service.running.isolating import for_each
from advisor.service.state.hedge_entries import HedgeRecord, Kept, Phase
from advisor.slurm.placeholders import PlaceholderRequest
from advisor.slurm.protocol import QueuedJob, SlurmSnapshot

log = structlog.get_logger(__name__)

_JOB_ID: Final = re.compile(r"\d+")
_PLACING_SECONDS: Final = 5.0  # a round
_ANNOUNCED_SECONDS: Final = 1.0  # at a time: whose turn has come waits for it
_RETRY_SECONDS: Final = 30.0
_TROUBLE_FOR_ALL: Final = frozenset(
    {"slurm.timeout", "hedge.helper", "hedge.no_helper", "hedge.not_root", "slurm.no_command"}
)
"""Failures that the next job's placeholder would meet as well."""


class Placing:
    """Gives jobs that start hedged their placeholders.

    Parameters
    ----------
    settings : Settings
        In force.
    places : PlaceKeeper
        Submits them.
    record : HedgeRecord
        Placeholders kept, on disk.
    clock : Clock
        Time.
    """

    def __init__(self, settings: Settings, *, places: PlaceKeeper, record: HedgeRecord, clock: Clock) -> None:
        self._settings = settings
        self._places = places
        self._record = record
        self._clock = clock
        self._awaited = Awaited(clock)

    def expect(self, jobs: Iterable[Announced]) -> None:
        """Look for jobs that have just been submitted; may be called by any thread."""
        self._awaited.expect(jobs)

    def due_in(self) -> float:
        """Seconds until `keep_announced` has something to do; infinity when nobody is awaited."""
        return self._awaited.due_in()

    # --------------------------------------------------------------------------- the whole queue

    def keep(self, snapshot: SlurmSnapshot) -> None:
        """Submit a placeholder for each job in the queue that was promised one."""
        for_each(self._newcomers(snapshot), self._record.put)
        known = placeholders_of(snapshot.jobs)
        placing = [kept for kept in self._record.all() if kept.phase is Phase.PLACING]

        def place(kept: Kept) -> None:
            self._find_or_place(kept, snapshot, known.get(kept.job_id, ()))
            self.between()

        self._in_time(placing, _PLACING_SECONDS, place)

    def _in_time(self, placing: Sequence[Kept], seconds: float, place: Callable[[Kept], None]) -> set[int]:
        """One after the other, until time is up or Slurm does not answer; the jobs that had their turn.

        The next round goes on: whose turn has come must not wait for hundreds of sbatch.
        """
        end = self._clock.monotonic() + seconds
        had = set[int]()
        is_over = False

        def once(kept: Kept) -> None:
            nonlocal is_over
            if is_over or self._clock.monotonic() >= end:
                return
            had.add(kept.job_id)
            try:
                place(kept)
            except AdvisorError as error:
                is_over = error.code in _TROUBLE_FOR_ALL
                raise

        for_each(placing, once)
        return had

    def _newcomers(self, snapshot: SlurmSnapshot) -> list[Kept]:
        """Jobs in the burst partition that were promised a place and are not yet written down."""
        needed = jobs_others_wait_for(snapshot)
        found = []
        for queued in snapshot.jobs:
            job_id = queued.job.job_id
            if job_id in self._record or queued.restarts or self._record.is_full:
                continue
            if queued.job.placeholder_for is not None:
                continue
            if queued.partitions != (self._settings.cluster.burst_partition,):
                continue
            advice = moved_by_us(queued)
            if advice is None or advice.hedge is None or queued.array_job_id != job_id or job_id in needed:
                continue
            if may_be_brought_back(queued.job, self._settings):
                found.append(self._kept(queued, advice, advice.hedge))
        return found

    def _kept(self, queued: QueuedJob, advice: RecordedAdvice, hedge: Hedge) -> Kept:
        is_small = advice.size == "small"
        return Kept(
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

    def _find_or_place(self, kept: Kept, snapshot: SlurmSnapshot, known: Sequence[QueuedJob]) -> None:
        """Find the placeholder that was submitted before a crash, else submit one."""
        if snapshot.time <= kept.acted or (not known and self._clock.wall() < kept.tries_after):
            return
        own = view_of(self._places, kept)
        if own is None or own.advice_id != kept.advice_id:
            return  # `forget` knows
        placeholder = submitted_for(kept, own, known)
        if placeholder:
            self._placed(kept, placeholder)
        elif self._clock.wall() >= kept.tries_after:
            self._place(kept)

    def _place(self, kept: Kept) -> None:
        now = self._clock.wall()
        # an sbatch that is not answered in time may yet have been done: the next looks will show it
        kept = self._record.put(kept, acted=now, tries_after=now + _RETRY_SECONDS)
        placeholder = self._places.reserve(
            PlaceholderRequest(
                job_id=kept.job_id,
                partition=kept.partition,
                limit_seconds=kept.limit_seconds,
                held_seconds=self._settings.hedge.slot_held_seconds,
                features=kept.features,
                advice_id=kept.advice_id,
            )
        )
        self._placed(kept, placeholder)

    def _placed(self, kept: Kept, placeholder: int) -> None:
        found = self._as_the_job(kept, placeholder)
        self._record.count("places_kept")
        self._record.put(kept, placeholder=placeholder, phase=Phase.OPEN, acted=self._clock.wall(), **found)
        log.info("hedge.place_kept", job=kept.job_id, placeholder=placeholder, kind=kept.kind)

    def _as_the_job(self, kept: Kept, placeholder: int) -> dict[str, Any]:
        """Give a new placeholder what the job had at first; what is to be noted of it."""
        view, own = self._places.place(placeholder, kept.job_id), self._places.view(kept.job_id)
        if view is None or own is None:
            return {}
        shape = shape_kept(view, own)
        if not view.is_pending:
            return shape
        if kept.site_factor or not self._places.knows_site_factors:
            self._places.raise_priority(placeholder, by=kept.site_factor, to=own.priority)
            view = self._places.place(placeholder, kept.job_id) or view
        late = max(0.0, view.submit_time - kept.submitted)
        return {**shape, "priority": view.priority, "delay_seconds": late}

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

    # -------------------------------------------------------------------------------- announced

    def keep_announced(self) -> None:
        """Submit a placeholder for each announced job that is in the queue by now.

        Whoever is not written down yet can have none from before a crash: nothing is looked up twice.
        """
        awaited = self._awaited.due()
        if not awaited:
            return
        settled, left = set[str](), set[str]()
        began, answered = self._clock.monotonic(), None
        try:
            snapshot = self._look_for(awaited)
            answered = self._clock.monotonic()
            newcomers = self._newcomers(snapshot)
            had = self._in_time(newcomers, _ANNOUNCED_SECONDS, self._place)
            left = {kept.advice_id for kept in newcomers if kept.job_id not in had}
            settled = {
                advice.advice_id for job in snapshot.jobs if (advice := moved_by_us(job)) is not None
            } - left
        finally:
            ended = self._clock.monotonic() if answered is None else answered
            self._awaited.looked(ended - began, settled=settled, seen=left)

    def between(self) -> None:
        """The same amid other work, which has its own failures; the next round tries again."""
        try:
            self.keep_announced()
        except AdvisorError as error:
            log.warning("hedge.not_placed", code=error.code, message=str(error))

    def _look_for(self, awaited: Iterable[Announced]) -> SlurmSnapshot:
        users = {job.uid for job in awaited}
        named = {uid for uid in users if uid is not None} if None not in users else ()
        time = self._clock.wall()
        jobs = self._places.submitted_by(named, self._settings.cluster.burst_partition)
        return SlurmSnapshot(time=time, jobs=jobs, nodes=())


def jobs_others_wait_for(snapshot: SlurmSnapshot) -> frozenset[int]:
    """Every number in a dependency: rather one job too many than one whose dependants are misled."""
    return frozenset(
        int(number)
        for queued in snapshot.jobs
        if queued.job.dependency
        for number in _JOB_ID.findall(queued.job.dependency[:100_000])
    )
