"""The four questions together: what holds for every job."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.submission.cloud_terms import configured_slowdown
from advisor.decide.submission.policy import AMBATI_SHORT_SECONDS, AMBATI_WAIT_SECONDS
from advisor.model.advice import Capacity, Mode, Placement, Verdict
from advisor.model.estimate import Estimate, Estimates, SizeEstimate
from advisor.model.settings_learning import SizeSettings
from tests.decide.cases import ask, make_cloud, make_estimates, make_job, make_settings

seconds = st.one_of(st.floats(0, 1e7), st.sampled_from([math.nan, math.inf, 0.0]))
variances = st.one_of(st.floats(0, 1e14), st.sampled_from([math.nan, math.inf]))
estimate = st.builds(lambda s, v: Estimate(seconds=s, variance=v), seconds, variances)
sizes = st.builds(
    lambda small, divider: SizeEstimate(is_small=small, probability_small=0.7, divider_seconds=divider),
    st.booleans(),
    st.sampled_from([math.nan, 600.0]),
)
estimates_of_any_kind = st.builds(lambda w, r, s: Estimates(wait=w, run=r, size=s), estimate, estimate, sizes)
words = st.one_of(st.none(), st.text(max_size=20))
jobs = st.builds(
    make_job,
    processors=st.integers(1, 5000),
    user=words,
    account=words,
    comment=words,
    queue=st.sampled_from([None, "onprem", "onprem", "other"]),
    requeue=st.sampled_from([None, True, False]),
    array_tasks=st.integers(1, 1000),
    interactive=st.booleans(),
)
clouds = st.builds(
    make_cloud,
    reserved_free_nodes=st.integers(0, 3),
    spot_open=st.booleans(),
    on_demand_open=st.booleans(),
    protected=st.sampled_from(["", "", "", "boots fail"]),
    spent_usd=st.floats(0, 1000),
    processors_per_node=st.sampled_from([0, 4, 64]),
    nodes_total=st.sampled_from([0, 10]),
)
settings_of_any_kind = st.builds(
    lambda o, i, boot, a, b, cut, short, long, cap: make_settings(
        placement={
            "overhead_per_processor": o,
            "baseline": i,
            "boot_seconds": boot,
            "cutoff_minutes": math.sqrt(a) / 60.0,
            "cutoff_decay": b,
            "use_cutoff": cut,
        },
        waiting={"short_wait_seconds": short, "long_job_seconds": long},
        budget={"usd": cap},
    ),
    st.floats(0, 10),
    st.floats(0.1, 3),
    st.floats(0, 1000),
    st.floats(1, 1e12),
    st.floats(0, 5),
    st.booleans(),
    st.sampled_from([0.0, 300.0, 86400.0]),
    st.sampled_from([math.inf, 900.0]),
    st.sampled_from([0.0, 100.0]),
)


@given(jobs, estimates_of_any_kind, clouds, settings_of_any_kind, st.floats(0, 1e7))
def test_a_longer_predicted_wait_never_turns_a_move_into_a_stay(job, estimates, cloud, settings, more):
    before = ask(job, estimates, cloud=cloud, settings=settings)
    longer = replace(estimates, wait=replace(estimates.wait, seconds=estimates.wait.seconds + more))
    if before.placement is Placement.BURST:
        assert ask(job, longer, cloud=cloud, settings=settings).placement is Placement.BURST


@given(jobs, estimates_of_any_kind, clouds, settings_of_any_kind)
def test_doubt_means_on_premise(job, estimates, cloud, settings):
    advice = ask(job, estimates, cloud=cloud, settings=settings)
    assert advice.decisive is advice.answers[-1] or advice.decisive.verdict in {Verdict.NO, Verdict.UNSURE}
    doubts = [not estimates.wait.is_usable]
    if settings.placement.use_cutoff:
        doubts.append(not math.isfinite(estimates.wait.variance))
    if configured_slowdown(job.processors, settings.placement) != 1.0:
        doubts.append(not estimates.run.is_usable)
    if any(doubts):
        assert advice.placement is Placement.ON_PREMISE
        assert advice.partition is None


@given(jobs, estimates_of_any_kind, clouds, settings_of_any_kind)
def test_what_an_advice_says_agrees_with_itself(job, estimates, cloud, settings):
    advice = ask(job, estimates, cloud=cloud, settings=settings)
    moved = advice.placement is Placement.BURST
    assert (advice.partition == settings.cluster.burst_partition) == moved
    assert (advice.capacity is not None) == moved
    assert len(advice.answers) == 4 or not moved
    assert all(answer.verdict in {Verdict.YES, Verdict.SKIPPED} for answer in advice.answers[:-1])
    if advice.capacity is Capacity.SPOT:
        assert job.requeue is not False
    if cloud.protected:
        assert not moved
    if moved:
        assert advice.priority_offset == 0


@given(
    jobs,
    estimates_of_any_kind,
    clouds,
    settings_of_any_kind,
    st.sampled_from(["onprem", "burst", "gpu", "onprem,burst"]),
)
def test_the_users_explicit_word_always_wins(job, estimates, cloud, settings, queue):
    named = ask(replace(job, queue=queue, explicit_partition=True), estimates, cloud=cloud, settings=settings)
    opted_out = ask(replace(job, comment="no-burst"), estimates, cloud=cloud, settings=settings)
    for advice in (named, opted_out):
        assert advice.partition is None
        assert advice.prefer == ()
    assert opted_out.placement is Placement.ON_PREMISE


@given(st.integers(1, 5000), estimates_of_any_kind, st.floats(0, 10), st.floats(0.1, 3), st.floats(0, 1000))
def test_without_the_waiting_gates_it_is_the_turnaround_advisor(processors, estimates, o, i, boot):
    """t = inf, b = 0: exactly Cunha's decision, no cap."""
    settings = make_settings(
        placement={"overhead_per_processor": o, "baseline": i, "boot_seconds": boot, "cutoff_decay": 0.3}
    )
    advice = ask(make_job(processors=processors), estimates, settings=settings)
    ratio = o * processors + i
    cutoff = 1e9 * math.exp(-0.3 * o * processors)
    wait, run = estimates.wait, estimates.run
    longer_in_cloud = boot + (0.0 if ratio == 1.0 else (ratio - 1.0) * run.seconds)
    known = math.isfinite(wait.seconds) and math.isfinite(longer_in_cloud)
    expected = known and wait.seconds > longer_in_cloud and wait.variance < cutoff
    assert (advice.placement is Placement.BURST) == expected


@given(
    st.integers(1, 5000),
    estimates_of_any_kind,
    st.floats(0, 1e5),
    st.one_of(st.just(math.inf), st.floats(1, 1e5)),
)
def test_ambati2021_is_the_waiting_policy(processors, estimates, b, t):
    """Exactly LJW and SWW; a job that starts at once never leaves."""
    settings = make_settings(
        cluster={"policy": "ambati2021"}, waiting={"short_wait_seconds": b, "long_job_seconds": t}
    )
    cloud = make_cloud(nodes_with={"on-demand": 5000})
    advice = ask(make_job(processors=processors, requeue=False), estimates, cloud=cloud, settings=settings)
    wait, run = estimates.wait.seconds, estimates.run.seconds
    if not b and math.isinf(t):
        b, t = AMBATI_WAIT_SECONDS, AMBATI_SHORT_SECONDS
    at_once = estimates.wait.coverage >= 1.0 and wait <= 1.0
    is_short = math.isfinite(t) and math.isfinite(run) and run <= t
    leaves = not at_once and (is_short or (b > 0 and math.isfinite(wait) and wait >= b))
    assert (advice.placement is Placement.BURST) == leaves


def test_shadow_mode_decides_and_changes_nothing():
    small = SizeEstimate(is_small=True, probability_small=0.9, divider_seconds=600.0)
    for estimates in (make_estimates(), make_estimates(wait=0.0, size=small)):
        acting = ask(estimates=estimates)
        shadow = ask(estimates=estimates, settings=make_settings(cluster={"default_mode": "shadow"}))
        assert shadow.placement is acting.placement
        assert shadow.answers == acting.answers
        assert shadow.capacity is acting.capacity
        assert (shadow.partition, shadow.prefer, shadow.priority_offset) == (None, (), 0)
        assert shadow.mode is Mode.SHADOW


def test_modes_are_per_partition():
    cluster = {"on_premise_partitions": ["a", "b"], "modes": {"b": "shadow"}}
    settings = make_settings(cluster=cluster)
    assert ask(make_job(queue="a"), settings=settings).partition == "burst"
    assert ask(make_job(queue="b"), settings=settings).partition is None
    assert ask(make_job(), settings=settings).mode is Mode.ACT


@pytest.mark.parametrize(
    ("is_small", "divider", "enabled", "word", "offset"),
    [
        (True, 600.0, True, "small", 1000),
        (False, 600.0, True, "large", 0),
        (False, math.nan, True, "unknown", 0),
        (True, 600.0, False, "unknown", 0),
    ],
)
def test_small_jobs_that_stay_go_first(is_small, divider, enabled, word, offset):
    size = SizeEstimate(is_small=is_small, probability_small=0.5, divider_seconds=divider)
    # under a published rule sizes are off: as if this one had them
    settings = make_settings().model_copy(update={"size": SizeSettings(enabled=enabled)})
    stays = ask(estimates=make_estimates(wait=0.0, size=size), settings=settings)
    assert (stays.size, stays.priority_offset) == (word, offset)
    moves = ask(estimates=make_estimates(size=size), settings=settings)
    assert (moves.size, moves.priority_offset) == (word, 0)
    place = ask(make_job(name="place-of-7"), make_estimates(wait=0.0, size=size), settings=settings)
    assert (place.size, place.priority_offset) == ("unknown", 0), "a placeholder does no work"


def test_later_questions_are_not_asked():
    advice = ask(make_job(comment="no-burst"))
    assert len(advice.answers) == 1
    advice = ask(estimates=make_estimates(wait=0.0))
    assert [answer.reason for answer in advice.answers] == [Reason.MAY_MOVE, Reason.CLOUD_NOT_FASTER]


def test_a_moved_job_remembers_where_it_was():
    settings = make_settings(cluster={"on_premise_partitions": ("onprem", "long")})
    for queue, origin in (("long", "long"), ("long,onprem", "long,onprem"), ("onprem", None), (None, None)):
        advice = ask(make_job(queue=queue), settings=settings)
        assert (advice.placement, advice.origin) == (Placement.BURST, origin)
        recorded = parse_admin_comment(admin_comment(advice))
        assert recorded is not None
        assert recorded.origin == origin
    assert ask(make_job(queue="long", comment="no-burst"), settings=settings).origin is None
