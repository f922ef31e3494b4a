"""`advisor control` put together: what its parts offer is connected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.model.settings import AcquirerSettings, PathSettings, PortfolioSettings, Settings
from advisor.service.cloud.interrupting import SpotParts
from advisor.service.control.wiring import Control
from tests.service.doubles import FakeFleet, FakeSlurm


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    control = make_control(tmp_path)
    yield control
    control.store.close()


def make_control(tmp_path: Path) -> Control:
    for name in ("models", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    settings = Settings(
        paths=PathSettings(state=tmp_path, run=tmp_path / "run"),
        portfolio=PortfolioSettings(enabled=True),
        acquirer=AcquirerSettings(kept_nodes=1),
    )
    anything: Any = FakeSlurm()
    return Control(
        settings,
        slurm=anything,
        fleet=FakeFleet(),
        spot=SpotParts(source=anything, jobs=anything),
        places=anything,
        steering=anything,
        wishes=anything,
    )


def test_d4_a_damaged_history_is_told_and_hinders_nothing_but_learning(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"garbage" * 10_000)
    control = make_control(tmp_path)
    control._prepare_knowledge()
    control.folder.prepare()
    learn, provision = control.runners["learn"], control.runners["provision"]
    assert not learn.run_once()
    assert provision.run_once()
    said = control.status()["history_problem"]
    assert "not an SQLite database" in said
    assert "\nadvisor_history_usable 0.0\n" in control.metrics.exposition(lambda: "").decode()
    path.rename(tmp_path / "aside")
    learn.run_once()
    assert control.status()["history_problem"] is None
    assert "\nadvisor_history_usable 1.0\n" in control.metrics.exposition(lambda: "").decode()
    assert not control.is_outdated  # it knew of no other one
    path.rename(tmp_path / "aside too")
    learn.run_once()
    assert control.is_outdated
    control.store.close()


def test_d4_whatever_a_damaged_history_holds_control_starts(tmp_path: Path) -> None:
    control = make_control(tmp_path)

    def garbage() -> None:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    control.knowledge.prepare = garbage  # type: ignore[method-assign]
    control._prepare_knowledge()
    control.store.close()


def test_whoever_has_gauges_is_on_the_page(control: Control) -> None:
    parts = {name: part for name, part in vars(control).items() if hasattr(part, "gauges")}
    assert parts.keys() == {"placement", "watch", "portfolio", "match", "acquire"}
    page = control.metrics.exposition(lambda: "").decode()
    for part in parts.values():
        for name in part.gauges():
            assert f"\nadvisor_{name} " in page, name


def test_whoever_reports_is_in_the_status(control: Control) -> None:
    status = control.status()
    parts = {name: part for name, part in vars(control).items() if hasattr(part, "report")}
    named = {
        "placement": "placement",
        "watch": "places",
        "portfolio": "portfolio",
        "asking": "asking_again",
        "hedges": "hedge_budget",
    } | {
        "match": "matching",
        "acquire": "acquirer",
    }
    assert parts.keys() == named.keys()
    for name, part in parts.items():
        assert status[named[name]] == part.report(), name


def test_every_loop_runs(control: Control) -> None:
    loops = {part.name for part in vars(control).values() if hasattr(part, "steps")}
    assert loops <= control.runners.keys()
    assert control.runners.keys() - loops == {
        "provision",
        "reconcile",
        "interruptions",
        "notices",
        "portfolio judge",
    }
