"""``python -m benchmarks.hedge --help``: how many pairs, which stream, how much slower."""

import argparse
import sys

from advisor.testing.bench.hedge import run

if __name__ == "__main__":
    from benchmarks.__main__ import write

    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stretch", type=float, default=1.0)
    parser.add_argument("--kill-every", type=float, default=20.0, metavar="SECONDS", help="inf: never")
    given = parser.parse_args()
    result = run(
        pairs=given.pairs,
        seed=given.seed,
        stretch=given.stretch,
        kill_watcher_every=given.kill_every,
        tell=lambda line: print(line, file=sys.stderr),
    )
    write("hedge", result)
