"""The main job, end to end: sbatch, hook, advisor, EC2, node, job, accounting, history; well and ill.

Real slurmctld, slurmdbd and slurmds; the real daemons; an EC2 emulator whose instances become slurmds.
"""

from __future__ import annotations

import json
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from advisor.history.store import HistoryStore
from advisor.model.errors import TellAdmin
from advisor.model.job import JobOutcome, JobState
from advisor.testing.lab import LabOptions, Submission
from advisor.testing.site import PATIENT, Site, SiteOptions
from benchmarks.soak_past import write_the_past
from tests.slurm.steps import cancel_all, moved

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

LONG = "--time=30"  # jobs of half an hour have waited two hours here, in the past
SHORT = "--time=1"  # jobs of a minute have not waited


def history(site: Site) -> HistoryStore:
    return HistoryStore(f"sqlite:///{site.state / 'history.db'}")


@contextmanager
def whole_site(database_template: Path) -> Iterator[Site]:
    """A site with a past, which acts on its advice."""
    lab = LabOptions(
        nodes=1,
        burst_nodes=4,
        database=True,
        database_template=database_template,
        suspend_seconds=3,
        suspend_timeout_seconds=2,
        # while slurmctld restarts a node may boot, and registers before control can tell its address: without
        # this slurmctld then looks for the node by name, gives the job up, and starts it on another node
        slurmctld_parameters=("cloud_reg_addrs",),
    )
    settings = {
        "cluster": {"policy": "cunha2017"},
        "placement": {"boot_seconds": 5.0},
        "estimator": {"kernel_width": 5.0, "neighbours": 32},
        "submit": PATIENT,
    }
    # Unix socket paths end at 107 bytes: pytest's own folders are too deep
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            write_the_past(site)
            site.start_advisor()
            yield site


@pytest.fixture(scope="module")
def site(database_template: Path) -> Iterator[Site]:
    """For all tests here. It learns: after 32 long jobs that ran on-premise at once it would move none."""
    with whole_site(database_template) as site:
        yield site


@pytest.fixture(autouse=True)
def _well(site: Site) -> Iterator[None]:
    """Each test begins and ends with no job, both daemons answering and an advice that is acted upon."""
    yield
    cancel_all(site.lab)
    for daemon in (site.control, site.serve):
        daemon.signal(signal.SIGCONT)
        if not daemon.is_running:
            daemon.start()
    site.ec2.capacity({"c5.xlarge|*|*": 1000})
    site.wait_until("the advisor's word counts again", lambda: moves(site))


def moves(site: Site) -> bool:
    job = site.lab.sbatch("--hold", LONG)
    moved = site.lab.job(job.job_id)["Partition"] == "burst"
    site.lab.run("scancel", str(job.job_id))
    return moved


def ran_on(site: Site, job: Submission) -> str:
    return site.lab.job(job.job_id)["BatchHost"]


def all_completed_once(site: Site, jobs: list[Submission], *, seconds: float = 240.0) -> None:
    """Every job ends COMPLETED, and the accounting has seen it end so exactly once."""
    ids = [job.job_id for job in jobs]
    assert set(site.lab.wait_for_jobs(ids, seconds=seconds).values()) == {"COMPLETED"}
    wanted = Counter(dict.fromkeys(map(str, ids), 1))

    def accounted() -> bool:
        listed = ",".join(map(str, ids))
        shown = site.lab.run("sacct", "-X", "-n", "-P", "-D", "-o", "jobid,state", "-j", listed).stdout
        ended = Counter(line.split("|")[0] for line in shown.splitlines() if line.endswith("|COMPLETED"))
        assert not ended - wanted, "a job has completed twice"
        return ended == wanted

    site.wait_until("the accounting has all jobs", accounted)


def alive(site: Site) -> list[str]:
    return [
        item["tags"].get("advisor:node", "") for item in site.ec2.instances() if item["state"] == "running"
    ]


def test_kept_moved_and_what_the_user_says(site: Site) -> None:
    name = "a \"quoted\" 'name'\nwith a line\\n and ${x} `y` %s"
    kept = site.lab.sbatch(SHORT, script="sleep 1.2")
    told = moved(site, LONG, f"--job-name={name}", script="sleep 1.2")
    explicit = site.lab.sbatch(LONG, "--partition=onprem", script="sleep 1.2")
    opted_out = site.lab.sbatch(LONG, "--comment=please no-burst", script="sleep 1.2")
    long_name = moved(site, LONG, f"--job-name={'x' * 1000}", f"--comment={'y' * 1000}")
    with pytest.raises(TellAdmin, match="too long"):  # slurmctld's own limit, with a hook or without
        site.lab.sbatch(LONG, f"--job-name={'x' * 10_000}")
    jobs = [kept, told, explicit, opted_out, long_name]
    all_completed_once(site, jobs)
    ran = [ran_on(site, job)[:5] for job in jobs]
    said = site.advisor("why", str(kept.job_id), check=False).stdout
    assert ran == ["onpre", "burst", "onpre", "onpre", "burst"], said
    assert "Burst Advisor: starts in the cloud" in told.message
    assert [kept.message, explicit.message, opted_out.message] == ["", "", ""]
    learned_from_accounting(site, jobs)
    instances_end(site)


def learned_from_accounting(site: Site, jobs: list[Submission]) -> None:
    ids = {job.job_id for job in jobs}
    with history(site) as store:

        def known() -> dict[int, JobOutcome]:
            return {o.job.job_id: o for o in store.outcomes() if o.job.job_id in ids}

        site.wait_until("the history knows all jobs", lambda: known().keys() == ids)
        found = known()
        assert {outcome.state for outcome in found.values()} == {JobState.COMPLETED}
        moved = found[jobs[1].job_id]
        assert moved.partition == "burst"
        assert moved.job.name is not None
        assert moved.job.name.startswith("a `quoted` 'name'\nwith a line")  # slurmdbd turns " into `

        # the advice itself comes by the spool, a few seconds later
        site.wait_until("the ledger knows them", lambda: store.advice_of(jobs[1].job_id) is not None)
        record = store.advice_of(jobs[1].job_id)
        assert record is not None
        assert record.advice.partition == "burst"
        assert record.advice.advice_id == moved.advice_id


def instances_end(site: Site) -> None:
    """Nobody waits any more: every instance is given back, every node can be used again."""
    site.wait_until("no instance runs", lambda: not alive(site))

    def powered_down() -> bool:
        shown = site.lab.run("sinfo", "-h", "-N", "-p", "burst", "-O", "StateComplete:").stdout.split()
        return all(state == "idle+cloud+powered_down" for state in shown)

    site.wait_until("all cloud nodes are powered down", powered_down)


def test_submit_server_stopped(site: Site) -> None:
    site.serve.signal(signal.SIGSTOP)
    long = [site.lab.sbatch("--hold", LONG) for _ in range(4)]  # never start: nothing is learned from them
    short = [site.lab.sbatch(SHORT) for _ in range(4)]
    assert {site.lab.job(job.job_id)["Partition"] for job in (*long, *short)} == {"onprem"}
    site.serve.signal(signal.SIGCONT)
    site.lab.run("scancel", *(str(job.job_id) for job in long))
    all_completed_once(site, short)


def test_f14_control_away_while_slurm_wants_a_node(site: Site) -> None:
    instances_end(site)
    # while control is away the snapshot ages, and after 20 s no job is moved any more: it is moved before
    job = moved(site, LONG, release=False)
    site.control.kill()
    site.lab.run("scontrol", "release", str(job.job_id))
    folder = site.state / "handover"
    site.wait_until("resume leaves a file", lambda: any(folder.glob("*.json")))
    assert alive(site) == []
    site.control.start()
    all_completed_once(site, [job])
    assert ran_on(site, job).startswith("burst")
    # the idle node's suspend may have been handed over just now
    site.wait_until("all is acted upon", lambda: not any(folder.glob("*.json")))


def test_f14_slurmctld_restarted_during_a_resume(site: Site) -> None:
    instances_end(site)
    before = len(site.ec2.instances())
    job = moved(site, LONG)
    site.wait_until("an instance is launched", lambda: len(site.ec2.instances()) > before)
    site.lab.restart_slurmctld()
    all_completed_once(site, [job])
    assert ran_on(site, job).startswith("burst")
    assert len(site.ec2.instances()) == before + 1


def test_f14_machine_boots_before_its_address_is_told(site: Site) -> None:
    instances_end(site)
    before = len(site.ec2.instances())
    lost = {"service": "ec2", "action": "RunInstances", "reset": "after"}
    site.ec2.faults([lost])
    try:
        job = moved(site, LONG)
        all_completed_once(site, [job])
        assert ran_on(site, job).startswith("burst")
        assert len(site.ec2.instances()) == before + 1
    finally:
        site.ec2.faults([])
    instances_end(site)
    assert len(site.ec2.instances()) == before + 1


def test_f01_no_capacity_brings_the_job_back(site: Site) -> None:
    instances_end(site)
    site.ec2.capacity({"c5.xlarge|*|*": 0})
    job = moved(site, LONG)
    try:
        all_completed_once(site, [job])
        assert ran_on(site, job) == "onprem1"
        instances_end(site)
    finally:
        # the pools' breakers stay closed for minutes: as they should, but the next test cannot wait
        site.control.stop()
        (site.state / "pools.json").unlink(missing_ok=True)


def test_status_and_doctor(site: Site) -> None:
    def status_now() -> dict[str, Any]:
        return dict(json.loads(site.advisor("status", "--format", "json").stdout))

    status: dict[str, Any] = {}

    def is_well() -> bool:  # one round may fail, and be told until the next
        status.update(status_now())
        return status["troubles"] == [] and status["snapshot"]["usable"]

    site.wait_until("no trouble is told", is_well)
    assert status["serve"]["running"]
    assert status["control"]["running"]
    assert status["modes"] == {"onprem": "act"}
    found = site.advisor("doctor", "--format", "json", check=False)
    result = json.loads(found.stdout)
    assert [item for item in result["findings"] if item["level"] == "error"] == []
    assert found.returncode in (0, 1)


def test_doctor_says_how_to_mend(site: Site) -> None:
    site.serve.kill()
    found = site.advisor("doctor", "--format", "json", check=False)
    result = json.loads(found.stdout)
    errors = {item["check"]: item for item in result["findings"] if item["level"] == "error"}
    assert found.returncode == 2
    assert "advisor serve" in errors["submit socket"]["mend"]
