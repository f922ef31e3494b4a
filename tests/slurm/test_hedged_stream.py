"""A stream of jobs, hedged ones among them, while the watching process is killed again and again."""

from __future__ import annotations

import pytest

from benchmarks.hedge import run

pytestmark = [pytest.mark.slurm]


def test_nothing_is_lost_and_nothing_runs_twice() -> None:
    result = run(
        competing=14,
        hedged=7,
        nodes=2,
        arrive_seconds=8.0,
        kill_watcher_every=6.0,
        restart_slurmctld=1,
        priorities="priority/basic",
        pairs=1,
        seed=3,
        longest_seconds=400.0,
        tell=lambda _: None,
    )
    integrity = result["integrity"]
    assert integrity.pop("jobs") == 2 * 21
    assert set(integrity.values()) == {0}, (integrity, result["odd_jobs"])
    assert result["watcher_killed"] >= 2
    # how soon they are back is the benchmark's business
    assert result["brought_back"] + result["ended_in_the_cloud"] == result["hedged"] >= 2
