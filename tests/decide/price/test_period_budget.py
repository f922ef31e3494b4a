"""A budget of a period as tokens: even accrual, what is kept, and the calendar's bound."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from advisor.decide.price.period_budget import Period, period_span, spent_in_period, tokens_at_hand

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
def test_a_period_is_one_of_the_calendar_of_utc(period: Period, begin: str, end: str) -> None:
    assert period_span(at("2026-11-26 13:00"), period) == (at(begin), at(end))


def tokens(now: str, *, spent: dict[str, float] | None = None, promised: float = 0.0) -> float:
    return tokens_at_hand(
        usd=300.0,
        period="month",
        since=at("2026-11-01"),
        now=at(now),
        spent_by_day=spent or {},
        promised=promised,
        ahead=100.0,
    )


def test_a_third_is_there_at_once_the_rest_accrues_and_what_is_spent_or_promised_is_gone() -> None:
    assert tokens("2026-11-01") == pytest.approx(100.0)
    assert tokens("2026-11-04") == pytest.approx(130.0)
    assert tokens("2026-11-04", spent={"2026-11-02": 12.0}, promised=3.0) == pytest.approx(115.0)


def test_more_than_was_there_is_repaid_first() -> None:
    assert tokens("2026-11-04", spent={"2026-11-02": 150.0}) == pytest.approx(-20.0)


def test_what_is_kept_is_one_periods_budget_and_no_period_spends_more() -> None:
    assert tokens("2027-01-20") == pytest.approx(300.0)
    assert tokens("2026-12-31", spent={"2026-12-30": 250.0}) == pytest.approx(50.0)
    now = at("2026-12-31")
    assert spent_in_period({"2026-11-30": 90.0, "2026-12-01": 7.0}, now, "month") == 7.0


def test_whatever_is_bought_as_soon_as_it_may_be_no_month_goes_over_its_budget() -> None:
    spent: dict[str, float] = {}
    since = now = at("2026-01-15")
    while now < at("2026-09-01"):
        now += 5.5 * DAY
        day = datetime.fromtimestamp(now, UTC).date().isoformat()
        usd = tokens_at_hand(
            usd=300.0, period="month", since=since, now=now, spent_by_day=spent, promised=0.0
        )
        if now > at("2026-04-20"):
            spent[day] = spent.get(day, 0.0) + max(0.0, usd)
    by_month: dict[str, float] = {}
    for day, usd in spent.items():
        by_month[day[:7]] = by_month.get(day[:7], 0.0) + usd
    assert by_month["2026-05"] == pytest.approx(300.0, rel=0.2)
    assert max(by_month.values()) <= 300.0 + 1e-9
