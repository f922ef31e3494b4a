"""The commands that steer a burst partition, and Slurm's answers as a 22.05 gave them."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Any, cast

import pytest

from advisor.model.errors import RetryLater
from advisor.slurm.records import Layout
from advisor.slurm.steering import BurstSteering, Closed, Demand, PowerSaving, Priority

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


def steering(said: Said) -> BurstSteering:
    return BurstSteering(cast("Any", said))


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
    with pytest.raises(ValueError, match="no node is named"):
        steering(Said()).close([], seconds=60.0, known=None)


def test_opening_what_is_open_is_harmless() -> None:
    gone = refused("Requested reservation is invalid")
    steering(Said(gone, NONE)).open()
    with pytest.raises(RetryLater):
        steering(Said(gone, SHOWN)).open()


def test_priorities_and_their_site_factors() -> None:
    said = Said("3|7|7\n4|1|-5\n 5 |  1000 | 0 \n6_1|8|8\nnonsense\n5|2|2\n")
    found = steering(said).priorities("burst")
    assert said.asked == [("sprio", "--noheader", "--partition=burst", "--format=%i|%Y|%S")]
    assert found == {
        3: Priority(total=7, site_factor=7),
        4: Priority(total=1, site_factor=-5),
        5: Priority(total=1000, site_factor=0),
    }
    assert found[3].own == 0


def test_priorities_of_jobs_elsewhere_are_asked_for_by_their_ids() -> None:
    said = Said("3|7|7\n", "4|1|1\n", "")
    assert steering(said).priorities("burst", range(3, 600)).keys() == {3, 4}
    assert [command[2][:9] for command in said.asked] == ["--partiti", "--jobs=4,", "--jobs=50"]


def test_a_sprio_that_refuses_lists_is_asked_for_all_jobs() -> None:
    said = Said(refused("Invalid job id: 3"), "3|7|7\n4|1|1\n9|1|1\n")
    assert steering(said).priorities(jobs=[3, 4]).keys() == {3, 4}
    assert said.asked[1] == ("sprio", "--noheader", "--format=%i|%Y|%S")


class Columns(Said):
    """Answers of calls that name their columns and the words between them; plain ones are plain text."""

    def text(self, *command: str) -> str:
        answer = super().text(*command)
        (columns,) = [word for word in command if word.lower().startswith("--format=")]
        if not columns.startswith("--Format"):
            return answer
        (*_, (_, between)), (_, after) = (
            (part.split(":") for part in columns[9:].split(",")[:-1]),
            (columns.rpartition(",")[2].split(":")),
        )
        rows = (line.split(";") for line in answer.splitlines())
        return "".join(Layout((), between, after).between.join(row) + after + "\n" for row in rows)


def test_what_a_job_demands_of_its_nodes() -> None:
    said = Columns(
        "5|\n6|gpu[1-2]\n7|(null)\n",
        "5;4G;cpu=4,mem=4G,node=1;N/A;N/A;N/A;N/A;0\n6;500M;N/A;N/A;N/A;N/A;N/A;0\n"
        "7;0;cpu=4,mem=4000M,node=1;gres:gpu:1;N/A;N/A;N/A;0\n8;1.50G;;;;;gres:gpu;1\n"
        # --mem-per-cpu=100 on one node and on two
        "9;100M;cpu=4,mem=400M,node=1;;;;;1\n10;100M;cpu=4,mem=400M,node=2;;;;;1\n",
    )
    assert steering(said).demands("burst") == {
        5: Demand(memory_mb=4096),
        6: Demand(memory_mb=500, is_particular=True),
        7: Demand(is_particular=True),
        8: Demand(memory_mb=1536, is_particular=True),
        9: Demand(memory_mb=400),
        10: Demand(memory_mb=100),
    }


def test_nodes_are_asked_for_by_name() -> None:
    said = Columns("burst1;idle+cloud;1\nburst2;idle*+cloud+drain;1\n")
    assert steering(said).node_states(["burst2", "burst1"]) == {
        "burst1": {"IDLE", "CLOUD"},
        "burst2": {"IDLE", "CLOUD", "DRAIN"},
    }
    assert "--nodes=burst[1-2]" in said.asked[0]


@pytest.mark.parametrize(
    ("config", "own", "found"),
    [
        (
            "SuspendTime = 600 sec\nSuspendExcNodes = burst[1-3]:2,login1\nSuspendExcParts = (null)\n",
            "PartitionName=burst Nodes=burst[1-9] SuspendTime=GLOBAL",
            PowerSaving(idle_seconds=600.0, excluded=frozenset({"burst1", "burst2", "burst3", "login1"})),
        ),
        (
            "SuspendTime = INFINITE\nSuspendExcNodes = (null)\nSuspendExcParts = debug,burst\n",
            "PartitionName=burst Nodes=burst[1-2] SuspendTime=60",
            PowerSaving(idle_seconds=60.0, excluded=frozenset({"burst1", "burst2"})),
        ),
        (
            "SuspendTime = INFINITE\nSuspendExcNodes = (null)\n",
            "PartitionName=burst",
            PowerSaving(idle_seconds=inf),
        ),
        (
            "SuspendTime = 600 sec\n",
            "PartitionName=burst SuspendTime=INFINITE",
            PowerSaving(idle_seconds=inf),
        ),
        ("SuspendTime = NONE\n", "PartitionName=burst SuspendTime=GLOBAL", PowerSaving()),
    ],
)
def test_which_nodes_slurm_powers_down_and_when(config: str, own: str, found: PowerSaving) -> None:
    said = Said(config, own, own)
    steered = steering(said)
    assert steered.power_saving("burst") == found
    assert steered.power_saving("burst") == found
    assert len(said.asked) == 3  # slurm.conf once a minute


def test_a_node_that_an_admin_excludes_since_is_powered_down_no_more() -> None:
    own, now = "PartitionName=burst Nodes=burst[1-2]", [0.0]
    said = Said("SuspendExcNodes = burst1\n", own, own, "SuspendExcNodes = burst[1-2]\n", own)
    steered = BurstSteering(cast("Any", said), monotonic=lambda: now[0])
    for now[0], excluded in ((0.0, {"burst1"}), (59.0, {"burst1"}), (60.0, {"burst1", "burst2"})):
        assert steered.power_saving("burst").excluded == excluded


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
