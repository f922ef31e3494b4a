"""What is paid for already is launched in first, and its end is respected; placement groups; EFA."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from advisor.ec2.errors import Failure, FailureClass
from advisor.ec2.fleet import Fleet
from advisor.ec2.reading_account import AccountCache
from advisor.model.advice import Capacity
from advisor.testing.ec2 import Ec2Emulator
from advisor.testing.manual_clock import ManualClock
from tests.ec2.test_account import reservation_row

pytestmark = pytest.mark.ec2
SPOT, ON_DEMAND = Capacity.SPOT, Capacity.ON_DEMAND
TARGETED = {"InstanceMatchCriteria": "targeted", "Tags": [{"Key": "advisor:cluster", "Value": "c1"}]}
BLOCK = {**TARGETED, "ReservationType": "capacity-block"}
HOUR = 3600.0
MPI = {
    "nodes": "mpi[1-9]",
    "instance_types": ["c5n.18xlarge"],
    "cores": 36,
    "memory_mb": 180000,
    "on_demand_usd_per_hour": 4.0,
    "placement_group": True,
    "efa": True,
}


@pytest.fixture
def start(emulator: Ec2Emulator, start_fleet: Callable[..., Fleet]) -> Callable[..., Fleet]:
    def begin(**settings: Any) -> Fleet:
        cache = AccountCache(emulator.settings(**settings), "c1")
        cache.refresh_reservations()
        return start_fleet(account=lambda: cache.account, **settings)

    return begin


def alive(emulator: Ec2Emulator) -> dict[str, tuple[str | None, str]]:
    """Node to its reservation and market."""
    return {
        item["tags"]["advisor:node"]: (item["reservation"], item["option"])
        for item in emulator.instances()
        if item["state"] in ("pending", "running")
    }


def until(clock: ManualClock, hours: float) -> str:
    return datetime.fromtimestamp(clock.wall + hours * HOUR, UTC).isoformat()


def test_a_targeted_reservation_is_used_first_and_the_rest_goes_elsewhere(
    emulator: Ec2Emulator, start: Callable[..., Fleet], subnets: dict[str, str]
) -> None:
    emulator.reservations([reservation_row("cr-01", 3, AvailabilityZone="us-east-1b", others=1, **TARGETED)])
    fleet = start(subnet_ids=(subnets["us-east-1a"], subnets["us-east-1b"]))
    report = fleet.resume(["b1", "b2", "b3"], capacity_of=dict.fromkeys(("b1", "b2", "b3"), SPOT))
    assert alive(emulator) == {
        "b1": ("cr-01", "on-demand"),
        "b2": ("cr-01", "on-demand"),
        "b3": (None, "spot"),
    }
    assert {item.pool.key for item in report.launched if item.pool.target} == {
        f"reserved|c5.xlarge|{subnets['us-east-1b']}|cr-01"
    }
    assert alive(emulator).keys() == {item.node for item in fleet.instances() if item.is_alive}
    fleet.suspend(["b1"])
    fleet.resume(["b4"], capacity_of={"b4": ON_DEMAND})
    assert alive(emulator)["b4"] == ("cr-01", "on-demand")  # the free place is seen without another read


def test_without_subnets_the_zone_of_the_reservation_is_asked_for(
    emulator: Ec2Emulator, start: Callable[..., Fleet]
) -> None:
    emulator.reservations([reservation_row("cr-01", 1, AvailabilityZone="us-east-1c", **TARGETED)])
    start().resume(["b1"])
    (made,) = emulator.instances()
    assert (made["zone"], made["reservation"]) == ("us-east-1c", "cr-01")


def test_what_others_took_meanwhile_is_launched_elsewhere(
    emulator: Ec2Emulator, start: Callable[..., Fleet]
) -> None:
    emulator.reservations([reservation_row("cr-01", 1, **TARGETED)])
    fleet = start()
    start().resume(["b1"])
    fleet.journal.forget(frozenset(fleet.journal.instances()))  # as if somebody else had launched it
    fleet.cluster = "other"
    report = fleet.resume(["b2"])
    assert [item.node for item in report.launched] == ["b2"]
    assert alive(emulator)["b2"] == (None, "on-demand")
    assert any("cr-01" in key for key in fleet.unavailable.unavailable())


def test_a_job_longer_than_what_is_left_of_a_block_goes_elsewhere(
    emulator: Ec2Emulator, start: Callable[..., Fleet], clock: ManualClock
) -> None:
    emulator.reservations([reservation_row("cr-01", 4, EndDate=until(clock, 3.0), **BLOCK)])
    fleet = start()
    ends = {"short": clock.wall + 2.4 * HOUR, "long": clock.wall + 2.6 * HOUR}  # half an hour is EC2's
    fleet.resume(["short", "long", "unknown"], ends=ends)
    assert alive(emulator) == {
        "short": ("cr-01", "capacity-block"),
        "long": (None, "on-demand"),
        "unknown": (None, "on-demand"),
    }


def test_a_node_that_was_in_a_block_and_is_elsewhere_now_does_not_end_with_it(
    emulator: Ec2Emulator, start: Callable[..., Fleet], clock: ManualClock
) -> None:
    """EC2 takes minutes to end an instance, and its name is used again."""
    emulator.reservations([reservation_row("cr-01", 4, EndDate=until(clock, 3.0), **BLOCK)])
    fleet = start()
    fleet.resume(["b1", "b2"], ends=dict.fromkeys(("b1", "b2"), clock.wall + HOUR))
    emulator.config(shutdown_s=600.0)
    fleet.suspend(["b1"])
    fleet.resume(["b1"])
    assert alive(emulator) == {"b1": (None, "on-demand"), "b2": ("cr-01", "capacity-block")}
    assert fleet.in_blocks() == {"cr-01": {"b2"}}


def test_a_job_of_several_nodes_is_in_a_reservation_as_a_whole_or_not(
    emulator: Ec2Emulator, start: Callable[..., Fleet]
) -> None:
    emulator.reservations([reservation_row("cr-01", 2, **TARGETED), reservation_row("cr-02", 3, **TARGETED)])
    job = ["b1", "b2", "b3"]
    fleet = start()
    fleet.resume(job, jobs=[job])
    assert set(alive(emulator).values()) == {("cr-02", "on-demand")}
    fleet.resume(["b4", "b5", "b6"], jobs=[["b4", "b5", "b6"]])
    assert alive(emulator)["b5"] == (None, "on-demand")


def test_nodes_without_a_place_are_asked_about_before_they_cost_money(
    emulator: Ec2Emulator, start: Callable[..., Fleet]
) -> None:
    """The guard of the budget counted each place as one node's, also for a job that needs two."""
    emulator.reservations([reservation_row("cr-01", 1, **TARGETED)])
    job, asked = ["b1", "b2"], []

    def refuse(nodes: Sequence[str], listed: object) -> dict[str, Failure]:
        asked.append((list(nodes), listed is None))
        too_dear = {"b1", "b4"}.intersection(nodes) if listed is None else ()
        return dict.fromkeys(too_dear, Failure(FailureClass.BUDGET, "Budget", "spent"))

    report = start().resume([*job, "b5", "b4", "b3"], jobs=[job], refuse=refuse)
    assert asked == [([*job, "b5", "b4", "b3"], False), (job, True), (["b4", "b3"], True)]
    assert report.failed.keys() == {*job, "b4"}
    assert alive(emulator) == {"b5": ("cr-01", "on-demand"), "b3": (None, "on-demand")}


def test_a_launch_in_a_block_says_its_nodes_in_a_tag_that_ec2_accepts(
    emulator: Ec2Emulator, start: Callable[..., Fleet], clock: ManualClock
) -> None:
    """Every second of 160 nodes fits before the block's end: their names take 300 characters, EC2 has 256."""
    emulator.reservations([reservation_row("cr-01", 80, EndDate=until(clock, 3.0), **BLOCK)])
    nodes = [f"b{number}" for number in range(100, 260)]
    start().resume(nodes, ends=dict.fromkeys(nodes[::2], clock.wall + HOUR))
    made = [item for item in emulator.instances() if item["reservation"] == "cr-01"]
    assert len(made) == 80
    assert all(len(value) <= 256 for item in made for value in item["tags"].values())


def test_f09_a_lost_answer_about_a_reservation_is_settled_there(
    emulator: Ec2Emulator, start: Callable[..., Fleet]
) -> None:
    emulator.reservations([reservation_row("cr-01", 2, **TARGETED)])
    emulator.faults([{"service": "ec2", "action": "RunInstances", "reset": "after", "times": 4}])
    assert start().resume(["b1", "b2"]).failed.keys() == {"b1", "b2"}  # not launched once more elsewhere
    assert {item.node for item in start().recover(["b1", "b2"])} == {"b1", "b2"}
    assert {item["reservation"] for item in emulator.instances()} == {"cr-01"}
    assert len(emulator.instances()) == 2


def test_a_block_ends_its_instances_before_its_end(
    emulator: Ec2Emulator, start: Callable[..., Fleet], clock: ManualClock
) -> None:
    clock.wall = datetime.now(UTC).timestamp()
    emulator.reservations([reservation_row("cr-01", 1, EndDate=until(clock, 0.5005), **BLOCK)])
    fleet = start()
    fleet.resume(["b1"], ends={"b1": clock.wall})

    end = time.monotonic() + 60.0
    while emulator.instances()[0]["state"] != "terminated" and time.monotonic() < end:
        emulator.control("ping")
    assert not any(item.is_alive for item in fleet.instances())


def test_a_job_of_several_nodes_is_close_together_where_its_class_says_so(
    emulator: Ec2Emulator, start_fleet: Callable[..., Fleet], subnets: dict[str, str], ec2: Any
) -> None:
    group = ec2.create_security_group(GroupName="nodes", Description="of the nodes")["GroupId"]
    fleet = start_fleet(
        classes={"mpi": MPI}, subnet_ids=(subnets["us-east-1a"],), security_group_ids=(group,)
    )
    job = ["mpi1", "mpi2"]
    report = fleet.resume([*job, "mpi3"], jobs=[job])
    assert report.failed == {}
    made = {item["tags"]["advisor:node"]: item for item in emulator.instances()}
    close = f"advisor-c1-mpi-{subnets['us-east-1a']}"
    assert [made[node]["group"] for node in ("mpi1", "mpi2", "mpi3")] == [close, close, None]
    assert all(item["efa"] for item in made.values())
    assert {item["zone"] for item in made.values()} == {"us-east-1a"}
    (listed,) = ec2.describe_instances(InstanceIds=[made["mpi1"]["id"]])["Reservations"]
    assert [each["GroupId"] for each in listed["Instances"][0]["SecurityGroups"]] == [group]
    (found,) = ec2.describe_placement_groups(GroupNames=[close])["PlacementGroups"]
    assert found["Strategy"] == "cluster"
    again = start_fleet(classes={"mpi": MPI}, subnet_ids=(subnets["us-east-1a"],))
    again.resume(["mpi4", "mpi5"], jobs=[["mpi4", "mpi5"]])  # another process finds the group made
    assert emulator.instances()[-1]["group"] == close


def test_without_anything_paid_for_nothing_changes(emulator: Ec2Emulator, start: Any) -> None:
    start().resume(["b1"], capacity_of={"b1": SPOT})
    assert alive(emulator) == {"b1": (None, "spot")}
