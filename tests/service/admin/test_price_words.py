"""What `advisor status` says about the price and the budget."""

from __future__ import annotations

from typing import Any

from advisor.service.admin.status_words import price_rows

REPORT: dict[str, Any] = {
    "budget_usd": 2000.0,
    "period": "month",
    "spent_usd": 612.5,
    "tokens_usd": 84.2,
    "tokens_by_account": {"chem": 12.0},
    "usd_per_hour": 0.42,
    "worth_it": 3,
    "moved": 1204,
    "unknown": None,
}


def test_price_budget_and_accounts_in_a_line_each() -> None:
    moved = "3 waiting jobs do, 1,204 were moved while they waited"
    assert price_rows(REPORT) == [
        ("price", f"a job moves if it saves an hour for 0.42 USD at most; {moved}"),
        ("budget", "612.50 USD of 2,000.00 USD spent this month; 84.20 USD may be committed now"),
        ("other budgets", "1; each has some left; `advisor budget` shows them"),
    ]


def test_an_unknown_price_says_why_no_job_moves() -> None:
    said = price_rows(REPORT | {"unknown": "budget.json was damaged"})
    assert said == [("price", "unknown, and no job moves: budget.json was damaged")]
    assert price_rows({}) == []
