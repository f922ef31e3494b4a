"""A slice at its stop and at its turn: it goes on where that is worth the price and covered by tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.arrays import Floats
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.advice import Capacity, TimeLimit
from advisor.model.job import Job
from advisor.model.site import Room
from advisor.model.snapshot import QueuedJob
from advisor.model.spot_pools import LASTS_HOURS, SpotPool
from advisor.predict.run_times.grid import GRID, bin_of
from advisor.service.observation.work_kept import WorkKept
from advisor.service.price.queue_view import run_to_limits
from advisor.service.price.slice_decider import Slices
from tests.decide.cases import ask, make_job, make_settings
from tests.service.doubles import make_look, make_queued
from tests.service.price.price_world import COMMENT, World

HOUR = 3600.0


class Runs:
    """Half of the jobs run ten minutes, the others an hour."""

    def chances(self, _job: Job) -> Floats:
        found = np.zeros(len(GRID))
        found[bin_of(600.0)] = found[bin_of(HOUR)] = 0.5
        return found


def site(
    folder: Path,
    usd_per_hour: float = 10.0,
    usd: float = 240.0,
    runs: Runs | None = None,
    strain: float = 0.0,
    fallen_back: Mapping[str, str] = MappingProxyType({}),
    default_mode: str = "act",
    *,
    is_open: bool = True,
    **budget: Any,
) -> tuple[World, Slices]:
    budget = {"usd": usd, "period": "day", "usd_per_hour_saved": usd_per_hour} | budget
    cluster = {"default_mode": default_mode}
    world = World(folder, budget=budget, cluster=cluster, promise={"enabled": True})
    world.hands.pass_by(12 * HOUR)
    for job_id in (1, 2):
        world.slurm.put(job_id, "RUNNING", processors=8, start_time=world.hands.wall, requested_time=4 * HOUR)
    world.slurm.put(901, processors=8, name="place-of-7", requested_time=2 * HOUR)
    world.round()
    slices = Slices(
        world.settings,
        view=world.view,
        keeper=world.keeper,
        chances=(runs or Runs()).chances,
        slowdown=lambda _queued: 1.05,
        cloud=lambda: replace(world.cloud, on_demand_open=is_open),
        strain=lambda _job: strain,
        kept=WorkKept(attempts=lambda _job_id: (), slowdown=lambda _queued: 1.05, burst_partition="burst"),
        runs=run_to_limits,
        fallen_back=lambda: fallen_back,
    )
    return world, slices


def in_cloud(account: str | None = None, **fields: Any) -> QueuedJob:
    return make_queued(
        7, "RUNNING", queue="burst", processors=8, requested_time=2 * HOUR,
        admin_comment=COMMENT, account=account, **fields,
    )  # fmt: skip


def test_a_job_far_from_its_turn_goes_on_and_commits_its_tokens(tmp_path: Path) -> None:
    world, slices = site(tmp_path)
    before = world.keeper.current
    stop = slices.next_stop(in_cloud(), 1000.0, 901)
    after = world.keeper.current
    assert stop is not None
    assert stop >= HOUR
    assert before is not None
    assert after is not None
    worst = 8 * 0.05 / 3600.0 * (stop - 1000.0 + 60.0)
    assert before.tokens_usd - after.tokens_usd == pytest.approx(worst, rel=0.01)


def test_it_comes_back_where_the_price_is_too_high_or_tokens_are_missing(tmp_path: Path) -> None:
    for number, (usd_per_hour, usd) in enumerate(((0.01, 240.0), (10.0, 0.3))):
        folder = tmp_path / str(number)
        folder.mkdir()
        _, slices = site(folder, usd_per_hour, usd)
        assert slices.next_stop(in_cloud(), 1000.0, 901) is None


def test_it_goes_on_at_the_price_of_its_account(tmp_path: Path) -> None:
    world, slices = site(tmp_path, 0.0, accounts={"chem": 10.0})
    world.hands.pass_by(86_400.0 - world.hands.wall % 86_400.0)
    world.hands.pass_by(23.9 * HOUR)
    world.round()
    assert slices.next_stop(in_cloud("bio"), 1000.0, 901) is None
    assert slices.next_stop(in_cloud("chem"), 1000.0, 901) is not None


def test_it_goes_on_for_a_shorter_slice_where_the_tokens_cover_no_longer_one(tmp_path: Path) -> None:
    class Longer(Runs):
        def chances(self, _job: Job) -> Floats:
            found = np.zeros(len(GRID))
            found[bin_of(1200.0)], found[bin_of(HOUR)] = 0.1, 0.9
            return found

    stops = []
    for number, usd in enumerate((10.0, 0.2, 0.05)):
        folder = tmp_path / str(number)
        folder.mkdir()
        world, slices = site(folder, 0.0, runs=Longer(), accounts={"chem": usd})
        world.hands.pass_by(86_400.0 - world.hands.wall % 86_400.0)
        world.hands.pass_by(23.9 * HOUR)
        world.round()
        stops.append(slices.next_stop(in_cloud("chem"), 900.0, 901))
        assert world.keeper.current is not None
        assert world.keeper.current.tokens_of(["chem"])[0] >= 0.0
    assert stops[0] is not None
    assert stops[1] is not None
    assert 1200.0 < stops[1] < stops[0]
    assert stops[2] is None


def test_when_its_turn_has_come_it_stays_if_little_is_left(tmp_path: Path) -> None:
    _, slices = site(tmp_path)
    assert slices.stays(in_cloud(), 0.9 * HOUR)
    assert not slices.stays(in_cloud(), 10.0)


def test_a_job_that_is_slower_there_than_forecast_runs_on_to_its_raised_limit(tmp_path: Path) -> None:
    """Here it would have ended at its limit of two hours; slurmctld gives it a quarter of an hour more."""

    class ToTheLimit(Runs):
        def chances(self, _job: Job) -> Floats:
            found = np.zeros(len(GRID))
            found[bin_of(2 * HOUR)] = 1.0
            return found

    _, slices = site(tmp_path, runs=ToTheLimit())
    advice = ask(make_job(), settings=make_settings())
    raised = TimeLimit(asked_seconds=2 * HOUR, given_seconds=2.25 * HOUR)
    job = in_cloud()
    comment = admin_comment(replace(advice, time_limit=raised))
    job = dataclasses.replace(job, job=replace(job.job, requested_time=2.25 * HOUR), admin_comment=comment)
    for elapsed, stop in ((2.05, 2.1), (2.1, 2.25), (2.15, 2.25)):
        assert slices.stays(job, elapsed * HOUR)
        assert slices.next_stop(job, elapsed * HOUR, 901) == pytest.approx(stop * HOUR)


@pytest.mark.parametrize(
    ("hours_left", "elapsed_hours", "stays"),
    [
        (4.0, 0.9, False),  # an hour here is in time, too, and costs nothing
        (0.5, 0.9, True),  # nearly done there; here half of the jobs would be late
        (0.5, 0.1, False),  # half of them are as short, and the others are late on either side
        (-1.0, 0.2, False),  # late on either side
    ],
)
def test_a_promised_job_stays_only_where_it_would_be_late_here(
    tmp_path: Path, *, hours_left: float, elapsed_hours: float, stays: bool
) -> None:
    world, slices = site(tmp_path, 0.0)
    now = world.hands.wall
    job = in_cloud(comment="by=+5h", submit_time=now + (hours_left - 5.0) * HOUR)
    assert slices.stays(job, elapsed_hours * HOUR) is stays


def test_less_of_the_money_has_to_be_needed_where_promises_were_broken(tmp_path: Path) -> None:
    """Half an hour is left: here only the short half of the jobs is in time, there all but the longest."""

    class Three(Runs):
        def chances(self, _job: Job) -> Floats:
            found = np.zeros(len(GRID))
            found[bin_of(600.0)], found[bin_of(HOUR)], found[bin_of(1.6 * HOUR)] = 0.2, 0.56, 0.24
            return found

    stayed = []
    for strain in (0.0, 1.0):
        folder = tmp_path / str(strain)
        folder.mkdir()
        world, slices = site(folder, 0.0, runs=Three(), strain=strain)
        job = in_cloud(comment="by=+5h", submit_time=world.hands.wall - 4.5 * HOUR)
        stayed.append(slices.stays(job, 0.9 * HOUR))
    assert stayed == [False, True]


def saving_job(**fields: Any) -> QueuedJob:
    """A job in the cloud that saves its work every ten minutes."""
    return in_cloud(**{"comment": "checkpoint=10min"} | fields)


def test_with_checkpoints_it_comes_back_when_its_turn_has_come(tmp_path: Path) -> None:
    """It goes on here: only where less is left than a restart costs it stays."""
    _, slices = site(tmp_path)
    assert slices.stays(in_cloud(), 0.45 * HOUR)
    assert not slices.stays(saving_job(comment="checkpoint=1min"), 0.45 * HOUR)
    assert slices.stays(saving_job(comment="checkpoint=1h"), 0.45 * HOUR)


def test_what_an_earlier_run_has_kept_need_not_be_run_again(tmp_path: Path) -> None:
    """So little is left of it that a restart here would cost more than the slower rest there."""
    world, slices = site(tmp_path, 100.0)
    often = {"comment": "checkpoint=1min"}
    slices.see(make_look(0.0, (), [saving_job(**often, start_time=world.hands.wall)]))
    assert not slices.stays(saving_job(**often), 0.45 * HOUR)
    earlier = saving_job(**often, start_time=world.hands.wall - 0.45 * HOUR)
    slices.see(make_look(world.hands.wall, (), [earlier]))
    again = saving_job(**often, restarts=1, start_time=world.hands.wall)
    slices.see(make_look(world.hands.wall, (), [again]))
    assert slices.stays(again, 0.45 * HOUR)


def test_a_promised_job_with_checkpoints_comes_back_where_going_on_here_is_in_time(tmp_path: Path) -> None:
    world, slices = site(tmp_path, 0.0)
    submitted = world.hands.wall - 4.5 * HOUR  # half an hour is left
    assert slices.stays(in_cloud(comment="by=+5h", submit_time=submitted), 0.9 * HOUR)
    saving = saving_job(
        comment="by=+5h,checkpoint=1min", submit_time=submitted, start_time=world.hands.wall - 0.9 * HOUR
    )
    slices.see(make_look(world.hands.wall, (), [saving]))
    assert not slices.stays(saving, 0.9 * HOUR)


def test_the_limit_of_a_promised_job_begins_anew_with_each_run(tmp_path: Path) -> None:
    """Of a run of three hours two are kept, as long as its limit: it would be late if it went on here."""

    class Long(Runs):
        def chances(self, _job: Job) -> Floats:
            found = np.zeros(len(GRID))
            found[bin_of(3 * HOUR)] = 1.0
            return found

    world, slices = site(tmp_path, 0.0, runs=Long())
    now = world.hands.wall
    facts: dict[str, Any] = {"comment": "by=+5h,checkpoint=1h", "submit_time": now - 4.6 * HOUR}
    slices.see(make_look(now, (), [saving_job(start_time=now - 3.1 * HOUR, **facts)]))
    again = saving_job(start_time=now - 0.9 * HOUR, restarts=1, **facts)
    slices.see(make_look(now, (), [again]))
    assert slices.stays(again, 0.9 * HOUR)


@pytest.mark.parametrize("comment", ["by=+5h", "by=+5h,checkpoint=10h"])
def test_a_requeue_leaves_a_promised_job_no_more_time(tmp_path: Path, comment: str) -> None:
    """Slurm says from then on that it was submitted at its requeue; half an hour is left of its five."""
    world, slices = site(tmp_path, 0.0)
    now = world.hands.wall
    first = in_cloud(comment=comment, submit_time=now - 4.5 * HOUR, start_time=now - 2 * HOUR)
    slices.see(make_look(now - HOUR, (), [first]))
    again = in_cloud(comment=comment, submit_time=now - HOUR, start_time=now - 0.9 * HOUR, restarts=1)
    slices.see(make_look(now, (), [again]))
    assert slices.stays(again, 0.9 * HOUR)


def test_spot_again_is_a_question_for_promised_jobs_alone(tmp_path: Path) -> None:
    world, slices = site(tmp_path)
    assert slices.leaves_time_for_loss(saving_job())
    promised = saving_job(comment="by=+9h,checkpoint=10min", submit_time=world.hands.wall)
    assert not slices.leaves_time_for_loss(promised)  # how long instances last is not known
    lasting = SpotPool(key="spot|a", usd_per_hour=0.06, lasts=(0.999,) * len(LASTS_HOURS))
    world.cloud = replace(world.cloud, spot_pools=(lasting,), processors_per_node=8)
    assert slices.leaves_time_for_loss(promised)


@pytest.mark.parametrize(
    ("minutes", "comment", "goes"),
    [
        (30.0, "checkpoint=1min", True),
        (5.0, "checkpoint=1min", False),  # a start in vain would cost most of what has run
        (30.0, "checkpoint=10min", False),
        (70.0, "checkpoint=1min", False),  # it has nearly ended
        (30.0, "checkpoint=1min,by=+9h", True),
        (30.0, "checkpoint=1min,by=+60min", False),  # one loss more would make it late
    ],
)
def test_a_job_goes_back_to_spot_where_a_start_in_vain_costs_little(
    tmp_path: Path, *, minutes: float, comment: str, goes: bool
) -> None:
    world, slices = site(tmp_path)
    lasting = SpotPool(key="spot|a", usd_per_hour=0.06, lasts=(0.999,) * len(LASTS_HOURS))
    world.cloud = replace(
        world.cloud, spot_pools=(lasting,), processors_per_node=8, spot_open=True, boot_seconds=60.0
    )
    start = world.hands.wall - 60.0 * minutes
    running = saving_job(comment=comment, submit_time=start, start_time=start, requeue=True)
    slices.see(make_look(world.hands.wall, (), [running]))
    assert slices.goes_back_to_spot(running, 60.0 * minutes) is goes
    world.cloud = replace(world.cloud, spot_open=False)
    assert not slices.goes_back_to_spot(running, 60.0 * minutes)


@pytest.mark.parametrize(("usd", "goes"), [(1.5, True), (0.3, False)])
def test_a_job_whose_new_run_is_not_covered_keeps_its_node(tmp_path: Path, *, usd: float, goes: bool) -> None:
    """Its next launch would be refused, and its node be gone."""
    world, slices = site(tmp_path, accounts={"chem": usd})
    world.cloud = replace(world.cloud, spot_open=True, boot_seconds=60.0)
    start = world.hands.wall - HOUR / 2
    running = saving_job(
        account="chem", comment="checkpoint=1min", submit_time=start, start_time=start, requeue=True
    )
    slices.see(make_look(world.hands.wall, (), [running]))
    assert slices.goes_back_to_spot(running, HOUR / 2) is goes


def back_home(**fields: Any) -> QueuedJob:
    """A job that has come back from the cloud and waits on-premise."""
    known = {"requested_time": 2 * HOUR, "requeue": True, "processors": 8, "restarts": 1}
    return make_queued(7, reason="Priority", **known | {"admin_comment": COMMENT} | fields)


def wait_in_queue(world: World) -> None:
    """It takes its place in the queue behind its placeholder, which then counts no more."""
    world.slurm.jobs[7] = back_home()
    world.round()


def test_a_job_that_has_come_back_goes_again_for_longer_than_it_ran(tmp_path: Path) -> None:
    world, slices = site(tmp_path)
    wait_in_queue(world)
    before = world.keeper.current
    stop = slices.another_stop(back_home(), 1000.0)
    after = world.keeper.current
    assert stop is not None
    assert stop >= 1.05 * 0.9 * HOUR  # to the longer half's end: the shorter one has ended before
    assert before is not None
    assert after is not None
    worst = 8 * 0.05 / 3600.0 * (world.settings.placement.boot_seconds + stop + 60.0)
    assert before.tokens_usd - after.tokens_usd == pytest.approx(worst, rel=0.01)


@pytest.mark.parametrize(
    ("site_is", "job_is"),
    [
        ({"usd_per_hour": 0.01}, {}),
        ({"usd": 0.02}, {}),
        ({"default_mode": "shadow"}, {}),
        ({"fallen_back": {"onprem": "its forecasts do not hold"}}, {}),
        ({"is_open": False}, {}),
        ({}, {"interactive": True}),
    ],
)
def test_it_waits_where_a_move_is_not_worth_it_or_not_allowed(
    tmp_path: Path, site_is: dict[str, Any], job_is: dict[str, Any]
) -> None:
    world, slices = site(tmp_path, **site_is)
    wait_in_queue(world)
    assert slices.another_stop(back_home(**job_is), 1000.0) is None


@pytest.mark.parametrize(("hours", "goes"), [((0.5,), True), ((20.0,), False), ((), False)])
def test_it_waits_where_the_cloud_has_no_room_before_its_turn(
    tmp_path: Path, hours: tuple[float, ...], *, goes: bool
) -> None:
    world, slices = site(tmp_path)
    wait_in_queue(world)
    later = tuple(world.hands.wall + each * HOUR for each in hours)
    rooms = {"": (Room(processors=8, free=0, later=later, total=len(hours)),)}
    world.cloud = replace(world.cloud, rooms=rooms, processors_per_node=8)
    assert (slices.another_stop(back_home(), 1000.0) is not None) is goes


def test_it_waits_where_its_turn_comes_at_once(tmp_path: Path) -> None:
    world, slices = site(tmp_path)
    world.slurm.jobs.clear()
    wait_in_queue(world)
    assert slices.another_stop(back_home(), 1000.0) is None


def test_the_rest_of_its_slice_is_not_held_twice(tmp_path: Path) -> None:
    """The tokens cover the 20 minutes after a slice of 100 minutes, but not the slice's rest as well."""
    world, slices = site(tmp_path, usd=0.5)
    assert world.keeper.current is not None
    usd_per_hour, elapsed = 8 * 0.05, 0.9 * HOUR
    assert usd_per_hour * 0.4 < world.keeper.current.tokens_usd < usd_per_hour * 1.1
    assert not slices.stays(in_cloud(), elapsed)
    assert slices.stays(in_cloud(), elapsed, 100 * 60.0 - elapsed)


def test_a_job_that_has_outlasted_the_short_ones_before_is_known_to_be_long(tmp_path: Path) -> None:
    """At its turn in a second run; its first one was longer. A short job would be done in two minutes."""
    _, slices = site(tmp_path, 2.5)
    assert slices.stays(in_cloud(), 480.0, 0.0)
    assert not slices.stays(in_cloud(), 480.0, 0.0, 1000.0)


def test_what_was_advised_reserved_costs_money_where_no_reserved_node_is_free(tmp_path: Path) -> None:
    """Its second node is launched on-demand then (`advisor.ec2.pools`)."""
    found = []
    for number, is_free in enumerate((True, False)):
        folder = tmp_path / str(number)
        folder.mkdir()
        world, slices = site(folder, 0.01)
        wait_in_queue(world)
        if is_free:
            world.cloud = replace(world.cloud, reserved_free_nodes=2)
        comment = admin_comment(replace(ask(), capacity=Capacity.RESERVED))
        found.append(slices.another_stop(back_home(admin_comment=comment), 1000.0))
    assert found[0] is not None
    assert found[1] is None
