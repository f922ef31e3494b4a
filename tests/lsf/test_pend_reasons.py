"""Why jobs wait: pages of ``bjobs -p``, and what forecasts make of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.lsf.answers import read_full_users
from advisor.lsf.commands import LsfCommands
from advisor.lsf.pend_reasons import read_reasons
from advisor.lsf.site import LsfSite, SiteReader
from advisor.model.cluster import Limit
from advisor.model.errors import RetryLater
from advisor.model.limits import held_jobs, limit_of, limits_there
from advisor.model.snapshot import QueuedJob
from tests.lsf.test_queued_jobs import row

PAGE = """\
JOBID   USER    STAT  QUEUE       FROM_HOST      JOB_NAME           SUBMIT_TIME
64      ann     PEND  lim         vm             lim3               Nov 29 21:31
 The user has reached his/her job slot limit: 1 host;
68      ann     PEND  normal      vm             *long name[12]     Nov  9 21:31
 The job array has reached its running element limit: 1 host;
70      ann     PEND  normal      vm             sleep 1            Nov 29 21:31
 Job dependency condition not satisfied: 1 host;
71      ann     PEND  normal      vm             a 99 b PEND c      Nov 29 21:31
 Job slot limit reached: 1 host;
 Job's resource requirements not satisfied: 3 hosts;
72      ann     PEND  normal      vm             new                Nov 29 21:31
 New job is waiting for scheduling: 1 host;
73      ann     RUN   normal      vm             runs               Nov 29 21:31
 Job slot limit reached: 1 host;
"""


def test_a_page_of_volclava() -> None:
    assert read_reasons(PAGE) == {
        (64, 0): "UserSlotLimit",
        (68, 12): "JobArrayTaskLimit",
        (70, 0): "Dependency",
        (71, 0): "",
    }
    assert read_reasons("No pending job found\n") == {}


@pytest.mark.parametrize(
    ("sentence", "word"),
    [
        ("The queue has reached its job slot limit", "QueueSlotLimit"),
        ("The queue has not enough job slots for the parallel job", "QueueSlotLimit"),
        ("User has reached the per-user job slot limit of the queue", "QueueUserSlotLimit"),
        ("Not enough per-user job slots of the queue for the parallel job", "QueueUserSlotLimit"),
        ("One of the user's groups has reached its job slot limit", "UserSlotLimit"),
        ("The user has not enough job slots for the parallel job", "UserSlotLimit"),
        ("Resource (mem) limit defined on queue has been reached", "QueueMemLimit"),
        ("Resource (slot) limit defined on user or user group has been reached", "UserSlotLimit"),
        ("Resource limit defined on project has been reached", "ProjectSlotLimit"),
        ("Resource (matlab) limit defined on project has been reached", ""),  # what counts is not known
        ("Resource (slot) limit defined on host(s) and/or host group has been reached", ""),
        ("Dependency condition invalid or never satisfied", "DependencyNeverSatisfied"),
    ],
)
def test_a_sentence(sentence: str, word: str) -> None:
    found = read_reasons(f"7       ann     PEND  lim         vm   x   Nov 29 21:31\n {sentence}: 1 host;\n")
    assert found == {(7, 0): word}


@given(st.text(max_size=300))
def test_any_text_is_survived(text: str) -> None:
    assert isinstance(read_reasons(text), dict)


def held(folder: Path, word: str) -> QueuedJob:
    return row(folder, site=LsfSite(reasons={(7, 0): word}))


@pytest.mark.parametrize(
    ("word", "limit", "is_there"),
    [
        ("UserSlotLimit", Limit(user="ann", unit="processors", reason="UserSlotLimit"), True),
        ("ProjectJobLimit", Limit(account="proj", unit="jobs", reason="ProjectJobLimit"), True),
        ("QueueMemLimit", Limit(other="queue normal ", unit="memory", reason="QueueMemLimit"), False),
        (
            "QueueUserSlotLimit",
            Limit(other="queue normal ann", unit="processors", reason="QueueUserSlotLimit"),
            False,
        ),
    ],
)
def test_a_limit_of_a_user_holds_in_the_cloud_and_one_of_a_queue_does_not(
    tmp_path: Path, word: str, limit: Limit, *, is_there: bool
) -> None:
    queued = held(tmp_path, word)
    assert limit_of(queued) == limit
    assert limits_there([queued], ["normal"], "aws", {}) == ((limit,) if is_there else ())
    others = row(tmp_path, number=8)
    assert held_jobs([queued, others]).number_of(others) == 1, "it counts the queue's other jobs"


def test_a_user_who_holds_all_their_slots_is_at_their_limit(tmp_path: Path) -> None:
    """Where hosts are full as well, `bjobs -p` names those alone."""
    page = """\
USER/GROUP          JL/P    MAX  NJOBS   PEND    RUN  SSUSP  USUSP    RSV
default                -      -      -      -      -      -      -      -
ann                    -     16     18      2     16      0      0      0
bob                    -     16     18      4     14      0      0      0
cid                    -      -     18      2     16      0      0      0
"""
    full = read_full_users(page)
    assert full == {"ann"}
    site = LsfSite(reasons={(7, 0): ""}, full_users=full)
    assert row(tmp_path, site=site).reason == "UserSlotLimit"
    assert row(tmp_path, site=LsfSite(full_users=frozenset({"bob"}))).reason == "Priority"


def test_a_busers_that_fails_stops_no_poll() -> None:
    class Commands(LsfCommands):
        def __init__(self) -> None:
            """Of no installation."""

        def has(self, _name: str) -> bool:
            return True

        def text(self, name: str, *_arguments: str) -> str:
            if name == "busers":
                raise RetryLater("busers ended with 255", code="lsf.command_failed")
            return "ABS_RUNLIMIT = Y" if name == "bparams" else ""

    site = SiteReader(Commands(), lambda: 0.0).read(())
    assert (site.full_users, site.has_absolute_limits) == (frozenset(), True)
