"""What it brought: time saved, money spent, predicted against actual, against everything on-premise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from advisor.decide.explanation.display import duration, usd
from advisor.model.advice import Placement
from demo.plan import DemoJob, on_premise_schedule

_SHOWN: Final = 5
"""Moves that gained most, and as many that gained least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """One job's end.

    Attributes:
        job: As planned.
        state: How it ended.
        placement: Where it ran.
        wait_seconds, run_seconds: Actual, demo seconds.
        predicted_wait_seconds: NaN when nothing was predicted.
        starts: How often it was started.
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


def show(
    summary: Summary, results: Sequence[JobResult], *, processors: int, compression: float, console: Console
) -> None:
    """Print the best and the worst moves, the comparison, and last what it brought in one sentence."""
    _show_moved(results, processors, console)
    hours = compression / 3600.0
    console.print(
        f"\nOne second here is {duration(compression)} of the log; dollars are the demo's own. Waits are "
        "predicted by time limits, which few jobs reach."
    )
    table = Table(show_header=True, box=None, pad_edge=False, header_style="bold")
    for name in ("", "with the advisor", "all on-premise (simulated)"):
        table.add_column(name, justify="left" if not name else "right")

    def in_hours(seconds: float) -> str:
        return f"{seconds:.1f} s = {seconds * hours:.1f} h"

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
    table.add_row("cloud nodes", f"{summary.instances}{spot}", "0")
    table.add_row("spent", usd(summary.cloud_usd), usd(0.0))
    if summary.idle_usd is not None:
        table.add_row("of it idle time", usd(summary.idle_usd), "")
    if np.isfinite(summary.wait_error_seconds):
        table.add_row("predicted wait off by", f"{summary.wait_error_seconds:.1f} s", "")
    console.print(table)
    console.print(
        f"\n[bold]Jobs waited {summary.mean_wait_seconds:.1f} s instead of "
        f"{summary.on_premise_mean_wait_seconds:.1f} s in the mean, for {usd(summary.cloud_usd)}[/]; "
        f"{summary.completed_once} of {summary.jobs} jobs COMPLETED, each started once."
    )


def _show_moved(results: Sequence[JobResult], processors: int, console: Console) -> None:
    """The moves that gained and that lost most, against the same job on the simulated on-premise cluster."""
    waits, ends = on_premise_schedule([result.job for result in results], processors)
    moved = []
    for result, wait, end in zip(results, waits.tolist(), ends.tolist(), strict=True):
        if result.placement is Placement.BURST:
            there = result.wait_seconds + result.run_seconds
            moved.append((end - result.job.submit_seconds - there, wait, result))
    moved.sort(key=lambda row: -row[0])
    shown = moved if len(moved) <= 2 * _SHOWN else [*moved[:_SHOWN], *moved[-_SHOWN:]]
    table = Table(
        title=f"The {len(shown)} of {len(moved)} moves that gained most and least (here: simulated)",
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
    )
    for name in ("job", "cpus", "wait predicted", "here", "there", "sooner", ""):
        table.add_column(name, justify="left" if name in ("job", "") else "right", no_wrap=True)
    for gained, wait, result in shown:
        table.add_row(
            f"{result.job.user} {result.job.name}",
            str(result.job.processors),
            f"{result.predicted_wait_seconds:.0f} s",
            f"{wait:.0f} s",
            f"{result.wait_seconds:.0f} s",
            f"{gained:.0f} s",
            _why_lost(gained, wait, result),
        )
    console.print(table)


def _why_lost(gained: float, wait_here: float, result: JobResult) -> str:
    """Say in words why a move did not pay; nothing where it did."""
    if gained >= 0.0:
        return ""
    if wait_here < 0.5 * result.predicted_wait_seconds:
        return "short queue here"
    return "busy nodes there" if result.wait_seconds > wait_here else "slower there"
