"""What is damaged on the controller's own disk, as `advisor doctor` and `advisor status` say it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor.config import LoadedSettings, load
from advisor.config.loading import Origin
from advisor.model.settings import PathSettings, Settings
from advisor.service.admin.doctor import Diagnosis, Level, examine_service
from advisor.service.admin.status_report import status_report
from advisor.service.exchange import status_file
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.records import Training, Trainings
from advisor.service.state.state_files import TRAININGS
from tests.service.doubles import Hands

NOW = 1_800_000_000.0


def settings_in(folder: Path) -> Settings:
    (folder / "run").mkdir()
    return Settings(paths=PathSettings(state=folder, run=folder / "run"))


def origins() -> Mapping[str, Origin]:
    return load(None, {}).origins


def found(settings: Settings, check: str) -> list[Diagnosis]:
    loaded = LoadedSettings(settings=settings, origins=origins())
    return [item for item in examine_service(loaded, None) if item.check == check]


def troubles(settings: Settings, **said: Any) -> str:
    status_file.write(settings.paths.run, {"time": NOW, **said})
    return "\n".join(status_report(settings, NOW, {"running": False})["troubles"])


def test_d4_the_doctor_says_that_only_learning_stands_still(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "history.db").write_bytes(b"garbage" * 10_000)
    (item,) = found(settings, "history")
    assert item.level is Level.ERROR
    assert "Learning and the ledger pause until this is mended" in item.mend


def test_d3_d5_the_doctor_names_what_was_set_aside(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert found(settings, "state files") == []
    (tmp_path / "handover").mkdir()
    (tmp_path / "handover" / "0.json.bad").mkdir()
    (tmp_path / "budget.json.bad").touch()
    (item,) = found(settings, "state files")
    assert (item.level, "budget.json.bad" in item.what) == (Level.WARNING, True)
    assert "budget.json: Nothing is launched while a budget is set" in item.what
    assert any("1 hand-overs were set aside" in item.what for item in found(settings, "control socket"))


def test_d3_the_doctor_sees_a_damaged_file_before_control_starts_without_it(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "budget.json").write_text("{")
    (tmp_path / "lives.json").write_text("{}")
    (item,) = found(settings, "state files")
    assert item.level is Level.ERROR
    assert str(tmp_path / "budget.json") in item.what
    assert "Nothing is launched while a budget is set" in item.mend


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as another user")
def test_the_doctor_sees_a_file_that_root_has_restored(open_folder: Path) -> None:
    settings = settings_in(open_folder)
    (open_folder / "pools.json").write_text("{}")
    (open_folder / "pools.json").chmod(0o600)
    os.seteuid(65534)
    try:
        items = found(settings, "state files")
    finally:
        os.seteuid(0)
    (item,) = items
    assert item.level is Level.ERROR
    assert "chown it" in item.what


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (Training(began=1e9, ended=1e9 + 60.0, failed="MemoryError: "), "MemoryError"),
        (Training(began=time.time() - 5 * 3600.0), "it did not end"),
        (Training(began=time.time() - 60.0), ""),
        (Training(began=1e9, ended=1e9 + 60.0, refused="it classes worse"), ""),
    ],
)
def test_the_doctor_names_a_weekly_training_that_has_failed(tmp_path: Path, run: Training, said: str) -> None:
    settings = settings_in(tmp_path)
    TRAININGS.at(tmp_path).write(Trainings({"retrain": run}))
    items = found(settings, "trainings")
    assert [item.level for item in items] == [Level.WARNING] * bool(said)
    assert all(said in item.what for item in items)


def test_d4_the_status_says_what_goes_on(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    failure = {"code": "history.database", "message": "history.db: damaged"}
    loops = {"learn": {"open_failures": {"learn ends": failure, "note costs": failure}}}
    said = troubles(settings, history_problem="history.db: damaged", loops=loops)
    assert said.count("history.db: damaged") == 1
    assert "nodes are still started and ended" in said


def test_d3_d5_the_status_says_what_is_damaged(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    spend = {"launches_wait": True, "in_doubt": "budget.json was damaged", "spent_today_usd": 0.0}
    counters = {"handovers_stuck": ["0.json"]}
    said = troubles(settings, cloud_report={"spend": spend, "counters": counters})
    assert "nothing is launched until it is known what was spent: budget.json was damaged" in said
    assert "by hand: 0.json" in said
    spend = {"launches_wait": False, "rebuilt_today": "budget.json was damaged", "spent_today_usd": 7.5}
    said = troubles(settings, cloud_report={"spend": spend, "counters": {}})
    assert "budget.json was damaged: today's spending was estimated anew (7.50 USD)" in said


def test_d5_a_damaged_record_of_boots_lets_one_fail(tmp_path: Path) -> None:
    (tmp_path / "cloud.json").write_text("half a {")
    record = CloudRecord(tmp_path, Hands().clock)
    assert (tmp_path / "cloud.json.bad").exists()
    assert record.protected == ""
    record.boot_failed(1)
    assert record.protected


def test_while_nothing_can_be_written_no_job_is_sent_to_the_cloud(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    CloudRecord(folder, Hands().clock).budget.rebuild([], [], None)
    record = CloudRecord(folder, Hands().clock)
    folder.rename(tmp_path / "away")
    record.budget.count([])
    assert record.protected == f"{folder}/budget.json cannot be written (No such file or directory)"
    (tmp_path / "away").rename(folder)
    record.budget.count([])
    assert record.protected == ""


def test_the_doctor_says_that_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_in(tmp_path)
    assert {item.level for item in found(settings, "folders")} == {Level.OK}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=400_000))
    item = found(settings, "folders")[0]
    assert (item.level, item.what) == (Level.ERROR, f"the disk of {tmp_path} has only 0.4 MB left")
    assert "go on by themselves" in item.mend


def test_the_doctor_does_not_say_that_it_has_set_a_file_aside(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "drift.json").write_text("{")
    (item,) = found(settings, "drift")
    assert (tmp_path / "drift.json").exists()
    assert "docs/state-files.md" in item.what
    assert "kept" not in item.what
