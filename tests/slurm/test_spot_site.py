"""EC2 takes nodes back under running jobs: real Slurm, the real daemons, messages from the emulator."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.ec2.clients import client
from advisor.testing.lab import LabOptions, Submission
from advisor.testing.site import PATIENT, Site, SiteOptions
from benchmarks.soak_past import write_the_past
from tests.slurm.steps import cancel_all, moved
from tests.slurm.test_whole_site import LONG, all_completed_once, instances_end

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

NEVER = 100_000.0  # seconds of notice: however busy this machine is, the end comes when the test says so
# Runs until its third start; says when it is warned.
UNTIL_THIRD_START = """
trap 'echo warned >>{file}' USR1
echo started >>{file}
[ "${{SLURM_RESTART_COUNT:-0}}" -ge 2 ] && exit 0
while :; do sleep 0.2; done
"""


@pytest.fixture(scope="module")
def site(database_template: Path) -> Iterator[Site]:
    lab = LabOptions(
        nodes=1,
        burst_nodes=4,
        burst_features=("cloud", "x86", "spot"),
        last_burst_features=("cloud", "x86", "spot", "on-demand"),
        database=True,
        database_template=database_template,
        suspend_seconds=3,
        suspend_timeout_seconds=2,
    )
    settings = {
        "cluster": {"policy": "cunha2017"},
        "placement": {"boot_seconds": 5.0},
        "estimator": {"kernel_width": 5.0, "neighbours": 8},
        "submit": PATIENT,
    }
    with tempfile.TemporaryDirectory(prefix="spot-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            write_the_past(site)
            site.start_advisor()
            yield site


@pytest.fixture(autouse=True)
def _empty(site: Site) -> None:
    """Nothing is left of another test, failed or not: an on-demand node would take what should be on spot."""
    cancel_all(site.lab)
    instances_end(site)


def instance_of(site: Site, node: str) -> dict[str, Any]:
    (found,) = [
        item
        for item in site.ec2.instances()
        if item["state"] == "running" and item["tags"].get("advisor:node") == node
    ]
    return found


def running_on(site: Site, job: Submission) -> str:
    site.wait_until("the job runs", lambda: site.lab.job(job.job_id)["JobState"] == "RUNNING")
    return site.lab.job(job.job_id)["BatchHost"]


def states(site: Site, node: str) -> set[str]:
    shown = site.lab.run("sinfo", "-h", "-N", "-n", node, "-O", "StateComplete:").stdout
    return set(shown.strip().split("+"))


def emptied(site: Site, node: str) -> None:
    site.wait_until("the node takes no new job", lambda: "drain" in states(site, node))


def told(site: Site, file: Path, word: str, times: int) -> None:
    site.wait_until(f"{word} {times} times", lambda: file.exists() and file.read_text().count(word) >= times)


@pytest.mark.parametrize(
    ("said", "third_place"), [((), "on-demand"), (("--comment=checkpoint=1min",), "spot")]
)
def test_f19_f22_f26_two_reclaims_under_one_job_then_stable_capacity(
    site: Site, tmp_path: Path, said: tuple[str, ...], third_place: str
) -> None:
    """Unless its user says that it goes on from checkpoints: then it loses little once more."""
    file = tmp_path / "told"
    script = UNTIL_THIRD_START.format(file=file)
    before = interruptions(site)
    job = moved(site, LONG, "--signal=B:USR1@10", *said, script=script)
    options = []
    for taken in range(2):
        told(site, file, "started", taken + 1)
        node = running_on(site, job)
        instance = instance_of(site, node)
        options.append(instance["option"])
        site.ec2.reclaim(instance["id"], notice_s=NEVER)
        emptied(site, node)
        told(site, file, "warned", taken + 1)
        site.ec2.take_back(instance["id"])
    told(site, file, "started", 3)
    all_completed_once(site, [job])
    assert file.read_text().split() == ["started", "warned", "started", "warned", "started"]
    launched = [item["option"] for item in site.ec2.instances()]
    assert options == ["spot", "spot"]
    assert launched[-1] == third_place
    spend = json.loads(site.advisor("spend", "--format", "json").stdout)
    assert spend["spent_today_usd"] > 0.0
    for count in ("jobs_interrupted", "jobs_warned"):  # of other tests' jobs too
        site.wait_until(count, lambda c=count: interruptions(site)[c] - before.get(c, 0) == 2)


def interruptions(site: Site) -> dict[str, int]:
    counters = json.loads(site.advisor("pools", "--format", "json").stdout)["counters"]
    return dict(counters["interruptions"])


def test_a_job_that_may_not_be_requeued_never_starts_on_spot(site: Site, tmp_path: Path) -> None:
    """There is room on idle spot nodes and beside other jobs on them; its node is not one of them."""
    go, runs = tmp_path / "go", tmp_path / "runs"
    script = f"while [ ! -e {go} ]; do sleep 0.2; done"
    wide = moved(site, LONG, "--nodes=4", "--ntasks-per-node=1", script=script)
    running_on(site, wide)
    option_of = {name: instance_of(site, name)["option"] for name in ("burst1", "burst2", "burst3", "burst4")}
    assert option_of == {"burst1": "spot", "burst2": "spot", "burst3": "spot", "burst4": "on-demand"}
    jobs = [moved(site, LONG, "--no-requeue", script=f"echo x >>{runs}; {script}") for _ in range(3)]
    assert {running_on(site, job) for job in jobs} == {"burst4"}
    full = moved(site, LONG, "--no-requeue", script="true")  # the next one waits for it
    site.wait_until("it was looked at", lambda: site.lab.job(full.job_id)["Reason"] == "Resources")
    go.touch()
    assert running_or_ran_on(site, full) == "burst4"
    all_completed_once(site, [wide, *jobs, full])


def running_or_ran_on(site: Site, job: Submission) -> str:
    site.wait_until("it has started", lambda: "BatchHost" in site.lab.job(job.job_id))
    return site.lab.job(job.job_id)["BatchHost"]


def test_f22_at_a_rebalance_recommendation_nothing_new_starts_and_nobody_is_disturbed(
    site: Site, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.2; done"
    job = moved(site, LONG, "--ntasks=1", script=waits)
    node = running_on(site, job)
    instance = instance_of(site, node)
    site.ec2.reclaim(instance["id"], rebalance_lead_s=1000)
    emptied(site, node)
    site.wait_until("the notice is shown", lambda: list(row_of(site, node)["notices"]) == ["rebalance"])
    site.wait_until("its job is", lambda: row_of(site, node)["jobs"] == [job.job_id])
    other = moved(site, LONG, "--ntasks=1", script="true")  # there would be room beside the first
    assert running_elsewhere(site, other, node)
    assert site.lab.job(job.job_id)["Restarts"] == "0"
    go.touch()
    all_completed_once(site, [job, other])
    site.wait_until(
        "the node can be used again", lambda: states(site, node) == {"idle", "cloud", "powered_down"}
    )


def row_of(site: Site, node: str) -> dict[str, Any]:
    """What is shown of a node now; nothing while its instance is not seen."""
    shown = json.loads(site.advisor("nodes", "--format", "json").stdout)["nodes"]
    rows = [row for row in shown if row["node"] == node and row["instance_state"] in ("running", None)]
    return dict(rows[0]) if rows else {"notices": {}, "jobs": []}


def running_elsewhere(site: Site, job: Submission, node: str) -> bool:
    site.wait_until("it has a node", lambda: "BatchHost" in site.lab.job(job.job_id))
    return site.lab.job(job.job_id)["BatchHost"] != node


def test_f21_a_stopped_instance_is_a_lost_node(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "starts"
    script = f'echo x >>{file}\n[ "$(wc -l <{file})" -ge 2 ] && exit 0\nsleep 600'
    job = moved(site, LONG, script=script)
    node = running_on(site, job)
    instance = instance_of(site, node)
    site.wait_until("the advisor has seen the job there", lambda: job.job_id in row_of(site, node)["jobs"])
    client("ec2", site.ec2.settings()).stop_instances(InstanceIds=[instance["id"]])
    site.wait_until("it has started again", lambda: len(file.read_text().split()) == 2)
    all_completed_once(site, [job])
    assert site.lab.job(job.job_id)["Restarts"] == "1"
