"""A site without the hook: new jobs are advised from a real slurmctld's queue and moved while they wait."""

from __future__ import annotations

import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.testing.lab import LabOptions
from advisor.testing.site import Site, SiteOptions

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

SHAPES = (
    ("--time=30", "-n2"),
    ("--time=30", "--comment=no-burst"),
    ("--time=30", "--partition=other"),
    ("--time=20", "--array=1-3"),
)
JOBS = 24


def test_g20_2_jobs_are_advised_from_the_queue_and_moved_while_they_wait(database_template: Path) -> None:
    lab = LabOptions(
        nodes=1,
        burst_nodes=3,
        database=True,
        database_template=database_template,
        extra=("PartitionName=other Nodes=onprem1 State=UP MaxTime=INFINITE",),
    )
    settings: dict[str, dict[str, Any]] = {
        "cluster": {"policy": "price", "hook": False},
        "budget": {"usd": 500_000.0, "period": "day"},
        "placement": {"boot_seconds": 5.0},
    }
    with tempfile.TemporaryDirectory(prefix="hookless-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Site(folder, SiteOptions(lab=lab, settings=settings, boot_seconds=1.2)) as site:
            begun = site.lab.sbatch("-n4", "--time=600", script="sleep 900").job_id
            site.wait_until("the node is taken", lambda: shown(site, begun)["JobState"] == "RUNNING")
            site.start_advisor()
            site.wait_until("there is a price", lambda: bool(control(site)["price"].get("seconds_per_usd")))
            site.wait_until(
                "run times are forecast", lambda: status(site)["serve"]["model_version"] is not None
            )
            proposed = tomllib.loads(site.advisor("init", "--dry-run").stdout)["cluster"]
            assert (proposed["hook"], proposed["burst_partition"]) == (False, "burst")
            assert proposed["on_premise_partitions"] == ["onprem", "other"]
            jobs = [site.lab.sbatch(*SHAPES[n % len(SHAPES)], script="sleep 900").job_id for n in range(JOBS)]
            kinds = {options: jobs[at :: len(SHAPES)] for at, options in enumerate(SHAPES)}
            site.wait_until("all are advised", lambda: all(advice(site, job) for job in jobs))
            moved = [job for job in jobs if shown(site, job)["Partition"] == "burst"]
            said = {job: advice(site, job).reason for job in kinds[SHAPES[0]]}
            assert set(kinds[SHAPES[0]]) <= set(moved), said
            assert {advice(site, job).reason for job in kinds[SHAPES[1]]} == {"rule.opt_out_comment"}
            assert {advice(site, job).reason for job in kinds[SHAPES[2]]} == {"rule.explicit_partition"}
            assert not set(moved) & {begun, *kinds[SHAPES[1]], *kinds[SHAPES[2]]}
            # one that had begun is where it was, and nothing is said of it
            assert (shown(site, begun)["Partition"], advice(site, begun)) == ("onprem", None)
            assert {shown(site, job)["Restarts"] for job in jobs} == {"0"}
            why = json.loads(site.advisor("why", str(moved[0]), "--format", "json").stdout)
            assert "burst" in json.dumps(why)
            site.wait_until(
                "it is counted", lambda: control(site)["advising"]["advised"] >= JOBS, seconds=30.0
            )
            site.lab.run("scancel", "--user=root", check=False)


def shown(site: Site, job: int) -> dict[str, str]:
    return site.lab.job(job)


def advice(site: Site, job: int) -> Any:
    """The advice in a job's AdminComment; of an array, its waiting tasks'."""
    columns = ("squeue", "--noheader", "--array-unique", f"--jobs={job}", "--Format=admin_comment:1100")
    found = [parse_admin_comment(line.strip()) for line in site.lab.run(*columns).stdout.splitlines()]
    return next((one for one in found if one is not None), None)


def status(site: Site) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(site.advisor("status", "--format", "json").stdout)
    return said


def control(site: Site) -> dict[str, Any]:
    said: dict[str, Any] = status(site)["control"]
    return said
