"""The commands that steer a burst partition, and Slurm's answers as a 22.05 gave them."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

from advisor.model.errors import BadInput, RetryLater
from advisor.slurm.steering import Closed, Priority, Steering

SHOWN = (
    "ReservationName=maintenance StartTime=1 EndTime=2 Duration=00:01:00 Nodes=onprem1 NodeCnt=1\n"
    "ReservationName=advisor_portfolio StartTime=1795270535 EndTime=1795270595 Duration=00:01:00 "
    "Nodes=burst[3-4] NodeCnt=2 CoreCnt=8 Features=(null) PartitionName=(null) Flags=IGNORE_JOBS,SPEC_NODES "
    "TRES=cpu=8 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) "
    "Watts=n/a MaxStartDelay=(null)\n"
)
NONE = "No reservations in the system\n"


class Said:
    """Commands whose answers are known; an exception is raised."""

    def __init__(self, *answers: str | Exception) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._answers = deque(answers)

    def text(self, *command: str) -> str:
        self.asked.append(command)
        answer = self._answers.popleft() if self._answers else ""
        if isinstance(answer, Exception):
            raise answer
        return answer


def steering(said: Said) -> Steering:
    return Steering(cast("Any", said))


def refused(text: str) -> RetryLater:
    return RetryLater(text, code="slurm.command_failed")


def test_our_reservation_is_found_among_others() -> None:
    assert steering(Said(SHOWN)).closed() == Closed(nodes=frozenset({"burst3", "burst4"}), until=1795270595.0)
    assert steering(Said(NONE)).closed() is None


def test_nodes_are_closed_by_a_reservation_that_ends() -> None:
    said = Said()
    steering(said).close(["burst2", "burst1"], seconds=180.0, known=None)
    (command,) = said.asked
    assert command[:3] == ("scontrol", "create", "reservation")
    assert {"nodes=burst[1-2]", "endtime=now+180", "starttime=now", "flags=ignore_jobs"} <= set(command)


def test_a_reservation_is_put_off_without_naming_nodes_again() -> None:
    said = Said()
    known = Closed(nodes=frozenset({"burst1"}), until=5.0)
    steering(said).close(["burst1"], seconds=60.0, known=known)
    steering(said).close(["burst2"], seconds=60.0, known=known)
    assert said.asked[0] == ("scontrol", "update", "reservationname=advisor_portfolio", "endtime=now+60")
    assert said.asked[1][-1] == "nodes=burst2"


def test_closing_nothing_is_refused() -> None:
    with pytest.raises(BadInput):
        steering(Said()).close([], seconds=60.0, known=None)


def test_opening_what_is_open_is_harmless() -> None:
    gone = refused("Requested reservation is invalid")
    steering(Said(gone, NONE)).open()
    with pytest.raises(RetryLater):
        steering(Said(gone, SHOWN)).open()


def test_priorities_and_their_site_factors() -> None:
    said = Said("3|7|7\n4|1|-5\n 5 |  1000 | 0 \n6_1|8|8\nnonsense\n5|2|2\n")
    found = steering(said).priorities()
    assert found == {
        3: Priority(total=7, site_factor=7),
        4: Priority(total=1, site_factor=-5),
        5: Priority(total=1000, site_factor=0),
    }
    assert found[3].own == 0


def test_jobs_that_have_ended_do_not_keep_the_others_from_being_ordered() -> None:
    for text in ("6_1-4: Job has already finished", "Invalid job id specified for job 999"):
        said = Said(refused(text))
        steering(said).set_site_factor([6, 999], 12)
        assert said.asked == [("scontrol", "update", "jobid=6,999", "sitefactor=12")]
    with pytest.raises(RetryLater):
        steering(Said(refused("Unable to contact slurm controller"))).set_site_factor([6], 12)


@pytest.mark.parametrize(("kind", "knows"), [("priority/multifactor", True), ("priority/basic", False)])
def test_only_multifactor_has_site_factors(kind: str, *, knows: bool) -> None:
    said = Said(f"ClusterName = lab\nPriorityType = {kind}\n")
    steered = steering(said)
    assert steered.knows_site_factors is knows
    assert steered.knows_site_factors is knows
    assert len(said.asked) == 1
