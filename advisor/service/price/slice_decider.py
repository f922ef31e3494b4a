"""The decision about a slice at its stop, and when its on-premise slot is available: the watch loop asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import structlog
from msgspec.structs import replace

from advisor.decide.price.slices import CloudOffer, Slice, best_slice, forget_below, usd_for_shorter
from advisor.decide.promise.chances import ended_of, mean_run
from advisor.decide.promise.price_list import comes_back
from advisor.decide.promise.promised import leaves_time, may_start_anew
from advisor.decide.submission.capacity import choose, seconds_lost, wait_and_boot
from advisor.decide.submission.cloud_terms import Start, most_usd_per_second, start_of, usd_per_second
from advisor.decide.submission.rules import deadline_for, may_move
from advisor.model.advice import ENDING_SECONDS, Capacity, Mode, Verdict
from advisor.model.job import NO_LIMIT_SECONDS, Job, limit_seconds
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.predict.promised.levels import Kind
from advisor.predict.run_times.grid import GRID
from advisor.service.learn.on_premise_equivalents import on_premise_job
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.work_kept import WorkKept
from advisor.service.price.price_keeper import PriceKeeper
from advisor.service.price.queue_view import AskRuns, forecast_waits, on_premise_queue
from advisor.service.price.valuing import AskChances, AskSlowdown

log = structlog.get_logger(__name__)

_MOMENT = 1e-3  # seconds
_NOW_SECONDS = 1.0
"""A job that is forecast to wait less starts at once."""
_FREE_USD_PER_SECOND = 1e-12
_VAIN_SHARE = 1.0 / 6.0
"""Share of a run on-demand that a start on spot in vain may cost.

Tries twice as often, or half as often, cost about as much (docs/measurements.md, "Back to spot")."""
_WORTH = 2.0
"""A start on spot must save this multiple of what it loses, on-demand."""


class Slices:
    """Asks the price again about jobs that run in the cloud and keep a place on-premise.

    Args:
        strain: How often promises to jobs like this one are broken of late, 0 to 1.
        kept: What earlier runs of jobs with checkpoints have kept.
        fallen_back: Partitions whose jobs stay on-premise because their forecasts do not hold.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        view: SharedView,
        keeper: PriceKeeper,
        chances: AskChances,
        slowdown: AskSlowdown,
        cloud: Callable[[], CloudState],
        strain: Callable[[Job], float],
        kept: WorkKept,
        runs: AskRuns,
        fallen_back: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._settings = settings
        self._view = view
        self._keeper = keeper
        self._chances = chances
        self._slowdown = slowdown
        self._cloud = cloud
        self._strain = strain
        self._kept = kept
        self._runs = runs
        self._fallen_back = fallen_back
        self._waits: tuple[float, Mapping[int, float]] = (-math.inf, {})

    def see(self, snapshot: ClusterSnapshot) -> None:
        """Take in a poll: how far the runs of jobs with checkpoints have got."""
        self._kept.see(snapshot.jobs, snapshot.time)

    def next_stop(self, queued: QueuedJob, elapsed_seconds: float, placeholder: int) -> float | None:
        """The stop of a job's next slice, seconds in the cloud from its start there; None: it comes back.

        Args:
            queued: The job, which runs in the cloud and has reached its stop.
            placeholder: The job that keeps its place; 0: none, and it would begin at the queue's end.
        """
        waits = self._forecast()
        wait = waits.get(placeholder, max(waits.values(), default=0.0) if not placeholder else 0.0)
        return self._stop(queued, elapsed_seconds, wait)

    def another_stop(self, queued: QueuedJob, ran_seconds: float) -> float | None:
        """The stop of a further run of a job that has come back, as :meth:`next_stop`; None: it waits here.

        Args:
            ran_seconds: The time that it has run in the cloud: it is known to need longer.
        """
        job, wait = queued.job, self._forecast().get(queued.job.job_id, 0.0)
        cloud = self._cloud().for_job(job)
        moves = self._settings.cluster.mode_of(job.queue) in {Mode.ACT, Mode.OPT_IN}
        if wait <= _NOW_SECONDS or not moves or (job.queue or "") in self._fallen_back():
            return None
        if may_move(job, cloud, self._settings).verdict is not Verdict.YES:
            return None
        now = self._view.fresh().time
        capacity = choose(job, ran_seconds, cloud, self._settings, now)[0]
        if capacity is None:
            return None
        wait_there, boots = wait_and_boot(job, ran_seconds, cloud, self._settings, now)
        start = start_of(job, cloud, self._settings, boots=boots)
        # a wait there costs time and no money, as a shorter wait here would
        return self._stop(queued, ran_seconds, wait - wait_there, start, capacity)

    def _stop(
        self,
        queued: QueuedJob,
        ran_seconds: float,
        wait: float,
        start: Start | None = None,
        capacity: Capacity | None = None,
    ) -> float | None:
        """The stop of the best slice that is worth the price, or of a shorter one that is covered.

        Args:
            start: How a run begins anew that has come to its end after ``ran_seconds``; None: it goes on.
            capacity: What its next node would be now; None: as it was advised.
        """
        elapsed, begins = (ran_seconds, Start(0.0)) if start is None else (0.0, start)
        slowdown, before = self._slowdown(queued), self._kept.of(queued)
        usd_per_second = self._usd_per_second(queued, capacity)
        # what its data's transfer costs counts as if it were time as well
        paid_start = begins.seconds + begins.usd / usd_per_second

        def best_of(longest: float = math.inf) -> Slice:
            terms = CloudOffer(
                start_seconds=begins.seconds,
                slowdown=slowdown,
                cost_per_second=usd_per_second,
                paid_start_seconds=paid_start,
                is_whole=False,
                checkpoint_seconds=queued.job.at_risk_seconds,
            )
            return self._best(queued, terms, ran_seconds, elapsed, wait, longest)

        def stop_of(best: Slice) -> float:
            """Seconds in the cloud from the start of this run."""
            return slowdown * (best.stop - before)

        best = best_of()
        if not self._is_worth(queued, best, ran_seconds):
            return None
        # a node that is up has its price; one that is to be launched may have to be on-demand
        most = usd_per_second if start is None else self._usd_per_second(queued, capacity, at_worst=True)
        stop = stop_of(best)
        if self._is_covered(queued, most * (paid_start + stop - elapsed + ENDING_SECONDS)):
            return stop
        usd = usd_for_shorter(self._keeper.current, queued.job.payers)
        best = best_of(usd / most - ENDING_SECONDS - paid_start - _MOMENT)
        stop = stop_of(best)
        worst = most * (paid_start + stop - elapsed + ENDING_SECONDS)
        return stop if self._reaches_price(queued, best) and self._is_covered(queued, worst) else None

    def stays(
        self,
        queued: QueuedJob,
        elapsed_seconds: float,
        held_seconds: float = 0.0,
        ran_seconds: float = 0.0,
    ) -> bool:
        """Whether a job whose slot on-premise has come runs to its end in the cloud instead.

        ``held_seconds`` are those to come for which the money is held already: the rest of its slice.
        ``ran_seconds`` are those of an earlier run in the cloud, which did not end it.
        """
        deadline = self._deadline_of(queued)
        if deadline is not None:
            return not self._promise_allows_return(queued, elapsed_seconds, deadline)
        usd_per_second = self._usd_per_second(queued)
        at_risk = queued.job.at_risk_seconds
        offer = CloudOffer(0.0, self._slowdown(queued), usd_per_second, 0.0, True, at_risk)
        best = self._best(queued, offer, max(elapsed_seconds, ran_seconds), elapsed_seconds, 0.0)
        limit = queued.job.requested_time
        left = NO_LIMIT_SECONDS if limit is None else max(0.0, limit - elapsed_seconds)
        worst = usd_per_second * (max(0.0, left - held_seconds) + ENDING_SECONDS)
        return self._is_worth(queued, best, elapsed_seconds) and self._is_covered(queued, worst)

    def _promise_allows_return(self, queued: QueuedJob, elapsed_seconds: float, deadline: float) -> bool:
        here, slowdown = on_premise_job(queued, self._settings).job, self._slowdown(queued)
        before = self._kept.of(queued)
        return comes_back(
            ended_of(self._chances(here)),
            limit=_limit_after(before, here),
            slowdown=slowdown,
            left=deadline - self._view.fresh().time,
            elapsed=elapsed_seconds + slowdown * before,
            boot_left=0.0,
            strain=self._strain(here),
            kind=Kind.BETWEEN,
            kept=self._kept.of(queued, elapsed_seconds),
        )

    def leaves_time_for_loss(self, queued: QueuedJob) -> bool:
        """Whether a job that has lost a spot instance may start on spot again (:func:`leaves_time`).

        True for a job that is promised nothing.
        """
        deadline = self._deadline_of(queued)
        if deadline is None:
            return True
        here = on_premise_job(queued, self._settings).job
        return leaves_time(
            here,
            ended_of(self._chances(here)),
            left=deadline - self._view.fresh().time,
            kept=self._kept.of(queued),
            slowdown=self._slowdown(queued),
            cloud=self._cloud().for_job(queued.job),
            settings=self._settings,
        )

    def goes_back_to_spot(self, queued: QueuedJob, elapsed_seconds: float) -> bool:
        """Whether a job that runs on-demand is requeued, so that its next node may be spot.

        A new start loses at most what has run since the last checkpoint, and the boot. Spot may have no room
        still: that must not cost more than `_VAIN_SHARE` of what has run since the last start. The rest of
        the run must save twice that, a promise must leave time for the start, and for one more, and its whole
        new run must be covered: without money for its next node it would lose the one that it has.
        """
        here = on_premise_job(queued, self._settings).job
        cloud, slowdown = self._cloud().for_job(queued.job), self._slowdown(queued)
        begins = start_of(here, cloud, self._settings)
        lost = seconds_lost(queued.job, begins.seconds)
        if lost > _VAIN_SHARE * elapsed_seconds:
            return False
        chances = self._chances(here)
        done = self._kept.of(queued) + elapsed_seconds / slowdown
        forget_below(chances, GRID, done)
        rest = slowdown * max(0.0, mean_run(ended_of(chances), _limit_after(done, here)) - done)
        spot, on_demand = (
            usd_per_second(queued.job, one, cloud, self._settings)
            for one in (Capacity.SPOT, Capacity.ON_DEMAND)
        )
        if on_demand * (rest - _WORTH * lost) <= spot * (rest + lost):
            return False
        now, deadline = self._view.fresh().time, self._deadline_of(queued)
        if choose(queued.job, rest, cloud, self._settings, now)[0] is not Capacity.SPOT:
            return False
        is_in_time = deadline is None or may_start_anew(
            ended_of(chances),
            left=deadline - now,
            done=done,
            slowdown=slowdown,
            lost=lost,
            confidence=self._settings.promise.confidence,
        )
        longest = begins.seconds + limit_seconds(queued.job) + ENDING_SECONDS
        return is_in_time and self._is_covered(queued, on_demand * longest + begins.usd)

    def _deadline_of(self, queued: QueuedJob) -> float | None:
        """When a job is to be done; its time counts from its first submission."""
        job = replace(queued.job, submit_time=self._kept.submitted(queued))
        return deadline_for(job, self._settings)

    def _best(
        self,
        queued: QueuedJob,
        offer: CloudOffer,
        ran_seconds: float,
        elapsed: float,
        wait: float,
        longest: float = math.inf,
    ) -> Slice:
        here, before = on_premise_job(queued, self._settings).job, self._kept.of(queued)
        done, limit = before + elapsed / offer.slowdown, _limit_after(before, here)
        if done >= limit - _MOMENT:  # it is slower there than was forecast, for which its limit was raised
            limit = max(limit, before + limit_seconds(queued.job) / offer.slowdown)
        chances = self._chances(here)
        forget_below(chances, GRID, max(ran_seconds / offer.slowdown, done))
        return best_slice(
            chances,
            GRID,
            limit=limit,
            elapsed=done,
            wait=wait,
            offer=offer,
            loss_weight=self._settings.price.loss_weight,
            longest=longest / offer.slowdown,
        )

    def _is_worth(self, queued: QueuedJob, best: Slice, ran_seconds: float) -> bool:
        """Whether the best slice is worth its price; it is demand in either case."""
        key = f"{queued.job.job_id}@{queued.job.submit_time:.0f}+{ran_seconds:.0f}"
        self._keeper.note(key, index=best.value, usd=best.cost, now=self._view.fresh().time)
        return self._reaches_price(queued, best)

    def _reaches_price(self, queued: QueuedJob, best: Slice) -> bool:
        price = self._keeper.current
        return price is not None and best.value > 0.0 and best.value >= price.seconds_of(queued.job.payers)

    def _is_covered(self, queued: QueuedJob, worst: float) -> bool:
        """Whether the worst case of a slice is there, US dollars; its tokens are then committed."""
        price = self._keeper.current
        if price is None or worst > price.tokens_of(queued.job.payers)[0]:
            log.info("price.slice_not_covered", job=queued.job.job_id, usd=round(worst, 4))
            return False
        self._keeper.commit(worst, queued.job.payers)
        return True

    def _usd_per_second(
        self,
        queued: QueuedJob,
        capacity: Capacity | None = None,
        *,
        at_worst: bool = False,
    ) -> float:
        cloud, moved = self._cloud().for_job(queued.job), moved_by_us(queued)
        named = moved.capacity if moved is not None else None
        advised = Capacity(named) if named in set(Capacity) else Capacity.ON_DEMAND
        # its next node is launched as advised, or as what there is now instead
        found = _FREE_USD_PER_SECOND
        for one in {advised, capacity or advised}:
            terms = (queued.job, one, cloud, self._settings)
            usd = usd_per_second(*terms)
            found = max(found, most_usd_per_second(usd, *terms) if at_worst else usd)
        return found

    def _forecast(self) -> Mapping[int, float]:
        """Forecast waits by job id, once for each poll; empty where no poll is fresh."""
        snapshot = self._view.if_fresh()
        if snapshot is None:
            return {}
        if snapshot.time != self._waits[0]:
            queue = on_premise_queue(snapshot, self._settings)
            self._waits = snapshot.time, forecast_waits(queue, self._runs)
        return self._waits[1]


def _limit_after(before: float, here: Job) -> float:
    """The run time at which a job is ended, seconds: slurmctld counts each run by itself.

    Args:
        before: What it does not run again.
    """
    return before + (NO_LIMIT_SECONDS if here.requested_time is None else here.requested_time)
