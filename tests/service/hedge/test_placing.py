"""Placeholders of jobs that were announced: at once, once, in nobody's way."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from advisor.decide.submission.rules import keeps_place
from advisor.model.advice import HedgeKind
from advisor.model.errors import AdvisorError, RetryLater
from advisor.model.job import PLACEHOLDER_COMMENT
from advisor.model.snapshot import QueuedJob
from advisor.service.admin.status_words import places_in_words
from advisor.service.exchange.announcing import Announced
from advisor.service.hedge.full_limits import FullLimits
from advisor.service.state.hedge_entries import Phase
from advisor.testing.watched import hedged_comment
from tests.service.watch_world import World, advice_id_of


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def submit(world: World, job_id: int = 7, *, says: str | None = None, **fields: object) -> Announced:
    """A job comes to the burst partition; what the submit server says of it."""
    comment = hedged_comment(60.0, HedgeKind.SLICE, 10)
    queued = world.job(job_id, comment=comment, **fields)
    world.queue.in_burst[job_id] = dataclasses.replace(queued, job=structs.replace(queued.job, comment=says))
    advice = advice_id_of(comment)
    assert advice is not None
    return Announced(advice, 1000)


def due(world: World) -> float:
    return world.loop.urgent_task.due_in()


def do(world: World) -> None:
    world.loop.urgent_task.step.run()


def phases(world: World) -> dict[int, Phase]:
    return {kept.job_id: kept.phase for kept in world.record.all()}


def test_an_announced_job_has_its_place_without_a_look_at_the_queue(world: World) -> None:
    world.loop.expect([submit(world)])
    assert due(world) == 0.0
    do(world)
    assert phases(world) == {7: Phase.OPEN}
    assert [wish.job_id for wish in world.queue.reserved] == [7]
    assert world.queue.reserved[0].advice_id == world.record.all()[0].advice_id
    assert [users for _, users in world.queue.looks] == [(1000,)]  # nobody else's jobs
    assert due(world) == math.inf


def test_a_job_that_may_preempt_others_has_no_place_and_its_stop_holds(world: World) -> None:
    """Its placeholder would take processors from running jobs, perhaps in vain."""
    world.preempts = True
    world.loop.expect([submit(world)])
    do(world)
    for _ in range(3):
        world.look(world.queue.in_burst[7])
    assert (world.queue.reserved, phases(world)) == ([], {7: Phase.PLACING})
    assert world.loop.stop_of(7) == 60.0


def test_a_user_near_a_limit_of_jobs_in_the_queue_loses_no_sbatch_to_placeholders(world: World) -> None:
    world.queue.submits = 0.49
    world.loop.expect([submit(world)])
    do(world)
    world.look(world.queue.in_burst[7])
    assert (world.queue.reserved, phases(world)) == ([], {7: Phase.PLACING})
    world.queue.submits = 0.5
    world.loop.expect([submit(world, 8)])
    do(world)
    for left, cancelled in ((0.25, []), (0.24, [901]), (0.9, [901])):
        world.queue.submits = left
        world.clock.pass_by(1.0)
        place = world.job(901, name="place-of-8", partition="onprem", state="PENDING")
        world.look(*world.queue.in_burst.values(), *(() if 901 in world.queue.cancelled else (place,)))
        assert world.queue.cancelled == cancelled
    assert phases(world) == {7: Phase.PLACING, 8: Phase.PLACING}
    assert [wish.job_id for wish in world.queue.reserved] == [8]


def test_one_question_a_round_asks_for_what_all_users_have_left(world: World) -> None:
    jobs = [world.job(number, user=f"user{number}", qos="normal") for number in range(100, 120)]
    world.look(*jobs)
    assert len(world.queue.reserved) == 20
    all_users = {f"user{number}" for number in range(100, 120)}
    assert world.queue.asked_submits == [(all_users, {"normal"})] * 2  # may they have places, and keep them


def test_status_counts_no_place_of_a_job_that_has_none(world: World) -> None:
    world.queue.submits = 0.4
    world.look(world.job(7), world.job(8, user="ada"))
    place = world.job(901, name="place-of-8", partition="onprem", state="PENDING")
    world.look(world.job(7), world.job(8, user="ada"), place)
    report = world.loop.report()
    assert (report["now"], report["without"]) == ({"open": 1}, 1)
    assert places_in_words(report) == (
        "1 now, 1 so far, hedged jobs without one: 1 (limits of jobs, or they may preempt others)"
    )


def test_the_submit_server_is_told_which_limits_have_no_room(world: World) -> None:
    limits = FullLimits(world.queue)  # type: ignore[arg-type]
    job, settings = world.job().job, world.settings
    for left, keeps in ((0.5, True), (0.49, False), (0.9, True)):
        world.queue.submits = left
        for step in limits.steps():
            step.run()
        assert keeps_place(job, settings, limits.keys) is keeps
    assert world.queue.asked_submits == [((), ())] * 3  # all users, in one question


def test_the_rounds_and_looks_that_follow_place_it_no_second_time(world: World) -> None:
    old = world.job(8, comment="", partition="onprem")
    world.loop.expect([submit(world)])
    do(world)
    world.loop.expect([Announced(world.record.all()[0].advice_id, 1000)])
    do(world)
    world.look(old)  # this one does not show it yet
    world.look(old, world.queue.in_burst[7])
    assert len(world.queue.reserved) == 1


def test_one_that_slurmctld_has_not_made_yet_is_found_a_moment_later(world: World) -> None:
    announced = submit(world)
    queued = world.queue.in_burst.pop(7)
    world.loop.expect([announced])
    do(world)
    assert phases(world) == {}
    world.queue.in_burst[7] = queued
    assert 0.0 < due(world) <= 0.5
    world.clock.pass_by(due(world))
    do(world)
    assert phases(world) == {7: Phase.OPEN}


def test_one_that_slurmctld_refuses_is_given_up(world: World) -> None:
    announced = submit(world)
    world.queue.in_burst.clear()
    world.loop.expect([announced])
    for _ in range(50):
        do(world)
        world.clock.pass_by(0.1)
    assert due(world) == math.inf
    assert len(world.queue.looks) <= 5
    assert phases(world) == {}


def test_a_look_that_fails_is_not_repeated_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> tuple[QueuedJob, ...]:
        world.clock.pass_by(1.0)
        raise RetryLater("no answer", code="slurm.timeout")

    announced = submit(world)
    with monkeypatch.context() as patch:
        patch.setattr(world.queue, "submitted_by", fails)
        world.loop.expect([announced])
        with pytest.raises(RetryLater):
            do(world)
    assert due(world) >= 1.9  # Slurm is slow
    world.clock.pass_by(5.0)
    world.look(world.queue.in_burst[7])  # as if nobody had been told
    assert phases(world) == {7: Phase.OPEN}


def test_an_sbatch_that_fails_is_tried_again_later_and_by_the_rounds_only(world: World) -> None:
    world.queue.refuses = True
    announced = submit(world)
    world.loop.expect([announced])
    with pytest.raises(RetryLater):
        do(world)
    assert phases(world) == {7: Phase.PLACING}
    world.queue.refuses = False
    world.loop.expect([announced])
    world.clock.pass_by(1.0)
    do(world)  # it may yet have been done: only a look at the whole queue would show it
    assert world.queue.reserved == []
    world.clock.pass_by(30.0)
    world.look(world.queue.in_burst[7])
    assert phases(world) == {7: Phase.OPEN}


class Killed(BaseException):
    """The process ends here."""


def test_killed_while_it_is_placed_it_is_placed_no_second_time(world: World) -> None:
    def dies() -> None:
        raise Killed

    world.queue.on_reserve = dies
    announced = submit(world)
    world.loop.expect([announced])
    with pytest.raises(Killed):
        do(world)
    world.queue.on_reserve = lambda: None
    world.boot()
    world.loop.expect([announced])
    do(world)  # nobody can know here whether sbatch was there
    assert world.queue.reserved == []
    place = world.job(901, comment="", partition="onprem", state="PENDING", name="place-of-7")
    world.look(world.queue.in_burst[7], place)
    assert [(kept.phase, kept.placeholder) for kept in world.record.all()] == [(Phase.OPEN, 901)]
    assert world.queue.reserved == []


@pytest.mark.parametrize(
    "fields",
    [
        {"requeue": False},
        {"says": "no-hedge"},
        {"partition": "onprem"},
        {"name": "place-of-3", "says": PLACEHOLDER_COMMENT},
        {"gres": "gpu:1"},
    ],
)
def test_the_same_jobs_as_ever_get_none(world: World, fields: dict[str, Any]) -> None:
    world.loop.expect([submit(world, **fields)])
    do(world)
    assert (phases(world), world.queue.reserved) == ({}, [])
    assert due(world) == math.inf


def test_of_users_jobs_only_what_the_advice_moved_is_placed(world: World) -> None:
    """Whoever may speak to the socket brings nobody a place: what Slurm shows decides."""
    world.queue.in_burst[7] = world.job(7, comment="")
    world.loop.expect([Announced("made-up", 1000)])
    do(world)
    assert phases(world) == {}


def test_hundreds_at_once_take_turns_with_the_rounds(world: World) -> None:
    world.queue.on_reserve = lambda: world.clock.pass_by(0.1)
    world.loop.expect([submit(world, job_id) for job_id in range(100, 130)])
    do(world)
    assert 9 <= len(world.queue.reserved) <= 11  # about a second's worth; the loop goes round
    for _ in range(5):
        world.clock.pass_by(due(world))
        do(world)
        if due(world) == math.inf:
            break
    assert [wish.job_id for wish in world.queue.reserved] == list(range(100, 130))
    assert set(phases(world).values()) == {Phase.OPEN}


def test_where_slurm_does_not_answer_the_others_are_left_for_later(world: World) -> None:
    def hangs() -> None:
        world.clock.pass_by(0.01)
        raise RetryLater("no", code="slurm.timeout")

    asked: list[int] = []
    world.queue.on_reserve = lambda: (asked.append(1), hangs())
    world.loop.expect([submit(world, job_id) for job_id in range(100, 130)])
    with pytest.raises(AdvisorError):
        do(world)
    assert len(asked) == 1


def test_who_comes_while_a_job_is_brought_back_does_not_wait_for_that(world: World) -> None:
    """A requeued job takes its second to end: in it places are kept."""
    back = world.job(7)
    world.look(back)  # its place is kept
    world.queue.jobs[901] = dataclasses.replace(
        world.queue.jobs[7],
        job_id=901,
        name="place-of-7",
        partition="onprem",
        state="PENDING",
        start_time=None,
    )
    late: list[Announced] = []

    def requeued() -> None:
        world.queue.jobs[7] = dataclasses.replace(world.queue.jobs[7], state="COMPLETING")
        late.append(submit(world, 8))
        world.loop.expect(late)

    world.queue.on_requeue = requeued
    world.clock.pass_by(100.0)  # its stop-loss
    placed_after: list[float] = []
    world.queue.on_reserve = lambda: placed_after.append(len(world.clock.waited))
    place = world.job(901, comment="", partition="onprem", state="PENDING", name="place-of-7")
    world.look(back, place)
    assert world.queue.requeued == [7]
    assert phases(world)[8] is Phase.OPEN
    assert placed_after[-1] <= 1  # pauses of a tenth of a second
    assert len(world.clock.waited) >= 5  # it went on waiting for the other


def test_a_constraint_that_comes_after_the_partition_is_left_out_of_the_place(world: World) -> None:
    """slurmctld may refuse a change of a job after it has changed the partition: it is then asked again."""
    world.comment = hedged_comment(math.inf, HedgeKind.PROMISE, 10)
    world.queue.refuses = True  # on-premise nodes have no feature of the cloud's
    job = world.job()
    with pytest.raises(RetryLater):
        world.look(job)
    assert world.record.all()[0].features is None
    world.queue.refuses = False
    world.clock.pass_by(60.0)
    late = dataclasses.replace(job, job=structs.replace(job.job, features=("x86", "on-demand")))
    world.look(late)
    assert [wish.features for wish in world.queue.reserved] == [("x86",)]
    assert world.record.all()[0].features == ("x86",)
