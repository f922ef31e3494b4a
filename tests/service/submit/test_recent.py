"""The account of jobs advised since the last snapshot."""

from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from advisor.decide.submission.cloud_terms import cloud_wait
from advisor.model.burst_limits import BurstLimits
from advisor.model.cluster import Limit
from advisor.model.job import Job
from advisor.model.site import CloudState, Cutoff, PerformanceRatios, Price, Room, SiteState
from advisor.model.submit_limits import SubmitKey
from advisor.service.submit.recent import RecentSubmissions, Submission
from tests.service.site import NOW, make_cluster


def based_on(**cluster: float) -> RecentSubmissions:
    recent = RecentSubmissions()
    recent.rebase(SiteState(time=NOW, cluster=make_cluster(**cluster)))
    return recent


def stays(time: float = NOW + 1, processors: int = 2, **more: float) -> Submission:
    return Submission(time=time, processors=processors, requested_seconds=100.0, **more)


def test_without_a_snapshot_nothing_is_known() -> None:
    recent = RecentSubmissions()
    recent.add(stays())
    assert recent.state(NOW) == SiteState(time=NOW, cluster=None)


def test_a_thousand_submissions_meet_a_queue_that_grows() -> None:
    recent = based_on()
    sizes = []
    for _ in range(1000):
        state = recent.state(NOW + 1).cluster
        assert state is not None
        sizes.append(state.queue_size)
        recent.add(stays())
    assert sizes == list(range(4, 1004))
    cluster = recent.state(NOW + 1).cluster
    assert cluster is not None
    assert cluster.queued_work_core_seconds == 4000.0 + 1000 * 2 * 100.0


def test_where_only_the_queue_is_asked_the_cluster_stays_as_it_was_seen() -> None:
    recent = based_on()
    recent.add(stays())
    assert recent.state(NOW + 9, ages=False).cluster == make_cluster()
    assert recent.state(NOW + 9, ages=False).time == NOW + 9
    assert recent.state(NOW + 9).cluster != make_cluster()


def test_free_processors_are_taken_first_come_first_served() -> None:
    recent = based_on(queue_size=0, free_processors=5)
    recent.add(stays(tasks=2))  # both tasks start
    recent.add(stays(processors=4))  # one processor is left: it waits
    recent.add(stays(processors=1))  # nobody overtakes
    cluster = recent.state(NOW + 1).cluster
    assert cluster is not None
    assert (cluster.free_processors, cluster.running_jobs, cluster.queue_size) == (1, 10, 2)


def test_an_array_may_start_in_part() -> None:
    recent = based_on(queue_size=0, free_processors=5)
    recent.add(stays(tasks=10))
    cluster = recent.state(NOW + 1).cluster
    assert cluster is not None
    assert (cluster.free_processors, cluster.queue_size) == (1, 8)


def test_time_goes_on_between_two_looks() -> None:
    recent = based_on()
    recent.add(stays(time=NOW + 4))
    cluster = recent.state(NOW + 10).cluster
    assert cluster is not None
    assert cluster.time == NOW + 10
    assert cluster.remaining_work_core_seconds == 8000.0 - 10 * 64
    late = recent.state(NOW + 1000).cluster
    assert late is not None
    assert late.remaining_work_core_seconds == 0.0


def test_a_new_snapshot_takes_over_what_is_in_it() -> None:
    recent = based_on()
    for second in range(10):
        recent.add(stays(time=NOW + second))
    recent.rebase(SiteState(time=NOW + 6, cluster=make_cluster(queue_size=100)))
    assert len(recent) == 3  # those of seconds 7, 8 and 9
    cluster = recent.state(NOW + 10).cluster
    assert cluster is not None
    assert cluster.queue_size == 103


def test_a_snapshot_without_a_cluster_keeps_it_unknown() -> None:
    recent = based_on()
    recent.rebase(SiteState(time=NOW + 1, cluster=None, cloud=CloudState(nodes_total=7)))
    state = recent.state(NOW + 2)
    assert state.cluster is None
    assert state.cloud.nodes_total == 7


def test_moved_jobs_commit_money_and_nodes_and_join_no_queue() -> None:
    recent = RecentSubmissions()
    cloud = CloudState(spent_usd=1.0, spent_by_account=MappingProxyType({"a": 1.0}), reserved_free_nodes=3)
    recent.rebase(SiteState(time=NOW, cluster=make_cluster(), cloud=cloud))
    moved = Submission(
        time=NOW + 1, processors=8, on_premise=False, committed_usd=0.5, payers=("a",), reserved_nodes=2
    )
    recent.add(moved)
    recent.add(Submission(time=NOW + 1, processors=8, on_premise=False, committed_usd=0.25, payers=("b",)))
    recent.add(moved)
    state = recent.state(NOW + 2)
    assert state.cluster is not None
    assert state.cluster.queue_size == 4
    assert (state.cloud.spent_usd, state.cloud.promised_usd) == (1.0, 1.25)
    assert dict(state.cloud.promised_by_account) == {"a": 1.0, "b": 0.25}
    assert state.cloud.reserved_free_nodes == 0
    assert dict(cloud.spent_by_account) == {"a": 1.0}, "the snapshot itself is not touched"


@pytest.mark.parametrize(("run", "third"), [(60.0, 60.0), (3600.0, 499.0)])
def test_day_one_3_moved_jobs_take_their_place_in_the_clouds_queue(run: float, third: float) -> None:
    """Two nodes are free: the third job since the look waits for the next one, or for one of theirs."""
    recent = RecentSubmissions()
    rooms = {"": (Room(processors=4, free=2, later=(NOW + 500.0,), total=3),)}
    cloud = CloudState(rooms=rooms, processors_per_node=4)
    recent.rebase(SiteState(time=NOW, cluster=make_cluster(), cloud=cloud))
    job, waits = Job(job_id=0, submit_time=NOW, processors=4), list[float]()
    for _ in range(3):
        cloud = recent.state(NOW + 1).cloud
        waits.append(cloud_wait("", job, run, cloud, NOW + 1))
        taken = cloud.processors_taken_by(job)
        recent.add(Submission(time=NOW + 1, processors=4, on_premise=False, cloud_processors=taken))
    assert waits == [0.0, 0.0, third]


submissions = st.builds(
    Submission,
    time=st.floats(NOW, NOW + 20),
    processors=st.integers(1, 100),
    tasks=st.integers(0, 50),
    requested_seconds=st.floats(0, 1e6),
    on_premise=st.booleans(),
    committed_usd=st.floats(0, 100),
    payers=st.sampled_from([(), ("a",), ("b", "user ann")]),
    reserved_nodes=st.integers(0, 3),
)


@given(st.lists(submissions, max_size=30), st.integers(-5, 200), st.floats(NOW, NOW + 20))
def test_no_state_is_ever_absurd(jobs: list[Submission], free: int, look: float) -> None:
    recent = based_on(free_processors=free, queue_size=0)
    for job in sorted(jobs, key=lambda job: job.time):
        recent.add(job)
    for _ in range(2):
        cluster = recent.state(NOW + 30).cluster
        assert cluster is not None
        assert cluster.free_processors >= min(0, free)
        assert cluster.queue_size >= 0
        assert cluster.queued_work_core_seconds >= 0
        recent.rebase(SiteState(time=look, cluster=make_cluster(free_processors=free, queue_size=0)))


moves = st.builds(
    Submission,
    time=st.just(NOW + 1),
    processors=st.just(1),
    on_premise=st.booleans(),
    committed_usd=st.floats(0, 100),
    payers=st.sampled_from([(), ("a",), ("b", "user ann")]),
    reserved_nodes=st.integers(0, 3),
)


@given(st.lists(moves, max_size=12))
def test_what_is_kept_is_what_a_fresh_account_says(jobs: list[Submission]) -> None:
    base = SiteState(time=NOW, cluster=make_cluster(), cloud=CloudState(reserved_free_nodes=5))
    asked_often, asked_once = RecentSubmissions(), RecentSubmissions()
    asked_often.rebase(base)
    for job in jobs:
        asked_often.add(job)
        asked_once.rebase(base)  # counts all of it anew
        asked_once.add(job)
        assert asked_often.state(NOW + 1) == asked_once.state(NOW + 1)
    asked_often.rebase(None)
    assert asked_often.state(NOW + 1).cloud == CloudState()


def test_nothing_a_snapshot_says_is_lost_where_nothing_was_advised_since() -> None:
    """Whatever is added to the state later: the price of a hedge once never reached the decision."""
    cloud = CloudState(reserved_free_nodes=5, steady_free_nodes=1, nodes_with=MappingProxyType({"spot": 4.0}))
    base = SiteState(
        time=NOW,
        cluster=make_cluster(),
        cloud=cloud,
        cutoff=Cutoff(scale=9.0, decay=0.5),
        ratios=PerformanceRatios(overhead=0.1, baseline=1.1, deviation=0.2, jobs=5),
        price=Price(seconds_per_usd=60.0, tokens_usd=10.0),
        fallen_back={"onprem": "forecasts do not hold"},
        promised_jobs={"ann": 2},
        limits=(Limit("ann", reason="AssocMaxJobsLimit"),),
        preemptable={"onprem": {"": 8}},
        kept_out=frozenset({("ann", "chem")}),
        full=frozenset({SubmitKey(user="ann")}),
        burst_limits=BurstLimits(max_jobs=9.0, jobs={"": 3}),
        node_memory_mb=64_000,
    )
    said, first = structs.asdict(base), structs.asdict(SiteState(time=0.0, cluster=None))
    assert all(said[name] != value for name, value in first.items())
    recent = RecentSubmissions()
    recent.rebase(base)
    assert recent.state(NOW) == base


def test_what_jobs_moved_since_may_cost_at_worst_is_taken_from_the_tokens() -> None:
    price = Price(seconds_per_usd=1.0, tokens_usd=10.0, tokens_by_account=MappingProxyType({"chem": 5.0}))
    recent = RecentSubmissions()
    recent.rebase(SiteState(time=NOW, cluster=make_cluster(), price=price))
    recent.add(
        Submission(time=NOW + 1, processors=2, on_premise=False, worst_usd=2.0, payers=("chem", "user ann"))
    )
    recent.add(Submission(time=NOW + 2, processors=2, on_premise=False, worst_usd=1.0))
    left = recent.state(NOW + 2).price
    assert left is not None
    assert (left.tokens_of(["chem"]), left.tokens_of(())) == ((3.0, "chem"), (7.0, ""))
    recent.rebase(SiteState(time=NOW + 3, cluster=make_cluster(), price=price))
    assert recent.state(NOW + 3).price == price


def test_jobs_with_a_named_time_are_counted_by_user() -> None:
    recent = RecentSubmissions()
    recent.rebase(SiteState(time=NOW, cluster=make_cluster(), promised_jobs={"ann": 2}))
    for second, user in enumerate(("ann", "bob", None, "ann")):
        recent.add(Submission(time=NOW + 1 + second, processors=2, promised_to=user))
    assert recent.state(NOW + 5).promised_jobs == {"ann": 4, "bob": 1}
    recent.rebase(SiteState(time=NOW + 3, cluster=make_cluster(), promised_jobs={"ann": 3, "bob": 1}))
    assert recent.state(NOW + 5).promised_jobs == {"ann": 4, "bob": 1}


def test_a_clock_that_was_set_back_counts_no_job_twice() -> None:
    recent = based_on()
    recent.add(stays(time=NOW + 3600))  # by a clock that was an hour ahead
    for second in range(10):
        recent.add(stays(time=NOW + second))
    recent.rebase(SiteState(time=NOW + 20, cluster=make_cluster()))
    assert len(recent) == 0
