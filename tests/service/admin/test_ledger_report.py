"""The report's sums by hand."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from msgspec.structs import replace

from advisor.history.ledger import BriefDecision
from advisor.history.ledger_rows import LedgerRow
from advisor.history.records import BriefEstimate
from advisor.model.advice import Mode, Placement
from advisor.model.job import Job
from advisor.service.admin.ledger_report import MAX_POINTS, Errors, LedgerReport
from advisor.service.admin.ledger_report_page import about, figures
from tests.decide.cases import ask, make_job, make_settings

MIDNIGHT = 20_000 * 86_400.0
SHADOW = make_settings(cluster={"default_mode": "shadow"})


def decision(advice_id: str, time: float, job: Job, *, shadow: bool = False) -> BriefDecision:
    advice = ask(job, settings=SHADOW) if shadow else ask(job)
    return BriefDecision(
        advice_id=advice_id,
        time=time,
        placement=advice.placement,
        mode=advice.mode,
        reason=advice.decisive.reason,
        account=job.account,
        wait=BriefEstimate(),
        run=BriefEstimate(),
    )


def row(advice_id: str, time: float, **changes: object) -> LedgerRow:
    values: dict[str, object] = {
        "advice_id": advice_id,
        "time": time,
        "job_id": 1,
        "user": "ann",
        "queue": "onprem",
        "placement": Placement.ON_PREMISE,
        "mode": Mode.ACT,
        "reason": "turnaround.cloud_not_faster",
        "size": "small",
        "predicted_wait_seconds": 100.0,
        "predicted_wait_variance": 1.0,
        "predicted_run_seconds": math.nan,
        "predicted_run_variance": math.inf,
        "actual_wait_seconds": 40.0,
        "judged_wait_seconds": 40.0,
        "actual_run_seconds": 10.0,
        "judged_run_seconds": 10.0,
        "processors": 1,
        "saved_seconds_estimate": None,
        "cost_usd": None,
    }
    return LedgerRow(**(values | changes))  # type: ignore[arg-type]


def test_sums_by_hand() -> None:
    report = LedgerReport(MIDNIGHT, MIDNIGHT + 1.0, utc_offset_seconds=3600.0)
    physics, stays = make_job(account="physics"), make_job(account="law", comment="no-burst")
    late = MIDNIGHT - 1800.0  # half past midnight by the site's clock
    report.decided(
        [
            decision("a", late, physics),
            decision("b", late, stays),
            decision("c", MIDNIGHT, physics, shadow=True),
            decision("d", MIDNIGHT + 86_400.0, make_job(account=None)),
            decision("x", MIDNIGHT, make_job(queue="burst", explicit_partition=True)),  # by its user
        ]
    )
    report.ended(
        [
            row("a", late, saved_seconds_estimate=50.0, cost_usd=2.0, placement=Placement.BURST),
            row("b", late),
            row("c", MIDNIGHT, predicted_wait_seconds=10.0),
            row("x", MIDNIGHT, reason="rule.explicit_burst", cost_usd=7.0),
        ]
    )
    summary = report.summary()
    assert [summary[name] for name in ("decisions", "kept", "moved", "would_move")] == [4, 1, 2, 1]
    assert (summary["saved_seconds_estimate"], summary["cost_usd"]) == (50.0, 2.0)
    assert (summary["placed_by_users"], summary["users_cost_usd"]) == (1, 7.0)
    assert summary["waits"] == {
        "jobs": 2,
        "mean_predicted_seconds": 55.0,
        "mean_actual_seconds": 40.0,
        "mean_absolute_error_seconds": 45.0,
        "interval_jobs": 0,
        "interval_coverage": None,
    }
    assert [(one["reason"], one["jobs"], one["moved"]) for one in summary["outcomes_by_reason"]] == [
        (row("a", late).reason, 3, 1)
    ]
    assert summary["runs"]["jobs"] == 0
    assert summary["runs"]["mean_absolute_error_seconds"] is None
    assert [day["date"] for day in summary["days"]] == ["2024-10-04", "2024-10-05"]
    assert [day["moved"] for day in summary["days"]] == [1, 1]
    assert summary["days"][0]["cost_usd"] == 2.0
    assert summary["accounts"][0] == {
        "account": "physics",
        "jobs": 2,
        "moved": 1,
        "saved_seconds_estimate": 50.0,
        "cost_usd": 2.0,
    }
    assert {one["account"] for one in summary["accounts"]} == {"physics", "law", "-"}
    said = about(summary)
    for words in ("4 submissions", "1 stayed", "2 were moved", "1 would have been", "2.00 USD", "7.00 USD"):
        assert words in said


def test_a_plot_has_room_for_so_many_points() -> None:
    errors = Errors()
    for number in range(3 * MAX_POINTS + 1):
        errors.add(float(number), 1.0)
    drawn = errors.drawn()
    assert MAX_POINTS / 2 < len(drawn) <= MAX_POINTS
    assert drawn[0] == (0.0, 1.0)
    assert Errors().drawn() == []


def test_how_often_the_interval_held() -> None:
    report = LedgerReport(MIDNIGHT, MIDNIGHT + 1.0, 0.0)
    wide, narrow = (BriefEstimate(seconds=100.0, lower=low, upper=110.0) for low in (10.0, 90.0))
    for advice_id, wait in (("a", wide), ("b", narrow), ("c", BriefEstimate(seconds=100.0))):
        report.decided([replace(decision(advice_id, MIDNIGHT, make_job()), wait=wait)])
        report.ended([row(advice_id, MIDNIGHT)])
    waits = report.summary()["waits"]
    assert (waits["jobs"], waits["interval_jobs"], waits["interval_coverage"]) == (3, 2, 0.5)


def test_day_one_31_an_axis_of_days_is_a_week_wide_and_has_ticks_at_days_only() -> None:
    report = LedgerReport(0.0, 1e9, 0.0)
    summary = report.summary()
    day = {"date": "2026-11-22", "kept": 3, "moved": 1, "would_move": 0, "saved_seconds_estimate": 60.0}
    drawn = figures(report, {**summary, "days": [day], "decisions": 4, "moved": 1})
    assert len(drawn) == 2
    for figure in drawn:
        begin, end = (datetime.fromisoformat(text) for text in figure.layout.xaxis.range)
        assert end - begin == timedelta(days=7)
        assert figure.layout.xaxis.dtick == 86_400_000
        assert figure.layout.yaxis.rangemode == "nonnegative"


def test_day_one_32_an_empty_ledger_says_so_and_draws_no_empty_axes() -> None:
    report = LedgerReport(0.0, 1e9, 0.0)
    summary = report.summary()
    assert summary["days"] == summary["accounts"] == figures(report, summary) == []
    assert about(report.summary()).startswith("No submission got advice")
