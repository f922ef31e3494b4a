"""A real slurmctld starts jobs when the forecast says so: beside reservations, drained nodes and limits."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.arrays import Floats
from advisor.model.errors import RetryLater
from advisor.model.limits import far_from_start, limits_there
from advisor.model.snapshot import ClusterSnapshot
from advisor.service.price.queue_view import OnPremiseQueue, forecast_waits, on_premise_queue
from advisor.slurm.block_ends import BlockEnds
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import wait_until
from tests.decide.cases import make_job, make_settings

pytestmark = pytest.mark.slurm

JOBS = 7
RESERVED = ("nodes=onprem[1-3]", "starttime=now+4", "duration=1", "flags=maint,ignore_jobs", "users=root")


def forecast_starts(snapshot: ClusterSnapshot, runs: dict[int, float]) -> dict[int, float]:
    """Epoch seconds, where the run times are known."""

    def known(queue: OnPremiseQueue) -> tuple[Floats, Floats]:
        running, waiting = (
            np.array([runs[queued.job.job_id] for queued in jobs]) for jobs in (queue.running, queue.waiting)
        )
        return running, waiting

    waits = forecast_waits(on_premise_queue(snapshot, make_settings()), known)
    return {job: snapshot.time + wait for job, wait in waits.items()}


def test_jobs_start_when_the_forecast_says_so_beside_a_reservation() -> None:
    """Of five nodes three are reserved for a minute, and one is drained while a job runs there."""
    drawn, runs = np.random.default_rng(7), dict[int, float]()
    options = LabOptions(nodes=5, processors=4, burst_nodes=1, min_job_age_seconds=3600)
    with Lab.temporary(options) as lab:
        slurm = CliBackend(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))
        on_drained = lab.sbatch("-n4", "-t5", "--nodelist=onprem5", script="sleep 30")
        runs[on_drained.job_id] = 30.0

        def runs_there() -> bool:
            return lab.job(on_drained.job_id)["JobState"] == "RUNNING"

        wait_until(runs_there, seconds=60.0, what="a job runs on the node that is drained")
        lab.run("scontrol", "create", "reservation", "reservationname=maintenance", *RESERVED)
        lab.run("scontrol", "update", "nodename=onprem5", "state=drain", "reason=test")
        for number in range(JOBS):
            seconds = float(drawn.integers(4, 8))
            wide = ("-N3", "-n12") if number == 1 else ("-n4",)
            job = lab.sbatch(*wide, "-t5", script=f"date +%s.%N; sleep {seconds}")
            runs[job.job_id] = seconds
        time.sleep(3.0)  # what can start has started
        found = slurm.snapshot(time.time())
        beside = forecast_starts(replace(found, reservations=slurm.reservations()), runs)
        before = forecast_starts(found, runs)
        lab.wait_for_jobs(list(runs), seconds=240)
        began = {job: float((lab.folder / "jobs" / f"{job}.out").read_text().split()[0]) for job in beside}
    late, without = (np.array([began[job] - found[job] for job in beside]) for found in (beside, before))
    assert len(beside) >= JOBS - 2
    # on a busy machine slurmctld starts each job some seconds late, and these add up
    assert np.abs(late).mean() < 0.5 * np.abs(without).mean()


def test_jobs_start_when_the_forecast_says_so_beside_an_account_at_its_limit() -> None:
    """An account may use 4 of 16 processors, and submits first; the root account's jobs come behind."""
    drawn, runs = np.random.default_rng(3), dict[int, float]()
    options = LabOptions(
        nodes=4,
        processors=4,
        burst_nodes=1,
        database=True,
        min_job_age_seconds=3600,
        extra=("AccountingStorageEnforce=associations,limits,qos",),
    )
    with Lab.temporary(options) as lab:
        slurm = CliBackend(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))
        lab.run("sacctmgr", "-i", "modify", "account", "lab", "set", "GrpTRES=cpu=4")
        time.sleep(1.0)
        for account in ("lab",) * 9 + ("root",) * 5:
            seconds, wide = float(drawn.integers(4, 8)), 2 if account == "lab" else 6
            script = f"date +%s.%N; sleep {seconds}"
            job = lab.sbatch(f"-n{wide}", "-t5", f"--account={account}", script=script)
            runs[job.job_id] = seconds
        options_there = ("-p", "burst", "-n2", "-t5", "--account=lab")
        there = [lab.sbatch(*options_there, script="true").job_id for _ in range(3)]
        time.sleep(3.0)
        found = slurm.snapshot(time.time())
        lab.run("scancel", *map(str, there))
        beside = forecast_starts(found, runs)
        blind = tuple(
            replace(queued, reason="Priority") if queued.reason else queued for queued in found.jobs
        )
        before = forecast_starts(replace(found, jobs=blind), runs)
        lab.wait_for_jobs(list(runs), seconds=240)
        began = {job: float((lab.folder / "jobs" / f"{job}.out").read_text().split()[0]) for job in beside}
    late, without = (np.array([began[job] - found[job] for job in beside]) for found in (beside, before))
    assert any("AssocGrp" in queued.reason for queued in found.jobs)
    (limit,) = limits_there(found.jobs, ["onprem"], "burst", {})
    assert [limit.counts(make_job(account=account)) for account in ("lab", "root")] == [True, False]
    # two of the account run, or one whose fellow has ended in this moment: as many may start next
    run = sum(queued.holds_processors and queued.job.account == "lab" for queued in found.jobs)
    assert 0 < run < len(there)
    assert far_from_start(found.jobs, "burst") == set(there[run:])
    assert np.abs(late).mean() < 0.4 * np.abs(without).mean()


def test_jobs_that_slurm_never_starts_keep_no_other_waiting() -> None:
    """``EnforcePartLimits=NO``, the default, accepts them; `scontrol requeuehold` leaves one held."""
    with Lab.temporary(LabOptions(nodes=1, processors=4, burst_nodes=1)) as lab:
        slurm = CliBackend(Commands(Path(shutil.which("squeue") or "").parent, lab.conf))
        lab.run("scontrol", "update", "partitionname=onprem", "maxtime=60")
        held = lab.sbatch("-n1", "-t5", script="sleep 100").job_id
        wait_until(lambda: lab.job(held)["JobState"] == "RUNNING", seconds=60.0, what="it runs")
        lab.run("scontrol", "requeuehold", str(held))
        over = {lab.sbatch(*asked).job_id for asked in (("-n4", "-t120"), ("-n8", "-t5"), ("-N2", "-t5"))}

        def found() -> dict[int, str]:
            jobs = slurm.snapshot(time.time()).jobs
            return {queued.job.job_id: queued.reason for queued in jobs if queued.is_queued}

        def are_known() -> bool:
            return lab.job(held)["JobState"] == "PENDING" and not found()

        wait_until(are_known, seconds=30.0, what="no job waits for processors")
        queue = on_premise_queue(slurm.snapshot(time.time()), make_settings())
        assert not {queued.job.job_id for queued in queue.waiting} & {held, *over}


def test_the_reservation_at_the_end_of_a_capacity_block_moves_with_it() -> None:
    """EC2 lets a block be extended, also while its reservation is there."""
    with Lab.temporary(LabOptions(nodes=2)) as lab:
        ends = BlockEnds(Commands(Path(shutil.which("scontrol") or "").parent, lab.conf))

        def begins(ends_at: float, *nodes: str) -> float:
            ends.keep({"cr-1": (nodes, ends_at)}, time.time())
            found = ends.known()["cr-1"]
            assert found.nodes == set(nodes)
            return found.begin - ends_at

        hour = time.time() + 3600.0
        assert begins(hour, "onprem1") == pytest.approx(0.0, abs=5.0)
        assert begins(hour, "onprem1", "onprem2") == pytest.approx(0.0, abs=5.0)
        assert begins(hour + 86_400.0, "onprem1") == pytest.approx(0.0, abs=5.0)
        soon = time.time() + 2.0
        begins(soon, "onprem1")
        wait_until(lambda: time.time() > soon + 2.0, seconds=10.0, what="the reservation has begun")
        assert begins(hour, "onprem1") == pytest.approx(0.0, abs=5.0)
        ends.keep({}, time.time())
        # where an admin has reserved a block's nodes for that time, the other blocks are told nevertheless
        window = ("nodes=onprem1", "starttime=now+3600", "duration=60", "users=root")
        lab.run("scontrol", "create", "reservation", "reservationname=course", *window)
        two = {"cr-1": (("onprem1",), hour), "cr-2": (("onprem2",), hour)}
        with pytest.raises(RetryLater):
            ends.keep(two, time.time())
        assert ends.known().keys() == {"cr-2"}
        ends.keep({}, time.time())
        assert ends.known() == {}
