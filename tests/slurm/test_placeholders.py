"""What slurmctld shows of a job that it killed in order to requeue it, once it has forgotten the requeue."""

from __future__ import annotations

from typing import Any, cast

import pytest

from advisor.slurm.placeholders import Placeholders


class Squeue:
    """Answers as slurmctld 22.05 did about job 2, with the columns that are asked for."""

    def __init__(self, **shown: str) -> None:
        self.shown = {"JobID": "2", "State": "FAILED", "Partition": "burst", "RestartCnt": "0", **shown}

    def text(self, *command: str) -> str:
        assert "--states=FAILED" in command
        pairs = (column.split(":") for column in command[-1].removeprefix("--Format=").split(","))
        return "".join(self.shown.get(column, "0") + suffix for column, suffix in pairs)


@pytest.mark.parametrize(
    ("status", "end", "is_killed"),
    [
        ("15", "1795755812", True),
        ("9", "1795755812", True),
        ("256", "1795755812", False),  # the script's own exit code 1
        ("256", "1795755804", True),  # "Killing non-startable batch job: Job credential revoked"
        ("0", "1795755804", False),
        ("512", "1795755804", False),
        ("0:15", "1795755812", True),  # from 23.02 on
        ("0:9", "1795755812", True),
        ("1:0", "1795755812", False),
        ("1:0", "1795755804", True),
        ("0:0", "1795755804", False),
    ],
)
def test_a_job_that_a_forgotten_requeue_has_ended_is_known(status: str, end: str, *, is_killed: bool) -> None:
    squeue = Squeue(exit_code=status, StartTime="1795755804", EndTime=end)
    view = Placeholders(cast("Any", squeue)).killed(2)
    assert (view is not None) == is_killed
    if view is not None:
        assert (view.job_id, view.state, view.partition, view.restarts) == (2, "FAILED", "burst", 0)
