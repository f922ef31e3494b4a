"""A site without the hook: new jobs are advised from a real slurmctld's queue and moved while they wait."""

from __future__ import annotations

import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

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
        nodes=2,
        burst_nodes=3,
        burst_processors=2,
        database=True,
        database_template=database_template,
        extra=("PartitionName=other Nodes=onprem1 State=UP MaxTime=INFINITE",),
    )
    settings: dict[str, dict[str, Any]] = {
        "cluster": {"policy": "price", "hook": False, "on_premise_partitions": ["onprem", "idle"]},
        "budget": {"usd": 500_000.0, "period": "day"},
        "placement": {"boot_seconds": 5.0},
    }
    with tempfile.TemporaryDirectory(prefix="hookless-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Site(folder, SiteOptions(lab=lab, settings=settings, boot_seconds=1.2)) as site:
            # a machine of its own, without a job: none of the others waits for its processors
            site.lab.run("scontrol", "update", "PartitionName=onprem", "Nodes=onprem1")
            site.lab.run(
                "scontrol", "create", "PartitionName=idle", "Nodes=onprem2", "State=UP", "MaxTime=INFINITE"
            )
            begun = site.lab.sbatch("-n4", "--time=600", script="sleep 900").job_id
            site.wait_until("the node is taken", lambda: site.lab.job(begun)["JobState"] == "RUNNING")
            site.start_advisor()
            site.wait_until("there is a price", lambda: bool(control(site)["price"].get("seconds_per_usd")))
            site.wait_until(
                "run times are forecast", lambda: status(site)["serve"]["model_version"] is not None
            )
            proposed = tomllib.loads(site.advisor("init", "--dry-run").stdout)["cluster"]
            assert (proposed["hook"], proposed["burst_partition"]) == (False, "burst")
            assert sorted(proposed["on_premise_partitions"]) == ["idle", "onprem", "other"]
            jobs = [site.lab.sbatch(*SHAPES[n % len(SHAPES)], script="sleep 900").job_id for n in range(JOBS)]
            kinds = {options: jobs[at :: len(SHAPES)] for at, options in enumerate(SHAPES)}
            site.wait_until("all are advised", lambda: all(queue(site)[job].advice for job in jobs))
            rows = queue(site)
            moved = {job for job in jobs if rows[job].partition == "burst"}
            reasons = [{rows[job].advice.reason for job in of_kind} for of_kind in kinds.values()]
            assert set(kinds[SHAPES[0]]) <= moved, reasons
            assert reasons[1:3] == [{"rule.opt_out_comment"}, {"rule.explicit_partition"}]
            assert not moved & {begun, *kinds[SHAPES[1]], *kinds[SHAPES[2]]}
            # one that had begun is where it was, and nothing is said of it
            assert rows[begun] == Row("onprem", "0", None)
            # a burst node that boots too late on a busy machine is Slurm's reason to requeue
            assert {rows[job].restarts for job in jobs if job not in moved} == {"0"}
            why = json.loads(site.advisor("why", str(min(moved)), "--format", "json").stdout)
            assert "burst" in json.dumps(why)
            site.wait_until("it is counted", lambda: control(site)["advising"]["advised"] >= JOBS // 2)
            # squeue does not tell `-N1`, and no cloud node has four processors: Slurm holds it there for ever
            site.lab.run("scancel", *map(str, jobs))
            wide = site.lab.sbatch("-N1", "-n4", "--time=30", script="sleep 900").job_id
            site.wait_until("it is back", lambda: is_back(queue(site)[wide]))
            assert site.lab.job(wide)["Priority"] != "0"
            site.lab.run("scancel", "--user=root", check=False)


class Row(NamedTuple):
    partition: str
    restarts: str
    advice: Any


def is_back(row: Row) -> bool:
    """Whether a job was moved and waits on-premise again."""
    return row.advice is not None and row.advice.placement == "burst" and row.partition == "onprem"


def queue(site: Site) -> dict[int, Row]:
    """All jobs by one call of squeue; an array by its last row."""
    columns = "ArrayJobID:12,Partition:12,RestartCnt:8,admin_comment:1100"
    shown = site.lab.run("squeue", "--noheader", "--all", f"--Format={columns}", timeout=120.0).stdout
    return {
        int(line[:12]): Row(line[12:24].strip(), line[24:32].strip(), parse_admin_comment(line[32:].strip()))
        for line in shown.splitlines()
    }


def status(site: Site) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(site.advisor("status", "--format", "json").stdout)
    return said


def control(site: Site) -> dict[str, Any]:
    said: dict[str, Any] = status(site)["control"]
    return said
