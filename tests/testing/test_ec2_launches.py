"""The emulator launches as EC2 does: tokens, capacity, prices, templates, fleets."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

pytestmark = pytest.mark.ec2

ZONE = {"AvailabilityZone": "us-east-1a"}
SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}


def refusal(call, *arguments, **request):
    """HTTP status and code of the error a call must give."""
    with pytest.raises(ClientError) as caught:
        call(*arguments, **request)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def ids(instances):
    return [instance["InstanceId"] for instance in instances]


def shown(ec2, instance_id):
    return ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]


def test_a_token_launches_once(run):
    assert ids(run(ClientToken="t")) == ids(run(ClientToken="t"))
    assert ids(run(ClientToken="t")) != ids(run(ClientToken="u"))


def test_a_token_belongs_to_its_parameters(run):
    run(ClientToken="t")
    assert refusal(run, ClientToken="t", InstanceType="m5.large") == (400, "IdempotentParameterMismatch")


def test_a_token_dies_with_its_instances(run, ec2):
    ec2.terminate_instances(InstanceIds=ids(run(ClientToken="t")))
    assert refusal(run, ClientToken="t") == (400, "IdempotentInstanceTerminated")


def test_a_lost_answer_and_a_repetition_launch_once(emulator, client):
    emulator.faults([{"service": "ec2", "action": "RunInstances", "reset": "after", "times": 1}])
    patient = client("ec2", retries={"mode": "standard", "total_max_attempts": 3})
    patient.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="c5.large")
    assert len(emulator.calls("RunInstances")) == 2
    assert len(emulator.instances()) == 1


def test_short_answers_then_none(emulator, run):
    emulator.capacity({"c5.large|us-east-1a|spot": 3})
    assert len(run(MaxCount=5, Placement=ZONE, **SPOT)) == 3
    assert refusal(run, Placement=ZONE, **SPOT) == (500, "InsufficientInstanceCapacity")
    assert len(run(Placement=ZONE)) == 1  # on-demand is another pool


def test_all_or_nothing(emulator, run):
    emulator.capacity({"c5.large|us-east-1a|on-demand": 2})
    assert refusal(run, MinCount=3, MaxCount=3, Placement=ZONE) == (500, "InsufficientInstanceCapacity")
    assert len(run(MinCount=2, MaxCount=2, Placement=ZONE)) == 2


def test_without_a_zone_the_roomiest_is_taken(emulator, run):
    emulator.capacity({"c5.large|*|*": 0, "c5.large|us-east-1c|*": 1})
    assert run()[0]["Placement"]["AvailabilityZone"] == "us-east-1c"


def test_capacity_comes_back_with_the_end_of_an_instance(emulator, run, ec2):
    emulator.capacity({"c5.large|us-east-1a|on-demand": 1})
    first = ids(run(Placement=ZONE))
    assert refusal(run, Placement=ZONE)[1] == "InsufficientInstanceCapacity"
    ec2.terminate_instances(InstanceIds=first)
    assert run(Placement=ZONE)


def test_racing_launches_never_exceed_the_capacity(emulator, run):
    emulator.capacity({"c5.large|us-east-1a|on-demand": 12})

    def one(_):
        try:
            return len(run(Placement=ZONE))
        except ClientError as error:
            return 0 if error.response["Error"]["Code"] == "InsufficientInstanceCapacity" else 1000

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(24))) == 12


def test_a_spot_price_limit_under_the_price(emulator, run):
    emulator.prices({"c5.large|us-east-1a": 0.06})
    limit = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.05"}}}
    assert refusal(run, Placement=ZONE, **limit) == (400, "SpotMaxPriceTooLow")


def test_an_impossible_number(run):
    assert refusal(run, MinCount=2, MaxCount=1) == (400, "InvalidParameterValue")


def test_a_launch_template_is_honoured_in_full(ec2):
    subnet = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": ["us-east-1b"]}])
    data = {
        "ImageId": "ami-12c6146b",
        "InstanceType": "c5.large",
        "UserData": base64.b64encode(b"boot").decode(),
        "MetadataOptions": {"HttpTokens": "required"},
        "InstanceMarketOptions": {"MarketType": "spot"},
        "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": subnet["Subnets"][0]["SubnetId"]}],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "owner", "Value": "me"}]}],
    }
    made = ec2.create_launch_template(LaunchTemplateName="all", LaunchTemplateData=data)
    template = {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"]}
    answer = ec2.run_instances(LaunchTemplate=template, MinCount=1, MaxCount=1)
    instance = shown(ec2, answer["Instances"][0]["InstanceId"])
    assert instance["InstanceType"] == "c5.large"
    assert instance["InstanceLifecycle"] == "spot"
    assert instance["SpotInstanceRequestId"].startswith("sir-")
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["Placement"]["AvailabilityZone"] == "us-east-1b"
    assert {"Key": "owner", "Value": "me"} in instance["Tags"]


@pytest.fixture
def fleet(ec2):
    """CreateFleet over three pools; (lifecycle, type, zone, number) of each answer and its errors."""
    data = {"ImageId": "ami-12c6146b", "InstanceType": "c5.large"}
    made = ec2.create_launch_template(LaunchTemplateName="fleet", LaunchTemplateData=data)
    template = {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"], "Version": "$Latest"}
    subnets = {s["AvailabilityZone"]: s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]}
    pools = [("c5.large", "us-east-1a"), ("c5.large", "us-east-1b"), ("m5.large", "us-east-1a")]
    overrides = [{"InstanceType": kind, "SubnetId": subnets[zone]} for kind, zone in pools]

    def create(total, *, strategy=None, on_demand=0, token=None, **spot):
        if strategy:
            spot["AllocationStrategy"] = strategy
        answer = ec2.create_fleet(
            Type="instant",
            TargetCapacitySpecification={
                "TotalTargetCapacity": total,
                "OnDemandTargetCapacity": on_demand,
                "DefaultTargetCapacityType": "spot",
            },
            SpotOptions=spot,
            LaunchTemplateConfigs=[{"LaunchTemplateSpecification": template, "Overrides": overrides}],
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "job", "Value": "1"}]}],
            **({"ClientToken": token} if token else {}),
        )
        got = [
            (
                item["Lifecycle"],
                item["InstanceType"],
                item["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"],
                len(item["InstanceIds"]),
            )
            for item in answer["Instances"]
        ]
        return got, {error["ErrorCode"] for error in answer["Errors"]}, answer

    return create


def test_a_fleet_answers_with_instances_and_errors(emulator, ec2, fleet):
    emulator.prices({"c5.large|us-east-1a": 0.06, "m5.large|us-east-1a": 0.02, "c5.large": 0.085})
    emulator.capacity(
        {
            "c5.large|us-east-1a|spot": 2,
            "c5.large|us-east-1b|spot": 0,
            "m5.large|us-east-1a|spot": 3,
            "c5.large|us-east-1a|on-demand": 1,
        }
    )
    got, errors, answer = fleet(8, on_demand=1)
    assert sorted(got) == [
        ("on-demand", "c5.large", "us-east-1a", 1),
        ("spot", "c5.large", "us-east-1a", 2),
        ("spot", "m5.large", "us-east-1a", 3),
    ]
    assert errors == {"UnfulfillableCapacity"}
    tags = {tag["Key"] for tag in shown(ec2, answer["Instances"][1]["InstanceIds"][0])["Tags"]}
    assert {"job", "aws:ec2:fleet-id"} <= tags


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("lowest-price", "m5.large"), ("capacity-optimized", "c5.large"), (None, "m5.large")],
)
def test_strategies_rank_pools(emulator, fleet, strategy, expected):
    emulator.prices({"c5.large|us-east-1a": 0.06, "c5.large|us-east-1b": 0.07, "m5.large|us-east-1a": 0.02})
    emulator.capacity({"c5.large|us-east-1a|spot": 9, "c5.large|us-east-1b|spot": 8, "m5.large|*|spot": 5})
    (only,), errors, _ = fleet(4, strategy=strategy)
    assert (only[1], only[3]) == (expected, 4)
    assert not errors


def test_diversified_takes_some_of_each(fleet):
    got, _, _ = fleet(6, strategy="diversified")
    assert [number for *_, number in got] == [2, 2, 2]


def test_a_fleet_that_cannot_reach_its_minimum_launches_nothing(emulator, fleet):
    emulator.capacity({"c5.large|*|*": 1, "m5.large|*|*": 0})
    got, errors, _ = fleet(4, MinTargetCapacity=4)
    assert (got, errors) == ([], {"UnfulfillableCapacity"})
    assert emulator.instances() == []


def test_a_fleet_of_one_type_stays_with_it(emulator, fleet):
    emulator.capacity({"c5.large|*|spot": 2, "m5.large|*|spot": 2})
    got, _, _ = fleet(6, SingleInstanceType=True)
    assert {kind for _, kind, _, _ in got} == {got[0][1]}


def test_a_fleets_token(emulator, fleet):
    first = fleet(2, token="f")[2]["FleetId"]
    assert fleet(2, token="f")[2]["FleetId"] == first
    assert len(emulator.instances()) == 2


def test_a_quota_of_vcpus_holds_for_all_types_of_a_market(emulator, run, ec2):
    emulator.quotas({"on-demand": 6})
    first = ids(run(MaxCount=2))  # two of two vCPUs each
    assert refusal(run, InstanceType="c5.xlarge") == (400, "VcpuLimitExceeded")
    assert len(run(MaxCount=5)) == 1
    assert len(run(**SPOT)) == 1  # another quota
    ec2.terminate_instances(InstanceIds=first)
    assert len(run(InstanceType="c5.xlarge")) == 1


def test_a_fleet_stops_at_the_quota(emulator, fleet):
    emulator.quotas({"spot": 4})
    got, errors, _ = fleet(3)
    assert sum(number for *_, number in got) == 2
    assert errors == {"MaxSpotInstanceCountExceeded"}
