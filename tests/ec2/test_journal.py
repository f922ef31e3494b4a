"""The launch journal is input like any other: whatever is written there, nothing of others is ended."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.ec2.fleet import Fleet
from advisor.ec2.journal import Intent, Journal
from advisor.model.advice import Capacity
from advisor.model.errors import TellAdmin
from advisor.testing.ec2 import Ec2Emulator
from advisor.testing.manual_clock import ManualClock
from tests.full_disk import room_for

INTENT = Intent(
    token="advisor-1",
    nodes=("burst1",),
    option=Capacity.SPOT,
    instance_type="c5.xlarge",
    subnet_id=None,
    requested=Capacity.SPOT,
    time=1.0,
    instances={},
)


def forged(journal: Path, **changes: Any) -> None:
    """A line that somebody else has written."""
    line = {
        "event": "intent",
        "token": "advisor-forged",
        "nodes": ["burst2"],
        "option": "on-demand",
        "instance_type": "c5.xlarge",
        "subnet_id": None,
        "requested": "on-demand",
        "time": 1.0,
        "instances": {},
        "done": True,
    }
    with journal.open("a") as file:
        file.write(json.dumps(line | changes) + "\n")


def running(emulator: Ec2Emulator) -> list[str]:
    return sorted(item["id"] for item in emulator.instances() if item["state"] == "running")


@pytest.mark.ec2
def test_d9_only_what_ec2_calls_ours_is_ended_whatever_the_journal_says(
    emulator: Ec2Emulator, start_fleet: Callable[..., Fleet], clock: ManualClock, ec2: Any, tmp_path: Path
) -> None:
    theirs = start_fleet(cluster="c2").resume(["burst2"]).launched[0].instance_id
    untagged = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    before = running(emulator)
    for number, instance in enumerate((theirs, untagged)):
        forged(
            tmp_path / "launches.jsonl",
            token=f"advisor-{number}",
            instances={"burst2": instance},
            time=clock.wall,
        )
    fleet = start_fleet()
    assert len(fleet.journal.instances()) == 2  # the lines are believed to be lines
    assert fleet.suspend(["burst2"]) == []
    assert running(emulator) == before


@pytest.mark.ec2
def test_d9_the_journal_makes_no_instance_another_node_s(
    emulator: Ec2Emulator, start_fleet: Callable[..., Fleet], clock: ManualClock, tmp_path: Path
) -> None:
    mine = start_fleet().resume(["burst1"]).launched[0].instance_id
    forged(tmp_path / "launches.jsonl", instances={"burst2": mine}, time=clock.wall)
    fleet = start_fleet()
    assert fleet.suspend(["burst2"]) == []
    assert fleet.suspend(["burst1"]) == [mine]
    assert running(emulator) == []


@pytest.mark.ec2
def test_d9_an_open_intent_adopts_no_instance_of_another_cluster(
    emulator: Ec2Emulator, start_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    other = start_fleet(cluster="c2")
    other.resume(["burst2"])
    (token,) = {item["tags"]["advisor:intent"] for item in emulator.instances()}
    forged(tmp_path / "launches.jsonl", token=token, done=False, time=1.0)
    fleet = start_fleet()
    assert fleet.recover([]) == []
    assert fleet.journal.instances() == {}


def directory(path: Path) -> None:
    path.mkdir()


def too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [directory, os.mkfifo, too_large, lambda path: path.symlink_to("/dev/zero")])
def test_d9_a_journal_that_is_no_plain_file_is_set_aside(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    path = tmp_path / "launches.jsonl"
    make(path)
    journal = Journal(path)
    assert os.path.lexists(tmp_path / "launches.jsonl.bad")
    journal.intend(INTENT)
    assert Journal(path).open_intents() == [INTENT]


@pytest.mark.parametrize("make", [directory, os.mkfifo, lambda path: path.symlink_to("/dev/null")])
def test_d9_nothing_is_launched_where_something_else_takes_the_journals_place(
    tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    """An open FIFO would be waited for, a link be followed."""
    path = tmp_path / "launches.jsonl"
    journal = Journal(path)
    make(path)
    with pytest.raises(TellAdmin, match="nothing is launched"):
        journal.intend(INTENT)


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": ["--help"]},
        {"nodes": ["burst1", 7]},
        {"nodes": "burst1"},
        {"nodes": ["a" * 300]},
        {"instances": {"burst1": 7}},
        {"instances": {"burst1": "--all"}},
        {"instances": ["burst1"]},
        {"time": None},
        {"option": "free"},
    ],
)
def test_d9_lines_that_make_no_sense_are_left_out(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "launches.jsonl"
    Journal(path).intend(INTENT)
    forged(path, **changes)
    journal = Journal(path)
    assert journal.open_intents() == [INTENT]
    assert journal.instances() == {}


def test_d9_a_line_that_a_full_disk_has_cut_takes_no_other_with_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "launches.jsonl")
    journal.intend(INTENT)
    room = journal.path.stat().st_size + 20
    with room_for(room), pytest.raises(TellAdmin, match="nothing is launched until it can"):
        journal.intend(replace(INTENT, token="advisor-2"))
    journal.intend(replace(INTENT, token="advisor-3"))  # there is room again
    tokens = [intent.token for intent in journal.open_intents()]
    assert tokens == ["advisor-1", "advisor-3"]
    found = Journal(journal.path)  # as after a crash
    assert [intent.token for intent in found.open_intents()] == tokens
