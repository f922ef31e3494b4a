"""`advisor ingest swf`, as an admin runs it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

LINE = "{0} {0} 5 100 4 -1 -1 8 3600 -1 1 7 3 2 1 0 -1 -1\n"


def advisor(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from advisor.cli.main import run; run()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "300", **environment},
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "site.swf"
    path.write_text("; UnixStartTime: 1000000000\n" + "".join(map(LINE.format, range(50))) + "a :x: line\n")
    return path


def test_a_log_is_added_once(tmp_path: Path, log: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    first = advisor("ingest", "swf", log, "--database", url, "--format", "json")
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert found["jobs"] == 50
    (source,) = found["sources"]
    assert (source["source"], source["read"], source["added"]) == ("swf:site", 50, 50)
    assert (source["malformed"], source["problems"]) == (1, ["line 52: 3 columns instead of 18: a :x: line"])
    again = advisor("ingest", "swf", log, "--database", url)
    assert again.returncode == 0
    assert "swf:site: 50 finished jobs read, 0 new" in again.stdout
    assert "line 52: 3 columns instead of 18: a :x: line" in again.stdout
    assert "50 jobs in the history" in again.stdout


def test_the_settings_say_where_the_history_is(tmp_path: Path, log: Path) -> None:
    done = advisor("ingest", "swf", log, ADVISOR_PATHS__STATE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "history.db").exists()


@pytest.mark.parametrize(("zone", "hours"), [("", 0), ("Z", 0), ("+02:00", 2)])
def test_the_first_time_to_read_is_of_its_own_zone_or_utc(tmp_path: Path, zone: str, hours: int) -> None:
    sacct, day = tmp_path / "sacct", datetime.now(UTC).replace(hour=12) - timedelta(days=2)
    columns = Path(__file__).parents[1] / "history" / "data" / "sacct-helpformat-22.05.txt"
    sacct.write_text(f"#!/bin/sh\n[ $1 = --helpformat ] && exec cat {columns}\necho $* >> {tmp_path}/calls\n")
    sacct.chmod(0o755)
    since, url = f"{day:%Y-%m-%dT%H:00:00}{zone}", f"sqlite:///{tmp_path}/history.db"
    done = advisor(
        "ingest", "sacct", "--since", since, "--database", url, ADVISOR_PATHS__SLURM_BIN=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "calls").read_text()
    assert f"--starttime={day - timedelta(hours=hours):%Y-%m-%dT%H:00:00}" in first


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_bad_input_is_told_with_place_and_mend(tmp_path: Path, log: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    refused(
        advisor("ingest", "swf", tmp_path / "no.swf", "--database", url), "no.swf", "No such file", "Check"
    )
    refused(
        advisor("ingest", "swf", log, "--refuse-malformed", "--database", url), "site.swf, line 52", "Correct"
    )
    missing = f"sqlite:///{tmp_path}/missing/history.db"
    refused(advisor("ingest", "swf", log, "--database", missing), "missing/history.db", "folder exists")
    refused(advisor("ingest", "swf", log, "--database", "nonsense"), "sqlite:////folder/history.db")


def test_a_database_that_may_only_be_read(tmp_path: Path, log: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    advisor("ingest", "swf", log, "--database", url)
    log.write_text(log.read_text() + LINE.format(99))
    read_only = f"sqlite:///file:{tmp_path}/history.db?mode=ro&uri=true"
    refused(advisor("ingest", "swf", log, "--database", read_only), "read-only", "write access")
    assert "1 new" in advisor("ingest", "swf", log, "--database", url).stdout


def test_a_locked_database_is_told_and_nothing_is_lost(tmp_path: Path, log: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    advisor("ingest", "swf", log, "--database", url)
    holder = sqlite3.connect(tmp_path / "history.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    log.write_text(log.read_text() + LINE.format(99))
    blocked = advisor("ingest", "swf", log, "--database", url, "--wait", "0.1")
    refused(blocked, "history.locked", "try again")
    holder.execute("ROLLBACK")
    holder.close()
    assert "1 new" in advisor("ingest", "swf", log, "--database", url).stdout
