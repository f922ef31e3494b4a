"""What the live loop expects to come: by the jobs that ended of late and those that wait."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.model.job import Job, JobOutcome
from advisor.service.portfolio.arrivals import RecentJobs
from advisor.service.portfolio.portfolio_view import LastTwo, view_of
from advisor.simulate.portfolio.arrivals import NOTHING
from advisor.simulate.portfolio.state import Rules
from tests.service.portfolio_world import PortfolioWorld, node, waiting

RULES = Rules(max_nodes=4, boot=120.0, tick=20.0, release=0, runtimes=1, checkpoint=3600.0)


def ended(job_id: int, submit: float, run: float = 60.0, processors: int = 4) -> JobOutcome:
    job = Job(job_id=job_id, submit_time=submit, processors=processors, user="anna", requested_time=3600.0)
    return JobOutcome(job=job, start_time=submit + 30.0, end_time=submit + 30.0 + run, partition="burst")


def test_idle_nodes_are_worth_what_the_last_jobs_would_have_been_spared(tmp_path: Path) -> None:
    """One node each, a minute; one came in the last two hours, and one waits."""
    world = PortfolioWorld(tmp_path)
    now = world.clock.wall
    recent = RecentJobs()
    world.slurm.add(waiting(1, submit_time=now - 600.0))
    view = view_of(
        world.slurm.snapshot(now), world.settings, last=LastTwo(), launched=lambda _: None, boot_seconds=120.0
    )
    assert recent.ready(view, RULES) is NOTHING
    recent.ended(ended(2, now - 80_000.0))
    recent.ended(ended(3, now - 3600.0))
    ready = recent.ready(view, RULES)
    rate = 0.8 * 2 / 7200.0 + 0.2 * 3 / 80_000.0
    assert ready.charged[0] == 0.0
    assert ready.charged[1:] == pytest.approx(rate * 3540.0)
    assert ready.slowdown[1:] == pytest.approx(rate * 2.0)


def test_they_count_in_whole_nodes_and_are_renewed(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path)
    now = world.clock.wall
    recent = RecentJobs()
    view = view_of(
        world.slurm.snapshot(now), world.settings, last=LastTwo(), launched=lambda _: None, boot_seconds=120.0
    )
    recent.ended(ended(1, now - 600.0, processors=5))
    wide = recent.ready(view, RULES).charged.copy()
    assert wide[1] == 0.0 < wide[2]  # five processors on nodes of four
    for job_id in range(2, 400):
        recent.ended(ended(job_id, now - 500.0))
    assert recent.ready(view, RULES).charged[1] > 0.0


def test_the_loop_judges_plans_by_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = PortfolioWorld(tmp_path)
    world.slurm.nodes = {"burst1": node("burst1")}
    start = world.clock.wall
    world.store.add([ended(n, start - 1000.0 + n) for n in range(3)], source="slurm")
    seen = []
    decide = world.loop.leader.decide

    def spy(view, verdict, rules):
        seen.append(view.situation.ready.charged)
        return decide(view, verdict, rules)

    monkeypatch.setattr(world.loop.leader, "decide", spy)
    world.tick()
    assert np.all(seen[0][1:] > 0.0)
