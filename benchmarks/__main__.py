"""Run every benchmark, one process each so that none warms the other; JSON to ``benchmarks/results/``."""

import json
import subprocess
import sys
from pathlib import Path

from advisor.model.plain import plain

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"


def write(name: str, result: dict) -> None:
    """Keep a result and print it."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(plain(result), indent=1, allow_nan=False)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)


def main() -> int:
    """Names on the command line, else all of them; 1 when any of them failed."""
    names = sys.argv[1:] or sorted(p.stem for p in FOLDER.glob("*.py") if not p.stem.startswith("_"))
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=FOLDER.parent, check=False)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
