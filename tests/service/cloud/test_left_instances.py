"""Settings under which running instances would be lost sight of are refused; EC2 is the emulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from advisor.ec2.tags import CLUSTER_TAG
from advisor.model.errors import AdvisorError, BadInput
from advisor.model.settings import PathSettings, Settings
from advisor.service.cloud.left_instances import refuse_to_leave_instances
from advisor.service.control.process import _reloaded
from advisor.service.running.clock import Clock
from advisor.service.state.cloud_record import CloudRecord

if TYPE_CHECKING:
    from advisor.testing.ec2 import Ec2Emulator


@pytest.fixture
def ec2(emulator: Ec2Emulator) -> Any:
    return boto3.client("ec2", region_name=emulator.settings().region, endpoint_url=emulator.url)


@pytest.fixture
def settings(emulator: Ec2Emulator, tmp_path: Path, ec2: Any) -> Settings:
    """Those under which an instance runs, as the record of boots says."""
    known = emulator.settings()
    tags = [{"ResourceType": "instance", "Tags": [{"Key": CLUSTER_TAG, "Value": "old"}]}]
    ec2.run_instances(
        ImageId=known.image_id, InstanceType="m5.large", MinCount=1, MaxCount=1, TagSpecifications=tags
    )
    base = Settings(paths=PathSettings(state=tmp_path), ec2=known)
    CloudRecord(tmp_path, Clock()).instances_run("old", known.region)
    return _with(base, "cluster", name="old")


def _with(settings: Settings, section: str, **changes: Any) -> Settings:
    inner = getattr(settings, section).model_copy(update=changes)
    return settings.model_copy(update={section: inner})


@pytest.mark.parametrize(
    ("section", "change"),
    [("cluster", {"name": "new"}), ("ec2", {"region": "eu-west-1"}), ("ec2", {"image_id": ""})],
)
def test_settings_that_would_leave_instances_behind_are_refused(
    settings: Settings, section: str, change: dict[str, str]
) -> None:
    refuse_to_leave_instances(settings)
    changed = _with(settings, section, **change)
    with pytest.raises(BadInput, match=r"1 instances with the tag of .* 'old' run in us-east-1"):
        refuse_to_leave_instances(changed)
    assert _reloaded(settings, lambda: changed) == (settings, False)


def test_a_stopped_instance_costs_money_and_is_not_left_either(settings: Settings, ec2: Any) -> None:
    (row,) = ec2.describe_instances()["Reservations"]
    ec2.stop_instances(InstanceIds=[row["Instances"][0]["InstanceId"]])
    with pytest.raises(BadInput, match="1 instances"):
        refuse_to_leave_instances(_with(settings, "cluster", name="new"))


def test_they_hold_once_the_instances_have_ended(settings: Settings, emulator: Ec2Emulator) -> None:
    emulator.reset()
    changed = _with(settings, "cluster", name="new")
    assert _reloaded(settings, lambda: changed) == (changed, True)


def test_they_hold_where_ec2_cannot_be_asked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> list[str]:
        raise AdvisorError("no route")

    monkeypatch.setattr("advisor.service.cloud.left_instances.instances_that_may_cost", refused)
    refuse_to_leave_instances(_with(settings, "cluster", name="new"))


def test_a_first_start_and_a_damaged_record_hold(tmp_path: Path, emulator: Ec2Emulator) -> None:
    settings = Settings(paths=PathSettings(state=tmp_path), ec2=emulator.settings())
    refuse_to_leave_instances(settings)
    (tmp_path / "cloud.json").write_text("{")
    refuse_to_leave_instances(settings)
