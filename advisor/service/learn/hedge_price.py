"""What a core-second of a hedge must bring, live: the replay's price, learned from jobs that have ended.

Every job of the on-premise queue teaches when it has ended: what its hedge would have cost at each price, and
what a clairvoyant would have spent (`advisor.decide.pacing`). Hedges are charged with what they have used so
far; a hedged job adds to the budget what a clairvoyant would have spent on it, its wait being the one until
its turn came, or the forecast one where nobody has seen that.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import structlog

from advisor.decide.admin_comment import parse_admin_comment
from advisor.decide.hedging import PRICES, HedgeCase, case_of, hindsight
from advisor.decide.pacing import LEAST_KNOWN, REMEMBERED, Pacer
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.model.advice import HedgeKind
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.estimate import Estimates
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.model.table import JobTable
from advisor.predict.fitness import Target
from advisor.replay.forecasts import ForecastColumns, estimates_at
from advisor.service.sight.hedge_record import Fate
from advisor.slurm.protocol import CONFIGURING, RUNNING, QueuedJob, SlurmSnapshot

log = structlog.get_logger(__name__)

KIND: Final = "hedge-price"
_MOST_OPEN: Final = 200_000


class HedgePrice:
    """Keeps the price. Its methods are one thread's, but for :meth:`saw` and :attr:`price`.

    Parameters
    ----------
    settings : Settings
        Overheads, boot time, and the budget.
    models : ModelStore
        Where what was learned outlives the process.
    """

    def __init__(self, settings: Settings, models: ModelStore) -> None:
        self._placement = settings.placement
        self._models = models
        self._burst = settings.cluster.burst_partition
        self._used = self._charged = self._looked = 0.0
        self._open: dict[int, HedgeCase] = {}
        self._pacer = Pacer(settings.hedge.budget)
        self._is_wanted = settings.hedge.enabled and settings.hedge.budget > 0.0
        self._since_saved = 0
        self._has_read_history = False
        self.boot_seconds = settings.placement.boot_seconds
        """What decisions reckon with: learned, else the setting."""
        self.price: float | None = None
        """Seconds of turnaround that a core-second must bring; None until enough is known."""
        if self._is_wanted:
            self._load()

    @property
    def known(self) -> int:
        """Ended jobs it rests on."""
        return self._pacer.known

    @property
    def wants_history(self) -> bool:
        """Whether too little is known, and the history has not been asked yet."""
        return self._is_wanted and not self._has_read_history and self.known < LEAST_KNOWN

    @property
    def overspent(self) -> float:
        """Spent more than allowed, as a share of the budget of the jobs remembered; negative: left."""
        return self._pacer.overspent

    # -- what happens

    def submitted(self, key: int, estimates: Estimates, processors: int, requested: float | None) -> None:
        """A job was submitted, and forecast."""
        case = self._case(estimates, processors, requested) if self._is_wanted else None
        if case is None:
            return
        self._open[key] = case
        self._pacer.submitted(key, case.expected_optimum())
        if len(self._open) > _MOST_OPEN:
            self.withdrawn(next(iter(self._open)))

    def ended(self, key: int, wait_seconds: float, run_seconds: float) -> None:
        """A job has ended on-premise."""
        case = self._open.pop(key, None)
        if case is None:
            return
        seen = hindsight(case, wait_seconds, run_seconds)
        self._pacer.remember(seen.cost, seen.optimal, seen.expected_optimal)
        self._pacer.ended(key, seen.optimal)
        self._since_saved += 1

    def withdrawn(self, key: int) -> None:
        """A job is gone, and taught nothing."""
        if self._open.pop(key, None) is not None:
            self._pacer.withdrawn(key)

    def ended_in_the_cloud(
        self, outcome: JobOutcome, advice: AdviceRecord | None, fate: Fate | None = None
    ) -> None:
        """A hedged job has ended in the cloud: the budget grows by a clairvoyant's share of it.

        He would have moved it if its turn had not come by then; if it had, by the wait that is known so; and
        where its place was lost, by the forecast one.
        """
        case = self._hedged(outcome, advice)
        if case is None:
            return
        in_cloud = case.boot_seconds + outcome.run_seconds
        run = outcome.run_seconds / case.slowdown
        if fate is not None and fate.turn is not None:
            would_gain = float(fate.turn - outcome.job.submit_time + run > in_cloud)
        elif fate is not None and fate.was_kept:
            would_gain = 1.0
        else:
            would_gain = float(case.wait_mass[case.waits + run > in_cloud].sum())
        self._add_to_the_budget(outcome.job.job_id, case.processors * in_cloud * would_gain)

    def came_back(self, outcome: JobOutcome, advice: AdviceRecord | None) -> None:
        """A hedged job has ended on-premise, in the slot that was kept for it: its wait here is known."""
        case = self._hedged(outcome, advice)
        waited = outcome.first_wait_seconds
        if case is None or waited is None or outcome.run_seconds <= 0.0:
            return
        seen = hindsight(case, max(0.0, waited), outcome.run_seconds)
        self._pacer.remember(seen.cost, seen.optimal, seen.expected_optimal)
        self._add_to_the_budget(outcome.job.job_id, seen.optimal)
        self._since_saved += 1

    def _hedged(self, outcome: JobOutcome, advice: AdviceRecord | None) -> HedgeCase | None:
        hedge = advice.advice.hedge if advice is not None else None
        if not self._is_wanted or advice is None or hedge is None or hedge.kind is not HedgeKind.HEDGE:
            return None  # a speculation is charged nothing either
        return self._case(advice.estimates, outcome.job.processors, outcome.job.requested_time)

    def _add_to_the_budget(self, key: int, optimal: float) -> None:
        self._pacer.submitted(key, 0.0)
        self._pacer.ended(key, optimal)

    def saw(self, snapshot: SlurmSnapshot) -> None:
        """Add up what hedged jobs use in the cloud from look to look; of another thread than the rest."""
        if self._is_wanted:
            since = self._looked or snapshot.time
            self._used += math.fsum(self._use(job, since, snapshot.time) for job in snapshot.jobs)
            self._looked = snapshot.time

    def _use(self, queued: QueuedJob, since: float, now: float) -> float:
        """Core-seconds of one job."""
        # while its node boots, too: Slurm lets it start anew when it is up
        is_there = self._burst in queued.partitions and queued.state in (RUNNING, CONFIGURING)
        if not is_there or queued.start_time is None:
            return 0.0
        advice = parse_admin_comment(queued.admin_comment)
        if advice is None or advice.hedge is None or advice.hedge.kind is not HedgeKind.HEDGE:
            return 0.0
        return queued.job.processors * max(0.0, now - max(since, queued.start_time))

    def charge(self) -> None:
        """Charge what hedges have used since the last time, and say the price."""
        if not self._is_wanted:
            return
        used = self._used
        self._pacer.spend(used - self._charged)
        self._charged = used
        self.price = float(PRICES[self._pacer.level()]) if self.known >= LEAST_KNOWN else None

    # -- what is kept

    def learn_history(self, table: JobTable, forecasts: dict[Target, ForecastColumns]) -> None:
        """Once: take in the history's newest jobs, each as forecast before it was known."""
        if not self._is_wanted:
            return
        rows = forecasts["wait"].rows
        waits, runs = table.first_wait, table.whole_run
        self._has_read_history = True
        self._pacer = Pacer(self._pacer.multiple)
        self._open.clear()
        for index in range(max(0, len(rows) - REMEMBERED), len(rows)):
            estimates = estimates_at(forecasts, index)
            if estimates is None:
                continue
            row = int(rows[index])
            if math.isnan(waits[row]) or math.isnan(runs[row]):
                continue  # requeued, or cut short: nobody knows
            asked = float(table.requested_time[row])
            case = self._case(
                estimates,
                int(table.processors[row]),
                None if np.isnan(asked) else asked,
            )
            if case is not None:
                seen = hindsight(case, max(0.0, float(waits[row])), float(runs[row]))
                self._pacer.remember(seen.cost, seen.optimal, seen.expected_optimal)
        self.save()

    def save(self) -> None:
        """Write down what ended jobs have taught; the budget's period begins anew with each process."""
        if self._is_wanted and self.known:
            self._models.save(KIND, self._pacer.to_arrays(), {"settings": self._signature()})
            self._since_saved = 0

    def save_now_and_then(self) -> None:
        """The same after so many jobs that it matters."""
        if self._since_saved >= LEAST_KNOWN:
            self.save()

    def _load(self) -> None:
        try:
            arrays, meta = self._models.load(KIND)
            if meta.get("settings") != self._signature():
                return  # another overhead, another boot time: hedges cost something else
            self._pacer.take_up(arrays)
        except UseFallback:
            return
        except (AdvisorError, KeyError, ValueError, IndexError) as error:
            log.warning("hedge.price_not_loaded", message=str(error)[:300], instead="learned anew")

    def _signature(self) -> list[float]:
        own = self._placement
        return [own.overhead_per_processor, own.baseline, own.boot_seconds]

    def _case(self, estimates: Estimates, processors: int, requested: float | None) -> HedgeCase | None:
        return case_of(
            estimates,
            processors=processors,
            slowdown=self._placement.performance_ratio(processors),
            boot_seconds=self.boot_seconds,
            requested_time=requested,
        )
