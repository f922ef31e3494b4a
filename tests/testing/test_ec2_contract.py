"""The same cases against both EC2 doubles: the one in memory and the one over HTTP, through boto3."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from advisor.testing.ec2 import Ec2Emulator
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_ec2 import MemoryEc2
from advisor.testing.memory_ec2_paid import MemoryReservation

ZONE = {"AvailabilityZone": "us-east-1a"}
SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}
SPOT_KINDS = ("instance", "spot-instances-request")
UNKNOWN = "i-0123456789abcdef0"


class Account(Protocol):
    """What a case does to an account beside calling EC2."""

    ec2: Any

    def has_room(self, market: str, number: int) -> None: ...
    def loses_the_next_answer(self) -> None: ...
    def refuses_the_next(self, action: str, code: str) -> None: ...
    def lists_late(self) -> None: ...
    def ends_slowly(self) -> None: ...
    def reclaim(self, instance_id: str) -> None: ...
    def holds(self, name: str, total: int, *, others: int = 0, targeted: bool = False) -> None: ...
    def has_a_block(self, name: str, seconds: float) -> None: ...
    def may_have_vcpus(self, number: int) -> None: ...
    def has_a_plan(self, commitment: str, **rates: str) -> None: ...
    def client(self, service: str) -> Any: ...
    def messages(self) -> list[dict[str, Any]]: ...
    def until(self, is_so: Callable[[], bool]) -> None: ...


class InMemory:
    """`advisor.testing.memory_ec2`."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.account = MemoryEc2(now=lambda: self.clock.wall)
        self.ec2 = self.account.connect("ec2")
        self.sqs = self.account.connect("sqs")

    def has_room(self, market: str, number: int) -> None:
        self.account.room[market] = number

    def loses_the_next_answer(self) -> None:
        self.account.fail("run_instances", "answer-lost")

    def refuses_the_next(self, action: str, code: str) -> None:
        self.account.fail(action, code)

    def lists_late(self) -> None:
        self.account.times.lag = 1e6

    def ends_slowly(self) -> None:
        """An instance shuts down for two minutes."""
        self.account.times.shutdown = 120.0

    def reclaim(self, instance_id: str) -> None:
        self.account.reclaim(instance_id, 120.0)

    def holds(self, name: str, total: int, *, others: int = 0, targeted: bool = False) -> None:
        row = MemoryReservation(reservation_id=name, instance_type="c5.large", total=total, others=others)
        row.is_open = not targeted
        self.account.paid.reservations.append(row)

    def has_a_block(self, name: str, seconds: float) -> None:
        end = self.clock.wall + 1800.0 + seconds
        row = MemoryReservation(
            reservation_id=name, instance_type="c5.large", total=2, is_block=True, is_open=False, ends_at=end
        )
        self.account.paid.reservations.append(row)

    def may_have_vcpus(self, number: int) -> None:
        self.account.market = replace(self.account.market, vcpu_limits={"on-demand": number})

    def has_a_plan(self, commitment: str, **rates: str) -> None:
        named = {name.replace("_", "."): rate for name, rate in rates.items()}
        row = {"savingsPlanId": "sp-1", "commitment": commitment, "state": "active", "rates": named}
        self.account.paid.plans.append(row)

    def client(self, service: str) -> Any:
        return self.account.connect(service)

    def messages(self) -> list[dict[str, Any]]:
        found = self.sqs.receive_message(QueueUrl="memory", MaxNumberOfMessages=10, WaitTimeSeconds=1)
        receipts = [
            {"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]}
            for at, each in enumerate(found["Messages"])
        ]
        if receipts:
            self.sqs.delete_message_batch(QueueUrl="memory", Entries=receipts)
        return [json.loads(each["Body"]) for each in found["Messages"]]

    def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(60):
            if is_so():
                return
            self.clock.pass_by(5.0)
            self.account.advance()
        assert is_so()


class OverHttp:
    """`advisor.testing.ec2`."""

    def __init__(self, emulator: Ec2Emulator) -> None:
        self.emulator = emulator
        # a notice of two minutes is over after more than a second
        emulator.config(pending_s=5.0, shutdown_s=10.0, time_scale=0.01)
        config = Config(retries={"mode": "standard", "total_max_attempts": 1})
        self.ec2, self.sqs = (
            boto3.client(name, region_name="us-east-1", endpoint_url=emulator.url, config=config)
            for name in ("ec2", "sqs")
        )
        self.queue = emulator.interruption_queue()

    def has_room(self, market: str, number: int) -> None:
        self.emulator.capacity({f"c5.large|*|{market}": 0, f"c5.large|us-east-1a|{market}": number})

    def loses_the_next_answer(self) -> None:
        self.emulator.faults([{"service": "ec2", "action": "RunInstances", "reset": "after", "times": 1}])

    def refuses_the_next(self, action: str, code: str) -> None:
        name = "".join(word.capitalize() for word in action.split("_"))
        error = {"code": code, "message": "as the test wished"}
        self.emulator.faults([{"service": "ec2", "action": name, "error": error, "times": 1}])

    def lists_late(self) -> None:
        self.emulator.config(visible_after_s=1e6)

    def ends_slowly(self) -> None:
        self.emulator.config(shutdown_s=120.0)

    def reclaim(self, instance_id: str) -> None:
        self.emulator.reclaim(instance_id, notice_s=120.0)

    def holds(self, name: str, total: int, *, others: int = 0, targeted: bool = False) -> None:
        criteria = {"InstanceMatchCriteria": "targeted" if targeted else "open"}
        self.emulator.reservations([{**_held(name, total), "others": others, **criteria}])

    def has_a_block(self, name: str, seconds: float) -> None:
        # half an hour before the end, in the time of the machine
        end = datetime.now(UTC) + timedelta(seconds=1800.0 + min(seconds, 2.0))
        block = {"ReservationType": "capacity-block", "EndDate": end.isoformat()}
        self.emulator.reservations([{**_held(name, 2), "InstanceMatchCriteria": "targeted", **block}])

    def may_have_vcpus(self, number: int) -> None:
        self.emulator.quotas({"on-demand": number})

    def has_a_plan(self, commitment: str, **rates: str) -> None:
        named = {name.replace("_", "."): rate for name, rate in rates.items()}
        row = {"savingsPlanId": "sp-1", "commitment": commitment, "state": "active", "rates": named}
        self.emulator.savings([row])

    def client(self, service: str) -> Any:
        return boto3.client(service, region_name="us-east-1", endpoint_url=self.emulator.url)

    def messages(self) -> list[dict[str, Any]]:
        found = self.sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        for each in found.get("Messages", []):
            self.sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=each["ReceiptHandle"])
        return [json.loads(each["Body"]) for each in found.get("Messages", [])]

    def until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + 60.0
        while not is_so() and time.monotonic() < end:
            time.sleep(0.02)
        assert is_so()


def _held(name: str, total: int) -> dict[str, Any]:
    return {
        "CapacityReservationId": name,
        "InstanceType": "c5.large",
        "AvailabilityZone": "us-east-1a",
        "TotalInstanceCount": total,
    }


@pytest.fixture(params=["memory", pytest.param("http", marks=pytest.mark.ec2)])
def account(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    if request.param == "memory":
        yield InMemory()
        return
    emulator = request.getfixturevalue("emulator")
    for name, value in emulator.environment.items():
        monkeypatch.setenv(name, value)
    yield OverHttp(emulator)
    emulator.reset()


def tags_on(*kinds: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": "owner", "Value": "me"}]} for kind in kinds]


def launch(account: Account, token: str = "t-1", number: int = 1, **more: Any) -> list[str]:
    """Ids of what RunInstances gives."""
    tags = tags_on("instance")
    request = {"ImageId": "ami-12c6146b", "InstanceType": "c5.large", "MinCount": 1, "MaxCount": number}
    more = {"ClientToken": token, "TagSpecifications": tags} | more
    found = account.ec2.run_instances(**(request | more))["Instances"]
    assert [each["AmiLaunchIndex"] for each in found] == list(range(len(found)))
    assert all(each["PrivateIpAddress"] for each in found)
    return [each["InstanceId"] for each in found]


def rows(account: Account, owner: str = "me") -> dict[str, dict[str, Any]]:
    """What DescribeInstances lists of an owner."""
    pages = account.ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "tag:owner", "Values": [owner]}]
    )
    found = (row for page in pages for each in page["Reservations"] for row in each["Instances"])
    return {row["InstanceId"]: row for row in found}


def state(account: Account, instance_id: str) -> str:
    return str(rows(account)[instance_id]["State"]["Name"])


def refusal(call: Callable[[], Any]) -> tuple[int, str]:
    """HTTP status and code of the error that a call must give."""
    with pytest.raises(ClientError) as caught:
        call()
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def test_an_instance_goes_through_its_states(account: Account) -> None:
    (made,) = launch(account)
    assert state(account, made) in ("pending", "running")
    account.until(lambda: state(account, made) == "running")
    account.ec2.terminate_instances(InstanceIds=[made])
    assert state(account, made) in ("shutting-down", "terminated")
    account.until(lambda: state(account, made) == "terminated")
    assert rows(account)[made]["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    account.ec2.terminate_instances(InstanceIds=[made])  # once more does no harm


def test_a_token_launches_once_even_if_its_answer_was_lost(account: Account) -> None:
    account.loses_the_next_answer()
    with pytest.raises(ConnectionClosedError):
        launch(account)
    (made,) = launch(account)
    assert list(rows(account)) == [made]
    assert launch(account) == [made]
    assert launch(account, "t-2") != [made]


def test_a_token_belongs_to_its_parameters_and_dies_with_its_instances(account: Account) -> None:
    (made,) = launch(account)
    assert refusal(lambda: launch(account, number=2)) == (400, "IdempotentParameterMismatch")
    account.ends_slowly()
    account.ec2.terminate_instances(InstanceIds=[made])
    assert state(account, made) == "shutting-down"
    assert launch(account) == [made]
    account.until(lambda: state(account, made) == "terminated")
    assert refusal(lambda: launch(account)) == (400, "IdempotentInstanceTerminated")


def test_a_pool_gives_what_it_has_and_then_nothing(account: Account) -> None:
    account.has_room("spot", 3)
    spot = launch(account, "t-1", 5, **SPOT)
    assert len(spot) == 3
    assert refusal(lambda: launch(account, "t-2", **SPOT)) == (500, "InsufficientInstanceCapacity")
    assert len(launch(account, "t-3")) == 1  # on-demand is another pool
    account.ec2.terminate_instances(InstanceIds=spot[:1])
    account.until(lambda: state(account, spot[0]) == "terminated")
    assert len(launch(account, "t-4", 2, **SPOT)) == 1


def test_fewer_than_the_least_number_are_not_launched(account: Account) -> None:
    account.has_room("on-demand", 2)
    wanted = {"MinCount": 3, "MaxCount": 3}
    call = {"ImageId": "ami-12c6146b", "InstanceType": "c5.large", "ClientToken": "t-1", **wanted}
    refused = refusal(lambda: account.ec2.run_instances(**call, TagSpecifications=[]))
    assert refused == (500, "InsufficientInstanceCapacity")
    assert len(launch(account, "t-2", 2)) == 2


@pytest.mark.parametrize(
    ("code", "status"),
    [("RequestLimitExceeded", 503), ("InternalError", 500), ("VcpuLimitExceeded", 400)],
)
def test_an_error_has_ec2_s_own_status(account: Account, code: str, status: int) -> None:
    account.refuses_the_next("run_instances", code)
    assert refusal(lambda: launch(account)) == (status, code)
    assert len(launch(account)) == 1


def test_one_unknown_id_fails_the_whole_call(account: Account) -> None:
    (made,) = launch(account)
    unknown = (400, "InvalidInstanceID.NotFound")
    both = [made, UNKNOWN]
    assert refusal(lambda: account.ec2.terminate_instances(InstanceIds=both)) == unknown
    tag = {"Tags": [{"Key": "owner", "Value": "they"}]}
    assert refusal(lambda: account.ec2.create_tags(Resources=both, **tag)) == unknown
    account.until(lambda: state(account, made) == "running")


def test_tags_are_listed_and_filtered_by(account: Account) -> None:
    first, second = launch(account, number=2)
    account.ec2.create_tags(Resources=[second], Tags=[{"Key": "owner", "Value": "they"}])
    assert list(rows(account)) == [first]
    assert rows(account, "they")[second]["Tags"] == [{"Key": "owner", "Value": "they"}]
    tag = {"Tags": [{"Key": "owner", "Value": "me"}]}
    refused = refusal(lambda: account.ec2.create_tags(Resources=[UNKNOWN], **tag))
    assert refused == (400, "InvalidInstanceID.NotFound")


def test_a_launch_may_not_be_listed_yet(account: Account) -> None:
    account.lists_late()
    (made,) = launch(account)
    assert rows(account) == {}
    assert launch(account) == [made]  # its token knows it
    unknown = (400, "InvalidInstanceID.NotFound")
    tag = {"Tags": [{"Key": "owner", "Value": "they"}]}
    assert refusal(lambda: account.ec2.create_tags(Resources=[made], **tag)) == unknown
    assert refusal(lambda: account.ec2.terminate_instances(InstanceIds=[made])) == unknown


def test_a_spot_instance_is_warned_of_and_taken_back(account: Account) -> None:
    (made,) = launch(account, **SPOT)
    assert rows(account)[made]["InstanceLifecycle"] == "spot"
    account.until(lambda: state(account, made) == "running")
    account.reclaim(made)
    account.until(lambda: state(account, made) == "terminated")
    assert rows(account)[made]["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    told: list[tuple[str, str]] = []

    def read() -> bool:
        for body in account.messages():
            assert body["detail"]["instance-id"] == made
            told.append((body["detail-type"], body["detail"].get("state", "")))
        return ("EC2 Instance State-change Notification", "terminated") in told

    account.until(read)
    assert ("EC2 Spot Instance Interruption Warning", "") in told


def spot_requests(account: Account, *codes: str) -> dict[str, str]:
    """Status code of each spot request of ours by its instance, those with such a code alone."""
    filters = [{"Name": "tag:owner", "Values": ["me"]}]
    filters += [{"Name": "status-code", "Values": list(codes)}] if codes else []
    pages = account.ec2.get_paginator("describe_spot_instance_requests").paginate(Filters=filters)
    found = [row for page in pages for row in page["SpotInstanceRequests"]]
    assert all(row["Tags"] == [{"Key": "owner", "Value": "me"}] for row in found)
    return {row["InstanceId"]: row["Status"]["Code"] for row in found}


def test_a_spot_request_has_tags_and_a_status_of_its_own(account: Account) -> None:
    launch(account, "t-1", **SPOT)  # the tags of an instance are not those of its request
    made, other = launch(account, "t-2", 2, **SPOT, TagSpecifications=tags_on(*SPOT_KINDS))
    launch(account, "t-3", TagSpecifications=tags_on("instance"))
    assert spot_requests(account) == {made: "fulfilled", other: "fulfilled"}
    ends = ("marked-for-termination", "instance-terminated-*")
    assert spot_requests(account, *ends) == {}
    account.until(lambda: state(account, made) == "running")
    account.reclaim(made)
    assert spot_requests(account, *ends) == {made: "marked-for-termination"}
    account.until(lambda: spot_requests(account, *ends) == {made: "instance-terminated-no-capacity"})
    account.ec2.terminate_instances(InstanceIds=[other])
    assert spot_requests(account)[other] == "instance-terminated-by-user"


def test_the_spot_requests_of_a_fleet_have_the_tags_of_its_template(account: Account) -> None:
    data = {"ImageId": "ami-12c6146b", "TagSpecifications": tags_on("spot-instances-request")}
    account.ec2.create_launch_template(
        LaunchTemplateName="ours", LaunchTemplateData=data, TagSpecifications=tags_on("launch-template")
    )
    template = {"LaunchTemplateName": "ours", "Version": "$Default"}
    overrides = [{"InstanceType": "c5.large", "AvailabilityZone": "us-east-1a"}]
    capacity = {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"}
    (found,) = account.ec2.create_fleet(
        Type="instant",
        ClientToken="t-1",
        LaunchTemplateConfigs=[{"LaunchTemplateSpecification": template, "Overrides": overrides}],
        TargetCapacitySpecification=capacity,
        TagSpecifications=tags_on("instance"),
    )["Instances"]
    assert spot_requests(account) == dict.fromkeys(found["InstanceIds"], "fulfilled")


def named(reservation: str, **more: Any) -> dict[str, Any]:
    """Arguments of a launch in a capacity reservation."""
    target = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
    return {"CapacityReservationSpecification": target, "Placement": ZONE, **more}


def reservations(account: Account) -> dict[str, tuple[int, int]]:
    """Total and free instances of each capacity reservation."""
    filters = [
        {"Name": "state", "Values": ["active"]},
        {"Name": "instance-type", "Values": ["c5.large", "m5.large"]},
    ]
    pages = account.ec2.get_paginator("describe_capacity_reservations").paginate(Filters=filters)
    found = [row for page in pages for row in page["CapacityReservations"]]
    return {
        row["CapacityReservationId"]: (row["TotalInstanceCount"], row["AvailableInstanceCount"])
        for row in found
    }


def test_a_launch_gets_what_is_free_of_the_reservation_that_it_names(account: Account) -> None:
    account.holds("cr-01", 3, others=1, targeted=True)
    assert reservations(account) == {"cr-01": (3, 2)}
    made = launch(account, "t-1", 5, **named("cr-01"))
    assert [rows(account)[one]["CapacityReservationId"] for one in made] == ["cr-01", "cr-01"]
    assert reservations(account) == {"cr-01": (3, 0)}
    refused = refusal(lambda: launch(account, "t-2", **named("cr-01")))
    assert refused == (400, "ReservationCapacityExceeded")
    account.ec2.terminate_instances(InstanceIds=made[:1])
    assert len(launch(account, "t-3", **named("cr-01"))) == 1


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("cr-99", {}, "InvalidCapacityReservationId.NotFound"),
        ("cr-01", {"InstanceType": "m5.large"}, "InvalidParameterValue"),
        ("cr-01", {"InstanceMarketOptions": {"MarketType": "capacity-block"}}, "InvalidParameterValue"),
    ],
)
def test_a_reservation_takes_its_own_instances_alone(
    account: Account, name: str, changes: dict[str, Any], code: str
) -> None:
    account.holds("cr-01", 3, targeted=True)
    assert refusal(lambda: launch(account, **named(name, **changes))) == (400, code)


def test_an_on_demand_launch_falls_into_an_open_reservation_and_no_other(account: Account) -> None:
    account.holds("cr-01", 2)
    account.holds("cr-02", 2, targeted=True)
    launch(account, "t-1", Placement=ZONE, **SPOT)
    assert reservations(account)["cr-01"] == (2, 2)
    made = launch(account, "t-2", 3, Placement=ZONE)
    held = [rows(account)[one].get("CapacityReservationId") for one in made]
    assert held == ["cr-01", "cr-01", None]
    assert reservations(account) == {"cr-01": (2, 0), "cr-02": (2, 2)}


def test_a_capacity_block_is_a_market_of_its_own_and_ends(account: Account) -> None:
    account.has_a_block("cr-01", 60.0)
    block = {"InstanceMarketOptions": {"MarketType": "capacity-block"}}
    assert refusal(lambda: launch(account, "t-1", **named("cr-01")))[0] == 400
    (made,) = launch(account, "t-2", **named("cr-01", **block))
    assert rows(account)[made]["InstanceLifecycle"] == "capacity-block"
    account.until(lambda: state(account, made) == "terminated")


def test_a_placement_group_is_made_once_and_told_of_its_instances(account: Account) -> None:
    make = {"GroupName": "near", "Strategy": "cluster", "TagSpecifications": []}
    account.ec2.create_placement_group(**make)
    again = refusal(lambda: account.ec2.create_placement_group(**make))
    assert again == (400, "InvalidPlacementGroup.Duplicate")
    (made,) = launch(account, Placement={"GroupName": "near"})
    assert rows(account)[made]["Placement"]["GroupName"] == "near"


def test_quotas_and_plans_are_told_by_their_own_services(account: Account) -> None:
    asked = {"ServiceCode": "ec2", "QuotaCode": "L-1216C47A"}
    quotas, plans = account.client("service-quotas"), account.client("savingsplans")
    assert refusal(lambda: quotas.get_service_quota(**asked)) == (400, "NoSuchResourceException")
    account.may_have_vcpus(8)
    assert quotas.get_service_quota(**asked)["Quota"]["Value"] == 8.0
    assert len(launch(account, number=3, InstanceType="c5.xlarge")) == 2, "what is told holds"
    more = refusal(lambda: launch(account, "t-2", InstanceType="c5.xlarge"))
    assert more == (400, "VcpuLimitExceeded")
    account.has_a_plan("1.5", c5_large="0.05", m5_large="0.06")
    assert plans.describe_savings_plans(states=["retired"])["savingsPlans"] == []
    (plan,) = plans.describe_savings_plans(states=["active"])["savingsPlans"]
    assert (plan["savingsPlanId"], plan["commitment"]) == ("sp-1", "1.5")
    wanted = [{"name": "instanceType", "values": ["c5.large"]}]
    (rate,) = plans.describe_savings_plan_rates(savingsPlanId="sp-1", filters=wanted)["searchResults"]
    assert (rate["rate"], rate["unit"]) == ("0.05", "Hrs")
    (kind,) = account.ec2.describe_instance_types(InstanceTypes=["c5.xlarge"])["InstanceTypes"]
    assert kind["VCpuInfo"]["DefaultVCpus"] == 4
