"""The nodes of one job are launched all or none, in one zone."""

from __future__ import annotations

import pytest

from advisor.ec2.errors import Failure, FailureClass
from advisor.model.advice import Capacity

pytestmark = pytest.mark.ec2

MID = {
    "nodes": "mid[1-9]",
    "instance_types": ["c5.xlarge", "m5.xlarge"],
    "cores": 4,
    "memory_mb": 7000,
    "on_demand_usd_per_hour": 0.3,
}
BIG = {**MID, "nodes": "big[1-9]", "instance_types": ["c5.9xlarge"]}
FOUR = ("mid1", "mid2", "mid3", "mid4")
MIXED = ("mid1", "mid2", "big1")
ZONES = ("us-east-1a", "us-east-1b")


@pytest.fixture
def start(start_fleet, subnets):
    def begin(*zones, **settings):
        chosen = tuple(subnets[zone] for zone in zones)
        return start_fleet(**{"classes": {"mid": MID, "big": BIG}, "subnet_ids": chosen, **settings})

    return begin


def alive(emulator):
    return [i for i in emulator.instances() if i["state"] not in ("shutting-down", "terminated")]


def zones(emulator):
    return {item["zone"] for item in alive(emulator)}


def resume(fleet, job, *, capacity=Capacity.ON_DEMAND, nodes=None, **more):
    nodes = nodes or job
    return fleet.resume(nodes, capacity_of=dict.fromkeys(nodes, capacity), jobs=[job], **more)


@pytest.mark.parametrize("capacity", [Capacity.SPOT, Capacity.ON_DEMAND])
def test_a_job_of_four_nodes_gets_one_zone(emulator, start, capacity):
    for zone in ZONES:  # each type has three nodes in each zone, but one that has four
        for kind in MID["instance_types"]:
            emulator.capacity({f"{kind}|{zone}|{capacity.value}": 3})
    emulator.capacity({f"m5.xlarge|us-east-1b|{capacity.value}": 4})
    report = resume(start(*ZONES), FOUR, capacity=capacity)
    assert [item.node for item in report.launched] == list(FOUR)
    found = {(item["type"], item["zone"], item["option"]) for item in alive(emulator)}
    assert found == {("m5.xlarge", "us-east-1b", capacity.value)}


def test_a_node_beside_one_that_is_up_is_spot_also_where_no_subnet_is_named(emulator, start):
    """EC2 chooses the subnet of the first node; in the rounds it is the default one."""
    fleet = start()
    pools = (tuple(f"spot|{kind}|default" for kind in MID["instance_types"]),)
    resume(fleet, ("mid1",), capacity=Capacity.SPOT)
    report = resume(fleet, ("mid1", "mid2"), capacity=Capacity.SPOT, pools_of={"mid2": pools})
    assert (len(report.launched), report.failed) == (2, {})
    assert {(item["option"], item["zone"]) for item in alive(emulator)} == {("spot", *zones(emulator))}


def test_a_job_that_cannot_have_all_its_nodes_gets_none(emulator, start):
    emulator.capacity({"c5.xlarge|*|*": 3, "m5.xlarge|*|*": 3})
    report = resume(start(*ZONES), FOUR)
    assert report.launched == []
    assert {failure.kind for failure in report.failed.values()} == {FailureClass.CAPACITY}
    assert set(report.failed) == set(FOUR)
    assert emulator.instances() == []


def test_other_jobs_of_the_same_call_get_what_there_is(emulator, start):
    emulator.capacity({"c5.xlarge|*|*": 3, "m5.xlarge|*|*": 0})
    nodes = [*FOUR, "mid5", "mid6"]
    report = resume(start("us-east-1a"), FOUR, nodes=nodes)
    assert {item.node for item in report.launched} == {"mid5", "mid6"}
    assert set(report.failed) == set(FOUR)


def test_a_job_on_two_classes_gets_one_zone(emulator, start):
    emulator.capacity({"c5.9xlarge|us-east-1a|*": 0})
    report = resume(start(*ZONES), MIXED)
    assert {item.node for item in report.launched} == set(MIXED)
    assert zones(emulator) == {"us-east-1b"}


def test_a_job_on_two_classes_gets_one_zone_where_ec2_chooses_it(emulator, start):
    emulator.capacity({"c5.9xlarge|*|*": 0, "c5.9xlarge|us-east-1c|*": 1, "c5.xlarge|us-east-1b|*": 9})
    emulator.capacity({"c5.xlarge|*|*": 0, "m5.xlarge|*|*": 0})
    assert resume(start(), MIXED).launched == []
    assert alive(emulator) == []


def test_what_was_launched_of_a_job_is_given_back(emulator, start):
    emulator.capacity({"c5.9xlarge|*|*": 0})
    fleet = start(*ZONES)
    report = resume(fleet, MIXED)
    assert (report.launched, set(report.failed)) == ([], set(MIXED))
    assert len(emulator.instances()) == 4  # two in each zone
    assert len(report.taken_back) == 2
    assert alive(emulator) == []
    assert fleet.journal.instances() == {}


def test_a_node_joins_its_job_where_that_is(emulator, start):
    fleet = start(*ZONES)
    emulator.capacity({"c5.xlarge|us-east-1a|*": 0, "m5.xlarge|us-east-1a|*": 0})
    resume(fleet, FOUR[:3])
    assert zones(emulator) == {"us-east-1b"}
    emulator.capacity({"c5.xlarge|us-east-1a|*": 5, "c5.xlarge|us-east-1b|*": 0})
    assert [item.node for item in resume(fleet, FOUR, nodes=["mid4"]).launched] == ["mid4"]
    assert zones(emulator) == {"us-east-1b"}
    emulator.capacity({"m5.xlarge|us-east-1b|*": 0})
    more = (*FOUR, "mid5")
    assert resume(fleet, more, nodes=["mid5"]).failed["mid5"].kind is FailureClass.CAPACITY
    assert len(alive(emulator)) == 4


def test_a_job_never_sits_in_two_zones(emulator, start, subnets):
    for zone, node in zip(ZONES, ("mid1", "mid2"), strict=True):
        start(zone).resume([node])
    report = resume(start(*ZONES), ("mid1", "mid2", "mid3"), nodes=["mid3"])
    assert report.failed["mid3"].code == "TwoZones"
    assert len(alive(emulator)) == 2


def test_a_budget_that_refuses_one_node_refuses_the_job(emulator, start):
    fleet = start(*ZONES)
    why = Failure(FailureClass.BUDGET, "Budget", "spent")
    report = resume(fleet, FOUR, nodes=[*FOUR, "mid5"], refuse=lambda _nodes, _listed: {"mid3": why})
    assert report.failed == dict.fromkeys(FOUR, why)
    assert [item.node for item in report.launched] == ["mid5"]


def test_f09_a_lost_answer_about_a_whole_job_is_settled(emulator, start):
    emulator.faults([{"service": "ec2", "action": "RunInstances", "reset": "after", "times": 4}])
    fleet = start("us-east-1a")
    assert resume(fleet, FOUR).failed["mid1"].kind is FailureClass.SERVER
    fleet = start("us-east-1a")
    assert {item.node for item in fleet.recover(FOUR)} == set(FOUR)
    assert {item.node for item in resume(fleet, FOUR).launched} == set(FOUR)
    assert len(alive(emulator)) == 4


def test_a_quota_that_a_wide_job_exceeds_closes_nothing_for_single_nodes(emulator, start):
    emulator.quotas({"on-demand": 8})
    fleet = start("us-east-1a")
    assert resume(fleet, FOUR).failed["mid1"].kind is FailureClass.QUOTA
    assert fleet.unavailable.closed(Capacity.ON_DEMAND, fleet.settings) is None
    assert resume(fleet, FOUR).failed["mid1"].code == "NoPoolOpen"  # EC2 is not asked again
    assert fleet.resume(["mid5"]).launched
    emulator.quotas({"on-demand": 4})
    assert fleet.resume(["mid6"]).newly_unavailable  # told again: now it closes the option for all
    assert fleet.unavailable.closed(Capacity.ON_DEMAND, fleet.settings)
    resume(fleet, FOUR)
    assert fleet.unavailable.closed(Capacity.ON_DEMAND, fleet.settings)


def test_a_wide_job_that_comes_after_a_pause_does_not_close_the_pool_for_single_nodes(emulator, start, clock):
    fleet = start("us-east-1a")
    emulator.capacity({"c5.xlarge|*|*": 0, "m5.xlarge|*|*": 0})
    assert fleet.resume(["mid5"]).failed
    clock.sleep(1800.0)
    emulator.capacity({"c5.xlarge|*|*": 2, "m5.xlarge|*|*": 2})
    assert resume(fleet, FOUR).failed
    assert fleet.resume(["mid5"]).launched


def test_pauses_of_what_only_an_admin_can_mend_grow_whichever_job_tries(emulator, start, clock):
    fleet = start("us-east-1a")
    error = {"code": "UnauthorizedOperation", "status": 403}
    emulator.faults([{"service": "ec2", "action": "RunInstances", "error": error}])
    pauses = []
    for job in (("mid5",), FOUR, FOUR, ("mid6",)):
        assert resume(fleet, job).failed
        pause = max(one["until"] for one in fleet.unavailable.unavailable().values()) - clock.wall
        pauses.append(pause)
        clock.sleep(pause + 1.0)
    assert pauses == [180.0, 360.0, 720.0, 1440.0]
