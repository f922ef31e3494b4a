"""Run benchmarks, one process each so that none warms up another; JSON to ``benchmarks/results/``.

``python -m benchmarks`` runs all of them but those that need what is not here (spot traces, pyslurm), which
it names. ``python -m benchmarks NAME ... [OPTIONS]`` runs these, with the options of ``advisor bench NAME``.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

from benchmarks.commands import bench

_RESULTS = Path(__file__).resolve().parent / "results"
_ADVISOR = "from advisor.cli.main import run; run()"
_BAD_INPUT = 2
"""Exit code of one that lacks an option, or what has to be installed."""


def main(arguments: list[str]) -> int:
    """Run the benchmarks of these names, or all; 1 if one of them failed, or none could be run."""
    names = list(takewhile(lambda word: not word.startswith("-"), arguments))
    options = arguments[len(names) :]
    _RESULTS.mkdir(exist_ok=True)
    codes = {name: _run(name, options) for name in names or _all_names()}
    left_out = [name for name, code in codes.items() if code == _BAD_INPUT and not names]
    failed = [name for name, code in codes.items() if code and name not in left_out]
    for what, which in (("left out", left_out), ("failed", failed)):
        if which:
            print(f"{what}: {', '.join(which)}", file=sys.stderr)
    return int(bool(failed) or len(left_out) == len(codes))


def _all_names() -> list[str]:
    return sorted(str(command.name) for command in bench.registered_commands)


def _run(name: str, options: list[str]) -> int:
    """Run one benchmark, print its JSON and keep it, in place of an earlier one; its exit code."""
    print(f"== {name}", flush=True)
    kept = _RESULTS / f"{name}.json"
    kept.unlink(missing_ok=True)
    command = (sys.executable, "-c", _ADVISOR, "bench", name, *options, "--format", "json")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode == 0 and done.stdout:
        kept.write_text(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
