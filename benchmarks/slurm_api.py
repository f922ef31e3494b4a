"""Slurm's commands and pyslurm on the same slurmctld: reading a long queue, and moving jobs of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.pyslurm_backend import PyslurmBackend, load_pyslurm
from advisor.testing.lab import Lab, LabOptions

Tell = Callable[[str], None]

_PARTITIONS: Final = ("onprem", "burst")
_ONE_BY_ONE: Final = 50


def run(*, jobs: int, moves: int, rounds: int, tell: Tell) -> dict[str, Any]:
    """Measure both back ends in turn on one lab.

    Args:
        jobs: Held jobs in the queue.
        moves: Of them, moved from one partition to the other: 50 one by one, the others in one call.
        rounds: Of both back ends.

    Raises:
        BadInput: pyslurm cannot be imported, or is for another Slurm.
    """
    with Lab.temporary(LabOptions(nodes=2, burst_nodes=8)) as lab:
        commands = CliBackend(Commands(Path("/usr/bin"), lab.conf))
        pyslurm = PyslurmBackend(load_pyslurm(lab.conf, commands.version()), commands)
        ids = _submitted(lab, jobs, tell)
        backends: dict[str, SlurmBackend] = {"commands": commands, "pyslurm": pyslurm}
        found: dict[str, dict[str, list[float]]] = {
            name: {"snapshot_seconds": [], "moves_per_second": [], "single_moves_per_second": []}
            for name in backends
        }
        turn = 0
        for number in range(rounds):
            for name in in_turn(list(backends), number):
                tell(f"round {number + 1} of {rounds}: {name}")
                _measure(backends[name], found[name], ids[:moves], turn := turn + 1)
        medians = {
            name: {what: statistics.median(values) for what, values in measured.items()}
            for name, measured in found.items()
        }
        return {
            "jobs": len(commands.snapshot(time.time()).jobs),
            "moves": min(moves, jobs),
            "rounds": rounds,
            **medians,
            "pyslurm_over_commands": {
                what: medians["pyslurm"][what] / medians["commands"][what] for what in medians["commands"]
            },
            "done_by_commands_instead": pyslurm.by_commands,
        }


def in_turn(names: list[str], number: int) -> list[str]:
    """The back ends of a round: every second one in the other order, so that both move jobs either way."""
    return names[::-1] if number % 2 else names


def _submitted(lab: Lab, jobs: int, tell: Tell) -> list[int]:
    def submit(number: int) -> int:
        if number % 500 == 499:
            tell(f"{number + 1} of {jobs} jobs submitted")
        return lab.sbatch("--partition=onprem", "--hold", "--time=10", script="sleep 1").job_id

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(submit, range(jobs)))


def _measure(backend: SlurmBackend, found: dict[str, list[float]], ids: Sequence[int], turn: int) -> None:
    target = _PARTITIONS[turn % 2]
    for _ in range(3):
        found["snapshot_seconds"].append(_seconds(lambda: backend.snapshot(time.time())))
    few = {job_id: {"partition": target} for job_id in ids[:_ONE_BY_ONE]}

    def one_by_one() -> None:
        for job_id, change in few.items():
            backend.update_job([job_id], change)

    found["single_moves_per_second"].append(len(few) / _seconds(one_by_one))
    rest = {job_id: {"partition": target} for job_id in ids[_ONE_BY_ONE:]}
    found["moves_per_second"].append(len(rest) / _seconds(lambda: backend.update_jobs(rest)))


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
