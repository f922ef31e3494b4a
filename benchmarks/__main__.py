"""Run benchmarks, one process each so that none warms up another; JSON to ``benchmarks/results/``.

``python -m benchmarks`` runs all of them, ``python -m benchmarks NAME ... [OPTIONS]`` runs these, with the
options of ``advisor bench NAME``.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

from benchmarks.commands import bench

_RESULTS = Path(__file__).resolve().parent / "results"
_ADVISOR = "from advisor.cli.main import run; run()"


def main(arguments: list[str]) -> int:
    """Run the benchmarks of these names, or all; 1 if one of them failed."""
    names = list(takewhile(lambda word: not word.startswith("-"), arguments))
    options = arguments[len(names) :]
    _RESULTS.mkdir(exist_ok=True)
    failed = [name for name in names or _all_names() if not _run(name, options)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _all_names() -> list[str]:
    return sorted(str(command.name) for command in bench.registered_commands)


def _run(name: str, options: list[str]) -> bool:
    """Run one benchmark, print its JSON and keep it; False if it failed."""
    print(f"== {name}", flush=True)
    command = (sys.executable, "-c", _ADVISOR, "bench", name, *options, "--format", "json")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode == 0 and done.stdout:
        (_RESULTS / f"{name}.json").write_text(done.stdout)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
