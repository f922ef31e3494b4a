"""A budget of calendar periods: what is left, the plan, what is carried over."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.decide.price.period_budget import PeriodMoney, period_money, price_share
from advisor.model.periods import period_span

DAY = 86_400.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("period", "begin", "end"),
    [
        ("day", "2026-11-26", "2026-11-27"),
        ("week", "2026-11-23", "2026-11-30"),
        ("month", "2026-11-01", "2026-12-01"),
    ],
)
def test_a_period_is_one_of_the_calendar_of_utc(period: str, begin: str, end: str) -> None:
    assert period_span(at("2026-11-26 13:00"), period) == (at(begin), at(end))


def money(
    now: str,
    *,
    spent: dict[str, float] | None = None,
    promised: float = 0.0,
    since: str = "2026-01-01",
    observed_since: str | None = None,
    carries_over: bool = False,
) -> PeriodMoney:
    return period_money(
        usd=300.0,
        period="month",
        since=at(since),
        now=at(now),
        spent_by_day=spent or {},
        promised=promised,
        observed_since=-math.inf if observed_since is None else at(observed_since),
        carries_over=carries_over,
    )


def test_all_is_there_at_once_and_what_is_spent_or_promised_is_gone() -> None:
    assert money("2026-11-01").left == pytest.approx(300.0)
    found = money("2026-11-04", spent={"2026-10-31": 90.0, "2026-11-02": 12.0}, promised=3.0)
    assert (found.spent, found.left) == (12.0, pytest.approx(285.0))
    assert money("2026-12-31", spent={"2026-11-30": 90.0, "2026-12-01": 7.0}).spent == 7.0


def test_the_plan_is_even_spending_to_the_end_of_the_period() -> None:
    assert money("2026-11-01").planned == pytest.approx(300.0)
    assert money("2026-11-16").planned == pytest.approx(150.0)
    assert money("2026-11-30 23:59:59").planned == pytest.approx(0.0, abs=0.01)


def test_the_price_falls_for_an_account_that_spends_less_than_evenly() -> None:
    def share(now: str, spent: float = 0.0) -> float:
        found = money(now, spent={"2026-11-02": spent})
        return price_share(found.planned, found.left)

    assert share("2026-11-16") == pytest.approx(0.5)
    assert share("2026-11-16", 100.0) == pytest.approx(0.75)
    assert share("2026-11-16", 200.0) == 1.0
    assert share("2026-11-16", 301.0) == 1.0
    assert share("2026-11-30 23:59:59") == pytest.approx(0.0, abs=1e-4)


def test_a_budget_that_begins_within_a_period_has_its_share_of_it() -> None:
    assert money("2026-11-22", since="2026-11-21").allowance == pytest.approx(100.0)
    assert money("2026-12-22", since="2026-11-21").allowance == 300.0


def test_while_little_demand_is_known_no_more_is_there_than_twice_what_has_accrued() -> None:
    found = money("2026-11-13", spent={"2026-11-12": 12.0}, observed_since="2026-11-11", promised=1.0)
    assert found.left == pytest.approx(2 * 20.0 - 12.0 - 1.0)
    assert money("2026-11-29", observed_since="2026-11-11").left == pytest.approx(300.0)
    assert money("2026-12-02", observed_since="2026-11-29").left == pytest.approx(300.0)


def test_what_a_period_has_left_is_carried_over_once_where_the_site_says_so() -> None:
    spent = {"2026-10-03": 250.0, "2026-11-01": 20.0}
    assert money("2026-11-02", spent=spent).carried == 0.0
    carried = money("2026-11-02", spent=spent, carries_over=True)
    assert (carried.allowance, carried.carried, carried.left) == (350.0, 50.0, pytest.approx(330.0))
    assert money("2026-11-02", carries_over=True, since="2026-10-17").carried == pytest.approx(300 * 15 / 31)
    assert money("2026-11-02", carries_over=True, since="2026-11-01").carried == 0.0
    overspent = money("2026-11-02", spent={"2026-10-03": 330.0}, carries_over=True)
    assert overspent.carried == 0.0


@given(
    starts=st.lists(
        st.tuples(st.floats(0.1, 9.0), st.floats(0.0, 400.0), st.floats(0.0, 1.0)), min_size=1, max_size=60
    ),
    carries_over=st.booleans(),
)
def test_no_start_that_is_paid_when_it_is_committed_exceeds_a_period(
    starts: list[tuple[float, float, float]], *, carries_over: bool
) -> None:
    spent: dict[str, float] = {}
    since = now = at("2026-01-15")
    for days, most, used in starts:
        now += days * DAY
        left = period_money(
            usd=300.0,
            period="month",
            since=since,
            now=now,
            spent_by_day=spent,
            promised=0.0,
            carries_over=carries_over,
        ).left
        if most <= left:
            day = datetime.fromtimestamp(now, UTC).date().isoformat()
            spent[day] = spent.get(day, 0.0) + used * most
    by_month: dict[str, float] = {}
    for day, usd in spent.items():
        by_month[day[:7]] = by_month.get(day[:7], 0.0) + usd
    for month, usd in by_month.items():
        assert usd <= (600.0 if carries_over else 300.0) + 1e-6, month
    if carries_over:  # two periods together have no more than their two budgets, and what came before
        assert sum(by_month.values()) <= 300.0 * (1 + (now - since) / (28 * DAY)) + 1e-6


def test_what_comes_once_is_gone_at_its_end_unless_it_is_carried_over() -> None:
    def after(*, carries_over: bool) -> PeriodMoney:
        return period_money(
            usd=300.0,
            period="2026-10-01 until 2026-11-01",
            since=at("2026-10-01"),
            now=at("2026-11-05"),
            spent_by_day={"2026-10-10": 100.0, "2026-11-02": 30.0},
            promised=20.0,
            carries_over=carries_over,
        )

    assert after(carries_over=False) == PeriodMoney(0.0, 0.0, 30.0, -50.0, 0.0)
    assert after(carries_over=True) == PeriodMoney(200.0, 200.0, 30.0, 150.0, 0.0)
