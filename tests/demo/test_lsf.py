"""The demo under the stand-in for LSF, with a few jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from advisor.replay.sources import load_table
from demo import lsf
from demo.plan import DemoJob, make_plan

pytestmark = pytest.mark.slow


def test_a_few_jobs_are_played_and_reported() -> None:
    plan = make_plan(load_table("synthetic:2000:1"))
    wide = DemoJob(
        submit_seconds=0.0,
        processors=plan.processors,
        run_seconds=30.0,  # long beside a poll of a busy machine
        limit_minutes=10,
        user="daemon",
        name="wide-1",
        may_requeue=True,
        opts_out=False,
        explicit=True,
    )
    few = [
        replace(wide, submit_seconds=4.0, processors=1, run_seconds=1.5, name=f"few-{n}", explicit=False)
        for n in range(3)
    ]
    few.append(replace(few[0], name="few-3", opts_out=True))
    console = Console(record=True, width=200)
    assert lsf.play(replace(plan, stream=(wide, *few)), console) == 0
    said = console.export_text()
    assert "5 of 5 jobs COMPLETED, each started once" in said
    assert "no-burst: the user does not" in said
    assert any(
        line.split() == ["jobs", "kept", "/", "moved", "2", "/", "3", "5", "/", "0"]
        for line in said.splitlines()
    )
