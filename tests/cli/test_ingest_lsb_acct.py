"""`advisor ingest lsb.acct`, as an admin runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

RECORD = (
    '"JOB_FINISH" "10.1" {end} {job} 1000 33816578 1 1527326745 0 0 1527326746 "ann" "normal"'
    ' "rusage[mem=4]" "" "" "login1" "" "" "" "" "10/1527326745.7610" 0 1 "node1" 64 60.0 "" "sleep 1000"'
    " 1.5 0.5 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1"
    ' "" "default" 0 1 "" "" 0 2048 0 "" "" "" "" 0 "" 0 "" -1 "/ann" "" "" "" -1 "" "" 5136 "" 1527326746'
    ' "" "" 2 1032 "0" 1033 "0" 0 3600 64 2048 "select[type == any] " "" -1 "" -1 0 "" 0 0 "" 839 "" 0 ""'
    ' 0.000000 0.00 0.00 0.00 0.00 1 "node1" -1 0 0 0\n'
)


def advisor(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from advisor.cli.main import run; run()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "300"},
    )


def test_logdir_is_added_once_and_bad_input_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    acct = tmp_path / "lsb.acct"
    acct.write_text("".join(RECORD.format(job=i, end=1527330000 + i) for i in range(1, 31)) + "nonsense\n")
    done = advisor(
        "ingest", "lsb.acct", tmp_path, "--memory-unit", "gb", "--database", url, "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["jobs"] == 30
    (source,) = found["sources"]
    assert (source["source"], source["read"], source["added"], source["malformed"]) == ("lsf", 30, 30, 1)
    with acct.open("a") as more:
        more.write('"JOB_RESIZE" "10.1" 1527330000\n' + RECORD.format(job=31, end=1527330031) + '"JOB_FIN')
    again = advisor("ingest", "lsb.acct", acct, "--database", url)
    assert again.returncode == 0, again.stderr
    assert "lsf: 1 finished jobs read, 1 new" in again.stdout
    assert "1 records of other kinds were skipped" in again.stdout
    assert "the incomplete last line" in again.stdout
    assert "31 jobs in the history" in again.stdout

    settings = tmp_path / "advisor.toml"
    settings.write_text('[cluster]\nscheduler = "lsf"\n')
    own = advisor(
        "ingest", "lsb.acct", acct, "--config", settings, "--database", f"sqlite:///{tmp_path}/own.db"
    )
    assert "slurm: 31 finished jobs read" in own.stdout  # the name by which `advisor control` goes on

    other = f"sqlite:///{tmp_path}/other.db"
    for arguments, words in (
        ([acct, "--refuse-malformed"], ["lsb.acct, line 31", "Correct"]),
        ([tmp_path / "missing"], ["missing", "No such file"]),
    ):
        refused = advisor("ingest", "lsb.acct", *arguments, "--database", other)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "Traceback" not in refused.stderr
        for word in words:
            assert word in refused.stderr
