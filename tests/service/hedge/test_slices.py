"""Slices and promised jobs at their stop and at their turn: on or back, by what the price says."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from advisor.model.advice import HedgeKind
from advisor.model.snapshot import QueuedJob
from advisor.service.state.hedge_entries import Phase
from advisor.testing.watched import hedged_comment
from tests.service.watch_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


class Decider:
    """Says what a test wants of slices, and what it was asked."""

    def __init__(self, stop: float | None = None, *, stays: bool = False) -> None:
        self.stop, self.is_staying = stop, stays
        self.asked: list[tuple[str, int]] = []
        self.held: list[float] = []

    def next_stop(self, _queued: QueuedJob, elapsed_seconds: float, placeholder: int) -> float | None:
        self.asked.append(("stop", placeholder))
        return None if self.stop is None else elapsed_seconds + self.stop

    def stays(self, queued: QueuedJob, _elapsed: float, held_seconds: float, _ran: float) -> bool:
        self.asked.append(("turn", queued.job.job_id))
        self.held.append(held_seconds)
        return self.is_staying

    def another_stop(self, _queued: QueuedJob, _ran_seconds: float) -> float | None:
        return None


def at_stop(
    world: World, decider: Decider, kind: HedgeKind = HedgeKind.SLICE, stop: float = 12.0
) -> QueuedJob:
    """A slice of twelve seconds in the cloud, its placeholder in the queue, at its stop."""
    world.slices = decider
    world.comment = hedged_comment(stop, kind, 10)
    job = world.job()
    world.look(job)
    world.look(job, world.job(901, name="place-of-7", state="PENDING", partition="onprem"))
    return job


def test_a_slice_that_is_worth_going_on_gets_a_new_stop(world: World) -> None:
    decider = Decider(100.0)
    at_stop(world, decider)
    entry = world.record.all()[0]
    assert decider.asked == [("stop", 901)]
    assert entry.phase is Phase.OPEN
    assert entry.stop_seconds is not None
    assert entry.stop_seconds > 100.0
    assert world.loop.stop_of(7) == entry.stop_seconds
    assert world.queue.requeued == []


def test_a_slice_that_is_not_worth_going_on_is_brought_back(world: World) -> None:
    at_stop(world, Decider(None))
    assert world.record.all()[0].why == "its time in the cloud is over"
    assert set(world.queue.requeued) == {7}


def test_a_promised_job_has_no_stop_and_its_turn_is_decided(world: World) -> None:
    decider = Decider(None, stays=True)
    job = at_stop(world, decider, HedgeKind.PROMISE, math.inf)
    assert decider.asked == []
    assert world.record.all()[0].phase is Phase.OPEN
    world.look(job, world.job(901, name="place-of-7", state="RUNNING", partition="onprem"))
    assert decider.asked == [("turn", 7)]
    assert world.record.all()[0].phase is Phase.SETTLED


@pytest.mark.parametrize(("stays", "phase"), [(True, Phase.SETTLED), (False, Phase.RETURNING)])
def test_when_its_turn_comes_a_slice_stays_or_restarts_by_the_price(
    world: World, *, stays: bool, phase: Phase
) -> None:
    decider = Decider(100.0, stays=stays)
    job = at_stop(world, decider)
    world.look(job, world.job(901, name="place-of-7", state="RUNNING", partition="onprem"))
    assert decider.asked[-1] == ("turn", 7)
    assert world.record.all()[0].phase is phase
    assert (world.loop.stop_of(7) == math.inf) is stays


def test_a_slice_that_was_requeued_before_it_was_seen_to_run_has_its_stop(world: World) -> None:
    """By its user, or with a node that failed to boot, while `advisor control` was away."""
    world.slices = Decider(None)
    world.comment = hedged_comment(12.0, HedgeKind.SLICE, 10)
    job = dataclasses.replace(world.job(), restarts=1)
    world.look(job)
    assert world.loop.stop_of(7) == 12.0
    world.look(job, world.job(901, name="place-of-7", state="PENDING", partition="onprem"))
    assert world.record.all()[0].why == "its time in the cloud is over"
