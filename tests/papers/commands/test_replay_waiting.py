"""``advisor replay waiting`` as it is typed, and the fields it prints."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from advisor.model.errors import BadInput
from tests.commands import app

runner = CliRunner()


def call(*arguments):
    return runner.invoke(app, list(map(str, arguments)), catch_exceptions=False)


def test_waiting_has_the_fields_of_the_contract(tmp_path):
    page = tmp_path / "waiting.html"
    options = ("--trace", "synthetic:1500:2", "--fixed-cores", 40, "--short", 600, "--longest-wait", 43200)
    result = call(
        "replay", "waiting", *options, "--capacity", "on-demand", "--plot", page, "--format", "json"
    )
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["fixed_cores"] == 40
    assert found["jobs"] == 1500
    assert found["seconds"] > 0
    named = {row["variant"] for row in found["rows"]}
    assert named >= {"oracle", "speculation+wait-model", "runtime-model", "all-wait", "none-wait"}
    for row in found["rows"]:
        assert set(row) >= {
            "variant",
            "ondemand_cost_share_of_fixed",
            "total_cost_vs_oracle",
            "mean_wait",
            "mean_wait_vs_oracle",
            "restarts",
        }
    assert set(found["wait_model"]["mcc"]) >= {"21600", "86400"}
    assert "Waiting policies on synthetic" in page.read_text()


def test_waiting_for_people():
    result = call("replay", "waiting", "--trace", "synthetic:600:2", "--fixed-cores", "optimal")
    assert result.exit_code == 0
    assert "speculation+wait-model" in result.stdout
    assert "Matthews" in result.stdout


@pytest.mark.parametrize("cores", ["0", "many", "-3", "1.5"])
def test_waiting_refuses_numbers_of_cores_that_are_none(cores):
    with pytest.raises(BadInput, match="cores"):
        call("replay", "waiting", "--trace", "synthetic:600", "--fixed-cores", cores)
