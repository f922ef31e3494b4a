"""A live day counts each job that did not end exactly once as completed, says how, and keeps the logs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from advisor.testing.lab import Lab
from benchmarks.live_fates import KeptFolder, LiveJob, Run, amiss_jobs
from benchmarks.live_site import read_scripts


def ran(state: str, partition: str = "onprem", nodes: tuple[str, ...] = ()) -> Run:
    return Run(partition=partition, state=state, start=10.0, end=20.0, nodes=nodes)


def job(*states: str, script: str, folder: Path, job_id: int = 7) -> LiveJob:
    """A job with these runs in the accounting, and its output."""
    (folder / "jobs").mkdir(exist_ok=True)
    lines = [f"{word} onprem {10.0 + at}" for at, word in enumerate(script.split())]
    (folder / "jobs" / f"{job_id}.out").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = LiveJob(job_id=job_id, submit=5.0, runs=[ran(state) for state in states])
    read_scripts(Lab(folder), [found])
    return found


@pytest.mark.parametrize(
    ("states", "script", "how", "counts_as"),
    [
        (("COMPLETED",), "begin end", None, ""),
        (("REQUEUED", "COMPLETED"), "begin begin end", None, ""),
        ((), "", "it never ended", "lost"),
        (("PENDING",), "", "it never ended", "lost"),
        (("RUNNING",), "begin", "it never ended", "lost"),
        (("COMPLETED", "PENDING"), "begin end", "it never ended", "lost"),
        (("FAILED",), "begin", "it ended as FAILED", "lost"),
        (("REQUEUED", "NODE_FAIL"), "begin", "it ended as NODE_FAIL", "lost"),
        (("COMPLETED", "CANCELLED"), "begin end begin", "it ended as CANCELLED", "lost"),
        (("COMPLETED", "COMPLETED"), "begin end begin end", "it completed 2 times", "done twice"),
        (("COMPLETED",), "begin", "it completed, and its script did not reach its last line", "lost"),
        (
            ("REQUEUED", "COMPLETED"),
            "begin end begin end",
            "its script ran to its last line 2 times",
            "done twice",
        ),
    ],
)
def test_how_a_job_ended(
    states: tuple[str, ...], script: str, how: str | None, counts_as: str, tmp_path: Path
) -> None:
    found = job(*states, script=script, folder=tmp_path)
    assert found.amiss == how
    assert (found.is_lost, found.ran_twice) == (counts_as == "lost", counts_as == "done twice")


def test_the_report_has_runs_nodes_and_the_lines_about_the_job(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "slurmctld.log").write_text(
        "sched: Allocate JobId=7 NodeList=burst2\n"
        "sched: Allocate JobId=71 NodeList=burst2\n"
        "Nodes burst2 not responding, setting DOWN\n"
        "Nodes burst21 not responding, setting DOWN\n",
        encoding="utf-8",
    )
    (tmp_path / "control.log").write_text('{"job": 7, "event": "hedge.requeued"}\n', encoding="utf-8")
    lost = LiveJob(job_id=7, submit=5.0)
    lost.runs = [ran("REQUEUED", "burst", ("burst2",)), ran("FAILED")]
    lost.began = [("burst", 10.0)]
    well = LiveJob(job_id=71, submit=5.0, runs=[ran("COMPLETED")], ended=("onprem", 20.0), whole_runs=1)
    (row,) = amiss_jobs([lost, well], tmp_path)
    assert row["job"] == 7
    assert row["runs"] == ["REQUEUED on burst2 10-20", "FAILED on onprem 10-20"]
    assert row["log"] == [
        'control.log: {"job": 7, "event": "hedge.requeued"}',
        "slurmctld.log: sched: Allocate JobId=7 NodeList=burst2",
        "slurmctld.log: Nodes burst2 not responding, setting DOWN",
    ]
    assert row["folder"] == str(tmp_path)


def test_a_run_that_never_started_is_shown_so() -> None:
    assert (
        str(Run(partition="burst", state="PENDING", start=math.nan, end=math.nan)) == "PENDING on burst ?-?"
    )


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_folder_goes_unless_it_is_to_be_looked_at(*, is_kept: bool) -> None:
    with KeptFolder("fates-") as kept:
        (kept.path / "lab" / "db").mkdir(parents=True)
        kept.is_kept = is_kept
    assert kept.path.exists() is is_kept
    assert not (kept.path / "lab" / "db").exists()
    (kept.path / "lab").rmdir() if is_kept else None
    kept.path.rmdir() if is_kept else None


def test_an_error_keeps_the_folder_and_says_where() -> None:
    with pytest.raises(ValueError, match="late") as caught, KeptFolder("fates-") as kept:
        raise ValueError("late")
    assert kept.path.exists()
    assert str(kept.path) in caught.value.__notes__[0]
    kept.path.rmdir()
