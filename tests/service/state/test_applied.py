"""Settings applied from the pages or the command line: written, remembered, taken back."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from advisor.config import load
from advisor.model.errors import BadInput, RetryLater
from advisor.service.state.applied import SettingsHistory
from advisor.service.state.records import APPLIED_NAME

FILE = '# ours\n[budget]\nusd = 500.0  # until May\n\n[cluster]\nname = "hpc"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "advisor.toml"
    path.write_text(FILE)
    (tmp_path / "state").mkdir()
    return path


@pytest.fixture
def history(path: Path) -> SettingsHistory:
    return SettingsHistory(path, path.parent / "state")


def apply(history: SettingsHistory, changes: dict[str, object], reason: str = "a try") -> int:
    return history.apply(changes, author="ann", reason=reason, now=1.0).number


def test_what_is_applied_stands_in_the_file_and_in_the_history(path: Path, history: SettingsHistory) -> None:
    changes = {"budget.usd": 800.0, "price.uncertainty_limit_minutes": 30.0}
    assert apply(history, changes, " more  for the \n deadline") == 1
    assert "usd = 800.0  # until May" in path.read_text()
    assert load(path, {}).settings.price.uncertainty_limit_minutes == 30.0
    (entry,) = SettingsHistory(path, path.parent / "state").entries()
    assert (entry.author, entry.reason, entry.time) == ("ann", "more for the deadline", 1.0)
    assert [(one.key, one.before, one.after) for one in entry.changes] == [
        ("budget.usd", "500.0", "800.0"),
        ("price.uncertainty_limit_minutes", None, "30.0"),
    ]


def test_an_undo_leaves_the_file_as_it_was(path: Path, history: SettingsHistory) -> None:
    number = apply(history, {"budget.usd": math.inf, "cluster.modes": {"main": "act"}} | {"budget.usd": 1.5})
    undone = history.to_undo(number)
    assert undone == {"budget.usd": 500.0, "cluster.modes": None}
    history.apply(undone, author="kim", reason="undo", now=2.0, undoes=number)
    assert path.read_text().rstrip() == FILE.rstrip()
    assert [entry.undoes for entry in history.entries()] == [None, 1]


def test_a_second_writer_waits_and_then_says_why_it_did_nothing(
    path: Path, history: SettingsHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.service.state.applied._PATIENCE_SECONDS", 0.2)
    other = SettingsHistory(path, path.parent / "state")
    with history.alone():
        with pytest.raises(RetryLater, match=f"lslocks.*{path.parent / 'state'}"):
            apply(other, {"budget.usd": 1.0})
        assert apply(history, {"budget.usd": 2.0}) == 1  # the one that has the lock may write
    assert apply(other, {"budget.usd": 3.0}) == 2


def test_infinity_is_remembered_as_such(history: SettingsHistory) -> None:
    apply(history, {"price.uncertainty_limit_minutes": math.inf})
    number = apply(history, {"price.uncertainty_limit_minutes": 5.0})
    assert history.to_undo(number) == {"price.uncertainty_limit_minutes": math.inf}


def test_a_number_written_by_hand_without_a_point_is_no_later_change(
    path: Path, history: SettingsHistory
) -> None:
    """`budget set` knows 500 as 500.0; the file keeps what stands there."""
    path.write_text("[budget.accounts]\nbio = 500\n")
    before = path.read_text()
    history.apply({"budget.accounts": {"bio": 500.0, "chem": 5.0}}, author="a", reason="a try", now=1.0)
    history.apply(history.to_undo(1), author="a", reason="undo", now=2.0, undoes=1)
    assert path.read_text() == before


def test_what_was_changed_since_is_not_undone(path: Path, history: SettingsHistory) -> None:
    number = apply(history, {"budget.usd": 800.0})
    path.write_text(path.read_text().replace("800.0", "900.0"))
    with pytest.raises(BadInput, match="changed after"):
        history.to_undo(number)
    with pytest.raises(BadInput, match="no change 9"):
        history.to_undo(9)


@pytest.mark.parametrize(
    ("changes", "reason", "code"),
    [
        ({"budget.usd": 500.0}, "same", "config.unchanged"),
        ({"budget.usd": 800.0}, "  ", "config.reason"),
        ({"budget.usd": 800.0}, "x" * 301, "config.reason"),
        ({"budget.usd": 800.0}, "a\x1b[31mb", "config.reason"),
        ({"budget.usd": -1.0}, "wrong", None),
        ({"budget.euros": 1.0}, "unknown", None),
    ],
)
def test_what_is_refused_changes_nothing(
    path: Path, history: SettingsHistory, changes: dict[str, object], reason: str, code: str | None
) -> None:
    with pytest.raises(BadInput) as caught:
        apply(history, changes, reason)
    assert code is None or caught.value.code == code
    assert path.read_text() == FILE
    assert history.entries() == ()


def test_a_history_that_cannot_be_written_leaves_the_file_as_it_was(
    path: Path, history: SettingsHistory
) -> None:
    (path.parent / "state" / APPLIED_NAME).parent.write_text("no folder")
    with pytest.raises(BadInput) as caught:
        apply(history, {"budget.usd": 800.0})
    assert caught.value.code == "config.history"
    assert path.read_text() == FILE


def test_where_the_history_is_full_nothing_of_the_change_stays(path: Path, history: SettingsHistory) -> None:
    (path.parent / "state" / "web").write_text("in the way")
    with pytest.raises(BadInput, match="nothing was changed"):
        apply(history, {"price.uncertainty_limit_minutes": 30.0})  # the file has no such section
    assert path.read_text() == FILE
    assert list(path.parent.glob("advisor.toml?*")) == []  # no copy of what was never in force
    path.unlink()
    with pytest.raises(BadInput, match="nothing was changed"):
        apply(history, {"price.uncertainty_limit_minutes": 30.0})
    assert not path.exists()


def test_a_password_is_not_kept_and_cannot_be_brought_back(path: Path, history: SettingsHistory) -> None:
    url = "postgresql://advisor:{}@db/history"
    apply(history, {"paths.database_url": url.format("first")})
    number = apply(history, {"paths.database_url": "sqlite:////tmp/history.db"})
    assert "first" not in (path.parent / "state" / APPLIED_NAME).read_text()
    with pytest.raises(BadInput, match="had a password"):
        history.to_undo(number)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_belongs_to_the_owner_of_the_folder(path: Path, history: SettingsHistory) -> None:
    state = path.parent / "state"
    os.chown(state, 65534, 65534)
    apply(history, {"budget.usd": 800.0})
    file = state / APPLIED_NAME
    assert [one.stat().st_uid for one in (file, file.parent)] == [65534, 65534]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as another user")
def test_changes_that_this_user_may_not_read_are_not_lost(open_folder: Path) -> None:
    file = open_folder / "advisor.toml"
    file.write_text(FILE)
    history = SettingsHistory(file, open_folder)
    apply(history, {"budget.usd": 800.0})
    kept = open_folder / APPLIED_NAME
    kept.chmod(0o600)
    for folder in (open_folder, kept.parent):  # the folder is open to all: the file could be set aside
        folder.chmod(0o777)
    os.seteuid(65534)
    try:
        with pytest.raises(BadInput, match="Run the command as the service's user"):
            history.entries()
    finally:
        os.seteuid(0)
    assert [path.name for path in kept.parent.iterdir() if path.suffix == ".bad"] == []
    assert [one.number for one in history.entries()] == [1]
