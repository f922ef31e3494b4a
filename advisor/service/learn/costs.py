"""The learn loop's step for money: paid time and runs go into the history, and each job gets its share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from advisor.history.store import HistoryStore
from advisor.model.advice import Capacity
from advisor.model.bill import NodeUse, Rows, midnight
from advisor.model.errors import BadInput
from advisor.model.job import JobOutcome
from advisor.model.node_sets import expand
from advisor.model.settings import Settings
from advisor.model.snapshot import RUNNING
from advisor.service.observation.accounting import SOURCE
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import burst_nodes
from advisor.service.running.clock import Clock
from advisor.service.state.budget import SpendingBudget

_LATEST_SECONDS: Final = 86_400.0  # after a restart: how long ago a job may have ended whose node is not paid


class Costs:
    """Shares the cost of nodes among the jobs that ran on them.

    Args:
        meter: Measures the paid time of nodes. None where another program launches the nodes: a job then
            costs whole nodes at the settings' prices.

    Attributes:
        today: The day's rows of the bill as of the last `bill_today`; None before it.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: HistoryStore,
        view: SharedView,
        clock: Clock,
        meter: SpendingBudget | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._view = view
        self._clock = clock
        self._meter = meter
        self._metered: float | None = None  # until when paid time was known in the last round
        self._noted_day = -math.inf
        self._is_billed = True
        self.today: Rows | None = None

    def note(self, ended: Sequence[JobOutcome]) -> None:
        """Store the paid time since the last round and the jobs that ran in it; set the jobs' shares."""
        runs = [(outcome, self._runs_of(outcome)) for outcome in ended]
        if self._meter is None:
            reckoned = {outcome.job.job_id: self._reckoned(outcome, own) for outcome, own in runs if own}
            self._store.set_costs(reckoned, source=SOURCE)
            return
        paid = self._meter.paid()
        running = self._running()
        final = [use for _, own in runs for run in own for use in _uses_of(run)]
        now = self._clock.wall()
        if self._noted_day == midnight(now) and not (paid or running or final):
            return  # nothing was paid or ran since the last round
        self._store.add_paid(paid)
        self._meter.noted(paid)
        self._store.add_uses(running)
        self._store.add_uses(final)
        since = now - _LATEST_SECONDS if self._metered is None else self._metered
        self._share(self._store.beside(final) | self._store.jobs_ended_after(since))
        # the earliest end of all pieces: EC2's minimum of a minute is counted in advance, and a node may have
        # been counted for the last time some while ago
        self._metered = min((piece.until for piece in paid), default=since)
        self._noted_day = midnight(now)
        self._is_billed = False

    def bill_today(self) -> None:
        """Add up the day's rows anew, if anything was noted since."""
        if not self._is_billed:
            self.today, self._is_billed = self._store.bill(self._noted_day), True

    def _share(self, job_ids: Iterable[int]) -> None:
        costs = dict[int, float]()
        shares: dict[int, list[tuple[float, float]]] = {}
        for use, usd in self._store.costs_of(set(job_ids)).items():
            shares.setdefault(use.job_id, []).append((use.start, usd))
        for job_id, own in shares.items():
            last = self._store.of_job(job_id, source=SOURCE)
            if last is None:
                continue
            begun = last.job.submit_time  # earlier uses are of an older job with the same id
            if of_this := [usd for start, usd in own if start >= begun]:
                costs[job_id] = math.fsum(of_this)
        self._store.set_costs(costs, source=SOURCE)

    def _running(self) -> list[NodeUse]:
        """Jobs on cloud nodes now; empty without a recent poll."""
        snapshot = self._view.if_fresh()
        if snapshot is None:
            return []
        names = {node.name for node in burst_nodes(snapshot, self._settings)}
        return [
            NodeUse(
                job_id=queued.job.job_id,
                node=name,
                start=queued.start_time,
                end=snapshot.time,
                processors=queued.job.processors / (queued.job.nodes or 1),
                account=queued.job.account or "",
                is_final=False,
            )
            for name, there in snapshot.jobs_on.items()
            if name in names
            for queued in there
            if queued.state == RUNNING and queued.start_time is not None
        ]

    def _runs_of(self, outcome: JobOutcome) -> list[JobOutcome]:
        """The job's runs in the cloud, with those that a requeue ended, such as that of a returned hedge."""
        runs = [outcome, *self._earlier_runs(outcome)] if outcome.restarts else [outcome]
        burst = self._settings.cluster.burst_partition
        return [run for run in runs if run.partition == burst]

    def _earlier_runs(self, outcome: JobOutcome) -> list[JobOutcome]:
        job = outcome.job
        return [
            replace(
                outcome,
                start_time=run.start_time,
                end_time=run.end_time,
                partition=run.partition,
                nodes=run.nodes,
            )
            for run in self._store.attempts([job.job_id], source=SOURCE)
            if run.first_submit_time == job.submit_time
            and run.start_time is not None
            and run.end_time <= outcome.start_time
        ]

    def _reckoned(self, outcome: JobOutcome, runs: Iterable[JobOutcome]) -> float:
        """Dollars for whole nodes at the settings' price of the advised capacity; 0 for reserved nodes."""
        record = self._store.advice_of(outcome.job.job_id, source=SOURCE)
        capacity = record.advice.capacity if record is not None else None
        price = {
            Capacity.RESERVED: 0.0,
            Capacity.SPOT: self._settings.ec2.spot_usd_per_hour,
        }.get(capacity or Capacity.ON_DEMAND, self._settings.ec2.on_demand_usd_per_hour)
        return math.fsum(
            max(1, len(_nodes_of(run))) * math.ceil(run.run_seconds) / 3600.0 * price for run in runs
        )


def _nodes_of(run: JobOutcome) -> tuple[str, ...]:
    try:
        return expand(run.nodes or "")
    except BadInput:  # text from outside
        return ()


def _uses_of(run: JobOutcome) -> list[NodeUse]:
    names = _nodes_of(run)
    return [
        NodeUse(
            job_id=run.job.job_id,
            node=name,
            start=run.start_time,
            end=run.end_time,
            processors=max(1, run.processors_used) / len(names),
            account=run.job.account or "",
        )
        for name in names
    ]
