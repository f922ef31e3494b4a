"""What a node has cost is shared among the jobs that were on it; what is left is idle: nothing is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.bill import (
    Bill,
    NodeUse,
    PaidTime,
    Rows,
    bill,
    cost_by_day,
    day_of,
    midnight,
    shares,
    used,
)

HOUR = 3600.0
DAY = 86_400.0
MIDNIGHT = 1_800_057_600.0 - 1_800_057_600.0 % DAY


def paid(
    since: float, until: float, usd: float = 1.0, node: str = "burst1", instance: str = "i-1"
) -> PaidTime:
    return PaidTime(instance_id=instance, node=node, since=since, until=until, usd_per_hour=usd)


def use(job_id: int, start: float, end: float, cores: float = 1.0, account: str = "", **more: str) -> NodeUse:
    node = more.get("node", "burst1")
    return NodeUse(job_id=job_id, node=node, start=start, end=end, processors=cores, account=account)


def usd(rows: Rows) -> tuple[float, dict[str, float], float, float]:
    return rows.spent_usd, rows.accounts, rows.no_account_usd, rows.idle_usd


def test_day_one_10_jobs_that_share_a_node_share_its_price() -> None:
    """Each was charged for the whole node: 50 % too much on the demo's day."""
    uses = [use(1, 100.0, 100.0 + HOUR, 2, "physics"), use(2, 100.0, 100.0 + HOUR, 6, "law")]
    found = bill([paid(100.0, 100.0 + HOUR, 4.0)], uses)
    assert found.accounts == {"law": pytest.approx(3.0), "physics": pytest.approx(1.0)}
    assert found.spent_usd == 4.0
    assert found.idle_usd == pytest.approx(0.0, abs=1e-9)


def test_day_one_10_no_account_is_not_idle() -> None:
    spent, accounts, no_account, idle = usd(
        bill([paid(0.0, 2 * HOUR)], [use(1, HOUR / 2, HOUR), use(2, HOUR, 1.5 * HOUR, account="law")])
    )
    assert (spent, accounts) == (2.0, {"law": pytest.approx(0.5)})
    assert (no_account, idle) == (pytest.approx(0.5), pytest.approx(1.0))


def test_who_keeps_a_node_up_pays_for_cores_that_nobody_uses() -> None:
    found = bill([paid(0.0, HOUR)], [use(1, 0.0, HOUR, 1), use(2, 0.0, HOUR / 2, 3)])
    assert found.no_account_usd == pytest.approx(1.0)
    costs = used([paid(0.0, HOUR)], [use(1, 0.0, HOUR, 1), use(2, 0.0, HOUR / 2, 3)])
    assert {one.job_id: cost for one, cost in costs.items()} == {
        1: pytest.approx(0.5 + 0.125),
        2: pytest.approx(0.375),
    }


def test_over_midnight_every_day_has_its_own() -> None:
    found = bill(
        [paid(MIDNIGHT - 2 * HOUR, MIDNIGHT + HOUR)],
        [use(1, MIDNIGHT - HOUR, MIDNIGHT + HOUR / 2, account="law")],
    )
    assert [(day, usd(rows)) for day, rows in found.days.items()] == [
        (day_of(MIDNIGHT - 1.0), (2.0, {"law": pytest.approx(1.0)}, 0.0, pytest.approx(1.0))),
        (day_of(MIDNIGHT), (1.0, {"law": pytest.approx(0.5)}, 0.0, pytest.approx(0.5))),
    ]


def test_a_price_that_changes_is_the_price_of_that_time() -> None:
    pieces = [paid(0.0, HOUR, 1.0), paid(HOUR, 2 * HOUR, 3.0)]
    (cost,) = used(pieces, [use(1, HOUR / 2, 1.5 * HOUR)]).values()
    assert cost == pytest.approx(0.5 + 1.5)


def test_a_job_on_several_nodes_and_requeued_has_all_of_its_runs() -> None:
    pieces = [paid(0.0, 3 * HOUR), paid(0.0, 3 * HOUR, 2.0, "burst2", "i-2")]
    runs = [
        use(1, 0.0, HOUR),
        use(1, 0.0, HOUR, node="burst2"),
        use(1, 2 * HOUR, 3 * HOUR, node="burst2"),
    ]
    assert math.fsum(used(pieces, runs).values()) == pytest.approx(1.0 + 2.0 + 2.0)


def test_a_run_belongs_to_the_instance_that_it_started_on() -> None:
    """The end of an instance is seen a look later than the next one of that node is launched."""
    pieces = [paid(0.0, HOUR + 20.0), paid(HOUR + 10.0, 2 * HOUR, instance="i-2")]
    costs = used(pieces, [use(1, 0.0, HOUR), use(2, HOUR + 15.0, 2 * HOUR)])
    assert [round(cost, 6) for cost in costs.values()] == [1.0, round((HOUR - 15.0) / HOUR, 6)]


def test_shares_of_a_node_now() -> None:
    assert shares([("law", 2.0), ("", 1.0), ("law", 1.0)]) == {"law": 0.75, "": 0.25}
    assert shares([]) == {}


times = st.floats(MIDNIGHT - DAY, MIDNIGHT + 2 * DAY, allow_nan=False)
lives = st.lists(
    st.tuples(
        st.integers(1, 3),
        times,
        st.lists(st.tuples(st.floats(1.0, DAY), st.floats(0.0, 30.0)), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=4,
)
runs = st.lists(
    st.tuples(
        st.integers(1, 6),
        st.integers(1, 4),
        times,
        st.floats(0.5, DAY),
        st.sampled_from([1.0, 2.0, 7.0, 64.0 / 3.0]),
        st.sampled_from(["", "law", "physics"]),
    ),
    max_size=12,
)


def world(lives: Sequence, runs: Sequence) -> tuple[list[PaidTime], list[NodeUse]]:
    pieces = []
    for number, (node, launched, parts) in enumerate(lives):
        begin = launched
        for seconds, price in parts:
            pieces.append(paid(begin, begin + seconds, price, f"burst{node}", f"i-{number}"))
            begin += seconds
    uses = {
        (node, job, start): use(job, start, start + seconds, cores, account, node=f"burst{node}")
        for job, node, start, seconds, cores, account in runs
    }
    return pieces, list(uses.values())


def plain_cost(pieces: Sequence[PaidTime], since: float = -math.inf, until: float = math.inf) -> float:
    return math.fsum(
        max(0.0, min(piece.until, until) - max(piece.since, since)) * piece.usd_per_hour / HOUR
        for piece in pieces
    )


@given(lives, runs)
def test_day_one_10_shares_and_idle_time_are_what_the_nodes_cost(lives: Sequence, runs: Sequence) -> None:
    pieces, uses = world(lives, runs)
    found = bill(pieces, uses)
    assert found.spent_usd == pytest.approx(plain_cost(pieces), abs=1e-9)
    assert found._spent == sum(found._by_account.values()) + round(found.idle_usd * 1e12)
    assert found.idle_usd >= 0.0
    assert math.fsum(used(pieces, uses).values()) == pytest.approx(found.spent_usd - found.idle_usd, abs=1e-9)
    assert sum(rows._spent for rows in found.days.values()) == found._spent


@given(lives, runs, st.lists(times, min_size=1, max_size=3))
def test_day_one_10_parts_of_a_period_add_up(lives: Sequence, runs: Sequence, cuts: list[float]) -> None:
    pieces, uses = world(lives, runs)
    edges = [-math.inf, *sorted(cuts), math.inf]
    whole, parts = bill(pieces, uses), Bill()
    for since, until in pairwise(edges):
        parts.add(bill(pieces, uses, since, until))
    assert parts._spent == whole._spent, "to the last picodollar"
    assert parts.idle_usd == pytest.approx(whole.idle_usd, abs=1e-9)


@given(lives, runs)
def test_no_moment_with_a_job_is_idle_and_none_without_is_used(lives: Sequence, runs: Sequence) -> None:
    """One instance a node: the rule said in another way, second by second."""
    first: dict[int, tuple] = {}
    for life in lives:
        first.setdefault(life[0], life)
    pieces, uses = world(list(first.values()), runs)
    expected = 0.0
    for piece in pieces:
        inside = {piece.since, piece.until}
        there = [one for one in uses if one.node == piece.node]
        inside |= {t for one in there for t in (one.start, one.end) if piece.since < t < piece.until}
        edges = sorted(inside)
        for begin, end in pairwise(edges):
            middle = (begin + end) / 2
            if not any(one.start <= middle < one.end for one in there):
                expected += (end - begin) * piece.usd_per_hour / HOUR
    assert bill(pieces, uses).idle_usd == pytest.approx(expected, abs=1e-6)


@given(times, st.floats(0.0, 3 * DAY), st.floats(0.0, 30.0))
def test_a_stretch_by_days(since: float, seconds: float, price: float) -> None:
    costs = cost_by_day(since, since + seconds, price)
    assert math.fsum(costs.values()) == pytest.approx(seconds * price / HOUR, abs=1e-6)
    assert midnight(since) <= since < midnight(since) + DAY
