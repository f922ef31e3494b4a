"""`advisor control` itself, killed between the steps of a hedged job's way home; real Slurm, emulated EC2.

Its Slurm commands are stand-ins that run the real ones, and kill their caller just before or just after a
change, once for each fate that lies in a folder: the process under test is the one that sites run. The place
helper calls sbatch for control, so the fate of a reservation holds control's process id.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.model.advice import HedgeKind
from advisor.model.errors import RetryLater
from advisor.testing.lab import LabOptions
from advisor.testing.site import Site, SiteOptions
from advisor.testing.watched import hedged_comment
from tests.slurm.steps import cancel_all

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]

STAND_IN = """#!/bin/sh
name=${{0##*/}}
step=none
case "$name $*" in
  "sbatch "*place-of-*) step=reserve ;;
  "scontrol requeue "*) step=requeue ;;
  "scontrol update jobid="*partition=*) step=move ;;
  "scontrol update jobid="*sitefactor=*) step=raise ;;
  "scancel "*place-of-*) step=cancel ;;
esac
dies() {{ mv "{fates}/$step.$1" "{fates}/done.$step.$1" 2>/dev/null; }}
victim() {{ if [ $step = reserve ]; then cat "{fates}/done.$step.$1"; else echo $PPID; fi; }}
if dies before; then kill -9 $(victim before); exit 1; fi
"{bin}/$name" "$@"
code=$?
if dies after; then kill -9 $(victim after); fi
exit $code
"""
# ends only on-premise
ENDLESS = (
    "echo $SLURM_JOB_PARTITION $SLURM_RESTART_COUNT; [ $SLURM_JOB_PARTITION = burst ] && sleep 600; sleep 1"
)


class Fates:
    """Where `advisor control` is to die: each once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "fates"
        self._folder.mkdir()
        self.commands = folder / "bin"
        self.commands.mkdir()
        for name in ("squeue", "sinfo", "scontrol", "sbatch", "scancel", "sacct", "sacctmgr"):
            real = shutil.which(name)
            assert real, name
            path = self.commands / name
            path.write_text(STAND_IN.format(fates=self._folder, bin=Path(real).parent))
            path.chmod(0o755)

    def decide(self, *fates: str, control: int | None = None) -> None:
        """Die there next; `control` is the process id of `advisor control`, which a reservation needs."""
        for path in self._folder.iterdir():
            path.unlink()
        for fate in fates:
            (self._folder / fate).write_text(str(control or ""))

    @property
    def left(self) -> list[str]:
        """Deaths still to come."""
        return sorted(path.name for path in self._folder.iterdir() if not path.name.startswith("done."))


@pytest.fixture(scope="module")
def killed(database_template: Path) -> Iterator[tuple[Site, Fates]]:
    with tempfile.TemporaryDirectory(prefix="killed-") as name:
        folder = Path(name)
        fates = Fates(folder)
        lab = LabOptions(
            nodes=1,
            burst_nodes=2,
            database=True,
            database_template=database_template,
            suspend_seconds=120,
            requeue_seconds=120,  # Slurm's own: it is brought home before
        )
        settings: dict[str, dict[str, Any]] = {
            "hedge": {"enabled": True},
            "placement": {
                "baseline": 3.0,
                "boot_seconds": 5.0,
            },  # a slow cloud: whose turn comes, goes
            "paths": {"slurm_bin": str(fates.commands)},
        }
        site = Site(folder, SiteOptions(lab=lab, settings=settings, boot_seconds=1.2))
        with site:
            site.start_advisor()
            yield site, fates


def starts(site: Site, job: int) -> list[str]:
    """Partition of each start of a job that got as far as its first line."""
    path = site.lab.folder / "jobs" / f"{job}.out"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[0] for line in lines if line.startswith(("burst", "onprem"))]


def start_again(site: Site) -> None:
    """Start control, which may die again before it is ready."""
    try:
        site.control.start()
    except RetryLater:
        if site.control.is_running:
            raise


@pytest.mark.parametrize(
    ("stop_seconds", "fates_of_control"),
    [
        (1000.0, ("reserve.after", "requeue.before", "move.after", "raise.after")),
        (1.0, ("requeue.after", "cancel.after")),
    ],
    ids=["at its turn", "at its stop-loss"],
)
def test_a_job_comes_home_once_however_often_control_dies(
    killed: tuple[Site, Fates], stop_seconds: float, fates_of_control: tuple[str, ...]
) -> None:
    site, fates = killed
    lab, deaths = site.lab, 0
    fates.decide()
    cancel_all(lab)
    if not site.control.is_running:  # the test before has failed
        site.control.start()

    def lives() -> None:
        """What systemd does."""
        nonlocal deaths
        if not site.control.is_running:
            deaths += 1
            start_again(site)

    def wait_for(what: str, is_so: Callable[[], bool], seconds: float = 240.0) -> None:
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, what
            lives()
            time.sleep(0.2)

    def state(job: int) -> str:
        return lab.job(job)["JobState"]

    filler = lab.sbatch("-n4", "--time=10", script="sleep 600").job_id
    wait_for("the machine is full", lambda: state(filler) == "RUNNING")
    job = lab.sbatch("--partition=burst", "--open-mode=append", "--time=4", "-n4", script=ENDLESS).job_id
    wait_for("it runs in the cloud", lambda: starts(site, job) == ["burst"])
    fates.decide(*fates_of_control, control=site.control.pid)
    # not before: where starting a script takes its time, it would be brought home without having begun
    comment = hedged_comment(stop_seconds, HedgeKind.SLICE, 4)
    lab.run("scontrol", "update", f"jobid={job}", f"admincomment={comment}")

    def placeholders() -> list[str]:
        return lab.run("squeue", "-h", f"--name=place-of-{job}", "-o", "%i").stdout.split()

    if stop_seconds > 100.0:
        wait_for("its place is kept", lambda: bool(placeholders()))
    else:
        wait_for("it is home", lambda: lab.job(job)["Partition"] == "onprem")
    lab.run("scancel", str(filler))  # its turn
    wait_for("it has ended", lambda: state(job) == "COMPLETED")
    wait_for("nothing is left to do", lambda: not placeholders() and not fates.left)
    wait_for("it has come back from each death", lambda: deaths == len(fates_of_control))
    assert lab.job(job)["Restarts"] == "1"
    assert starts(site, job) == ["burst", "onprem"]

    def accounted() -> Counter[str]:
        shown = lab.run("sacct", "-X", "-n", "-P", "-D", "-o", "state", "-j", str(job)).stdout
        return Counter(line.split()[0] for line in shown.splitlines())

    expected = Counter({"REQUEUED": 1, "COMPLETED": 1})
    wait_for("the accounting has both runs", lambda: accounted() == expected)
