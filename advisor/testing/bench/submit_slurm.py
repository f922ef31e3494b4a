"""sbatch inside a real slurmctld: without a hook, with an empty one, and with ours, in short runs in turn.

A machine that others use drifts by more than the hook costs. So the same slurmctld is told to load or drop
the hook (``scontrol reconfigure``, 30 ms) before each run of a fraction of a second, and each run is compared
with its neighbours only: the median of the ratios counts. Which comes first changes from round to round.
Processor time is counted beside, because it does not depend on who else wanted the processors.

Two kinds of slurmctld, in turn. One as a site has it that has an advisor: connected to slurmdbd, without
which there is no history to learn from, and logging as Slurm does unless told otherwise. And a bare one, with
no data base and only errors in its log, on which the hook is the largest share that it can be.

The empty hook is what Slurm's own plug-in costs whatever it runs: it describes each job and all partitions to
Lua, and makes slurmctld build a table of all job records once a second. So a lab is given up after a few
rounds, before its records cost more than the hook.
"""

from __future__ import annotations

import math
import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from advisor.model.errors import TellAdmin
from advisor.service.client import SubmitClient
from advisor.testing.bench.timing import processor_seconds
from advisor.testing.lab import Lab, LabOptions

Tell = Callable[[str], None]

HOOK: Final = Path(__file__).resolve().parents[3] / "slurm_hooks" / "job_submit.lua"
_EMPTY_HOOK: Final = """
function slurm_job_submit(job, partitions, uid) return slurm.SUCCESS end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
_ROUNDS_A_LAB: Final = 4
_SETTLE_SECONDS: Final = 0.7
_CASES: Final = ("no_hook", "empty_hook", "with_hook")
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
    advised: int = 0


Runs = dict[str, list[Run]]
"""By case, one a round."""


def measure(
    socket: Path, serve_pid: int, *, folder: Path, submissions: int, clients: int, rounds: int, tell: Tell
) -> dict[str, Any]:
    """Run the rounds; the bare slurmctld's figures are under ``bare_slurmctld``.

    Parameters
    ----------
    socket : Path
        Of the `advisor serve` that the hook asks.
    serve_pid : int
        Its process.
    folder : Path
        For the data base.
    submissions, clients, rounds : int
        Held jobs a run, submitted by so many sbatch at a time, and how many rounds of runs.
    tell : callable
        Told what is being done.
    """
    bare = LabOptions(nodes=1, debug="error", hook=HOOK, hook_settings={"socket": str(socket)})
    site = replace(bare, debug="info", database=True, database_template=folder / "database")
    of_site: Runs = {name: [] for name in _CASES}
    of_bare: Runs = {name: [] for name in _CASES}
    for first in range(0, rounds, _ROUNDS_A_LAB):
        numbers = range(first, min(rounds, first + _ROUNDS_A_LAB))
        for options, runs, kind in ((site, of_site, "with slurmdbd"), (bare, of_bare, "bare")):
            tell(f"sbatch, slurmctld {kind}, rounds {numbers[0] + 1} to {numbers[-1] + 1} of {rounds}")
            with Lab.temporary(options) as lab:
                _rounds(lab, runs, numbers, socket, serve_pid, submissions, clients)
    bare_figures = result_of(of_bare, submissions, clients)
    return {**result_of(of_site, submissions, clients), "bare_slurmctld": bare_figures}


def _rounds(
    lab: Lab,
    runs: Runs,
    numbers: Sequence[int],
    socket: Path,
    serve_pid: int,
    submissions: int,
    clients: int,
) -> None:
    """Add a run of each case for each round."""
    empty = lab.folder / "empty_hook.lua"
    empty.write_text(_EMPTY_HOOK, encoding="ascii")
    hooks = {"no_hook": None, "empty_hook": empty, "with_hook": HOOK}
    for number in numbers:
        for name in in_turn(number):
            _load(lab, hooks[name], lab.options.hook_settings)
            before = _advice_given(socket)
            run = _run(lab, serve_pid, submissions, clients)
            advised = _advice_given(socket) - before
            check_hook(name, advised)
            runs[name].append(replace(run, advised=advised))


def _load(lab: Lab, hook: Path | None, settings: Mapping[str, str]) -> None:
    """Load a hook, or none; never one straight after another.

    slurmctld looks for a newer file by whole seconds, and a run is shorter: without dropping its plug-in in
    between it went on with the hook of the run before. Each case reads the configuration twice, and what
    slurmctld does about that afterwards is over before the run begins: the hook would be charged with it.
    """
    lab.hook(None, settings, restart=False)
    lab.hook(hook, settings, restart=False)
    time.sleep(_SETTLE_SECONDS)


def _advice_given(socket: Path) -> int:
    with SubmitClient(socket) as client:
        return client.ping().advice_given


def check_hook(name: str, advised: int) -> None:
    """Refuse a run in which another hook ran than the one it is counted for.

    Fewer answers than submissions are no mistake: on a busy machine some questions take longer than the hook
    waits. They are counted instead.
    """
    if (advised > 0) != (name == "with_hook"):
        raise TellAdmin(f"{name}: {advised} submissions were advised", code="bench.hook")


def in_turn(number: int) -> tuple[str, ...]:
    """The cases of a round: each is first, second and last equally often, so that drift cancels."""
    shift = number % len(_CASES)
    cases = _CASES[shift:] + _CASES[:shift]
    return cases[::-1] if number // len(_CASES) % 2 else cases


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


def result_of(runs: Runs, submissions: int, clients: int) -> dict[str, Any]:
    """What the runs say: medians, and ratios of runs of the same round."""

    def ratios(value: Callable[[Run], float], to: str) -> list[float]:
        """With our hook to another case, each run with that of the same round."""
        pairs = zip(runs["with_hook"], runs[to], strict=True)
        return sorted(value(with_hook) / value(other) for with_hook, other in pairs)

    def per_second(run: Run) -> float:
        return run.per_second

    def per_processor_second(run: Run) -> float:
        return 1.0 / (run.clients + run.slurmctld + run.serve)

    throughput = ratios(per_second, "no_hook")
    return {
        "sbatch_per_second": {
            name: statistics.median(run.per_second for run in many) for name, many in runs.items()
        },
        "throughput_ratio": statistics.median(throughput),
        "throughput_ratio_quartiles": [
            throughput[len(throughput) // 4],
            throughput[(3 * len(throughput)) // 4],
        ],
        "throughput_ratio_to_empty_hook": statistics.median(ratios(per_second, "empty_hook")),
        "slurmctld_submit_rpc_us": {
            name: statistics.median(run.rpc_us for run in many) for name, many in runs.items()
        },
        # what the throughput ratio would be where processors are the only limit and nobody else uses them
        "processor_ratio": statistics.median(ratios(per_processor_second, "no_hook")),
        "processor_ratio_to_empty_hook": statistics.median(ratios(per_processor_second, "empty_hook")),
        "processor_us_per_submission": {
            name: {
                who: statistics.median(getattr(run, who) for run in many) / submissions * 1e6
                for who in ("clients", "slurmctld", "serve")
            }
            for name, many in runs.items()
        },
        # a run's first one, which loads the hook, is not timed, but advised as well
        "not_advised": sum(max(0, submissions + 1 - run.advised) for run in runs["with_hook"]),
        "submissions": submissions,
        "sbatch_clients": clients,
        "rounds": len(throughput),
    }
