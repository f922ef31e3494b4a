"""``advisor init``: what is written, and what is never replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from advisor.cli import init as command
from advisor.config import load
from advisor.config.editing import former_of
from advisor.model.errors import BadInput, RetryLater
from advisor.model.snapshot import Partition
from advisor.service.admin.found_site import FoundSite
from tests.commands import app
from tests.service.doubles import make_node


@pytest.fixture(autouse=True)
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = FoundSite(
        config={
            "ClusterName": "c1",
            "SLURM_CONF": str(tmp_path / "slurm.conf"),
            "JobSubmitPlugins": "(null)",
        },
        partitions=(Partition(name="work", is_up=True, nodes="n1", total_processors=4, is_default=True),),
        nodes=(make_node("n1", partitions=("work",)),),
        slurm_bin=tmp_path / "bin",
    )
    monkeypatch.setattr(command, "ask_slurm", lambda _folder: site)


def test_g20_8_the_file_is_good_and_what_is_left_is_said(tmp_path: Path) -> None:
    path = tmp_path / "advisor.toml"
    umask = os.umask(0o077)  # a hardened host's
    try:
        done = CliRunner().invoke(app, ["init", "--output", str(path), "--format", "json"])
    finally:
        os.umask(umask)
    assert done.exit_code == 0, done.output
    settings = load(path, {}).settings
    assert (settings.cluster.name, settings.cluster.hook) == ("c1", False)
    assert settings.cluster.on_premise_partitions == ("work",)
    assert path.stat().st_mode & 0o777 == 0o644
    said = json.loads(done.stdout)
    assert said["settings"]["cluster.name"] == "c1"
    assert any("cloud nodes" in note for note in said["notes"])
    assert said["findings"], "no Slurm answers here"


def test_a_file_that_exists_is_replaced_only_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "advisor.toml"
    path.write_text("# ours\n")
    refused = CliRunner().invoke(app, ["init", "--output", str(path)])
    assert isinstance(refused.exception, BadInput)
    assert path.read_text() == "# ours\n"
    shown = CliRunner().invoke(app, ["init", "--output", str(path), "--dry-run"])
    assert 'name = "c1"' in shown.stdout
    assert path.read_text() == "# ours\n"
    assert CliRunner().invoke(app, ["init", "--output", str(path), "--force"]).exit_code == 0
    assert load(path, {}).settings.cluster.name == "c1"
    assert former_of(path).read_text() == "# ours\n"


def test_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["init", "--output", str(tmp_path / "none" / "advisor.toml")])
    assert isinstance(done.exception, BadInput)
    assert "folder" in str(done.exception)


def test_a_host_without_slurm_is_told_where_to_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(_folder: Path | None) -> FoundSite:
        raise RetryLater(
            "scontrol ended with 1: scontrol: fatal: no configuration", code="slurm.command_failed"
        )

    monkeypatch.setattr(command, "ask_slurm", no_answer)
    done = CliRunner().invoke(app, ["init", "--output", str(tmp_path / "advisor.toml")])
    assert isinstance(done.exception, BadInput)
    assert "no configuration" in done.exception.what
    assert "SLURM_CONF" in done.exception.mend
