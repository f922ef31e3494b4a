"""G17, live: what hedges use in a day is never above the number given, whatever restarts in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.decide.hedge.hedge_budget import ENDING_SECONDS
from advisor.model import Job
from advisor.model.advice import HedgeKind
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.service.state.hedge_budget import HedgeBudget
from advisor.service.state.state_files import HEDGE_BUDGET
from advisor.slurm.protocol import QueuedJob, SlurmSnapshot
from advisor.testing.watched import hedged_comment

NOON = 1_795_348_800.0  # of a day of UTC
CLOUD = CloudState(boot_seconds=40.0, processors_per_node=4, on_demand_usd_per_core_hour=0.05)
CORES = 8  # of two whole nodes; the job has five
WORST = CORES * (40.0 + 600.0 + ENDING_SECONDS)


def make_budget(folder: Path, **hedge: Any) -> HedgeBudget:
    fields = {
        "enabled": True,
        "budget_core_hours": 2.0 * WORST / 3600.0 + 0.1,
        "budget_period": "day",
    } | hedge
    return HedgeBudget(Settings.model_validate({"hedge": fields}), HEDGE_BUDGET.at(folder))


def hedged(job_id: int = 7, kind: HedgeKind = HedgeKind.HEDGE, **changes: Any) -> QueuedJob:
    job = Job(job_id=job_id, submit_time=NOON, processors=5, queue="burst", requested_time=3600.0)
    queued = QueuedJob(
        job=job, state="PENDING", partitions=("burst",), array_job_id=job_id,
        admin_comment=hedged_comment(600.0, kind, 10),
    )  # fmt: skip
    return replace(queued, **changes)


def running(queued: QueuedJob, since: float) -> QueuedJob:
    return replace(queued, state="RUNNING", start_time=since)


def look(budget: HedgeBudget, now: float, *jobs: QueuedJob) -> float:
    budget.saw(SlurmSnapshot(time=now, jobs=jobs, nodes=()), CLOUD)
    left = budget.left_core_seconds
    assert left is not None
    return left


def key_of(queued: QueuedJob) -> str:
    from advisor.decide.explanation.admin_comment import parse_admin_comment

    found = parse_admin_comment(queued.admin_comment)
    assert found is not None
    return found.advice_id


def test_g17_a_hedge_reserves_its_worst_case_before_it_starts_and_settles_what_it_used(
    tmp_path: Path,
) -> None:
    budget, one = make_budget(tmp_path), hedged()
    whole = look(budget, NOON)
    assert look(budget, NOON + 5, one) == pytest.approx(whole - WORST)
    started = running(one, NOON + 10)
    assert look(budget, NOON + 110, started) == pytest.approx(whole - WORST), "used, or reserved still"
    assert budget.unspent == (pytest.approx(whole - 100 * CORES), pytest.approx(43_200.0 - 110))
    assert look(budget, NOON + 120) == pytest.approx(whole - 100 * CORES)


def test_g17_one_that_is_not_left_for_may_not_go_on(tmp_path: Path) -> None:
    budget = make_budget(tmp_path)
    jobs = [hedged(job_id) for job_id in (1, 2, 3)]
    look(budget, NOON, *jobs)
    assert [budget.may_go_on(key_of(job)) for job in jobs] == [True, True, False]
    assert not budget.may_stay(key_of(jobs[0]), 3600.0), "nothing is left for the whole of its limit"
    assert not budget.may_stay(key_of(jobs[0]), None)
    look(budget, NOON + 5, jobs[0])
    assert budget.may_stay(key_of(jobs[0]), 600.0)


def test_g17_a_boot_that_lasts_longer_asks_for_more_or_ends(tmp_path: Path) -> None:
    budget, one = make_budget(tmp_path, budget_core_hours=1.2 * WORST / 3600.0), hedged()
    look(budget, NOON, one)
    look(budget, NOON + 600, running(one, NOON))
    assert budget.may_go_on(key_of(one))
    look(budget, NOON + 660, running(one, NOON))
    assert not budget.may_go_on(key_of(one))


def test_g17_a_restart_forgets_nothing(tmp_path: Path) -> None:
    budget, one = make_budget(tmp_path), hedged()
    look(budget, NOON, one)
    left = look(budget, NOON + 100, running(one, NOON))
    again = make_budget(tmp_path)
    assert again.left_core_seconds == 0.0, "before it has looked"
    assert look(again, NOON + 100, running(one, NOON)) == pytest.approx(left)
    # what was used while nobody looked
    look(again, NOON + 400, running(one, NOON))
    assert again.unspent[0] == pytest.approx(2 * WORST + 360.0 - 400 * CORES)


GOOD = '{"period":"2026-11-22","looked":1,"dearest":1,"spent":1,"hedges":{},"cores":{},"used":{}}'


@pytest.mark.parametrize(
    "content",
    [
        '{"period": "2026-11-22", "spent": "much"}',
        '{"period": "2026-1',
        "",
        "[]",
        "{}",
        GOOD.replace('"spent":1', '"spent":NaN'),
        GOOD.replace('"spent":1', '"spent":-1'),
        GOOD.replace('"hedges":{}', '"hedges":{"a":[1]}'),
        GOOD.replace('"hedges":{}', '"hedges":{"a":["x",1]}'),
    ],
)
def test_g17_a_damaged_file_leaves_nothing_until_the_period_ends(tmp_path: Path, content: str) -> None:
    look(make_budget(tmp_path), NOON, hedged())
    (tmp_path / "hedge_budget.json").write_text(content)
    make_budget(tmp_path)  # and is killed before it looks
    budget = make_budget(tmp_path)
    assert look(budget, NOON + 5) == 0.0
    assert look(make_budget(tmp_path), NOON + 10) == 0.0, "a restart does not mend it"
    assert look(budget, NOON + 86_400.0) > 0.0


def test_g17_midnight_begins_anew_with_what_is_reserved_still(tmp_path: Path) -> None:
    budget, one = make_budget(tmp_path), hedged()
    midnight = NOON + 43_200.0
    whole = look(budget, NOON)
    look(budget, midnight - 200, one)
    look(budget, midnight - 10, running(one, midnight - 110))
    left = look(budget, midnight + 5, running(one, midnight - 110))
    assert left == pytest.approx(whole - (WORST - 100 * CORES))


def test_g17_money_buys_core_hours_at_the_dearest_price_of_the_period(tmp_path: Path) -> None:
    budget = make_budget(tmp_path, budget_core_hours=0.0, budget_usd=1.0)
    assert look(budget, NOON) == pytest.approx(3600.0 / 0.05)
    dear = CloudState(on_demand_usd_per_core_hour=0.1)
    budget.saw(SlurmSnapshot(time=NOON + 5, jobs=(), nodes=()), dear)
    assert look(budget, NOON + 10) == pytest.approx(3600.0 / 0.1)


@pytest.mark.parametrize(
    "changes", [{"kind": HedgeKind.SPECULATION}, {"partitions": ("onprem",)}, {"admin_comment": ""}]
)
def test_only_hedges_in_the_cloud_reserve(tmp_path: Path, changes: dict[str, Any]) -> None:
    budget = make_budget(tmp_path)
    assert look(budget, NOON) == look(budget, NOON + 5, hedged(**changes))


def test_without_a_budget_nobody_is_stopped(tmp_path: Path) -> None:
    budget = make_budget(tmp_path, budget_core_hours=0.0)
    budget.saw(SlurmSnapshot(time=NOON, jobs=(hedged(),), nodes=()), CLOUD)
    assert budget.left_core_seconds is None
    assert budget.may_go_on("a")
    assert budget.may_stay("a", None)
    assert not (tmp_path / "hedge_budget.json").exists()
