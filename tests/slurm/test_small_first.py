"""Small first is truly first: a job that a trained model calls small starts before an earlier large one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.history.store import HistoryStore
from advisor.model.job import Job, JobOutcome
from advisor.model.settings import Settings
from advisor.model.settings_learning import SizeSettings
from advisor.service.admin.doctor import Level
from advisor.service.admin.doctor_slurm import SlurmExamination
from advisor.slurm.cli import CliBackend
from advisor.testing.lab import LabOptions
from tests.slurm.submit_site import Site, advised_site

pytestmark = pytest.mark.slurm

WEEK = 7 * 86400.0
EPOCH = 1_700_000_000.0
SMALL, LARGE = ("--time=10", "--ntasks=1"), ("--time=600", "--ntasks=4")
WEIGHTS = ("PriorityWeightJobSize=100000", "PriorityWeightAge=500")


def write_history(folder: Path) -> None:
    """Three weeks in which jobs of ten minutes ran for one, and jobs of ten hours for one hour."""
    generator = np.random.default_rng(1)
    outcomes = []
    for number, submit in enumerate(EPOCH + np.sort(generator.random(900)) * 3 * WEEK):
        is_small = generator.random() < 0.5
        job = Job(
            job_id=number + 1,
            submit_time=submit,
            processors=1 if is_small else 4,
            user="root",
            requested_time=600.0 if is_small else 36000.0,
        )
        end = submit + (60.0 if is_small else 3600.0)
        outcomes.append(JobOutcome(job=job, start_time=submit, end_time=end))
    with HistoryStore(f"sqlite:///{folder}/history.db") as store:
        store.add(outcomes)


def retrain(folder: Path) -> None:
    """As the installation does, and the weekly timer."""
    done = subprocess.run(
        [sys.executable, "-c", "from advisor.cli.main import run; run()", "retrain", "--format", "json"],
        env={**os.environ, "ADVISOR_PATHS__STATE": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["promoted"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with that history and a size model."""
    folder = tmp_path_factory.mktemp("trained") / "state"
    folder.mkdir(mode=0o700)
    write_history(folder)
    retrain(folder)
    return folder


def first_to_start(site: Site) -> str:
    """Which starts first once the node is free: a large job, or a small one that was submitted after it."""
    blocker = site.lab.sbatch("--ntasks=4", "--time=10", "--comment=no-burst", script="sleep 600")
    site.look_until_advised()
    ids = {}
    for name, options in (("large", LARGE), ("small", SMALL)):
        done = site.lab.sbatch("--comment=no-burst", *options, script="sleep 5")
        recorded = parse_admin_comment(site.lab.job(done.job_id)["AdminComment"])
        assert recorded is not None
        assert recorded.size == name
        ids[name] = done.job_id
        threading.Event().wait(1.1)
    site.lab.run("scancel", str(blocker.job_id))
    site.lab.wait_for_jobs(ids.values())
    started = {name: site.lab.job(job_id)["StartTime"] for name, job_id in ids.items()}
    assert started["large"] != started["small"]
    return min(started, key=lambda name: started[name])


def offset_the_doctor_asks_for(site: Site, offset: int) -> int | None:
    """What it says is needed; None when it is content."""
    settings = Settings(paths=site.settings.paths, size=SizeSettings(small_priority_offset=offset))
    settings = settings.model_copy(
        update={"paths": settings.paths.model_copy(update={"slurm_conf": site.lab.conf})}
    )
    found = SlurmExamination(settings, CliBackend.of(settings)).run()
    (about,) = [each for each in found if "small job" in each.what]
    if about.level is Level.OK:
        return None
    return int(about.mend.partition("size.small_priority_offset = ")[2].split()[0])


@pytest.mark.parametrize(("offset", "first"), [(1000, "large"), (100_501, "small")])
def test_g15_a_classified_small_job_starts_before_an_earlier_large_one(
    trained: Path, tmp_path: Path, offset: int, first: str
) -> None:
    shutil.copytree(trained, tmp_path / "state", symlinks=True)
    options = LabOptions(nodes=1, burst_features=("cloud", "x86", "spot"), extra=WEIGHTS)
    config = f"[size]\nsmall_priority_offset = {offset}\n"
    with advised_site(tmp_path, options=options, config=config, policy="zrigui2022") as site:
        assert offset_the_doctor_asks_for(site, offset) == (100_501 if first == "large" else None)
        assert first_to_start(site) == first
