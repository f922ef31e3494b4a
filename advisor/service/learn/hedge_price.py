"""What a core-second of a hedge must bring, live: the replay's price, learned from jobs that have ended.

Every job of the on-premise queue teaches when it has ended: what its hedge would have cost at each price
(`advisor.decide.hedge.pacing`). What is left of the budget, and for how long, is known by `HedgeBudget`,
which keeps to it whatever the price.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import structlog

from advisor.decide.hedge.hedging import PRICES, HedgeCase, case_of, hindsight
from advisor.decide.hedge.pacing import MIN_KNOWN, REMEMBERED, Pacer
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.model.advice import HedgeKind
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.estimate import Estimates
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.model.table import JobTable
from advisor.predict.forecast.forecast_rows import ForecastColumns, estimates_at
from advisor.predict.knn.fitness import Target

log = structlog.get_logger(__name__)

KIND: Final = "hedge-price"
_MAX_OPEN: Final = 200_000
_BACKWARDS_SECONDS: Final = 86_400.0


class HedgePrice:
    """Keeps the price. Its methods are one thread's, but for :meth:`saw` and :attr:`price`.

    Args:
        settings: Overheads, boot time, and the budget.
        models: Where what was learned outlives the process.
        unspent: Core-seconds of the budget not used in its period, and seconds until that ends.
    """

    def __init__(
        self,
        settings: Settings,
        models: ModelStore,
        unspent: Callable[[], tuple[float, float]] = lambda: (math.inf, math.inf),
    ) -> None:
        self._placement = settings.placement
        self._models = models
        self._unspent = unspent
        self._now = 0.0  # by the clock of the submissions
        self._open: dict[int, tuple[float, HedgeCase]] = {}
        self._pacer = Pacer()
        self._is_wanted = settings.hedge.enabled and settings.hedge.has_budget
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
        return self._is_wanted and not self._has_read_history and self.known < MIN_KNOWN

    # -- what happens

    def submitted(
        self, key: int, estimates: Estimates, processors: int, requested: float | None, time: float
    ) -> None:
        """A job was submitted at a time (seconds), and forecast."""
        case = self._case(estimates, processors, requested) if self._is_wanted else None
        if case is None:
            return
        if time < self._now - _BACKWARDS_SECONDS:
            self._pacer = Pacer()  # another clock: what was kept has another beginning
        self._now = time
        self._open[key] = time, case
        if len(self._open) > _MAX_OPEN:
            self.withdrawn(next(iter(self._open)))

    def ended(self, key: int, wait_seconds: float, run_seconds: float) -> None:
        """A job has ended on-premise."""
        submitted, case = self._open.pop(key, (0.0, None))
        if case is not None:
            self._learn(submitted, case, wait_seconds, run_seconds)

    def withdrawn(self, key: int) -> None:
        """A job is gone, and taught nothing."""
        self._open.pop(key, None)

    def came_back(self, outcome: JobOutcome, advice: AdviceRecord | None) -> None:
        """A hedged job has ended on-premise, in the slot that was kept for it: its wait here is known."""
        hedge = advice.advice.hedge if advice is not None else None
        waited = outcome.first_wait_seconds
        if not self._is_wanted or advice is None or hedge is None or hedge.kind is not HedgeKind.HEDGE:
            return
        case = self._case(advice.estimates, outcome.job.processors, outcome.job.requested_time)
        if case is not None and waited is not None and outcome.run_seconds > 0.0:
            self._learn(self._now, case, max(0.0, waited), outcome.run_seconds)

    def _learn(self, submitted: float, case: HedgeCase, wait: float, run: float) -> None:
        self._pacer.remember(submitted, hindsight(case, wait, run).cost)
        self._since_saved += 1

    def charge(self) -> None:
        """Say the price at which what is left lasts."""
        if not self._is_wanted:
            return
        level = self._pacer.level(self._now, *self._unspent())
        self.price = None if level is None else float(PRICES[level])

    # -- what is kept

    def learn_history(self, table: JobTable, forecasts: dict[Target, ForecastColumns]) -> None:
        """Once: take in the history's newest jobs, each as forecast before it was known."""
        if not self._is_wanted:
            return
        rows = forecasts["wait"].rows
        waits, runs = table.first_wait, table.whole_run
        self._has_read_history = True
        self._pacer = Pacer()
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
                self._now = max(self._now, float(table.submit[row]))
                self._learn(float(table.submit[row]), case, max(0.0, float(waits[row])), float(runs[row]))
        self.save()

    def save(self) -> None:
        """Write down what ended jobs have taught."""
        if self._is_wanted and self.known:
            self._models.save(KIND, self._pacer.to_arrays(), {"settings": self._signature()})
            self._since_saved = 0

    def save_now_and_then(self) -> None:
        """The same after so many jobs that it matters."""
        if self._since_saved >= MIN_KNOWN:
            self.save()

    def _load(self) -> None:
        try:
            arrays, meta = self._models.load(KIND)
            if meta.get("settings") != self._signature():
                return  # another overhead, another boot time: hedges cost something else
            self._pacer.take_up(arrays)
            self._now = float(np.max(arrays["submitted"], initial=0.0))
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
