"""The same cases against both doubles of Slurm: a real slurmctld on this machine, and the one in memory.

Each is asked and told by both back ends. A real pyslurm takes part wherever one can be imported; elsewhere
only what stands in for it does.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec import structs

from advisor.model import Node
from advisor.model.cluster import NodePower
from advisor.model.errors import RetryLater
from advisor.model.job import Job
from advisor.model.snapshot import QueuedJob
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.pyslurm_backend import PyslurmBackend, load_pyslurm
from advisor.slurm.running_jobs import RunningJobs
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import wait_until
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_pyslurm import MemoryPyslurm
from advisor.testing.memory_slurm import MemorySlurm, SlurmTimes

NODES = ("burst1", "burst2", "burst3")
FEATURES = ("cloud", "x86")
LONG, SHORT = 300.0, 1.0
KINDS = (
    ("--array=1-4,7,9%2", "--time=10"),
    ("--job-name=a 'b\" c|d", "--comment=x\\y, z=1;", "--time=UNLIMITED"),
    ("--job-name=é日本", "--mem=100", "--cpus-per-task=2", "--no-requeue", "--nice=20"),
    ("--dependency=afterok:{first},afterany:{first}", "--constraint=cloud&x86", "--time=1-0"),
    ("--dependency=afterok:{first}?afternotok:{first}", "--constraint=cloud|x86"),
    ("--dependency=singleton", "--prefer=x86", "--account=one"),
    ("--dependency=after:{first}+10", "--nodes=1-3"),
    ("--nodelist=burst[1-2]", "--exclude=burst3", "--exclusive", "--nodes=2"),
    ("--begin=now+1hour", "--constraint=x86*2&cloud", "--nodes=2"),
    ("--partition=onprem,burst", "--ntasks=3"),
)


class Site(Protocol):
    """What a case does to a Slurm beside asking and telling it."""

    slurm: SlurmBackend
    by_commands: SlurmBackend
    pyslurm: Any
    jobs: RunningJobs | MemorySlurm

    @property
    def now(self) -> float: ...
    def submit(self, seconds: float, *, partition: str = ..., nodes: int = ..., fails: bool = ...) -> int: ...
    def submit_all_kinds(self) -> int: ...
    def until(self, is_so: Callable[[], bool]) -> None: ...
    def leave(self) -> None: ...


class InMemory:
    """`advisor.testing.memory_slurm`; nodes boot in two seconds."""

    def __init__(self, *, by_pyslurm: bool) -> None:
        self.clock = ManualClock()
        self.jobs = MemorySlurm(
            now=lambda: self.clock.wall,
            program=lambda *_: None,
            answers=lambda _name, _address, since: self.clock.wall >= since + 2.0,
            node_count=len(NODES),
            features=FEATURES,
            times=SlurmTimes(suspend=5.0, idle=10.0, requeue=5.0),
        )
        self.by_commands: SlurmBackend = self.jobs  # type: ignore[assignment]
        self.slurm, self.pyslurm = self.by_commands, MemoryPyslurm(self.jobs)
        if by_pyslurm:
            self.slurm = PyslurmBackend(self.pyslurm, self.by_commands)

    @property
    def now(self) -> float:
        return self.clock.wall

    def submit(self, seconds: float, *, partition: str = "burst", nodes: int = 1, fails: bool = False) -> int:
        return self.jobs.submit(seconds, partition=partition, nodes_wanted=nodes, fails=fails).job_id

    def submit_all_kinds(self) -> int:
        """Jobs that differ in what is read of them; how many rows of squeue they make."""
        self.jobs.hold([self.submit(LONG, partition="onprem"), self.submit(LONG, nodes=2)])
        self.jobs.submit_array(3, LONG, partition="burst")
        for dependency in ("afterok:1,afterany:1", "afterok:1?afternotok:1", "singleton"):
            job_id = self.submit(LONG)
            said = Job(job_id=job_id, submit_time=0.0, processors=4, requeue=True, dependency=dependency)
            self.jobs.jobs[job_id].described = said
        return len(self.jobs.snapshot(self.now).jobs)

    def until(self, is_so: Callable[[], bool]) -> None:
        for _ in range(600):
            if is_so():
                return
            self.clock.pass_by(0.5)
            self.jobs.advance()
        assert is_so()

    def leave(self) -> None:
        """Nothing: the next case has a new one."""


class OnThisMachine:
    """`advisor.testing.lab`: one for all cases."""

    def __init__(self, lab: Lab, *, by_pyslurm: bool) -> None:
        self.lab = lab
        commands = Commands(Path(shutil.which("squeue") or "").parent, lab.conf)
        self.by_commands: SlurmBackend = CliBackend(commands)
        self.jobs = RunningJobs(commands)
        self.slurm, self.pyslurm = self.by_commands, None
        if by_pyslurm:
            self.pyslurm = load_pyslurm(lab.conf, self.by_commands.version())
            self.slurm = PyslurmBackend(self.pyslurm, self.by_commands)

    @property
    def now(self) -> float:
        return time.time()

    def submit(self, seconds: float, *, partition: str = "burst", nodes: int = 1, fails: bool = False) -> int:
        options = (f"--partition={partition}", f"--nodes={nodes}", "--exclusive", "--requeue")
        script = f"sleep {seconds}; exit {int(fails)}"
        return self.lab.sbatch(*options, script=script).job_id

    def submit_all_kinds(self) -> int:
        """Jobs that differ in what is read of them; how many rows of squeue they make."""
        first = self.submit(LONG, partition="onprem")
        self.until(lambda: state(self, first) == "RUNNING")  # it must not start between two looks
        for options in KINDS:
            given = [option.format(first=first) for option in options]
            self.lab.sbatch("--partition=burst", "--hold", *given, script=f"sleep {LONG}")
        mixed = ("--partition=burst", "--nodes=1", "--hold")
        self.lab.run("sbatch", *mixed, ":", *mixed, f"--wrap=sleep {LONG}")
        return 1 + len(KINDS) + 2

    def until(self, is_so: Callable[[], bool]) -> None:
        try:
            wait_until(is_so, seconds=240.0, what="what the case waits for")
        except RetryLater:
            shown = self.lab.run("scontrol", "show", "job").stdout + self.lab.run("sinfo", "-N", "-l").stdout
            pytest.fail(shown)

    def leave(self) -> None:
        self.lab.run("scancel", "--user=root", check=False)
        wait_until(lambda: not self.slurm.snapshot(self.now).jobs, seconds=240.0, what="no job is left")
        for name in NODES:
            if {"DRAIN", "DRAINED", "DRAINING", "DOWN"} & node(self, name).states:
                self.lab.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        self.slurm.update_node(NODES, weight=100)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    options = LabOptions(nodes=1, burst_nodes=len(NODES), burst_features=FEATURES, suspend_timeout_seconds=2)
    with Lab.temporary(options) as lab:
        yield lab


BY_PYSLURM: list[Any] = ["memory pyslurm"]
if importlib.util.find_spec("pyslurm") is not None:
    BY_PYSLURM.append(pytest.param("lab pyslurm", marks=pytest.mark.slurm))
DOUBLES = ["memory", pytest.param("lab", marks=pytest.mark.slurm), *BY_PYSLURM]


@pytest.fixture(params=DOUBLES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    place, _, api = request.param.partition(" ")
    if place == "memory":
        yield InMemory(by_pyslurm=bool(api))
        return
    found = OnThisMachine(request.getfixturevalue("lab"), by_pyslurm=bool(api))
    yield found
    found.leave()


def job(site: Site, job_id: int) -> QueuedJob | None:
    """A job as the snapshot shows it; None when it is not queued."""
    return next((each for each in site.slurm.snapshot(site.now).jobs if each.job.job_id == job_id), None)


def state(site: Site, job_id: int) -> str:
    found = job(site, job_id)
    return "" if found is None else found.state


def node(site: Site, name: str) -> Node:
    found = site.slurm.snapshot(site.now).node(name)
    assert found is not None
    return found


def running(site: Site, seconds: float = LONG, **how: int) -> int:
    """Id of a job in the burst partition that runs."""
    job_id = site.submit(seconds, **how)
    site.until(lambda: state(site, job_id) == "RUNNING")
    return job_id


JOB_TYPES = {
    **dict.fromkeys(["id", "submit_time", "cpus", "num_nodes", "user_id", "group_id", "priority"], int),
    **dict.fromkeys(["requeue_count", "heterogeneous_id"], int),
    **dict.fromkeys(["state", "state_reason", "partition", "name", "account", "qos", "comment"], str),
    **dict.fromkeys(["array_tasks_waiting", "reservation", "required_nodes", "allocated_nodes"], str),
    **dict.fromkeys(["array_id", "start_time", "time_limit"], int),
    **dict.fromkeys(["constraints", "licenses"], list),
    **dict.fromkeys(["is_requeueable", "is_batch_job"], bool),
    **dict.fromkeys(["dependencies", "gres_per_node"], dict),
    "admin_comment": str,
}
NODE_TYPES = {
    **dict.fromkeys(["name", "state", "address", "reason"], str),
    **dict.fromkeys(["real_memory", "total_cpus", "allocated_cpus", "weight"], int),
    **dict.fromkeys(["partitions", "available_features", "active_features"], list),
}


@pytest.mark.parametrize("site", BY_PYSLURM, indirect=True)
def test_pyslurm_shows_what_the_commands_show_and_in_the_types_of_its_documentation(site: Site) -> None:
    job_id = running(site)
    rows = site.submit_all_kinds()
    site.until(lambda: len(site.by_commands.snapshot(site.now).jobs) >= rows)
    assert shown(site.slurm) == shown(site.by_commands)
    assert state(site, job_id) == "RUNNING"
    assert isinstance(site.slurm, PyslurmBackend)
    assert site.slurm.by_commands == 0
    assert wrong_types(site.pyslurm.Jobs.load().values(), JOB_TYPES) == {}
    assert wrong_types(site.pyslurm.Nodes.load().values(), NODE_TYPES) == {}


def shown(slurm: SlurmBackend) -> dict[str, Any]:
    """Every job and node by name.

    The order of a job's dependencies means nothing. The Slurm in memory has half seconds, jobs without a
    user, and nodes without a weight.
    """
    snapshot = slurm.snapshot(0.0)
    found: dict[str, Any] = {}
    for one in snapshot.jobs:
        same = structs.replace(
            one.job,
            dependency=None,
            submit_time=one.job.submit_time // 1,
            user=one.job.user or "root",
            group=one.job.group or "root",
        )
        begun = None if one.start_time is None else one.start_time // 1
        bare = re.sub(r"\(\w+\)", "", one.job.dependency or "")
        depends = sorted(re.findall(r"\d+|singleton|[?]", bare))
        found[str(one.job.job_id)] = (replace(one, job=same, start_time=begun), depends)
    for each in snapshot.nodes:
        found[each.name] = replace(each, active_features=each.active_features or (), weight=each.weight or 0)
    return found


def wrong_types(records: Iterable[Any], types: Mapping[str, type]) -> dict[str, str]:
    """Attributes that are neither None nor of their documented type."""
    values = [(name, getattr(record, name), kind) for record in records for name, kind in types.items()]
    return {name: repr(value) for name, value, kind in values if not isinstance(value, kind | None)}


def test_a_job_resumes_its_nodes_runs_there_and_leaves(site: Site) -> None:
    job_id = running(site, 2.0, nodes=2)
    found = job(site, job_id)
    assert found is not None
    assert (found.partitions, found.restarts, found.job.nodes) == (("burst",), 0, 2)
    names = [name for name in NODES if has_job(site, name)]
    assert len(names) == 2
    assert all(node(site, name).power is NodePower.UP for name in names)
    site.until(lambda: state(site, job_id) == "")
    end = site.jobs.end_of(job_id)
    assert end is not None
    assert (end.state, end.may_requeue) == ("COMPLETED", True)
    assert abs(end.end_time - site.now) < 60.0


def has_job(site: Site, name: str) -> bool:
    return bool({"ALLOCATED", "MIXED"} & node(site, name).states)


def test_an_idle_node_is_powered_down(site: Site) -> None:
    job_id = running(site, SHORT)
    (name,) = (name for name in NODES if has_job(site, name))
    site.until(lambda: state(site, job_id) == "")
    site.until(lambda: node(site, name).power is NodePower.POWERING_DOWN)
    site.until(lambda: node(site, name).power is NodePower.DOWN)
    assert not node(site, name).is_down


def test_a_job_on_premise_starts_at_once(site: Site) -> None:
    job_id = site.submit(SHORT, partition="onprem")
    site.until(lambda: state(site, job_id) in ("RUNNING", ""))
    site.until(lambda: state(site, job_id) == "")


def test_a_failed_job_is_known_with_its_node(site: Site) -> None:
    job_id = running(site, SHORT, fails=True)
    (name,) = (name for name in NODES if has_job(site, name))
    site.until(lambda: state(site, job_id) == "")
    end = site.jobs.end_of(job_id)
    assert end is not None
    assert end.state == "FAILED"
    assert site.jobs.failed_on([name])[job_id] == (name,)


def test_a_requeued_job_keeps_its_id_and_waits(site: Site) -> None:
    job_id = running(site)
    site.slurm.requeue([job_id])
    site.until(lambda: state(site, job_id) == "PENDING")
    found = job(site, job_id)
    assert found is not None
    assert (found.reason, found.restarts) == ("BeginTime", 1)
    # not started at once: on a real node that has just ended its former run it would fail
    site.until(lambda: state(site, job_id) == "RUNNING")


def test_a_waiting_job_may_change_its_partition(site: Site) -> None:
    holding = running(site, nodes=3)
    waiting = site.submit(SHORT)
    site.until(lambda: state(site, waiting) == "PENDING")
    site.slurm.update_job([waiting], {"partition": "onprem"})
    site.until(lambda: state(site, waiting) == "")
    with pytest.raises(RetryLater):
        site.slurm.update_job([holding], {"partition": "onprem"})
    with pytest.raises(RetryLater):
        site.slurm.update_job([waiting], {"partition": "burst"})  # it has ended


COMMENT = '{"burst_advisor":1,"id":"it\'s \\"a b\\" \\\\"}'


def test_new_jobs_are_seen_once_and_changed_in_one_call(site: Site) -> None:
    holding = running(site, nodes=3)
    first, second = site.submit(LONG), site.submit(LONG)
    found = site.slurm.waiting({first})
    assert found.keys() == {first, second}
    assert found[first] is None
    new = found[second]
    assert new is not None
    assert (new.queued.partitions, new.nice, new.prefer, new.queued.admin_comment) == (("burst",), 0, "", "")
    assert new.eligible_time is not None
    assert new.eligible_time <= site.now + 1.0
    changes = {"admincomment": COMMENT, "nice": "7", "sitefactor": "0"}
    site.slurm.update_jobs({first: changes, second: changes})
    changed = [one for one in site.slurm.waiting(()).values() if one is not None]
    assert [json.loads(one.queued.admin_comment) for one in changed] == [json.loads(COMMENT)] * 2
    assert {one.nice for one in changed} == {7}
    with pytest.raises(RetryLater):
        site.slurm.update_jobs({holding: {"partition": "onprem"}, second: {"partition": "onprem"}})
    site.until(lambda: "onprem" in {name for q in [job(site, second)] if q for name in q.partitions})
    held = job(site, holding)
    assert held is not None
    assert held.partitions == ("burst",)


def test_a_later_start_is_kept(site: Site) -> None:
    holding = running(site, nodes=3)
    waiting = site.submit(SHORT)
    site.slurm.update_job([waiting], {"starttime": "now+900"})

    def waits_for_its_time() -> bool:
        found = job(site, waiting)
        return found is not None and found.reason == "BeginTime"

    site.until(waits_for_its_time)
    site.slurm.update_job([waiting], {"starttime": "now"})
    site.until(lambda: not waits_for_its_time())
    assert (state(site, holding), state(site, waiting)) == ("RUNNING", "PENDING")


def test_excluded_nodes_and_preferred_features_are_kept(site: Site) -> None:
    holding = running(site, nodes=3)
    waiting = site.submit(LONG)
    site.slurm.update_job([waiting], {"excnodelist": "burst[1-2]", "prefer": "x86"})
    found = site.jobs.node_constraints(waiting)
    assert (found.excluded, found.prefer) == ("burst[1-2]", "x86")
    assert site.jobs.excluded_nodes(waiting) == "burst[1-2]"
    site.slurm.requeue([holding])
    site.until(lambda: state(site, waiting) == "RUNNING")
    assert has_job(site, "burst3")


def test_weights_and_active_features_show_and_unknown_ones_are_refused(site: Site) -> None:
    site.slurm.update_node(["burst1", "burst2"], weight=110)
    assert [node(site, name).weight for name in NODES] == [110, 110, 100]
    site.slurm.update_node(["burst1"], features=["x86"])
    assert node(site, "burst1").active_features == ("x86",)
    assert node(site, "burst1").features == FEATURES
    with pytest.raises(RetryLater):
        site.slurm.update_node(["burst1"], features=["gpu"])
    with pytest.raises(RetryLater):
        site.slurm.update_node(["burst99"], state="RESUME")
    site.slurm.update_node(["burst1"], features=list(FEATURES))


def test_a_node_that_is_to_power_down_takes_no_job_and_keeps_its_own(site: Site) -> None:
    job_id = running(site)
    (name,) = (name for name in NODES if has_job(site, name))
    site.slurm.update_node([name], state="POWER_DOWN_ASAP", reason="EC2 takes it back")
    assert state(site, job_id) == "RUNNING"
    assert {"DRAIN", "DRAINING"} & node(site, name).states
    others = running(site, nodes=2)
    assert state(site, others) == "RUNNING"
    waiting = site.submit(SHORT)
    assert state(site, waiting) == "PENDING"
    assert all(has_job(site, name) for name in NODES)


def test_a_node_forced_down_loses_its_job_which_is_requeued(site: Site) -> None:
    job_id = running(site)
    (name,) = (name for name in NODES if has_job(site, name))
    site.slurm.update_node([name], state="POWER_DOWN_FORCE", reason="lost")
    site.until(lambda: state(site, job_id) == "PENDING")
    found = job(site, job_id)
    assert found is not None
    assert found.restarts == 1
    site.until(lambda: node(site, name).power is NodePower.DOWN)


def test_a_node_powers_up_for_the_asking(site: Site) -> None:
    site.until(lambda: any(node(site, name).power is NodePower.DOWN for name in NODES))
    name = next(name for name in NODES if node(site, name).power is NodePower.DOWN)

    def is_up() -> bool:
        power = node(site, name).power
        if power is NodePower.DOWN:  # slurmctld forgets what it is asked just as a power-down ends
            site.slurm.update_node([name], state="POWER_UP")
        return power is NodePower.UP

    site.until(is_up)
    assert not has_job(site, name)
