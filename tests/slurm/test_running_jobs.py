"""The signal a job asked for, read where its user wrote it."""

from __future__ import annotations

import pytest

from advisor.slurm.running_jobs import AskedSignal, asked_signal, parse_signal

USR1 = AskedSignal(name="USR1", to_batch_shell=False)
SHELL = AskedSignal(name="USR1", to_batch_shell=True)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("USR1", USR1),
        ("SIGUSR1@60", USR1),
        ("B:USR1@60", SHELL),
        ("RB:usr1@300", SHELL),
        ("R:USR1", USR1),
        ("10", AskedSignal(name="10", to_batch_shell=False)),
        ("", None),
        ("USR1;rm", None),
        ("--batch", None),
    ],
)
def test_values(text: str, asked: AskedSignal | None) -> None:
    assert parse_signal(text) == asked


@pytest.mark.parametrize(
    ("line", "script", "asked"),
    [
        ("sbatch --signal=USR1@60 job.sh", "", USR1),
        ("sbatch --signal B:USR1 -p burst job.sh", "", SHELL),
        ("sbatch -p burst --signal=B:USR1@10 job.sh", "#!/bin/sh\n#SBATCH --signal=TERM\n", SHELL),
        ("sbatch job.sh --signal=USR1", "", None),
        ("sbatch job.sh", "#!/bin/sh\n#SBATCH -n 1\n#SBATCH --signal=B:USR1@60\nsleep 1\n", SHELL),
        ("sbatch job.sh", "#!/bin/sh\nsleep 1\n#SBATCH --signal=B:USR1@60\n", None),
        ("sbatch job.sh", "#!/bin/sh\n\n# words\n#SBATCH --signal USR1  # why\n", USR1),
        ("sbatch --wrap='echo \"open", "#!/bin/sh\n#SBATCH --comment='x\n#SBATCH --signal=USR1", USR1),
        ("", "", None),
    ],
)
def test_the_command_line_wins(line: str, script: str, asked: AskedSignal | None) -> None:
    assert asked_signal(line, script) == asked
