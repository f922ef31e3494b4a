"""Submit placeholders for hedged jobs: at each poll of the queue, and at once for announced jobs.

A part of the watch loop.

A placeholder's place in the queue begins with its submission. So a job that the submit server has announced
is polled for at once, among the jobs of its user only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import structlog

from advisor.decide.explanation.admin_comment import RecordedAdvice
from advisor.decide.submission.rules import may_be_brought_back
from advisor.model.advice import Hedge
from advisor.model.errors import AdvisorError
from advisor.model.job import Job
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.model.submit_limits import submit_keys
from advisor.service.exchange.announcing import Announced
from advisor.service.hedge.awaited import Awaited
from advisor.service.hedge.bringing_back import view_of
from advisor.service.hedge.watch_context import WatchContext
from advisor.service.observation.advice_of_jobs import home_of, moved_by_us, own_features
from advisor.service.observation.placeholders import placeholders_of, shape_kept, submitted_for
from advisor.service.running.isolating import for_each
from advisor.service.state.hedge_entries import HedgeEntry, Phase
from advisor.slurm.placeholders import PlaceholderRequest

log = structlog.get_logger(__name__)

_JOB_ID: Final = re.compile(r"\d+")
_PLACING_SECONDS: Final = 5.0  # a round
_ANNOUNCED_SECONDS: Final = 1.0  # at a time: jobs whose slot has come wait for it
_RETRY_SECONDS: Final = 30.0
_ERRORS_FOR_ALL: Final = frozenset(
    {"slurm.timeout", "hedge.helper", "hedge.no_helper", "hedge.not_root", "slurm.no_command"}
)
"""Codes of errors that would occur for the next job's placeholder as well."""


NEVER: Final = 1e15
"""`HedgeEntry.tries_after` of a job that gets no place."""
PLACED_ABOVE: Final = 0.5
_LEAVES_AT: Final = 0.25
"""Shares of a limit of jobs in the queue."""


class Placing:
    """Submits the placeholders of jobs that start hedged.

    A job that may preempt others has none: its placeholder would take processors from a running job, perhaps
    in vain. Nor has one whose user comes near a limit of jobs in the queue, where placeholders count: the
    user's next sbatch would be refused. Of such jobs only the stop holds.

    Attributes:
        awaited: Jobs that were announced; it says when :meth:`keep_announced` is due.
    """

    def __init__(self, context: WatchContext) -> None:
        self._settings, self._places = context.settings, context.places
        self._record, self._clock = context.record, context.clock
        self._may_preempt = context.may_preempt
        self.awaited = Awaited(context.clock)

    # --------------------------------------------------------------------------- the whole queue

    def keep(self, snapshot: ClusterSnapshot) -> None:
        """Submit a placeholder for each hedged job in the queue that has none."""
        for_each(self._newcomers(snapshot), self._record.put)
        self._look_for_features(snapshot)
        known = placeholders_of(snapshot.jobs)
        placing = [entry for entry in self._record.all() if entry.phase is Phase.PLACING]

        def place(entry: HedgeEntry) -> None:
            self._find_or_place(entry, snapshot, known.get(entry.job_id, ()))
            self.between()

        self._in_time(placing, _PLACING_SECONDS, place)
        self._leave_submits(snapshot)

    def _leave_submits(self, snapshot: ClusterSnapshot) -> None:
        """Give up the places of users who have little left of a limit of jobs, so that sbatch takes more."""
        kept = {entry.job_id: entry for entry in self._record.all() if entry.phase is Phase.OPEN}
        left = self._submits_left([queued.job for queued in snapshot.jobs if queued.job.job_id in kept])

        def leave(entry: HedgeEntry) -> None:
            self._places.cancel(entry.placeholder, entry.job_id)
            gone = {"placeholder": 0, "phase": Phase.PLACING, "tries_after": NEVER}
            self._record.put(entry, acted=self._clock.wall(), **gone)
            log.info("hedge.place_left", job=entry.job_id, why="its user may submit few more jobs")

        for_each([kept[job_id] for job_id, share in left.items() if share < _LEAVES_AT], leave)

    def _submits_left(self, jobs: Sequence[Job]) -> dict[int, float]:
        """The least share of a limit of jobs in the queue that each job's user has left, 1 without limits."""
        if not jobs:
            return {}
        users, qos = {job.user or "" for job in jobs} - {""}, {job.qos or "" for job in jobs} - {""}
        left = self._places.submits_left(users, qos)
        return {job.job_id: min(left.get(key, 1.0) for key in submit_keys(job)) for job in jobs}

    def _look_for_features(self, snapshot: ClusterSnapshot) -> None:
        """Correct the entries of jobs that a poll has shown before their constraint was set.

        slurmctld may refuse a change of a job after it has changed the partition; it is then asked again.
        A placeholder with a constraint of the cloud's nodes is refused, and the job would never start here.
        """
        seen = {queued.job.job_id: queued for queued in snapshot.jobs}
        for entry in self._record.all():
            queued = seen.get(entry.job_id) if entry.features is None else None
            if entry.phase in {Phase.PLACING, Phase.OPEN} and queued is not None:
                own, moved = own_features(queued), moved_by_us(queued)
                if own is not None and moved is not None and moved.advice_id == entry.advice_id:
                    self._record.put(entry, features=own)

    def _in_time(
        self, placing: Sequence[HedgeEntry], seconds: float, place: Callable[[HedgeEntry], None]
    ) -> set[int]:
        """Call ``place`` for one entry after the other until time is up or Slurm fails; return the ids tried.

        The next round continues: jobs whose slot has come must not wait for hundreds of sbatch.
        """
        end = self._clock.monotonic() + seconds
        tried = set[int]()
        is_over = False

        def once(entry: HedgeEntry) -> None:
            nonlocal is_over
            if is_over or self._clock.monotonic() >= end:
                return
            tried.add(entry.job_id)
            try:
                place(entry)
            except AdvisorError as error:
                is_over = error.code in _ERRORS_FOR_ALL
                raise

        for_each(placing, once)
        return tried

    def _newcomers(self, snapshot: ClusterSnapshot) -> list[HedgeEntry]:
        """New entries for the hedged jobs in the burst partition that have none."""
        needed = jobs_others_wait_for(snapshot)
        found = []
        for queued in snapshot.jobs:
            job_id = queued.job.job_id
            if job_id in self._record:
                continue
            if queued.reason == "BeginTime":  # a slot before the time that its user named is of no use
                continue
            if queued.job.placeholder_for is not None:
                continue
            if queued.partitions != (self._settings.cluster.burst_partition,):
                continue
            advice = moved_by_us(queued)
            if advice is None or advice.hedge is None or queued.array_job_id != job_id or job_id in needed:
                continue
            if may_be_brought_back(queued.job, self._settings):
                found.append((queued, advice, advice.hedge))
        left = self._submits_left([queued.job for queued, *_ in found])
        return [self._new_entry(*one, left[one[0].job.job_id]) for one in found]

    def _new_entry(
        self, queued: QueuedJob, advice: RecordedAdvice, hedge: Hedge, submits_left: float
    ) -> HedgeEntry:
        home, is_small = home_of(advice, self._settings), advice.size == "small"
        has_place = submits_left >= PLACED_ABOVE and not self._may_preempt(queued.job, home)
        return HedgeEntry(
            job_id=queued.job.job_id,
            advice_id=advice.advice_id,
            kind=hedge.kind.value,
            submitted=queued.job.submit_time,
            stop_seconds=hedge.stop_seconds if hedge.stop_seconds < 1e9 else None,
            partition=home,
            limit_seconds=advice.users_limit(queued.job.requested_time),
            features=own_features(queued),
            site_factor=self._settings.size.small_priority_offset if is_small else 0,
            tries_after=0.0 if has_place else NEVER,
        )

    def _find_or_place(
        self, entry: HedgeEntry, snapshot: ClusterSnapshot, known: Sequence[QueuedJob]
    ) -> None:
        """Find the placeholder that was submitted before a crash, else submit one."""
        is_early = self._record.is_full or not self._may_try(entry)
        if not entry.is_shown(snapshot.time, self._clock.wall()) or (not known and is_early):
            return
        own = view_of(self._places, entry)
        if own is None or own.advice_id != entry.advice_id:
            return  # it has ended: the watch loop's `forget` drops the entry
        placeholder = submitted_for(entry, own, known)
        if placeholder:
            self._placed(entry, placeholder)
        elif self._may_try(entry):
            self._place(entry)

    def _may_try(self, entry: HedgeEntry) -> bool:
        """Whether a job is to have a placeholder, and half a minute has passed, or the clock was set back."""
        return has_place(entry) and not 0.0 < entry.tries_after - self._clock.wall() <= _RETRY_SECONDS

    def _place(self, entry: HedgeEntry) -> None:
        if self._record.is_full:
            return  # the watch loop keeps its stop nevertheless
        entry = self._tried(entry)
        wish = PlaceholderRequest(
            job_id=entry.job_id,
            partition=entry.partition,
            limit_seconds=entry.limit_seconds,
            held_seconds=self._settings.hedge.slot_held_seconds,
            features=entry.features,
            advice_id=entry.advice_id,
        )
        try:
            placeholder = self._places.reserve(wish)
        except AdvisorError:
            self._tried(entry)
            raise
        self._placed(entry, placeholder)

    def _tried(self, entry: HedgeEntry) -> HedgeEntry:
        # an sbatch without an answer in time may submit the job yet: the next polls show it
        now = self._clock.wall()
        return self._record.put(entry, acted=now, tries_after=now + _RETRY_SECONDS)

    def _placed(self, entry: HedgeEntry, placeholder: int) -> None:
        found = self._as_the_job(entry, placeholder)
        self._record.count("places_kept")
        self._record.put(entry, placeholder=placeholder, phase=Phase.OPEN, acted=self._clock.wall(), **found)
        log.info("hedge.placeholder_submitted", job=entry.job_id, placeholder=placeholder, kind=entry.kind)

    def _as_the_job(self, entry: HedgeEntry, placeholder: int) -> dict[str, Any]:
        """Give a new placeholder the job's priority and site factor; return the entry's fields for it."""
        view, own = self._places.place(placeholder, entry.job_id), self._places.view(entry.job_id)
        if view is None or own is None:
            return {}
        shape = shape_kept(view, own)
        if not view.is_pending:
            return shape
        if entry.site_factor or not self._places.knows_site_factors:
            self._places.raise_priority(placeholder, by=entry.site_factor, to=own.priority)
            view = self._places.place(placeholder, entry.job_id) or view
        late = max(0.0, view.submit_time - entry.submitted)
        return {**shape, "priority": view.priority, "delay_seconds": late}

    def make_up_for_delays(self) -> None:
        """Give placeholders the age that their jobs had at the placeholders' submission.

        This waits until slurmctld has recalculated priorities (PriorityCalcPeriod, minutes): before that,
        jobs submitted since the last recalculation have no age, and one second of age would put the
        placeholder before all of them.
        """
        late = [k for k in self._record.all() if k.phase is Phase.OPEN and k.delay_seconds > 0.0]
        for entry in sorted(late, key=lambda entry: entry.acted):
            points = self._places.age_points(entry.delay_seconds)
            place = self._places.place(entry.placeholder, entry.job_id) if points else None
            is_waiting = place is not None and place.is_pending
            if place is not None and is_waiting and place.priority == entry.priority:
                return  # priorities are not recalculated yet, for later placeholders neither
            if is_waiting:
                by = entry.site_factor + points
                self._places.raise_priority(entry.placeholder, by=by, to=None)
            self._record.put(entry, delay_seconds=0.0)

    # -------------------------------------------------------------------------------- announced

    def keep_announced(self) -> None:
        """Submit a placeholder for each announced job that is in the queue by now.

        An announced job without an entry has no placeholder from before a crash, so none is searched for.
        """
        awaited = self.awaited.due()
        if not awaited:
            return
        settled, left = set[str](), set[str]()
        began, answered = self._clock.monotonic(), None
        try:
            snapshot = self._poll_for(awaited)
            answered = self._clock.monotonic()
            newcomers = [entry for entry in self._newcomers(snapshot) if entry.tries_after < NEVER]
            tried = self._in_time(newcomers, _ANNOUNCED_SECONDS, self._place)
            left = {entry.advice_id for entry in newcomers if entry.job_id not in tried}
            settled = {
                advice.advice_id for job in snapshot.jobs if (advice := moved_by_us(job)) is not None
            } - left
        finally:
            ended = self._clock.monotonic() if answered is None else answered
            self.awaited.polled(ended - began, settled=settled, seen=left)

    def between(self) -> None:
        """:meth:`keep_announced` during other work; an error is logged, and the next round tries again."""
        try:
            self.keep_announced()
        except AdvisorError as error:
            log.warning("hedge.placeholder_not_submitted", code=error.code, message=str(error))

    def _poll_for(self, awaited: Iterable[Announced]) -> ClusterSnapshot:
        users = {job.uid for job in awaited}
        named = {uid for uid in users if uid is not None} if None not in users else ()
        time = self._clock.wall()
        jobs = self._places.submitted_by(named, self._settings.cluster.burst_partition)
        return ClusterSnapshot(time=time, jobs=jobs, nodes=())


def has_place(entry: HedgeEntry) -> bool:
    """Whether a job keeps its place here, or will; else only its stop holds."""
    return entry.tries_after < NEVER


def jobs_others_wait_for(snapshot: ClusterSnapshot) -> frozenset[int]:
    """Ids of jobs that other jobs may depend on: every number in a dependency, even one that is no id."""
    return frozenset(
        int(number)
        for queued in snapshot.jobs
        if queued.job.dependency
        for number in _JOB_ID.findall(queued.job.dependency[:100_000])
    )
