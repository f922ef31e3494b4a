"""Faults at a launch (docs/faults.md): what must hold when EC2 refuses, throttles, or does not answer."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from advisor.ec2.errors import Failure, FailureClass, class_of, most_careful
from advisor.ec2.pools import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, Pool
from advisor.ec2.tags import INTENT_TAG, NODE_TAG, NODES_TAG
from advisor.model.advice import Capacity
from advisor.model.errors import AdvisorError, TellAdmin

pytestmark = [pytest.mark.ec2, pytest.mark.slow]

RUN = {"service": "ec2", "action": "RunInstances"}
SPOT = {"burst1": Capacity.SPOT}
EMPTY = {"c5.xlarge|*|*": 0}


def alive(emulator):
    """Instances that cost money, by node."""
    return {
        item["id"]: item["tags"].get(NODE_TAG) or f"{item['tags'][NODES_TAG]}#{item['launch_index']}"
        for item in emulator.instances()
        if item["state"] not in ("shutting-down", "terminated")
    }


def options(emulator):
    return sorted(item["option"] for item in emulator.instances())


def test_f01_no_capacity_moves_to_the_next_pool_within_a_second(emulator, start_fleet, clock, subnets):
    fleet = start_fleet(subnet_ids=(subnets["us-east-1a"], subnets["us-east-1b"]))
    emulator.capacity({"c5.xlarge|*|spot": 0, "c5.xlarge|us-east-1a|on-demand": 0})
    report = fleet.resume(["burst1"], capacity_of=SPOT)
    assert [item.node for item in report.launched] == ["burst1"]
    assert report.launched[0].pool == Pool(
        option=Capacity.ON_DEMAND, instance_type="c5.xlarge", subnet_id=subnets["us-east-1b"]
    )
    assert clock.waited == []  # three pools were empty, and nothing was waited for
    assert len(emulator.calls("RunInstances")) == 4  # nor was any of them asked twice


def test_f01_no_pool_has_capacity_says_so_per_node(emulator, fleet):
    emulator.capacity(EMPTY)
    report = fleet.resume(["burst1", "burst2"], capacity_of=SPOT)
    assert report.launched == []
    assert set(report.failed) == {"burst1", "burst2"}
    assert {failure.kind for failure in report.failed.values()} == {FailureClass.CAPACITY}
    assert fleet.journal.open_intents() == []


def test_f01_a_short_answer_gets_the_rest_from_the_next_pool(emulator, start_fleet, subnets):
    fleet = start_fleet(subnet_ids=(subnets["us-east-1a"], subnets["us-east-1b"]))
    emulator.capacity({"c5.xlarge|us-east-1a|on-demand": 3})
    report = fleet.resume([f"burst{i}" for i in range(1, 6)])
    assert sorted(item.node for item in report.launched) == [f"burst{i}" for i in range(1, 6)]
    assert report.failed == {}
    zones = [item["zone"] for item in emulator.instances()]
    assert sorted(zones) == ["us-east-1a"] * 3 + ["us-east-1b"] * 2
    assert sorted(alive(emulator).values()) == sorted(i.node for i in report.launched)


def test_f01_a_job_that_was_promised_on_demand_never_gets_spot(emulator, fleet):
    emulator.capacity({"c5.xlarge|*|on-demand": 0})
    assert fleet.resume(["burst1"]).failed["burst1"].kind is FailureClass.CAPACITY
    assert emulator.instances() == []


def test_f02_capacity_returns_and_the_node_is_usable_without_an_admin(emulator, fleet, clock):
    emulator.capacity(EMPTY)
    fleet.resume(["burst1"])
    emulator.capacity({"c5.xlarge|*|*": None})
    emulator.faults([])
    clock.pass_by(FIRST_PAUSE_SECONDS - 1)
    assert fleet.resume(["burst1"]).failed["burst1"].code == "NoPoolOpen"
    assert emulator.calls("RunInstances") == []  # a closed pool costs no call
    clock.pass_by(2)
    assert [item.node for item in fleet.resume(["burst1"]).launched] == ["burst1"]
    assert fleet.unavailable.unavailable() == {}


def test_f02_a_pool_that_stays_empty_is_asked_less_often(emulator, start_fleet, clock):
    emulator.capacity(EMPTY)
    asked = []
    fleet = start_fleet()
    for _ in range(200):  # once a minute, and restarted after every refusal
        emulator.faults([])
        fleet.resume(["burst1"])
        if emulator.calls("RunInstances"):
            asked.append(clock.wall)
            fleet = start_fleet()
        clock.pass_by(60)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert pauses[:4] == [180, 360, 720, 1440]
    assert set(pauses[4:]) == {MAX_PAUSE_SECONDS}


@pytest.mark.usefixtures("unpaced")
def test_f03_a_throttled_call_is_repeated_and_marks_no_pool(emulator, fleet, clock):
    emulator.faults([{**RUN, "times": 5, "error": {"code": "RequestLimitExceeded"}}])
    report = fleet.resume(["burst1"], capacity_of=SPOT)
    assert [item.pool.option for item in report.launched] == [Capacity.SPOT]
    assert fleet.unavailable.unavailable() == {}
    assert len({call["token"] for call in emulator.calls("RunInstances")}) == 1
    assert clock.waited == sorted(clock.waited)
    assert len(clock.waited) == 5


@pytest.mark.usefixtures("unpaced")
def test_f03_throttling_without_end_is_for_later_and_marks_no_pool(emulator, fleet):
    emulator.faults([{**RUN, "error": {"code": "RequestLimitExceeded"}}])
    report = fleet.resume(["burst1"], capacity_of=SPOT)
    assert report.failed["burst1"].kind is FailureClass.THROTTLED
    assert fleet.unavailable.unavailable() == {}
    assert fleet.journal.open_intents() == []  # certainly nothing was launched
    emulator.faults([])
    assert fleet.resume(["burst1"], capacity_of=SPOT).launched


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (["InsufficientInstanceCapacity"] * 20, FailureClass.CAPACITY),
        (["InsufficientInstanceCapacity", "UnfulfillableCapacity", "Unsupported"], FailureClass.CAPACITY),
        (["InsufficientInstanceCapacity", "RequestLimitExceeded"], FailureClass.THROTTLED),
        (["VcpuLimitExceeded", "InsufficientInstanceCapacity"], FailureClass.QUOTA),
        (["InternalError", "VcpuLimitExceeded"], FailureClass.SERVER),
        (["InvalidAMIID.NotFound", "InsufficientInstanceCapacity"], FailureClass.ADMIN),
        (["NeverHeardOf"], FailureClass.ADMIN),
    ],
)
def test_f04_the_class_comes_from_the_whole_list(codes, expected):
    failures = [Failure(class_of(code), code, "") for code in codes]
    assert most_careful(failures).kind is expected
    assert most_careful(failures[::-1]).kind is expected


@pytest.mark.parametrize(
    ("spot", "on_demand", "said"),
    [
        ("MaxSpotInstanceCountExceeded", "InsufficientInstanceCapacity", "MaxSpotInstanceCountExceeded"),
        ("InsufficientInstanceCapacity", "VcpuLimitExceeded", "VcpuLimitExceeded"),
        ("InsufficientInstanceCapacity", "UnauthorizedOperation", "UnauthorizedOperation"),
    ],
)
def test_f04_the_admin_reads_what_he_can_mend_whichever_pool_said_it(emulator, fleet, spot, on_demand, said):
    """A quota that the spot pools met was hidden behind the on-demand pool's want of machines."""
    spot_only = {"InstanceMarketOptions.MarketType": "spot"}
    emulator.faults(
        [
            {**RUN, "params": spot_only, "error": {"code": spot}},
            {**RUN, "error": {"code": on_demand}},
        ]
    )
    assert fleet.resume(["burst1"], capacity_of=SPOT).failed["burst1"].code == said
    assert len(emulator.calls("RunInstances")) == 2


def test_f04_several_errors_and_no_instance_reach_the_next_pool(emulator, start_fleet, subnets):
    fleet = start_fleet(subnet_ids=tuple(subnets[f"us-east-1{zone}"] for zone in "abc"))
    refusals = ["InsufficientInstanceCapacity", "Unsupported", "InsufficientFreeAddressesInSubnet"]
    emulator.faults([{**RUN, "times": 1, "error": {"code": code}} for code in refusals])
    assert fleet.resume(["burst1"]).failed["burst1"].code == refusals[-1]
    assert len(fleet.unavailable.unavailable()) == 3


@pytest.mark.parametrize("code", ["MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"])
def test_f05_a_quota_parks_the_option_and_tells_the_admin_once(emulator, start_fleet, subnets, code):
    fleet = start_fleet(subnet_ids=(subnets["us-east-1a"], subnets["us-east-1b"]))
    spot_only = {"InstanceMarketOptions.MarketType": "spot"}
    emulator.faults([{**RUN, "params": spot_only, "error": {"code": code}}])
    report = fleet.resume(["burst1"], capacity_of=SPOT)
    assert [item.pool.option for item in report.launched] == [Capacity.ON_DEMAND]
    assert [failure.code for failure in report.newly_unavailable] == [code]
    assert len(emulator.calls("RunInstances")) == 2  # the second spot pool was not asked
    again = fleet.resume(["burst2"], capacity_of={"burst2": Capacity.SPOT})
    assert again.launched
    assert again.newly_unavailable == []
    assert fleet.unavailable.closed(Capacity.SPOT, fleet.settings).code == code
    assert fleet.unavailable.closed(Capacity.ON_DEMAND, fleet.settings) is None


def test_f05_both_quotas_leave_on_premise(emulator, fleet):
    emulator.faults([{**RUN, "error": {"code": "VcpuLimitExceeded"}}])
    report = fleet.resume(["burst1"], capacity_of=SPOT)
    assert report.failed["burst1"].kind is FailureClass.QUOTA
    assert len(report.newly_unavailable) == 2
    assert len(emulator.calls("RunInstances")) == 2
    assert fleet.resume(["burst1"], capacity_of=SPOT).failed["burst1"].code == "NoPoolOpen"
    assert len(emulator.calls("RunInstances")) == 2


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "OptInRequired", "InvalidParameterValue"])
def test_f33_an_error_only_an_admin_can_mend_closes_its_pools(emulator, fleet, clock, code):
    emulator.faults([{**RUN, "error": {"code": code, "status": 403}}])
    report = fleet.resume(["burst1"], capacity_of=SPOT)
    assert report.failed["burst1"].kind is FailureClass.ADMIN
    assert len(emulator.calls("RunInstances")) == 2  # spot and on-demand, each once
    assert fleet.journal.open_intents() == []
    for option in (Capacity.SPOT, Capacity.ON_DEMAND):
        closed = fleet.unavailable.closed(option, fleet.settings)
        assert (closed.code, closed.until) == (code, clock.wall + FIRST_PAUSE_SECONDS)
    assert fleet.resume(["burst2"], capacity_of=SPOT).failed["burst2"].code == "NoPoolOpen"
    assert len(emulator.calls("RunInstances")) == 2  # a closed pool costs no call


def test_f33_one_trial_after_each_pause_and_pauses_grow(emulator, start_fleet, clock):
    emulator.faults([{**RUN, "error": {"code": "UnauthorizedOperation", "status": 403}}])
    asked = []
    fleet = start_fleet()
    for minute in range(100):
        calls = len(emulator.calls("RunInstances"))
        fleet.resume([f"burst{minute % 9}"])
        if len(emulator.calls("RunInstances")) > calls:
            asked.append(clock.wall)
            fleet = start_fleet()
        clock.pass_by(60)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert pauses == [180, 360, 720, 1440, MAX_PAUSE_SECONDS]
    clock.pass_by(MAX_PAUSE_SECONDS)
    emulator.faults([])
    assert fleet.resume(["burst1"]).launched
    assert fleet.unavailable.unavailable() == {}


def test_f33_what_is_not_allowed_on_spot_is_launched_on_demand_and_told(emulator, fleet):
    spot_only = {"InstanceMarketOptions.MarketType": "spot"}
    code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    emulator.faults([{**RUN, "params": spot_only, "error": {"code": code, "status": 403}}])
    report = fleet.resume(["burst1"], capacity_of=SPOT)
    assert [item.pool.option for item in report.launched] == [Capacity.ON_DEMAND]
    assert [failure.code for failure in report.newly_unavailable] == [code]
    with pytest.raises(TellAdmin, match=code):
        fleet.tell_refused()
    assert fleet.unavailable.closed(Capacity.SPOT, fleet.settings).code == code


@pytest.mark.usefixtures("unpaced")
def test_f33_after_a_lost_answer_no_other_pool_is_tried(emulator, fleet):
    """The first call may have launched: another pool would give the node a second instance."""
    lost = {**RUN, "times": 1, "reset": "after"}
    emulator.faults([lost, {**RUN, "error": {"code": "UnauthorizedOperation", "status": 403}}])
    report = fleet.resume(["burst1"], capacity_of=SPOT)
    assert report.failed["burst1"].kind is FailureClass.ADMIN
    assert len({call["token"] for call in emulator.calls("RunInstances")}) == 1
    assert len(fleet.journal.open_intents()) == 1


@pytest.mark.parametrize(
    "fault",
    [
        {"reset": "after"},
        {"http": {"status": 500, "body": "<!doctype html>\n<html lang=en>\n<p>x"}},
        {"error": {"code": "InternalError"}},
    ],
)
def test_an_answer_lost_once_launches_once(emulator, fleet, fault):
    emulator.faults([{**RUN, **fault, "times": 1}])
    report = fleet.resume(["burst1", "burst2"])
    assert sorted(item.node for item in report.launched) == ["burst1", "burst2"]
    assert len(alive(emulator)) == 2
    assert len({call["token"] for call in emulator.calls("RunInstances")}) == 1


def test_f10_the_same_node_twice_has_one_instance(emulator, fleet):
    first = fleet.resume(["burst1"]).launched
    second = fleet.resume(["burst1", "burst1", "burst2"]).launched
    assert (second[0].node, second[0].instance_id) == (first[0].node, first[0].instance_id)
    assert sorted(alive(emulator).values()) == ["burst1", "burst2"]


def test_f10_at_the_same_time_from_two_threads(emulator, fleet):
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: fleet.resume(["burst1", "burst2"]), range(4)))
    assert {item.instance_id for report in reports for item in report.launched} == set(alive(emulator))
    assert len(alive(emulator)) == 2


def test_f10_also_while_ec2_does_not_list_it_yet_even_after_a_restart(emulator, start_fleet):
    emulator.config(visible_after_s=600)
    first = start_fleet().resume(["burst1"]).launched
    again = start_fleet().resume(["burst1"]).launched
    assert [item.instance_id for item in again] == [item.instance_id for item in first]
    assert len(alive(emulator)) == 1


def test_f10_a_client_that_timed_out_repeats_the_same_token(emulator, fleet):
    emulator.faults([{**RUN, "reset": "after", "times": 3}])
    fleet.resume(["burst1"])
    assert len({call["token"] for call in emulator.calls("RunInstances")}) == 1
    assert len(alive(emulator)) == 1


def test_a_token_is_short_plain_and_new_for_every_attempt(emulator, fleet):
    for _ in range(2):
        fleet.resume(["burst1"])
        fleet.suspend(["burst1"])
    tokens = [call["token"] for call in emulator.calls("RunInstances")]
    assert len(set(tokens)) == 2
    assert all(len(token) <= 64 and token.isascii() for token in tokens)


def test_a_token_ec2_refuses_is_replaced(emulator, fleet):
    emulator.faults([{**RUN, "times": 1, "error": {"code": "IdempotentInstanceTerminated"}}])
    assert fleet.resume(["burst1"]).launched
    assert len({call["token"] for call in emulator.calls("RunInstances")}) == 2


def test_a_lost_journal_repeats_no_token(emulator, start_fleet, clock, tmp_path):
    fleet = start_fleet()
    fleet.resume(["burst1"])
    fleet.suspend(["burst1"])
    (tmp_path / "launches.jsonl").unlink()
    clock.pass_by(60)
    assert start_fleet().resume(["burst1"]).launched
    assert len({call["token"] for call in emulator.calls("RunInstances")}) == 2


def test_instances_are_launched_as_the_policy_demands(emulator, start_fleet, ec2, tmp_path):
    (tmp_path / "user-data").write_text("#!/bin/sh\nslurmd\n")
    fleet = start_fleet(user_data_file=tmp_path / "user-data")
    fleet.resume(["burst1", "burst2"], capacity_of={"burst1": Capacity.SPOT, "burst2": Capacity.SPOT})
    launched = [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
    assert len(launched) == 2
    for instance in launched:
        assert instance["MetadataOptions"]["HttpTokens"] == "required"
        assert instance["InstanceLifecycle"] == "spot"
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        assert tags["advisor:cluster"] == "c1"
        assert tags[NODES_TAG] == "burst[1-2]"
        assert tags[INTENT_TAG].startswith("advisor-")
    assert {item["user_data"] for item in emulator.instances()} == {"#!/bin/sh\nslurmd\n"}


def test_missing_user_data_launches_nothing(emulator, start_fleet, tmp_path):
    fleet = start_fleet(user_data_file=tmp_path / "missing")
    with pytest.raises(AdvisorError, match=r"user_data_file .*missing"):
        fleet.resume(["burst1"])
    assert emulator.instances() == []
    assert fleet.journal.open_intents() == []


def test_no_secret_is_ever_logged(emulator, start_fleet, monkeypatch, capsys):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "top-secret-1")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "top-secret-2")
    emulator.faults([{**RUN, "times": 1, "error": {"code": "AuthFailure", "status": 401}}])
    fleet = start_fleet()
    report = fleet.resume(["burst1"])
    fleet.resume(["burst1"])
    text = "".join(capsys.readouterr()) + repr(report) + fleet.journal.path.read_text()
    assert "AuthFailure" in text
    assert "top-secret" not in text


def test_thousand_nodes_are_two_calls_and_every_instance_knows_its_node(emulator, fleet):
    report = fleet.resume([f"burst{i}" for i in range(1, 1001)])
    assert len(report.launched) == 1000
    assert len(emulator.calls("RunInstances")) == 2
    nodes = {item.node for item in fleet.instances()}
    assert nodes == {f"burst{i}" for i in range(1, 1001)}
