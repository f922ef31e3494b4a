"""The portfolio live: real Slurm, the real daemon, an EC2 emulator whose instances become slurmds."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from advisor.model.errors import AdvisorError
from advisor.service.exchange import status_file
from advisor.slurm.commands import Commands
from advisor.slurm.steering import BurstSteering, Demand, PowerSaving
from advisor.testing.lab import LabOptions, Submission
from advisor.testing.site import Site, SiteOptions

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

NODES = 4
BOOT_SECONDS = 2.0


@contextmanager
def a_site(**portfolio: Any) -> Iterator[Site]:
    lab = LabOptions(
        nodes=1,
        burst_nodes=NODES,
        suspend_seconds=600,  # what is given back sooner the policy gives back
        suspend_timeout_seconds=2,
        resume_timeout_seconds=120,
        # a node may boot while control is away and cannot tell slurmctld its address: without this slurmctld
        # looks for the node by name, ten seconds long for each message, and answers no command meanwhile
        slurmctld_parameters=("cloud_reg_addrs",),
    )
    settings: dict[str, dict[str, Any]] = {
        "cluster": {"policy": "price"},
        "placement": {"boot_seconds": 5.0},
        "portfolio": {"enabled": True, "period_seconds": 0.5, "policies": "paper", **portfolio},
    }
    with tempfile.TemporaryDirectory(prefix="port-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=BOOT_SECONDS))
        with site:
            site.control.start()
            try:
                yield site
            finally:
                site.control.stop()


def submit(site: Site, minutes: int, script: str, *more: str) -> Submission:
    return site.lab.sbatch("--partition=burst", "--exclusive", f"--time={minutes}", *more, script=script)


def state_of(site: Site, job: Submission) -> str:
    return site.lab.job(job.job_id)["JobState"]


def steering(site: Site) -> BurstSteering:
    return BurstSteering(Commands(Path("/usr/bin"), site.lab.conf))


def told(site: Site) -> dict[str, Any]:
    """What the process says of its portfolio."""
    try:
        return status_file.read(site.folder / "run")["portfolio"] or {}
    except (AdvisorError, KeyError):
        return {}


def has_chosen(site: Site, beginning: str) -> bool:
    """Whether a policy with such a name has been chosen; the status file is written after the choice."""
    return any(name.startswith(beginning) for name in told(site).get("chosen", ()))


def closed_nodes(site: Site) -> int:
    closed = steering(site).closed()
    return 0 if closed is None or closed.until <= time.time() else len(closed.nodes)


def alive(site: Site) -> int:
    return sum(item["state"] == "running" for item in site.ec2.instances())


def until_ordered(site: Site, jobs: list[Submission]) -> None:
    """Wait until their priorities fall from job to job."""

    def ordered() -> bool:
        seen = steering(site).priorities("burst")
        totals = [seen[job.job_id].total for job in jobs if job.job_id in seen]
        return len(totals) == len(jobs) and totals == sorted(set(totals), reverse=True)

    site.wait_until("the policy's order", ordered)


def test_one_node_short_jobs_first_and_nothing_is_left_when_the_loop_ends(tmp_path: Path) -> None:
    """ODE rents for the hours of work that wait: one node. UNICEF lets short jobs before long ones."""
    with a_site(leader="ODE-UNICEF-FirstFit", lease_seconds=12.0) as site:
        site.wait_until("all nodes are closed: nobody waits", lambda: closed_nodes(site) == NODES)
        go, ran = tmp_path / "go", tmp_path / "ran"
        # all ask for the node that is up, so that they wait whatever else is opened
        there = "--nodelist=burst1"
        first = submit(site, 5, f"while [ ! -e {go} ]; do sleep 0.2; done", there)
        site.wait_until("the first job runs", lambda: state_of(site, first) == "RUNNING")
        long, short, middle = (submit(site, limit, f"echo {limit} >>{ran}", there) for limit in (20, 3, 10))
        until_ordered(site, [short, middle, long])
        site.wait_until("what it says of it", lambda: told(site).get("jobs_ordered", 0) >= 2)
        assert told(site)["policy"] == "ODE-UNICEF-FirstFit"
        shown = json.loads(site.advisor("portfolio", "show", "--format", "json").stdout)
        assert shown["nodes_allowed"] == 1
        assert shown["reservation"] == "advisor_portfolio"

        site.control.stop()  # as systemd does: everything is Slurm's again
        assert steering(site).closed() is None
        waiting = steering(site).priorities("burst")
        assert waiting.keys() == {job.job_id for job in (long, short, middle)}
        assert {priority.site_factor for priority in waiting.values()} == {0}
        picky = submit(site, 5, "true", "--hold", "--exclude=burst2", "--mem=1G")
        assert steering(site).demands("burst")[picky.job_id] == Demand(memory_mb=1024, is_particular=True)
        assert not steering(site).demands("burst")[long.job_id].is_particular
        site.lab.run("scancel", str(picky.job_id))
        assert steering(site).power_saving("burst") == PowerSaving(idle_seconds=600.0)
        assert steering(site).node_states(["burst1"]).keys() == {"burst1"}
        assert "CLOUD" in steering(site).node_states(["burst1"])["burst1"]

        site.control.start()
        until_ordered(site, [short, middle, long])
        site.wait_until("the others are closed again", lambda: closed_nodes(site) == NODES - 1)
        site.control.kill()
        go.touch()
        jobs = [job.job_id for job in (first, long, short, middle)]
        assert set(site.lab.wait_for_jobs(jobs, seconds=240).values()) == {"COMPLETED"}
        assert ran.read_text().split() == ["3", "10", "20"]
        assert len(site.ec2.instances()) == 1
        wide = submit(site, 5, "true", f"--nodes={NODES}")
        site.wait_until("the lease is over: Slurm takes all nodes", lambda: is_given_nodes(site, wide))

        site.control.start()
        assert site.lab.wait_for_jobs([wide.job_id], seconds=240) == {wide.job_id: "COMPLETED"}
        site.wait_until("all nodes are given back", lambda: alive(site) == 0)
        site.wait_until("all nodes are closed", lambda: closed_nodes(site) == NODES)
        site.control.kill()
        undone = json.loads(site.advisor("portfolio", "undo", "--format", "json").stdout)
        assert len(undone["opened_nodes"]) == NODES
        assert steering(site).closed() is None


def is_given_nodes(site: Site, job: Submission) -> bool:
    return site.lab.job(job.job_id)["NodeList"] not in {"", "(null)"}


def test_a_burst_of_short_jobs_and_then_long_ones_change_the_policy() -> None:
    """Whole hours are paid, and money weighs much: minutes of work go on one node, hours on two."""
    with a_site(leader="selection", margin=0.0, billing="hour", alpha=8.0) as site:
        site.wait_until("a champion who rents nothing yet", lambda: closed_nodes(site) == NODES)
        warm_up = submit(site, 1, "true")  # the first choice compiles the simulator
        site.wait_until("a first choice", lambda: bool(told(site).get("chosen")))
        site.lab.wait_for_jobs([warm_up.job_id], seconds=240)
        site.wait_until("all is quiet", lambda: alive(site) == 0 and closed_nodes(site) == NODES)
        launched = len(site.ec2.instances())

        submit(site, 1, "sleep 1", "--array=1-5")
        site.wait_until("they have run", lambda: not in_queue(site))
        site.wait_until("such a policy is told", lambda: has_chosen(site, "ODE-"), seconds=60.0)
        assert len(site.ec2.instances()) - launched == 1
        site.wait_until("all is quiet again", lambda: alive(site) == 0 and closed_nodes(site) == NODES)

        submit(site, 120, "sleep 1", "--array=1-2")
        site.wait_until("they have run", lambda: not in_queue(site))
        site.wait_until("such a policy is told", lambda: has_chosen(site, "ODA-"), seconds=60.0)
        assert len(site.ec2.instances()) - launched == 3
        assert told(site)["changes"] >= 1


def in_queue(site: Site) -> bool:
    return bool(site.lab.run("squeue", "-h", "-p", "burst", "-o", "%A").stdout.strip())


def test_killed_and_restarted_at_random_moments_nothing_is_held_or_drained() -> None:
    """Five times, while nodes boot, jobs run, wait and end."""
    chance = random.Random(2)
    with a_site(leader="ODE-UNICEF-FirstFit", lease_seconds=8.0) as site:
        jobs: list[Submission] = []
        for _ in range(4):
            for _ in range(chance.randint(1, 4)):
                minutes, seconds = chance.choice([2, 5, 30, 90]), chance.choice([0, 1, 3])
                nodes = f"--nodes={chance.choice([1, 1, 1, 2])}"
                jobs.append(submit(site, minutes, f"sleep {seconds}", nodes))
            time.sleep(chance.uniform(0.0, 6.0))
            site.control.kill()
            time.sleep(chance.uniform(0.0, 3.0))
            site.control.start()
        ends = site.lab.wait_for_jobs([job.job_id for job in jobs], seconds=300)
        assert set(ends.values()) == {"COMPLETED"}

        last = [submit(site, 5, "sleep 1"), submit(site, 30, "true", f"--nodes={NODES}")]
        time.sleep(chance.uniform(0.0, 3.0))
        site.control.kill()
        assert all(site.lab.job(job.job_id)["Priority"] != "0" for job in last)  # 0 is Slurm's hold
        site.wait_until("the lease is over", lambda: closed_nodes(site) == 0)
        site.control.start()
        ends = site.lab.wait_for_jobs([job.job_id for job in last], seconds=300)
        assert set(ends.values()) == {"COMPLETED"}
        site.wait_until("all nodes are given back", lambda: alive(site) == 0)
        site.control.stop()
        assert steering(site).closed() is None
        assert "drain" not in site.lab.run("sinfo", "-N", "-h", "-o", "%T").stdout
