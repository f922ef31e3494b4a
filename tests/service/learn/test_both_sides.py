"""s(c) learned live: from the history's jobs that ran on both sides, to what a submission is told."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.decide.explanation.wording import explanation
from advisor.decide.submission.advise import advise
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.errors import RetryLater
from advisor.model.job import NO_LIMIT_SECONDS, Job, JobOutcome, JobState
from advisor.model.settings import Settings
from advisor.model.site import PerformanceRatios, SiteState
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.learn.both_sides import PerformanceRatioBook
from advisor.service.observation.accounting import SOURCE
from tests.decide.cases import CLUSTER, ask, make_cloud, make_estimates, make_job, make_settings

NOW = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HistoryStore]:
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as opened:
        yield opened


def outcome(job_id: int, run: float, partition: str, **more: object) -> JobOutcome:
    state = more.pop("state", JobState.COMPLETED)
    words = {"user": "mia", "name": f"md_{job_id}", "processors": 8, "queue": partition} | more
    job = Job(job_id=job_id, submit_time=NOW + job_id, **words)  # type: ignore[arg-type]
    start = NOW + job_id + 60.0
    return JobOutcome(
        job=job,
        start_time=start,
        end_time=start + run,
        partition=partition,
        state=state,  # type: ignore[arg-type]
    )


def simulated(
    generator: np.random.Generator, ratio_of: dict[str, float], overhead: float, baseline: float
) -> list[JobOutcome]:
    """A year of a site: work of several applications, a third of its runs in the cloud, some failed."""
    jobs, number = [], 0
    for application, factor in ratio_of.items():
        for user in ("alice", "bob", "carol"):
            processors = int(2 ** generator.integers(0, 6))
            usual = math.exp(generator.normal(7.0, 1.0))
            for _ in range(9):
                number += 1
                in_cloud = number % 3 == 0
                slower = factor * (overhead * processors + baseline) if in_cloud else 1.0
                run = usual * slower * math.exp(generator.normal(0.0, 0.2))
                failed = generator.random() < 0.1
                jobs.append(
                    outcome(
                        number,
                        5.0 if failed else run,
                        "burst" if in_cloud else "onprem",
                        user=user,
                        name=f"{application}.{number}",
                        processors=processors,
                        state=JobState.FAILED if failed else JobState.COMPLETED,
                    )
                )
    return jobs


def test_g17_16_the_truth_is_recovered_within_the_stated_interval(store: HistoryStore) -> None:
    """Configured 0.01*c + 1, true 0.03*c + 1.4, one application twice as slow again."""
    truth = {f"app{chr(97 + n)}": 1.0 for n in range(9)} | {"slowpoke": 2.0}
    store.add(simulated(np.random.default_rng(4), truth, 0.03, 1.4), source=SOURCE)
    book = PerformanceRatioBook(Settings(), store)
    book.learn()
    assert book.current is not None
    within = 0
    for application, factor in truth.items():
        told = book.current.of(8, "onprem", f"{application}.#")
        off = abs(math.log(told.factor / (factor * (0.03 * 8 + 1.4))))
        within += off < 1.645 * told.deviation
        assert off < 0.35, application
    assert within >= 8, "of ten 90 % intervals"
    assert book.ratio(make_job(processors=8, queue="onprem", name="slowpoke.1")) > 2.5
    assert book.ratio(make_job(processors=8, name="never seen")) == pytest.approx(1.64 * 1.07, rel=0.25)


def test_g17_16_nothing_is_learned_where_nothing_ran_in_the_cloud(store: HistoryStore) -> None:
    book = PerformanceRatioBook(Settings(), store)
    store.add([outcome(n, 100.0, "onprem") for n in range(1, 5)], source=SOURCE)
    book.learn()
    assert book.current is None
    assert book.ratio(make_job(processors=4)) == pytest.approx(1.04)
    # the first ones that did: the past is read then
    store.add([outcome(n, 300.0, "burst") for n in range(5, 9)], source=SOURCE)
    book.learn()
    assert book.current is not None
    assert book.current.jobs == 4
    before = book.current
    store.add([outcome(n, 300.0, "burst") for n in range(9, 12)], source=SOURCE)
    book.learn()
    assert book.current.jobs == 7
    assert book.current.applications["md_#"].deviation < before.applications["md_#"].deviation


def test_ratios_of_another_history_hold_until_this_one_is_read(store: HistoryStore, tmp_path: Path) -> None:
    settings = make_settings(paths={"run": tmp_path, "state": tmp_path})
    ratios = PerformanceRatios(overhead=0.03, baseline=1.4, deviation=0.1, jobs=20)
    state = SiteState(time=NOW, cluster=None, ratios=ratios)
    snapshots.write(settings.paths.snapshot, Snapshot(state=state))
    for jobs in ([], [outcome(1, 100.0, "onprem")], [outcome(2, 300.0, "burst")]):
        store.add(jobs, source=SOURCE)
        book = PerformanceRatioBook(settings, store)
        assert book.current == ratios
        book.learn()
        assert book.current is None


def test_the_whole_history_is_searched_once_for_a_run_in_the_cloud(
    store: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weeks of shadow mode, and two million jobs of which none ran there."""
    searched = Mock(wraps=store.recent)
    monkeypatch.setattr(store, "recent", searched)
    book = PerformanceRatioBook(Settings(), store)
    for job_id in (1, 2, 3):
        store.add([outcome(job_id, 100.0, "onprem")])
        book.learn()
    assert searched.call_count == 1
    store.add([outcome(4, 100.0, "burst")])
    book.learn()
    assert searched.call_count == 2, "now the past is read"


def test_a_database_that_is_busy_while_the_past_is_read_costs_a_round(
    store: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [outcome(n, 300.0, "burst") for n in range(1, 5)] + [
        outcome(n, 100.0, "onprem") for n in range(5, 9)
    ]
    store.add(jobs, source=SOURCE)
    unhindered, hindered = (PerformanceRatioBook(Settings(), store) for _ in range(2))
    unhindered.learn()
    asked = Mock(side_effect=[None, RetryLater("the database is locked")])
    with monkeypatch.context() as busy:
        busy.setattr(store, "advice_of", asked)
        with pytest.raises(RetryLater):
            hindered.learn()
    hindered.learn()
    assert hindered.current == unhindered.current is not None


def test_a_run_that_went_on_from_a_checkpoint_is_not_compared(store: HistoryStore) -> None:
    """What was left to it here is no tenth of the whole: the cloud is not ten times as slow."""
    store.add([outcome(n, 1000.0, "burst") for n in range(1, 9)], source=SOURCE)
    for number in range(9, 17):
        advice = replace(ask(), advice_id=f"a-{number}", time=NOW + number)
        job = make_job(comment="checkpoint=10min")
        store.add_advice([AdviceRecord(advice=advice, job=job, estimates=make_estimates())])
        store.link(f"a-{number}", number, source=SOURCE)
        store.add([replace(outcome(number, 100.0, "onprem"), restarts=1)], source=SOURCE)
    book = PerformanceRatioBook(Settings(), store)
    book.learn()
    assert book.current is None
    assert book.ratio(make_job(processors=4)) == pytest.approx(1.04)


def test_a_ratio_below_the_configured_one_is_cautious_in_decisions_alone(store: HistoryStore) -> None:
    """A cloud run is converted by the likely ratio: the cautious one would make it too short."""
    store.add(simulated(np.random.default_rng(4), {"app": 1.0}, 0.0, 0.5), source=SOURCE)
    book = PerformanceRatioBook(Settings(), store)
    book.learn()
    assert book.current is not None
    job = make_job(processors=8, queue="onprem", name="app.1")
    told = book.current.of(8, "onprem", "app.#")
    assert told.factor < 0.7
    assert book.ratio(job) == told.factor
    assert book.slowdown(job) == pytest.approx(told.factor * math.exp(told.deviation))


def test_the_limit_there_counts_with_the_learned_ratio(store: HistoryStore) -> None:
    job = make_job(processors=4, queue="onprem", name="app.1", requested_time=3600.0)
    book = PerformanceRatioBook(Settings(), store)
    assert book.limit_there(job) == 3780.0, "1.04 hours, in whole minutes"
    store.add(simulated(np.random.default_rng(4), {"app": 1.0}, 0.0, 3.0), source=SOURCE)
    book.learn()
    assert book.limit_there(job) > 2.0 * 3600.0
    assert book.limit_there(replace(job, requested_time=None)) == NO_LIMIT_SECONDS


def test_learning_can_be_switched_off(store: HistoryStore) -> None:
    jobs = [outcome(n, 100.0, "onprem") for n in range(1, 5)] + [
        outcome(n, 300.0, "burst") for n in range(5, 9)
    ]
    store.add(jobs, source=SOURCE)
    book = PerformanceRatioBook(make_settings(placement={"learn_performance_ratio": False}), store)
    book.learn()
    assert book.current is None


def test_g17_16_the_ledger_says_which_partition_a_cloud_job_was_submitted_to(store: HistoryStore) -> None:
    settings = make_settings(cluster={"on_premise_partitions": ("onprem", "fast")})
    jobs = []
    for number in range(1, 41):
        partition = "fast" if number % 2 else "onprem"
        ratio = 3.0 if partition == "fast" else 1.0
        name = f"{partition}{chr(97 + number // 8)}"
        jobs.append(outcome(number, 1000.0, partition, name=name))
        cloud = outcome(100 + number, 1000.0 * ratio, "burst", name=name)
        advice = replace(ask(settings=settings), advice_id=f"a-{number}", time=NOW + 100 + number)
        record = AdviceRecord(advice=advice, job=make_job(queue=partition), estimates=make_estimates())
        store.add_advice([record])
        store.link(f"a-{number}", 100 + number, source=SOURCE)
        jobs.append(cloud)
    store.add(jobs, source=SOURCE)
    book = PerformanceRatioBook(settings, store)
    book.learn()
    assert book.ratio(make_job(processors=8, queue="fast", name="x")) == pytest.approx(3.0, rel=0.25)
    assert book.ratio(make_job(processors=8, queue="onprem", name="x")) == pytest.approx(1.0, rel=0.25)


def test_g17_16_a_submission_is_decided_by_it_and_why_shows_it(store: HistoryStore, tmp_path: Path) -> None:
    """Twice as slow in the cloud: half an hour here is not worth an hour more there."""
    jobs = [outcome(n, 1000.0, "onprem") for n in range(1, 21)]
    jobs += [outcome(n, 2000.0, "burst") for n in range(21, 41)]
    store.add(jobs, source=SOURCE)
    book = PerformanceRatioBook(Settings(), store)
    book.learn()
    state = SiteState(time=NOW, cluster=CLUSTER, cloud=make_cloud(), ratios=book.current)
    snapshots.write(tmp_path / "snapshot", Snapshot(state=state))
    seen = snapshots.read(tmp_path / "snapshot").state
    assert seen.ratios == book.current
    job = make_job(processors=8, name="md_7", requested_time=7200.0, explicit_time_limit=True)
    estimates = make_estimates(wait=1800.0, run=3600.0)
    before, after = (
        advise(job, one, estimates, make_settings(), advice_id="a")
        for one in (SiteState(time=NOW, cluster=CLUSTER, cloud=make_cloud()), seen)
    )
    assert (before.partition, after.partition) == ("burst", None)
    assert after.number("performance_ratio") == pytest.approx(2.0, rel=0.1)
    assert after.number("ratio_jobs") == 20.0
    said = explanation(after)
    assert "cloud runs it was learned from" in said
    assert "20 jobs" in said
    longer = advise(job, seen, make_estimates(wait=9000.0), make_settings(), advice_id="a")
    assert longer.time_limit is not None
    assert longer.time_limit.given_seconds > 1.9 * 7200.0
    assert before.number("ratio_jobs") is None, "as set: nothing is said to have been learned"
