"""The price begins with the demand of the site's last weeks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.decide.price.demand_price import DemandPrice, Pace
from advisor.model.machine import Machine
from advisor.model.table import JobTable
from advisor.service.price.first_price import SiteTerms, rehearsed_demand

pytestmark = pytest.mark.slow

DAY = 86_400.0
NOW = 1_800_000_000.0
ONE = (Machine(("onprem",), 64),)


def history(jobs: int, load: float, seed: int = 1) -> JobTable:
    """Four weeks of jobs of four hours at most, ending now, on 64 processors."""
    rng = np.random.default_rng(seed)
    processors = 2 ** rng.integers(0, 6, jobs)
    run = rng.uniform(60.0, 14_400.0, jobs)
    run *= load * 64 * 28 * DAY / float(np.sum(processors * run))
    submit = np.sort(rng.uniform(NOW - 28 * DAY, NOW, jobs))
    codes = rng.integers(0, 10, jobs)
    return JobTable(
        job_id=np.arange(1, jobs + 1),
        processors=processors,
        status=np.ones(jobs, np.int64),
        user=codes,
        group=codes,
        queue=np.zeros(jobs, np.int64),
        executable=codes,
        submit=submit,
        wait=np.zeros(jobs),
        run=run,
        requested_time=np.minimum(3.0 * run, 14_400.0 * 3),
        is_whole=np.ones(jobs, np.bool_),
        start_of_log=0.0,
        utc_offset_seconds=0.0,
        total_processors=64,
        name="history",
    )


def terms(usd_per_day: float, *, has_slices: bool = True, node_processors: int = 1) -> SiteTerms:
    return SiteTerms(
        usd_per_day=usd_per_day,
        usd_per_core_hour=0.05,
        boot_seconds=120.0,
        slowdown=1.05,
        loss_weight=1.0,
        has_slices=has_slices,
        node_processors=node_processors,
    )


@pytest.fixture(scope="module")
def busy() -> JobTable:
    return history(1_500, 0.95)


def test_a_smaller_budget_begins_with_a_higher_price(busy: JobTable) -> None:
    prices = []
    for usd in (0.2, 20.0):
        kept = rehearsed_demand(busy, ONE, terms(usd), NOW)
        assert kept is not None
        assert kept.seen
        assert max(time for time, _, _ in kept.seen.values()) <= NOW
        price = DemandPrice(Pace(), NOW)
        price.take_up(kept)
        prices.append(price.price(NOW, held=4.0 * usd, reserve=2.0 * usd, per_day=usd))
    assert prices[0] > 1.5 * prices[1]


def test_jobs_count_from_when_they_might_start(busy: JobTable) -> None:
    """Those of a chain do not run beside each other."""
    late = np.where(busy.job_id % 2 == 0, 5000.0, 0.0)
    order = np.argsort(busy.submit - late, kind="stable")
    chained = replace(busy, submit=busy.submit - late, wait=late, ineligible_seconds=late).select(order)
    usual, found = (rehearsed_demand(table, ONE, terms(5.0), NOW) for table in (busy, chained))
    assert found is not None
    assert found == usual


def test_too_few_jobs_or_jobs_of_long_ago_set_no_price(busy: JobTable) -> None:
    assert rehearsed_demand(history(50, 0.9), ONE, terms(5.0), NOW) is None
    assert rehearsed_demand(busy, ONE, terms(5.0), NOW + 60 * DAY) is None


@pytest.mark.parametrize("has_slices", [True, False])
def test_runs_are_bought_whole_where_no_job_keeps_its_place(busy: JobTable, *, has_slices: bool) -> None:
    """A slice at whose end it is decided anew is demand of its own, as is a job that has come back."""
    kept = rehearsed_demand(busy, ONE, terms(2.0, has_slices=has_slices), NOW)
    assert kept is not None
    assert any(not name.endswith(", 0, 0.0)") for name in kept.seen) is has_slices


def test_each_job_counts_with_whole_nodes_as_its_decision_will(busy: JobTable) -> None:
    """The demand was valued by cores: on nodes of 96 no job of one was worth the price that it began with."""
    of_cores, of_nodes = (
        rehearsed_demand(busy, ONE, terms(0.0, node_processors=size), NOW) for size in (1, 32)
    )
    assert of_cores is not None
    assert of_nodes is not None
    for key, (_, index, cost) in of_cores.seen.items():
        dearer = 32 / busy.processors[int(key.partition("(")[2].partition(",")[0])]
        assert of_nodes.seen[key][1:] == (pytest.approx(index / dearer), pytest.approx(cost * dearer))


def test_each_machine_is_rehearsed_with_its_own_queue(busy: JobTable) -> None:
    """On one pool of all processors the jobs of a busy machine would find room on an idle one."""
    on_gpu = np.arange(len(busy)) % 10 == 0
    shared = replace(busy, queue=on_gpu.astype(np.int64), names={"queue": ("cpu", "gpu", "gone")})
    cpu, gpu = Machine(("short", "cpu"), 56), Machine(("gpu",), 640)
    apart = rehearsed_demand(shared, (cpu, gpu), terms(2.0), NOW)
    pooled = rehearsed_demand(shared, (Machine(("cpu", "gpu", "short"), 696),), terms(2.0), NOW)
    assert apart is not None
    rows = [int(key.partition("(")[2].partition(",")[0]) for key in apart.seen]
    assert len(set(rows)) > 500
    assert not on_gpu[rows].any(), "no job waits for the idle machine"
    assert pooled is not None
    assert not pooled.seen
    gone = replace(shared, queue=np.full(len(busy), 2))
    assert rehearsed_demand(gone, (cpu, gpu), terms(2.0), NOW) is None
