"""The end of the demo: what it brought, what can be opened, and a cluster that stays up where asked for."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from advisor.model.advice import Placement
from demo import afterwards
from demo.plan import DemoJob
from demo.report import JobResult, show, summarise


def site() -> Any:
    return SimpleNamespace(
        folder=Path("/tmp/a site"),
        environment={"SLURM_CONF": "/tmp/a site/slurm.conf"},
        credentials=lambda: {"AWS_ACCESS_KEY_ID": "emulator"},
    )


def results(number: int) -> list[JobResult]:
    jobs = [
        DemoJob(
            name=f"job-{i}",
            user="mail",
            processors=4,
            submit_seconds=float(i),
            run_seconds=10.0,
            limit_minutes=1,
            may_requeue=True,
            opts_out=False,
            explicit=False,
        )
        for i in range(number)
    ]
    return [
        JobResult(
            job=job,
            state="COMPLETED",
            placement=Placement.BURST,
            wait_seconds=3.0,
            run_seconds=10.0,
            predicted_wait_seconds=20.0,
            starts=1,
        )
        for job in jobs
    ]


def test_day_one_21_without_a_terminal_the_cluster_stays_up_until_a_signal() -> None:
    """It invited and tore everything down in the same second."""
    code = (
        "import pathlib, types; from rich.console import Console; from demo import afterwards\n"
        "site = types.SimpleNamespace(folder=pathlib.Path('/tmp'), environment={}, credentials=dict)\n"
        "afterwards.keep_up(Console(), site); print('stopped')"
    )
    process = subprocess.Popen(
        (sys.executable, "-c", code), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "SIGTERM" in line:
            break
    threading.Event().wait(0.5)
    assert process.poll() is None, "it stays up"
    process.send_signal(signal.SIGTERM)
    assert "stopped" in process.communicate(timeout=60)[0]


def test_day_one_22_what_is_printed_can_be_pasted_into_a_shell() -> None:
    output = io.StringIO()
    console = Console(file=output, width=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "\n"))
        afterwards.keep_up(console, site())
    afterwards.say_what_is_left(
        console, Path("/a/very/long/path/to/the/report/of/the/demo.html"), "http://x/"
    )
    exports = [line for line in output.getvalue().splitlines() if line.startswith("export ")]
    shown = subprocess.run(
        ("sh", "-c", "; ".join([*exports, 'echo "$SLURM_CONF,$AWS_ACCESS_KEY_ID,$PATH"'])),
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    ).stdout
    assert shown.startswith(f"/tmp/a site/slurm.conf,emulator,{Path(sys.executable).parent}:")
    assert "advisor why JOBID" in output.getvalue().splitlines(), "one command a line, none broken"
    assert "Report to open: /a/very/long/path/to/the/report/of/the/demo.html" in output.getvalue()


def test_day_one_23_the_end_fits_a_small_screen_and_says_last_what_it_brought() -> None:
    output = io.StringIO()
    done = results(40)
    summary = summarise(done, processors=8, cloud_usd=0.15, instances=4, idle_usd=0.05, on_spot=3)
    show(summary, done, processors=8, compression=2400.0, console=Console(file=output, width=80))
    lines = output.getvalue().rstrip().splitlines()
    assert len(lines) <= 26
    assert sum(line.startswith("mail job-") for line in lines) == 10
    assert "40 of 40 jobs COMPLETED" in " ".join(" ".join(lines[-2:]).split())
