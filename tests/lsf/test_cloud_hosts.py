"""Hosts that LSF's resource connector asks for, as cloud nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.files.state_file import StateFile
from advisor.lsf.answers import Host
from advisor.lsf.cloud_hosts import CloudHosts, HostsAskedFor
from advisor.model.cluster import Node, NodePower
from advisor.model.errors import BadInput, RetryLater
from advisor.model.settings import Settings

CLASSES = {
    "spot4": {"nodes": "cloud[1-3]", "instance_types": ["c5.xlarge"], "cores": 4, "memory_mb": 7000,
              "on_demand_usd_per_hour": 0.17},
    "steady4": {"nodes": "steady1", "instance_types": ["c5.xlarge"], "cores": 4, "memory_mb": 7000,
                "on_demand_usd_per_hour": 0.17, "features": ["on-demand"]},
}  # fmt: skip


class Hosts:
    """The hosts of a site, at a time that a test sets."""

    def __init__(self, folder: Path) -> None:
        self.file = StateFile(folder / "lsf_hosts.json", HostsAskedFor)
        self.now = 1000.0
        self.closed: list[tuple[str, str]] = []
        self.settings = Settings.model_validate({"ec2": {"classes": CLASSES}})
        self.hosts = self.another()

    def another(self) -> CloudHosts:
        return CloudHosts(
            self.settings,
            self.file,
            close=lambda host, why: self.closed.append((host, why)),
            wall=lambda: self.now,
        )

    def node(self, name: str, shown: str = "") -> Node:
        rows = [Host(name=name, status=shown, slots=4, taken=0)] if shown else []
        return next(node for node in self.hosts.nodes(rows, {}) if node.name == name)


@pytest.fixture
def site(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def test_a_host_comes_and_goes(site: Hosts) -> None:
    assert site.node("cloud1").power is NodePower.DOWN
    name, made = site.hosts.create("spot4", 2, "physics")
    assert (made.nodes, made.account) == (["cloud1", "cloud2"], "physics")
    site.hosts = site.another()  # after a crash
    assert site.node("cloud1").power is NodePower.POWERING_UP
    up = site.node("cloud1", "ok")
    assert (up.power, up.is_down, up.processors, up.partitions) == (NodePower.UP, False, 4, ("burst",))
    lost = site.node("cloud1")
    assert (lost.is_down, lost.power) == (True, NodePower.UP)
    assert site.hosts.request(name) is not None
    site.hosts.give_back({"cloud1": "i-1"})
    assert site.node("cloud1", "ok").power is NodePower.POWERING_DOWN
    assert site.hosts.forget({"cloud1", "cloud2"}) == []
    assert site.node("cloud1").power is NodePower.POWERING_DOWN  # its instance is still there
    assert site.hosts.forget({"cloud2"}) == []
    assert site.node("cloud1").power is NodePower.DOWN
    assert site.hosts.create("spot4", 9, "")[1].nodes == ["cloud1", "cloud3"]


def test_what_cannot_be_had(site: Hosts) -> None:
    with pytest.raises(BadInput):
        site.hosts.create("nosuch", 1, "")
    site.hosts.create("steady4", 1, "")
    with pytest.raises(RetryLater):
        site.hosts.create("steady4", 1, "")
    with pytest.raises(BadInput, match="named"):
        CloudHosts(Settings(), site.file, close=lambda _host, _why: None)


def test_a_host_that_was_not_launched_is_free_again_and_its_request_knows_why(site: Hosts) -> None:
    name, _ = site.hosts.create("steady4", 1, "")
    site.hosts.update(["steady1"], "POWER_DOWN_FORCE", "the budget is spent")
    assert site.node("steady1").power is NodePower.DOWN
    site.hosts.forget(set())
    site.hosts.create("steady4", 1, "")
    asked = site.hosts.request(name)
    assert asked is not None
    assert asked.failed == {"steady1": "the budget is spent"}


def test_a_host_that_is_to_take_no_new_job_is_closed(site: Hosts) -> None:
    site.hosts.create("spot4", 1, "")
    site.hosts.update(["cloud1"], "POWER_DOWN_ASAP", "not yet")
    assert site.closed == []  # LSF does not know it yet
    assert site.node("cloud1", "ok").is_draining
    site.hosts.update(["cloud1", "here1"], "POWER_DOWN_ASAP", "EC2 takes it back")
    assert site.closed == [("cloud1", "EC2 takes it back")]


def test_a_host_that_never_joins_is_given_up(site: Hosts) -> None:
    site.hosts.create("spot4", 1, "")
    site.now += 60.0
    assert site.hosts.due(10.0) == ["cloud1"]
    site.now += 1800.0
    assert site.node("cloud1").power is NodePower.DOWN  # its instance is an orphan
    site.hosts.forget({"cloud1"})
    assert site.hosts.host("cloud1") is not None
    site.hosts.forget(set())
    assert site.hosts.host("cloud1") is None


def test_a_request_that_the_connector_never_learned_of_is_given_up(site: Hosts) -> None:
    name, _ = site.hosts.create("spot4", 1, "")
    read, _ = site.hosts.create("spot4", 1, "")
    site.hosts.request(read)
    site.now += 1000.0
    assert site.hosts.forget({"cloud1", "cloud2"}) == ["cloud1"]
    assert site.hosts.forget({"cloud2"}) == []
    assert site.hosts.host("cloud1") is None
    assert name in site.file.read().requests  # for a day


def test_hosts_of_a_class_that_is_never_spot(site: Hosts) -> None:
    site.hosts.create("spot4", 1, "")
    site.hosts.create("steady4", 1, "")
    assert site.hosts.spot() == {"cloud1"}
