"""What it brought: time saved, money spent, predicted against actual, against everything on-premise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from advisor.decide.display import duration, usd
from advisor.model import Placement
from demo.plan import DemoJob, on_premise_schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One job's end.

    Attributes
    ----------
    job : DemoJob
        As planned.
    state : str
        How it ended.
    placement : Placement
        Where it ran.
    wait_seconds, run_seconds : float
        Actual, demo seconds.
    predicted_wait_seconds : float
        NaN when nothing was predicted.
    starts : int
        How often it was started.
    """

    job: DemoJob
    state: str
    placement: Placement
    wait_seconds: float
    run_seconds: float
    predicted_wait_seconds: float
    starts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Totals of the demo; seconds are demo seconds, dollars are true: what its nodes have cost.

    ``idle_usd`` is what of them was boots and nodes between jobs; None where nobody metered it.
    """

    jobs: int
    completed_once: int
    kept: int
    moved: int
    mean_wait_seconds: float
    mean_turnaround_seconds: float
    on_premise_mean_wait_seconds: float
    on_premise_mean_turnaround_seconds: float
    saved_seconds: float
    wait_error_seconds: float
    cloud_usd: float
    idle_usd: float | None
    instances: int
    on_spot: int | None


def summarise(
    results: Sequence[JobResult],
    *,
    processors: int,
    cloud_usd: float,
    instances: int,
    idle_usd: float | None = None,
    on_spot: int | None = None,
) -> Summary:
    """Compare with the same stream entirely on-premise (EASY backfilling on the simulated cluster)."""
    jobs = [result.job for result in results]
    waits, ends = on_premise_schedule(jobs, processors)
    submits = np.array([job.submit_seconds for job in jobs])
    turnaround = np.array([result.wait_seconds + result.run_seconds for result in results])
    # what was predicted is the on-premise wait: only jobs that stayed tell how good that was
    stayed = [
        r for r in results if r.placement is Placement.ON_PREMISE and np.isfinite(r.predicted_wait_seconds)
    ]
    errors = [abs(result.predicted_wait_seconds - result.wait_seconds) for result in stayed]
    moved = sum(result.placement is Placement.BURST for result in results)
    return Summary(
        jobs=len(results),
        completed_once=sum(result.state == "COMPLETED" and result.starts == 1 for result in results),
        kept=len(results) - moved,
        moved=moved,
        mean_wait_seconds=float(np.mean([result.wait_seconds for result in results])),
        mean_turnaround_seconds=float(turnaround.mean()),
        on_premise_mean_wait_seconds=float(waits.mean()),
        on_premise_mean_turnaround_seconds=float((ends - submits).mean()),
        saved_seconds=float(((ends - submits) - turnaround).sum()),
        wait_error_seconds=float(np.mean(errors)) if errors else float("nan"),
        cloud_usd=cloud_usd,
        idle_usd=idle_usd,
        instances=instances,
        on_spot=on_spot,
    )


def show(summary: Summary, results: Sequence[JobResult], *, compression: float, console: Console) -> None:
    """Print the table."""
    _show_moved(results, console)
    hours = compression / 3600.0
    pace = f"one second here is {duration(compression)} of the log; dollars are the demo's own"
    table = Table(title=f"With the advisor, and with everything on-premise ({pace})", show_header=True)
    for name in ("", "with the advisor", "all on-premise (simulated)"):
        table.add_column(name, justify="left" if not name else "right")

    def in_hours(seconds: float) -> str:
        return f"{seconds:.1f} s = {seconds * hours:.1f} h of the log"

    table.add_row(
        "mean wait", in_hours(summary.mean_wait_seconds), in_hours(summary.on_premise_mean_wait_seconds)
    )
    table.add_row(
        "mean turnaround",
        in_hours(summary.mean_turnaround_seconds),
        in_hours(summary.on_premise_mean_turnaround_seconds),
    )
    table.add_row("jobs kept / moved", f"{summary.kept} / {summary.moved}", f"{summary.jobs} / 0")
    spot = "" if summary.on_spot is None else f" ({summary.on_spot} spot)"
    idle = "" if summary.idle_usd is None else f", {usd(summary.idle_usd)} of it idle time"
    table.add_row("cloud", f"{summary.instances} nodes{spot}, {usd(summary.cloud_usd)} spent{idle}", usd(0.0))
    console.print(table)
    console.print(
        f"Time saved, all jobs together: [bold]{in_hours(summary.saved_seconds)}[/]. "
        f"Predicted against actual wait of the jobs kept: {summary.wait_error_seconds:.1f} s off on average. "
        f"{summary.completed_once} of {summary.jobs} jobs COMPLETED, each started once."
    )


def _show_moved(results: Sequence[JobResult], console: Console) -> None:
    table = Table(title="Jobs that were moved to the cloud")
    for name in ("user", "job", "cpus", "predicted wait here", "actual wait there", "run"):
        table.add_column(name, justify="left" if name in ("user", "job") else "right")
    for result in results:
        if result.placement is Placement.BURST:
            table.add_row(
                result.job.user,
                result.job.name,
                str(result.job.processors),
                f"{result.predicted_wait_seconds:.0f} s",
                f"{result.wait_seconds:.0f} s",
                f"{result.run_seconds:.0f} s",
            )
    console.print(table)
