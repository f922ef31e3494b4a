"""How much code a reader of the hot path opens: the modules that run from the socket to the reply."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
MOST = 25
"""Modules for jobs that stay or move, on a site that has learned what it can, without the size class."""
OF_THE_SIZE_CLASS = 4


def test_from_the_socket_to_the_reply_few_modules_run() -> None:
    command = (sys.executable, "-m", "tests.service.submit.hot_path")
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=120)
    found: dict[str, tuple[str, list[str]]] = json.loads(ran.stdout)
    replies = {name: reply.split("\t") for name, (reply, _) in found.items()}
    moved = {name: fields[3] for name, fields in replies.items()}
    assert moved == {
        "stays": "",
        "moves whole": "burst",
        "moves in a slice": "burst",
        "is bound by a rule": "",
        "is small": "burst",
    }
    told = {name: fields[-1] for name, fields in replies.items()}
    assert '"why":"turnaround.saves_no_time"' in told["stays"]
    assert '"hedge":["slice"' in told["moves in a slice"]
    assert '"hedge"' not in told["moves whole"]
    assert '"why":"rule.opt_out_comment"' in told["is bound by a rule"]
    assert '"size":"small"' in told["is small"]
    of_size = set(found.pop("is small")[1])
    modules = {module for _, ran_modules in found.values() for module in ran_modules}
    # the first and the last of the path, and code that is compiled
    for known in ("service/submit/server.py", "service/exchange/protocol.py", "predict/run_times/_pool.py"):
        assert f"advisor/{known}" in modules
    assert len(modules) <= MOST, sorted(modules)
    assert len(of_size - modules) <= OF_THE_SIZE_CLASS, sorted(of_size - modules)
