"""A policy's actions at a moment equal those of the simulated cluster at that tick."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.errors import BadInput
from advisor.simulate.portfolio.moment import Moment, moment_of, policy_named
from advisor.simulate.portfolio.online import Situation, empty_jobs
from advisor.simulate.portfolio.paid_hours import left_of_paid_hour
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, Release
from advisor.simulate.portfolio.state import NODE, Rules

NOW = 1_800_000_000.0
SECOND, HOUR, KEPT = Release.SECOND, Release.HOUR, Release.HOUR_KEPT


def rules(release: Release = SECOND, nodes: int = 8) -> Rules:
    return Rules(max_nodes=nodes, boot=60.0, tick=20.0, release=int(release), runtimes=1, checkpoint=3600.0)


def situation(nodes: list[tuple[float, float, int]], jobs: list[tuple[float, float, int]]) -> Situation:
    """Nodes: rented since, idle in, last job (-1: it boots); jobs: submitted, run time, nodes. In seconds."""
    profile = np.zeros(len(nodes), NODE)
    for row, (since, ready, job) in zip(profile, nodes, strict=True):
        row["since"], row["ready"], row["row"] = NOW + since, NOW + ready, job
        row["begun"], row["estimate"] = NOW + since, ready - since
    waiting = empty_jobs(len(jobs))
    for row, (submit, run, count) in zip(waiting, jobs, strict=True):
        row["submit"], row["run"], row["processors"] = NOW + submit, run, count
        row["estimate"] = run
    return Situation(now=NOW, profile=profile, jobs=waiting)


def wanted(name: str, at: Situation, release: Release = SECOND, nodes: int = 8) -> Moment:
    return moment_of(at, policy_named(name), rules(release, nodes))


IDLE = (-600.0, -10.0, 0)
BUSY = (-600.0, 500.0, 0)
BOOTING = (-20.0, 40.0, -1)
QUEUE = [(-50.0, 3600.0, 1), (-40.0, 60.0, 1), (-30.0, 60.0, 3)]


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("ODA-FCFS-FirstFit", None),
        ("ODB-FCFS-FirstFit", 5),  # as many as are waited for
        ("ODE-FCFS-FirstFit", 3),  # an hour and four minutes of work, but the widest takes three
        ("ODM-FCFS-FirstFit", 3),  # the widest
        ("ODX-FCFS-FirstFit", 0),  # nobody has waited as long as he runs
    ],
)
def test_how_many_nodes_may_be_rented_for_a_queue(name: str, allowed: int | None) -> None:
    assert wanted(name, situation([], QUEUE)).allowed == allowed


def test_no_more_nodes_than_the_limit_are_rented() -> None:
    assert wanted("ODB-FCFS-FirstFit", situation([], QUEUE), nodes=4).allowed == 4


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("ODA-FCFS-FirstFit", (0, 1, 2)),
        ("ODA-LXF-FirstFit", (1, 2, 0)),  # slowdown
        ("ODA-WFP3-FirstFit", (2, 1, 0)),  # wide ones first
        ("ODA-UNICEF-FirstFit", (1, 2, 0)),  # narrow and short ones first
    ],
)
def test_which_job_is_next(name: str, order: tuple[int, ...]) -> None:
    assert wanted(name, situation([], QUEUE)).order == order


def test_idle_and_booting_nodes_are_given_back_when_the_queue_is_empty() -> None:
    found = wanted("ODA-FCFS-FirstFit", situation([IDLE, BUSY, BOOTING, IDLE], []))
    assert (found.back, found.kept, found.warm) == ((0, 2, 3), (), 0)


def test_no_node_is_given_back_while_jobs_wait() -> None:
    assert wanted("ODX-FCFS-FirstFit", situation([IDLE, BUSY], [(-5.0, 3600.0, 2)])).back == ()


def test_headroom_is_kept_and_filled_up() -> None:
    name = "ODA-WSPT-WorstFit+h2+bf"
    found = wanted(name, situation([IDLE, IDLE, IDLE], []))
    assert (len(found.back), len(found.kept), found.warm) == (1, 2, 0)
    assert not set(found.back) & set(found.kept)
    assert wanted(name, situation([IDLE], [])).warm == 1
    assert wanted(name, situation([BUSY], QUEUE)).warm == 2  # besides those the jobs are given


def test_a_paid_hour_is_kept_to_its_end() -> None:
    young, old = (-600.0, -10.0, 0), (-3590.0, -10.0, 0)
    found = wanted("ODA-FCFS-FirstFit", situation([young, old], []), KEPT)
    assert (found.back, found.kept) == ((1,), (0,))
    assert left_of_paid_hour(NOW - 600.0, NOW) == pytest.approx(3000.0)


@pytest.mark.parametrize("since", [0.0, -3600.0])
def test_a_paid_hour_that_just_began_is_kept_on_every_node(since: float) -> None:
    """As for nodes first seen now, whose launch time is unknown."""
    found = wanted("ODA-FCFS-FirstFit", situation([(since, since, 0)] * 3, []), KEPT)
    assert (found.back, found.kept) == ((), (0, 1, 2))


def test_a_node_first_seen_now_is_not_counted_as_warm() -> None:
    assert wanted("ODA-WSPT-WorstFit+h4+bf", situation([(0.0, 0.0, 0)], [])).warm == 3


def test_jobs_that_start_on_idle_nodes_are_named() -> None:
    found = wanted("ODM-FCFS-FirstFit", situation([IDLE, IDLE], QUEUE))
    assert found.starting == (0, 1)


def test_a_name_is_read_back() -> None:
    for policy in (*PUBLISHED, *BEYOND):
        assert policy_named(policy.name) == policy
    with pytest.raises(BadInput, match="is not the name of a policy"):
        policy_named("ODA-LIFO-FirstFit")


times = st.floats(1.0, 20_000.0)
nodes = st.tuples(times.map(lambda t: -t), st.sampled_from([-5.0, 300.0]), st.sampled_from([0, 1]))
jobs = st.tuples(times.map(lambda t: -t), times, st.integers(1, 6))


@given(
    rented=st.lists(nodes, max_size=6),
    queue=st.lists(jobs, max_size=6),
    policy=st.sampled_from([*PUBLISHED, *BEYOND]),
    release=st.sampled_from([SECOND, HOUR, KEPT]),
)
def test_the_moment_of_any_policy_is_consistent(
    rented: list[tuple[float, float, int]],
    queue: list[tuple[float, float, int]],
    policy: object,
    release: Release,
) -> None:
    at = situation(rented, queue)
    found = moment_of(at, policy, rules(release))  # type: ignore[arg-type]
    idle = {place for place, (_, ready, _) in enumerate(rented) if ready <= 0.0}
    assert set(found.back) <= idle
    assert set(found.kept) <= idle - set(found.back)
    assert not (queue and found.back and len(found.starting) < len(queue))
    assert sorted(found.order) == list(range(len(queue)))
    assert found.warm >= 0
    if found.allowed is not None:
        assert len(rented) - len(found.back) <= found.allowed <= 8
