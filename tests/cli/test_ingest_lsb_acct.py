"""`advisor ingest lsb.acct`, as an admin runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from advisor.history.store import HistoryStore
from advisor.testing.lsf_stand_in import LsfStandIn, StandInQueue

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


def test_what_the_records_of_this_cluster_do_not_say_is_asked_of_lsf(tmp_path: Path) -> None:
    """`advisor control` goes on with what this has read, and asks forecasts about jobs with such limits."""
    queues = (StandInQueue(name="normal", hosts=("a",), is_default=True, minutes=(90, 600)),)
    config, url = tmp_path / "advisor.toml", f"sqlite:///{tmp_path}/own.db"
    with LsfStandIn(tmp_path / "lsf", hosts={"a": 1}, queues=queues) as lsf:
        envdir = lsf.environment_folder
        (envdir / "lsf.conf").write_text((envdir / "lsf.conf").read_text().replace("=MB", "=GB"))
        record = RECORD.format(job=1, end=1527330001).replace(" 0 3600 64 ", " 0 -1 64 ")
        (lsf.log_folder / "lsb.acct").write_text(record)
        config.write_text(f'[cluster]\nscheduler = "lsf"\n[paths]\nlsf_envdir = "{envdir}"\n')
        done = advisor("ingest", "lsb.acct", lsf.log_folder, "--config", config, "--database", url)
    assert done.returncode == 0, done.stderr
    with HistoryStore(url) as store:
        (ended,) = store.outcomes()
    assert (ended.job.requested_time, ended.job.memory_mb) == (5400.0, 4096)
