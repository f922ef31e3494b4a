"""Provision and reconcile: what slurmctld asks is done, what is unclear is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from advisor.model.advice import Capacity, Placement
from advisor.model.errors import RetryLater
from advisor.model.snapshot import QueuedJob, Reservation
from advisor.service.cloud.block_keeper import BlockKeeper
from advisor.slurm.block_ends import BlockEnds
from tests.service.cloud.rig import EMPTY_POOL, SERVER_FAULT, Rig, comment, rig
from tests.service.doubles import (
    make_instance,
    make_node,
    make_queued,
    states_told,
)

__all__ = ["rig"]


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


def test_a_job_that_may_not_be_requeued_any_more_is_not_launched_on_spot(rig: Rig) -> None:
    """Its user may forbid it after the advice: scontrol update jobid=7 requeue=0."""
    queued = make_queued(7, admin_comment=comment(capacity=Capacity.SPOT), queue="burst")
    rig.look(jobs=[replace(queued, job=structs.replace(queued.job, requeue=False))])
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.provision.act_on_handovers()
    assert rig.fleet.of("resume")[0][1] == {"burst1": Capacity.ON_DEMAND}


def test_the_fleet_is_told_which_nodes_are_of_one_job(rig: Rig) -> None:
    rig.look(jobs=[make_queued(7, queue="burst"), make_queued(8, queue="burst")])
    rig.hand_over("resume", "burst[1-3]", {7: "burst[1-2]", 8: "burst3"})
    rig.provision.act_on_handovers()
    assert rig.fleet.jobs_of_several == [("burst1", "burst2")]


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


def test_a_suspend_goes_before_launches_but_not_before_that_of_its_own_node(rig: Rig) -> None:
    rig.hand_over("resume", "burst[1-2]")
    rig.hand_over("resume", "burst3")
    rig.hand_over("suspend", "burst[2,4]")
    rig.hand_over("suspend", "burst5")
    rig.provision.act_on_handovers()
    acts = [(name, what[0] if name == "resume" else what) for name, what in rig.fleet.asked]
    assert [act for act in acts if act[0] in ("resume", "suspend")] == [
        ("suspend", ("burst5",)),
        ("resume", ("burst1",)),  # burst2 is to be suspended at once
        ("resume", ("burst3",)),
        ("suspend", ("burst2", "burst4")),
    ]


def test_a_suspend_that_comes_during_slow_launches_is_done_before_the_rest_of_them(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = rig.fleet.resume

    def slow(nodes, **options):
        rig.hands.pass_by(6.0)
        if "burst1" in nodes:
            rig.hand_over("suspend", "burst9")
        return launch(nodes, **options)

    monkeypatch.setattr(rig.fleet, "resume", slow)
    rig.hand_over("resume", "burst1")
    rig.hand_over("resume", "burst2")
    rig.hand_over("resume", "burst3")
    for _ in range(3):
        rig.provision.act_on_handovers()
    assert [name for name, _ in rig.fleet.asked if name != "asked_for"] == [
        "resume",
        "suspend",
        *2 * ["resume"],
    ]
    assert rig.waiting == 0


def test_f01_nodes_refused_for_one_reason_are_told_to_slurm_in_one_call(rig: Rig) -> None:
    other = replace(EMPTY_POOL, code="MaxSpotInstanceCountExceeded")
    rig.fleet.refusals = {"burst1": EMPTY_POOL, "burst2": other, "burst3": EMPTY_POOL}
    rig.look()
    rig.hand_over("resume", "burst[1-3]")
    rig.provision.act_on_handovers()
    assert [call[1] for call in rig.slurm.told] == [("burst1", "burst3"), ("burst2",)]
    # without an address slurmctld looks for a node by name, and answers nothing for ten seconds
    assert {call[2]["address"] for call in rig.slurm.told} == {"255.255.255.255"}
    assert rig.provision.refusals == {EMPTY_POOL.code: 2, other.code: 1}


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
        (
            "node",
            ("burst1",),
            {
                "state": "POWER_DOWN_FORCE",
                "reason": rig.slurm.told[-1][2]["reason"],
                "address": "255.255.255.255",
            },
        ),
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


def test_a_node_is_counted_once_however_often_its_hand_over_is_tried(rig: Rig) -> None:
    rig.fleet.refusals = {"burst2": SERVER_FAULT}
    rig.hand_over("resume", "burst[1-2]")
    for _ in range(3):
        with pytest.raises(RetryLater):
            rig.provision.act_on_handovers()
    rig.fleet.refusals = {}
    rig.provision.act_on_handovers()
    assert rig.provision.launches.total() == 2


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


def test_f14_a_node_whose_suspend_slurmctld_has_forgotten_keeps_its_machine(rig: Rig) -> None:
    """Killed before it has saved its state, slurmctld takes the node for one that is up: jobs start there."""
    rig.hand_over("suspend", "burst[1-3]")
    rig.look(
        [make_node("burst1", "ALLOCATED"), make_node("burst2", "IDLE"), make_node("burst3", "POWERING_DOWN")],
        [make_queued(7, "RUNNING", queue="burst", nodes="burst1")],
    )
    rig.provision.act_on_handovers()
    assert rig.fleet.of("suspend") == [("burst3",)]
    assert rig.waiting == 0


def test_f14_a_suspend_is_not_judged_by_what_slurm_showed_before_it(rig: Rig) -> None:
    """Seen when a node was powered down within a second of another's suspend."""
    rig.look([make_node("burst1", "IDLE"), make_node("burst2", "ALLOCATED")])
    rig.hand_over("suspend", "burst1")
    rig.provision.act_on_handovers()
    rig.hand_over("suspend", "burst2")
    rig.provision.act_on_handovers()
    assert rig.fleet.of("suspend") == [("burst1",), ("burst2",)]


def test_f14_a_suspend_waits_while_slurmctld_is_away(rig: Rig) -> None:
    """A restarted one may have forgotten it."""
    rig.hand_over("suspend", "burst1")
    rig.slurm.is_away = True
    with pytest.raises(RetryLater):
        rig.provision.act_on_handovers()
    assert rig.fleet.of("suspend") == []
    rig.slurm.is_away = False
    rig.provision.act_on_handovers()
    assert rig.fleet.of("suspend") == [("burst1",)]


def test_f14_a_node_slurm_has_given_up_meanwhile_is_not_launched(rig: Rig) -> None:
    rig.hand_over("resume", "burst[1-2]")
    rig.hands.pass_by(700.0)
    rig.look([make_node("burst1", "IDLE", "POWERED_DOWN"), make_node("burst2", "MIXED", "POWERING_UP")])
    rig.provision.act_on_handovers()
    assert rig.fleet.of("resume") == [(("burst2",), {})]


@pytest.mark.parametrize("later", ["resume_fail", "suspend", "resume"])
def test_f14_a_node_that_a_later_hand_over_is_about_is_not_launched_for_an_earlier_one(
    rig: Rig, later: str
) -> None:
    """It was launched and paid for, and the next job got it without its account being asked."""
    rig.hand_over("resume", "burst[1-2]")
    rig.hand_over(later, "burst1")
    rig.provision.act_on_handovers()
    launched = [node for nodes, _ in rig.fleet.of("resume") for node in nodes]
    assert launched == (["burst2", "burst1"] if later == "resume" else ["burst2"])
    assert rig.waiting == 0


def test_the_end_of_a_block_stays_known_to_slurm_while_the_account_cannot_be_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started while EC2 did not answer, it took the block for gone: EC2 ended the jobs that began then."""
    known = {"cr-1": Reservation(name="advisor_end_cr-1", begin=9e9, end=9.1e9, nodes=frozenset({"burst1"}))}
    deleted: list[str] = []
    monkeypatch.setattr("advisor.slurm.block_ends.delete_reservation", lambda _, name: deleted.append(name))
    monkeypatch.setattr(BlockEnds, "known", lambda _: dict(known))
    in_blocks = {"cr-1": {"burst1"}}
    monkeypatch.setattr(rig.fleet, "in_blocks", lambda: in_blocks)
    commands: Any = None
    keeper = BlockKeeper(replace(rig.context, block_ends=BlockEnds(commands)))
    keeper.keep()
    assert deleted == []
    in_blocks.clear()
    keeper.keep()
    assert deleted == ["advisor_end_cr-1"]
