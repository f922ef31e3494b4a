"""``python -m advisor.rehearsal --trace LOG``: the shipped loops on a log, as JSON."""

from __future__ import annotations

import argparse
import json
import logging
import sys

import structlog

from advisor.rehearsal.shipped import VARIANTS, rehearse_shipped
from advisor.replay.closed_loop.log import loop_jobs
from advisor.replay.sources import load_table


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--budget-share", type=float, default=0.05)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    window = loop_jobs(load_table(asked.trace), skip=asked.skip, jobs=asked.jobs)
    found = rehearse_shipped(window, variants=asked.variants.split(","), budget_share=asked.budget_share)
    json.dump(found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
