"""From pending to terminated: delays, lag, addresses, reclaims with their events, and what reads show."""

from __future__ import annotations

import datetime as dt
import json
import time

import pytest
from botocore.exceptions import ClientError

pytestmark = pytest.mark.ec2

NEVER = 100_000.0
SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}


def state(ec2, instance_id):
    try:
        answer = ec2.describe_instances(InstanceIds=[instance_id])
    except ClientError as error:
        return error.response["Error"]["Code"]
    return answer["Reservations"][0]["Instances"][0]["State"]["Name"]


def states_until(ec2, instance_id, last):
    """Distinct states in the order in which they are seen, up to `last`."""
    seen = []
    end = time.monotonic() + 60
    while time.monotonic() < end and (not seen or seen[-1] != last):
        now = state(ec2, instance_id)
        if not seen or seen[-1] != now:
            seen.append(now)
        time.sleep(0.01)
    return seen


def test_an_instance_goes_through_its_states(emulator, run, ec2):
    """What takes for ever is seen for certain; what takes a moment is over some time."""

    def launched(**seconds):
        emulator.config(**{"visible_after_s": 0.0, "pending_s": 0.0, "shutdown_s": 0.0} | seconds)
        return run()[0]["InstanceId"]

    assert state(ec2, launched(visible_after_s=NEVER)) == "InvalidInstanceID.NotFound"
    assert states_until(ec2, launched(visible_after_s=0.3), "running")[-1] == "running"
    assert state(ec2, launched(pending_s=NEVER)) == "pending"
    assert states_until(ec2, launched(pending_s=0.3), "running")[-1] == "running"
    ec2.terminate_instances(InstanceIds=[going := launched(shutdown_s=NEVER)])
    assert state(ec2, going) == "shutting-down"
    ec2.terminate_instances(InstanceIds=[gone := launched(shutdown_s=0.3)])
    assert states_until(ec2, gone, "terminated")[-1] == "terminated"


def test_a_terminated_instance_is_no_longer_listed_some_day(emulator, run, ec2):
    emulator.config(purge_s=0.1)
    (instance,) = run()
    ec2.terminate_instances(InstanceIds=[instance["InstanceId"]])
    gone = "InvalidInstanceID.NotFound"
    assert states_until(ec2, instance["InstanceId"], gone)[-1] == gone


def test_the_address_may_come_later(emulator, run, ec2):
    emulator.config(address_after_s=0.3)
    (instance,) = run()
    assert not instance.get("PrivateIpAddress")
    end = time.monotonic() + 60
    address = None
    while not address and time.monotonic() < end:
        answer = ec2.describe_instances(InstanceIds=[instance["InstanceId"]])
        address = answer["Reservations"][0]["Instances"][0].get("PrivateIpAddress")
    assert address


def test_addresses_are_given_again(emulator, run, ec2):
    emulator.config(reuse_addresses=True)
    (first,) = run()
    ec2.terminate_instances(InstanceIds=[first["InstanceId"]])
    (second,) = run()
    assert second["InstanceId"] != first["InstanceId"]
    assert second["PrivateIpAddress"] == first["PrivateIpAddress"]


def test_one_bad_id_fails_the_whole_batch(run, ec2):
    (instance,) = run()
    with pytest.raises(ClientError, match="NotFound"):
        ec2.terminate_instances(InstanceIds=[instance["InstanceId"], "i-0123456789abcdef0"])
    assert state(ec2, instance["InstanceId"]) == "running"


@pytest.fixture
def warnings(client):
    """Reads the queue that EventBridge delivers EC2's events to."""
    events, queue = client("events"), client("sqs", read_timeout=30)
    url = queue.create_queue(QueueName="warnings")["QueueUrl"]
    arn = queue.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="ec2", EventPattern=json.dumps({"source": ["aws.ec2"]}))
    events.put_targets(Rule="ec2", Targets=[{"Id": "1", "Arn": arn}])

    def read(number):
        got = []
        end = time.monotonic() + 60
        while len(got) < number and time.monotonic() < end:
            answer = queue.receive_message(QueueUrl=url, WaitTimeSeconds=2, MaxNumberOfMessages=10)
            for message in answer.get("Messages", []):
                body = json.loads(message["Body"])
                got.append((body["detail-type"], body["detail"].get("state"), body["detail"]["instance-id"]))
                queue.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return got

    return read


def test_a_reclaim_warns_then_ends_the_instance(emulator, run, ec2, warnings):
    emulator.config(time_scale=0.01)
    zone = {"AvailabilityZone": "us-east-1a"}
    emulator.capacity({"c5.large|us-east-1a|spot": 1})
    (instance,) = run(Placement=zone, **SPOT)
    emulator.reclaim(instance["InstanceId"], notice_s=120, rebalance_lead_s=30)
    got = warnings(6)
    assert {row[2] for row in got} == {instance["InstanceId"]}
    kinds = [(kind, state) for kind, state, _ in got]
    assert sorted(kinds[2:], key=str) == sorted(
        [
            ("EC2 Instance Rebalance Recommendation", None),
            ("EC2 Spot Instance Interruption Warning", None),
            ("EC2 Instance State-change Notification", "shutting-down"),
            ("EC2 Instance State-change Notification", "terminated"),
        ],
        key=str,
    )
    shown = ec2.describe_instances(InstanceIds=[instance["InstanceId"]])["Reservations"][0]["Instances"][0]
    assert shown["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    request = ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[shown["SpotInstanceRequestId"]])
    assert request["SpotInstanceRequests"][0]["Status"]["Code"] == "instance-terminated-no-capacity"
    assert run(Placement=zone, **SPOT)  # its capacity is free again


def test_a_request_shows_that_its_instance_is_marked(emulator, run, ec2):
    (instance,) = run(**SPOT)
    emulator.reclaim(instance["InstanceId"], notice_s=600)
    filters = [{"Name": "status-code", "Values": ["marked-for-termination"]}]
    marked = ec2.describe_spot_instance_requests(Filters=filters)["SpotInstanceRequests"]
    assert [row["InstanceId"] for row in marked] == [instance["InstanceId"]]
    assert state(ec2, instance["InstanceId"]) == "running"


def test_a_notice_may_be_cut_short(emulator, run, ec2, warnings):
    (instance,) = run(**SPOT)
    emulator.reclaim(instance["InstanceId"], notice_s=600)
    assert [kind for kind, _, _ in warnings(3)][2] == "EC2 Spot Instance Interruption Warning"
    emulator.take_back(instance["InstanceId"])
    assert [state for _, state, _ in warnings(2)] == ["shutting-down", "terminated"]
    shown = ec2.describe_instances(InstanceIds=[instance["InstanceId"]])["Reservations"][0]["Instances"][0]
    assert shown["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    with pytest.raises(ValueError, match="i-nowhere"):
        emulator.take_back("i-nowhere")


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [
        ("instance-lifecycle", "spot", 1),
        ("client-token", "t1", 1),
        ("availability-zone", "us-east-1a", 2),
        ("instance-type", "c5.*", 2),
        ("instance-state-code", "16", 2),
        ("tag:job", "a*", 1),
    ],
)
def test_filters(run, ec2, name, value, number):
    zone = {"AvailabilityZone": "us-east-1a"}
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "job", "Value": "abc"}]}]
    run(ClientToken="t1", Placement=zone, TagSpecifications=tags)
    run(Placement=zone, **SPOT)
    answer = ec2.describe_instances(Filters=[{"Name": name, "Values": [value]}])
    assert sum(len(row["Instances"]) for row in answer["Reservations"]) == number


@pytest.mark.parametrize(
    "action",
    [
        *("describe_instances", "describe_spot_instance_requests", "describe_spot_price_history"),
        *("describe_reserved_instances", "describe_capacity_reservations"),
    ],
)
def test_an_unknown_filter_is_refused(ec2, action):
    with pytest.raises(ClientError, match="InvalidParameterValue"):
        getattr(ec2, action)(Filters=[{"Name": "bogus", "Values": ["x"]}])


def test_price_history_has_the_price_in_force_at_its_start(emulator, ec2):
    emulator.history(
        [
            {
                "InstanceType": "c5.large",
                "AvailabilityZone": "us-east-1a",
                "ProductDescription": "Linux/UNIX",
                "SpotPrice": f"{0.03 + day / 1000:.4f}",
                "Timestamp": f"2026-11-{10 + day}T00:00:00Z",
            }
            for day in range(8)
        ]
    )
    start = dt.datetime(2026, 11, 14, 12, tzinfo=dt.UTC)
    answer = ec2.describe_spot_price_history(InstanceTypes=["c5.large"], StartTime=start)
    assert [row["SpotPrice"] for row in answer["SpotPriceHistory"]] == [
        "0.0370", "0.0360", "0.0350", "0.0340",
    ]  # fmt: skip
    pages = ec2.get_paginator("describe_spot_price_history").paginate(PaginationConfig={"PageSize": 3})
    assert [len(page["SpotPriceHistory"]) for page in pages] == [3, 3, 2]


def test_reservations_prices_and_scores_are_what_was_loaded(emulator, ec2, client):
    emulator.reserved([{"ReservedInstancesId": "r", "InstanceType": "c5.large", "State": "active"}])
    emulator.reserved([{"ReservedInstancesId": "s", "InstanceType": "c5.large", "State": "retired"}])
    active = ec2.describe_reserved_instances(Filters=[{"Name": "state", "Values": ["active"]}])
    assert [row["ReservedInstancesId"] for row in active["ReservedInstances"]] == ["r"]
    emulator.products([{"product": {"attributes": {"instanceType": kind}}} for kind in ("a", "b")])
    wanted = [{"Type": "TERM_MATCH", "Field": "instanceType", "Value": "b"}]
    found = client("pricing").get_products(ServiceCode="AmazonEC2", Filters=wanted)["PriceList"]
    assert [json.loads(row)["product"]["attributes"]["instanceType"] for row in found] == ["b"]
    emulator.control("placement_scores", {"us-east-1": 8})
    scores = ec2.get_spot_placement_scores(TargetCapacity=1, InstanceTypes=["c5.large"])
    assert scores["SpotPlacementScores"][0]["Score"] == 8
    emulator.control("savings", [{"savingsPlanId": "sp", "commitment": "1.0", "state": "active"}])
    assert client("savingsplans").describe_savings_plans()["savingsPlans"][0]["savingsPlanId"] == "sp"
    place = {"InstanceType": "c5.large", "AvailabilityZone": "us-east-1a"}
    emulator.control("reservations", [{"CapacityReservationId": "cr-1", "TotalInstanceCount": 4, **place}])
    assert ec2.describe_capacity_reservations()["CapacityReservations"][0]["TotalInstanceCount"] == 4


def test_a_pool_is_taken_back_together_and_no_other(emulator, run, ec2):
    emulator.config(time_scale=0.01)
    there = [run(Placement={"AvailabilityZone": "us-east-1a"}, **SPOT)[0] for _ in range(2)]
    (other,) = run(Placement={"AvailabilityZone": "us-east-1b"}, **SPOT)

    def states():
        return {item["id"]: item["state"] for item in emulator.instances()}

    end = time.monotonic() + 60.0
    while set(states().values()) != {"running"} and time.monotonic() < end:
        time.sleep(0.05)
    emulator.reclaim_pool(there[0]["InstanceType"], "us-east-1a", notice_s=1)
    taken = {item["InstanceId"] for item in there}
    while not {states()[name] for name in taken} <= {"shutting-down", "terminated"}:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert states()[other["InstanceId"]] == "running"
