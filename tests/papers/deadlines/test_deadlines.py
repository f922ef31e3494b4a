"""Jobs with a deadline on spot traces: none is late, published rules as written, the best plan."""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.model.errors import BadInput
from advisor.papers.deadlines.deadlines import DeadlineOptions, SpotMarket, follow, replay_deadlines
from advisor.papers.deadlines.moment import Market, Moment
from advisor.papers.deadlines.omniscient import omniscient
from advisor.papers.deadlines.published import greedy, uniform_progress

HOUR = 3600.0
markets = st.lists(st.booleans(), min_size=1, max_size=40)


def moment(
    *,
    done: float,
    passed: float,
    running: Market = Market.IDLE,
    has_spot: bool = False,
    work: float = 48 * HOUR,
    time: float = 60 * HOUR,
) -> Moment:
    return Moment(work - done, time - passed, running, 0.0, has_spot, 720.0, 300.0)


@settings(max_examples=300)
@given(
    pattern=markets,
    wanted=st.lists(st.sampled_from(list(Market)), min_size=1, max_size=40),
    tick=st.integers(1, 4000),
    changeover=st.integers(0, 4000),
    work=st.floats(60.0, 20_000.0),
    slack=st.floats(0.0, 20_000.0),
)
def test_no_rule_at_all_misses_a_deadline(
    pattern: list[bool], wanted: list[Market], tick: int, changeover: int, work: float, slack: float
) -> None:
    time = work + changeover + slack
    ticks = int(time / tick) + 2
    market = SpotMarket("any", tick, np.resize(np.array(pattern), ticks))
    options = DeadlineOptions(
        hours=work / HOUR, fraction=work / time, changeover_hours=changeover / HOUR, starts=1
    )
    used = follow(lambda _, at: wanted[at % len(wanted)], market, 0, options)
    assert used.done <= time + 0.01
    assert used.on_demand + used.spot >= work - 0.01


def test_greedy_waits_until_the_safety_net() -> None:
    assert greedy(moment(done=0, passed=11 * HOUR)) is Market.IDLE
    assert greedy(moment(done=0, passed=11 * HOUR, has_spot=True)) is Market.SPOT
    assert greedy(moment(done=0, passed=12 * HOUR - 1439, has_spot=True)) is Market.ON_DEMAND
    on_spot = moment(done=0, passed=12 * HOUR - 1439, has_spot=True, running=Market.SPOT)
    assert greedy(on_spot) is Market.SPOT


def test_uniform_progress_as_published() -> None:
    choose = functools.partial(uniform_progress, work=48 * HOUR, time=60 * HOUR)
    behind, ahead = moment(done=7.9 * HOUR, passed=10 * HOUR), moment(done=8.1 * HOUR, passed=10 * HOUR)
    assert choose(behind) is Market.ON_DEMAND
    assert choose(ahead) is Market.IDLE
    risk = moment(done=0, passed=10 * HOUR, has_spot=True)
    assert choose(risk) is Market.SPOT, "spot is taken even behind the pace"
    held = {"passed": 10 * HOUR, "has_spot": True, "running": Market.ON_DEMAND}
    assert choose(moment(done=8.3 * HOUR, **held)) is Market.ON_DEMAND, "less than ep(t + 2 d) = 8.32 h"
    assert choose(moment(done=8.33 * HOUR, **held)) is Market.SPOT


@settings(max_examples=150)
@given(
    pattern=st.lists(st.booleans(), min_size=14, max_size=14),
    changeover=st.integers(0, 5),
    work=st.integers(3, 9),
    spot_price=st.sampled_from([0.1, 0.3, 0.9]),
)
def test_the_omniscient_plan_is_the_best_of_all(
    pattern: list[bool], changeover: int, work: int, spot_price: float
) -> None:
    tick, time = 2, work + 5

    @functools.cache
    def best(at: int, left: int, running: int, starting: int) -> float:
        """Every choice at every tick, a start broken off included."""
        if left <= 0:
            return 0.0
        if at * tick >= time:
            return float("inf")
        has_spot = pattern[at]
        if running == Market.SPOT and not has_spot:
            running, starting = Market.IDLE, 0
        costs = [best(at + 1, left, Market.IDLE, 0)]
        for to in (Market.SPOT, Market.ON_DEMAND):
            if to is Market.SPOT and not has_spot:
                continue
            wait = starting if to == running else changeover
            passed = min(tick, wait + left)
            if at * tick + passed > time:
                continue
            price = spot_price if to is Market.SPOT else 1.0
            then = best(at + 1, left - max(0, passed - wait), to, max(0, wait - passed))
            costs.append(passed * price + then)
        return min(costs)

    found = omniscient(
        np.array(pattern), tick=tick, work=work, time=time, changeover=changeover, spot_price=spot_price
    )
    assert found.cost == pytest.approx(best(0, work, Market.IDLE, 0))
    assert found.cost == pytest.approx(found.on_demand + spot_price * found.spot)


def written(path: Path, document: object) -> Path:
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def trace(path: Path, *, hours: float = 40.0, seed: int = 1) -> Path:
    """Spot that comes and goes every few hours."""
    changes = np.random.default_rng(seed).random(int(hours * 6)) < 0.1
    return written(path, {"metadata": {"gap_seconds": 600}, "data": (np.cumsum(changes) % 2).tolist()})


def test_policies_lie_between_uniform_progress_and_the_plan(tmp_path: Path) -> None:
    options = DeadlineOptions(hours=8.0, history_hours=12.0, starts=6)
    result = replay_deadlines([trace(tmp_path / "a.json.gz"), trace(tmp_path / "b.json.gz", seed=2)], options)
    assert [row["trace"] for row in result["traces"]] == ["a", "b"]
    assert result["all"]["jobs"] == 12
    policies = result["all"]["policies"]
    for found in policies.values():
        assert found["missed"] == 0
        assert found["cost"] >= policies["omniscient"]["cost"] - 1e-6
    assert policies["omniscient"]["way_by_on_demand_hours"] == pytest.approx(1.0)
    assert policies["uniform_progress"]["way_by_cost"] == pytest.approx(0.0)
    assert policies["advisor"]["way_by_cost"] > 0.2
    assert policies["advisor"]["cost"] < policies["greedy"]["cost"]


def test_what_a_trace_does_after_a_deadline_changes_no_job_before_it(tmp_path: Path) -> None:
    options = DeadlineOptions(hours=8.0, history_hours=12.0, starts=1)
    known = (np.arange(6 * 22) // 5 % 2).tolist()  # 12 h of history, and 10 h to the deadline
    rows = []
    for name, later in (("a", [1]), ("b", [0])):
        document = {"metadata": {"gap_seconds": 600}, "data": known + later * 600}
        found = replay_deadlines([written(tmp_path / f"{name}.json.gz", document)], options)
        rows.append({policy: figures["cost"] for policy, figures in found["all"]["policies"].items()})
    assert rows[0] == rows[1]
    assert rows[0]["omniscient"] < rows[0]["advisor"]


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"data": [1, 0]},
        {"metadata": {"gap_seconds": 600}, "data": [1, -1] * 300},
        {"metadata": {"gap_seconds": 0}, "data": [1, 0] * 300},
        {"metadata": {"gap_seconds": 0.01}, "data": [1, 0] * 300},
        {"metadata": {"gap_seconds": 600}, "data": [1, 0] * 10},
    ],
)
def test_traces_that_cannot_be_used_are_refused(tmp_path: Path, document: object) -> None:
    path = written(tmp_path / "bad.json.gz", document)
    with pytest.raises(BadInput, match=r"bad\.json"):
        replay_deadlines([path], DeadlineOptions(hours=8.0, history_hours=12.0))


def test_a_deadline_that_leaves_no_time_for_a_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="do not fit"):
        replay_deadlines([trace(tmp_path / "a.json.gz")], DeadlineOptions(hours=1.0, fraction=0.95))
