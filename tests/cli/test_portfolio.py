"""What `advisor portfolio` and `advisor status` say of the policy in charge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from advisor.service.admin.status_words import portfolio_in_words
from advisor.service.exchange import status_file
from tests.commands import app
from tests.service.portfolio_world import PortfolioWorld, node, waiting

RUNNER = CliRunner()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "advisor.toml"
    path.write_text(f'[paths]\nstate = "{tmp_path}"\nrun = "{tmp_path}"\n', encoding="utf-8")
    return path


def written(folder: Path) -> PortfolioWorld:
    """The status of a site whose policy rents one node, and closes three."""
    world = PortfolioWorld(folder, leader="ODE-UNICEF-FirstFit")
    world.slurm.nodes["burst1"] = node("burst1", "ALLOCATED")
    world.slurm.add(waiting(1, limit=600.0), waiting(2, limit=60.0))
    world.tick()
    status_file.write(folder, {"time": world.clock.wall, "portfolio": world.loop.report()})
    return world


def test_policy_reason_and_everything_that_is_set_are_shown(tmp_path: Path, config: Path) -> None:
    world = written(tmp_path)
    done = RUNNER.invoke(app, ["portfolio", "show", "--config", str(config)])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    for words in (
        "ODE-UNICEF-FirstFit",
        "portfolio.leader names it",
        "1 up, 1 allowed, 3 closed by the reservation advisor_portfolio",
        "2 wait, 1 of them put first",
        "second: charged by the second, 60 s at least; an idle node is given back when no job waits",
        "advisor portfolio undo",
    ):
        assert words in text
    done = RUNNER.invoke(app, ["portfolio", "show", "--config", str(config), "--format", "json"])
    assert json.loads(done.output)["closed_nodes"] == ["burst2", "burst3", "burst4"]
    in_a_line = portfolio_in_words(dict(world.loop.report()))
    assert "ODE-UNICEF-FirstFit (portfolio.leader names it)" in in_a_line
    assert "billing: second" in in_a_line


def test_day_one_19_nothing_in_charge_is_a_state(tmp_path: Path, config: Path) -> None:
    status_file.write(tmp_path, {"time": 1.0, "portfolio": None})
    done = RUNNER.invoke(app, ["portfolio", "show", "--config", str(config)])
    assert done.exit_code == 0, "off is a state"
    assert "off: Slurm's own order" in done.output
    assert portfolio_in_words({"enabled": False}) == "off"


def test_a_policy_that_does_not_exist_is_refused(config: Path) -> None:
    config.write_text('[portfolio]\nleader = "ODA-LIFO-FirstFit"\n', encoding="utf-8")
    done = RUNNER.invoke(app, ["portfolio", "show", "--config", str(config)])
    assert "portfolio.leader" in str(done.exception)
