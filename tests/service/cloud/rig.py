"""The loops of the cloud on doubles."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.ec2.errors import Failure, FailureClass
from advisor.model.advice import Advice, Answer, Capacity, Mode, Placement, Question, TimeLimit, Verdict
from advisor.model.cluster import Node, NodePower
from advisor.model.node_sets import expand
from advisor.model.settings import ClusterSettings, Settings
from advisor.model.settings_cloud import Ec2Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.exchange.handover import HandoverFolder, decode
from advisor.service.observation.poll_view import SharedView
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.state_files import INTERRUPTIONS
from advisor.testing.memory_slurm import MemorySlurm
from tests.service.doubles import (
    FakeFleet,
    Hands,
    make_look,
    make_node,
)
from tests.service.site import make_cluster

EMPTY_POOL = Failure(FailureClass.CAPACITY, "InsufficientInstanceCapacity", "none left")

SERVER_FAULT = Failure(FailureClass.SERVER, "InternalError", "oh")

BURST_NODES = tuple(f"burst{number}" for number in range(1, 10))


class Rig:
    """Both loops with doubles around them."""

    def __init__(self, folder: Path) -> None:
        self.hands = Hands()
        self.slurm = MemorySlurm(now=lambda: self.hands.wall)
        self.fleet = FakeFleet()
        self.settings = settings = Settings(
            cluster=ClusterSettings(default_mode=Mode.ACT),
            ec2=Ec2Settings(spot_usd_per_hour=1.0, on_demand_usd_per_hour=2.0),
        )
        self.cloud = CloudRecord(folder, self.hands.clock)
        self.view = SharedView(self.hands.clock, 60.0)
        self.path = folder / "handover"
        self.folder = HandoverFolder(self.path)
        self.folder.prepare()
        parts: dict[str, Any] = {
            "fleet": self.fleet,
            "slurm": self.slurm,
            "view": self.view,
            "cloud": self.cloud,
            "interruptions": InterruptionRecord(INTERRUPTIONS.at(folder)),
            "clock": self.hands.clock,
        }
        self.context = context = CloudContext(settings=settings, **parts)
        self.provision = self.provision_of(context)
        self.reconcile = ReconcileLoop(
            context,
            resuming=lambda: self.provision.resuming,
            boot_ended=self.provision.boot_ended,
        )
        self._number = 0
        self.look()
        self.provision.act_on_handovers()  # it knows the nodes from then on,
        self.hands.monotonic += 61.0  # and has not seen Slurm lately

    def restart(self) -> None:
        """The provision loop of the next process, with what is on the disk."""
        self.cloud = CloudRecord(self.path.parent, self.hands.clock)
        self.provision = self.provision_of(replace(self.context, cloud=self.cloud))

    def provision_of(self, context: CloudContext) -> ProvisionLoop:
        return ProvisionLoop(context, folder=self.folder, instances=lambda: self.reconcile.last_listed)

    def look(
        self, nodes: Sequence[Node] = (), jobs: Sequence[QueuedJob] = (), *, others: bool = True
    ) -> None:
        """What Slurm shows; ``others``: burst nodes that are not named are there, in a state nobody knows."""
        missing = set(BURST_NODES) - {node.name for node in nodes} if others else set()
        rest = [make_node(name, "STRANGE") for name in sorted(missing)]
        self.slurm.show([*nodes, *rest], jobs)
        self.view.update(
            make_look(self.hands.wall, [*nodes, *rest], jobs), make_cluster(time=self.hands.wall)
        )

    def hand_over(
        self,
        operation: str,
        nodes: str,
        jobs: dict[int, str] | None = None,
        *,
        priorities: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._number += 1
        rows = [{"job_id": job, "nodes": names} for job, names in (jobs or {}).items()]
        said = [row | {"priority": priorities[row["job_id"]]} if priorities else row for row in rows]
        resume_file = {"jobs": said}
        message = {
            "v": 1,
            "op": operation,
            "id": f"{self._number:020d}-1-00000000",
            "time": self.hands.wall,
            "nodes": nodes,
            "resume_file": json.dumps(resume_file) if jobs else None,
        }
        if operation == "suspend":
            for name in self.slurm.nodes.keys() & expand(nodes):
                self.slurm.nodes[name].power = NodePower.POWERING_DOWN
        line = json.dumps(message).encode() + b"\n"
        self.folder.put(decode(line), line)

    @property
    def waiting(self) -> int:
        return len(list(self.path.glob("*.json")))


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def comment(
    placement: Placement = Placement.BURST,
    capacity: Capacity | None = Capacity.SPOT,
    origin: str | None = None,
    time_limit: TimeLimit | None = None,
) -> str:
    answer = Answer(question=Question.CAPACITY, verdict=Verdict.YES, reason="capacity.spot")
    return admin_comment(
        Advice(
            advice_id="a-1",
            time=0.0,
            placement=placement,
            partition="burst",
            capacity=capacity,
            mode=Mode.ACT,
            answers=(answer,),
            origin=origin,
            time_limit=time_limit,
        )
    )
