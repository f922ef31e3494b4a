"""Advance reservations, as answers of brsvs that others have published have them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from advisor.files.state_file import StateFile
from advisor.lsf.backend import LsfBackend
from advisor.lsf.installation import read_installation
from advisor.lsf.kept_advice import AdviceOfLiveJobs
from advisor.lsf.reservations import read_reservations
from advisor.model.settings import Settings
from advisor.testing.lsf_stand_in import LsfStandIn, StandInQueue


def epoch(*words: int) -> float:
    """Year, month, day, hour and minute in this host's zone."""
    return time.mktime(time.struct_time((*words, *(0,) * (8 - len(words)), -1)))


NOW = epoch(2026, 11, 12, 7, 0)  # a Thursday

# IBM, "Viewing advance reservation information"
OF_IBM = """RSVID       TYPE    USER   NCPUS      RSV_HOSTS           TIME_WINDOW
user1#0     user    user1   0/1024    hostA:0/1024   11/12/6/0-11/12/8/0
user2#0     user    user2  0/1024     hostA:0/1024           12:0-14:0 *
groupA#0   group   groupA  -/2048     hostA:-/1024         3:0:0-3:3:0 *
                                      hostB:0/1024
system#0     sys   system   1024      hostA:0/1024       5:18:0-5:20:0 *
"""


def moment(*words: int) -> float:
    return epoch(2026, 11, *words)


def test_reservations_as_ibm_shows_them() -> None:
    found = read_reservations(OF_IBM, NOW)
    (once,) = (one for one in found if one.name == "user1#0")
    assert (once.begin, once.end) == (moment(12, 6, 0), moment(12, 8, 0))
    assert (once.nodes, once.processors) == (frozenset({"hostA"}), 1024)
    daily = [one for one in found if one.name == "user2#0"]
    assert [one.begin for one in daily] == [moment(day, 12, 0) for day in range(12, 19)]
    assert daily[0].end - daily[0].begin == 7200.0
    (group,) = (one for one in found if one.name == "groupA#0")  # day 3 is a Wednesday: the next one
    assert (group.begin, group.end) == (moment(18, 0, 0), moment(18, 3, 0))
    assert (group.nodes, group.processors) == (frozenset({"hostA", "hostB"}), 2048)
    fridays = [one.begin for one in found if one.name == "system#0"]
    assert fridays == [moment(13, 18, 0), moment(20, 18, 0)]


def test_a_reservation_over_the_turn_of_the_month_without_a_year() -> None:
    """Of NCAR's Yellowstone."""
    shown = """RSVID        TYPE      USER       NCPUS          RSV_HOSTS     TIME_WINDOW
wrfrt        user     wrfrt       0/10560    ys0407-ib:0/32    3/30/21/40-3/31/1/55
                                             ys0334-ib:0/32
"""
    (found,) = read_reservations(shown, epoch(2026, 3, 29, 12, 0))
    assert found.nodes == frozenset({"ys0407-ib", "ys0334-ib"})
    assert found.begin == epoch(2026, 3, 30, 21, 40)
    assert found.end == epoch(2026, 3, 31, 1, 55)
    (later,) = read_reservations(shown, NOW)
    assert later.begin == epoch(2027, 3, 30, 21, 40)


def test_blanks_around_strokes_and_a_year() -> None:
    """The wide form of later releases, as scripts of two sites read it."""
    shown = """RSVID  TYPE  USER  NCPUS  RSV_HOSTS  TIME_WINDOW
infusion  group  grp_res  0 / 256  c610:0 / 128  2025/3/1/0/0-2038/1/1/0/0
                                   c611:0 / 128
"""
    (found,) = read_reservations(shown, NOW)
    assert found.nodes == frozenset({"c610", "c611"})
    assert found.processors == 256
    assert found.begin < NOW < found.end


@pytest.mark.parametrize(
    "row",
    [
        "user2#20    user    user2    -        -                   -",  # a placeholder
        "user1#0     user    user1   0/4    hostA:0/4   9999/1/1/0/0-99999/1/1/0/0",
        "user1#0     user    user1   0/4    hostA:0/4   1:61:0-1:62",
        "No reservation found",
    ],
)
def test_a_row_that_cannot_be_read_is_left_out(row: str) -> None:
    assert read_reservations(f"RSVID TYPE USER NCPUS RSV_HOSTS TIME_WINDOW\n{row}\n", NOW) == ()


def test_no_answer_is_no_reservation() -> None:
    assert read_reservations("", NOW) == ()


def test_the_back_end_asks_brsvs_where_there_is_one(tmp_path: Path) -> None:
    queues = (StandInQueue(name="normal", hosts=("a",), is_default=True),)
    ends = time.localtime(time.time() + 7200.0)
    row = f"eve#0 user eve 0/4 a:0/4 2026/1/1/0/0-{time.strftime('%Y/%m/%d/%H/%M', ends)}"
    with LsfStandIn(tmp_path / "lsf", hosts={"a": 4}, queues=queues) as lsf:
        file = StateFile(tmp_path / "lsf_advice.json", AdviceOfLiveJobs)
        backend = LsfBackend(Settings(), read_installation(lsf.environment_folder, "lab"), file)
        assert backend.reservations() == ()  # as on volclava, which has none
        program = tmp_path / "lsf" / "bin" / "brsvs"
        program.write_text(f"#!/bin/sh\necho RSVID TYPE USER NCPUS RSV_HOSTS TIME_WINDOW\necho '{row}'\n")
        program.chmod(0o755)
        (found,) = backend.reservations()
        program.write_text("#!/bin/sh\necho No reservation found >&2\nexit 255\n")
        assert backend.reservations() == ()
        backend.close()
    assert (found.name, found.nodes, found.end) == ("eve#0", frozenset({"a"}), epoch(*ends[:5]))
