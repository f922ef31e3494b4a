"""Record what this machine's Slurm answers, as fixtures of ``test_parsing``.

``python -m tests.slurm.record_answers`` makes the same jobs with the same ids on every release, in a lab, and
writes to ``fixtures/RELEASE``.
"""

from __future__ import annotations

import time
from pathlib import Path

from advisor.slurm import parsing
from advisor.slurm.commands import Commands
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.lab_processes import wait_until
from tests.slurm.test_parsing import FIXTURES, layout

HOSTILE = 'evil\nname %i "q" = x'


def make_jobs(lab: Lab) -> None:
    """Jobs 1 to 12; see ``test_parsing`` for what is special about each."""
    lab.sbatch("-n2", "-t5", "--job-name", HOSTILE, "--comment", "a=b\n|c", script="sleep 250")
    lab.run("scontrol", "update", "jobid=1", 'admincomment={"advice":"abc","x":1}')
    lab.sbatch("--array=1-19%3", "--hold", script="sleep 250")
    lab.sbatch("-n3", "--hold")
    others = [lab.sbatch("--hold").job_id for _ in range(2)]
    lab.run("scontrol", "release", "2")
    wait_until(lambda: shown(lab, "2_3") == "RUNNING", seconds=60, what="three tasks run")
    lab.run("scancel", "2_1", "2_2", *map(str, others))
    wait_until(lambda: shown(lab, "2_5") == "RUNNING", seconds=90, what="three other tasks run")
    lab.sbatch(
        "--partition=onprem,burst", "--begin=now+1hour", "--constraint=onprem&x86", "--comment=no-burst"
    )
    lab.sbatch("--dependency=afterok:1", "--no-requeue", "-N2", "-n6", "--exclusive")


def shown(lab: Lab, task: str) -> str:
    return lab.run("squeue", "-h", "-j", task, "-o", "%T", check=False).stdout.strip()


def main() -> None:
    options = LabOptions(suspend_seconds=60, resume_timeout_seconds=30, priority_type="priority/basic")
    with Lab.temporary(options) as lab:
        make_jobs(lab)
        lab.run("scontrol", "update", "nodename=burst3", "state=drain", 'reason=bad = disk, "really"')
        time.sleep(3)  # the scheduler's view of the last jobs
        commands = Commands(Path("/usr/bin"), lab.conf)
        asked = commands.text
        jobs = layout(parsing.columns_of(parsing.JOB_COLUMNS, commands.release()))
        nodes = layout(parsing.NODE_COLUMNS)
        version = asked("scontrol", "--version")
        answers = {
            "version.txt": version,
            "squeue.txt": asked("squeue", "--noheader", "--all", f"--Format={jobs.argument}"),
            "sinfo.txt": asked("sinfo", "--noheader", "--all", "--Node", f"--Format={nodes.argument}"),
            "partitions.txt": asked("scontrol", "--oneliner", "--all", "show", "partitions"),
            "config.txt": asked("scontrol", "show", "config").replace(str(lab.folder), "/var/lab"),
        }
    folder = FIXTURES / ".".join(version.split()[1].split(".")[:2])
    folder.mkdir(exist_ok=True)
    for name, text in answers.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
