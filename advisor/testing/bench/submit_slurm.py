"""sbatch inside a real slurmctld, with the hook and without, in pairs of short runs.

A machine that others use drifts by more than the hook costs. So the same slurmctld is told to load or drop
the hook (``scontrol reconfigure``, 30 ms) before each run of a fraction of a second, with and without it in
turn, and each run is compared with its neighbour only: the median of the ratios counts. Processor time is
counted beside, because it does not depend on who else wanted the processors.

A Lua hook, even an empty one, makes slurmctld build a table of all job records once a second, so a lab is
given up after a few pairs, before its records cost more than the hook.
"""

from __future__ import annotations

import math
import re
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from advisor.testing.bench.timing import processor_seconds
from advisor.testing.lab import Lab, LabOptions

Tell = Callable[[str], None]

HOOK: Final = Path(__file__).resolve().parents[3] / "slurm_hooks" / "job_submit.lua"
_PAIRS_A_LAB: Final = 4
_CASES: Final = ("no_hook", "with_hook")
_RPC: Final = re.compile(r"REQUEST_SUBMIT_BATCH_JOB\s+\(\s*\d+\)\s+count:(\d+)\s+ave_time:(\d+)")
_SBATCH: Final = ("sbatch", "--hold", "--quiet", "--output=/dev/null", "--time=60", "--wrap=true")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One short run; processor seconds by who used them."""

    per_second: float
    rpc_us: float
    clients: float
    slurmctld: float
    serve: float


def measure(
    socket: Path, serve_pid: int, *, submissions: int, clients: int, pairs: int, tell: Tell
) -> dict[str, Any]:
    """Run the pairs.

    Parameters
    ----------
    socket : Path
        Of the `advisor serve` that the hook asks.
    serve_pid : int
        Its process.
    submissions, clients, pairs : int
        Held jobs a run, submitted by so many sbatch at a time, and how many pairs of runs.
    tell : callable
        Told what is being done.
    """
    runs: dict[str, list[Run]] = {name: [] for name in _CASES}
    options = LabOptions(nodes=1, debug="error", hook=HOOK, hook_settings={"socket": str(socket)})
    for first in range(0, pairs, _PAIRS_A_LAB):
        with Lab.temporary(options) as lab:
            for pair in range(first, min(pairs, first + _PAIRS_A_LAB)):
                tell(f"sbatch, pair {pair + 1} of {pairs}")
                # which comes first changes from pair to pair: drift within a pair cancels as well
                for name in _CASES if pair % 2 else reversed(_CASES):
                    lab.hook(HOOK if name == "with_hook" else None, options.hook_settings, restart=False)
                    runs[name].append(_run(lab, serve_pid, submissions, clients))
    return _result(runs, submissions, clients)


def _run(lab: Lab, serve_pid: int, submissions: int, clients: int) -> Run:
    pid = lab.slurmctld_pid()
    lab.run(*_SBATCH)  # loads the hook, connects
    lab.run("sdiag", "--reset")
    numbers = "\n".join(map(str, range(submissions)))
    before = _processor_times(pid, serve_pid)
    began = time.perf_counter()
    lab.run("xargs", f"-P{clients}", "-I{}", *_SBATCH, stdin=numbers, timeout=600)
    seconds = time.perf_counter() - began
    used = [after - then for after, then in zip(_processor_times(pid, serve_pid), before, strict=True)]
    match = _RPC.search(lab.run("sdiag").stdout)
    return Run(
        per_second=submissions / seconds,
        rpc_us=float(match[2]) if match else math.nan,
        clients=used[0],
        slurmctld=used[1],
        serve=used[2],
    )


def _processor_times(slurmctld_pid: int | None, serve_pid: int) -> tuple[float, float, float]:
    """Of the sbatch processes that have ended, of slurmctld and of the submit server, seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    slurmctld = math.nan if slurmctld_pid is None else processor_seconds(slurmctld_pid)
    return children.ru_utime + children.ru_stime, slurmctld, processor_seconds(serve_pid)


def _result(runs: dict[str, list[Run]], submissions: int, clients: int) -> dict[str, Any]:
    ratios = sorted(
        with_hook.per_second / no_hook.per_second
        for no_hook, with_hook in zip(runs["no_hook"], runs["with_hook"], strict=True)
    )
    processor = {
        name: {
            who: statistics.median(getattr(run, who) for run in many) / submissions * 1e6
            for who in ("clients", "slurmctld", "serve")
        }
        for name, many in runs.items()
    }
    totals = {name: sum(parts.values()) for name, parts in processor.items()}
    return {
        "sbatch_per_second": {
            name: statistics.median(run.per_second for run in many) for name, many in runs.items()
        },
        "throughput_ratio": statistics.median(ratios),
        "throughput_ratio_quartiles": [ratios[len(ratios) // 4], ratios[(3 * len(ratios)) // 4]],
        "slurmctld_submit_rpc_us": {
            name: statistics.median(run.rpc_us for run in many) for name, many in runs.items()
        },
        # what the throughput ratio would be where processors are the only limit and nobody else uses them
        "processor_ratio": totals["no_hook"] / totals["with_hook"],
        "processor_us_per_submission": processor,
        "submissions": submissions,
        "sbatch_clients": clients,
        "pairs": len(ratios),
    }
