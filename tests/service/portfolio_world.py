"""A burst partition in memory, as far as the portfolio steers it: nodes, a queue, a reservation that ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from advisor.history.store import HistoryStore
from advisor.model.cluster import Node
from advisor.model.errors import RetryLater
from advisor.model.job import Job
from advisor.model.settings import ClusterSettings, PathSettings, Settings
from advisor.model.settings_nodes import PortfolioSettings
from advisor.model.settings_price import BudgetSettings
from advisor.model.snapshot import PENDING, RUNNING, ClusterSnapshot, Partition, QueuedJob
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import cluster_state
from advisor.service.portfolio.portfolio_loop import PortfolioLoop
from advisor.service.running.loops import LoopRunner
from advisor.service.state.cloud_record import CloudRecord
from advisor.slurm.steering import Closed, Demand, PowerSaving, Priority
from advisor.testing.manual_clock import ManualClock

BURST = "burst"


def node(name: str, *words: str, **changes: Any) -> Node:
    states = frozenset({"CLOUD", *(words or ("IDLE", "POWERED_DOWN"))})
    given: dict[str, Any] = {"processors": 4, "memory_mb": 8000, "partitions": (BURST,), "weight": 100}
    return Node(name=name, states=states, **(given | changes))


def waiting(job_id: int, limit: float = 3600.0, **changes: Any) -> QueuedJob:
    given: dict[str, Any] = {
        "submit_time": 1_800_000_000.0 + job_id,
        "processors": 4,
        "queue": BURST,
        "user": f"user{job_id}",
        "requested_time": limit,
    }
    partitions = changes.pop("partitions", (BURST,))
    comment = changes.pop("admin_comment", "")
    return QueuedJob(
        job=Job(job_id=job_id, **(given | changes)),
        state=PENDING,
        partitions=partitions,
        array_job_id=job_id,
        reason="Resources",
        admin_comment=comment,
    )


def running(job_id: int, nodes: str, start: float, **changes: Any) -> QueuedJob:
    return replace(waiting(job_id, **changes), state=RUNNING, start_time=start, nodes=nodes, reason="")


@dataclass
class MemoryBurst:
    """Takes the place of Slurm and of the steering of it."""

    clock: ManualClock
    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[int, QueuedJob] = field(default_factory=dict)
    own: dict[int, int] = field(default_factory=dict)
    factors: dict[int, int] = field(default_factory=dict)
    reservation: Closed | None = None
    told: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    calls_left: int = 1_000_000
    knows_site_factors: bool = True
    asked: dict[int, Demand] = field(default_factory=dict)
    saving: PowerSaving = field(default_factory=PowerSaving)
    is_up: bool = True
    now: dict[str, frozenset[str]] = field(default_factory=dict)
    """States of nodes that have changed since the last snapshot."""

    def _call(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise RetryLater("slurmctld does not answer", code="slurm.timeout")

    def add(self, *jobs: QueuedJob, own: int = 1000) -> None:
        for queued in jobs:
            self.jobs[queued.job.job_id] = queued
            self.own[queued.job.job_id] = own
            self.factors.setdefault(queued.job.job_id, 0)

    def end(self, job_id: int) -> None:
        del self.jobs[job_id]

    # ------------------------------------------------------------------- SlurmBackend

    def snapshot(self, now: float) -> ClusterSnapshot:
        return ClusterSnapshot(time=now, jobs=tuple(self.jobs.values()), nodes=tuple(self.nodes.values()))

    def partitions(self) -> tuple[Partition, ...]:
        return (Partition(name=BURST, is_up=self.is_up, nodes="burst[1-4]", total_processors=16),)

    def update_node(self, nodes: Collection[str], **changes: Any) -> None:
        self._call()
        word = str(changes.get("state", f"weight={changes.get('weight')}"))
        self.told.append((word, tuple(sorted(nodes))))
        for name in nodes:
            if "weight" in changes:
                self.nodes[name] = replace(self.nodes[name], weight=changes["weight"])
            elif word == "POWER_UP":
                self.nodes[name] = replace(
                    self.nodes[name], states=frozenset({"CLOUD", "IDLE", "POWERING_UP"})
                )
            elif word == "POWER_DOWN":
                self.nodes[name] = replace(
                    self.nodes[name], states=frozenset({"CLOUD", "IDLE", "POWERING_DOWN"})
                )

    # ------------------------------------------------------------------- BurstSteering

    def closed(self) -> Closed | None:
        self._call()
        if self.reservation is not None and self.reservation.until <= self.clock.wall:
            self.reservation = None
        return self.reservation

    def close(self, nodes: Collection[str], *, seconds: float, known: Closed | None) -> None:
        self._call()
        if (known is None) != (self.reservation is None):
            raise RetryLater("Duplicate reservation name", code="slurm.command_failed")
        self.reservation = Closed(nodes=frozenset(nodes), until=self.clock.wall + seconds)

    def open(self) -> None:
        self._call()
        self.reservation = None

    def priorities(self, partition: str | None = None, jobs: Collection[int] = ()) -> Mapping[int, Priority]:
        self._call()
        return {
            job_id: Priority(total=self.own[job_id] + self.factors[job_id], site_factor=self.factors[job_id])
            for job_id, queued in self.jobs.items()
            if queued.state == PENDING and (partition in queued.partitions or job_id in jobs)
        }

    def demands(self, _partition: str) -> Mapping[int, Demand]:
        self._call()
        return self.asked

    def node_states(self, nodes: Collection[str]) -> Mapping[str, frozenset[str]]:
        self._call()
        return {name: self.now.get(name, self.nodes[name].states) for name in nodes}

    def power_saving(self, _partition: str) -> PowerSaving:
        return self.saving

    def set_site_factor(self, job_ids: Collection[int], value: int) -> None:
        self._call()
        self.factors |= dict.fromkeys(job_ids, value)

    def order(self) -> list[int]:
        """Waiting jobs as slurmctld would take them."""
        seen = self.priorities(BURST)
        return sorted(seen, key=lambda job_id: (-seen[job_id].total, job_id))


class PortfolioWorld:
    """A site whose portfolio loop can be stopped, killed and started again."""

    def __init__(self, folder: Path, *, nodes: int = 4, budget_usd: float = 0.0, **portfolio: Any) -> None:
        self.clock = ManualClock(wall=1_800_001_000.0)
        given: dict[str, Any] = {"enabled": True, "policies": "paper"}
        self.settings = Settings(
            cluster=ClusterSettings(burst_partition=BURST),
            budget=BudgetSettings(usd=budget_usd, period="day"),
            portfolio=PortfolioSettings(**(given | portfolio)),
            paths=PathSettings(state=folder, run=folder),
        )
        self.slurm = MemoryBurst(self.clock)
        self.slurm.nodes = {f"burst{n}": node(f"burst{n}") for n in range(1, nodes + 1)}
        self.store = HistoryStore(f"sqlite:///{folder / 'history.db'}")
        self.cloud = CloudRecord(folder, self.clock.clock)
        self.start()

    def start(self, **portfolio: Any) -> None:
        """A new process, whatever became of the last one."""
        if portfolio:
            changed = self.settings.portfolio.model_copy(update=portfolio)
            self.settings = self.settings.model_copy(update={"portfolio": changed})
        self.view = SharedView(self.clock.clock, 60.0)
        self.loop = PortfolioLoop(
            self.settings,
            slurm=self.slurm,  # type: ignore[arg-type]  # only what the loop asks for
            steering=self.slurm,
            view=self.view,
            store=self.store,
            cloud=self.cloud,
            clock=self.clock.clock,
        )
        self.runner = LoopRunner(self.loop, self.clock.clock)

    def tick_judge(self) -> bool:
        """One round of the judge; whether it succeeded."""
        return LoopRunner(self.loop.judge, self.clock.clock).run_once()

    def tick(self, times: int = 1, seconds: float = 20.0) -> bool:
        """Time passes, Slurm is looked at, one round; whether all went well."""
        is_well = True
        for _ in range(times):
            self.clock.pass_by(seconds)
            snapshot = self.slurm.snapshot(self.clock.wall)
            self.view.update(snapshot, cluster_state(snapshot, self.settings))
            is_well = self.runner.run_once()
        return is_well

    @property
    def closed(self) -> set[str]:
        reservation = self.slurm.closed()
        return set(reservation.nodes) if reservation is not None else set()
