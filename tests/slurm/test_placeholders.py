"""What is made of what slurmctld shows of a job: its placeholder, and whether a requeue has ended it."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from advisor.slurm.placeholders import PlaceholderRequest, Placeholders


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


class Submits(Squeue):
    """Shows a job of our own user's, and notes what is submitted."""

    def release(self) -> tuple[int, ...]:
        return (22, 5, 8)

    def text(self, *command: str) -> str:
        if command[0] == "sbatch":
            self.submitted = command
            return "9\n"
        if command[-1] == "--format=%x":
            return f"{self.excluded}\n"
        return super().text("--states=FAILED", *command)

    excluded = ""


@pytest.mark.parametrize(
    ("shown", "asked"),
    [
        ("on-demand", []),
        ("x86&spot", ["--constraint=x86"]),
        ("x86", ["--constraint=x86"]),
        ("(null)", []),
    ],
)
def test_a_placeholder_asks_for_no_feature_of_the_clouds(shown: str, asked: list[str]) -> None:
    """slurmctld 22.05 shows a job's preference as its constraint once it has chosen the nodes."""
    squeue = Submits(Feature=shown, UserID=str(os.geteuid()))
    wish = PlaceholderRequest(job_id=2, partition="onprem", limit_seconds=60.0, held_seconds=60.0)
    assert Placeholders(cast("Any", squeue)).reserve(wish) == 9
    assert [word for word in squeue.submitted if word.startswith("--constraint=")] == asked


@pytest.mark.parametrize(
    ("shown", "asked"),
    [
        ({}, set()),
        ({"excluded": "onprem[1-2]"}, {"--exclude=onprem[1-2]"}),
        ({"Threads": "1", "NTPerCore": "1"}, {"--threads-per-core=1", "--ntasks-per-core=1"}),
        ({"OverSubscribe": "USER"}, {"--exclusive=user"}),
        ({"Threads": "*", "NTPerCore": "N/A", "MinCpus": "3"}, {"--mincpus=3"}),
        ({"tres-alloc": "cpu=8,mem=8000M,node=2", "MinMemory": "4000M"}, {"--mem=4000"}),
        # with whole nodes it has more processors there, and their memory
        ({"tres-alloc": "cpu=8,mem=2400M,node=1", "MinMemory": "300M"}, {"--mem-per-cpu=300"}),
        ({"tres-alloc": "cpu=2,mem=8000M,node=1", "MinMemory": "0"}, {"--mem=0"}),
        ({"ReqSwitch": "1", "Wait4Switch": "1-00:05:00"}, {"--switches=1@1-00:05:00"}),
    ],
)
def test_a_placeholder_starts_only_where_its_job_could(shown: dict[str, str], asked: set[str]) -> None:
    squeue = Submits(UserID=str(os.geteuid()), **shown)
    squeue.excluded = shown.get("excluded", "")
    wish = PlaceholderRequest(job_id=2, partition="onprem", limit_seconds=60.0, held_seconds=60.0)
    Placeholders(cast("Any", squeue)).reserve(wish)
    words = {"exclude", "exclusive", "threads-per-core", "ntasks-per-core", "mincpus", "switches"}
    words |= {"mem", "mem-per-cpu"}
    assert {word for word in squeue.submitted if word[2:].partition("=")[0] in words} == asked


class Conf:
    """Shows a slurm.conf, which an admin changes."""

    age = 1000

    def text(self, *command: str) -> str:
        assert command == ("scontrol", "show", "config")
        return (
            "AccountingStorageType = accounting_storage/slurmdbd\nPriorityType = priority/multifactor\n"
            f"PriorityMaxAge = 7-00:00:00\nPriorityWeightAge = {self.age}\n"
        )


def test_ages_are_given_back_by_the_weight_that_slurm_has_now() -> None:
    conf, now = Conf(), [0.0]
    places = Placeholders(cast("Any", conf), monotonic=lambda: now[0])
    week = 7 * 86_400.0
    assert places.age_points(week / 2) == 500
    conf.age = 100_000  # and `scontrol reconfigure`
    now[0] = 60.0
    assert places.age_points(week / 2) == 50_000
    assert places.age_points(2 * week) == 100_000
