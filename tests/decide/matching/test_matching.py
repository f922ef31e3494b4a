"""The match maker's decisions on nodes small enough to check by hand, and its laws on any."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.decide.matching import matching
from advisor.decide.matching.acquirer import AcquirerRules, acquire
from advisor.decide.matching.matching import (
    NOWHERE,
    OURS,
    MatchRules,
    match,
)
from advisor.model.node_view import NODE_RECORD, NodeView
from advisor.papers.stability import likeliest
from advisor.papers.stability.likeliest import most_stable
from advisor.papers.stability.stability_run import LITERAL
from advisor.predict.survival import hazard
from advisor.predict.survival.hazard import AGES
from advisor.predict.survival.node_survival import SurvivalModel

HOUR = 3600.0


def view_of(rows: list[tuple[int, float, list[tuple[float, int]]]]) -> NodeView:
    """Rows of (cores, age, [(seconds until a task ends, its cores)])."""
    nodes = np.zeros(len(rows), NODE_RECORD)
    remaining, held = [], []
    for node, (cores, age, running) in zip(nodes, rows, strict=True):
        node["age"], node["cores"], node["open"] = age, cores, 1
        node["free"] = cores - sum(taken for _, taken in running)
        node["first"], node["running"] = len(remaining), len(running)
        for seconds, taken in sorted(running):
            remaining.append(seconds)
            held.append(taken)
    return NodeView(nodes, np.array(remaining, float), np.array(held, np.int64))


def pool(nodes: int, own: list[float] | None = None) -> SurvivalModel:
    """Hazard 1/(600 + age), the next change is a shrink; own rates exactly known."""
    return SurvivalModel(
        hazard=np.log1p(AGES / 600.0),
        shrink_after=np.ones(2),
        larger=np.ones(257),
        shape=np.full(nodes, math.inf) if own is None else 1e6 * np.array(own),
        rate=np.full(nodes, 1e6),
    )


def tasks(rows: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([c for c, _ in rows], np.int64), np.array([d for _, d in rows], float)


def test_a_long_task_goes_to_the_node_that_stays():
    seen = view_of([(4, 60.0, []), (4, 20 * HOUR, []), (4, 600.0, [])])
    assert match(seen, *tasks([(2, HOUR)]), pool(3)).tolist() == [1]


def test_the_longest_chooses_first_whatever_the_order():
    seen = view_of([(2, 60.0, []), (2, 20 * HOUR, [])])
    assert match(seen, *tasks([(2, 300.0), (2, HOUR)]), pool(2)).tolist() == [0, 1]
    in_order = match(seen, *tasks([(2, 300.0), (2, HOUR)]), pool(2), MatchRules(longest_first=False))
    assert in_order[0] == 1
    assert most_stable(seen, *tasks([(2, 300.0), (2, HOUR)]), pool(2)).tolist() == [1, 0]


def test_the_nodes_own_rate_counts():
    seen = view_of([(4, HOUR, []), (4, HOUR, [])])
    assert match(seen, *tasks([(1, HOUR)]), pool(2, [5.0, 0.1])).tolist() == [1]


def test_waiting_for_a_stable_busy_node():
    seen = view_of([(2, 1.0, []), (2, 50 * HOUR, [(60.0, 2)])])
    assert match(seen, *tasks([(2, HOUR)]), pool(2)).tolist() == [NOWHERE]
    assert match(seen, *tasks([(2, HOUR)]), pool(2), MatchRules(waits=False)).tolist() == [0]
    later = view_of([(2, 1.0, []), (2, 50 * HOUR, [(9 * HOUR, 2)])])
    assert match(later, *tasks([(2, HOUR)]), pool(2)).tolist() == [0]


def test_only_one_task_can_count_on_the_same_cores():
    seen = view_of([(4, 4000.0, []), (2, 50 * HOUR, [(60.0, 2)])])
    two = tasks([(2, HOUR), (2, HOUR)])
    reserving = match(seen, *two, pool(2), MatchRules())
    assert reserving.tolist() == [NOWHERE, 0]
    literally = match(seen, *two, pool(2), MatchRules(reserves=False))  # both wait for the same two cores
    assert literally.tolist() == [NOWHERE, NOWHERE]


def test_nobody_waits_while_there_are_more_tasks_than_cores():
    seen = view_of([(2, 1.0, []), (2, 50 * HOUR, [(60.0, 2)])])
    three = tasks([(2, HOUR), (2, HOUR), (2, HOUR)])
    assert match(seen, *three, pool(2)).tolist().count(0) == 1
    assert match(seen, *three, pool(2), MatchRules(keeps_busy=False)).tolist().count(0) <= 1


def test_a_short_backlog_stops_nobody_from_waiting():
    seen = view_of([(2, 1.0, []), (14, 50 * HOUR, [(60.0, 14)])])
    two = tasks([(2, HOUR), (2, HOUR)])  # two cores more than are free, of sixteen
    assert match(seen, *two, pool(2)).tolist() == [NOWHERE, NOWHERE]


def test_room_to_spare_is_a_shield_where_the_least_work_lost_gives_way():
    seen = view_of([(4, 700.0, []), (12, 600.0, [])])
    known = pool(2)._replace(larger=np.where(np.arange(257) < 8, 1.0, 0.1))  # shrinks take eight cores or so
    shielded = MatchRules(shielded=True)
    assert match(seen, *tasks([(2, HOUR)]), known).tolist() == [0]  # unchanged for longer
    assert match(seen, *tasks([(2, HOUR)]), known, shielded).tolist() == [1]  # ten cores stay free beside it
    whole = pool(2)  # every shrink takes more than any node has: there is no shield against that
    assert match(seen, *tasks([(2, HOUR)]), whole, shielded).tolist() == [0]


def test_a_retiring_node_gets_nothing():
    seen = view_of([(4, HOUR, [])])
    seen.nodes["open"] = 0
    assert match(seen, *tasks([(1, 60.0)]), pool(1)).tolist() == [NOWHERE]
    assert most_stable(seen, *tasks([(1, 60.0)]), pool(1)).tolist() == [NOWHERE]


@st.composite
def moments(draw):
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        cores = int(generator.integers(0, 9))
        running, free = [], cores
        while free > 0 and generator.random() < 0.6:
            taken = int(generator.integers(1, free + 1))
            running.append((float(generator.uniform(1, 5000)), taken))
            free -= taken
        rows.append((cores, float(generator.uniform(0, 1e5)), running))
    count = draw(st.integers(0, 12))
    waiting = tasks(
        [(int(generator.integers(1, 9)), float(generator.uniform(1, 8000))) for _ in range(count)]
    )
    return view_of(rows), waiting, pool(len(rows), list(generator.uniform(0.1, 5, len(rows))))


@settings(deadline=None)  # compiles on first use
@given(
    moments(),
    st.sampled_from(
        [
            OURS,
            MatchRules(waits=False),
            MatchRules(keeps_busy=False),
            MatchRules(shielded=True),
        ]
    ),
)
def test_no_core_is_given_twice(moment, rules):
    seen, (cores, during), known = moment
    before = seen.nodes.copy()
    for chosen in (match(seen, cores, during, known, rules), most_stable(seen, cores, during, known)):
        placed = chosen != NOWHERE
        given_cores = np.bincount(chosen[placed], cores[placed], len(seen.nodes))
        assert np.all(given_cores <= seen.nodes["free"])
    assert np.array_equal(before, seen.nodes)


@pytest.mark.parametrize("rules", [OURS, LITERAL, MatchRules(waits=False), MatchRules(shielded=True)])
def test_compiled_and_as_python(rules: MatchRules, interpreted: Callable[[ModuleType], None]):
    generator = np.random.default_rng(7)
    seen = view_of([(4, 60.0, [(500.0, 2)]), (4, 20 * HOUR, [(60.0, 1), (900.0, 3)]), (8, 600.0, [])])
    waiting = tasks([(int(generator.integers(1, 5)), float(generator.uniform(60, 8000))) for _ in range(6)])
    known = pool(3, [0.5, 1.0, 2.0])

    def decided() -> list[list[int]]:
        return [
            matching.match(seen, *waiting, known, rules).tolist(),
            most_stable(seen, *waiting, known).tolist(),
        ]

    compiled = decided()
    for module in (hazard, matching, likeliest):
        interpreted(module)
    seen = NodeView(seen.nodes.view(np.recarray), seen.remaining, seen.held)  # fields as compiled code has
    assert decided() == compiled


def test_acquirer_as_published_retires_the_most_recently_changed():
    cores = np.full(20, 16)
    plan = acquire(
        cores,
        np.arange(20.0),
        np.ones(20),
        busy_cores=200.0,
        target_cores=320.0,
        rules=AcquirerRules(share=0.1, by_own_rate=False),
    )
    assert plan.retire.tolist() == [0, 1]
    assert plan.cores == 32.0


def test_acquirer_as_published_exchanges_no_node_for_one_that_is_no_better():
    """The newest node is as good as a fresh one; of the two that are worse the younger goes."""
    rates = np.array([1.0, 1.2, 2.0, 4.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    plan = acquire(
        np.full(10, 16),
        np.arange(10.0),
        rates,
        busy_cores=100.0,
        target_cores=160.0,
        fresh_rate=1.25,
        rules=AcquirerRules(share=0.1, by_own_rate=False),
    )
    assert plan.retire.tolist() == [2]
    fresh = acquire(
        np.full(10, 16),
        np.arange(10.0),
        np.ones(10),
        busy_cores=100.0,
        target_cores=160.0,
        fresh_rate=1.25,
        rules=AcquirerRules(share=0.1, by_own_rate=False),
    )
    assert fresh.retire.tolist() == []


def test_acquirer_explores_as_far_as_nodes_differ():
    cores = np.full(10, 16)
    stable = acquire(cores, np.zeros(10), np.full(10, 0.2), busy_cores=100.0, target_cores=160.0)
    assert len(stable.retire) == 0
    assert stable.cores == 0.0
    rates = np.array([0.2] * 9 + [3.0])
    assert acquire(cores, np.zeros(10), rates, busy_cores=100.0, target_cores=160.0).retire.tolist() == [9]


@pytest.mark.parametrize(("busy", "cores", "fewer"), [(90.0, 12.5, 0), (70.0, 0.0, 0), (30.0, 0.0, 5)])
def test_acquirer_keeps_utilisation_between_60_and_80_percent(busy, cores, fewer):
    plan = acquire(np.full(10, 10), np.zeros(10), np.full(10, 0.1), busy_cores=busy, target_cores=None)
    assert plan.cores == pytest.approx(cores)
    assert len(plan.retire) == fewer


def test_acquirer_does_not_shrink_below_what_is_needed_now_nor_by_nodes_in_use():
    cores, idle = np.full(10, 10), np.arange(10) >= 7
    all_alike = (cores, np.zeros(10), np.full(10, 0.1))
    needed = acquire(*all_alike, busy_cores=5.0, target_cores=None, needed_now=48.0)
    assert len(needed.retire) == 2  # to 80 cores, of which 48 are the least to be used
    plan = acquire(*all_alike, busy_cores=5.0, target_cores=None, may_go=idle)
    assert sorted(plan.retire) == [7, 8, 9]
    assert plan.cores == 0.0
    grown = acquire(*all_alike, busy_cores=90.0, target_cores=None, needed_now=500.0)
    assert grown.cores == pytest.approx(12.5)
