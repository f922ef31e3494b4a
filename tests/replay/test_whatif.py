"""Jobs decided again: sums by hand, nothing known too early, and the placement replay's own answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.decide.hedge.pacing import MIN_KNOWN
from advisor.decide.submission.table_row import job_of
from advisor.model import BadInput, CloudState, Estimate, Estimates, Job, JobTable, SiteState
from advisor.model.settings import Settings
from advisor.papers.placement.own_rule import sent_by_the_advisor
from advisor.predict.forecast.forecast_rows import ForecastOptions, forecast_rows
from advisor.predict.knn.tracker import states_of
from advisor.replay.own_history import busiest, jobs_of_log
from advisor.replay.sources import load_table
from advisor.replay.whatif import History, WhatIfRow, clairvoyant, decide_again, window_rows

DAY = 86_400.0


def make_table(submit: list[float], wait: list[float], run: list[float], *, origin: float = 0.0) -> JobTable:
    count = len(submit)
    nominal = np.zeros(count, np.int64)
    return JobTable(
        job_id=np.arange(1, count + 1),
        submit=np.array(submit),
        wait=np.array(wait),
        run=np.array(run),
        processors=np.full(count, 2, np.int64),
        requested_time=np.full(count, 7200.0),
        user=nominal,
        group=nominal,
        queue=nominal,
        status=np.ones(count, np.int64),
        start_of_log=origin,
        total_processors=16,
    )


def sure(seconds: float) -> Estimate:
    """A forecast without a doubt."""
    return Estimate(seconds=seconds, variance=0.0, quantiles=(seconds,) * 20)


def history(
    table: JobTable, expected_wait: float = 3600.0, *, judged: int = 0, account: str | None = None
) -> History:
    """Every job is expected to wait so long, and to run for ten minutes."""
    return History(
        table=table,
        rows=np.arange(len(table)),
        first_judged=judged,
        states=states_of(table),
        job_at=lambda row: Job(
            job_id=row,
            submit_time=float(table.submit[row]),
            processors=2,
            requested_time=7200.0,
            user="ann",
            account=account,
            requeue=True,
        ),
        estimates_at=lambda _: Estimates(wait=sure(expected_wait), run=sure(600.0)),
    )


def make_settings(**sections: dict[str, object]) -> Settings:
    placement = {
        "baseline": 1.0, "overhead_per_processor": 0.0, "boot_seconds": 120.0, "stay_where_room": False,
    }  # fmt: skip
    ec2 = {"spot_usd_per_hour": 0.5, "on_demand_usd_per_hour": 1.0}
    named = {"placement": placement, "ec2": ec2, "cluster": {"policy": "advisor"}}
    return Settings.model_validate(
        sections | {name: values | sections.get(name, {}) for name, values in named.items()}
    )


def decided(of: History, settings: Settings) -> WhatIfRow:
    return decide_again(of, settings, lambda _: None)


BOLD = {"stake_share": 1.0, "record_deviations": 0.0, "loss_share": 1.0}


def test_sums_by_hand() -> None:
    """Moves risk nothing here (s = 1), but the boot: 120 s by the limit, and that needs a record."""
    table = make_table([0.0, 10_000.0, 20_000.0, 30_000.0], [3600.0, 3600.0, 3600.0, 20.0], [600.0] * 4)
    row = decided(history(table), make_settings(placement=BOLD))
    # the first job finds no record; each that has ended adds 3600 - 120
    assert (row.jobs, row.cloud_jobs, row.slower_jobs) == (4, 3, 1)
    assert row.saved_seconds == pytest.approx(3480.0 + 3480.0 + 20.0 - 120.0)
    assert row.lost_seconds == pytest.approx(100.0)
    # two cores for 720 s at half a dollar each while a node's size is unknown
    assert row.cost_usd == pytest.approx(3 * 2 * 720.0 / 3600.0 * 0.5)
    assert row.cloud_core_hours == pytest.approx(3 * 2 * 720.0 / 3600.0)
    assert row.capacity == {"spot": 3}
    assert row.mean_turnaround_seconds == pytest.approx((4200.0 + 720.0 + 720.0 + 720.0) / 4)
    assert row.reasons == {"turnaround.unproven": 1, "capacity.spot": 3}
    assert row.dearest_day_usd == pytest.approx(row.cost_usd)


def test_jobs_before_the_window_make_the_record_and_are_not_counted() -> None:
    table = make_table([0.0, 10_000.0, 20_000.0], [3600.0] * 3, [600.0] * 3)
    settings = make_settings(placement=BOLD)
    row = decided(history(table, judged=1), settings)
    assert (row.jobs, row.cloud_jobs) == (2, 2)
    assert row.mean_turnaround_seconds == pytest.approx(720.0)


def test_a_daily_cap_begins_anew_at_midnight_utc() -> None:
    """Six jobs a day from six in the morning on; two fit into the cap, one with an account of its own."""
    submit = [day * DAY + 21_600.0 + 600.0 * number for day in range(2) for number in range(6)]
    table = make_table(submit, [3600.0] * 12, [600.0] * 12, origin=10 * DAY)
    free = {"rule": "published", "use_cutoff": False}
    usd = 2 * 720.0 / 3600.0 * 0.5
    capped = make_settings(placement=free, waiting={"daily_cap_usd": 2.5 * usd})
    row = decided(history(table), capped)
    assert row.cloud_jobs == 4
    assert row.dearest_day_usd == pytest.approx(2 * usd)
    assert row.reasons["waiting.daily_cap"] == 8
    by_account = make_settings(placement=free, waiting={"account_daily_cap_usd": {"physics": 1.5 * usd}})
    assert decided(history(table, account="physics"), by_account).cloud_jobs == 2
    assert decided(history(table, account="law"), by_account).cloud_jobs == 12


def test_shadow_mode_is_judged_as_if_it_acted() -> None:
    table = make_table([0.0], [3600.0], [600.0])
    shadow = make_settings(
        placement={"rule": "published", "use_cutoff": False}, cluster={"default_mode": "shadow"}
    )
    assert decided(history(table), shadow).cloud_jobs == 1


def test_a_hedged_job_that_is_brought_back_loses_no_time() -> None:
    """Expected to wait an hour, it would have waited 200 s: less than a run of ten minutes in the cloud."""
    table = make_table([0.0], [200.0], [5000.0])
    doubt = {"rule": "advisor", "win_probability": 1.0, "baseline": 3.0}
    hedged = make_settings(placement=doubt, hedge={"enabled": True, "by_default": True})
    busy = make_table([0.0] * 9 + [1.0], [0.0] * 9 + [200.0], [5000.0] * 10)
    row = decided(history(busy, judged=9), hedged)
    assert (row.cloud_jobs, row.hedged_jobs, row.slower_jobs) == (1, 1, 0)
    assert row.saved_seconds == 0.0
    assert row.cloud_core_hours == pytest.approx(2 * 200.0 / 3600.0)
    assert decided(history(table), make_settings(placement=doubt)).cloud_jobs == 0


def test_the_clairvoyant_moves_what_ends_sooner() -> None:
    table = make_table([0.0, 1.0, 2.0], [119.0, 121.0, 1000.0], [600.0] * 3)
    best = clairvoyant(history(table), make_settings())
    assert best.cloud_jobs == 2
    assert best.saved_seconds == pytest.approx(1.0 + 880.0)
    assert math.isnan(best.cost_usd)
    slower = clairvoyant(history(table), make_settings(placement={"baseline": 2.0}))
    assert slower.cloud_jobs == 1
    assert slower.saved_seconds == pytest.approx(1000.0 - 120.0 - 600.0)


def test_the_window_begins_at_its_moment() -> None:
    table = make_table([0.0, 10.0, 20.0, 30.0], [0.0] * 4, [1.0, 1.0, 0.0, 1.0], origin=1000.0)
    rows, first = window_rows(table, 1010.0, before=50)
    assert (rows.tolist(), first) == ([0, 1, 3], 1), "the third never ran"
    rows, first = window_rows(table, 1011.0, before=1)
    assert (rows.tolist(), first) == ([1, 3], 1)
    with pytest.raises(BadInput) as caught:
        window_rows(table, 1031.0, before=1)
    assert caught.value.code == "whatif.empty"


@pytest.fixture(scope="module")
def replayed() -> tuple[JobTable, History]:
    table = load_table("synthetic:2500:5")
    rows = np.flatnonzero(table.run > 0)
    columns = forecast_rows(table, rows, ForecastOptions(first=800, retrain_jobs=400, forests=2))
    wait, run = columns["wait"], columns["run"]

    def estimates_at(position: int) -> Estimates:
        if not (np.isfinite(wait.mean[position]) and np.isfinite(run.mean[position])):
            return Estimates()
        return Estimates(wait=wait.estimate(position), run=run.estimate(position))

    return table, History(
        table=table,
        rows=rows,
        first_judged=0,
        states=states_of(table),
        job_at=jobs_of_log(table).job_at,
        estimates_at=estimates_at,
    )


@pytest.mark.parametrize("overhead", [0.0, 0.05, 1.0])
def test_decides_as_the_placement_replay(replayed: tuple[JobTable, History], overhead: float) -> None:
    table, of = replayed
    options = ForecastOptions(first=800, retrain_jobs=400, forests=2)
    forecasts = forecast_rows(table, of.rows, options)
    settings = make_settings(placement={"overhead_per_processor": overhead, "boot_seconds": 0.0})
    sent = sent_by_the_advisor(table, of.states, forecasts, settings.placement)
    row = decided(of, settings)
    saved = np.maximum(table.wait, 0.0) - (overhead * table.processors) * table.run
    assert row.cloud_jobs == sent.sum() > 0
    assert row.saved_seconds == pytest.approx(saved[of.rows][sent].sum())


def test_what_comes_later_changes_nothing_before(replayed: tuple[JobTable, History]) -> None:
    """Jobs that had not ended by some moment may end as they like: earlier decisions stay."""
    from dataclasses import replace

    table, of = replayed
    moment = float(table.submit[of.rows[2000]])
    late = (table.submit + table.wait + table.run) >= moment
    run = np.where(late, table.run * 7.0, table.run)
    changed = replace(of, table=replace(table, run=run), rows=of.rows[:2000])
    settings = make_settings(placement={"overhead_per_processor": 0.05})
    before = decided(replace(of, rows=of.rows[:2000]), settings)
    after = decided(changed, settings)
    assert after.reasons == before.reasons
    assert after.saved_seconds != before.saved_seconds


def test_the_busiest_moment() -> None:
    table = make_table([0.0, 0.0, 50.0], [0.0, 10.0, 0.0], [50.0, 100.0, 5.0])
    assert busiest(table) == 4, "the first ends as the third begins"


def test_a_row_as_a_submission() -> None:
    from dataclasses import replace

    table = replace(
        make_table([5.0], [0.0], [1.0]),
        names={"user": ("ann",), "queue": ("main",)},
        group=np.array([-1]),
        requested_time=np.array([np.nan]),
    )
    job = job_of(table, 0, with_queue=True)
    assert (job.user, job.queue, job.group, job.requested_time) == ("ann", "main", None, None)
    assert job_of(table, 0).queue is None


def test_what_the_cloud_is_like_is_taken_from_the_last_look() -> None:
    cloud = CloudState(boot_seconds=300.0, spot_usd_per_core_hour=0.25, processors_per_node=4)
    table = make_table([0.0], [3600.0], [600.0])
    settings = make_settings(placement={"rule": "published", "use_cutoff": False})
    seen = SiteState(time=0.0, cluster=None, cloud=cloud)
    row = decide_again(history(table), settings, lambda _: None, seen)
    assert row.saved_seconds == pytest.approx(3300.0)
    # a node of four cores is paid for
    assert row.cost_usd == pytest.approx(4 * 900.0 / 3600.0 * 0.25)
    assert clairvoyant(history(table), settings, seen).saved_seconds == pytest.approx(3300.0)


def test_g17_hedges_never_use_more_than_the_budget() -> None:
    """Each of them would use a sixth of a core-hour: two hours in which one comes every ten seconds."""
    others = MIN_KNOWN + 200
    submit = [0.0] * 8 + [1.0 + 10.0 * number for number in range(others)]
    table = make_table(submit, [0.0] * 8 + [10.0] * others, [1e7] * 8 + [600.0] * others)
    doubt = {"rule": "advisor", "win_probability": 1.0, "baseline": 3.0}
    found = {
        budget: decided(
            history(table, judged=8),
            make_settings(
                placement=doubt, hedge={"enabled": True, "by_default": True, "budget_core_hours": budget}
            ),
        )
        for budget in (0.0, 0.1, 2.0)
    }
    assert found[0.0].hedged_jobs == others, "without a budget the stop-loss alone decides"
    assert found[0.1].cloud_core_hours <= 0.1
    assert 0.0 < found[2.0].cloud_core_hours <= 2.0
    assert found[2.0].hedged_jobs < others
