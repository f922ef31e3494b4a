"""The decision about a slice at its stop, and when its on-premise slot is available."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import structlog

from advisor.decide.hedge.hedge_offer import ENDING_SECONDS
from advisor.decide.price.period_budget import usd_for_shorter
from advisor.decide.price.slices import CloudOffer, Slice, best_slice, forget_below
from advisor.decide.promise.chances import ended_of
from advisor.decide.promise.price_list import comes_back
from advisor.decide.submission.capacity import usd_per_second
from advisor.model.advice import Capacity
from advisor.model.deadline import deadline_for
from advisor.model.errors import RetryLater
from advisor.model.job import NO_LIMIT_SECONDS, Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.model.snapshot import QueuedJob
from advisor.predict.promised.levels import Kind
from advisor.service.learn.on_premise_equivalents import on_premise_job
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.observation.poll_view import SharedView
from advisor.service.price.price_keeper import PriceKeeper
from advisor.service.price.queue_view import forecast_waits, on_premise_queue
from advisor.service.price.valuing import AskSlowdown, RunChances

log = structlog.get_logger(__name__)

_MOMENT = 1e-3  # seconds
_FREE_USD_PER_SECOND = 1e-12


class Slices:
    """Asks the price again about jobs that run in the cloud and keep a place on-premise.

    Args:
        keeper: The price and the tokens.
        chances: Forecasts of run times.
        slowdown: s(c) of a queued job.
        cloud: The cloud as the last poll has seen it.
        strain: How often promises to jobs like this one are broken of late, 0 to 1.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        view: SharedView,
        keeper: PriceKeeper,
        chances: RunChances,
        slowdown: AskSlowdown,
        cloud: Callable[[], CloudState],
        strain: Callable[[Job], float],
    ) -> None:
        self._settings = settings
        self._view = view
        self._keeper = keeper
        self._chances = chances
        self._slowdown = slowdown
        self._cloud = cloud
        self._strain = strain
        self._waits: tuple[float, Mapping[int, float]] = (-math.inf, {})

    def next_stop(self, queued: QueuedJob, elapsed_seconds: float, placeholder: int) -> float | None:
        """The stop of a job's next slice, seconds in the cloud from its start there; None: it comes back.

        Args:
            queued: The job, which runs in the cloud and has reached its stop.
            elapsed_seconds: The time that it has run there.
            placeholder: The job that keeps its place; 0: none, and it would begin at the queue's end.
        """
        waits = self._forecast()
        wait = waits.get(placeholder, max(waits.values(), default=0.0) if not placeholder else 0.0)
        best = self._best(queued, elapsed_seconds, wait, is_whole=False)
        if not self._is_worth(queued, best, elapsed_seconds):
            return None
        stop = self._slowdown(queued) * best.stop
        if self._is_covered(queued, stop - elapsed_seconds):
            return stop
        usd = usd_for_shorter(self._keeper.current, queued.job.payers)
        longest = usd / self._usd_per_second(queued) - ENDING_SECONDS
        best = self._best(queued, elapsed_seconds, wait, is_whole=False, longest=longest - _MOMENT)
        stop = self._slowdown(queued) * best.stop
        is_bought = self._reaches_price(queued, best) and self._is_covered(queued, stop - elapsed_seconds)
        return stop if is_bought else None

    def stays(self, queued: QueuedJob, elapsed_seconds: float) -> bool:
        """Whether a job whose turn on-premise has come runs to its end in the cloud instead."""
        deadline = deadline_for(queued.job, self._settings)
        if deadline is not None:
            return not self._promise_allows_return(queued, elapsed_seconds, deadline)
        best = self._best(queued, elapsed_seconds, 0.0, is_whole=True)
        limit = queued.job.requested_time
        left = NO_LIMIT_SECONDS if limit is None else max(0.0, limit - elapsed_seconds)
        return self._is_worth(queued, best, elapsed_seconds) and self._is_covered(queued, left)

    def _promise_allows_return(self, queued: QueuedJob, elapsed_seconds: float, deadline: float) -> bool:
        here = on_premise_job(queued, self._settings).job
        return comes_back(
            ended_of(self._chances.chances(here)),
            limit=NO_LIMIT_SECONDS if here.requested_time is None else here.requested_time,
            slowdown=self._slowdown(queued),
            left=deadline - self._view.fresh().time,
            elapsed=elapsed_seconds,
            boot_left=0.0,
            strain=self._strain(here),
            kind=Kind.BETWEEN,
        )

    def _best(
        self,
        queued: QueuedJob,
        elapsed_seconds: float,
        wait: float,
        *,
        is_whole: bool,
        longest: float = math.inf,
    ) -> Slice:
        here = on_premise_job(queued, self._settings).job
        slowdown = self._slowdown(queued)
        elapsed = elapsed_seconds / slowdown
        chances = self._chances.chances(here)
        forget_below(chances, self._chances.edges, elapsed)
        return best_slice(
            chances,
            self._chances.edges,
            limit=NO_LIMIT_SECONDS if here.requested_time is None else here.requested_time,
            elapsed=elapsed,
            wait=wait,
            offer=CloudOffer(
                start_seconds=0.0,
                slowdown=slowdown,
                cost_per_second=self._usd_per_second(queued),
                paid_start_seconds=0.0,
                is_whole=is_whole,
            ),
            loss_weight=self._settings.price.loss_weight,
            longest=longest / slowdown,
        )

    def _is_worth(self, queued: QueuedJob, best: Slice, elapsed_seconds: float) -> bool:
        """Whether the best slice is worth its price; it is demand in either case."""
        key = f"{queued.job.job_id}@{queued.job.submit_time:.0f}+{elapsed_seconds:.0f}"
        self._keeper.note(key, index=best.value, usd=best.cost, now=self._view.fresh().time)
        return self._reaches_price(queued, best)

    def _reaches_price(self, queued: QueuedJob, best: Slice) -> bool:
        price = self._keeper.current
        return price is not None and best.value > 0.0 and best.value >= price.seconds_of(queued.job.payers)

    def _is_covered(self, queued: QueuedJob, more_seconds: float) -> bool:
        """Whether the worst case of a slice is there; its tokens are then committed."""
        worst = self._usd_per_second(queued) * (more_seconds + ENDING_SECONDS)
        price = self._keeper.current
        if price is None or worst > price.tokens_of(queued.job.payers)[0]:
            log.info("price.slice_not_covered", job=queued.job.job_id, usd=round(worst, 4))
            return False
        self._keeper.commit(worst, queued.job.payers)
        return True

    def _usd_per_second(self, queued: QueuedJob) -> float:
        cloud, moved = self._cloud().for_job(queued.job), moved_by_us(queued)
        named = moved.capacity if moved is not None else None
        capacity = Capacity(named) if named in set(Capacity) else Capacity.ON_DEMAND
        return max(usd_per_second(queued.job, capacity, cloud, self._settings), _FREE_USD_PER_SECOND)

    def _forecast(self) -> Mapping[int, float]:
        """Forecast waits by job id, once for each poll; empty where no poll is fresh."""
        try:
            snapshot = self._view.fresh()
        except RetryLater:
            return {}
        if snapshot.time != self._waits[0]:
            queue = on_premise_queue(snapshot, self._settings)
            waits = forecast_waits(queue)
            found = {q.job.job_id: float(wait) for q, wait in zip(queue.waiting, waits, strict=True)}
            self._waits = snapshot.time, found
        return self._waits[1]
