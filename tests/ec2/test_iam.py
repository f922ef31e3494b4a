"""The policies we ship allow what the code asks for, and say about tags what the code says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from advisor.ec2 import interruptions
from advisor.ec2.fleet import Fleet
from advisor.ec2.journal import Intent
from advisor.ec2.pools import FIRST_PAUSE_SECONDS
from advisor.ec2.prices import PriceCache
from advisor.ec2.reading_account import AccountCache
from advisor.ec2.requests import create_fleet_request, run_instances_request
from advisor.ec2.tags import CLUSTER_TAG, NODE_TAG
from advisor.ec2.templates import template_data
from advisor.model.advice import Capacity
from advisor.model.errors import TellAdmin
from advisor.model.settings import Settings
from advisor.model.settings_cloud import Ec2Settings
from advisor.service.admin import doctor_cloud
from advisor.service.admin.doctor import Level
from advisor.service.admin.doctor_cloud import examine_cloud
from advisor.service.state.state_files import PRICES
from advisor.testing.ec2 import Ec2Emulator
from advisor.testing.manual_clock import ManualClock

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "ansible" / "files" / "iam"
MAX_POLICY = 6144  # IAM's limit of a managed policy, without white space


def statements(name: str) -> list[dict[str, Any]]:
    return list(json.loads((FOLDER / f"{name}.json").read_text())["Statement"])


def statement(sid: str) -> dict[str, Any]:
    (found,) = [row for row in statements("controller-policy") if row["Sid"] == sid]
    return found


def actions(row: dict[str, Any]) -> list[str]:
    return [row["Action"]] if isinstance(row["Action"], str) else row["Action"]


def test_the_rule_that_the_page_shows_sends_every_event_that_is_read() -> None:
    page = (ROOT / "docs" / "iam.md").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"--event-pattern '(.+?)'", page, re.DOTALL)
    assert set(json.loads(pattern)["detail-type"]) == interruptions._KINDS.keys()
    (name,) = re.findall(r"put-rule --name (\S+)", page)
    (source,) = [row["Condition"]["ArnLike"]["aws:SourceArn"] for row in statements("queue-policy")[:1]]
    assert fnmatch(f"arn:aws:events:us-east-1:111122223333:rule/{name}", source)


def make_intent(option: Capacity) -> Intent:
    return Intent(
        token="advisor-1",
        nodes=("burst1", "burst2"),
        option=option,
        instance_type="c5.xlarge",
        subnet_id=None,
        requested=option,
        time=0.0,
        instances={},
    )


@pytest.mark.ec2
def test_every_call_the_advisor_makes_is_allowed(
    emulator: Ec2Emulator,
    start_fleet: Callable[..., Fleet],
    subnets: dict[str, str],
    tmp_path: Path,
) -> None:
    emulator.faults([])  # forgets the calls of the fixtures
    two = {
        "nodes": "mid[1-2]",
        "instance_types": ["c5.xlarge", "m5.xlarge"],
        "cores": 4,
        "memory_mb": 7000,
        "on_demand_usd_per_hour": 0.2,
        "placement_group": True,
    }
    ours = {"subnet_ids": (subnets["us-east-1a"],), "classes": {"mid": two}}
    fleet = start_fleet(**ours)
    fleet.resume(["burst1", "burst2"], capacity_of={"burst1": Capacity.SPOT})
    fleet.resume(["burst3", "burst4"])
    fleet.resume(["mid1"], capacity_of={"mid1": Capacity.SPOT})
    fleet.resume(["mid2", "burst5"], jobs=[["mid2", "burst5"]])
    fleet.tag_unnamed()
    fleet.recover(["burst1"])
    fleet.suspend(["burst1", "burst2", "burst3", "burst4"])
    prices = PriceCache(emulator.settings(**ours), PRICES.at(tmp_path), lambda: 1.0e9)
    prices.refresh_spot()
    prices.refresh_on_demand()
    account = AccountCache(emulator.settings(**ours), "c1")
    emulator.savings([{"savingsPlanId": "sp-1", "commitment": "1.0", "state": "active"}])
    account.refresh_reservations()
    account.refresh_reserved()
    account.refresh_plans()
    account.refresh_quotas()
    asked = {f"{call['service']}:{call['action']}" for call in emulator.calls()}
    allowed = {action for row in statements("controller-policy") for action in actions(row)}
    assert {"ec2:CreateFleet", "ec2:CreateLaunchTemplate", "ec2:CreatePlacementGroup"} <= asked
    assert {"ec2:RunInstances", "ec2:CreateTags", "ec2:TerminateInstances", "pricing:GetProducts"} <= asked
    assert asked <= allowed


@pytest.mark.parametrize("option", list(Capacity))
def test_a_launch_carries_the_tag_the_policy_demands_on_all_it_makes(option: Capacity) -> None:
    request = run_instances_request(make_intent(option), Ec2Settings(), "c1")
    tagged = {
        group["ResourceType"]
        for group in request["TagSpecifications"]
        if {"Key": CLUSTER_TAG, "Value": "c1"} in group["Tags"]
    }
    made = {"instance", "volume", "network-interface"}
    assert tagged == (made | {"spot-instances-request"} if option is Capacity.SPOT else made)
    for sid in ("LaunchInstances", "LaunchWithIt", "MakeFleet", "MakeTemplate", "TagAtLaunch"):
        assert statement(sid)["Condition"]["StringEquals"][f"aws:RequestTag/{CLUSTER_TAG}"] == "c1"
    resources = {name.split(":")[-1].removesuffix("/*") for name in statement("TagAtLaunch")["Resource"]}
    assert resources == made | {"spot-instances-request", "fleet", "launch-template", "placement-group"}


def test_a_fleet_and_its_template_tag_all_they_make() -> None:
    intent = replace(make_intent(Capacity.SPOT), pools=(("c5.xlarge", None), ("m5.xlarge", None)))
    groups = create_fleet_request(intent, "c1", "template")["TagSpecifications"]
    groups += template_data(Ec2Settings(), "c1")["TagSpecifications"]
    tagged = {row["ResourceType"] for row in groups if {"Key": CLUSTER_TAG, "Value": "c1"} in row["Tags"]}
    assert tagged == {"fleet", "instance", "volume", "network-interface", "spot-instances-request"}


def test_a_launch_asks_for_what_the_policy_insists_on() -> None:
    insisted = statement("LaunchInstances")["Condition"]["StringEquals"]
    request = run_instances_request(make_intent(Capacity.ON_DEMAND), Ec2Settings(), "c1")
    assert insisted["ec2:MetadataHttpTokens"] == request["MetadataOptions"]["HttpTokens"]
    assert insisted["ec2:InstanceType"] == [request["InstanceType"]]


def test_only_owned_instances_may_be_ended_or_named() -> None:
    owned = f"aws:ResourceTag/{CLUSTER_TAG}"
    for row in statements("controller-policy"):
        changes_existing = row["Sid"] != "TagAtLaunch" and {"ec2:CreateTags", "ec2:TerminateInstances"} & {
            *actions(row)
        }
        if changes_existing:
            assert row["Condition"]["StringEquals"][owned] == "c1"
    keys = statement("NameOwnInstances")["Condition"]["ForAllValues:StringEquals"]["aws:TagKeys"]
    assert sorted(keys) == sorted([NODE_TAG, "Name"])
    made_by = statement("TagAtLaunch")["Condition"]["StringEquals"]["ec2:CreateAction"]
    assert made_by == ["RunInstances", "CreateFleet", "CreateLaunchTemplate", "CreatePlacementGroup"]


@pytest.mark.parametrize("name", ["controller-policy", "node-policy", "queue-policy"])
def test_policies_are_well_formed(name: str) -> None:
    text = (FOLDER / f"{name}.json").read_text()
    assert json.loads(text)["Version"] == "2012-10-17"
    assert len(re.sub(r"\s", "", text)) < MAX_POLICY
    rows = statements(name)
    assert len({row["Sid"] for row in rows}) == len(rows)
    for row in rows:
        wide = any("*" in action for action in actions(row))
        assert row["Effect"] == "Deny" or not wide


def test_nodes_may_do_nothing_with_ec2() -> None:
    (row,) = statements("node-policy")
    assert row["Effect"] == "Deny"
    assert "ec2:*" in row["Action"]


def test_every_statement_is_explained() -> None:
    page = (ROOT / "docs" / "iam.md").read_text()
    for name in ("controller-policy", "queue-policy"):
        for row in statements(name):
            assert f"`{row['Sid']}`" in page


def told(fleet: Fleet) -> str:
    try:
        fleet.tell_refused()
    except TellAdmin as error:
        return str(error)
    return ""


def test_a_refused_launch_is_told_until_one_is_allowed(
    emulator: Ec2Emulator, start_fleet: Callable[..., Fleet], clock: ManualClock
) -> None:
    fleet = start_fleet()
    emulator.faults([{"action": "RunInstances", "error": {"code": "UnauthorizedOperation"}}])
    assert fleet.resume(["burst1"]).failed
    assert "does not let the advisor launch instances (UnauthorizedOperation" in told(fleet)
    assert "docs/iam.md" in told(fleet)
    emulator.faults([])
    clock.pass_by(FIRST_PAUSE_SECONDS + 1)
    assert fleet.resume(["burst1"]).launched
    assert told(fleet) == ""


def test_a_refused_end_is_told_until_one_is_allowed(
    emulator: Ec2Emulator, start_fleet: Callable[..., Fleet]
) -> None:
    fleet = start_fleet()
    fleet.resume(["burst1"])
    emulator.faults([{"action": "TerminateInstances", "error": {"code": "UnauthorizedOperation"}}])
    assert fleet.suspend(["burst1"]) == []
    assert "does not let the advisor end instances (UnauthorizedOperation" in told(fleet)
    emulator.faults([])
    assert len(fleet.suspend(["burst1"])) == 1
    assert told(fleet) == ""


def test_the_doctor_says_that_instances_may_not_be_listed(emulator: Ec2Emulator) -> None:
    settings = Settings(ec2=emulator.settings())
    assert ("ec2", Level.OK, "instances can be listed") in of_cloud(settings)
    emulator.faults([{"action": "DescribeInstances", "error": {"code": "UnauthorizedOperation"}}])
    (error,) = [what for _, level, what in of_cloud(settings) if level is Level.ERROR]
    assert "instances cannot be listed, so no node is launched or ended (UnauthorizedOperation" in error


def test_the_doctor_tells_a_wrong_image_from_credentials_that_lack(emulator: Ec2Emulator) -> None:
    settings = Settings(ec2=emulator.settings())
    for code, mend in (("InvalidAMIID.NotFound", "ec2.image_id"), ("AuthFailure", "instance profile")):
        emulator.faults([{"action": "DescribeImages", "error": {"code": code}}])
        (error,) = [item for item in examine_cloud(settings) if item.level is Level.ERROR]
        assert mend in error.mend


@pytest.mark.parametrize(
    ("wrong", "mend"),
    [
        ({"instance_type": "c5.xlrage"}, "ec2.instance_type"),
        ({"subnet_ids": ["subnet-0123456789abcdef0"]}, "ec2.subnet_ids"),
    ],
)
def test_the_doctor_sees_a_name_by_which_no_node_could_be_launched(
    emulator: Ec2Emulator, wrong: dict[str, Any], mend: str
) -> None:
    items = list(examine_cloud(Settings(ec2=emulator.settings(**wrong))))
    assert any(item.level is Level.ERROR and mend in item.mend for item in items), items


def test_the_doctor_compares_the_clocks_also_where_a_wrong_one_is_why_ec2_refuses(
    emulator: Ec2Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_cloud, "_SKEW_SECONDS", -1.0)  # no clock is as near as that
    emulator.faults([{"error": {"code": "RequestExpired"}}])
    errors = [item for item in examine_cloud(Settings(ec2=emulator.settings())) if item.level is Level.ERROR]
    assert [item.check for item in errors] == ["ec2", "clock", "ec2"]
    assert errors[-1].mend == "Renew the credentials"


def test_the_doctor_does_not_say_that_nothing_is_paid_for_where_it_cannot_read_that(
    emulator: Ec2Emulator,
) -> None:
    emulator.faults([{"action": "DescribeReservedInstances", "error": {"code": "UnauthorizedOperation"}}])
    levels = {item.level for item in examine_cloud(Settings(ec2=emulator.settings())) if "paid" in item.check}
    assert levels == {Level.WARNING}


def of_cloud(settings: Settings) -> list[tuple[str, Level, str]]:
    return [(item.check, item.level, item.what) for item in examine_cloud(settings)]
