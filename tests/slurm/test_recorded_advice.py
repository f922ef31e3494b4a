"""What a real Slurm says of a job's kind, by the ids that its users type."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.slurm.commands import Commands
from advisor.slurm.recorded_advice import record_in_slurm
from advisor.testing.lab import Lab, LabOptions


@pytest.mark.slurm
def test_day_one_6_slurm_tells_parts_of_a_heterogeneous_job_from_tasks_of_an_array() -> None:
    with Lab.temporary(LabOptions(nodes=1, burst_nodes=1)) as lab:
        commands = Commands(Path("/usr/bin"), lab.conf)
        done = lab.run("sbatch", "--parsable", "-n1", "--hold", "--wrap", "true", ":", "-n1")
        leader = int(done.stdout.split(";")[0])
        for name in (f"{leader}", f"{leader}+1", f"{leader + 1}"):
            word = record_in_slurm(commands, name)
            assert (word.is_known, word.het_job_id, word.recorded) == (True, leader, None), name
        array = int(lab.run("sbatch", "--parsable", "--array=1-2", "--hold", "--wrap", "true").stdout)
        comment = (
            '{"burst_advisor":1,"id":"a-1","to":"burst","mode":"act","why":"capacity.spot","size":"small"}'
        )
        lab.run("scontrol", "update", f"jobid={array}", f"admincomment={comment}")
        for name in (f"{array}", f"{array}_2"):
            word = record_in_slurm(commands, name)
            assert word.het_job_id is None, name
            assert word.recorded is not None, name
            assert word.recorded.advice_id == "a-1"
        assert record_in_slurm(commands, "999999").is_known is False
