"""The same cases against both doubles of Slurm: a real slurmctld on this machine, and the one in memory.

Each is asked and told by both back ends. A real pyslurm takes part wherever one can be imported; elsewhere
only what stands in for it does.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from advisor.model.cluster import NodePower
from advisor.model.errors import RetryLater
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.pyslurm_backend import PyslurmBackend
from advisor.testing.lab import Lab, LabOptions
from tests.slurm.contract_sites import (
    FEATURES,
    LONG,
    NODES,
    SHORT,
    UNKNOWN,
    InMemory,
    OnThisMachine,
    Site,
    job,
    node,
    state,
)


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
    **dict.fromkeys(["array_id", "array_tasks_parallel", "start_time", "time_limit"], int),
    **dict.fromkeys(["constraints", "licenses"], list),
    **dict.fromkeys(["is_requeueable", "is_batch_job"], bool),
    **dict.fromkeys(["dependencies", "gres_per_node"], dict),
    **dict.fromkeys(["memory_per_cpu", "memory_per_node"], int),
    "resource_sharing": str,
    "admin_comment": str,
}
NODE_TYPES = {
    **dict.fromkeys(["name", "state", "address", "reason"], str),
    **dict.fromkeys(["real_memory", "total_cpus", "allocated_cpus", "weight"], int),
    **dict.fromkeys(["partitions", "available_features", "active_features"], list),
    "configured_gres": dict,
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


def test_a_job_that_may_not_be_requeued_is_not_by_asking_for_it(site: Site) -> None:
    job_id, other = running(site, may_requeue=False), running(site)
    with pytest.raises(RetryLater):
        site.slurm.requeue([job_id])
    assert state(site, job_id) == "RUNNING"
    with pytest.raises(RetryLater):
        site.slurm.requeue([job_id, other])
    site.until(lambda: state(site, other) == "PENDING")
    assert state(site, job_id) == "RUNNING"


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_requeued_job_is_shown_as_submitted_when_it_was_requeued(site: Site, *, is_lost: bool) -> None:
    job_id = running(site)
    before = job(site, job_id)
    began = site.now
    site.until(lambda: site.now > began + 2.0)
    (name,) = (name for name in NODES if has_job(site, name))
    if is_lost:
        site.slurm.update_node([name], state="POWER_DOWN_FORCE", reason="lost")
    else:
        site.slurm.requeue([job_id])
    site.until(lambda: state(site, job_id) == "PENDING")
    after = job(site, job_id)
    assert before is not None
    assert after is not None
    assert after.job.submit_time >= before.job.submit_time + 2.0


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_has_ended_is_run_again_only_where_that_is_meant(site: Site, *, fails: bool) -> None:
    job_id = running(site, SHORT, fails=fails)
    site.until(lambda: state(site, job_id) == "")
    site.slurm.requeue([job_id])
    assert state(site, job_id) == ""
    end = site.jobs.end_of(job_id)
    assert end is not None
    assert end.state == ("FAILED" if fails else "COMPLETED")
    if fails:
        site.slurm.requeue_ended([job_id])
        site.until(lambda: state(site, job_id) == "PENDING")


def test_one_job_of_a_list_that_is_refused_keeps_no_other_from_being_changed(site: Site) -> None:
    ended = site.submit(SHORT, partition="onprem")
    site.until(lambda: state(site, ended) == "")
    holding = running(site, nodes=3)
    for refused in (UNKNOWN, ended, holding):
        waiting = site.submit(LONG)
        with pytest.raises(RetryLater):
            site.slurm.update_job([refused, waiting], {"excnodelist": "burst3"})
        assert site.jobs.node_constraints(waiting).excluded == "burst3"
    site.slurm.update_job([holding, waiting], {"nice": "7"})  # that of a running job may be changed
    for job_id in (UNKNOWN, ended):
        with pytest.raises(RetryLater):
            site.slurm.release([job_id, waiting])


def test_a_job_that_is_not_known_or_waits_is_not_requeued(site: Site) -> None:
    running(site, nodes=3)
    waiting = site.submit(LONG)
    with pytest.raises(RetryLater):
        site.slurm.requeue([UNKNOWN])
    with pytest.raises(RetryLater):
        site.slurm.requeue_ended([waiting])
    site.slurm.requeue([waiting])
    found = job(site, waiting)
    assert found is not None
    assert (found.state, found.restarts) == ("PENDING", 0)
    assert site.jobs.end_of(UNKNOWN) is None
    with pytest.raises(RetryLater):
        site.jobs.node_constraints(UNKNOWN)


def test_features_are_set_taken_away_and_obeyed(site: Site) -> None:
    site.slurm.update_node(["burst1", "burst2"], features=["cloud"])
    holding = running(site, nodes=3)
    waiting = site.submit(LONG)
    site.slurm.update_job([waiting], {"features": "x86"})
    assert site.jobs.node_constraints(waiting).features == "x86"
    found = job(site, waiting)
    assert found is not None
    assert found.job.features == ("x86",)
    site.slurm.requeue([holding])
    site.until(lambda: state(site, waiting) == "RUNNING")
    assert has_job(site, "burst3")
    other = site.submit(LONG)
    site.slurm.update_job([other], {"features": "x86"})
    site.slurm.update_job([other], {"features": ""})
    assert site.jobs.node_constraints(other).features == ""
    site.until(lambda: state(site, other) == "RUNNING")
    site.slurm.update_node(["burst1", "burst2"], features=list(FEATURES))


def limit(site: Site, job_id: int) -> float | None:
    found = job(site, job_id)
    return None if found is None else found.job.requested_time


def test_a_waiting_job_may_change_its_partition(site: Site) -> None:
    holding = running(site, nodes=3)
    waiting = site.submit(SHORT)
    site.until(lambda: state(site, waiting) == "PENDING")
    site.slurm.update_job([waiting], {"partition": "onprem"})
    site.until(lambda: state(site, waiting) == "")
    with pytest.raises(RetryLater):
        site.slurm.update_job([holding], {"partition": "onprem"})
    site.slurm.update_job([holding], {"timelimit": "90"})  # that of a running job may be raised
    site.until(lambda: limit(site, holding) == 5400.0)
    with pytest.raises(RetryLater):
        site.slurm.update_job([waiting], {"partition": "burst"})  # it has ended


def test_a_job_may_wait_for_several_partitions_and_runs_in_one(site: Site) -> None:
    running(site, nodes=3)
    waiting = site.submit(LONG)
    site.slurm.update_job([waiting], {"partition": "burst,onprem", "starttime": "now+900"})
    found = job(site, waiting)
    assert found is not None
    assert (found.state, found.partitions) == ("PENDING", ("burst", "onprem"))
    site.slurm.update_job([waiting], {"starttime": "now"})
    site.until(lambda: state(site, waiting) == "RUNNING")
    found = job(site, waiting)
    assert found is not None
    assert found.partitions == ("onprem",)


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
    assert site.jobs.node_constraints(waiting).excluded == "burst[1-2]"
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


@pytest.mark.parametrize("is_told_later", [False, True])
def test_a_job_that_may_not_be_requeued_ends_with_its_node(site: Site, *, is_told_later: bool) -> None:
    job_id = running(site, may_requeue=False)
    found = job(site, job_id)
    assert found is not None
    assert found.job.requeue is False
    (name,) = (name for name in NODES if has_job(site, name))
    if is_told_later:
        site.slurm.update_job([job_id], {"requeue": "1"})
    site.slurm.update_node([name], state="POWER_DOWN_FORCE", reason="lost")
    site.until(lambda: state(site, job_id) == ("PENDING" if is_told_later else ""))
    end = site.jobs.end_of(job_id)
    assert end is not None
    assert (end.state, end.may_requeue) == (("PENDING", True) if is_told_later else ("NODE_FAIL", False))
    site.until(lambda: node(site, name).power is NodePower.DOWN)


def test_a_node_powers_up_for_the_asking(site: Site) -> None:
    down: list[str] = []

    def is_one_down() -> bool:
        down[:] = [name for name in NODES if node(site, name).power is NodePower.DOWN]
        return bool(down)

    site.until(is_one_down)
    name = down[0]

    def is_up() -> bool:
        power = node(site, name).power
        if power is NodePower.DOWN:  # slurmctld forgets what it is asked just as a power-down ends
            site.slurm.update_node([name], state="POWER_UP")
        return power is NodePower.UP

    site.until(is_up)
    assert not has_job(site, name)


def test_where_slurmctld_is_away_it_does_not_answer(site: Site) -> None:
    assert site.slurm.ping()
    site.go_away()
    assert not site.slurm.ping()
    for ask in (site.slurm.config, site.slurm.partitions, site.slurm.reservations):
        with pytest.raises(RetryLater):
            ask()
    with pytest.raises(RetryLater):
        site.jobs.end_of(UNKNOWN)


@pytest.mark.slurm
def test_a_deadline_is_known(lab: Lab) -> None:
    site = OnThisMachine(lab, by_pyslurm=False)
    without, tight = (
        lab.sbatch("--hold", "-t5", *more).job_id for more in ([], ["--deadline=now+1day", "--job-name=none"])
    )
    assert [site.jobs.has_deadline(job_id) for job_id in (without, tight)] == [False, True]
    site.leave()
