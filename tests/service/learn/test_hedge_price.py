"""The price of a hedge, live: from ended jobs only, within its budget, and outliving the process."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.decide.hedging import PRICES
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.model import Advice, Estimate, Estimates, Job, JobOutcome, Mode, Placement
from advisor.model.advice import Hedge, HedgeKind
from advisor.model.settings import Settings
from advisor.service.learn.hedge_price import LEAST_KNOWN, HedgePrice
from advisor.service.sight.hedge_record import Fate
from advisor.slurm.protocol import QueuedJob, SlurmSnapshot
from advisor.testing.watched import hedged_comment


def make_price(folder: Path, **sections: dict[str, Any]) -> HedgePrice:
    hedge = {"enabled": True} | sections.pop("hedge", {})
    settings = Settings.model_validate({"hedge": hedge, "placement": {"boot_seconds": 10.0}} | sections)
    folder.chmod(0o700)
    return HedgePrice(settings, ModelStore(folder=folder))


def forecast(wait: float, run: float) -> Estimates:
    """Doubt: half or one and a half times that."""
    return Estimates(
        wait=Estimate(seconds=wait, variance=1e6, quantiles=(0.5 * wait, 1.5 * wait)),
        run=Estimate(seconds=run, variance=1e6, quantiles=(0.5 * run, 1.5 * run)),
    )


def teach(price: HedgePrice, jobs: int, *, wait: float = 4000.0, run: float = 500.0, first: int = 1) -> None:
    for key in range(first, first + jobs):
        price.submitted(key, forecast(2000.0, 600.0), 4, None)
        price.ended(key, wait, run)
    price.charge()


def test_ended_jobs_alone_make_a_price(tmp_path: Path) -> None:
    price = make_price(tmp_path)
    for key in range(2 * LEAST_KNOWN):
        price.submitted(10_000 + key, forecast(2000.0, 600.0), 4, None)
    price.charge()
    assert (price.price, price.known) == (None, 0)
    teach(price, LEAST_KNOWN - 1)
    assert price.price is None
    teach(price, 1, first=5000)
    assert price.price is not None
    assert 0.0 < price.price < PRICES[-1]


def test_who_is_gone_teaches_nothing(tmp_path: Path) -> None:
    price = make_price(tmp_path)
    price.submitted(1, forecast(2000.0, 600.0), 4, None)
    price.withdrawn(1)
    price.ended(1, 4000.0, 500.0)
    price.ended(2, 4000.0, 500.0)  # never forecast
    assert price.known == 0


def test_where_the_cloud_never_wins_nobody_is_hedged(tmp_path: Path) -> None:
    price = make_price(tmp_path, placement={"baseline": 5.0})
    teach(price, LEAST_KNOWN, wait=0.0)
    assert price.price == PRICES[-1]


def look(now: float, *, start: float, kind: HedgeKind = HedgeKind.HEDGE, **changes: Any) -> SlurmSnapshot:
    job = Job(job_id=7, submit_time=0.0, processors=100, queue="burst")
    queued = QueuedJob(
        **{
            "job": job,
            "state": "RUNNING",
            "partitions": ("burst",),
            "array_job_id": 7,
            "start_time": start,
            "admin_comment": hedged_comment(600.0, kind, 10),
        }
        | changes
    )
    return SlurmSnapshot(time=now, jobs=(queued,), nodes=())


def test_what_hedges_use_raises_the_price(tmp_path: Path) -> None:
    price = make_price(tmp_path)
    teach(price, LEAST_KNOWN)
    calm, left = price.price, price.overspent
    price.saw(look(1000.0, start=990.0))
    price.saw(look(1010.0, start=990.0))  # ten seconds of a hundred processors since the first look
    price.charge()
    per_job = 4 * (10.0 + Settings().placement.performance_ratio(4) * 500.0)
    assert price.overspent - left == pytest.approx(1000.0 / (LEAST_KNOWN * per_job))
    price.saw(look(100_000.0, start=99_000.0))
    price.saw(look(200_000.0, start=99_000.0))
    price.charge()
    assert calm is not None
    assert price.price is not None
    assert price.price > calm


def test_a_clairvoyant_waits_for_the_boot_that_has_been_learned(tmp_path: Path) -> None:
    price = make_price(tmp_path)
    price.boot_seconds = 200.0
    teach(price, LEAST_KNOWN)
    left = price.overspent
    price.saw(look(1000.0, start=990.0))
    price.saw(look(1010.0, start=990.0))
    price.charge()
    per_job = 4 * (200.0 + Settings().placement.performance_ratio(4) * 500.0)
    assert price.overspent - left == pytest.approx(1000.0 / (LEAST_KNOWN * per_job))


def test_a_boot_is_charged_as_well(tmp_path: Path) -> None:
    prices = [make_price(tmp_path) for _ in range(2)]
    for price, first in zip(prices, ("CONFIGURING", "RUNNING"), strict=True):
        teach(price, LEAST_KNOWN)
        price.saw(look(1000.0, start=1000.0, state=first))
        price.saw(look(1100.0, start=1000.0, state=first))
        price.saw(look(1200.0, start=1100.0 if first == "CONFIGURING" else 1000.0))  # Slurm: it begins now
        price.charge()
    assert prices[0].overspent == prices[1].overspent


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": HedgeKind.SPECULATION},
        {"partitions": ("onprem",)},
        {"state": "PENDING"},
        {"start_time": None},
        {"admin_comment": ""},
    ],
)
def test_only_hedges_in_the_cloud_are_charged(tmp_path: Path, changes: dict[str, Any]) -> None:
    price = make_price(tmp_path)
    teach(price, LEAST_KNOWN)
    left = price.overspent
    for now in (1000.0, 2000.0):
        price.saw(look(now, start=500.0, **changes))
    price.charge()
    assert price.overspent == left


def test_a_hedged_job_adds_what_a_clairvoyant_would_have_spent_on_it(tmp_path: Path) -> None:
    price = make_price(tmp_path)
    teach(price, LEAST_KNOWN)
    left = price.overspent
    job = Job(job_id=99, submit_time=0.0, processors=4)
    advice = Advice(
        advice_id="a", time=0.0, placement=Placement.BURST, partition="burst", capacity=None, mode=Mode.ACT,
        answers=(), hedge=Hedge(kind=HedgeKind.HEDGE, stop_seconds=600.0),
    )  # fmt: skip
    record = AdviceRecord(advice=advice, job=job, estimates=forecast(2000.0, 600.0))
    price.ended_in_the_cloud(JobOutcome(job=job, start_time=10.0, end_time=300.0), record)
    price.charge()
    assert price.overspent < left
    speculated = replace(
        record, advice=replace(advice, hedge=Hedge(kind=HedgeKind.SPECULATION, stop_seconds=6.0))
    )
    before = price.overspent
    price.ended_in_the_cloud(JobOutcome(job=job, start_time=10.0, end_time=300.0), speculated)
    price.charge()
    assert price.overspent == before, "what is charged nothing adds nothing"
    unhedged = AdviceRecord(advice=Advice(
        advice_id="b", time=0.0, placement=Placement.BURST, partition="burst", capacity=None, mode=Mode.ACT,
        answers=(),
    ), job=job, estimates=forecast(2000.0, 600.0))  # fmt: skip
    before = price.overspent
    price.ended_in_the_cloud(JobOutcome(job=job, start_time=10.0, end_time=300.0), unhedged)
    assert price.overspent == before


@pytest.mark.parametrize(
    ("fate", "like"),
    [
        (Fate(was_kept=True, turn=None), 1e6),
        (Fate(was_kept=False, turn=3000.0), 1e6),
        (Fate(was_kept=False, turn=1.0), 0.0),
    ],
)
def test_what_became_of_its_place_says_whether_a_clairvoyant_would_have_moved_it(
    tmp_path: Path, fate: Fate, like: float
) -> None:
    """As for a job whose wait was forecast to be certainly so long."""
    job = Job(job_id=99, submit_time=0.0, processors=4)
    outcome = JobOutcome(job=job, start_time=10.0, end_time=300.0)
    prices = [make_price(tmp_path) for _ in range(2)]
    for price, wait, known in zip(prices, (400.0, like), (fate, None), strict=True):
        teach(price, LEAST_KNOWN)
        advice = Advice(
            advice_id="a", time=0.0, placement=Placement.BURST, partition="burst", capacity=None,
            mode=Mode.ACT, answers=(), hedge=Hedge(kind=HedgeKind.HEDGE, stop_seconds=600.0),
        )  # fmt: skip
        record = AdviceRecord(advice=advice, job=job, estimates=forecast(wait, 600.0))
        price.ended_in_the_cloud(outcome, record, known)
        price.charge()
    assert prices[0].overspent == pytest.approx(prices[1].overspent)


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
        teach(price, LEAST_KNOWN)
    prices[0].submitted(99, record.estimates, 4, None)
    prices[0].ended(99, 4000.0, 500.0)
    prices[1].came_back(outcome, record)
    assert prices[1].known == LEAST_KNOWN + 1
    assert prices[1].overspent == pytest.approx(prices[0].overspent), "as one that had simply waited"
    prices[1].came_back(outcome, replace(record, advice=replace(advice, hedge=None)))
    prices[1].came_back(outcome, None)
    prices[1].came_back(replace(outcome, end_time=4000.0), record)
    prices[1].came_back(replace(outcome, first_start_time=None), record)
    assert prices[1].known == LEAST_KNOWN + 1


def test_it_outlives_the_process_but_not_other_overheads(tmp_path: Path) -> None:
    price = make_price(tmp_path)
    teach(price, LEAST_KNOWN)
    price.save_now_and_then()
    again = make_price(tmp_path)
    again.charge()
    assert (again.known, again.price) == (price.known, price.price)
    assert make_price(tmp_path, placement={"boot_seconds": 11.0}).known == 0


@pytest.mark.parametrize("hedge", [{"enabled": False}, {"budget": 0.0}])
def test_nobody_asks_for_it(tmp_path: Path, hedge: dict[str, Any]) -> None:
    price = make_price(tmp_path, hedge=hedge)
    teach(price, 2 * LEAST_KNOWN)
    price.saw(look(1000.0, start=0.0))
    assert (price.price, price.known) == (None, 0)
    price.save()
    assert not math.isfinite(price.overspent) or price.overspent == 0.0
