"""The lives of spot instances: what EC2 ended, what we gave back, what nobody saw end."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.files.state_file import StateFile
from advisor.model.advice import Capacity
from advisor.service.state.life_record import LifeRecord
from advisor.service.state.records import Lives
from advisor.service.state.state_files import LIVES
from tests.service.doubles import POOL, make_instance

BEGIN = 1_800_000_000.0


@pytest.fixture
def file(tmp_path: Path) -> StateFile[Lives]:
    return LIVES.at(tmp_path)


def nobody(_name: str) -> bool:
    return False


def test_a_life_from_launch_to_reclaim(file: StateFile[Lives]) -> None:
    record = LifeRecord(file)
    there = make_instance("burst1", launch_time=BEGIN)
    record.observe([there], nobody, BEGIN + 100.0)
    (life,) = record.lives()
    assert (life.pool, life.start, life.end, life.was_taken) == (POOL.key, BEGIN, BEGIN + 100.0, False)
    gone = make_instance(
        "burst1", launch_time=BEGIN, state="terminated", state_reason="Server.SpotInstanceTermination"
    )
    for time in (130.0, 160.0):  # EC2 lists it for an hour: it ends once
        record.observe([gone], nobody, BEGIN + time)
    (life,) = record.lives()
    assert life.was_taken
    assert life.end == BEGIN + 130.0
    row = {
        "lives": 1,
        "taken": 1,
        "alive": 0,
        "hours": pytest.approx(130 / 3600),
        "losses": 1,
        "lost_together": 0,
    }
    assert record.table() == {POOL.key: row}


def test_the_warning_ends_it_and_what_we_give_back_is_not_taken(file: StateFile[Lives]) -> None:
    record = LifeRecord(file)
    both = [make_instance("burst1", launch_time=BEGIN), make_instance("burst2", launch_time=BEGIN)]
    record.observe(both, nobody, BEGIN + 50.0)
    record.observe(
        [both[0], make_instance("burst2", launch_time=BEGIN, state="shutting-down")],
        lambda name: name == "i-burst1",
        BEGIN + 60.0,
    )
    record.observe(both[:1], lambda name: name == "i-burst1", BEGIN + 900.0)  # it is still listed, as alive
    assert sorted((life.was_taken, life.end) for life in record.lives()) == [
        (False, BEGIN + 60.0),
        (True, BEGIN + 60.0),
    ]


def test_what_vanishes_unseen_lived_until_it_was_seen_last(file: StateFile[Lives]) -> None:
    record = LifeRecord(file)
    record.observe([make_instance("burst1", launch_time=BEGIN)], nobody, BEGIN + 50.0)
    record.observe([], nobody, BEGIN + 200.0)  # listed late, perhaps
    assert record.table()[POOL.key]["alive"] == 1
    record.observe([], nobody, BEGIN + 5000.0)
    (life,) = record.lives()
    assert (life.end, life.was_taken) == (BEGIN + 50.0, False)


def test_on_demand_instances_have_no_life_to_learn_from(file: StateFile[Lives]) -> None:
    record = LifeRecord(file)
    record.observe(
        [make_instance("burst1", launch_time=BEGIN, option=Capacity.ON_DEMAND)], nobody, BEGIN + 50.0
    )
    assert record.lives() == []


def test_a_restart_forgets_nothing_and_a_damaged_file_is_an_empty_one(file: StateFile[Lives]) -> None:
    record = LifeRecord(file)
    record.observe([make_instance("burst1", launch_time=BEGIN)], nobody, BEGIN + 90.0)
    ended = make_instance("burst1", launch_time=BEGIN, state="terminated", state_reason="Server.SpotX")
    record.observe([ended], nobody, BEGIN + 120.0)
    again = LifeRecord(file)
    again.observe([ended], nobody, BEGIN + 150.0)
    assert again.lives() == record.lives()
    file.path.write_text(
        '{"open": {"i": 1, "j": {"pool": 2}}, "ended": [1, ["p"], ["p", "x", 2, 3]], "over": 7}'
    )
    assert LifeRecord(file).lives() == []
