"""The loops that have to do with interruptions, beside a Slurm and an EC2 in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from advisor.ec2.interruptions import Notice, NoticeKind, Received
from advisor.model.advice import Mode
from advisor.model.cluster import Node
from advisor.model.settings import ClusterSettings, Settings
from advisor.model.settings_promise import PromiseSettings
from advisor.model.snapshot import QueuedJob
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.interrupting import InterruptionLoop
from advisor.service.cloud.listening import NoticeLoop
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.observation.poll_view import SharedView
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.state_files import INTERRUPTIONS
from advisor.slurm.running_jobs import JobEnd
from advisor.testing.memory_slurm import MemoryJob, MemorySlurm
from tests.service.doubles import (
    FakeFleet,
    Hands,
    make_instance,
    make_look,
    make_node,
    make_queued,
)
from tests.service.site import make_cluster

TAKEN = {"state": "terminated", "state_reason": "Server.SpotInstanceTermination"}


class Source:
    """EC2's word, as a test wants it."""

    def __init__(self) -> None:
        self.has_queue = True
        self.messages: list[Received] = []
        self.requests: list[Notice] = []
        self.deleted: list[str] = []

    def receive(self) -> list[Received]:
        return list(self.messages)

    def delete(self, received: Sequence[Received]) -> None:
        self.deleted += [item.receipt for item in received]
        self.messages = [item for item in self.messages if item not in received]

    def poll(self) -> list[Notice]:
        return self.requests

    def says(self, kind: NoticeKind, instance_id: str) -> None:
        notice = Notice(kind=kind, instance_id=instance_id, time=0.0, source="queue")
        self.messages.append(Received(f"r{len(self.messages)}", notice))


class Rig:
    """The loops that have to do with interruptions; `restart` begins anew from the disk."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.hands, self.fleet, self.source = Hands(), FakeFleet(), Source()
        self.slurm = MemorySlurm(now=lambda: self.hands.wall)
        self.settings = Settings(
            cluster=ClusterSettings(default_mode=Mode.ACT), promise=PromiseSettings(enabled=True)
        )
        self.view = SharedView(self.hands.clock, 60.0)
        self.folder = HandoverFolder(folder / "handover")
        self.folder.prepare()
        self.restart()

    def restart(self) -> None:
        self.record = InterruptionRecord(INTERRUPTIONS.at(self.path))
        self.cloud = CloudRecord(self.path, self.hands.clock)
        parts: dict[str, Any] = {
            "fleet": self.fleet,
            "slurm": self.slurm,
            "view": self.view,
            "cloud": self.cloud,
            "clock": self.hands.clock,
            "interruptions": self.record,
        }
        self.context = context = CloudContext(settings=self.settings, **parts)
        self.provision = ProvisionLoop(
            context, folder=self.folder, instances=lambda: self.reconcile.last_listed
        )
        self.reconcile = ReconcileLoop(context, resuming=tuple, boot_ended=self.provision.boot_ended)
        self.loop = InterruptionLoop(context, instances=lambda: self.reconcile.last_listed, jobs=self.slurm)

        self.notices = NoticeLoop(
            source=self.source,
            has_listed=lambda: self.reconcile.listed_at is not None,
            instances=lambda: self.reconcile.last_listed,
            record=self.record,
            heard=lambda: None,
            clock=self.hands.clock,
        )

    def look(self, nodes: Sequence[Node] = (), jobs: Sequence[QueuedJob] = ()) -> None:
        self.slurm.show(nodes, jobs)
        self.view.update(make_look(self.hands.wall, nodes, jobs), make_cluster(time=self.hands.wall))

    def round(self) -> None:
        for step in (*self.reconcile.steps(), *self.notices.steps(), *self.loop.steps()):
            step.run()

    @property
    def warned(self) -> list[int]:
        return [ids[0] for verb, ids, _ in self.slurm.told if verb == "warn"]

    def fails_on_burst1(self, end: JobEnd) -> None:
        """Job 7 has ended on burst1."""
        self.slurm.jobs[7] = MemoryJob(
            job_id=7, seconds=60.0, submit_time=0.0, state=end.state, end_time=end.end_time,
            may_requeue=end.may_requeue, had=("burst1",),
        )  # fmt: skip

    def job_updates(self) -> list[dict[str, str]]:
        return [call[2] for call in self.slurm.told if call[0] == "job"]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.fleet.listed = [make_instance("burst1"), make_instance("burst2")]
    rig.look(
        [make_node("burst1", "MIXED"), make_node("burst2", "MIXED")],
        [make_queued(7, "RUNNING", nodes="burst1", queue="burst"), make_queued(8, "RUNNING", nodes="burst2")],
    )
    rig.round()
    return rig
