"""The lab itself: what it refuses, and that nothing of it outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.model.errors import BadInput
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import is_alive, stop, wait_until

OWNER = """
import os, signal
from advisor.testing.lab import Lab
lab = Lab.temporary()
lab.start()
lab.sbatch(script="sleep 100")
print(lab.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def processes_of(folder: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if folder.encode() in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if is_alive(pid)]


@pytest.mark.slurm
def test_a_killed_owner_leaves_nothing_behind() -> None:
    done = subprocess.run([sys.executable, "-c", OWNER], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = done.stdout.strip()
    wait_until(lambda: not Path(folder).exists(), seconds=120, what="the folder is gone")
    wait_until(lambda: not processes_of(folder), seconds=120, what="all processes are gone")


@pytest.mark.slurm
def test_cloud_nodes_boot_and_jobs_run_there() -> None:
    with Lab.temporary(LabOptions(nodes=1, burst_nodes=1)) as lab:
        job = lab.sbatch("--partition=burst", script="sleep 0.1")
        assert lab.wait_for_jobs([job.job_id]) == {job.job_id: "COMPLETED"}
        assert lab.job(job.job_id)["BatchHost"] == "burst1"


def test_a_folder_too_deep_for_sockets(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="too long"):
        Lab(tmp_path / ("x" * 100)).start()


def test_a_pid_file_of_another_process_hits_nobody(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as innocent:
        try:
            (tmp_path / "old.pid").write_text(str(innocent.pid))
            stop([tmp_path / "old.pid"], mark=str(tmp_path))
            assert is_alive(innocent.pid)
            assert not (tmp_path / "old.pid").exists()
        finally:
            innocent.kill()
