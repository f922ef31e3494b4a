"""A site with a queue, a budget and a submit server that says what a test wants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock

import numpy as np
from msgspec.structs import replace

from advisor.arrays import Floats
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.history.records import AdviceRecord
from advisor.model.advice import Placement
from advisor.model.cluster import Node
from advisor.model.errors import RetryLater
from advisor.model.job import Job, limit_seconds
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.model.snapshot import ClusterSnapshot, Partition, QueuedJob
from advisor.predict.run_times.grid import GRID, bin_of
from advisor.service.exchange.protocol import AdviseReply
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import cluster_state
from advisor.service.price.price_keeper import PriceKeeper
from advisor.service.price.price_loop import PriceLoop
from advisor.service.price.queue_view import (
    AskRuns,
    OnPremiseQueue,
    forecast_waits,
    on_premise_queue,
    run_to_limits,
)
from advisor.service.price.valuing import AskLimit, Valued, Valuer
from advisor.service.running.feature import Poll
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.budget_records import RunningNode
from advisor.service.state.state_files import BUDGET, MOVES, PRICE
from advisor.service.waiting.asking import Asking
from advisor.service.waiting.moving import Moves
from tests.decide.cases import ask, make_estimates, make_settings
from tests.service.doubles import Hands, make_look, make_node, make_queued

STAYS = ask(estimates=make_estimates(wait=0.0))
COMMENT = admin_comment(STAYS)
NODES: tuple[Node, ...] = (make_node("fixed1", processors=8), make_node("fixed2", processors=8))


class Chances:
    """Nine in ten jobs run a known share of their limit, the others to their limit."""

    def __init__(self) -> None:
        self.share: dict[int, float] = {}
        self.asked = 0

    def chances(self, job: Job) -> Floats:
        self.asked += 1
        found = np.zeros(len(GRID))
        limit = job.requested_time or 1e6
        found[bin_of(limit)] = 0.1
        found[bin_of(self.share.get(job.job_id, 0.5) * limit)] += 0.9
        return found


class Slurm:
    """A queue, and what was told about it."""

    def __init__(self) -> None:
        self.jobs: dict[int, QueuedJob] = {}
        self.told: list[tuple[int, Mapping[str, str]]] = []
        self.dies = False

    def snapshot(self, now: float) -> ClusterSnapshot:
        return make_look(now, NODES, tuple(self.jobs.values()))

    def partitions(self) -> tuple[Partition, ...]:
        return (Partition(name="burst", is_up=True, nodes="", total_processors=32),)

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        if self.dies:
            raise RetryLater("no answer", code="slurm.timeout")
        for job_id in job_ids:
            self.told.append((job_id, dict(changes)))
            self.put(job_id, queue=changes["partition"], admin_comment=changes["admincomment"])

    def put(self, job_id: int, state: str = "PENDING", **changes: Any) -> None:
        known = {"reason": "Priority", "admin_comment": COMMENT, "user": "ann", "requested_time": 3600.0}
        self.jobs[job_id] = make_queued(job_id, state, **(known | changes))


class World:
    """One loop with its keeper. 16 processors on-premise; two jobs of an hour have them all."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.hands, self.slurm, self.chances = Hands(), Slurm(), Chances()
        cluster = {"policy": "price"} | settings.pop("cluster", {})
        sections = {"cluster": cluster, "budget": {"usd": 240.0, "period": "day"}} | settings
        self.settings: Settings = make_settings(**sections)
        self.view = SharedView(self.hands.clock, 60.0)
        self.folder = folder
        self.asked: list[tuple[int, float]] = []
        self.runs: AskRuns = run_to_limits
        self.planned: list[float | None] = []
        self.stays: set[int] = set()
        self.mode = "act"
        self.reason = ""
        self.limit_there: AskLimit = limit_seconds
        self.cloud = CloudState(
            on_demand_usd_per_core_hour=0.05,
            spot_open=False,
            processors_per_node=4,
            nodes_total=8,
            nodes_with=by_account(**{"on-demand": 8.0}),
        )
        self.spending = SpendingBudget(BUDGET.at(folder), self.hands.clock)
        self.spending.rebuild([], [], ())
        for job_id in (1, 2):
            self.slurm.put(job_id, "RUNNING", processors=8, start_time=self.hands.wall)
        self.start()

    def start(self) -> None:
        """Start control, or start it anew."""
        parts: dict[str, Any] = {"view": self.view, "clock": self.hands.clock}
        self.keeper = PriceKeeper(
            self.settings, state=PRICE.at(self.folder), spending=self.spending, clock=self.hands.clock
        )
        self.loop = PriceLoop(
            self.settings,
            runs=self.expected,
            keeper=self.keeper,
            slices=Mock(),
            valuer=self._valuer(),
            asking=Asking(
                Moves(self.settings, slurm=self.slurm, state=MOVES.at(self.folder), **parts),  # type: ignore[arg-type]
                advice=lambda _job_id: AdviceRecord(advice=STAYS, job=self.submitted),
                again=self.again,
            ),
            **parts,
        )

    submitted = Job(job_id=0, submit_time=0.0, processors=2, queue="onprem", requested_time=3600.0)

    def expected(self, queue: OnPremiseQueue) -> tuple[Floats, Floats]:
        return self.runs(queue)

    def again(self, job: Job, wait_seconds: float | None, planned_seconds: float | None) -> AdviseReply:
        assert wait_seconds is not None
        self.planned.append(planned_seconds)
        self.asked.append((job.job_id, wait_seconds))
        moves = job.job_id not in self.stays
        name = f"again-{len(self.asked)}"
        return AdviseReply(
            v=1,
            seq=1,
            id=name,
            placement=Placement.BURST if moves else Placement.ON_PREMISE,
            mode=self.mode,
            reason=self.reason,
            partition="burst" if moves and self.mode == "act" else None,
            admin_comment=admin_comment(replace(ask(), advice_id=name)),
        )

    def spend(self, usd: float) -> None:
        """A node has cost so much in the last hour."""
        node = RunningNode(instance_id="i-1", node="burst1", usd_per_hour=usd, left_usd=0.0)
        self.spending.count([node])
        self.hands.pass_by(3600.0)
        self.spending.count([node])
        self.spending.count([])

    def round(self, seconds: float = 31.0, **cloud: Any) -> None:
        self.hands.pass_by(seconds)
        snapshot = self.slurm.snapshot(self.hands.wall)
        self.view.update(snapshot, cluster_state(snapshot, self.settings))
        seen = replace(self.cloud, **cloud)
        cluster = cluster_state(snapshot, self.settings)
        self.loop.polled(Poll(snapshot=snapshot, cluster=cluster, cloud=seen))
        for step in self.loop.steps():
            step.run()

    def valued(self) -> list[Valued]:
        """Every waiting job's value now."""
        queue = on_premise_queue(self.slurm.snapshot(self.hands.wall), self.settings)
        return self._valuer().value(queue.waiting, forecast_waits(queue), self.cloud, self.hands.wall)

    def _valuer(self) -> Valuer:
        return Valuer(
            self.settings,
            chances=self.chances.chances,
            slowdown=lambda _queued: 1.05,
            limit_there=self.limit_there,
            has_slices=True,
        )

    @property
    def moved(self) -> list[int]:
        return [job_id for job_id, _ in self.slurm.told]


def by_account(**usd: float) -> MappingProxyType[str, float]:
    return MappingProxyType(usd)
