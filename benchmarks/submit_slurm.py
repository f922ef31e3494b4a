"""sbatch inside a real slurmctld: without a hook, with an empty one, and with ours, in short bursts in turn.

A machine that others use drifts by more than the hook costs, within a minute. So three slurmctlds that differ
by their hook alone run side by side, and a round's submissions go to each of them in bursts of a tenth of a
second, in changing order; a round is compared with itself only: the median of the ratios counts. Processor
time is counted beside, because it does not depend on who else wanted the processors.

Two kinds of slurmctld, one after the other. One as a site has it that has an advisor: connected to slurmdbd,
without which there is no history to learn from, and logging as Slurm does unless told otherwise. And a bare
one, with no data base and only errors in its log, on which the hook is the largest share that it can be.

The empty hook is what Slurm's own plug-in costs whatever it runs: it describes each job and all partitions to
Lua, and makes slurmctld build a table of all job records once a second. So labs are given up after some
rounds, before their records cost more than the hook.
"""

from __future__ import annotations

import math
import re
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from advisor.model.errors import TellAdmin
from advisor.service.exchange.client import SubmitClient
from advisor.testing.lab import Lab, LabOptions
from benchmarks.timing import processor_seconds

Tell = Callable[[str], None]

HOOK: Final = Path(__file__).resolve().parents[1] / "slurm_hooks" / "job_submit.lua"
_EMPTY_HOOK: Final = """
function slurm_job_submit(job, partitions, uid) return slurm.SUCCESS end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
_ROUNDS_A_LAB: Final = 12
_REST_SECONDS: Final = 0.1
_BURST: Final = 25
_SETTLE_SECONDS: Final = 1.0
_CASES: Final = ("no_hook", "empty_hook", "with_hook")
_RPC: Final = re.compile(r"REQUEST_SUBMIT_BATCH_JOB\s+\(\s*\d+\)\s+count:(\d+)\s+ave_time:(\d+)")
_SBATCH: Final = ("sbatch", "--hold", "--quiet", "--output=/dev/null", "--time=60", "--wrap=true")


@dataclass(slots=True, kw_only=True)
class Run:
    """One case's submissions of a round; seconds, and processor seconds by who used them."""

    submissions: int = 0
    seconds: float = 0.0
    rpc_us: float = math.nan
    clients: float = 0.0
    slurmctld: float = 0.0
    serve: float = 0.0
    advised: int = 0

    @property
    def per_second(self) -> float:
        """Submissions a second."""
        return self.submissions / self.seconds


Runs = dict[str, list[Run]]
"""By case, one a round."""


def measure(
    socket: Path, serve_pid: int, *, folder: Path, submissions: int, clients: int, rounds: int, tell: Tell
) -> dict[str, Any]:
    """Run the rounds; the bare slurmctld's figures are under ``bare_slurmctld``.

    Args:
        socket: Of the `advisor serve` that the hook asks.
        serve_pid: Its process.
        folder: For the data base.
        submissions, clients, rounds: Held jobs a run, submitted by so many sbatch at a time, and how many
            rounds of runs.
        tell: Told what is being done.
    """
    bare = LabOptions(nodes=1, debug="error")
    site = replace(bare, debug="info", database=True, database_template=folder / "database")
    empty = folder / "empty_hook.lua"
    empty.write_text(_EMPTY_HOOK, encoding="ascii")
    hooks = {"no_hook": None, "empty_hook": empty, "with_hook": HOOK}
    of_site: Runs = {name: [] for name in _CASES}
    of_bare: Runs = {name: [] for name in _CASES}
    for first in range(0, rounds, _ROUNDS_A_LAB):
        numbers = range(first, min(rounds, first + _ROUNDS_A_LAB))
        for options, runs, kind in ((site, of_site, "with slurmdbd"), (bare, of_bare, "bare")):
            tell(f"sbatch, slurmctld {kind}, rounds {numbers[0] + 1} to {numbers[-1] + 1} of {rounds}")
            with ExitStack() as stack:
                labs = {
                    name: stack.enter_context(
                        Lab.temporary(replace(options, hook=hook, hook_settings={"socket": str(socket)}))
                    )
                    for name, hook in hooks.items()
                }
                _rounds(_Bench(labs, socket, serve_pid, clients), runs, numbers, submissions)
    bare_figures = result_of(of_bare, clients)
    return {**result_of(of_site, clients), "bare_slurmctld": bare_figures}


@dataclass(frozen=True, slots=True)
class _Bench:
    """One lab a case, and who answers in one of them."""

    labs: Mapping[str, Lab]
    socket: Path
    serve_pid: int
    clients: int
    _processes: dict[str, int | None] = field(default_factory=dict)

    def warm_up(self) -> None:
        """Hooks are loaded, connections open, and what slurmctld does at its start is over."""
        for name, lab in self.labs.items():
            lab.run("xargs", f"-P{self.clients}", "-I{}", *_SBATCH, stdin=_lines(self.clients), timeout=600)
            self._processes[name] = lab.slurmctld_pid()
        time.sleep(_SETTLE_SECONDS)

    def burst(self, name: str, run: Run, submissions: int) -> None:
        """Submit to one of them, and add what it took."""
        lab, advised = self.labs[name], self._advice_given()
        before = self._processor_times(name)
        began = time.perf_counter()
        lab.run("xargs", f"-P{self.clients}", "-I{}", *_SBATCH, stdin=_lines(submissions), timeout=600)
        run.seconds += time.perf_counter() - began
        after = self._processor_times(name)
        run.clients += after[0] - before[0]
        run.slurmctld += after[1] - before[1]
        run.serve += after[2] - before[2]
        run.submissions += submissions
        advised = self._advice_given() - advised
        check_hook(name, advised)
        run.advised += advised

    def _advice_given(self) -> int:
        """When the submit server is at rest: it still answers questions that the hook has given up."""
        with SubmitClient(self.socket) as client:
            given = -1
            while given != (given := client.ping().advice_given):
                time.sleep(_REST_SECONDS)
            return given

    def _processor_times(self, name: str) -> tuple[float, float, float]:
        """Of the sbatch processes that have ended, of a slurmctld and of the submit server, seconds."""
        children, pid = resource.getrusage(resource.RUSAGE_CHILDREN), self._processes[name]
        slurmctld = math.nan if pid is None else processor_seconds(pid)
        return children.ru_utime + children.ru_stime, slurmctld, processor_seconds(self.serve_pid)


def _rounds(bench: _Bench, runs: Runs, numbers: Sequence[int], submissions: int) -> None:
    """Add a run of each case for each round."""
    bench.warm_up()
    bursts = [min(_BURST, submissions - done) for done in range(0, submissions, _BURST)]
    for number in numbers:
        these = {name: Run() for name in _CASES}
        for lab in bench.labs.values():
            lab.run("sdiag", "--reset")
        for at, count in enumerate(bursts, start=number * len(bursts)):
            for name in in_turn(at):
                bench.burst(name, these[name], count)
        for name, run in these.items():
            match = _RPC.search(bench.labs[name].run("sdiag").stdout)
            run.rpc_us = float(match[2]) if match else math.nan
            runs[name].append(run)


def _lines(count: int) -> str:
    return "\n".join(map(str, range(count)))


def check_hook(name: str, advised: int) -> None:
    """Refuse a burst in which another hook ran than the one it is counted for.

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


def result_of(runs: Runs, clients: int) -> dict[str, Any]:
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
                who: statistics.median(getattr(run, who) / run.submissions for run in many) * 1e6
                for who in ("clients", "slurmctld", "serve")
            }
            for name, many in runs.items()
        },
        "not_advised": sum(max(0, run.submissions - run.advised) for run in runs["with_hook"]),
        "submissions": runs["with_hook"][0].submissions,
        "sbatch_clients": clients,
        "rounds": len(throughput),
    }
