"""The price of a hedge, live: from ended jobs only, within its budget, and outliving the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.decide.hedge.hedging import PRICES
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.model import Advice, Estimate, Estimates, Job, JobOutcome, Mode, Placement
from advisor.model.advice import Hedge, HedgeKind
from advisor.model.settings import Settings
from advisor.service.learn.hedge_price import MIN_KNOWN, HedgePrice


def make_price(
    folder: Path,
    unspent: Callable[[], tuple[float, float]] = lambda: (1e6, 86_400.0),
    **sections: dict[str, Any],
) -> HedgePrice:
    hedge = {"enabled": True, "budget_core_hours": 1000.0} | sections.pop("hedge", {})
    settings = Settings.model_validate({"hedge": hedge, "placement": {"boot_seconds": 10.0}} | sections)
    folder.chmod(0o700)
    return HedgePrice(settings, ModelStore(folder=folder), unspent)


def forecast(wait: float, run: float) -> Estimates:
    """Doubt: half or one and a half times that."""
    return Estimates(
        wait=Estimate(seconds=wait, variance=1e6, quantiles=(0.5 * wait, 1.5 * wait)),
        run=Estimate(seconds=run, variance=1e6, quantiles=(0.5 * run, 1.5 * run)),
    )


def teach(price: HedgePrice, jobs: int, *, wait: float = 4000.0, run: float = 500.0, first: int = 1) -> None:
    for key in range(first, first + jobs):
        price.submitted(key, forecast(2000.0, 600.0), 4, None, float(key))
        price.ended(key, wait, run)
    price.charge()


def test_ended_jobs_alone_make_a_price(tmp_path: Path) -> None:
    price = make_price(tmp_path)
    for key in range(2 * MIN_KNOWN):
        price.submitted(10_000 + key, forecast(2000.0, 600.0), 4, None, float(key))
    price.charge()
    assert (price.price, price.known) == (None, 0)
    teach(price, MIN_KNOWN - 1)
    assert price.price is None
    teach(price, 1, first=5000)
    assert price.price is not None
    assert 0.0 < price.price < PRICES[-1]


def test_who_is_gone_teaches_nothing(tmp_path: Path) -> None:
    price = make_price(tmp_path)
    price.submitted(1, forecast(2000.0, 600.0), 4, None, 0.0)
    price.withdrawn(1)
    price.ended(1, 4000.0, 500.0)
    price.ended(2, 4000.0, 500.0)  # never forecast
    assert price.known == 0


def test_hedges_that_would_have_cost_nothing_make_no_price(tmp_path: Path) -> None:
    """Their slots came at once."""
    price = make_price(tmp_path)
    teach(price, MIN_KNOWN, wait=0.0)
    assert price.price == PRICES[0]


def test_g17_what_is_left_for_how_long_makes_the_price(tmp_path: Path) -> None:
    left = [(1e12, 86_400.0)]
    price = make_price(tmp_path, unspent=lambda: left[0])
    teach(price, MIN_KNOWN)
    cheap = price.price
    left[0] = 10.0, 86_400.0
    price.charge()
    assert cheap is not None
    assert price.price is not None
    assert price.price > cheap


def test_a_hedged_job_that_came_back_teaches_by_its_whole_wait(tmp_path: Path) -> None:
    job = Job(job_id=99, submit_time=0.0, processors=4)
    advice = Advice(
        advice_id="a", time=0.0, placement=Placement.BURST, partition="burst", capacity=None, mode=Mode.ACT,
        answers=(), hedge=Hedge(kind=HedgeKind.HEDGE, stop_seconds=600.0),
    )  # fmt: skip
    record = AdviceRecord(advice=advice, job=job, estimates=forecast(2000.0, 600.0))
    outcome = JobOutcome(job=job, start_time=4000.0, end_time=4500.0, restarts=1, first_start_time=4000.0)
    prices = [make_price(tmp_path) for _ in range(2)]
    for price in prices:
        teach(price, MIN_KNOWN)
    prices[0].submitted(99, record.estimates, 4, None, float(MIN_KNOWN))
    prices[0].ended(99, 4000.0, 500.0)
    prices[1].came_back(outcome, record)
    assert prices[1].known == MIN_KNOWN + 1
    for price in prices:
        price.charge()
    assert prices[1].price == prices[0].price, "as one that had simply waited"
    prices[1].came_back(outcome, replace(record, advice=replace(advice, hedge=None)))
    prices[1].came_back(outcome, None)
    prices[1].came_back(replace(outcome, end_time=4000.0), record)
    prices[1].came_back(replace(outcome, first_start_time=None), record)
    assert prices[1].known == MIN_KNOWN + 1


def test_it_outlives_the_process_but_not_other_overheads(tmp_path: Path) -> None:
    price = make_price(tmp_path)
    teach(price, MIN_KNOWN)
    price.save_now_and_then()
    again = make_price(tmp_path)
    again.charge()
    assert (again.known, again.price) == (price.known, price.price)
    assert make_price(tmp_path, placement={"boot_seconds": 11.0}).known == 0


@pytest.mark.parametrize("hedge", [{"enabled": False}, {"budget_core_hours": 0.0}])
def test_nobody_asks_for_it(tmp_path: Path, hedge: dict[str, Any]) -> None:
    price = make_price(tmp_path, hedge=hedge)
    teach(price, 2 * MIN_KNOWN)
    assert (price.price, price.known) == (None, 0)
    price.save()
