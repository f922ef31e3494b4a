"""Question 4: reserved, spot, on-demand, nothing."""

from __future__ import annotations

import pytest

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.explanation.wording import recorded_sentence, sentence
from advisor.model.advice import Capacity, Placement, Verdict
from advisor.model.node_classes import ClosedCapacity, ReservedUntil
from advisor.model.site import PerformanceRatios, Room
from tests.decide.cases import NAN, ask, make_cloud, make_estimates, make_job, make_settings

NOW = 1000.0


@pytest.mark.parametrize(
    ("job", "cloud", "sections", "capacity"),
    [
        ({}, {}, {}, Capacity.SPOT),
        ({}, {"reserved_free_nodes": 1, "processors_per_node": 4}, {}, Capacity.RESERVED),
        ({"processors": 5}, {"reserved_free_nodes": 1, "processors_per_node": 4}, {}, Capacity.SPOT),
        ({"processors": 2}, {"reserved_free_nodes": 1}, {}, Capacity.SPOT),  # size unknown: doubt
        ({"processors": 1}, {"reserved_free_nodes": 1}, {}, Capacity.RESERVED),
        ({"array_tasks": 3}, {"reserved_free_nodes": 3, "processors_per_node": 4}, {}, Capacity.RESERVED),
        ({"array_tasks": 3}, {"reserved_free_nodes": 2, "processors_per_node": 4}, {}, Capacity.SPOT),
        ({"requeue": True}, {}, {"cluster": {"requeue_default": False}}, Capacity.SPOT),
        ({"requeue": False}, {}, {}, Capacity.ON_DEMAND),
        ({"requeue": False}, {"reserved_free_nodes": 9}, {}, Capacity.RESERVED),
        ({}, {}, {"cluster": {"requeue_default": False}}, Capacity.ON_DEMAND),
        ({}, {"spot_open": False}, {}, Capacity.ON_DEMAND),
        ({}, {}, {"capacity": {"use_spot": False}}, Capacity.ON_DEMAND),
        ({}, {}, {"capacity": {"spot_max_run_seconds": 3600.0}}, Capacity.ON_DEMAND),  # s*r = 1.04 * 3600 s
        ({}, {}, {"capacity": {"spot_max_run_seconds": 3800.0}}, Capacity.SPOT),
        ({}, {"on_demand_open": False}, {}, Capacity.SPOT),
        ({"requeue": False}, {"on_demand_open": False}, {}, None),
        ({}, {"on_demand_open": False, "spot_open": False}, {}, None),
        ({}, {"on_demand_open": False, "spot_open": False, "reserved_free_nodes": 4}, {}, Capacity.RESERVED),
        ({}, {"protected": "ten boots failed", "reserved_free_nodes": 4}, {}, None),
    ],
)
def test_the_order_of_capacity(job, cloud, sections, capacity):
    advice = ask(make_job(**job), cloud=make_cloud(**cloud), settings=make_settings(**sections))
    assert advice.capacity is capacity
    assert advice.prefer == ((capacity.value,) if capacity else ())
    assert advice.placement is (Placement.BURST if capacity else Placement.ON_PREMISE)
    assert (advice.answers[3].verdict is Verdict.YES) == (capacity is not None)


@pytest.mark.parametrize(
    ("comment", "interruptions", "capacity"),
    [
        (None, 0, Capacity.ON_DEMAND),  # s*r = 1.04 * 3600 s
        ("checkpoint=10min", 0, Capacity.SPOT),
        ("checkpoint=10min", 19, Capacity.SPOT),
        ("checkpoint=10min", 20, Capacity.ON_DEMAND),
        ("checkpoint=2h", 0, Capacity.ON_DEMAND),
        ("checkpoint=soon", 0, Capacity.ON_DEMAND),
    ],
)
def test_a_loss_undoes_no_more_than_the_time_since_the_last_checkpoint(comment, interruptions, capacity):
    settings = make_settings(capacity={"spot_max_run_seconds": 1800.0})
    job = make_job(comment=comment, interruptions=interruptions)
    assert ask(job, settings=settings).capacity is capacity


def test_an_unknown_run_time_keeps_a_job_off_spot():
    settings = make_settings(placement={"overhead_per_processor": 0.0})
    assert ask(estimates=make_estimates(run=NAN), settings=settings).capacity is Capacity.ON_DEMAND


def test_protected_mode_says_why():
    advice = ask(cloud=make_cloud(protected="ten boots failed"))
    assert advice.decisive.reason == Reason.PROTECTED
    assert advice.decisive.detail == "ten boots failed"
    assert advice.partition is None


def test_closed_pools_say_until_when_and_what_ec2_said():
    closed = ClosedCapacity(until=NOW + 180.0, code="UnauthorizedOperation")
    cloud = make_cloud(spot_open=False, on_demand_open=False, on_demand_closed=closed)
    advice = ask(cloud=cloud)
    assert advice.decisive.reason == Reason.NONE_OPEN
    recorded = parse_admin_comment(admin_comment(advice))
    assert recorded is not None
    words = "closed for another 3 min, and every spot pool is closed (EC2: UnauthorizedOperation)."
    assert sentence(advice.decisive).endswith(words)
    assert recorded_sentence(recorded).endswith(words)


def test_features_are_not_preferred_where_the_site_does_not_want_it():
    assert ask(settings=make_settings(capacity={"prefer_features": False})).prefer == ()


@pytest.mark.parametrize(
    ("limit", "lasts", "capacity"),
    [
        (7200.0, 7200.0 + 300.0, Capacity.RESERVED),  # the boot comes before
        (7200.0, 7200.0, Capacity.SPOT),
        (None, 1e9, Capacity.SPOT),  # nobody knows when it ends
    ],
)
def test_what_is_paid_for_until_a_moment_is_for_jobs_that_end_before(limit, lasts, capacity):
    until = (ReservedUntil(1, NOW + lasts),)
    cloud = make_cloud(reserved_until=until, processors_per_node=4, boot_seconds=200.0)
    settings = make_settings(placement={"stretch_time_limit": False})
    assert ask(make_job(requested_time=limit), cloud=cloud, settings=settings).capacity is capacity


@pytest.mark.parametrize(("limit", "is_kept"), [(7200.0, False), (7260.0, True), (None, True)])
def test_a_job_that_might_run_into_a_reservation_of_all_cloud_nodes_stays(limit, is_kept):
    """With boot and limit, 7,400 s are left until it begins."""
    cloud = make_cloud(closings=((NOW + 7400.0, 0),), processors_per_node=4, boot_seconds=200.0)
    settings = make_settings(placement={"stretch_time_limit": False})
    advice = ask(make_job(requested_time=limit), cloud=cloud, settings=settings)
    assert (advice.partition is None) == is_kept
    if is_kept:
        assert advice.decisive.reason == Reason.BURST_RESERVED
        assert sentence(advice.decisive).startswith(
            "A reservation that begins in 2 h 03 min leaves too few cloud nodes,"
        )


@pytest.mark.parametrize(("free_in", "is_kept"), [(600.0, True), (100.0, False)])
def test_a_job_that_would_begin_too_late_for_a_reservation_stays(free_in, is_kept):
    """All nodes are taken for a while; with its boot and limit it needs 7,400 s from then on."""
    rooms = {"": (Room(processors=4, free=0, later=(NOW + free_in,), total=1),)}
    cloud = make_cloud(closings=((NOW + 7700.0, 0),), processors_per_node=4, boot_seconds=200.0, rooms=rooms)
    settings = make_settings(placement={"stretch_time_limit": False})
    advice = ask(make_job(requested_time=7200.0), cloud=cloud, settings=settings)
    assert (advice.decisive.reason == Reason.BURST_RESERVED) == is_kept


@pytest.mark.parametrize(("nodes", "is_kept"), [(1, False), (2, True)])
def test_a_job_stays_that_needs_more_nodes_than_a_reservation_leaves(nodes, is_kept):
    cloud = make_cloud(closings=((NOW + 60.0, 1),), nodes_total=4, processors_per_node=4)
    advice = ask(make_job(nodes=nodes, processors=4 * nodes, requested_time=7200.0), cloud=cloud)
    assert (advice.partition is None) == is_kept


def test_a_limit_that_would_be_stretched_past_the_end_counts():
    cloud = make_cloud(
        reserved_until=(ReservedUntil(1, NOW + 7500.0),), processors_per_node=4, boot_seconds=200.0
    )
    slower = make_settings(placement={"overhead_per_processor": 0.0, "baseline": 1.2})
    job = make_job(requested_time=7200.0, explicit_time_limit=True)
    assert ask(job, cloud=cloud, settings=slower).capacity is Capacity.SPOT


def test_a_limit_that_would_be_raised_by_the_learned_ratio_past_the_end_counts():
    """Raised by 1.2 and one deviation of .1 it is 9,548 s, with the boot 9,748."""
    job = make_job(requested_time=7200.0, explicit_time_limit=True)
    settings = make_settings(placement={"overhead_per_processor": 0.0, "baseline": 1.0})
    learned = PerformanceRatios(overhead=0.0, baseline=1.2, deviation=0.1, jobs=9)

    def capacity(lasts: float) -> Capacity | None:
        cloud = make_cloud(
            reserved_until=(ReservedUntil(1, NOW + lasts),), processors_per_node=4, boot_seconds=200.0
        )
        return ask(job, cloud=cloud, settings=settings, ratios=learned).capacity

    assert capacity(9700.0) is Capacity.SPOT
    assert capacity(9800.0) is Capacity.RESERVED
