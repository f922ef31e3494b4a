"""Waiting jobs asked again on a real slurmctld, and `advisor control` killed while it moves one.

Its Slurm commands are stand-ins that run the real ones (`tests.slurm.test_killed_control`).
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.history.store import HistoryStore
from advisor.model.advice import Placement
from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions
from tests.slurm.steps import cancel_all
from tests.slurm.test_killed_control import Fates

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

MAX_WAIT = 12.0
"""b: nothing is known of any job's wait here, so that each waits until then, and no longer."""


@pytest.fixture(scope="module")
def site(database_template: Path) -> Iterator[tuple[Site, Fates]]:
    with tempfile.TemporaryDirectory(prefix="again-") as name:
        folder = Path(name)
        fates = Fates(folder)
        lab = LabOptions(
            nodes=1, burst_nodes=3, database=True, database_template=database_template, suspend_seconds=120
        )
        settings = {
            "cluster": {"policy": "ambati2021"},
            "waiting": {"short_wait_seconds": MAX_WAIT, "ask_again_seconds": 2.0},
            "placement": {"boot_seconds": 5.0},
            "rules": {"move_deferred": False},
            "submit": PATIENT,
            "paths": {"slurm_bin": str(fates.commands)},
        }
        site = Site(folder, SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            site.start_advisor()
            yield site, fates


def waiting_behind(site: Site, *options: str) -> int:
    """A job that has to wait: somebody else has the only node on-premise for long."""
    lab = site.lab
    filler = lab.sbatch("-n4", "--time=30", script="sleep 900").job_id
    site.wait_until("the node is taken", lambda: lab.job(filler)["JobState"] == "RUNNING")
    job = lab.sbatch("-n1", "--time=5", *options, script="echo $SLURM_JOB_PARTITION; sleep 1").job_id
    assert lab.job(job)["Partition"] == "onprem"
    return job


def ran_in(site: Site, job: int) -> set[str]:
    """Partitions it has started in; on a busy machine a node may boot too late, and Slurm starts it again."""
    return set((site.lab.folder / "jobs" / f"{job}.out").read_text().split())


def test_g17_12_a_job_that_has_waited_b_is_moved_while_it_waits(site: tuple[Site, Fates]) -> None:
    here, fates = site
    fates.decide()
    job = waiting_behind(here)
    named = here.lab.sbatch("-n1", "-ponprem", script="sleep 1").job_id
    held = here.lab.sbatch("-n1", script="sleep 1").job_id
    here.lab.run("scontrol", "hold", str(held))
    here.wait_until("it has ended", lambda: here.lab.job(job)["JobState"] == "COMPLETED")
    shown = here.lab.job(job)
    assert (shown["JobId"], shown["Partition"]) == (str(job), "burst")
    assert ran_in(here, job) == {"burst"}
    # who named his partition, and who is held, are where they were
    assert [here.lab.job(each)["Partition"] for each in (named, held)] == ["onprem", "onprem"]
    assert {here.lab.job(each)["JobState"] for each in (named, held)} == {"PENDING"}

    def moved() -> int:
        status = json.loads(here.advisor("status", "--format", "json").stdout)
        return int(status["control"]["asking_again"]["moved"])

    # control counts a move when its next poll confirms it, which may be after the short job has ended
    here.wait_until("the move is counted", lambda: moved() >= 1)

    def why() -> dict[str, Any]:
        said: dict[str, Any] = json.loads(here.advisor("why", str(job), "--format", "json").stdout)
        return said

    # control takes the advice of the move into the ledger with its next round of learning
    here.wait_until("the ledger says why", lambda: '"waited"' in json.dumps(why()))
    assert why()["source"] == "ledger"
    with HistoryStore(f"sqlite:///{here.state / 'history.db'}") as store:
        record = store.advice_of(job)
    assert record is not None
    assert record.advice.placement is Placement.BURST
    # the job before it may have waited a second or two: a forecast, so that it leaves before b
    forecast = record.estimates.wait.seconds
    forecast = 0.0 if math.isnan(forecast) else forecast
    assert forecast < MAX_WAIT / 2.0
    assert MAX_WAIT - forecast <= record.advice.time - record.job.submit_time < 200.0
    cancel_all(here.lab)


@pytest.mark.parametrize("fate", ["move.before", "move.after"])
def test_g17_12_control_killed_between_the_intent_and_the_move(site: tuple[Site, Fates], fate: str) -> None:
    here, fates = site
    cancel_all(here.lab)
    fates.decide(fate)
    job = waiting_behind(here)
    here.wait_until("control is dead", lambda: not here.control.is_running)
    assert fates.left == []
    intents = json.loads((here.state / "asked_again.json").read_text())["moving"]
    assert list(intents) == [str(job)]
    here.control.start()
    here.wait_until("it has ended", lambda: here.lab.job(job)["JobState"] == "COMPLETED")
    assert here.lab.job(job)["Partition"] == "burst"
    assert ran_in(here, job) == {"burst"}
    here.wait_until(
        "the intent is done with",
        lambda: not json.loads((here.state / "asked_again.json").read_text())["moving"],
    )
    cancel_all(here.lab)
