"""The hot path: make an advice of a request and a reply of the advice, in memory only.

Nothing here reads a file, starts a program or asks a name service: slurmctld holds its locks until the reply
is there.
"""

from __future__ import annotations

import itertools
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from advisor.decide.explanation import reply_texts, wording
from advisor.decide.explanation.promise_words import promise_message
from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.advise import advise, priority_offset, tells_user
from advisor.decide.submission.published_policies import AT_ONCE_SECONDS
from advisor.decide.submission.rules import deadline_for
from advisor.history.records import AdviceRecord
from advisor.model.advice import Advice, Mode
from advisor.model.estimate import NO_SIZE, Estimate, Estimates, SizeEstimate
from advisor.model.job import Job
from advisor.model.job_words import MAX_CONSTRAINT
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState
from advisor.predict.run_times.run_times import priced_estimates
from advisor.service.exchange.protocol import VERSION, AdviseReply, AdviseRequest, AgainRequest
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.submit.recent import QueueForecast, QueueLevels, RecentSubmissions, Submission
from advisor.service.submit.state_holder import KnownNow, StateHolder
from advisor.service.submit.submission import job_of, submission_of

log = structlog.get_logger(__name__)

_ACT: Final = Mode.ACT
_AT_ONCE: Final = Estimate(seconds=0.0, variance=0.0, lower=0.0, upper=0.0, coverage=1.0)


class Answered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer: the content of the reply, the record for the ledger, and the job's effect on the site."""

    reply: AdviseReply
    record: AdviceRecord
    submission: Submission


class Answerer:
    """Answers one request at a time.

    The lock makes the account of recent submissions exact. Two answers at once would gain nothing, since a
    mutex of slurmctld lets one hook run at a time.

    Args:
        clock: Seconds since the epoch.
    """

    def __init__(self, holder: StateHolder, *, clock: Callable[[], float] = time.time) -> None:
        self._holder = holder
        self._clock = clock
        self._lock = holder.lock
        self._recent = RecentSubmissions()
        self._recent_base: Snapshot | None = None
        holder.make_ready = self._make_ready
        self._uncounted: list[Submission] = []
        # unique across restarts: start time, a random part, a counter
        self._id_prefix = f"{int(clock()):x}-{secrets.token_hex(3)}-"
        self._ids = itertools.count(1)
        self.estimator_errors = 0

    @property
    def lock(self) -> threading.Lock:
        """The lock that is held during an answer; the watchdog acquires it to check that answers end."""
        return self._lock

    def answer(self, request: AdviseRequest) -> Answered:
        """Advise one submission; unless it is dry, it counts as submitted for whatever is asked next."""
        with self._lock:
            knowledge = self._holder.current
            self._count()
            now = self._clock()
            state = self._site_state(knowledge, now, request.configured_at)
            job = self._job(request, knowledge, now).with_whole_memory(state.node_memory_mb)
            estimates = self._estimates(knowledge, job, state)
            answered = self._answered(request, knowledge, state, job, estimates)
            if not request.dry:
                self._uncounted.append(answered.submission)
        return answered

    def count(self) -> None:
        """Add jobs that were advised to the account of the site, which the next answer would do first.

        This takes a sixth of an answer's time, so the server does it once the answer is sent.
        """
        with self._lock:
            self._count()

    def _count(self) -> None:
        advised, self._uncounted = self._uncounted, []  # first: an error must not return with each answer
        for submission in advised:
            try:
                self._recent.add(submission)
            except Exception:
                log.exception("submission.not_counted")

    def again(self, request: AgainRequest) -> Answered:
        """Advise a job that waits on-premise. If it is moved, it counts like every moved job.

        A job without advice counts as submitted at this moment, because snapshots leave out such jobs
        (`advisor.service.waiting.unadvised`).
        """
        with self._lock:
            knowledge, job = self._holder.current, request.job
            self._count()
            now = self._clock()
            if request.is_new:
                return self._submitted(request, knowledge, replace(job, job_id=0, submit_time=now), now)
            # a feature that slurm.conf has dropped meanwhile is refused by slurmctld, and the job stays
            state = _without(job, self._site_state(knowledge, now, None))
            # its own constraint is named anew by what is preferred or required (`_node_features`)
            asked = _asked_of(request)
            waits = request.wait_seconds, request.planned_wait_seconds
            estimates = self._estimates_again(knowledge, job, state, waits)
            answered = self._answered(asked, knowledge, state, job, estimates)
            if answered.reply.partition is not None:
                self._recent.add(answered.submission)
        return answered

    def _submitted(self, request: AgainRequest, knowledge: KnownNow, job: Job, now: float) -> Answered:
        state = self._site_state(knowledge, now, None)
        job = job.with_whole_memory(state.node_memory_mb)
        estimates = self._estimates(knowledge, job, state)
        answered = self._answered(_asked_of(request), knowledge, state, job, estimates)
        if answered.reply.reason != Reason.STATE_UNKNOWN:  # advice is asked about it again
            self._recent.add(answered.submission)
        return answered

    def _priced(
        self,
        knowledge: KnownNow,
        job: Job,
        size: SizeEstimate,
        wait: float | None,
        alike: int = 0,
        planned_wait: float | None = None,
    ) -> Estimates:
        return priced_estimates(
            self._holder.run_times.current,
            job,
            wait,
            size,
            planned_wait=planned_wait,
            promised_jobs=None if deadline_for(job, knowledge.settings) is None else alike,
        )

    def _estimates_again(
        self, knowledge: KnownNow, job: Job, state: SiteState, waits: tuple[float | None, float | None]
    ) -> Estimates:
        """``waits``: the forecast and the planned one, see :class:`AgainRequest`."""
        if knowledge.settings.cluster.policy == "price":
            wait, planned = waits
            return self._priced(knowledge, job, _size_of(job, knowledge), wait, planned_wait=planned)
        return self._estimates(knowledge, replace(job, submit_time=state.time), state, waits=True)

    def _answered(
        self, request: AdviseRequest, knowledge: KnownNow, state: SiteState, job: Job, estimates: Estimates
    ) -> Answered:
        advice_id = f"{self._id_prefix}{next(self._ids):x}"
        there = state.cloud.as_there(job)
        cloud = state.cloud.for_job(there)  # once for the advice, the reply and the account of submissions
        if cloud is not state.cloud:
            state = replace(state, cloud=cloud)
        advice = advise(there, state, estimates, knowledge.settings, advice_id=advice_id)
        values = advice.values()
        return Answered(
            reply=reply_to(request, there, advice, values, cloud, knowledge.settings, estimates.wait),
            # the ledger stores the quantiles, which hold the same information in a third of the space
            record=AdviceRecord(
                advice=advice, job=job, estimates=replace(estimates, run_chances=(), promise=None)
            ),
            submission=submission_of(job, advice, values, estimates, cloud, knowledge.settings),
        )

    def _site_state(self, knowledge: KnownNow, now: float, configured_at: int | None) -> SiteState:
        snapshot = knowledge.snapshot
        if snapshot is not self._recent_base:
            self._recent_base = snapshot
            queue = None if snapshot is None else self._queue_of(snapshot, knowledge.starts)
            self._recent.rebase(None if snapshot is None else snapshot.state, queue)
        # the price looks at the queue, the published rules' k-NN at the cluster
        state = self._recent.state(now, ages=knowledge.settings.cluster.policy != "price")
        if is_believable(snapshot, now, knowledge.settings) and not is_outdated(snapshot, configured_at):
            return state
        return SiteState(time=now, cluster=None, cloud=state.cloud)

    def _queue_of(self, snapshot: Snapshot, starts: Sequence[QueueLevels]) -> QueueForecast | None:
        offset = self._holder.current.settings.size.small_priority_offset
        return QueueForecast(snapshot.queues, starts, snapshot.first_priorities, offset) if starts else None

    def _make_ready(self, snapshot: Snapshot, starts: Sequence[QueueLevels]) -> Callable[[], None]:
        """Count the recent submissions on a new snapshot, beside the answers.

        At 30 a second, and with 12,000 jobs that wait, this takes up to a second.
        """
        with self._lock:
            following, number = RecentSubmissions(self._recent.since), self._recent.added
        following.rebase(snapshot.state, self._queue_of(snapshot, starts))

        def use() -> None:
            missed = self._recent.added - number
            for submission in self._recent.since[-missed:] if missed else ():
                following.add(submission)
            self._recent, self._recent_base = following, snapshot

        return use

    def _job(self, request: AdviseRequest, knowledge: KnownNow, now: float) -> Job:
        if request.gid is not None and request.gid not in knowledge.group_names:
            self._holder.want_group(request.gid)
        return job_of(
            request,
            now=now,
            default_queue=knowledge.settings.cluster.on_premise_partitions[0],
            group_names=knowledge.group_names,
            is_slurm=knowledge.settings.cluster.scheduler == "slurm",
        )

    def _estimates(
        self, knowledge: KnownNow, job: Job, state: SiteState, *, waits: bool = False
    ) -> Estimates:
        """Forecast wait and run time. ``waits``: True if slurmctld could not start the job so far."""
        if state.cluster is None:
            return Estimates()
        try:
            queue = self._recent.queue
            if knowledge.settings.cluster.policy == "price":
                alike = state.promised_jobs.get(job.user or "", 0)
                size = _size_of(job, knowledge)
                if queue is None:
                    return self._priced(knowledge, job, size, None, alike)
                is_small = priority_offset(job, size, knowledge.settings) > 0
                wait, planned = queue.waits(job, state.time, is_small=is_small)
                return self._priced(knowledge, job, size, wait, alike, planned)
            if knowledge.model is None or knowledge.model.estimator is None:
                return Estimates()
            found = knowledge.model.estimator.estimate(job, state.cluster)
            if waits or queue is None or queue.waits(job, state.time)[1] > AT_ONCE_SECONDS:
                return found
            return replace(found, wait=_AT_ONCE)
        except Exception:  # noqa: BLE001 - doubt means on-premise; counted, and shown by doctor and metrics
            self.estimator_errors += 1
            return Estimates()


def _asked_of(request: AgainRequest) -> AdviseRequest:
    return AdviseRequest(v=VERSION, seq=request.seq, features="&".join(request.job.features) or None)


def _size_of(job: Job, knowledge: KnownNow) -> SizeEstimate:
    model = knowledge.model
    if model is None or model.size is None:
        return NO_SIZE
    return model.size.classify(job, knowledge.settings.size.probability_cut)


def _without(job: Job, state: SiteState) -> SiteState:
    """The state of the site without a job that waits on-premise."""
    return state if state.cluster is None else replace(state, cluster=state.cluster.without(job))


def is_believable(snapshot: Snapshot | None, now: float, settings: Settings) -> bool:
    """Whether a snapshot is young enough; one from the future (the clock was set back) is not believed."""
    return snapshot is not None and abs(now - snapshot.state.time) <= settings.submit.snapshot_max_age_seconds


def is_outdated(snapshot: Snapshot | None, configured_at: int | None) -> bool:
    """Whether slurmctld was reconfigured after the snapshot, so that features in it may no longer exist."""
    return snapshot is not None and configured_at is not None and snapshot.state.time < configured_at


def starts_hedged(advice: Advice) -> bool:
    """Whether an advised job will start in the cloud and keep its place on-premise."""
    return advice.hedge is not None and advice.partition is not None and advice.mode is _ACT


def reply_to(
    request: AdviseRequest,
    job: Job,
    advice: Advice,
    values: Mapping[str, float],
    cloud: CloudState,
    settings: Settings,
    wait: Estimate,
) -> AdviseReply:
    """The fields that the hook sets; in shadow mode only the AdminComment, which identifies the advice."""
    features, prefer = _node_features(request, job, advice, cloud)
    acts = advice.mode is _ACT
    offset = advice.priority_offset if acts else 0
    partition = advice.partition if acts else None
    limit = advice.time_limit if partition is not None else None
    message = None
    if partition is not None and settings.submit.tell_user:
        word = settings.rules.opt_out_comment
        message = reply_texts.message(advice, opt_out_comment=word, values=values, tasks=job.array_tasks)
    elif not acts and settings.submit.tell_user and tells_user(job, settings):
        message = wording.would_message(advice, job, settings.cluster)
    if job.comment and "=" in job.comment and acts and settings.submit.tell_user:
        promised = promise_message(job, advice, values, settings, message)
        message = wording.with_unread_data(promised or message, advice)
        message = wording.with_unread_checkpoint(message, job.comment)
    return AdviseReply(
        v=VERSION,
        seq=request.seq,
        id=advice.advice_id,
        placement=advice.placement,
        mode=advice.mode,
        reason=advice.decisive.reason,
        # the hook sets features only together with the partition whose nodes have them
        partition=partition or (settings.cluster.burst_partition if features or prefer else None),
        features=features,
        prefer=prefer,
        # raising a priority is the site's to do (site factor); lowering it is what any user may (nice)
        site_factor=offset if offset > 0 else None,
        nice=-offset if offset < 0 else None,
        admin_comment=reply_texts.admin_comment(advice, values=values, wait=wait),
        message=message,
        time_limit=None if limit is None else math.ceil(limit.given_seconds / 60.0),
    )


def _node_features(
    request: AdviseRequest, job: Job, advice: Advice, cloud: CloudState
) -> tuple[str | None, str | None]:
    """``(features, prefer)`` for a moved job, and for a long one that its user sent to the cloud.

    slurmctld rejects a job that names, or prefers, a feature of fewer nodes than it needs, so no other is
    named. A job that may not be requeued gets a hard constraint, for a preference could still end on spot.
    Where Slurm can satisfy ``prefer`` it uses it *instead of* the constraint, so the user's own is repeated
    in it; where the user's is more than a plain conjunction, or long, nothing is added to it (`is_plain`;
    a job that may not be requeued stays here then). An array gets no preference: slurmctld (22.05) never
    starts a task that prefers what no node of its partition has, as after a return on-premise.
    """
    if not (job.plain_constraint and (advice.prefer or advice.require)):
        return None, None
    own = (request.features,) if request.features else ()
    if advice.require:
        return "&".join((*own, *advice.require)), None
    if request.array or job.array_tasks > 1:
        return None, None
    needed = cloud.nodes_at_most(job)
    wanted = [feature for feature in advice.prefer if cloud.nodes_with.get(feature, 0.0) >= needed]
    prefer = "&".join((*own, *wanted)) if wanted else ""
    return None, prefer if 0 < len(prefer) <= MAX_CONSTRAINT else None
