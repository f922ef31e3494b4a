"""The watch loop where no Slurm is needed: what it makes of a look at the queue."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from advisor.model.advice import HedgeKind
from advisor.model.errors import RetryLater
from advisor.model.snapshot import JobView
from advisor.service.exchange.announcing import Announced
from advisor.service.state.hedge_entries import Phase
from advisor.slurm.placeholders import PlaceholderRequest
from advisor.testing.watched import hedged_comment, small_comment
from tests.service.watch_world import Queue, World, advice_id_of, brought_home, home, place


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_place_is_kept_with_what_the_user_asked_for(world: World) -> None:
    world.look(world.job())
    wish = world.queue.reserved[0]
    assert (wish.job_id, wish.partition, wish.limit_seconds) == (7, "onprem", 600.0)
    assert wish.held_seconds == world.settings.hedge.slot_held_seconds
    world.look(world.job())
    assert len(world.queue.reserved) == 1


def test_a_job_that_ends_before_its_place_was_had_is_forgotten(world: World) -> None:
    world.queue.refuses = True
    with pytest.raises(RetryLater):
        world.look(world.job())
    assert 7 in world.record
    world.queue.jobs.clear()
    world.queue.refuses = False
    world.look()
    assert 7 not in world.record
    assert world.queue.reserved == []


def test_somebody_elses_job_under_its_id_is_not_touched(world: World) -> None:
    world.look(world.job())
    other = world.job(comment=hedged_comment(1.0, HedgeKind.SLICE, 10))
    world.look(other)
    world.look(other)
    assert world.queue.requeued == []
    assert [kept.advice_id for kept in world.record.all()] != [advice_id_of(world.comment)]


def test_somebody_elses_job_under_the_placeholders_id_is_no_slot(world: World) -> None:
    world.look(world.job())
    thief = world.job(901, comment="", partition="onprem", name="payroll")
    world.look(world.job(), thief)
    kept = world.record.all()[0]
    assert kept.why == "its placeholder was cancelled"
    assert world.queue.requeued == []


def test_a_placeholder_submitted_before_a_crash_is_found(world: World) -> None:
    world.queue.refuses = True
    with pytest.raises(RetryLater):
        world.look(world.job())
    world.queue.refuses = False
    world.boot()
    found = world.job(950, comment="", partition="onprem", state="PENDING", name="place-of-7")
    world.look(world.job(), found)
    assert world.queue.reserved == []
    assert world.record.all()[0].placeholder == 950


def test_a_placeholder_of_another_user_is_none_of_ours(world: World) -> None:
    forged = world.job(
        950, comment="", partition="onprem", state="PENDING", name="place-of-7", user="mallory"
    )
    world.look(world.job(), forged)
    assert world.record.all()[0].placeholder == 901


def test_a_stop_loss_holds_without_a_place(world: World) -> None:
    world.queue.refuses = True
    with pytest.raises(RetryLater):
        world.look(world.job())
    running = world.job()
    world.clock.pass_by(100.0)
    world.look(running)
    assert world.queue.requeued
    assert set(world.queue.requeued) == {7}


def test_a_stop_holds_where_no_more_places_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.service.state.hedge_entries.MAX_PLACES", 1)
    first, second = world.job(), world.job(8, comment=hedged_comment(60.0, HedgeKind.SLICE, 10))
    world.look(first)
    waiting = place(world, "PENDING")
    world.queue.in_burst[8] = second
    world.loop.expect([Announced(advice_id_of(second.admin_comment) or "", 1000)])
    world.look(first, second, waiting)
    assert [wish.job_id for wish in world.queue.reserved] == [7]
    assert world.queue.requeued == []
    world.clock.pass_by(100.0)
    world.look(first, second, waiting)
    assert set(world.queue.requeued) == {7, 8}


def test_a_place_is_kept_as_soon_as_there_is_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.service.state.hedge_entries.MAX_PLACES", 1)
    first, second = world.job(), world.job(8, comment=hedged_comment(900.0, HedgeKind.SLICE, 10))
    world.look(first)
    world.look(first, second, place(world, "PENDING"))
    del world.queue.jobs[7]
    world.look(second)
    world.look(second)
    assert [wish.job_id for wish in world.queue.reserved] == [7, 8]


@pytest.mark.parametrize(
    "fields",
    [
        {"requeue": False},
        {"array_tasks": 3},
        {"comment_of_user": "no-hedge"},
        {"dependency": "after:3"},
        {"interactive": True},
        {"partition": "onprem"},
    ],
)
def test_who_may_not_be_brought_back_gets_no_place(world: World, fields: dict[str, object]) -> None:
    fields = dict(fields)
    said = fields.pop("comment_of_user", None)
    queued = world.job(**fields)
    world.look(dataclasses.replace(queued, job=structs.replace(queued.job, comment=said)))
    assert len(world.record) == 0
    assert world.queue.reserved == []


def test_a_job_others_wait_for_gets_no_place_and_keeps_none(world: World) -> None:
    waiting = world.job(
        8, comment="", partition="onprem", state="PENDING", dependency="afterok:7(unfulfilled)"
    )
    world.look(world.job(), waiting)
    assert len(world.record) == 0
    world.look(world.job())
    assert world.record.all()[0].placeholder == 901
    world.look(world.job(), waiting, world.job(901, comment="", partition="onprem", name="place-of-7"))
    assert world.record.all()[0].why == "it may not be requeued any more"
    assert world.queue.requeued == []


def test_after_its_stop_loss_a_job_waits_behind_its_placeholder(world: World) -> None:
    waiting = brought_home(world)
    for _ in range(3):
        world.look(home(world), waiting)
    assert world.queue.cancelled == []
    world.look(home(world), place(world, "RUNNING"))
    assert world.queue.cancelled == [901]
    # first in the queue for that moment, and only for that
    assert world.queue.raised[-1][0] == 7
    assert world.queue.raised[-1][1] > 1e8
    world.look(home(world, state="RUNNING"))
    assert world.queue.raised[-1] == (7, 0)
    assert world.queue.requeued == [7]


def test_its_age_is_given_back_once_and_not_before_ages_are_reckoned(world: World) -> None:
    world.queue.recalculation_seconds = 300.0
    waiting = brought_home(world)
    submitted = world.record.all()[0].submitted
    for _ in range(3):
        world.look(home(world), waiting)
    assert world.queue.raised == []
    begins = world.clock.wall + 121.0  # a requeued job's age counts from when it might have begun
    queued = home(world, since=begins)
    world.queue.jobs[7] = dataclasses.replace(world.queue.jobs[7], priority=50)
    world.look(queued, waiting)
    assert world.queue.raised == [(7, round(begins - submitted))]
    for _ in range(3):
        world.look(home(world, since=begins), waiting)
    assert len(world.queue.raised) == 1


def test_a_placeholder_gets_the_jobs_age_once_ages_are_reckoned(world: World) -> None:
    world.queue.recalculation_seconds = 300.0
    world.queue.place_seconds = 4.0
    world.look(world.job())
    late = world.record.all()[0].delay_seconds
    assert late > 0.0
    waiting = place(world, "PENDING")
    for _ in range(3):
        world.look(world.job(), waiting)
    assert world.queue.raised == [], (
        "a second of age would put it before all that came since the last reckoning"
    )
    world.queue.jobs[901] = dataclasses.replace(world.queue.jobs[901], priority=50)
    world.look(world.job(), waiting)
    assert world.queue.raised == [(901, round(late))]
    world.look(world.job(), waiting)
    assert len(world.queue.raised) == 1


@pytest.mark.parametrize("may", [True, False])
def test_a_job_whose_node_still_boots_is_requeued_where_that_harms_nobody(world: World, *, may: bool) -> None:
    world.queue.may_requeue_booting = may
    world.look(world.job())
    booting = world.job(state="CONFIGURING")
    world.look(booting, place(world, "CONFIGURING"))
    assert bool(world.queue.requeued) == may
    assert world.record.all()[0].phase is Phase.RETURNING


@pytest.mark.parametrize("state", ["SUSPENDED", "STOPPED"])
def test_a_job_that_an_admin_has_suspended_loses_nothing_when_its_slot_comes(
    world: World, state: str
) -> None:
    world.look(world.job())
    world.look(world.job(state=state), place(world, "RUNNING"))
    assert (world.queue.requeued, world.record.all()[0].phase) == ([], Phase.SETTLED)


@pytest.mark.parametrize("state", ["COMPLETING", "LEVITATING"])
def test_a_slot_requeues_no_job_that_ends_or_whose_state_is_not_known(world: World, state: str) -> None:
    world.look(world.job())
    world.look(world.job(state=state), place(world, "RUNNING"))
    assert (world.queue.requeued, world.record.all()[0].phase) == ([], Phase.OPEN)
    world.look(world.job(), place(world, "RUNNING"))
    assert (set(world.queue.requeued), world.record.all()[0].phase) == ({7}, Phase.RETURNING)


def test_a_return_that_fails_holds_up_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other job is requeued, moved and behind its placeholder within the round."""
    other = world.job(8, comment=hedged_comment(60.0, HedgeKind.SLICE, 10))
    world.look(world.job(), other)
    other, running = world.job(8, comment=other.admin_comment), world.job()
    world.clock.pass_by(100.0)
    view = world.queue.view

    def refuse_one(job_id: int) -> JobView | None:
        if job_id == 8:
            raise RetryLater("no", code="slurm.command_failed")
        return view(job_id)

    monkeypatch.setattr(world.queue, "view", refuse_one)
    world.queue.on_requeue = lambda: home(world)
    second = world.job(902, comment="", partition="onprem", state="PENDING", name="place-of-8")
    with pytest.raises(RetryLater):
        world.look(running, other, place(world, "PENDING"), second)
    assert [kept.is_raised for kept in world.record.all()] == [True, False]


@pytest.mark.parametrize("state", ["SUSPENDED", "LEVITATING"])
def test_a_job_that_is_suspended_as_its_return_is_decided_is_requeued_once_it_runs(
    world: World, state: str
) -> None:
    world.look(world.job())
    running = world.job()
    world.queue.jobs[7] = dataclasses.replace(world.queue.jobs[7], state=state)
    world.clock.pass_by(100.0)
    world.look(running, place(world, "PENDING"))
    assert (world.queue.requeued, world.record.all()[0].phase) == ([], Phase.RETURNING)
    world.look(world.job(), place(world, "PENDING"))
    assert set(world.queue.requeued) == {7}


def test_f32_a_clock_that_is_set_back_stops_no_hedge(world: World) -> None:
    """Nothing waits until the clock has caught up: no placeholder, no slot, no end of a slot."""
    world.queue.refuses = True
    with pytest.raises(RetryLater):
        world.look(world.job())
    world.queue.refuses = False
    world.clock.wall -= 3600.0
    world.look(world.job())
    assert len(world.queue.reserved) == 1
    world.clock.wall -= 3600.0
    world.queue.on_requeue = lambda: home(world)
    world.look(world.job(), place(world, "RUNNING"))
    assert world.queue.requeued == [7]
    assert world.queue.raised[-1][1] > 1e8
    world.clock.wall -= 3600.0
    world.look(home(world))
    assert world.queue.raised[-1][1] < 1e8
    world.clock.wall -= 3600.0
    world.queue.jobs.clear()
    world.look()
    assert len(world.record) == 0


@pytest.mark.parametrize("place_state", ["RUNNING", "PENDING"])
def test_a_job_held_while_it_runs_is_not_ended_there(world: World, place_state: str) -> None:
    """``scontrol hold`` of a running job: once requeued it would not start again."""
    world.look(world.job())
    held = dataclasses.replace(world.job(), reason="JobHeldAdmin", priority=0)
    world.clock.pass_by(1e6)  # its stop is over as well
    world.look(held, place(world, place_state))
    phase = Phase.SETTLED if place_state == "RUNNING" else Phase.OPEN
    assert (world.queue.requeued, world.record.all()[0].phase) == ([], phase)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_requeue_that_slurmctld_forgot_in_a_crash_is_asked_for_again(
    world: World, *, is_ours: bool
) -> None:
    """It had killed the job, and died before it wrote down why: the job has failed, by a signal."""
    world.look(world.job())
    running = world.job()
    world.clock.pass_by(100.0)
    waiting = place(world, "PENDING")

    def forgotten() -> None:
        failed = dataclasses.replace(world.queue.jobs.pop(7), state="FAILED")
        if not is_ours:  # another job, which got this one's id from that slurmctld
            failed = dataclasses.replace(failed, advice_id="other")
        world.queue.killed_jobs[7] = failed
        world.queue.on_requeue = remembered

    def remembered() -> None:
        world.queue.jobs[7] = world.queue.killed_jobs.pop(7)
        home(world)

    world.queue.on_requeue = forgotten
    world.look(running, waiting)
    assert (world.queue.requeued, world.queue.requeued_ended) == ([7], [7] if is_ours else [])
    world.clock.pass_by(5.0)
    world.look(*([home(world)] if is_ours else []), waiting)
    assert (world.queue.requeued, world.queue.requeued_ended) == ([7], [7] if is_ours else [])
    assert bool(world.record.all()) == is_ours


def test_a_job_that_a_signal_ends_without_us_has_ended(world: World) -> None:
    world.look(world.job())
    running = world.job()
    world.queue.killed_jobs[7] = dataclasses.replace(world.queue.jobs.pop(7), state="FAILED")
    world.clock.pass_by(100.0)
    world.look(running, place(world, "PENDING"))
    assert world.queue.requeued == []


def cut_down(queue: Queue, **changes: object) -> None:
    """What a user makes of his placeholder with scontrol, so that it may start at once."""
    queue.jobs[901] = dataclasses.replace(queue.jobs[901], **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [{"processors": 1}, {"nodes": 1}, {"limit_seconds": 60.0}, {"partition": "debug"}],
)
@pytest.mark.parametrize("is_home", [False, True])
def test_nobody_jumps_the_queue_with_a_smaller_placeholder(
    world: World, *, changes: dict[str, object], is_home: bool
) -> None:
    world.queue.place_seconds = 1.0
    running = world.job(nodes=2)
    world.look(running)
    if is_home:
        waiting = place(world, "PENDING")
        cut_down(world.queue, nodes=2)
        world.clock.pass_by(100.0)
        world.queue.on_requeue = lambda: home(world)
        world.look(running, waiting)
        assert world.queue.cancelled == []
        assert world.queue.requeued == [7]
    jobs = [home(world) if is_home else world.job(nodes=2), place(world, "RUNNING")]
    cut_down(world.queue, **({"processors": 4, "nodes": 2} | changes))
    for _ in range(2):
        world.look(*jobs)
    assert 901 in world.queue.cancelled
    assert all(by < 1e8 for _, by in world.queue.raised)
    assert world.queue.requeued == ([7] if is_home else [])
    assert world.record.all()[0].phase is Phase.SETTLED


@pytest.mark.parametrize("fields", [{"processors": 1}, {"requested_time": 60.0}, {"is_plain": True}])
def test_a_users_own_job_with_a_placeholders_name_is_none(world: World, fields: dict[str, object]) -> None:
    is_plain = fields.pop("is_plain", False)
    own = world.job(950, comment="", partition="onprem", state="PENDING", name="place-of-7", **fields)
    if is_plain:
        own = dataclasses.replace(own, job=structs.replace(own.job, comment=None))
    world.look(world.job(), own)
    assert world.record.all()[0].placeholder == 901


def in_its_slot(world: World) -> None:
    """Its placeholder has started and is ended: the job is first in the queue."""
    brought_home(world)
    world.look(home(world), place(world, "RUNNING"))
    assert world.queue.raised[-1][1] > 1e8


def test_a_job_held_by_its_user_does_not_stay_first(world: World) -> None:
    in_its_slot(world)
    queued = home(world)
    world.queue.jobs[7] = dataclasses.replace(world.queue.jobs[7], reason="JobHeldUser", priority=0)
    world.look(queued)
    assert world.queue.raised[-1][1] < 1e8
    assert world.record.all()[0].phase is Phase.SETTLED


def test_the_time_before_which_its_user_wants_no_start_is_kept(world: World) -> None:
    """`sbatch --begin` (rules.move_deferred), or `scontrol update starttime=` while it waits in the cloud."""
    deferred = dataclasses.replace(world.job(state="PENDING"), reason="BeginTime")
    world.look(deferred)
    assert world.queue.reserved == []
    world.look(world.job(state="PENDING"))
    assert [wish.job_id for wish in world.queue.reserved] == [7]
    world.job(state="PENDING")
    world.queue.jobs[7] = dataclasses.replace(world.queue.jobs[7], reason="BeginTime")
    world.look(deferred, place(world, "RUNNING"))
    assert world.queue.updated[0] == (7, {"partition": "onprem", "timelimit": "10"})
    world.queue.updated.clear()
    world.queue.jobs[7] = dataclasses.replace(world.queue.jobs[7], partition="onprem")
    world.look(dataclasses.replace(deferred, partitions=("onprem",)))
    assert world.queue.updated == []


@pytest.mark.parametrize(("limit", "minutes"), [(2400.0, "10"), (36_000.0, "600"), (300.0, "5")])
def test_a_job_comes_home_with_its_own_limit_or_the_one_set_since(
    world: World, limit: float, minutes: str
) -> None:
    """The advice has raised ten minutes to forty; an admin may give it ten hours, its user less."""
    world.look(world.job())
    running = world.job(requested_time=limit)
    world.clock.pass_by(100.0)
    world.queue.on_requeue = lambda: world.job(state="PENDING", requested_time=limit)
    world.look(running, place(world, "PENDING"))
    changes = {"partition": "onprem", "timelimit": minutes, "starttime": "now"}
    assert world.queue.updated[0] == (7, changes)


def test_a_job_held_before_its_slot_came_gives_it_up(world: World) -> None:
    """``scontrol requeuehold``; under priority/basic slurmctld refuses such a job a priority."""
    brought_home(world)
    queued = home(world)
    held = {"reason": "job requeued in held state", "priority": 0}
    world.queue.jobs[7] = dataclasses.replace(world.queue.jobs[7], **held)
    world.queue.raised.clear()
    world.look(queued, place(world, "RUNNING"))
    world.look(queued)
    assert 901 in world.queue.cancelled
    assert all(by < 1e8 for _, by in world.queue.raised)
    assert world.record.all()[0].phase is Phase.SETTLED


def test_a_job_that_cannot_start_does_not_stay_first_for_ever(world: World) -> None:
    in_its_slot(world)
    world.look(home(world))
    assert world.queue.raised[-1][1] > 1e8
    world.clock.pass_by(world.settings.hedge.slot_held_seconds)
    world.look(home(world))
    assert world.queue.raised[-1][1] < 1e8
    raised = len(world.queue.raised)
    world.look(home(world))
    assert len(world.queue.raised) == raised
    seen = {name: value for name, (value, _) in world.loop.gauges().items()}
    assert seen == {
        "places_now": 1.0,
        "places_kept": 1.0,
        "hedges_brought_back": 1.0,
        "hedges_stayed": 0.0,
        "hedge_slots_lost": 1.0,
        "small_jobs_requeued": 0.0,
    }


@pytest.mark.parametrize("seconds", [0.0, 40.0])
def test_an_sbatch_not_answered_in_time_is_waited_for_and_nothing_of_it_stays(
    world: World, seconds: float
) -> None:
    world.queue.refuses = True
    world.queue.on_reserve = lambda: world.clock.pass_by(seconds)
    with pytest.raises(RetryLater):
        world.look(world.job())
    world.queue.refuses, world.queue.on_reserve = False, lambda: None
    world.look(world.job())
    assert world.queue.reserved == [], "it may yet come"
    world.clock.pass_by(30.0)
    world.look(world.job())
    assert len(world.queue.reserved) == 1
    late = world.job(950, comment="", partition="onprem", state="PENDING", name="place-of-7")
    first = place(world, "PENDING")
    world.queue.jobs.pop(7)
    world.look(first, late)
    assert sorted(world.queue.cancelled) == [901, 950]
    assert len(world.record) == 0


def test_places_are_kept_for_some_seconds_a_round_and_not_where_nobody_answers(world: World) -> None:
    jobs = [world.job(number) for number in range(7, 17)]
    reserve = world.queue.reserve

    def slow(wish: PlaceholderRequest) -> int:
        world.clock.pass_by(1.0)
        return reserve(wish)

    world.queue.reserve = slow  # type: ignore[method-assign]
    world.look(*jobs)
    assert len(world.queue.reserved) == 5
    world.queue.reserve = reserve  # type: ignore[method-assign]
    asked: list[int] = []

    def silent(wish: PlaceholderRequest) -> int:
        asked.append(wish.job_id)
        raise RetryLater("sbatch: no answer in time", code="slurm.timeout")

    world.queue.reserve = silent  # type: ignore[method-assign]
    with pytest.raises(RetryLater):
        world.look(*[world.job(number) for number in range(7, 17)])
    assert len(asked) == 1


def test_a_placeholder_gets_no_place_and_is_no_small_job(world: World) -> None:
    world.look(world.job(8, name="place-of-7"))
    assert len(world.record) == 0
    small = world.job(8, comment=small_comment(), partition="onprem", name="place-of-7")
    world.clock.pass_by(600.0)
    world.look(small)
    assert world.queue.requeued == []
    world.look(dataclasses.replace(small, job=structs.replace(small.job, name="run")))
    assert world.queue.requeued == [8]


def test_the_last_task_of_an_array_is_not_requeued_as_large(world: World) -> None:
    """It has the array's own id: a change of its priority would be one of all tasks."""
    world.clock.pass_by(100.0)
    last = world.job(8, comment=small_comment(), partition="onprem")
    world.look(dataclasses.replace(last, is_of_array=True))
    assert world.queue.requeued == []


def test_a_small_job_held_while_it_runs_is_not_requeued(world: World) -> None:
    world.clock.pass_by(100.0)
    small = world.job(8, comment=small_comment(), partition="onprem")
    world.look(dataclasses.replace(small, reason="JobHeldUser"))
    assert world.queue.requeued == []
    world.look(small)
    assert world.queue.requeued == [8]
