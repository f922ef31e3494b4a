"""Classes of several instance types: fleets for spot, pool after pool on-demand, a breaker for each pool."""

from __future__ import annotations

import base64
from dataclasses import replace

import boto3
import pytest

from advisor.ec2.errors import FailureClass
from advisor.ec2.pools import FIRST_PAUSE_SECONDS, pools_for
from advisor.ec2.prices import PriceCache, Prices, Quote, TypePrices, cheapest_first
from advisor.ec2.tags import CLUSTER_TAG, NODE_TAG
from advisor.model.advice import Capacity
from advisor.model.errors import BadInput
from advisor.model.settings_cloud import Ec2Settings
from advisor.service.state.state_files import PRICES

pytestmark = pytest.mark.ec2

TYPES = ["c5.xlarge", "m5.xlarge", "r5.xlarge"]
MID = {
    "nodes": "mid[1-40]",
    "instance_types": TYPES,
    "cores": 4,
    "memory_mb": 7000,
    "on_demand_usd_per_hour": 0.3,
}
FLEET = {"service": "ec2", "action": "CreateFleet"}
RUN = {"service": "ec2", "action": "RunInstances"}


def nodes(number):
    return [f"mid{i}" for i in range(1, number + 1)]


def spot(number):
    return dict.fromkeys(nodes(number), Capacity.SPOT)


@pytest.fixture
def start(start_fleet, subnets):
    """Starts a fleet with one class of three types in two zones."""

    def begin(**settings):
        two = tuple(subnets[zone] for zone in ("us-east-1a", "us-east-1b"))
        return start_fleet(**{"classes": {"mid": MID}, "subnet_ids": two, **settings})

    return begin


def alive(emulator):
    """Instances that cost money, by the node that their own tag names."""
    found = [i for i in emulator.instances() if i["state"] not in ("shutting-down", "terminated")]
    named = {item["tags"].get(NODE_TAG, item["id"]): item for item in found}
    assert len(named) == len(found)
    return named


def test_spot_nodes_of_several_types_are_one_fleet(emulator, start):
    emulator.prices({f"{kind}|us-east-1a": 0.05 for kind in TYPES} | {"m5.xlarge|us-east-1b": 0.01})
    report = start().resume(nodes(3), capacity_of=spot(3))
    assert {item.node for item in report.launched} == set(nodes(3))
    assert (len(emulator.calls("CreateFleet")), emulator.calls("RunInstances")) == (1, [])
    made = alive(emulator)
    assert made.keys() == set(nodes(3))
    assert {(item["type"], item["zone"], item["option"]) for item in made.values()} == {
        ("m5.xlarge", "us-east-1b", "spot")
    }
    assert {item.pool.instance_type for item in report.launched} == {"m5.xlarge"}


def test_an_instance_of_a_fleet_is_what_the_settings_say(emulator, start, ec2, tmp_path):
    script = tmp_path / "user-data"
    script.write_text("#!/bin/sh\necho node\n")
    start(user_data_file=script).resume(["mid1"], capacity_of=spot(1))
    (made,) = alive(emulator).values()
    assert made["tags"][CLUSTER_TAG] == "c1"
    (template,) = ec2.describe_launch_templates()["LaunchTemplates"]
    data = ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])
    content = data["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    assert base64.b64decode(content["UserData"]).decode() == script.read_text()
    assert content["MetadataOptions"]["HttpTokens"] == "required"
    tagged = {group["ResourceType"] for group in content["TagSpecifications"]}
    assert {"volume", "network-interface", "spot-instances-request"} <= tagged


def test_a_template_that_somebody_deleted_is_made_again(emulator, start, ec2):
    fleet = start()
    fleet.resume(["mid1"], capacity_of=spot(2))
    (template,) = ec2.describe_launch_templates()["LaunchTemplates"]
    ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
    assert [item.node for item in fleet.resume(["mid2"], capacity_of=spot(2)).launched] == ["mid2"]


def test_two_processes_share_a_template(emulator, start):
    start().resume(["mid1"], capacity_of=spot(1))
    report = start().resume(["mid2"], capacity_of={"mid2": Capacity.SPOT})
    assert [item.node for item in report.launched] == ["mid2"]


@pytest.mark.parametrize("capacity", [Capacity.SPOT, Capacity.ON_DEMAND])
def test_a_stock_out_of_the_first_two_types_costs_one_round(emulator, start, clock, capacity):
    emulator.capacity({"c5.xlarge|*|*": 0, "m5.xlarge|*|*": 0})
    fleet = start()
    report = fleet.resume(nodes(5), capacity_of=dict.fromkeys(nodes(5), capacity))
    assert (len(report.launched), report.failed, clock.waited) == (5, {}, [])
    assert {item["type"] for item in alive(emulator).values()} == {"r5.xlarge"}
    assert {item["option"] for item in alive(emulator).values()} == {capacity.value}
    emulator.faults([])
    again = [f"mid{i}" for i in range(6, 9)]
    assert len(fleet.resume(again, capacity_of=dict.fromkeys(again, capacity)).launched) == 3
    assert len(emulator.calls("CreateFleet")) + len(emulator.calls("RunInstances")) == 1  # four pools closed


def test_the_next_round_of_spot_pools_is_tried_where_the_first_has_no_room(emulator, start, subnets):
    """Two pools of the first round, in one fleet; EC2 does not choose those of the second, cheaper here."""
    first = [f"spot|{kind}|{subnets['us-east-1a']}" for kind in TYPES[:2]]
    second = [f"spot|{kind}|{subnets['us-east-1b']}" for kind in TYPES]
    emulator.prices({f"{kind}|us-east-1b": 0.01 for kind in TYPES})
    rounds = (tuple(first), tuple(second))
    fleet = start()
    fleet.resume(["mid1"], capacity_of=spot(1), pools_of={"mid1": rounds})
    assert {item["zone"] for item in alive(emulator).values()} == {"us-east-1a"}
    emulator.capacity({f"{kind}|us-east-1a|spot": 0 for kind in TYPES[:2]})
    report = fleet.resume(["mid2"], capacity_of={"mid2": Capacity.SPOT}, pools_of={"mid2": rounds})
    assert (len(report.launched), report.failed) == (1, {})
    assert len(emulator.calls("CreateFleet")) == 3
    assert alive(emulator)["mid2"]["zone"] == "us-east-1b"
    assert fleet.unavailable.unavailable().keys() == set(first)


def test_a_closed_pool_is_one_type_in_one_zone_of_one_market(emulator, start, subnets):
    emulator.capacity({"c5.xlarge|us-east-1a|spot": 1, "r5.xlarge|*|spot": 0})
    fleet = start()
    fleet.resume(nodes(2), capacity_of=spot(2))
    assert list(fleet.unavailable.unavailable()) == [f"spot|c5.xlarge|{subnets['us-east-1a']}"]
    fleet.resume(["mid3"], capacity_of={"mid3": Capacity.SPOT})
    made = alive(emulator)["mid3"]
    assert (made["type"], made["zone"], made["option"]) == ("c5.xlarge", "us-east-1b", "spot")


def test_a_pool_of_a_fleet_opens_again(emulator, start, clock):
    emulator.capacity({f"{kind}|*|spot": 0 for kind in TYPES[:2]})
    fleet = start()
    fleet.resume(nodes(1), capacity_of=spot(1))
    emulator.capacity({"c5.xlarge|*|spot": None, "m5.xlarge|*|spot": None, "r5.xlarge|*|spot": 0})
    clock.pass_by(FIRST_PAUSE_SECONDS + 1)
    report = fleet.resume(["mid2"], capacity_of={"mid2": Capacity.SPOT})
    assert report.launched[0].pool.instance_type in TYPES[:2]


def test_what_all_spot_pools_lack_is_launched_on_demand(emulator, start):
    emulator.capacity({"c5.xlarge|us-east-1a|spot": 1, "m5.xlarge|us-east-1b|spot": 1, "r5.xlarge|*|spot": 0})
    emulator.capacity({"c5.xlarge|us-east-1b|spot": 0, "m5.xlarge|us-east-1a|spot": 0})
    report = start().resume(nodes(5), capacity_of=spot(5))
    assert sorted(item.node for item in report.launched) == sorted(nodes(5))
    assert sorted(item["option"] for item in alive(emulator).values()) == ["on-demand"] * 3 + ["spot"] * 2


def test_a_quota_closes_the_option_and_names_no_pool(emulator, start):
    emulator.quotas({"spot": 4})
    fleet = start()
    report = fleet.resume(nodes(2), capacity_of=spot(2))
    assert sorted(item["option"] for item in alive(emulator).values()) == ["on-demand", "spot"]
    assert report.failed == {}
    assert [failure.kind for failure in report.newly_unavailable] == [FailureClass.QUOTA]
    assert fleet.unavailable.unavailable().keys() == {"spot"}


def test_f03_a_throttled_pool_of_a_fleet_is_for_later_and_marks_no_pool(emulator, start, monkeypatch):
    fleet = start()
    launcher = fleet._launches._launcher
    ask = launcher._ec2.create_fleet

    def throttled(**request):
        answer = ask(**request | {"TargetCapacitySpecification": {"TotalTargetCapacity": 0}})
        override = request["LaunchTemplateConfigs"][0]["Overrides"][0]
        error = {"LaunchTemplateAndOverrides": {"Overrides": override}, "ErrorCode": "RequestLimitExceeded"}
        return answer | {"Errors": [error]}

    monkeypatch.setattr(launcher._ec2._client, "create_fleet", throttled)
    report = fleet.resume(["mid1"], capacity_of=spot(1))
    assert report.failed["mid1"].kind is FailureClass.THROTTLED
    assert fleet.unavailable.unavailable() == {}
    assert emulator.instances() == []


@pytest.mark.parametrize("is_wanted", [True, False])
def test_f09_a_lost_answer_of_a_fleet_launches_once_and_names_all(emulator, start, clock, is_wanted):
    emulator.faults([{**FLEET, "reset": "after", "times": 4}])
    fleet = start()
    report = fleet.resume(nodes(2), capacity_of=spot(2))
    assert report.failed["mid1"].kind is FailureClass.SERVER
    assert len(fleet.journal.open_intents()) == 1
    fleet = start()
    if not is_wanted:
        clock.pass_by(301)
    assert {item.node for item in fleet.recover(nodes(2) if is_wanted else [])} == set(nodes(2))
    fleet.tag_unnamed()
    assert alive(emulator).keys() == set(nodes(2))
    assert fleet.journal.open_intents() == []


def test_nodes_of_no_class_are_what_they_were(emulator, start):
    report = start().resume(["burst1", "burst2"], capacity_of={"burst1": Capacity.SPOT})
    assert {item.pool.instance_type for item in report.launched} == {"c5.xlarge"}
    assert emulator.calls("CreateFleet") == []


def test_suspend_ends_the_nodes_of_a_fleet(emulator, start):
    fleet = start()
    fleet.resume(nodes(3), capacity_of=spot(3))
    fleet.suspend(["mid1", "mid3"])
    assert alive(emulator).keys() == {"mid2"}


def test_a_node_in_two_classes_is_refused(start):
    both = {"mid": MID, "big": {**MID, "nodes": "mid40,big[1-2]"}}
    with pytest.raises(BadInput, match="node mid40 is in the classes mid and big"):
        start(classes=both)


@pytest.mark.parametrize(
    "wrong", [{"instance_types": []}, {"cores": 0}, {"colour": 1}, {"instance_types": ["a", "a"]}]
)
def test_a_class_that_says_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"instance_types|cores|colour"):
        Ec2Settings(classes={"mid": {**MID, **wrong}})


def test_unmodified_boto3_sees_the_same_fleet(emulator, start):
    start().resume(nodes(2), capacity_of=spot(2))
    ec2 = boto3.client("ec2", region_name="us-east-1", endpoint_url=emulator.url)
    filters = [{"Name": f"tag:{NODE_TAG}", "Values": nodes(2)}]
    found = ec2.describe_instances(Filters=filters)["Reservations"]
    assert sum(len(group["Instances"]) for group in found) == 2


def test_prices_are_read_for_each_type_and_kept(emulator, tmp_path):
    settings = emulator.settings(classes={"mid": MID})
    zone = {"AvailabilityZone": "us-east-1a", "ProductDescription": "Linux/UNIX"}
    zone["Timestamp"] = "2026-11-19T00:00:00Z"
    emulator.history(
        [
            {"InstanceType": kind, "SpotPrice": usd, **zone}
            for kind, usd in zip(TYPES, ("0.05", "0.06", "0.09"), strict=True)
        ]
    )
    cache = PriceCache(settings, PRICES.at(tmp_path), lambda: 1_800_000_000.0)
    assert cache.prices.of("r5.xlarge").spot.usd_per_hour == 0.3
    cache.refresh_spot()
    again = PriceCache(settings, PRICES.at(tmp_path), lambda: 1_800_000_000.0).prices
    assert [again.of(kind).spot.usd_per_hour for kind in TYPES] == [0.05, 0.06, 0.09]
    assert again.of("r5.xlarge").on_demand.usd_per_hour == 0.3  # not read yet


def test_on_demand_pools_are_tried_by_price_and_spot_pools_keep_their_order():
    settings = Ec2Settings(classes={"mid": MID}, subnet_ids=("a", "b"))
    prices = Prices.of_settings(settings)
    dear, cheap = Quote(0.5, 1.0), Quote(0.1, 1.0)
    prices = replace(
        prices, others={"m5.xlarge": TypePrices(dear, dear), "r5.xlarge": TypePrices(cheap, cheap)}
    )
    found = cheapest_first(pools_for(Capacity.SPOT, settings, TYPES), prices)
    assert [(pool.option.value, *pool.where) for pool in found] == [
        *(("spot", kind, subnet) for kind in TYPES for subnet in "ab"),
        *(("on-demand", kind, subnet) for kind in ("r5.xlarge", "c5.xlarge", "m5.xlarge") for subnet in "ab"),
    ]


def test_no_fleet_has_more_nodes_than_ec2_lets_us_name(emulator, start):
    classes = {f"k{i}": {**MID, "nodes": f"k{i}-[1-30]"} for i in range(5)}
    asked = [f"k{i}-{n}" for i in range(5) for n in range(1, 31)]
    fleet = start(classes=classes)
    report = fleet.resume(asked, capacity_of=dict.fromkeys(asked, Capacity.SPOT))
    assert (len(report.launched), report.failed) == (150, {})
    assert len({item.instance_id for item in report.launched}) == len(emulator.instances()) == 150
    # three fleets, whose nodes have no other name; and as many names for people as the rate limit has left
    assert len(emulator.calls("CreateFleet")) == 3
    assert len(emulator.calls("RunInstances")) == 2
    assert len(emulator.calls("CreateTags")) == 3 * 30 + 10
    assert {item.node for item in fleet.instances()} == set(asked)


def test_a_fleet_is_possible_again_once_names_are(emulator, start, clock):
    fleet = start()
    fleet.resume(nodes(40), capacity_of=spot(40))
    fleet._launches._named = (5.0, clock.steady)
    emulator.faults([])
    fleet.suspend(nodes(40))
    fleet.resume(nodes(20), capacity_of=spot(20))
    assert emulator.calls("CreateFleet") == []
    clock.pass_by(10.0)
    fleet.suspend(nodes(20))
    fleet.resume(nodes(20), capacity_of=spot(20))
    assert len(emulator.calls("CreateFleet")) == 1
