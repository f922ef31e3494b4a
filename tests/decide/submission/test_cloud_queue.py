"""The cloud's own queue in the four questions."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment, message
from advisor.decide.explanation.wording import explanation, recorded_sentence
from advisor.decide.submission.cloud_terms import cloud_wait
from advisor.model.advice import Capacity, Placement
from advisor.model.site import Room
from advisor.predict.run_times.grid import BINS
from tests.decide.cases import ask, make_cloud, make_estimates, make_job, make_settings

NOW = 1000.0
"""The clock of `ask`."""
TAKEN = Room(processors=4, free=0, later=(NOW + 600.0, NOW + 7000.0), total=2)
FREE = Room(processors=4, free=2, total=2)


def cloud_with(**rooms: Room):
    named = {name.replace("any", "").replace("_", "-"): (room,) for name, room in rooms.items()}
    return make_cloud(rooms=named, processors_per_node=4)


def test_day_one_3_a_job_that_would_wait_in_the_cloud_is_not_told_it_ends_sooner():
    """The node for it is busy for ten minutes; here it would wait for two and a half."""
    estimates, must_stay_off_spot = make_estimates(wait=150.0, run=60.0), make_job(requeue=False)
    free = ask(must_stay_off_spot, estimates, cloud=cloud_with(any=FREE, on_demand=FREE))
    assert free.placement is Placement.BURST
    assert free.number("cloud_wait") is None
    busy = ask(must_stay_off_spot, estimates, cloud=cloud_with(any=FREE, on_demand=TAKEN))
    assert busy.placement is Placement.ON_PREMISE
    assert busy.decisive.reason == Reason.CLOUD_NOT_FASTER
    assert busy.number("cloud_wait") == 600.0
    assert busy.number("predicted_saving") == pytest.approx(150.0 - 600.0 - 0.04 * 60.0)
    said = explanation(busy)
    assert "in the cloud all nodes for it are taken: waiting about 10 min for one" in said
    assert "wait for a node in the cloud" in said
    recorded = parse_admin_comment(admin_comment(busy))
    assert recorded is not None
    assert "waiting about 10 min for one" in recorded_sentence(recorded)


def test_day_one_3_a_longer_wait_here_is_worth_a_wait_there():
    advice = ask(make_job(requeue=False), cloud=cloud_with(any=FREE, on_demand=TAKEN))
    assert advice.placement is Placement.BURST
    assert "it waits about 10 min for one" in explanation(advice)
    assert "for a cloud node 10 min, done about" in (message(advice) or "")


def test_day_one_3_the_capacity_that_starts_sooner_is_chosen():
    spot_taken = cloud_with(any=FREE, spot=TAKEN, on_demand=FREE)
    advice = ask(cloud=spot_taken)
    assert advice.capacity is Capacity.ON_DEMAND
    assert "because nodes on spot are taken 10 min longer." in explanation(advice)
    down = cloud_with(any=FREE, spot=Room(processors=4, free=0), on_demand=FREE)
    assert "because no node that may be spot has room for it." in explanation(ask(cloud=down))
    assert advice.number("cloud_wait") is None
    assert ask(cloud=cloud_with(any=FREE, spot=FREE, on_demand=TAKEN)).capacity is Capacity.SPOT
    # no sooner anywhere: the cheaper one
    assert ask(cloud=cloud_with(any=TAKEN, spot=TAKEN, on_demand=TAKEN)).capacity is Capacity.SPOT


def test_a_job_of_several_nodes_takes_both_kinds_and_its_share_of_spot():
    """Three of its four nodes can be spot: on-demand would pay the dear price for all of them."""
    whole = Room(processors=4, free=4, later=(), total=4)
    spot = Room(processors=4, free=3, later=(), total=3)
    cloud = cloud_with(any=whole, spot=spot, on_demand=FREE)
    advice = ask(make_job(processors=4, nodes=4), cloud=cloud)
    assert (advice.placement, advice.capacity) == (Placement.BURST, Capacity.SPOT)


def test_a_full_cloud_keeps_jobs_here():
    endless = Room(processors=4, free=0, later=(NOW + 1e6,), total=1)
    advice = ask(cloud=cloud_with(any=endless))
    assert advice.placement is Placement.ON_PREMISE


@pytest.mark.parametrize("policy", ["price", "cunha2017", "ambati2021"])
def test_day_one_3_no_job_moves_to_a_cloud_without_any_place(policy):
    """All nodes are down: it was sent into a queue that never moves, as if its run time were unknown."""
    settings, estimates = make_settings(cluster={"policy": policy}), make_estimates()
    advice = ask(
        make_job(submit_time=NOW - 9e5),
        replace(estimates, run_chances=(1.0,) * BINS),
        cloud=cloud_with(any=Room(processors=1, free=0)),
        settings=settings,
    )
    assert (advice.placement, advice.decisive.reason) == (Placement.ON_PREMISE, Reason.NO_ROOM_THERE)
    recorded = parse_admin_comment(admin_comment(advice))
    assert recorded is not None
    for said in (explanation(advice), recorded_sentence(recorded)):
        assert "It is not known when the cloud would have room for it" in said
        assert "unlimited" not in said


SMALL = (
    Room(processors=1, free=5, later=(NOW + 100.0, NOW + 200.0, NOW + 300.0), total=8),
    Room(processors=2, free=2, later=(NOW + 200.0, NOW + 300.0), total=4),
    Room(processors=4, free=1, later=(NOW + 300.0,), total=2),
)


@pytest.mark.parametrize(
    ("job", "taken", "wait"),
    [
        ({"processors": 1}, 0, 0.0),
        ({"processors": 1}, 4, 0.0),
        ({"processors": 1}, 5, 100.0),  # places of one processor: five were free, all taken since the look
        ({"processors": 1}, 7, 300.0),
        ({"processors": 1}, 8, 1000.0),  # all places taken since: five of them by jobs of 1,000 s each
        ({"processors": 2}, 3, 200.0),  # 3 processors are two places of 2
        ({"processors": 3}, 0, 0.0),  # as if it needed 4
        ({"processors": 3}, 4, 300.0),
        ({"processors": 8}, 0, 300.0),  # two whole nodes
        ({"processors": 9}, 0, math.inf),  # three: there are two
        ({"processors": 4, "array_tasks": 2}, 0, 0.0),  # the first of two tasks
        ({"processors": 4, "array_tasks": 3}, 0, 300.0),
        ({"processors": 4, "array_tasks": 5}, 0, 1000.0),
    ],
)
def test_the_wait_by_hand(job, taken, wait):
    cloud = make_cloud(rooms={"": SMALL}, processors_per_node=4, taken_processors=taken)
    assert cloud_wait("", make_job(**job), 1000.0, cloud, NOW) == wait
    later = cloud_wait("", make_job(**job), 1000.0, cloud, NOW + 60.0)
    assert later == (wait - 60.0 if 100.0 <= wait < 1000.0 else wait), "what is expected comes nearer"


@pytest.mark.parametrize(
    ("tasks", "wait"), [(4, 0.0), (5, 1000.0), (8, 1000.0), (9, 2000.0), (100, 24_000.0)]
)
def test_day_one_3_an_array_runs_in_turns_on_a_cloud_that_is_all_free(tasks, wait):
    """Two nodes, nothing on them: more tasks than nodes are no reason to say that they never start."""
    job = make_job(processors=4, array_tasks=tasks)
    assert cloud_wait("", job, 1000.0, cloud_with(any=FREE), NOW) == wait
    assert cloud_wait("", job, math.nan, cloud_with(any=FREE), NOW) == (wait and math.inf)


def test_a_kind_that_is_not_told_apart_is_like_any():
    cloud = cloud_with(any=TAKEN)
    assert cloud_wait("on-demand", make_job(), 60.0, cloud, NOW) == 600.0
    assert cloud_wait("on-demand", make_job(), 60.0, make_cloud(), NOW) == 0.0
