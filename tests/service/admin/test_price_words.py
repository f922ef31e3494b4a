"""What `advisor status` says about the price and the budget."""

from __future__ import annotations

from typing import Any

from advisor.service.admin.status_words import price_rows, status_rows

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
    moved = "3 waiting jobs do of those valued last, 1,204 were moved while they waited"
    assert price_rows(REPORT) == [
        ("price", f"a job moves if it saves an hour for 0.42 USD at most; {moved}"),
        ("budget", "612.50 USD of 2,000.00 USD spent this month; 84.20 USD may be committed now"),
        ("other budgets", "1; each has some left; `advisor budget` shows them"),
    ]


def test_machines_are_shown_where_there_are_several() -> None:
    def machine(partitions: str, processors: int, waiting: int) -> dict[str, Any]:
        return {"partitions": partitions.split(), "processors": processors, "waiting": waiting}

    two = [machine("gpu", 64, 0), machine("cpu short", 4096, 1200)]
    said = dict(price_rows(REPORT | {"machines": two}))
    assert said["queues"] == (
        "cpu, short (4,096 processors): 1,200 jobs wait; gpu (64 processors): 0 jobs wait"
    )
    many = dict(price_rows(REPORT | {"machines": [machine(f"p{n}", 8, n) for n in range(7)]}))
    assert many["queues"].startswith("p6 (8 processors): 6 jobs wait")
    assert many["queues"].endswith("p2 (8 processors): 2 jobs wait; and 2 more")
    assert "queues" not in dict(price_rows(REPORT | {"machines": two[:1]}))


def test_an_unknown_price_says_why_no_job_moves() -> None:
    said = price_rows(REPORT | {"unknown": "budget.json was damaged"})
    assert said == [("price", "unknown, and no job moves: budget.json was damaged")]
    assert price_rows({}) == []


def test_one_job_is_no_plural() -> None:
    assert (
        "; 1 waiting job does of those valued last, 0 were"
        in price_rows(REPORT | {"worth_it": 1, "moved": 0})[0][1]
    )


def test_the_work_that_waits_is_by_time_limits() -> None:
    """Jobs run for less than that: without a word the hours contradict the waits that are forecast."""
    cluster = {
        "queue_size": 2,
        "queued_work_core_seconds": 9000.0,
        "free_processors": 0,
        "total_processors": 32,
        "running_jobs": 6,
    }
    seen = {"age_seconds": 1.0, "cluster": cluster, "cloud": {}}
    stopped = {"running": False}
    report = {"cluster_name": "c1", "modes": {}, "serve": stopped, "control": stopped, "snapshot": seen}
    rows = dict(status_rows(report))
    said = "2 jobs wait (2.5 core hours by their limits), 6 run, 0 of 32 processors free"
    assert rows["on-premise"] == said


def test_promised_is_what_nodes_may_still_cost_as_in_spend() -> None:
    """The submit server's figure has moved jobs that wait for a node, and they have none."""
    cloud = {"spent_usd": 1.0, "promised_usd": 9.0, "nodes_up": 1, "nodes_total": 2}
    control = {"running": False, "cloud_report": {"spend": {"spent_usd": 1.25, "promised_usd": 4.0}}}
    seen = {"age_seconds": 1.0, "cluster": None, "cloud": cloud}
    report = {"cluster_name": "c1", "modes": {}, "serve": {"running": False}, "control": control}
    rows = dict(status_rows(report | {"snapshot": seen}))
    assert rows["cloud"] == "1 of 2 nodes up, 1.25 USD spent in the budget's period, 4.00 USD promised"


def test_reservations_say_what_they_take_and_when() -> None:
    reserved = [
        {"in_seconds": 0.0, "for_seconds": 7200.0, "processors": 16},
        {"in_seconds": 90_000.0, "for_seconds": 36_000.0, "processors": 64},
    ]
    one = {"partitions": ["onprem"], "processors": 64, "waiting": 3, "reserved": reserved}
    said = dict(price_rows(REPORT | {"machines": [one]}))
    assert said["reservations"] == (
        "16 of 64 processors of onprem now, for another 2 h 00 min; "
        "64 of 64 processors of onprem in 25 h 00 min, for 10 h 00 min"
    )
