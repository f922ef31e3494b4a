"""Who is in charge: what has ended is judged hourly, by the code of the replay."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.decide.portfolio import replay_knowledge as portfolio_known
from advisor.model.job import Job, JobOutcome, JobState
from advisor.service.portfolio import leader as leader_module
from advisor.service.portfolio.judge import policies_of, table_of
from advisor.service.running.clock import Clock
from tests.service.portfolio_world import PortfolioWorld, node, waiting


@pytest.fixture(autouse=True)
def _short_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight workloads take seconds to draw, and tell no more here."""
    monkeypatch.setattr(portfolio_known, "PRIOR_WORKLOADS", ("synthetic:500:1",))


def ended(job_id: int, submit: float, run: float, **changes: Any) -> JobOutcome:
    given: dict[str, Any] = {"processors": 4, "user": "anna", "requested_time": 3600.0} | changes
    partition = given.pop("partition", "burst")
    job = Job(job_id=job_id, submit_time=submit, **given)
    return JobOutcome(job=job, start_time=submit + 30.0, end_time=submit + 30.0 + run, partition=partition)


def fill(world: PortfolioWorld, count: int = 40) -> None:
    """Some hours of short jobs in bursts."""
    start = world.clock.wall - 40_000.0
    world.store.add(
        [ended(n, start + 3000.0 * (n // 4), 300.0 + 60.0 * (n % 4)) for n in range(count)], source="slurm"
    )
    world.store.add([ended(9000, start, 60.0, partition="onprem")], source="slurm")


def test_the_champion_is_in_charge_once_it_is_known(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="champion")
    fill(world)
    world.tick()
    world.loop.judge.judge()
    verdict = world.loop.judge.verdict
    assert verdict is not None
    assert verdict.jobs == 40
    assert verdict.scores[verdict.champion] == max(verdict.scores.values())
    assert verdict.charged_seconds > 0.0
    world.tick()
    report = world.loop.report()
    assert report["policy"] == verdict.champion
    assert "40 finished burst jobs" in report["why"]
    assert len(report["scores"]) == 5


def test_selections_are_judged_too_where_they_may_lead(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="auto")
    fill(world, 8)
    world.tick()
    world.loop.judge.judge()
    verdict = world.loop.judge.verdict
    assert verdict is not None
    assert verdict.leader in (None, 0.05)
    assert world.tick()


def test_a_verdict_outlives_the_process(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="champion")
    world.tick()
    world.loop.judge.judge()
    before = world.loop.judge.verdict
    world.start()
    assert world.loop.judge.verdict == before
    world.start(billing="hour")  # other settings, another verdict
    assert world.loop.judge.verdict is None


@pytest.mark.parametrize("content", ["", "[]", '{"key": "1"}', '{"verdict": {"champion": 3}, "prior": "x"}'])
def test_a_spoilt_file_is_no_verdict(tmp_path: Path, content: str) -> None:
    world = PortfolioWorld(tmp_path, leader="champion")
    path = tmp_path / "portfolio_verdict.json"
    if content.startswith('{"verdict"'):
        content = json.dumps(json.loads(content) | {"key": world.loop.judge._key})
    path.write_text(content, encoding="utf-8")
    world.start()
    assert world.loop.judge.verdict is None


def test_nothing_is_judged_before_the_nodes_have_been_seen(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="champion")
    assert not world.tick_judge()
    world.slurm.nodes = {"onprem1": node("onprem1", "IDLE", partitions=("onprem",))}
    world.tick()
    assert not world.tick_judge()


def test_judging_that_takes_too_long_is_given_up_until_the_next_hour(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="champion")
    fill(world, 8)
    world.tick()
    judge = world.loop.judge
    judge._clock = Clock(wall=lambda: world.clock.wall, monotonic=itertools.count(0.0, 400.0).__next__)
    assert not world.tick_judge()
    assert judge.verdict is None
    assert judge.period_seconds == 3600.0


def test_ended_jobs_in_whole_nodes_and_by_submission() -> None:
    table = table_of(
        [
            ended(3, 500.0, 60.0, processors=9, user="bert"),
            ended(1, 100.0, 60.0, requested_time=None),
            ended(2, 200.0, 0.0),  # never ran
            ended(4, 600.0, 60.0, processors=100),  # wider than the partition
            replace(ended(5, 650.0, 60.0), state=JobState.NODE_FAIL),  # it has yet to run
        ],
        processors_per_node=4,
        widest=4,
    )
    assert table.job_id.tolist() == [1, 3]
    assert table.submit.tolist() == [0.0, 400.0]
    assert table.processors.tolist() == [1, 3]
    assert table.user.tolist() == [0, 1]


def test_policies_that_keep_too_many_nodes_warm_are_left_out(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, policies="beyond", max_warm_nodes=2)
    found = policies_of(world.settings)
    assert len(found) == 63
    assert max(policy.headroom for policy in found) == 2


def test_selection_deviates_for_a_queue_and_the_champion_is_back_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole hours are paid, and money weighs much: minutes of work go on one node."""
    monkeypatch.setattr(leader_module, "_CHOICE_SECONDS", 5.0)
    world = PortfolioWorld(tmp_path, leader="selection", margin=0.0, billing="hour", alpha=8.0)
    world.tick()
    world.loop.judge.judge()
    world.tick()
    champion = world.loop.report()["champion"]
    assert world.loop.report()["policy"] == champion
    world.slurm.add(*(waiting(n, limit=60.0) for n in range(1, 9)))
    world.tick()
    report = world.loop.report()
    assert report["policy"] != champion
    assert "less than the champion" in report["why"]
    assert report["nodes_allowed"] == 1
    assert set(report["losses"]) >= {champion, report["policy"]}
    chosen = report["policy"]
    world.start()  # a restart goes on
    assert world.loop.leader.in_force is not None
    assert world.loop.leader.in_force.policy.name == chosen
    world.slurm.jobs.clear()
    world.tick()
    assert world.loop.report()["policy"] == champion
