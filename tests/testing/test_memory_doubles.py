"""Slurm and EC2 in memory: what they refuse, and the answers that the launch protocol rests upon."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from advisor.model.cluster import NodePower
from advisor.model.errors import RetryLater
from advisor.model.snapshot import RUNNING
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_ec2 import MemoryEc2
from advisor.testing.memory_slurm import MemorySlurm


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def account(clock: ManualClock) -> MemoryEc2:
    return MemoryEc2(now=lambda: clock.wall)


@pytest.fixture
def slurm(clock: ManualClock) -> MemorySlurm:
    return MemorySlurm(now=lambda: clock.wall, program=lambda *_: None, answers=lambda *_: False)


def request(token: str = "t-1", number: int = 1, **more: Any) -> dict[str, Any]:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "owner", "Value": "me"}]}]
    kind = {"ImageId": "ami-1", "InstanceType": "c5.large"}
    counts = {"MinCount": 1, "MaxCount": number}
    return {**kind, **counts, "ClientToken": token, "TagSpecifications": tags, **more}


def listed(account: MemoryEc2) -> dict[str, str]:
    pages = account.connect("ec2").get_paginator("describe_instances")
    found = pages.paginate(Filters=[{"Name": "tag:owner", "Values": ["me"]}])
    rows = (row for page in found for launch in page["Reservations"] for row in launch["Instances"])
    return {row["InstanceId"]: row["State"]["Name"] for row in rows}


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def test_a_token_launches_once_even_if_its_answer_was_lost(account: MemoryEc2) -> None:
    ec2 = account.connect("ec2")
    account.fail("run_instances", "answer-lost")
    with pytest.raises(ConnectionClosedError):
        ec2.run_instances(**request())
    account.fail("run_instances", "VcpuLimitExceeded")  # not said of a launch that was carried out
    (again,) = ec2.run_instances(**request())["Instances"]
    assert [item.instance_id for item in account.alive()] == [again["InstanceId"]]
    with pytest.raises(ClientError) as caught:
        ec2.run_instances(**request(number=2))
    assert code_of(caught) == "IdempotentParameterMismatch"


def test_a_token_is_known_for_a_day_after_its_instances(account: MemoryEc2, clock: ManualClock) -> None:
    ec2 = account.connect("ec2")
    account.forgotten = lambda _instance: None
    made = ec2.run_instances(**request(number=2))["Instances"]
    ec2.terminate_instances(InstanceIds=[made[0]["InstanceId"]])
    clock.pass_by(20 * 3600.0)
    account.advance()
    (still,) = ec2.run_instances(**request(number=2))["Instances"]
    assert still["InstanceId"] == made[1]["InstanceId"]
    ec2.terminate_instances(InstanceIds=[made[1]["InstanceId"]])
    for _ in range(2):
        clock.pass_by(20 * 3600.0)
        account.advance()
        assert account.instances == {}
        with pytest.raises(ClientError) as caught:
            ec2.run_instances(**request(number=2))
        assert code_of(caught) == "IdempotentInstanceTerminated"
    clock.pass_by(5 * 3600.0)
    account.advance()
    assert len(ec2.run_instances(**request(number=2))["Instances"]) == 2


def test_lists_and_terminations_go_by_what_was_true_a_while_ago(
    account: MemoryEc2, clock: ManualClock
) -> None:
    ec2 = account.connect("ec2")
    account.times.lag = 20.0
    (made,) = ec2.run_instances(**request())["Instances"]
    assert listed(account) == {}
    with pytest.raises(ClientError) as caught:
        ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    assert code_of(caught) == "InvalidInstanceID.NotFound"
    clock.pass_by(30.0)
    assert listed(account) == {made["InstanceId"]: "running"}
    ec2.terminate_instances(InstanceIds=[made["InstanceId"]])
    assert account.alive() == []
    assert listed(account) == {made["InstanceId"]: "running"}
    clock.pass_by(40.0)
    assert listed(account) == {made["InstanceId"]: "terminated"}


def test_an_empty_pool_gives_what_it_has_and_then_nothing(account: MemoryEc2) -> None:
    ec2 = account.connect("ec2")
    account.room["on-demand"] = 2
    assert len(ec2.run_instances(**request(number=5))["Instances"]) == 2
    with pytest.raises(ClientError) as caught:
        ec2.run_instances(**request("t-2"))
    assert code_of(caught) == "InsufficientInstanceCapacity"


def test_what_they_do_not_know_they_refuse(account: MemoryEc2, slurm: MemorySlurm) -> None:
    ec2 = account.connect("ec2")
    with pytest.raises(TypeError, match="MaxCuont"):
        ec2.run_instances(**request(MaxCuont=1))
    ec2.run_instances(**request())
    with pytest.raises(ValueError, match="instance-lifecycle"):
        list(
            ec2.get_paginator("describe_instances").paginate(
                Filters=[{"Name": "instance-lifecycle", "Values": ["spot"]}]
            )
        )
    job = slurm.submit(60.0)
    with pytest.raises(ValueError, match="startime"):
        slurm.update_job([job.job_id], {"startime": "now"})
    with pytest.raises(ValueError, match="POWER_OFF"):
        slurm.update_node(["burst1"], state="POWER_OFF")
    with pytest.raises(RetryLater, match="Invalid node name"):
        slurm.update_node(["burst99"], state="RESUME")


def test_a_node_whose_job_leaves_while_it_boots_boots_on_and_is_idle(clock: ManualClock) -> None:
    launched: dict[str, float] = {}
    slurm = MemorySlurm(
        now=lambda: clock.wall,
        program=lambda name, nodes, _jobs: launched.update(
            dict.fromkeys(nodes if name == "resume" else (), clock.wall)
        ),
        answers=lambda node, _address, since: since <= launched[node] <= clock.wall - 30.0,
    )
    left = slurm.submit(60.0)
    slurm.advance()
    (node,) = launched
    clock.pass_by(10.0)
    slurm.cancel([left.job_id])
    clock.pass_by(20.0)
    slurm.advance()
    assert slurm.nodes[node].power is NodePower.UP
    job = slurm.submit(60.0)
    slurm.advance()
    slurm.advance()
    assert (job.state, job.nodes, len(launched)) == (RUNNING, (node,), 1)


def test_a_node_that_does_not_boot_is_given_up_and_its_job_waits_with_its_id(clock: ManualClock) -> None:
    programs: list[tuple[str, tuple[str, ...]]] = []
    slurm = MemorySlurm(
        now=lambda: clock.wall,
        program=lambda name, nodes, _jobs: programs.append((name, nodes)),
        answers=lambda *_: False,
    )
    job = slurm.submit(60.0)
    slurm.advance()
    assert (job.state, programs) == ("CONFIGURING", [("resume", ("burst1",))])
    clock.pass_by(slurm.times.resume + 1.0)
    slurm.advance()
    assert programs[-1] == ("resume_fail", ("burst1",))
    (node,) = (n for n in slurm.snapshot(clock.wall).nodes if n.name == "burst1")
    assert node.is_down
    assert (job.state, job.restarts) == ("PENDING", 1)
    assert job.begin_time == clock.wall + slurm.times.requeue
