"""What is asked of Slurm for one job: given once, bounded, and taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.files.state_file import StateFile
from advisor.model.errors import RetryLater
from advisor.service.stability.steering import JobSteering, preferring, without
from advisor.service.state.state_files import STEERED_JOBS
from advisor.slurm.running_jobs import NodeConstraints
from tests.service.doubles import Hands


class Wishing:
    """Slurm, as far as steering goes."""

    def __init__(self, **jobs: NodeConstraints) -> None:
        self.wishes = {int(name[1:]): wishes for name, wishes in jobs.items()}
        self.refuses = False

        self.commands = 0

    def node_constraints(self, job_id: int) -> NodeConstraints:
        self.commands += 1
        return self.wishes[job_id]

    def update_job(self, job_ids: Any, changes: Any) -> None:
        if self.refuses:
            raise RetryLater("no", code="slurm.command_failed")
        self.commands += 1
        for job in job_ids:
            old = self.wishes[job]
            self.wishes[job] = NodeConstraints(
                features=old.features,
                prefer=changes.get("prefer", old.prefer),
                excluded=changes.get("excnodelist", old.excluded),
            )


def steering(slurm: Any, folder: Path, hands: Hands, longest: float = 600.0) -> JobSteering:
    return JobSteering(
        slurm=slurm,
        jobs=slurm,
        state=STEERED_JOBS.at(folder),
        clock=hands.clock,
        feature="steady",
        max_delay_seconds=longest,
    )


def test_a_hold_ends_at_its_bound_and_does_not_come_again(tmp_path: Path) -> None:
    slurm, hands = Wishing(j7=NodeConstraints(excluded="burst9")), Hands()
    mine = steering(slurm, tmp_path, hands)
    mine.hold_off({7}, {"burst1", "burst2"})
    assert slurm.wishes[7].excluded == "burst9,burst[1-2]"
    hands.pass_by(599.0)
    mine.hold_off({7}, {"burst1"})
    assert slurm.wishes[7].excluded == "burst9,burst1"
    hands.pass_by(2.0)
    for _ in range(3):
        mine.hold_off({7}, {"burst1"})
        assert slurm.wishes[7].excluded == "burst9"
    assert mine.held_off == 1


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_the_end_of_the_process_lets_everybody_go(tmp_path: Path, end: str) -> None:
    slurm, hands = Wishing(j7=NodeConstraints()), Hands()
    first = steering(slurm, tmp_path, hands)
    first.hold_off({7}, {"burst1"})
    if end == "stop":
        first.release_all()
    else:  # the next process finds it on the disk
        hands.pass_by(1000.0)
        steering(slurm, tmp_path, hands).hold_off({7}, {"burst1"})
    assert slurm.wishes[7].excluded == ""


def test_no_delay_where_none_is_allowed_and_none_where_no_node_would_be_left(tmp_path: Path) -> None:
    slurm, hands = Wishing(j7=NodeConstraints()), Hands()
    steering(slurm, tmp_path, hands, longest=0.0).hold_off({7}, {"burst1"})
    steering(slurm, tmp_path, hands).hold_off({7}, set())
    assert slurm.wishes[7].excluded == ""


def test_what_slurm_refused_is_tried_again(tmp_path: Path) -> None:
    slurm, hands = Wishing(j7=NodeConstraints()), Hands()
    mine = steering(slurm, tmp_path, hands)
    slurm.refuses = True
    with pytest.raises(RetryLater):
        mine.prefer({7})
    slurm.refuses = False
    mine.prefer({7})
    assert slurm.wishes[7].prefer == "steady"
    mine.prefer(())
    assert slurm.wishes[7].prefer == ""


def test_a_long_queue_is_steered_some_jobs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, writes = Wishing(**{f"j{job}": NodeConstraints() for job in range(1, 121)}), []
    write = StateFile.write
    monkeypatch.setattr(StateFile, "write", lambda *given: (writes.append(1), write(*given)))
    mine, queue = steering(slurm, tmp_path, Hands()), list(range(120, 0, -1))
    mine.prefer(queue)
    assert {job for job, wishes in slurm.wishes.items() if wishes.prefer} == set(queue[:50])
    assert (slurm.commands, len(writes)) == (100, 2)
    for _ in range(2):
        mine.prefer(queue)
    assert all(wishes.prefer == "steady" for wishes in slurm.wishes.values())
    mine.prefer(queue)
    assert (slurm.commands, len(writes)) == (240, 6)
    for _ in range(3):
        mine.prefer(())
    assert not any(wishes.prefer for wishes in slurm.wishes.values())


def test_a_preference_is_written_down_before_it_is_given(tmp_path: Path) -> None:
    slurm, hands = Wishing(j7=NodeConstraints()), Hands()
    slurm.refuses = True
    with pytest.raises(RetryLater):
        steering(slurm, tmp_path, hands).prefer({7})
    slurm.refuses = False
    slurm.wishes[7] = NodeConstraints(prefer="steady")  # slurmctld had it, its answer was lost, and we died
    steering(slurm, tmp_path, hands).prefer(())
    assert slurm.wishes[7].prefer == ""


def test_what_a_job_refuses_is_undone_when_it_is_requeued(tmp_path: Path) -> None:
    """It keeps its ExcNodeList while it runs, when nobody can change it."""
    slurm, hands = Wishing(j7=NodeConstraints(excluded="burst9")), Hands()
    mine = steering(slurm, tmp_path, hands)
    mine.forget([7])
    mine.hold_off({7}, {"burst1"})
    mine.forget([], others=[7])
    hands.pass_by(700.0)
    commands = slurm.commands
    mine.release_overdue()
    mine.hold_off((), {"burst1"})
    mine.release_all()
    assert (slurm.commands, mine.now_held) == (commands, frozenset())
    again = steering(slurm, tmp_path, hands)  # the next process knows it, too
    again.forget([7])
    again.release_overdue()
    assert slurm.wishes[7].excluded == "burst9"


WORDS = st.lists(st.sampled_from(["cloud", "x86", "spot", "gpu"]), max_size=3, unique=True).map("&".join)


@given(features=WORDS, prefer=WORDS)
@settings(deadline=None)
def test_a_preference_given_and_taken_is_the_one_before(features: str, prefer: str) -> None:
    wishes = NodeConstraints(features=features, prefer=prefer)
    given_one = preferring(wishes, "steady")
    if given_one is None:
        assert set(prefer.split("&")) - {*features.split("&"), "spot", ""}
        return
    assert set(given_one.split("&")) >= {"steady", *filter(None, features.split("&"))}
    left = without(given_one, "steady", features)
    assert set(filter(None, left.split("&"))) <= {*features.split("&"), *prefer.split("&")}
    if "spot" in prefer and "spot" not in features:
        assert "spot" in left


@pytest.mark.parametrize("own", ["a|b", "[a&b]", "a*2"])
def test_richer_constraints_are_left_alone(own: str) -> None:
    assert preferring(NodeConstraints(features=own), "steady") is None
    assert preferring(NodeConstraints(prefer=own), "steady") is None


@given(
    content=st.dictionaries(
        st.sampled_from(["preferring", "holds"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["7", "x", "since", "own", "given"]), inner, max_size=3)
            ),
            max_leaves=8,
        ),
    )
)
@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_no_reason_to_fail(tmp_path: Path, content: dict) -> None:
    (tmp_path / "steering.json").write_text(json.dumps(content))  # no flush to the disk
    mine = steering(Wishing(j7=NodeConstraints()), tmp_path, Hands())
    mine.forget([7])
    mine.prefer({7})
