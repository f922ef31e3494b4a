"""Promises on a log: kept as often as said, never cheaper than the clairvoyant's, without a look ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.papers.promises.promises import PromiseOptions, PromiseReplay
from advisor.papers.promises.report import replay_promises
from advisor.predict.promised.levels import Kind
from advisor.replay.closed_loop.log import LoopJobs, loop_jobs
from advisor.replay.sources import load_table
from tests.replay.closed_loop.hand_made import log


@pytest.fixture(scope="module")
def jobs() -> LoopJobs:
    return loop_jobs(load_table("synthetic:3000:5"), skip=300)


@pytest.fixture(scope="module")
def replayed(jobs: LoopJobs) -> PromiseReplay:
    replay = PromiseReplay(jobs, PromiseOptions())
    replay.run()
    return replay


def test_promises_are_kept_about_as_often_as_said(replayed: PromiseReplay) -> None:
    assert 0.93 <= replayed.kept.mean() <= 0.98
    assert all((replayed.kind == kind).sum() > 20 for kind in (Kind.FREE, Kind.SOONEST))


def test_no_job_is_cheaper_than_the_clairvoyant_makes_it(replayed: PromiseReplay) -> None:
    assert np.all(replayed.cost >= replayed.clairvoyant - 1e-6)
    assert replayed.clairvoyant.sum() > 0.0
    assert np.all(replayed.cost[replayed.kind == Kind.FREE] == 0.0)


def test_who_pays_is_promised_an_earlier_time(replayed: PromiseReplay) -> None:
    paid = replayed.kind != Kind.FREE
    assert np.all(replayed.sooner[paid] > 0.0)
    assert np.all(replayed.sooner[~paid] == 0.0)


def test_what_comes_later_changes_no_earlier_promise(jobs: LoopJobs, replayed: PromiseReplay) -> None:
    half = len(jobs) // 2
    rows = slice(0, half)
    # the run times of the second half are the future of the first one's promises
    shuffled = jobs.run.copy()
    shuffled[half:] = np.minimum(jobs.limit[half:], shuffled[half:][::-1])
    other = PromiseReplay(replace(jobs, run=shuffled), PromiseOptions())
    other.run()
    assert np.array_equal(other.kind[rows], replayed.kind[rows])
    assert np.array_equal(other.sooner[rows], replayed.sooner[rows])


def test_a_job_that_ends_in_the_cloud_as_its_turn_comes_is_judged() -> None:
    """Of two alike jobs on one processor the second one's turn comes after an hour, the run time of both."""
    table = log([(4.0 * 3600.0 * pair, 1, 3600.0) for pair in range(60) for _ in range(2)], machine=1)
    replay = PromiseReplay(loop_jobs(table, skip=60), PromiseOptions(boot_seconds=0.0, slowdown=1.0))
    replay.run()
    assert np.count_nonzero(replay.cost) > 10
    assert set(replay._unjudged.values()) == {0}


def test_a_lower_confidence_is_kept_less_often(jobs: LoopJobs) -> None:
    assert replay_promises(jobs, PromiseOptions(confidence=0.7))["kept_share"] == pytest.approx(
        0.73, abs=0.05
    )


@pytest.mark.parametrize("confidence", [0.2, 1.0, 95.0])
def test_a_confidence_that_cannot_be_kept_is_refused(jobs: LoopJobs, confidence: float) -> None:
    with pytest.raises(BadInput, match="cannot be kept") as refused:
        replay_promises(jobs, PromiseOptions(confidence=confidence))
    assert "--confidence" in str(refused.value)


def test_spot_keeps_as_many_promises_for_less(jobs: LoopJobs, replayed: PromiseReplay) -> None:
    """The figures are docs/measurements.md's; here only the order holds for any log."""
    found = {}
    for hours in (6.0, 24.0, 2000.0):
        replay = PromiseReplay(jobs, PromiseOptions(spot_hours=hours))
        replay.run()
        assert abs(replay.kept.mean() - replayed.kept.mean()) < 0.02
        found[hours] = replay
    spent = [replay.cost.sum() for replay in (replayed, found[24.0], found[2000.0])]
    assert spent[0] > spent[1] > spent[2] > 0.29 * spent[0]
    assert found[6.0].lost > 0
    assert 0 < found[6.0].on_spot < found[24.0].on_spot < found[2000.0].on_spot
    assert replayed.on_spot == replayed.lost == 0
