"""The mean life of a site's spot nodes, and the command that plans with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from advisor.cli.main import app
from advisor.model.settings import Settings
from advisor.papers.waiting.spot_life import MIN_TAKEN, lives_of, mean_life_seconds
from advisor.predict.survival.pool_survival import Life
from advisor.service.state.records import EndedLife, Lives
from advisor.service.state.state_files import LIVES


def lives(count: int, *, mean: float, kept_for: float, seed: int = 1) -> list[Life]:
    """Nodes that would live so long on average; we give each back after a while."""
    lived = np.random.default_rng(seed).exponential(mean, count)
    return [
        Life(pool="p", start=100.0, end=100.0 + min(own, kept_for), was_taken=bool(own < kept_for))
        for own in lived
    ]


def test_nodes_we_gave_back_count_for_as_long_as_we_had_them() -> None:
    assert mean_life_seconds(lives(20_000, mean=7200.0, kept_for=3600.0)) == pytest.approx(7200.0, rel=0.05)


def test_too_few_say_nothing() -> None:
    some = lives(MIN_TAKEN - 1, mean=1.0, kept_for=1e9)
    assert mean_life_seconds(some) is None
    assert mean_life_seconds([]) is None
    assert mean_life_seconds([*some, *lives(1, mean=1.0, kept_for=1e9, seed=2)]) is not None


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "advisor.toml"
    path.write_text(f'[paths]\nstate = "{tmp_path}"\n', encoding="utf-8")
    return path


def plan(config: Path, *more: str) -> dict[str, object]:
    arguments = ["plan", "--trace", "synthetic:1500:2", "--node-cores", "8", "--format", "json"]
    result = CliRunner().invoke(app, [*arguments, "--config", str(config), *more])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_a_plan_takes_the_sites_own_where_it_is_known(config: Path, tmp_path: Path) -> None:
    settings = Settings.model_validate({"paths": {"state": str(tmp_path)}})
    assert lives_of(settings) == []
    found = plan(config)
    assert (found["spot_mean_hours"], found["spot_mean_from"]) == (24.0, "default")
    ended = [
        EndedLife("p", life.start, life.end, life.was_taken) for life in lives(200, mean=3600.0, kept_for=1e9)
    ]
    LIVES.at(tmp_path).write(Lives(ended=ended))
    known = mean_life_seconds(lives_of(settings))
    assert known == pytest.approx(3600.0, rel=0.2)
    found = plan(config)
    assert (found["spot_mean_hours"], found["spot_mean_from"]) == (pytest.approx(known / 3600.0), "site")
    told = plan(config, "--spot-mean-hours", "5")
    assert (told["spot_mean_hours"], told["spot_mean_from"]) == (5.0, "option")
