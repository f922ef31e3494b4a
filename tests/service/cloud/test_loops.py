"""Provision and reconcile: what slurmctld asks is done, what is unclear is left alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from advisor.decide.explanation.admin_comment import admin_comment
from advisor.ec2.errors import Failure, FailureClass
from advisor.model import Advice, Answer, Capacity, Mode, Node, Placement, Question, Verdict
from advisor.model.cluster import NodePower
from advisor.model.errors import RetryLater, TellAdmin
from advisor.model.settings import ClusterSettings, Ec2Settings, Settings
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.exchange.handover import HandoverFolder, decode
from advisor.service.observation.poll_view import SharedView
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.state_files import INTERRUPTIONS
from advisor.slurm.protocol import QueuedJob
from advisor.testing.memory_slurm import MemorySlurm
from tests.service.doubles import (
    POOL,
    FakeFleet,
    Hands,
    make_instance,
    make_look,
    make_node,
    make_queued,
    states_told,
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
        self.provision = ProvisionLoop(context, folder=self.folder)
        self.reconcile = ReconcileLoop(context)
        self._number = 0
        self.look()
        self.provision.act_on_handovers()  # it knows the nodes from then on,
        self.hands.monotonic += 61.0  # and has not seen Slurm lately

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

    def hand_over(self, operation: str, nodes: str, jobs: dict[int, str] | None = None) -> None:
        self._number += 1
        resume_file = {"jobs": [{"job_id": job, "nodes": names} for job, names in (jobs or {}).items()]}
        message = {
            "v": 1,
            "op": operation,
            "id": f"{self._number:020d}-1-00000000",
            "time": self.hands.wall,
            "nodes": nodes,
            "resume_file": json.dumps(resume_file) if jobs else None,
        }
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
        )
    )


def test_a_resume_launches_and_tells_the_address(rig: Rig) -> None:
    rig.hand_over("resume", "burst[1-2]")
    rig.provision.act_on_handovers()
    assert rig.fleet.of("resume") == [(("burst1", "burst2"), {})]
    changes = {"address": "10.0.0.9"}
    assert rig.slurm.told == [
        ("node", ("burst1",), changes | {"hostname": "burst1"}),
        ("node", ("burst2",), changes | {"hostname": "burst2"}),
    ]
    assert rig.waiting == 0


def test_each_node_gets_the_capacity_its_job_was_advised(rig: Rig) -> None:
    jobs = [
        make_queued(7, admin_comment=comment(capacity=Capacity.SPOT), queue="burst"),
        make_queued(8, admin_comment=comment(capacity=Capacity.ON_DEMAND), queue="burst"),
        make_queued(9, admin_comment='{"id":"forged"}', queue="burst"),
    ]
    rig.look(jobs=jobs)
    rig.hand_over("resume", "burst[1-3]", {7: "burst1", 8: "burst2", 9: "burst3"})
    rig.provision.act_on_handovers()
    asked = rig.fleet.of("resume")[0][1]
    assert asked == {"burst1": Capacity.SPOT, "burst2": Capacity.ON_DEMAND}


def test_a_node_that_promises_a_stable_place_is_never_spot(rig: Rig) -> None:
    """Jobs that may not be requeued are sent to nodes with these features."""
    features = {
        "burst1": ("cloud", "spot"),
        "burst2": ("cloud", "spot", "on-demand"),
        "burst3": ("reserved",),
        "burst4": (),
    }
    nodes = [make_node(name, "POWERING_UP", features=those) for name, those in features.items()]
    jobs = [
        make_queued(n, admin_comment=comment(capacity=Capacity.SPOT), queue="burst") for n in (1, 2, 3, 4)
    ]
    rig.look(nodes, jobs)
    rig.hand_over("resume", "burst[1-4]", {n: f"burst{n}" for n in (1, 2, 3, 4)})
    rig.provision.act_on_handovers()
    asked = rig.fleet.of("resume")[0][1]
    assert {node for node, capacity in asked.items() if capacity is Capacity.SPOT} == {"burst1", "burst4"}
    assert {asked["burst2"], asked["burst3"]} == {Capacity.ON_DEMAND}


def test_f06_an_address_that_comes_later(rig: Rig) -> None:
    rig.fleet.addresses["burst1"] = ""
    rig.hand_over("resume", "burst1")
    rig.provision.act_on_handovers()
    assert rig.slurm.told == []
    rig.provision.find_addresses()
    assert rig.slurm.told == []
    rig.fleet.listed = [make_instance("burst1", private_ip="10.0.0.5")]
    rig.provision.find_addresses()
    rig.provision.find_addresses()
    assert [call[2]["address"] for call in rig.slurm.told] == ["10.0.0.5"]


def test_f01_no_capacity_frees_the_node_and_brings_our_job_back(rig: Rig) -> None:
    rig.fleet.refusals = {"burst1": EMPTY_POOL}
    rig.look(jobs=[make_queued(7, "CONFIGURING", admin_comment=comment(), queue="burst")])
    rig.hand_over("resume", "burst[1-2]", {7: "burst[1-2]"})
    rig.provision.act_on_handovers()
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_FORCE"}
    assert rig.waiting == 0
    configuring = make_queued(7, "CONFIGURING", admin_comment=comment(), queue="burst")
    rig.look(jobs=[configuring])
    rig.provision.return_jobs()
    assert not [call for call in rig.slurm.told if call[0] == "job"]
    rig.look(jobs=[make_queued(7, admin_comment=comment(), queue="burst")])
    rig.provision.return_jobs()
    rig.provision.return_jobs()
    jobs = [call for call in rig.slurm.told if call[0] == "job"]
    assert jobs == [("job", (7,), {"partition": "onprem", "starttime": "now"})]


def test_f01_a_job_that_may_not_be_requeued_is_not_lost_with_the_node_it_never_had(rig: Rig) -> None:
    """slurmctld would end it with the node; it has not begun, so it may go back into the queue."""

    def shown(state: str, *, requeue: bool) -> QueuedJob:
        queued = make_queued(7, state, admin_comment=comment(), queue="burst")
        return replace(queued, job=structs.replace(queued.job, requeue=requeue))

    rig.fleet.refusals = {"burst1": EMPTY_POOL}
    rig.look(jobs=[shown("CONFIGURING", requeue=False)])
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.provision.act_on_handovers()
    assert rig.slurm.told == [
        ("job", (7,), {"requeue": "1"}),
        ("node", ("burst1",), {"state": "POWER_DOWN_FORCE", "reason": rig.slurm.told[-1][2]["reason"]}),
    ]
    rig.look(jobs=[shown("PENDING", requeue=True)])
    rig.provision.return_jobs()
    assert rig.slurm.told[-1] == ("job", (7,), {"partition": "onprem", "starttime": "now", "requeue": "0"})


@pytest.mark.parametrize(
    ("features", "left"), [(("on-demand",), ""), (("avx", "ib", "on-demand"), "avx&ib"), (("avx",), None)]
)
def test_f01_our_constraint_goes_with_the_job_s_return(rig: Rig, features, left) -> None:
    rig.fleet.refusals = {"burst1": EMPTY_POOL}
    rig.look(jobs=[make_queued(7, "CONFIGURING", queue="burst")])
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.provision.act_on_handovers()
    rig.look(jobs=[make_queued(7, admin_comment=comment(), queue="burst", features=features)])
    rig.provision.return_jobs()
    changes = {"partition": "onprem", "starttime": "now"} | ({} if left is None else {"features": left})
    assert [call for call in rig.slurm.told if call[0] == "job"] == [("job", (7,), changes)]


@pytest.mark.parametrize(
    ("origin", "home"),
    [
        ("long", "long"),
        ("long,onprem", "long,onprem"),
        (None, "onprem"),
        ("gone", "onprem"),  # not one of ours any more
        ("long,gone", "onprem"),
    ],
)
def test_a_job_comes_back_to_where_it_was(rig: Rig, origin: str | None, home: str) -> None:
    cluster = rig.settings.cluster.model_copy(update={"on_premise_partitions": ("onprem", "long")})
    rig.provision._settings = rig.settings.model_copy(update={"cluster": cluster})
    rig.fleet.refusals = {"burst1": EMPTY_POOL}
    rig.look(jobs=[make_queued(7, "CONFIGURING", queue="burst")])
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.provision.act_on_handovers()
    rig.look(jobs=[make_queued(7, admin_comment=comment(origin=origin), queue="burst")])
    rig.provision.return_jobs()
    assert [call[2]["partition"] for call in rig.slurm.told if call[0] == "job"] == [home]


def test_a_job_its_user_sent_to_the_cloud_is_not_brought_back_but_waits_a_while(rig: Rig) -> None:
    rig.fleet.refusals = {"burst1": EMPTY_POOL}
    rig.look(jobs=[make_queued(7, "CONFIGURING", queue="burst")])
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.provision.act_on_handovers()
    own = {"admin_comment": comment(Placement.ON_PREMISE, None), "queue": "burst"}
    rig.look(jobs=[make_queued(7, "CONFIGURING", **own)])
    rig.provision.return_jobs()
    assert not [call for call in rig.slurm.told if call[0] == "job"]
    rig.look(jobs=[make_queued(7, **own)])
    rig.provision.return_jobs()
    rig.provision.return_jobs()
    jobs = [call for call in rig.slurm.told if call[0] == "job"]
    assert jobs == [("job", (7,), {"starttime": "now+180"})]
    assert rig.provision.returning == set()


def test_f03_a_fault_of_ec2_is_tried_again_after_it_is_settled(rig: Rig) -> None:
    rig.fleet.refusals = {"burst1": SERVER_FAULT}
    rig.hand_over("resume", "burst1")
    with pytest.raises(RetryLater):
        rig.provision.act_on_handovers()
    assert rig.waiting == 1
    assert states_told(rig.slurm) == {}
    rig.fleet.refusals = {}
    rig.provision.act_on_handovers()
    assert rig.fleet.of("recover") == [("burst1",)]
    assert rig.waiting == 0


def test_one_hand_over_that_fails_holds_up_no_other(rig: Rig) -> None:
    rig.fleet.refusals = {"burst1": SERVER_FAULT}
    rig.hand_over("resume", "burst1")
    rig.hand_over("resume", "burst2")
    with pytest.raises(RetryLater):
        rig.provision.act_on_handovers()
    assert [nodes for nodes, _ in rig.fleet.of("resume")] == [("burst1",), ("burst2",)]
    assert rig.waiting == 1


def test_f12_a_suspend_that_fails_is_tried_until_it_is_done(rig: Rig) -> None:
    rig.fleet.error = RetryLater("EC2 is away", code="ec2.server")
    rig.hand_over("suspend", "burst1")
    with pytest.raises(RetryLater):
        rig.provision.act_on_handovers()
    rig.fleet.error = None
    rig.provision.act_on_handovers()
    assert rig.fleet.of("suspend") == [("burst1",), ("burst1",)]
    assert rig.waiting == 0


def test_f02_a_failed_boot_is_counted_and_its_node_usable_again(rig: Rig) -> None:
    rig.hand_over("resume_fail", "burst[1-2]")
    rig.provision.act_on_handovers()
    assert rig.fleet.of("suspend") == [("burst1", "burst2")]
    assert states_told(rig.slurm) == {"burst1": "RESUME", "burst2": "RESUME"}
    assert rig.cloud.boot_failures == 2
    assert rig.cloud.protected == ""


def test_a_failed_boot_counts_once_however_often_slurmctld_must_be_told(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise RetryLater("slurmctld is away", code="slurm.away")

    rig.hand_over("resume_fail", "burst1")
    with monkeypatch.context() as patch:
        patch.setattr(rig.slurm, "update_node", away)
        for _ in range(12):
            with pytest.raises(RetryLater):
                rig.provision.act_on_handovers()
    rig.provision.act_on_handovers()
    assert rig.waiting == 0
    assert rig.cloud.boot_failures == 1
    rig.hand_over("resume_fail", "burst1")
    rig.provision.act_on_handovers()
    assert rig.cloud.boot_failures == 2


def test_f18_ten_failed_boots_protect_and_one_good_boot_ends_it(rig: Rig) -> None:
    for _ in range(5):
        rig.hand_over("resume_fail", "burst[1-2]")
    rig.provision.act_on_handovers()
    assert "10 cloud nodes in a row" in rig.cloud.protected
    rig.hand_over("resume", "burst3")
    rig.provision.act_on_handovers()
    rig.hands.pass_by(40.0)
    rig.look([make_node("burst3", "ALLOCATED")])
    rig.provision.watch_boots()
    assert rig.cloud.protected == ""


def test_boot_times_are_learned(rig: Rig) -> None:
    for node, seconds in (("burst1", 60.0), ("burst2", 80.0), ("burst3", 100.0)):
        rig.hand_over("resume", node)
        rig.provision.act_on_handovers()
        rig.look([make_node(node, "MIXED", "POWERING_UP")])
        rig.provision.watch_boots()
        rig.hands.pass_by(seconds)
        rig.look([make_node(node, "MIXED")])
        rig.provision.watch_boots()
    assert rig.cloud.boot_seconds == 100.0  # four of five boots are not longer
    assert rig.cloud.boot_times()[POOL.key].median_seconds == 80.0


def test_f14_a_node_slurm_has_given_up_meanwhile_is_not_launched(rig: Rig) -> None:
    rig.hand_over("resume", "burst[1-2]")
    rig.hands.pass_by(700.0)
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN"), make_node("burst2", "MIXED", "POWERING_UP")])
    rig.provision.act_on_handovers()
    assert rig.fleet.of("resume") == [(("burst2",), {})]


# ---------------------------------------------------------------------------------- reconcile


def reconcile(rig: Rig) -> None:
    for step in rig.reconcile.steps():
        step.run()


def test_f12_an_instance_nobody_claims_goes_after_the_grace_time(rig: Rig) -> None:
    rig.fleet.listed = [
        make_instance("burst1"),
        make_instance("burst2"),
        make_instance(None, instance_id="i-x"),
    ]
    nodes = [make_node("burst1", "IDLE", "POWERED_DOWN"), make_node("burst2", "MIXED", "POWERING_UP")]
    rig.look(nodes)
    reconcile(rig)
    assert rig.fleet.of("terminate") == []
    rig.hands.pass_by(130.0)
    rig.look(nodes)
    reconcile(rig)
    assert rig.fleet.of("terminate") == [("i-burst1", "i-x")]


def test_f16_an_unknown_power_state_ends_no_instance(rig: Rig) -> None:
    """A release of Slurm may call a node's state by a word that nobody here knows."""
    rig.fleet.listed = [make_instance("burst1"), make_instance("burst2")]
    for _ in range(3):
        nodes = [make_node("burst1", "BRAND_NEW_STATE"), make_node("burst2", "IDLE", "POWERED_DOWN")]
        assert nodes[0].power is NodePower.UNKNOWN
        rig.look(nodes)
        reconcile(rig)
        rig.hands.pass_by(130.0)
    assert set(rig.fleet.of("terminate")) == {("i-burst2",)}
    assert rig.slurm.told == []


def test_a_node_of_another_partition_claims_its_instance(rig: Rig) -> None:
    """A burst partition that lost a node must not cost that node's jobs their instance."""
    rig.fleet.listed = [make_instance("burst1"), make_instance("burst2")]
    for _ in range(2):
        rig.look([make_node("burst1", "ALLOCATED", partitions=("other",)), make_node("burst2", "MIXED")])
        reconcile(rig)
        rig.hands.pass_by(130.0)
    assert rig.fleet.of("terminate") == []


def test_without_any_burst_node_nothing_is_given_up_and_the_admin_told(rig: Rig) -> None:
    """A wrong cluster.burst_partition says nothing about instances."""
    rig.fleet.listed = [make_instance("burst1")]
    for _ in range(2):
        rig.look([make_node("on1")], others=False)
        rig.reconcile.read_instances()
        with pytest.raises(TellAdmin, match="burst"):
            rig.reconcile.terminate_orphans()
        rig.hands.pass_by(130.0)
    assert rig.fleet.of("terminate") == []


@pytest.mark.parametrize("own", ["i-a", "i-b"])
def test_f10_of_two_instances_the_one_slurm_talks_to_stays(rig: Rig, own: str) -> None:
    rig.fleet.listed = [
        make_instance("burst1", instance_id=name, private_ip="10.0.0.1" if name == own else "10.0.0.2")
        for name in ("i-a", "i-b")
    ]
    for _ in range(2):
        rig.look([make_node("burst1", "ALLOCATED", address="10.0.0.1")])
        reconcile(rig)
        rig.hands.pass_by(130.0)
    assert rig.fleet.of("terminate") == [({"i-a": "i-b", "i-b": "i-a"}[own],)]


def test_f32_a_clock_that_jumps_ripens_nothing(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1")]
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")])
    reconcile(rig)
    rig.hands.wall += 3600.0
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")])
    reconcile(rig)
    assert rig.fleet.of("terminate") == []


def test_f23_nothing_is_given_up_while_one_side_cannot_be_read(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1")]
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")])
    reconcile(rig)
    rig.hands.pass_by(1000.0)  # Slurm has not been seen since
    with pytest.raises(RetryLater):
        rig.reconcile.terminate_orphans()
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN")])
    rig.fleet.error = RetryLater("EC2 is away", code="ec2.server")
    with pytest.raises(RetryLater):
        rig.reconcile.read_instances()
    rig.reconcile.terminate_orphans()
    assert rig.fleet.of("terminate") == []


def test_f10_of_two_instances_of_one_node_one_goes(rig: Rig) -> None:
    twins = [make_instance("burst1", instance_id="i-a"), make_instance("burst1", instance_id="i-b")]
    rig.fleet.listed = twins
    for _ in range(2):
        rig.look([make_node("burst1", "ALLOCATED")])
        reconcile(rig)
        rig.hands.pass_by(130.0)
    (given_up,) = rig.fleet.of("terminate")
    assert len(given_up) == 1


def test_f19_a_node_is_lost_only_when_both_sides_say_so(rig: Rig) -> None:
    rig.fleet.listed = [
        make_instance("burst1", state="terminated", state_reason="Server.SpotInstanceTermination"),
        make_instance("burst2", state="terminated"),
        make_instance("burst3"),
    ]
    nodes = [
        make_node("burst1", "ALLOCATED", "NOT_RESPONDING"),
        make_node("burst2", "ALLOCATED"),
        make_node("burst3", "ALLOCATED", "NOT_RESPONDING"),
    ]
    for _ in range(2):
        rig.look(nodes)
        reconcile(rig)
        rig.hands.pass_by(20.0)
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_FORCE"}


@pytest.mark.parametrize(("reason", "is_lost"), [("Client.UserInitiatedShutdown", False), ("", True)])
def test_f19_a_node_that_boots_anew_is_not_lost_with_its_former_instance(
    rig: Rig, reason: str, *, is_lost: bool
) -> None:
    """SuspendProgram ended the instance, and slurmctld has resumed the node before we have heard of it."""
    rig.fleet.listed = [make_instance("burst1", state="terminated", state_reason=reason)]
    for _ in range(2):
        rig.look([make_node("burst1", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING")])
        reconcile(rig)
        rig.hands.pass_by(20.0)
    assert bool(states_told(rig.slurm)) == is_lost


def test_f02_a_powered_down_node_left_down_is_mended(rig: Rig) -> None:
    rig.look(
        [
            make_node("burst1", "DOWN", "POWERED_DOWN"),
            make_node("burst2", "DOWN", "POWERED_DOWN", "DRAIN"),
            make_node("burst3", "DOWN"),
        ]
    )
    reconcile(rig)
    assert states_told(rig.slurm) == {"burst1": "RESUME"}


def test_f07_a_node_that_powers_up_gets_its_own_instances_address(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1", private_ip="10.0.0.5"), make_instance("burst2")]
    rig.look([make_node("burst1", "MIXED", "POWERING_UP"), make_node("burst2", "ALLOCATED")])
    reconcile(rig)
    assert rig.slurm.told == [("node", ("burst1",), {"address": "10.0.0.5", "hostname": "burst1"})]


def test_the_days_bill(rig: Rig) -> None:
    rig.fleet.listed = [
        make_instance("burst1"),
        make_instance("burst2", option=Capacity.ON_DEMAND),
        make_instance("burst3", state="terminated"),
    ]
    nodes = [make_node(f"burst{i}", "ALLOCATED") for i in (1, 2)]
    jobs = [make_queued(7, "RUNNING", nodes="burst1", account="physics", queue="burst")]
    for _ in range(3):
        rig.look(nodes, jobs)
        reconcile(rig)
        rig.hands.pass_by(1800.0)
    usd, by_account = rig.cloud.budget.spent_today()
    assert usd == pytest.approx(3.0)
    assert dict(by_account) == {"physics": pytest.approx(1.0)}
    rig.hands.pass_by(86400.0)
    assert rig.cloud.budget.spent_today()[0] == 0.0


def test_day_one_10_an_instance_that_is_nobodys_costs_all_the_same(rig: Rig) -> None:
    """Until it is given up: the second one of a node, and one without a node."""
    rig.fleet.listed = [
        make_instance("burst1", launch_time=rig.hands.wall),
        make_instance("burst1", instance_id="i-double", launch_time=rig.hands.wall, private_ip="10.9.9.9"),
        make_instance(None, instance_id="i-nobody", launch_time=rig.hands.wall),
    ]
    rig.hands.pass_by(3600.0)
    rig.look([make_node("burst1", "IDLE")])
    rig.reconcile.read_instances()
    rig.reconcile.count_money()
    assert rig.cloud.budget.spent_today()[0] == pytest.approx(3.0)
    assert {piece.instance_id for piece in rig.cloud.budget.paid()} == {"i-burst1", "i-double", "i-nobody"}


def test_the_record_survives_a_restart_and_a_damaged_file(rig: Rig, tmp_path: Path) -> None:
    for seconds in (10.0, 20.0, 30.0):
        rig.cloud.booted(seconds)
    again = CloudRecord(tmp_path, rig.hands.clock)
    assert again.boot_seconds == 30.0
    infinite = '{"boots": {}, "failures_in_a_row": Infinity, "boots_seen": 1, "failures_seen": 1}'
    for content in ('{"boots": {"p": [1, "x"', infinite, "[]"):
        (tmp_path / "cloud.json").write_text(content)
        assert CloudRecord(tmp_path, rig.hands.clock).boot_seconds is None
