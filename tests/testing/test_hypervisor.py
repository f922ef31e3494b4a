"""Instances become processes of this machine, and end with them."""

from __future__ import annotations

import pytest

from advisor.ec2.tags import NODE_TAG, NODES_TAG
from advisor.testing.hypervisor import Hypervisor

pytestmark = pytest.mark.ec2


@pytest.fixture
def machines(emulator):
    """What runs: start and stop keep a set of node names."""
    running = []
    hypervisor = Hypervisor(emulator, running.append, running.remove, boot_seconds=0.0)
    return hypervisor, running


def tagged(key, value):
    return {"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": key, "Value": value}]}]}


def test_a_named_instance_boots_and_ends(run, ec2, machines):
    hypervisor, running = machines
    (instance,) = run(**tagged(NODE_TAG, "burst7"))
    hypervisor.run_once()
    hypervisor.run_once()
    assert running == ["burst7"]
    assert hypervisor.booted == {instance["InstanceId"]: "burst7"}
    ec2.stop_instances(InstanceIds=[instance["InstanceId"]])  # a stopped machine runs nothing (F21)
    hypervisor.run_once()
    assert running == []


def test_instances_of_one_launch_know_which_node_they_are(run, machines):
    hypervisor, running = machines
    run(MinCount=3, MaxCount=3, **tagged(NODES_TAG, "burst[1-2,9]"))
    hypervisor.run_once()
    assert sorted(running) == ["burst1", "burst2", "burst9"]


def test_pending_and_foreign_instances_boot_nothing(emulator, run, machines):
    hypervisor, running = machines
    run()
    emulator.config(pending_s=30)
    run(**tagged(NODE_TAG, "burst1"))
    hypervisor.run_once()
    assert running == []


def test_a_younger_instance_keeps_the_node(run, ec2, machines):
    hypervisor, running = machines
    (old,) = run(**tagged(NODE_TAG, "burst1"))
    hypervisor.run_once()
    running.clear()
    run(**tagged(NODE_TAG, "burst1"))
    hypervisor.run_once()
    ec2.terminate_instances(InstanceIds=[old["InstanceId"]])
    hypervisor.run_once()
    assert running == ["burst1"]


def test_the_thread_looks_by_itself(emulator, run):
    import threading

    up, down = threading.Event(), threading.Event()
    with Hypervisor(emulator, lambda _: up.set(), lambda _: down.set(), boot_seconds=0.0) as hypervisor:
        run(**tagged(NODE_TAG, "burst1"))
        assert up.wait(60)
        emulator.reset()
        assert down.wait(60)
    assert hypervisor.booted == {}
