"""What is said of a command of LSF that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.lsf.commands import LsfCommands
from advisor.lsf.installation import Installation
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
