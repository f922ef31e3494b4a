"""The end of `advisor control`: what it has set in Slurm goes at once, whatever still computes."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from advisor.service.control.connections import Connections
from advisor.service.control.wiring import Control
from advisor.service.learn.learning import LearnLoop
from advisor.service.running.clock import Clock
from advisor.service.running.loops import LoopRunner, Step
from advisor.service.stability.actuators import TakeBackLoop
from tests.service.stability.test_match_loop import held_world


class Computing:
    """A loop whose round goes on for a while."""

    name = "learn"
    period_seconds = 3600.0

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def steps(self) -> Sequence[Step]:
        return (Step("compute", self._compute),)

    def _compute(self) -> None:
        self.begun.set()
        self.go_on.wait(60)


@pytest.mark.parametrize(("busy", "lets_go"), [("learn", True), ("take-back", False)])
def test_only_who_acts_there_keeps_slurm_from_being_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: str, *, lets_go: bool
) -> None:
    world, _ = held_world(tmp_path)
    connections = Connections(slurm=world.slurm, nodes_asked=world.slurm)
    control = Control(world.settings, connections, clock=world.clock.clock)
    (take_back,) = (feature for feature in control.features if isinstance(feature, TakeBackLoop))
    let_go = threading.Event()
    monkeypatch.setattr(take_back, "release", let_go.set)
    loop = Computing()
    control.runners[busy] = LoopRunner(loop, Clock())
    control.runners[busy].start()
    assert loop.begun.wait(60)
    assert not control.stop(timeout=0.05), "a loop is at work: nobody else may begin"
    assert let_go.is_set() == lets_go
    loop.go_on.set()
    assert control.stop()
    assert let_go.is_set()


def test_what_was_judged_is_kept_once_the_loops_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = held_world(tmp_path)
    control = Control(
        world.settings, Connections(slurm=world.slurm, nodes_asked=world.slurm), clock=world.clock.clock
    )
    (learn,) = (feature for feature in control.features if isinstance(feature, LearnLoop))
    kept = threading.Event()
    monkeypatch.setattr(learn, "keep", kept.set)
    loop = Computing()
    control.runners["learn"] = LoopRunner(loop, Clock())
    control.runners["learn"].start()
    assert loop.begun.wait(60)
    assert not control.stop(timeout=0.05)
    assert not kept.is_set(), "another thread is at work on it"
    loop.go_on.set()
    assert control.stop()
    assert kept.is_set()


def test_a_feature_that_cannot_let_go_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The price is saved at the end: on a full disk all others were left as they were, with a traceback."""
    world, _ = held_world(tmp_path)
    control = Control(
        world.settings, Connections(slurm=world.slurm, nodes_asked=world.slurm), clock=world.clock.clock
    )
    let_go: list[str] = []

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(control.features[0], "release", full)
    for feature in control.features[1:]:
        monkeypatch.setattr(feature, "release", partial(let_go.append, type(feature).__name__))
    with capture_logs() as logged:
        assert control.stop()
    assert len(let_go) == len(control.features) - 1
    assert [line["code"] for line in logged if line["event"] == "control.not_released"] == [
        "loop.not_writable"
    ]
