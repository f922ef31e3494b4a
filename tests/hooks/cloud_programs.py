"""The programs that slurmctld calls for cloud nodes, installed and called as it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

_HOOKS = Path(__file__).resolve().parents[2] / "slurm_hooks"


def installed_programs(tmp_path: Path) -> Path:
    """Programs with their settings beside them, for a control process in ``tmp_path``."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("resume", "suspend", "resume_fail", "prolog_slurmctld"):
        text = (_HOOKS / name).read_text()
        (folder / name).write_text(text.replace("#!/usr/bin/python3 -IS", f"#!{sys.executable} -IS", 1))
        (folder / name).chmod(0o755)
    (folder / "advisor_programs.conf").write_text(
        f"control_socket = {tmp_path}/control.sock\n"
        f"handover_folder = {tmp_path}/handover\n"
        f"log_file = {tmp_path}/programs.log\n"
        "answer_seconds = 0.3\n"
        f"sinfo = {tmp_path}/sinfo\n"
        "poll_seconds = 0\n"
    )
    return folder


def as_slurmctld(program: Path, *arguments: str, env: dict[str, str] | None = None) -> int:
    """Run a program with descriptors 0 to 2 closed, every signal blocked and next to no environment."""

    def deprive() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        for descriptor in range(3):
            os.close(descriptor)

    return subprocess.run(
        [program, *arguments], env=env or {}, preexec_fn=deprive, check=False, timeout=30
    ).returncode
