"""What LSF's resource connector asks, and what is launched and ended for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.ec2.instances import Instance
from advisor.files.state_file import StateFile
from advisor.lsf.cloud_hosts import CloudHosts, HostsAskedFor
from advisor.model.errors import RetryLater
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, QueuedJob
from advisor.service.cloud.resource_connector import ResourceConnector
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.observation.poll_view import SharedView
from tests.lsf.test_cloud_hosts import CLASSES
from tests.service.doubles import FakeFleet, Hands, make_instance, make_look
from tests.service.site import make_cluster


class Site:
    """The connector's questions, answered with doubles around."""

    def __init__(self, folder: Path) -> None:
        self.hands = Hands()
        self.fleet = FakeFleet()
        self.folder = HandoverFolder(folder / "handover")
        self.folder.prepare()
        self.view = SharedView(self.hands.clock, 60.0)
        self.file = StateFile(folder / "lsf_hosts.json", HostsAskedFor)
        self.taken_back: set[str] = set()
        self.arrived = 0
        self.begin()

    def begin(self) -> None:
        """Start, or start again after a crash."""
        self.hosts = CloudHosts(
            Settings.model_validate({"ec2": {"classes": CLASSES}}),
            self.file,
            close=lambda _host, _why: None,
            wall=lambda: self.hands.wall,
        )
        self.connector = ResourceConnector(
            self.hosts,
            fleet=self.fleet,
            folder=self.folder,
            view=self.view,
            clock=self.hands.clock,
            arrived=self._count,
            is_taken_back=self.taken_back.__contains__,
            queue="burst",
        )

    def _count(self) -> None:
        self.arrived += 1

    def ask(self, call: str, **asked: Any) -> Any:
        self.hands.pass_by(4.0)  # EC2 is asked again
        said = self.connector.answer(call, asked)
        assert said["ok"], said
        return said["output"]

    def create(self, count: int = 2) -> str:
        template = {"templateId": "spot4", "machineCount": count}
        return str(self.ask("requestMachines", template=template, rc_account="physics")["requestId"])

    def state(self, request: str) -> dict[str, Any]:
        (found,) = self.ask("getRequestStatus", requests=[{"requestId": request}])["requests"]
        return dict(found)

    def handed_over(self) -> list[tuple[str, tuple[str, ...]]]:
        """Operations and nodes of the hand-overs; they are done then."""
        found = list(self.folder.waiting())
        for path, _ in found:
            self.folder.done(path)
        return [(one.operation, one.nodes) for _, one in found]

    def runs(self, *nodes: str, **changes: Any) -> None:
        self.fleet.listed = [instance(node, **changes) for node in nodes]


def instance(node: str, **changes: Any) -> Instance:
    return make_instance(node, **changes)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def machine(node: str) -> dict[str, str]:
    return {"name": node, "machineId": f"i-{node}"}


def test_templates_are_the_classes(site: Site) -> None:
    spot, steady = site.ask("getAvailableTemplates")["templates"]
    assert (spot["templateId"], spot["maxNumber"]) == ("spot4", 3)
    assert spot["attributes"] == {
        "type": ["String", "X86_64"],
        "ncpus": ["Numeric", "4"],
        "ncores": ["Numeric", "4"],
        "mem": ["Numeric", "7000"],
        "advisorhost": ["Boolean", "1"],
    }
    assert steady["attributes"]["on_demand"] == ["Boolean", "1"]


def test_hosts_are_launched_and_ended_by_hand_overs(site: Site) -> None:
    request = site.create()
    assert site.handed_over() == [("resume", ("cloud1", "cloud2"))]
    assert site.arrived == 1
    assert site.state(request)["status"] == "running"
    site.runs("cloud1", "cloud2", private_ip="10.0.0.7")
    done = site.state(request)
    assert done["status"] == "complete"
    assert [(one["name"], one["machineId"], one["result"], one["rcAccount"]) for one in done["machines"]] == [
        ("cloud1", "i-cloud1", "succeed", "physics"),
        ("cloud2", "i-cloud2", "succeed", "physics"),
    ]
    assert {one["name"] for one in site.ask("getAvailableMachines")["machines"]} == {"cloud1", "cloud2"}
    back = site.ask("requestReturnMachines", machines=[machine("cloud1")])["requestId"]
    assert site.handed_over() == [("suspend", ("cloud1",))]
    assert site.state(back)["status"] == "running"
    site.runs("cloud2", private_ip="10.0.0.7")
    ended = site.state(back)
    assert (ended["status"], ended["machines"][0]["machineId"]) == ("complete", "i-cloud1")


def test_a_host_is_for_the_job_that_goes_first(site: Site) -> None:
    jobs = [
        waiting_job(7, processors=2, priority=1),
        waiting_job(8, processors=6, priority=9),
        waiting_job(9, processors=4, priority=5, node_list="select[on_demand]"),
        waiting_job(10, queue="batch"),
        waiting_job(11, requeue=True, priority=99),  # its advice is not joined yet: its host may be spot
    ]
    site.view.update(make_look(time=site.hands.wall, jobs=jobs), make_cluster())
    site.create(3)
    ((path, first),) = site.folder.waiting()
    assert first.jobs == {"cloud1": 8, "cloud2": 8}  # 7 fits beside it
    assert first.allocated == (("cloud1", "cloud2"),)  # both, or none
    site.folder.done(path)
    template = {"templateId": "steady4", "machineCount": 1}
    site.ask("requestMachines", template=template)
    ((_, steady),) = site.folder.waiting()
    assert steady.jobs == {"steady1": 9}


@pytest.mark.parametrize(
    ("changes", "jobs"),
    [
        ({}, {"cloud1": 7}),  # 8 fits beside it
        ({"whole_nodes": True}, {"cloud1": 7, "cloud2": 8}),  # bsub -x
        ({"memory_mb": 4_000, "memory_mb_per_node": 4_000}, {"cloud1": 7, "cloud2": 8}),  # a host has 7,000
        ({"nodes": 2, "processors": 2}, {"cloud1": 7, "cloud2": 7, "cloud3": 8}),  # span[ptile=1]
        ({"memory_mb": 9_000, "memory_mb_per_node": 9_000}, {}),  # for hosts of another class
        ({"node_processors": 8, "processors": 8}, {}),
    ],
)
def test_a_host_is_for_jobs_that_fit_on_it_together(
    site: Site, changes: dict[str, Any], jobs: dict[str, int]
) -> None:
    """A host that is launched for no job may be spot, and is promised a day's cost."""
    waiting = [waiting_job(job_id, **changes) for job_id in (7, 8)]
    site.view.update(make_look(time=site.hands.wall, jobs=waiting), make_cluster())
    site.create(3)
    found = {node: job for _, one in site.folder.waiting() for node, job in one.jobs.items()}
    assert found == jobs


def test_each_element_of_an_array_has_a_host_of_its_own(site: Site) -> None:
    """All hosts of an array were launched in one pool or none, and only those of the first request for it."""
    look = make_look(time=site.hands.wall, jobs=[waiting_job(7, processors=4, array_tasks=3)])
    site.view.update(look, make_cluster())
    site.create(2)
    ((path, first),) = site.folder.waiting()
    assert first.jobs == {"cloud1": 7, "cloud2": 7}
    assert first.allocated == (("cloud1",), ("cloud2",))
    site.folder.done(path)
    site.create(1)
    ((_, second),) = site.folder.waiting()
    assert second.jobs == {"cloud3": 7}


def test_the_next_host_after_one_that_was_lost_is_for_its_job_again(site: Site) -> None:
    """It was launched for no job: with a day promised, and on spot whatever the job was advised."""
    look = make_look(time=site.hands.wall, jobs=[waiting_job(7, processors=4)])
    site.view.update(look, make_cluster())
    site.create(1)
    site.handed_over()
    site.hosts.update(["cloud1"], "POWER_DOWN_FORCE", "burst advisor: i-1 ended (Server.Spot)")
    site.create(1)
    ((_, second),) = site.folder.waiting()
    assert second.jobs == {"cloud1": 7}


def test_no_job_fits_beside_one_that_has_not_all_its_hosts(site: Site) -> None:
    jobs = [waiting_job(7, processors=2, priority=1), waiting_job(8, processors=6, priority=9)]
    site.view.update(make_look(time=site.hands.wall, jobs=jobs), make_cluster())
    site.create(1)
    assert site.handed_over() == [("resume", ("cloud1",))]
    site.create(1)
    ((_, second),) = site.folder.waiting()
    assert second.jobs == {"cloud2": 7}


def test_an_array_gets_no_more_hosts_than_it_has_elements(site: Site) -> None:
    look = make_look(time=site.hands.wall, jobs=[waiting_job(7, processors=2, array_tasks=3)])
    site.view.update(look, make_cluster())
    site.create(3)
    ((_, seen),) = site.folder.waiting()
    assert seen.jobs == {"cloud1": 7, "cloud2": 7}  # two elements fit on the first


def test_a_host_whose_job_is_not_seen_yet_waits_for_the_next_poll(site: Site) -> None:
    site.view.update(make_look(time=site.hands.wall), make_cluster())
    request = site.create(2)
    assert site.handed_over() == []
    assert site.state(request)["status"] == "running"
    assert site.handed_over() == []
    site.view.update(make_look(time=site.hands.wall, jobs=[waiting_job(7, processors=4)]), make_cluster())
    site.state(request)
    ((path, seen),) = site.folder.waiting()
    assert seen.nodes == ("cloud1", "cloud2")
    assert seen.jobs == {"cloud1": 7}
    site.folder.done(path)
    site.runs("cloud1", "cloud2")
    site.state(request)
    assert site.handed_over() == []


def test_without_another_poll_a_host_waits_no_longer_than_after_a_crash(site: Site) -> None:
    site.view.update(make_look(time=site.hands.wall), make_cluster())
    request = site.create(1)
    site.state(request)
    site.state(request)
    assert site.handed_over() == []
    site.state(request)
    assert site.handed_over() == [("resume", ("cloud1",))]


def test_a_host_that_waits_for_a_poll_and_is_given_back_is_not_launched(site: Site) -> None:
    site.view.update(make_look(time=site.hands.wall), make_cluster())
    site.create(1)
    site.ask("requestReturnMachines", machines=[machine("cloud1")])
    assert site.handed_over() == [("suspend", ("cloud1",))]
    site.view.update(make_look(time=site.hands.wall), make_cluster())
    site.ask("getAvailableTemplates")
    assert site.handed_over() == []


def waiting_job(job_id: int, *, processors: int = 1, priority: int = 1, **changes: Any) -> QueuedJob:
    job = {"job_id": job_id, "submit_time": 1_799_999_000.0, "processors": processors, "queue": "burst"}
    values: dict[str, Any] = job | changes
    return QueuedJob(
        job=Job(**values),
        state=PENDING,
        partitions=(str(values["queue"]),),
        array_job_id=job_id,
        priority=priority,
        memory_mb=int(values.get("memory_mb") or 0),
        node_memory_mb=int(values.get("memory_mb_per_node") or 0),
    )


def test_a_launch_that_was_refused_is_said(site: Site) -> None:
    request = site.create()
    site.handed_over()
    site.hosts.update(["cloud2"], "POWER_DOWN_FORCE", "burst advisor: budget: spent")
    site.runs("cloud1", private_ip="10.0.0.7")
    said = site.state(request)
    assert (said["status"], said["message"]) == ("complete_with_error", "burst advisor: budget: spent")
    assert [one["result"] for one in said["machines"]] == ["succeed", "fail"]


def test_after_a_crash_nothing_is_forgotten_and_nothing_done_twice(site: Site) -> None:
    request = site.create()
    site.begin()
    assert site.state(request)["status"] == "running"
    assert site.handed_over() == [("resume", ("cloud1", "cloud2"))]
    site.runs("cloud1", private_ip="")  # the other hand-over was lost with a disk
    site.hands.pass_by(20.0)
    site.state(request)
    assert site.handed_over() == [("resume", ("cloud2",))]


def test_hosts_that_are_no_more_are_given_up(site: Site) -> None:
    site.create(3)
    site.runs("cloud1", "cloud2", "cloud3", private_ip="10.0.0.7")
    asked = [machine("cloud1"), machine("cloud2"), machine("cloud3")]
    assert site.ask("getReturnRequests", machines=asked)["requests"] == []
    site.taken_back.add("i-cloud1")
    site.fleet.listed[1:2] = [instance("cloud2", state="terminated")]
    lost = site.ask("getReturnRequests", machines=asked)["requests"]
    assert lost == [
        {"machine": "cloud1", "machineId": "i-cloud1"},
        {"machine": "cloud2", "machineId": "i-cloud2"},
    ]


def test_a_closed_host_is_given_up_once_it_is_empty(site: Site) -> None:
    site.create(1)
    site.runs("cloud1", private_ip="10.0.0.7")
    site.hosts.update(["cloud1"], "POWER_DOWN_ASAP", "the budget is spent")
    site.view.update(make_look(time=site.hands.wall), make_cluster())
    asked = {"machines": [machine("cloud1")]}
    assert site.ask("getReturnRequests", **asked)["requests"] == [
        {"machine": "cloud1", "machineId": "i-cloud1"}
    ]


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        ("shutdown", {}),
        ("requestMachines", {}),
        ("requestMachines", {"template": {"templateId": "spot4", "machineCount": "many"}}),
        ("requestMachines", {"template": {"templateId": "other", "machineCount": 1}}),
        ("requestReturnMachines", {"machines": [{"name": "here1", "machineId": "i-1"}]}),
        ("getRequestStatus", []),
        ("getRequestStatus", {"requests": [7]}),
    ],
)
def test_what_is_no_question_is_refused(site: Site, call: str, asked: Any) -> None:
    said = site.connector.answer(call, asked)
    assert said["ok"] is False
    assert said["error"]
    assert site.handed_over() == []


def test_while_ec2_cannot_be_read_the_connector_asks_again(site: Site) -> None:
    site.fleet.error = RetryLater("EC2 does not answer", code="ec2.unreadable")
    assert site.connector.answer("getAvailableTemplates", {}) == {
        "v": 1, "ok": False, "error": "EC2 does not answer",
    }  # fmt: skip


def test_a_request_that_is_not_known(site: Site) -> None:
    assert site.state("advisor-0")["status"] == "complete_with_error"
