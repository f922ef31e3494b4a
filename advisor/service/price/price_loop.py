"""The loop that moves waiting jobs by the one price, the jobs that save most for a dollar first.

New jobs are valued at the next poll; all that wait, every ten minutes and when the queue has changed much. A
job that is worth its price is asked about at the submit server, whose advice moves it
(`advisor.service.waiting.moving`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog
from msgspec import structs

from advisor.decide.price.demand_price import DemandKept
from advisor.decide.price.slices import usd_for_shorter
from advisor.decide.submission.rules import deadline_for
from advisor.model.errors import RetryLater
from advisor.model.machine import Machine
from advisor.model.settings import Settings
from advisor.model.site import CloudState, SiteState
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.reserved_nodes import Reserved
from advisor.service.price.price_keeper import PriceKeeper
from advisor.service.price.queue_view import (
    AskRuns,
    OnPremiseQueue,
    forecast_waits,
    on_premise_queue,
)
from advisor.service.price.slice_decider import Slices
from advisor.service.price.valuing import Valued, Valuer
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges, Poll
from advisor.service.running.loops import LoopRunner, Step
from advisor.service.waiting.asking import Asking
from advisor.service.waiting.candidates import may_be_asked
from advisor.service.waiting.queue_change import MIN_SECONDS, QueueChange

log = structlog.get_logger(__name__)

PERIOD_SECONDS: Final = 600.0
"""Between two valuations of a job that waits."""
_MAX_ASKED: Final = 100
"""Jobs asked about in a round: each takes about 0.3 ms of the submit server."""


class PriceLoop(Feature):
    """Keeps the price, publishes it, values waiting jobs and moves the best.

    Args:
        keeper: The price and the tokens; it is told what demand is seen.
        slices: It decides about jobs that have moved, and is told of each poll.
        rehearse: Rehearses the site's last weeks for the first price; returns None where it cannot yet.
    """

    name = "price"
    steering = (name,)

    def __init__(
        self,
        settings: Settings,
        *,
        view: SharedView,
        keeper: PriceKeeper,
        slices: Slices,
        valuer: Valuer,
        asking: Asking,
        clock: Clock,
        runs: AskRuns,
        rehearse: Callable[[CloudState, Sequence[Machine]], DemandKept | None] = lambda _cloud, _machines: (
            None
        ),
    ) -> None:
        self._settings = settings
        self.period_seconds = max(settings.loops.snapshot_seconds, 30.0)  # a poll wakes it, too
        self._view = view
        self.keeper = keeper
        self.slices = slices
        self._valuer = valuer
        self._asking = asking
        self._moves = asking.moves
        self._clock = clock
        self._runs = runs
        self._rehearse = rehearse
        self._change = QueueChange()
        self._valued_at: dict[int, float] = {}  # monotonic seconds
        self._promised_at: dict[int, float] = {}  # when jobs that name a time were last asked about, the same
        self._machines: list[tuple[Machine, int, Sequence[Reserved]]] = []  # and waiting jobs
        self._seen_at = 0.0
        self.cloud = CloudState()
        self.valued = self.worth_it = 0
        self._runner = LoopRunner(self, clock)
        self.runners = (self._runner,)

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (
            Step("finish moves", self._moves.finish),
            Step("rehearse the history", self.rehearse),
            Step("keep promises", self.keep_promises),
            Step("move by the price", self.move),
            Step("save the price", self.keeper.save),
        )

    def polled(self, poll: Poll) -> None:
        """See :class:`Feature`. New jobs are valued at once."""
        self.keeper.polled(poll.snapshot.time, poll.cloud)
        self.cloud = poll.cloud
        self._runner.wake()
        self.slices.see(poll.snapshot)

    def would_value_anew(self, waiting_processors: int) -> bool:
        """Whether all waiting jobs would be valued anew with so many processors waiting."""
        return self._change.differs(waiting_processors)

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows."""
        machines = [
            {
                "partitions": list(machine.partitions),
                "processors": machine.processors,
                "waiting": waiting,
                "reserved": [
                    {
                        "in_seconds": max(0.0, one.begin - self._seen_at),
                        "for_seconds": one.end - max(one.begin, self._seen_at),
                        "processors": one.takes[0],
                    }
                    for one in reserved
                ],
            }
            for machine, waiting, reserved in self._machines
        ]
        return {
            "valued": self.valued,
            "worth_it": self.worth_it,
            "machines": machines,
            **self._asking.report(),
        }

    def publish(self, site: SiteState) -> SiteState:
        """See :class:`Feature`."""
        return structs.replace(site, price=self.keeper.current)

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"price": {**self.keeper.report(), **self.report()}}

    def gauges(self) -> Gauges:
        """See :class:`Feature`."""
        price, report = self.keeper.current, self.report()
        gauges = {
            "price_known": (price is not None, "0: no price, and no job moves by it."),
            "price_jobs_moved": (report["moved"], "Jobs moved by the price since the start."),
            "price_jobs_worth_it": (report["worth_it"], "Jobs worth it at the last round."),
        }
        if price is not None:
            gauges["price_seconds_per_usd"] = (
                price.seconds_per_usd,
                "Seconds of turnaround that a dollar must save.",
            )
            if self.keeper.has_budget:
                gauges["price_tokens_usd"] = (
                    price.tokens_usd,
                    "Dollars that may be committed.",
                )
        return gauges

    def release(self) -> None:
        """See :class:`Feature`."""
        self.keeper.save_now()

    def rehearse(self) -> None:
        """Begin with a price from the site's own history where no earlier process has left one."""
        if not self.keeper.is_new:
            return
        queue = on_premise_queue(self._view.fresh(), self._settings)
        found = self._rehearse(self.cloud, queue.machines)
        if found is not None:
            self.keeper.rehearsed(found)

    def move(self) -> None:
        """Value the jobs that are due, ask about those that are worth it, and move them."""
        snapshot, price = self._view.fresh(), self.keeper.current
        self._note_bought(snapshot)
        queue = on_premise_queue(snapshot, self._settings)
        reserved = map(queue.reserved_on, range(len(queue.machines)))
        self._machines = list(zip(queue.machines, queue.waiting_jobs(), reserved, strict=True))
        self._seen_at = queue.time
        due = self._due(queue)
        if not due:
            return
        valued = self._valuer.value(due, forecast_waits(queue, self._runs), self.cloud, snapshot.time)
        self.valued += len(valued)
        for one in valued:
            self.keeper.note(_key(one.queued), index=one.value, usd=one.usd, now=snapshot.time)
        if price is None:
            self._valued_at.clear()  # they are asked about as soon as there is a price
            return
        best = sorted(
            (one for one in valued if one.value >= price.seconds_of(one.queued.job.payers)),
            key=lambda one: -one.value,
        )
        self.worth_it = len(best)
        self._ask_and_move(best, forecast_waits(queue) if best else {})

    def keep_promises(self) -> None:
        """Ask about waiting jobs that name the time by which they are to be done; move those that have to.

        Of more than a round asks about, those that were asked about longest ago come first.
        """
        if not self._settings.promise.enabled:
            return
        queue = on_premise_queue(self._view.fresh(), self._settings)
        named = [
            queued
            for queued in queue.waiting
            if deadline_for(queued.job, self._settings) is not None and self._may_ask(queued, queue)
        ]
        known = self._promised_at
        self._promised_at = {q.job.job_id: known.get(q.job.job_id, -math.inf) for q in named}
        if not named:
            return
        named.sort(key=lambda queued: self._promised_at[queued.job.job_id])
        waits = forecast_waits(queue)  # promises are learned beside the wait by limits

        def goes(queued: QueuedJob) -> bool:
            self._promised_at[queued.job.job_id] = self._clock.monotonic()
            return bool(self._asking.goes(queued, waits[queued.job.job_id]))

        self._asking.move(((queued.job.job_id, queued) for queued in named[:_MAX_ASKED]), goes)

    def _note_bought(self, snapshot: ClusterSnapshot) -> None:
        """Count jobs that moved at their submission as demand, by what their AdminComment says of it.

        A further run has a submission of its own, and was counted when it was decided.
        """
        for queued in snapshot.jobs:
            moved = moved_by_us(queued)
            is_there = self._settings.cluster.burst_partition in queued.partitions
            if moved is None or queued.restarts or not is_there:
                continue
            hour_usd, usd = moved.numbers.get("hour_costs", 0.0), moved.numbers.get("predicted_cost", 0.0)
            if hour_usd > 0.0 and usd > 0.0:
                self.keeper.note(_key(queued), index=3600.0 / hour_usd, usd=usd, now=snapshot.time)

    def _due(self, queue: OnPremiseQueue) -> list[QueuedJob]:
        now = self._clock.monotonic()
        present = {queued.job.job_id for queued in queue.waiting}
        self._valued_at = {job_id: time for job_id, time in self._valued_at.items() if job_id in present}
        self._asking.forget_all_but(present)
        if self._change.is_much(queue.waiting_processors, now):
            self._valued_at.clear()
        due = [
            queued
            for queued in queue.waiting
            if now - self._valued_at.get(queued.job.job_id, -math.inf) >= PERIOD_SECONDS
            and self._may_ask(queued, queue)
            and deadline_for(queued.job, self._settings) is None
        ]
        self._valued_at |= dict.fromkeys((queued.job.job_id for queued in due), now)
        return due

    def _may_ask(self, queued: QueuedJob, queue: OnPremiseQueue) -> bool:
        """Whether advice about a job may be asked: it does not move, nor count for a limit that holds jobs.

        One that slurmctld has not looked at yet is asked about at a later poll.
        """
        job_id = queued.job.job_id
        is_free = job_id not in self._moves and job_id not in queue.held.counted
        return is_free and may_be_asked(queued, self._settings) is not None

    def _ask_and_move(self, best: Sequence[Valued], planned: Mapping[int, float]) -> None:
        """Move those of these jobs for which there are tokens; ``planned``: waits by time limits, seconds."""
        asked = 0

        def next_round(job_id: int) -> None:
            self._valued_at.pop(job_id, None)

        def goes(one: Valued) -> bool:
            nonlocal asked
            job_id = one.queued.job.job_id
            if asked >= _MAX_ASKED:
                next_round(job_id)
                return False
            price, payers = self.keeper.current, one.queued.job.payers
            if price is None:
                return False
            tokens, _ = price.tokens_of(payers)
            if one.worst_usd > tokens and not usd_for_shorter(price, payers):
                return False
            asked += 1
            try:
                found = self._asking.goes(one.queued, one.wait, planned[job_id])
            except RetryLater:  # soon again, after others
                self._valued_at[job_id] -= PERIOD_SECONDS - MIN_SECONDS
                raise
            if found is None:
                next_round(job_id)  # its advice is on its way to the ledger
            elif found:
                log.info(
                    "price.moves",
                    job=job_id,
                    seconds_per_usd=round(one.value, 1),
                    wait_seconds=round(one.wait),
                    usd=round(one.usd, 4),
                )
                self.keeper.commit(min(one.worst_usd, tokens), payers)
            return bool(found)

        self._asking.move(((one.queued.job.job_id, one) for one in best), goes, skip=next_round)


def _key(queued: QueuedJob) -> str:
    """The submission as demand: each task of an array has the array's time, and its cost as a whole."""
    return f"{queued.array_job_id}@{queued.job.submit_time:.0f}"
