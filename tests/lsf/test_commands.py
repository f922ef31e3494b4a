"""What is said of a command of LSF that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.lsf.commands import LsfCommands
from advisor.lsf.installation import Installation, read_installation
from advisor.model.errors import RetryLater


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
