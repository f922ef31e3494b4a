"""Slices on a real slurmctld: the shipped daemons, the place helper behind its socket, an EC2 emulator.

Three jobs wait behind one that fills the on-premise node, and the price moves them. Of one program a job in
five runs very long: its slice ends after seconds, and it returns to its place. The second has run long
enough when its turn comes: it stays. The third may not be requeued: it is bought whole.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from advisor.history.store import HistoryStore
from advisor.model.job import PLACEHOLDER_PREFIX, Job, JobOutcome
from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

USD_PER_NODE_HOUR: Final = 0.36
USD_PER_HOUR_SAVED: Final = 0.72
"""A second saved may cost two seconds of a node: a first slice is worth it, twenty minutes more are not."""
PAST_JOBS: Final = 300
STAYS_AFTER_SECONDS: Final = 20.0
FILLER_MINUTES: Final = 4
AGEING = ("PriorityWeightAge=1000000", "PriorityMaxAge=0-1", "PriorityCalcPeriod=1")
TELL: Final = "echo $SLURM_JOB_PARTITION; "
ENDS_HERE_ALONE: Final = TELL + "[ $SLURM_JOB_PARTITION = burst ] && sleep 300; sleep 1"


def until_told(file: Path) -> str:
    return f"{TELL}while [ ! -e {file} ]; do sleep 0.1; done"


def write_the_past(site: Site) -> None:
    """Each program's jobs as its users know them: run time in seconds, limit in minutes."""
    drawn, now, outcomes = np.random.default_rng(1), time.time(), []
    for number in range(PAST_JOBS):
        name, run, minutes = [
            ("mixed", 1200.0 if drawn.random() < 0.2 else 3.0, 30),
            ("steady", 30.0, 5),
            ("quick", 3.0, 1),
        ][number % 3]
        submit = now - 60.0 * (PAST_JOBS - number) - 3600.0
        job = Job(
            job_id=1_000_000 + number,
            submit_time=submit,
            processors=4,
            user="root",
            group="root",
            name=name,
            queue="onprem",
            requested_time=60.0 * minutes,
        )
        run *= float(drawn.uniform(0.9, 1.1))
        outcomes.append(JobOutcome(job=job, start_time=submit, end_time=submit + run))
    with HistoryStore(f"sqlite:///{site.state / 'history.db'}") as store:
        store.add(outcomes, source="swf:past")


@pytest.fixture
def site(database_template: Path) -> Iterator[Site]:
    lab = LabOptions(
        nodes=1, burst_nodes=3, database=True, database_template=database_template, suspend_seconds=5,
        extra=AGEING,
    )  # fmt: skip
    settings = {
        "cluster": {"policy": "price"},
        "budget": {"usd_per_hour_saved": USD_PER_HOUR_SAVED},
        "hedge": {"enabled": True, "by_default": True},
        "placement": {"boot_seconds": 5.0},
        "capacity": {"use_spot": False},
        "ec2": {"on_demand_usd_per_hour": USD_PER_NODE_HOUR},
        "submit": PATIENT,
    }
    with tempfile.TemporaryDirectory(prefix="slices-") as name:
        site = Site(Path(name), SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            write_the_past(site)
            site.start_advisor()
            yield site


def status(site: Site) -> dict[str, Any]:
    control: dict[str, Any] = json.loads(site.advisor("status", "--format", "json").stdout)["control"]
    return control


def starts(site: Site, job: int) -> list[str]:
    """Partitions in which a job has begun to run."""
    path = site.lab.folder / "jobs" / f"{job}.out"
    words = path.read_text().split() if path.exists() else []
    return [word for word in words if word in ("burst", "onprem")]


def runs(site: Site, job: int) -> list[tuple[str, str]]:
    """Partition and state of each run of a job, as sacct has them."""
    shown = site.lab.run(
        "sacct", "--duplicates", "--allocations", "--noheader", "--parsable2", f"--jobs={job}",
        "--format=Partition,State",
    ).stdout  # fmt: skip
    found = [line.partition("|") for line in shown.splitlines()]
    return [(partition, state) for partition, _, state in found]


def test_a_slice_that_fails_returns_to_its_place(site: Site, tmp_path: Path) -> None:
    lab, here, there = site.lab, tmp_path / "here", tmp_path / "there"
    site.wait_until("there is a price", lambda: (status(site)["price"] or {}).get("seconds_per_usd"))

    def submit(name: str, minutes: int, script: str, *options: str) -> int:
        limit = f"--time={minutes}"
        return lab.sbatch(
            "-n4", limit, f"--job-name={name}", "--open-mode=append", *options, script=script
        ).job_id

    filler = submit("filler", FILLER_MINUTES, until_told(here), "--partition=onprem")
    site.wait_until("the node is busy", lambda: lab.job(filler)["JobState"] == "RUNNING")
    fails = submit("mixed", 30, ENDS_HERE_ALONE)
    stays = submit("steady", 5, until_told(there))
    whole = submit("quick", 1, TELL + "sleep 3", "--no-requeue")
    after = submit("after", 1, TELL, "--partition=onprem")

    site.wait_until("it runs in the cloud", lambda: starts(site, fails) == ["burst"])
    site.wait_until("the slice has failed", lambda: lab.job(fails)["Partition"] == "onprem")
    site.wait_until("the second runs in the cloud", lambda: starts(site, stays) == ["burst"])
    time.sleep(STAYS_AFTER_SECONDS)  # what it has run there is worth more than a new start
    here.touch()
    site.wait_until("the queue is empty", lambda: lab.job(after)["JobState"] == "COMPLETED")
    assert lab.job(stays)["JobState"] == "RUNNING"
    there.touch()
    for job in (fails, stays, whole):
        site.wait_until(f"{job} has ended", lambda job=job: lab.job(job)["JobState"] == "COMPLETED")
    site.wait_until("no place is kept", lambda: not status(site)["places"]["now"])

    assert starts(site, fails) == ["burst", "onprem"]
    assert starts(site, stays) == starts(site, whole) == ["burst"]
    assert lab.job(fails)["StartTime"] <= lab.job(after)["StartTime"]
    assert not lab.run("squeue", "-h", f"--name={PLACEHOLDER_PREFIX}{fails}").stdout
    site.wait_until("accounting knows the end", lambda: ("onprem", "COMPLETED") in runs(site, fails))
    assert sorted(runs(site, fails)) == [("burst", "REQUEUED"), ("onprem", "COMPLETED")]
    assert runs(site, stays) == runs(site, whole) == [("burst", "COMPLETED")]
    counts = status(site)["places"]["counts"]
    assert (counts["places_kept"], counts["brought_back"], counts["stayed"]) == (2, 1, 1)
    assert site.places.connections >= 1  # root's helper has submitted them
    row = json.loads(site.advisor("ledger", "--job", str(fails), "--format", "json").stdout)
    assert "slice" in json.dumps(row)
