"""Laws of the cluster of changing nodes: no task lost, no core used twice, every second accounted for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model.errors import BadInput
from advisor.papers.stability.world.baselines import Shrinks
from advisor.papers.stability.world.cluster import (
    DONE,
    FINISHED,
    NO_CHECKPOINTS,
    RUNNING,
    SCHEDULE,
    SHORT,
    TICK,
    Checkpoints,
    Cluster,
)
from advisor.papers.stability.world.nodes import NodeChanges, node_changes
from advisor.papers.stability.world.tasks import Tasks


def nodes(cores: list[int], changes: list[tuple[float, int, int]], until: float = 1000.0) -> NodeChanges:
    """Cores at the start, then (time, node, cores)."""
    time, node, after = zip(*changes, strict=True) if changes else ((), (), ())
    return node_changes(
        np.array(cores), np.array(time, float), np.array(node, np.int64), np.array(after, np.int64), until
    )


def tasks(rows: list[tuple[float, float, int]]) -> Tasks:
    """Rows of (submit, duration, cores), each a job."""
    submit, duration, cores = (np.array(column, float) for column in zip(*rows, strict=True))
    return Tasks(np.arange(len(rows)), submit, duration, duration.copy(), cores.astype(np.int64))


def placed(cluster: Cluster, placements: list[tuple[int, int]]) -> int:
    rows, where = (np.array(column, np.int64) for column in zip(*placements, strict=True))
    return cluster.start(rows, where)


def test_a_shrink_kills_the_oldest_first_and_only_as_many_as_needed():
    cluster = Cluster(nodes([4], [(10.0, 0, 2)]), tasks([(0, 30, 2), (1, 30, 1), (2, 30, 1)]))
    for row in range(3):
        assert cluster.advance(math.inf) == SCHEDULE
        assert placed(cluster, [(row, 0)]) == 1
    assert cluster.advance(math.inf) == SCHEDULE
    assert cluster.now == 10.0
    assert cluster.waiting.tolist() == [0]
    assert cluster.tasks["preempted"].tolist() == [1, 0, 0]
    assert cluster.state.cluster["wasted"][0] == 10.0 * 2


def three_on_a_node(changes: list[tuple[float, int, int]]) -> Cluster:
    """A cluster that asks who gives way, with tasks of 2, 1 and 1 cores running since 0, 1 and 2."""
    cluster = Cluster(nodes([4], changes), tasks([(0, 30, 2), (1, 30, 1), (2, 30, 1)]), asks=True)
    for row in range(3):
        assert cluster.advance(math.inf) == SCHEDULE
        placed(cluster, [(row, 0)])
    return cluster


def test_the_caller_chooses_who_gives_way():
    cluster = three_on_a_node([(10.0, 0, 2)])
    assert cluster.advance(math.inf) == SHORT
    assert (cluster.now, cluster.short) == (10.0, 0)
    assert cluster.running(0).tolist() == [0, 1, 2]
    cluster.give_way(np.array([1, 2]))
    assert cluster.advance(math.inf) == SCHEDULE
    assert cluster.short == -1
    assert cluster.waiting.tolist() == [1, 2]
    assert cluster.state.cluster["wasted"][0] == 9.0 + 8.0


def test_what_still_has_no_room_is_killed_oldest_first():
    cluster = three_on_a_node([(10.0, 0, 1)])
    assert cluster.advance(math.inf) == SHORT
    cluster.give_way(np.array([1]))
    assert cluster.advance(math.inf) == SCHEDULE
    assert cluster.waiting.tolist() == [0, 1]
    check_cores(cluster)


def test_nobody_is_asked_where_a_node_vanishes_or_its_tasks_have_room():
    cluster = three_on_a_node([(5.0, 0, 5), (6.0, 0, 4), (10.0, 0, 0)])
    cluster.advance(math.inf)
    assert cluster.advance(math.inf) == SCHEDULE
    assert cluster.now == 10.0
    assert cluster.waiting.tolist() == [0, 1, 2]


def test_a_task_that_ends_as_the_node_shrinks_is_done():
    cluster = Cluster(nodes([2], [(30.0, 0, 0)]), tasks([(0, 30, 2)]))
    cluster.advance(math.inf)
    placed(cluster, [(0, 0)])
    assert cluster.advance(math.inf) == FINISHED
    assert cluster.outcome().end.tolist() == [30.0]
    assert cluster.outcome().wasted == 0.0


def test_checkpoints_cost_time_and_save_work():
    changes = nodes([1], [(25.0, 0, 0), (40.0, 0, 1)])
    cluster = Cluster(changes, tasks([(0, 30, 1)]), checkpoints=Checkpoints(every=10.0, cost=1.0))
    cluster.advance(math.inf)
    placed(cluster, [(0, 0)])
    assert cluster.tasks["end"][0] == 32.0  # two checkpoints: none is needed at the very end
    cluster.advance(math.inf)
    assert cluster.tasks["done_before"][0] == 20.0
    assert cluster.start(np.zeros(0, np.int64), np.zeros(0, np.int64)) == 0
    cluster.advance(math.inf)
    assert cluster.now == 40.0
    placed(cluster, [(0, 0)])
    assert cluster.advance(math.inf) == FINISHED
    assert cluster.outcome().end.tolist() == [50.0]
    assert cluster.outcome().wasted == 5.0  # two seconds of checkpointing, three of work not saved


def test_the_first_copy_to_end_counts_and_the_others_stop():
    cluster = Cluster(nodes([1, 1, 1], [(10.0, 0, 0)]), tasks([(0, 30, 1)]), copies=3)
    cluster.advance(math.inf)
    assert cluster.waiting.tolist() == [0, 1, 2]
    placed(cluster, [(0, 0), (1, 1), (2, 2)])
    cluster.advance(math.inf)
    cluster.start(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert cluster.advance(math.inf) == FINISHED
    outcome = cluster.outcome()
    assert outcome.end.tolist() == [30.0]
    assert outcome.useful == 30.0
    assert outcome.wasted == 10.0 + 30.0


def test_a_retired_node_keeps_its_tasks_and_gets_no_new_ones():
    cluster = Cluster(nodes([2, 2], []), tasks([(0, 30, 1), (1, 10, 1)]), rented=np.array([True, False]))
    cluster.advance(math.inf)
    placed(cluster, [(0, 0)])
    cluster.retire(0)
    cluster.rent(1)
    cluster.advance(math.inf)
    assert placed(cluster, [(1, 0)]) == 0
    assert placed(cluster, [(1, 1)]) == 1
    assert cluster.nodes["rented"].tolist() == [1, 1]
    assert cluster.advance(math.inf) == FINISHED
    assert cluster.outcome().end.tolist() == [30.0, 11.0]
    assert cluster.nodes["rented"].tolist() == [0, 1]
    assert cluster.outcome().preemptions == 0


def test_a_task_no_node_can_hold_is_refused():
    with pytest.raises(BadInput, match="the largest node ever has 2"):
        Cluster(nodes([2], []), tasks([(0, 1, 3)]))


def test_time_goes_on_to_a_given_moment():
    cluster = Cluster(nodes([1], []), tasks([(50, 1, 1)]))
    assert cluster.advance(20.0) == TICK
    assert cluster.now == 20.0


@st.composite
def worlds(draw):
    """Nodes, tasks and a way to run them."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, changes, work = draw(st.integers(1, 5)), draw(st.integers(0, 40)), draw(st.integers(1, 25))
    copies = draw(st.integers(1, 3))
    checkpoints = draw(st.sampled_from([NO_CHECKPOINTS, Checkpoints(every=5.0, cost=1.0)]))
    asks = draw(st.booleans())
    size = generator.integers(2, 9)
    cores = generator.integers(0, size + 1, count)
    cores[0] = size
    changing = node_changes(
        cores,
        generator.integers(1, 200, changes).astype(float),
        generator.integers(0, count, changes),
        generator.integers(0, size + 1, changes),
        200.0,
    ).repeated(2)
    submitted = tasks(
        [
            (float(t), float(generator.integers(1, 40)), int(generator.integers(1, size + 1)))
            for t in np.sort(generator.integers(0, 150, work))
        ]
    )
    return changing, submitted, copies, checkpoints, asks, generator


def check_cores(cluster: Cluster) -> None:
    """Each node's cores are held by its running tasks, once."""
    task, node = cluster.tasks, cluster.nodes
    running = task["where"] == RUNNING
    held = np.bincount(task["node"][running], task["cores"][running], len(node))
    assert np.array_equal(held, node["used"])
    assert np.all(node["used"] <= node["cores"])
    for who in range(len(node)):
        mine = cluster.state.running[who, : node[who]["running"]]
        assert sorted(mine) == np.flatnonzero(running & (task["node"] == who)).tolist()
        assert np.all(np.diff(task["start"][mine]) >= 0)
    assert np.all(np.diff(cluster.waiting) > 0)


@settings(deadline=None)  # compiles on first use
@given(worlds())
def test_no_task_is_lost_and_no_core_used_twice(world):
    changing, submitted, copies, checkpoints, asks, generator = world
    cluster = Cluster(changing, submitted, copies=copies, checkpoints=checkpoints, asks=asks)
    for _ in range(20_000):
        reason = cluster.advance(math.inf)
        if reason == FINISHED:
            break
        if reason == TICK:  # nothing happens any more and a random node had no room: ask again
            cluster.wake()
            continue
        if reason == SHORT:  # anybody may be chosen, too few or too many
            there = cluster.running(cluster.short).copy()
            cluster.give_way(there[generator.random(len(there)) < 0.5])
            continue
        waiting = cluster.waiting.copy()
        started = cluster.start(waiting, generator.integers(0, changing.nodes, len(waiting)))
        assert 0 <= started <= len(waiting)
        check_cores(cluster)
    assert reason == FINISHED
    outcome = cluster.outcome()
    assert np.all(cluster.tasks["where"][: len(submitted)] == DONE)
    assert np.all(outcome.end >= submitted.submit + submitted.duration)
    work = float((submitted.duration * submitted.cores).sum())
    if copies == 1:
        assert outcome.useful == pytest.approx(work)
    assert outcome.wasted >= -1e-6


def test_cores_before_each_change_and_their_mean():
    changing = nodes([4, 0], [(10.0, 1, 2), (20.0, 0, 0), (50.0, 0, 6)], until=100.0)
    assert changing.before().tolist() == [0, 4, 0]
    assert changing.mean_cores() == pytest.approx((4 * 20 + 6 * 50 + 2 * 90) / 100)
    twice = changing.repeated(2)
    assert twice.until == 200.0
    assert twice.mean_cores() == pytest.approx(changing.mean_cores())
    assert twice.after[-1] in (2, 4, 6)


def test_the_clairvoyant_knows_the_next_shrink():
    shrinks = Shrinks(nodes([4, 4], [(10.0, 0, 6), (20.0, 0, 3), (40.0, 1, 1)]))
    assert shrinks.after(0.0, np.array([0, 1])).tolist() == [20.0, 40.0]
    assert shrinks.after(25.0, np.array([0, 1])).tolist() == [math.inf, 15.0]
