"""What is said of a command of LSF that fails, and what lsf.conf says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from advisor.files.state_file import StateFile
from advisor.lsf.backend import LsfBackend
from advisor.lsf.commands import LsfCommands
from advisor.lsf.installation import Installation, read_installation
from advisor.lsf.kept_advice import AdviceOfLiveJobs
from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.slurm.steering import idle_seconds


@pytest.mark.parametrize("said", ["", "ls_gethostinfo(): Unable to contact LIM"])
def test_nobody_is_sent_to_scontrol(tmp_path: Path, said: str) -> None:
    bhosts = tmp_path / "bhosts"
    bhosts.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 255\n")
    bhosts.chmod(0o755)
    commands = LsfCommands(Installation(environment_folder=tmp_path, commands=tmp_path, log_folder=tmp_path))
    with pytest.raises(RetryLater, match="Run `bqueues` as the user of this service") as caught:
        commands.text("bhosts")
    assert caught.value.code == "lsf.command_failed"


def test_comments_behind_values_of_lsf_conf_are_none_of_them(tmp_path: Path) -> None:
    """With the wrong unit a job's 4 GB of memory would be 4 MB."""
    (tmp_path / "work" / "logdir").mkdir(parents=True)
    (tmp_path / "work" / "logdir" / "lsb.events").touch()
    (tmp_path / "lsf.conf").write_text(
        f'# the site\'s\nLSF_BINDIR="/opt/lsf #1/bin"  # commands\nLSB_SHAREDIR={tmp_path}/work\t# on NFS\n'
        "LSF_UNIT_FOR_LIMITS=GB # since 2024\n"
    )
    found = read_installation(tmp_path, "any")
    assert (found.commands, found.log_folder) == (Path("/opt/lsf #1/bin"), tmp_path / "work" / "logdir")
    assert found.memory_unit == "GB"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("", 3600.0), ("IDLE_TIME=10", 600.0), ("IDLE_TIME=0", math.inf), ("IDLE_TIME=x", 3600.0)],
)
def test_how_long_a_host_costs_money_after_its_last_job(tmp_path: Path, said: str, seconds: float) -> None:
    """Under a budget each host is promised that: LSF's resource connector keeps it for an hour by default."""
    (tmp_path / "work" / "logdir").mkdir(parents=True)
    (tmp_path / "work" / "logdir" / "lsb.events").touch()
    line = f"LSB_RC_EXTERNAL_HOST_{said}\n" if said else ""
    (tmp_path / "lsf.conf").write_text(f"LSF_BINDIR={tmp_path}\nLSB_SHAREDIR={tmp_path}/work\n{line}")
    kept = StateFile(tmp_path / "kept.json", AdviceOfLiveJobs)
    config = LsfBackend(Settings(), read_installation(tmp_path, "any"), kept).config()
    assert idle_seconds(None, config) == seconds
