"""On a real Slurm, what a job is told: the cloud's own queue, the uncertainty limit, s(c) as learned."""

from __future__ import annotations

import getpass
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.history.store import HistoryStore
from advisor.model.job import Job, JobOutcome
from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions
from tests.slurm.steps import cancel_all, moved

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

LONG = ("--time=30", "--ntasks=4")
"""Jobs of half an hour have waited five minutes here; the burst partition has one node, of 4 processors."""


def outcome(job_id: int, submit: float, run: float, partition: str, name: str | None = None) -> JobOutcome:
    job = Job(
        job_id=job_id,
        submit_time=submit,
        processors=4,
        user=getpass.getuser(),
        name=name,
        queue="onprem",
        requested_time=1800.0,
    )
    start = submit + 300.0
    return JobOutcome(job=job, start_time=start, end_time=start + run, partition=partition)


def the_past(now: float) -> Iterator[JobOutcome]:
    """Long jobs that waited here."""
    for number in range(200):
        yield outcome(1_000_000 + number, now - 86_400.0 - 10_800.0 * number, 500.0, "onprem")


def on_both_sides(now: float) -> Iterator[JobOutcome]:
    """Twelve applications that are as fast in the cloud, and `md`, which takes three times as long there."""
    for number, name in enumerate([f"cfd{letter}" for letter in "abcdefghijkl"] + ["md_1"]):
        for run in range(8):
            job_id, submit = 2_000_000 + 10 * number + run, now - 90_000.0 - 3600.0 * number - 60.0 * run
            if run % 2:
                yield outcome(job_id, submit, 1500.0 if name == "md_1" else 500.0, "burst", name)
            else:
                yield outcome(job_id, submit, 500.0, "onprem", name)


@pytest.fixture(scope="module")
def site(database_template: Path) -> Iterator[Site]:
    lab = LabOptions(nodes=1, burst_nodes=1, database=True, database_template=database_template)
    settings = {
        "cluster": {"policy": "cunha2017"},
        "placement": {"boot_seconds": 5.0},
        "estimator": {"kernel_width": 5.0, "neighbours": 8},
        "capacity": {"use_spot": False},
        "submit": PATIENT,
    }
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        site = Site(Path(folder), SiteOptions(lab=lab, settings=settings, boot_seconds=1.0))
        with site:
            with HistoryStore(f"sqlite:///{site.state / 'history.db'}") as store:
                store.add(the_past(time.time()), source="swf:past")
                store.add(on_both_sides(time.time()), source="slurm")
            site.start_advisor()
            yield site


@pytest.fixture(autouse=True)
def _no_job_is_left(site: Site) -> Iterator[None]:
    yield
    cancel_all(site.lab)


def why(site: Site, job_id: int) -> dict[str, Any]:
    """Question 2 of a job's advice, once the ledger has it."""
    found: dict[str, Any] = {}

    def is_there() -> bool:
        said = site.advisor("why", str(job_id), "--format", "json", check=False)
        answer = json.loads(said.stdout) if said.returncode == 0 else {}
        if answer.get("source") == "ledger":
            found.update(answer["advice"]["answers"][1])
        return bool(found)

    site.wait_until("the advice is in the ledger", is_there)
    return found


def numbers(answer: dict[str, Any]) -> dict[str, float]:
    return {name: number["value"] for name, number in answer["numbers"]}


def told(site: Site, *options: str, number: str = "performance_ratio") -> tuple[int, dict[str, Any]]:
    """A job and question 2 of its advice, once that rests on a forecast, and on this number."""
    found: list[tuple[int, dict[str, Any]]] = []

    def is_told() -> bool:
        job_id = site.lab.sbatch("--hold", *options, *LONG).job_id
        answer = why(site, job_id)
        found.append((job_id, answer))
        return number in numbers(answer)

    site.wait_until(f"a job is told its {number}", is_told)
    return found[-1]


def test_g17_16_a_job_is_told_what_was_learned_of_its_application(site: Site) -> None:
    def has_learned() -> bool:
        report = json.loads(site.advisor("status", "--format", "json").stdout)
        return bool((report["control"].get("performance_ratios") or {}).get("applications"))

    site.wait_until("control has learned the ratios", has_learned)
    assert "times those on-premise for c processors" in site.advisor("status").stdout
    _, answer = told(site, "--job-name=md_99", number="ratio_jobs")
    assert 1.8 < numbers(answer)["performance_ratio"] < 3.5
    assert numbers(answer)["ratio_jobs"] == 4.0
    assert answer["reason"] == "turnaround.cloud_not_faster", "many minutes more there, five minutes here"


def test_day_one_3_the_second_job_is_not_told_that_it_ends_sooner(site: Site) -> None:
    """The only node for it is busy for minutes; before, only the boot was counted."""
    first = moved(site, *LONG, script="sleep 300")
    site.wait_until("it runs in the cloud", lambda: site.lab.job(first.job_id)["JobState"] == "RUNNING")
    second, answer = told(site, number="cloud_wait")
    assert site.lab.job(second)["Partition"] == "onprem"
    assert answer["reason"] == "turnaround.cloud_not_faster"
    assert numbers(answer)["cloud_wait"] > 60.0
    assert numbers(answer)["predicted_saving"] < 0.0
    assert "all nodes for it are taken" in " ".join(site.advisor("why", str(second)).stdout.split())
