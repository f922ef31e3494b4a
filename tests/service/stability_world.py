"""A site with spot pools of different temper: the real loops between a Slurm and an EC2 in memory, for days.

Every instance has a life drawn when it is launched, from the law of its pool; what the advisor knows of it is
what it sees. All that happens to a job on a kept node is written down.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog

from advisor.ec2.account import Account
from advisor.ec2.fleet import Fleet
from advisor.ec2.interruptions import Interruptions
from advisor.ec2.journal import Journal
from advisor.ec2.pools import UnavailablePools
from advisor.ec2.prices import Prices
from advisor.model.advice import Mode
from advisor.model.node_sets import expand
from advisor.model.settings import ClusterSettings, PathSettings, Policy, Settings
from advisor.model.settings_cloud import Ec2Settings
from advisor.model.settings_nodes import AcquirerSettings, MatchingSettings
from advisor.model.settings_price import BudgetSettings
from advisor.model.settings_service import LoopSettings
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.interrupting import InterruptionLoop
from advisor.service.cloud.listening import NoticeLoop
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.exchange.handover import HandoverFolder, decode
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.loops import Loop, LoopRunner
from advisor.service.stability.acquirer import AcquireLoop
from advisor.service.stability.match_loop import MatchLoop
from advisor.service.stability.outlook import PoolOrder, StabilityKnowledge
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.life_record import LifeRecord
from advisor.service.state.state_files import CLOSED_POOLS, INTERRUPTIONS, LIVES
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_ec2 import MemoryEc2, MemoryInstance
from advisor.testing.memory_slurm import MemoryJob, MemoryNode, MemorySlurm, SlurmTimes
from tests.service.site import make_cluster

FEATURES = ("cloud", "spot", "steady")
SHAKY, STEADY = "subnet-shaky", "subnet-steady"
USUAL_HOURS = {SHAKY: 1.5, STEADY: 60.0}
"""Mean life in each pool."""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No flush to the disk, and no line of log for each of a day's events."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def settings_of(
    folder: Path,
    *,
    acquirer: Mapping[str, Any] | None = None,
    matching: Mapping[str, Any] | None = None,
    subnets: Sequence[str] = (SHAKY, STEADY),
    budget_usd: float = 0.0,
    policy: Policy = "price",
) -> Settings:
    return Settings(
        cluster=ClusterSettings(default_mode=Mode.ACT, policy=policy),
        budget=BudgetSettings(usd=budget_usd, period="day"),
        loops=LoopSettings(orphan_grace_seconds=120.0, match_seconds=20.0),
        ec2=Ec2Settings(
            image_id="ami-1",
            interruption_queue_url="memory",
            subnet_ids=tuple(subnets),
            spot_usd_per_hour=0.1,
            on_demand_usd_per_hour=0.3,
        ),
        matching=MatchingSettings(**({"enabled": True} | dict(matching or {}))),
        acquirer=AcquirerSettings(**dict(acquirer or {})),
        paths=PathSettings(state=folder, run=folder),
    )


class StabilityWorld:
    """One site over time."""

    def __init__(
        self,
        settings: Settings,
        *,
        generator: np.random.Generator,
        nodes: int = 12,
        features: tuple[str, ...] = FEATURES,
        idle_seconds: float = 1e9,
        notice_seconds: float = 120.0,
        account: Account | None = None,
    ) -> None:
        self.account = account or Account()
        self.settings = settings
        self.generator = generator
        self.notice_seconds = notice_seconds
        self.clock = ManualClock()
        self.ec2 = MemoryEc2(now=lambda: self.clock.wall)
        self.ec2.launched = self._launched
        self.ec2.terminating = self._terminating
        self.slurm = MemorySlurm(
            now=lambda: self.clock.wall,
            program=self._program,
            answers=self._answers,
            node_count=nodes,
            features=features,
            times=SlurmTimes(idle=idle_seconds),
        )
        self.slurm.powered_down = self._powered_down
        self.wrongs: list[str] = []
        self.taken_at: dict[str, float] = {}
        self.reclaims = 0
        self._messages = 0
        self.boot()

    # ------------------------------------------------------------------ the service

    def boot(self) -> None:
        """Put the process together from what is on the disk."""
        settings, clock, slurm = self.settings, self.clock.clock, self.slurm
        folder = settings.paths.state
        self.view = SharedView(clock, 60.0)
        self.cloud = CloudRecord(folder, clock)
        self.folder = HandoverFolder(folder / "handover")
        self.folder.prepare()
        self.breakers = breakers = UnavailablePools(CLOSED_POOLS.at(folder), clock.wall)
        order = PoolOrder()
        self.fleet = Fleet(
            settings.ec2,
            settings.cluster.name,
            Journal(folder / "launches.jsonl", now=clock.wall),
            breakers,
            now=clock.wall,
            monotonic=clock.monotonic,
            sleep=lambda _seconds: None,
            connect=self.ec2.connect,
            order=order,
            account=lambda: self.account,
        )
        said = InterruptionRecord(INTERRUPTIONS.at(folder))
        self.record = LifeRecord(LIVES.at(folder))
        context = CloudContext(
            settings=settings,
            fleet=self.fleet,
            slurm=slurm,
            view=self.view,
            cloud=self.cloud,
            clock=clock,
            prices=lambda: Prices.of_settings(settings.ec2),
            interruptions=said,
            account=lambda: self.account,
        )
        self.knowledge = StabilityKnowledge(
            context,
            record=self.record,
            instances=lambda: (reconcile.last_listed, reconcile.listed_at),
        )
        order.use(self.knowledge.longest_lived_first)
        self.acquire = AcquireLoop(context, knowledge=self.knowledge, closed=breakers.unavailable)
        provision = ProvisionLoop(
            context,
            folder=self.folder,
            instances=lambda: reconcile.last_listed,
            kept=self.acquire.wanted,
        )
        reconcile = ReconcileLoop(
            context, resuming=lambda: provision.resuming, boot_ended=provision.boot_ended
        )
        self.match = MatchLoop(context, knowledge=self.knowledge, jobs=slurm)
        loops: list[Loop] = [
            NoticeLoop(
                source=Interruptions(settings.ec2, settings.cluster.name, connect=self.ec2.connect),
                has_listed=lambda: reconcile.listed_at is not None,
                instances=lambda: reconcile.last_listed,
                record=said,
                heard=lambda: None,
                clock=clock,
            ),
            InterruptionLoop(context, instances=lambda: reconcile.last_listed, jobs=slurm),
            provision,
            reconcile,
            self.match,
        ]
        if settings.acquirer.kept_nodes:
            loops.append(self.acquire)
        self.runners = [LoopRunner(loop, clock) for loop in loops]

    def live(self, seconds: float, tick: float = 20.0) -> None:
        """Time passes, and all loops have their turn."""
        until = self.clock.wall + seconds
        while self.clock.wall < until:
            self.clock.pass_by(tick)
            self.ec2.advance()
            self.slurm.advance()
            self.take_lives()
            self.turn()

    def turn(self) -> None:
        """One round of every loop."""
        self.view.update(self.slurm.snapshot(self.clock.wall), make_cluster(time=self.clock.wall))
        for runner in self.runners:
            runner.run_once()
            for step, failure in runner.health.open_failures.items():
                if failure.code.startswith("loop."):
                    self.wrongs.append(f"{runner.loop.name}: {step}: {failure.message}")

    # ------------------------------------------------------------------ EC2's side

    def _launched(self, item: MemoryInstance) -> None:
        if item.market == "spot":
            hours = self.generator.exponential(USUAL_HOURS[item.subnet_id or ""])
            self.taken_at[item.instance_id] = self.clock.wall + 60.0 + 3600.0 * hours

    def take_lives(self) -> None:
        """EC2 takes back whose time has come."""
        for name in [name for name, time in self.taken_at.items() if time <= self.clock.wall]:
            del self.taken_at[name]
            if self.ec2.instances[name] in self.ec2.alive():
                self.ec2.reclaim(name, self.notice_seconds)
                self.reclaims += 1

    def pools_in_use(self) -> list[str]:
        return sorted(item.subnet_id or "" for item in self.ec2.alive())

    def instance_of(self, node: MemoryNode) -> MemoryInstance | None:
        return next((item for item in self.ec2.alive() if item.private_ip == node.address), None)

    # ------------------------------------------------------------------ Slurm's side

    def _program(self, operation: str, nodes: tuple[str, ...], jobs: Mapping[str, int]) -> None:
        rows = [{"job_id": job, "nodes_resume": node} for node, job in jobs.items()]
        self._messages += 1
        line = json.dumps(
            {
                "v": 1,
                "op": operation,
                "time": self.clock.wall,
                "nodes": ",".join(nodes),
                "resume_file": json.dumps({"jobs": rows}) if rows else None,
                "id": f"{self._messages:020d}-1-00000000",
            }
        ).encode()
        self.folder.put(decode(line + b"\n"), line + b"\n")

    def _answers(self, _node: str, address: str, since: float) -> bool:
        return any(
            item.private_ip == address and item.launched_at >= since
            for item in self.ec2.alive()
            if item.state_at(self.clock.wall) == "running"
        )

    def _runs(self, node: MemoryNode) -> MemoryJob | None:
        job = self.slurm.jobs.get(node.job_id or 0)
        return job if job is not None and job.state == "RUNNING" and self.instance_of(node) else None

    def _terminating(self, item: MemoryInstance) -> None:
        node = next((n for n in self.slurm.nodes.values() if n.address == item.private_ip), None)
        if node is not None and (job := self._runs(node)) is not None:
            self.wrongs.append(f"{item.instance_id} is terminated under job {job.job_id}")

    def _powered_down(self, node: MemoryNode) -> None:
        if (job := self._runs(node)) is not None:
            self.wrongs.append(f"{node.name} is powered down under job {job.job_id}")

    def holders(self, feature: str = "steady") -> set[str]:
        return {name for name, node in self.slurm.nodes.items() if feature in node.active}

    def excluded_of(self, job: MemoryJob) -> set[str]:
        return set(expand(job.excluded)) if job.excluded else set()
