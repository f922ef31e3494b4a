"""A job that has come back and waits behind its placeholder goes to the cloud once more."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from advisor.model.errors import RetryLater
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.service.hedge.going_again import PERIOD_SECONDS
from advisor.service.observation.site_view import cluster_state
from advisor.service.state.hedge_entries import HedgeEntry, Phase
from tests.service.watch_world import World, brought_home, home, place

STOP = 200.0
"""Of the second run, which is longer than the first one's."""


class Price:
    """Sells a job that has come back another run of ``STOP`` seconds."""

    def __init__(self, stop: float | None) -> None:
        self.stop = stop
        self.asked: list[tuple[int, float]] = []
        self.known: list[tuple[float, float]] = []

    def next_stop(self, _queued: QueuedJob, _elapsed: float, _placeholder: int) -> float | None:
        return None

    def stays(self, _queued: QueuedJob, elapsed: float, _held: float, ran: float) -> bool:
        self.known.append((elapsed, ran))
        return False

    def another_stop(self, queued: QueuedJob, ran_seconds: float) -> float | None:
        self.asked.append((queued.job.job_id, ran_seconds))
        return self.stop


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def entry_of(world: World) -> HedgeEntry:
    (entry,) = world.record.all()
    return entry


def waiting_behind_its_place(world: World, price: Price) -> None:
    """A job has run in the cloud to its stop at 100 s, and waits on-premise; nothing was asked so far."""
    world.slices = price
    waiting = brought_home(world)
    world.look(home(world), waiting)
    world.queue.jobs[7] = dataclasses.replace(world.queue.jobs[7], priority=50)
    world.look(home(world), waiting)
    assert entry_of(world).in_place


def ask(world: World) -> None:
    world.clock.pass_by(PERIOD_SECONDS)
    world.look(home(world), place(world, "PENDING"))


def test_it_goes_again_with_its_placeholder_and_comes_back_at_its_new_stop(world: World) -> None:
    price = Price(STOP)
    waiting_behind_its_place(world, price)
    ask(world)
    ((job_id, ran),) = price.asked
    assert job_id == 7
    assert 100.0 <= ran < 120.0
    # its limit is raised once it runs there: slurmctld ends a waiting job that would pass its --deadline
    assert world.queue.updated[-1] == (7, {"partition": "burst"})
    assert (entry_of(world).phase, entry_of(world).stop_seconds) == (Phase.OPEN, STOP)
    world.boot()  # what is on disk is enough
    again = dataclasses.replace(world.job(), restarts=1)
    world.clock.pass_by(STOP - 20.0)
    world.look(again, place(world, "PENDING"))
    assert (world.queue.requeued, world.queue.cancelled) == ([7], [])
    world.clock.pass_by(20.0)
    world.look(again, place(world, "PENDING"))
    assert (world.queue.requeued, world.queue.cancelled) == ([7, 7], [])
    assert entry_of(world).ran_seconds >= STOP
    asked = len(price.asked)
    for _ in range(3):
        ask(world)
    assert len(price.asked) == asked  # it goes no third time
    world.look(home(world), place(world, "RUNNING"))
    assert world.queue.cancelled == [901]  # its slot is its own


def test_it_is_asked_about_every_ten_minutes(world: World) -> None:
    price = Price(None)
    waiting_behind_its_place(world, price)
    for asked in (0, 1, 2):
        for _ in range(3):
            world.look(home(world), place(world, "PENDING"))
        assert len(price.asked) == asked
        world.clock.pass_by(PERIOD_SECONDS)
    assert ("burst" in str(world.queue.updated), entry_of(world).phase) == (False, Phase.RETURNING)


def test_none_goes_again_while_the_burst_partition_is_down(world: World) -> None:
    """An admin who sets it down wants no job there (docs/operate.md)."""
    price = Price(STOP)
    waiting_behind_its_place(world, price)
    world.queue.is_burst_up = False
    ask(world)
    assert (price.asked, entry_of(world).phase) == ([], Phase.RETURNING)
    world.queue.is_burst_up = True
    ask(world)
    assert world.queue.updated[-1] == (7, {"partition": "burst"})


@pytest.mark.parametrize(
    "since",
    [
        {"reason": "JobHeldUser"},
        {"reason": "BeginTime"},
        {"reason": "AssocGrpCpuLimit"},
        {"partitions": ("long",)},
    ],
)
def test_a_job_that_its_user_holds_or_moves_is_left_alone(world: World, since: dict[str, Any]) -> None:
    price = Price(STOP)
    waiting_behind_its_place(world, Price(None))
    world.slices = price
    world.clock.pass_by(PERIOD_SECONDS)
    world.look(dataclasses.replace(home(world), **since), place(world, "PENDING"))
    assert price.asked == []


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_job_that_could_not_be_brought_back_is_left_alone(world: World, *, is_needed: bool) -> None:
    """It may not be requeued any more, or another job waits for it."""
    waiting_behind_its_place(world, Price(None))
    world.slices = price = Price(STOP)
    queued, dependent = home(world), world.job(8, comment="", partition="onprem", state="PENDING")
    if is_needed:
        job = structs.replace(dependent.job, dependency="afterok:7(unfulfilled)")
        dependent = dataclasses.replace(dependent, job=job)
    else:
        queued = dataclasses.replace(queued, job=structs.replace(queued.job, requeue=False))
    world.clock.pass_by(PERIOD_SECONDS)
    world.look(queued, dependent, place(world, "PENDING"))
    assert price.asked == []


def test_what_slurmctld_refuses_has_come_back_still(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RetryLater("no", code="slurm.command_failed")

    waiting_behind_its_place(world, Price(None))
    world.slices = Price(STOP)
    with monkeypatch.context() as refusing:
        refusing.setattr(world.queue, "update_job", refuse)
        with pytest.raises(RetryLater):
            ask(world)
    assert entry_of(world).phase is Phase.OPEN
    world.boot()
    world.slices = Price(None)
    world.look(home(world), place(world, "PENDING"))
    assert entry_of(world).phase is Phase.RETURNING
    assert (world.queue.requeued, world.queue.cancelled) == ([7], [])
    assert entry_of(world).ran_seconds >= 100.0


def test_its_slot_may_come_in_that_moment(world: World) -> None:
    waiting_behind_its_place(world, Price(STOP))
    ask(world)
    world.slices = Price(None)
    booting = dataclasses.replace(world.job(state="PENDING"), restarts=1)
    world.look(booting, place(world, "RUNNING"))
    assert (entry_of(world).phase, entry_of(world).why) == (Phase.RETURNING, "its slot came")
    assert world.queue.updated[-1][1]["partition"] == "onprem"
    assert world.queue.requeued == [7]  # it had not begun there


def test_none_goes_again_where_the_site_has_switched_hedges_off(world: World) -> None:
    waiting_behind_its_place(world, Price(None))
    world.slices, world.is_hedging = (price := Price(STOP)), False
    world.boot()
    for _ in range(3):
        ask(world)
    assert (price.asked, entry_of(world).phase) == ([], Phase.RETURNING)


def test_a_poll_from_before_the_change_does_not_bring_it_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld takes seconds for the change, and a poll that began meanwhile shows the job here."""
    waiting_behind_its_place(world, Price(STOP))

    def slow(*_: object) -> None:
        world.clock.pass_by(1.0)
        shown = (home(world), place(world, "PENDING"))
        snapshot = ClusterSnapshot(time=world.clock.wall, jobs=shown, nodes=())
        world.view.update(snapshot, cluster_state(snapshot, world.settings))
        world.clock.pass_by(1.0)

    monkeypatch.setattr(world.queue, "update_job", slow)
    ask(world)
    world.loop.follow()
    assert entry_of(world).phase is Phase.OPEN


def test_its_first_run_is_not_forgotten_when_its_slot_comes_in_the_second(world: World) -> None:
    price = Price(STOP)
    waiting_behind_its_place(world, price)
    ask(world)
    again = dataclasses.replace(world.job(), restarts=1)
    world.look(again, place(world, "RUNNING"))
    ((elapsed, ran),) = price.known
    assert elapsed < 20.0
    assert ran >= 100.0


@pytest.mark.parametrize("change", ["limit", "not begun"])
def test_a_job_with_another_limit_or_that_had_not_begun_there_is_left_alone(
    world: World, change: str
) -> None:
    """Its limit may be too short for the cloud; a job in its first run is asked about by the price loop."""
    waiting_behind_its_place(world, Price(None))
    world.slices = price = Price(STOP)
    queued = home(world)
    if change == "limit":
        queued = dataclasses.replace(queued, job=structs.replace(queued.job, requested_time=300.0))
    else:
        queued = dataclasses.replace(queued, restarts=0)
    world.clock.pass_by(PERIOD_SECONDS)
    world.look(queued, place(world, "PENDING"))
    assert price.asked == []


def test_a_slot_that_is_gone_again_leaves_no_priority_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its placeholder's node fails before the placeholder is cancelled, and the placeholder waits anew."""

    def refuse(*_: object) -> None:
        raise RetryLater("no", code="slurm.command_failed")

    waiting_behind_its_place(world, Price(None))
    with monkeypatch.context() as refusing:
        refusing.setattr(world.queue, "cancel", refuse)
        with pytest.raises(RetryLater):
            world.look(home(world), place(world, "RUNNING"))
    assert world.queue.raised[-1][1] > 1_000_000
    assert world.loop.due_at(lambda _: None) == -math.inf  # it is looked after in every round
    for _ in range(2):
        world.look(home(world), place(world, "PENDING"))
    assert world.queue.raised[-1][1] < 1_000_000
    assert (entry_of(world).in_place, entry_of(world).has_slot) == (True, False)
    world.clock.pass_by(1000.0)
    world.look(home(world), place(world, "RUNNING"))
    assert "slots_lost" not in world.record.counts
