"""The published policies in a closed loop, on logs made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.model.settings_decision import WaitingSettings
from advisor.model.table import JobTable
from advisor.replay.closed_loop.ambati2021 import Ambati2021
from advisor.replay.closed_loop.cunha2017 import Cunha2017
from advisor.replay.closed_loop.log import LoopJobs, loop_jobs
from advisor.replay.closed_loop.world import LoopResult, Policy, World, WorldOptions
from advisor.replay.closed_loop.zrigui2022 import Zrigui2022
from tests.replay.closed_loop.hand_made import log


def after_a_past(
    window: list[tuple[float, ...]], *, wait: float, machine: int = 1, past_jobs: int = 400
) -> LoopJobs:
    """A window that follows jobs which waited about so long (seconds) on an idle machine."""
    past = [(10_000.0 * at, 1, 100.0, 200.0) for at in range(past_jobs)]
    waits = [wait * (0.9, 1.0, 1.1)[at % 3] for at in range(past_jobs)]
    begin = past[-1][0] + 10_000.0
    rows = past + [(begin + row[0], *row[1:]) for row in window]
    table: JobTable = log(rows, machine=machine, waits=waits + [0.0] * len(window), users=[1] * len(rows))
    return loop_jobs(table, skip=len(past))


def run(jobs: LoopJobs, policy: Policy, *, share: float = 1e6) -> LoopResult:
    """Run with money from the first second on."""
    world = World(jobs, WorldOptions(budget_share=share, slowdown=1.0), policy)
    world.tokens.held = share * 1e6
    return world.run()


ALIKE = [(0.0, 1, 100.0, 200.0), (10.0, 1, 100.0, 200.0), (20.0, 1, 100.0, 200.0)]
THREE = [(0.0, 1, 5000.0, 5000.0), (10.0, 1, 5000.0, 5000.0), (20.0, 1, 400.0, 400.0)]


def ambati(*, t: float, b: float = 86_400.0) -> Ambati2021:
    return Ambati2021(WaitingSettings(short_wait_seconds=b, long_job_seconds=t), generations=0)


def test_cunha_moves_where_the_neighbours_waited_longer_than_the_boot() -> None:
    # all that was seen are waits of about 3,000 s: every job moves, though the first could start at once
    result = run(after_a_past(ALIKE, wait=3000.0), Cunha2017(generations=0))
    assert result.moved.tolist() == [True, True, True]


def test_cunha_stays_where_the_neighbours_waited_less_than_the_boot() -> None:
    result = run(after_a_past(ALIKE, wait=60.0), Cunha2017(generations=0))
    assert not result.moved.any()


def test_cunha_does_not_take_waits_that_a_log_does_not_know_for_none() -> None:
    # the second of each pair waits for the first, which runs for 2,000 to 6,000 s
    pairs = [
        (10_000.0 * (at // 2) + at % 2, 1, 2000.0 + 1000.0 * (at // 2 % 5) if at % 2 == 0 else 100.0, 6000.0)
        for at in range(80)
    ]
    moved = run(after_a_past(pairs, wait=-1.0), Cunha2017(generations=0)).moved
    assert moved[-20:].any()


def test_cunha_learns_waits_when_jobs_start_in_the_world() -> None:
    # pairs: the second waits for the first, as no job had done before
    pairs = [(10_000.0 * (at // 2) + at % 2, 1, 3000.0 if at % 2 == 0 else 100.0, 3000.0) for at in range(80)]
    moved = run(after_a_past(pairs, wait=0.0, past_jobs=50), Cunha2017(generations=0)).moved
    assert not moved[:2].any()
    assert moved[1::2][-5:].all()
    assert not moved[::2].any()


@pytest.mark.parametrize("policy", [Cunha2017(generations=0), Ambati2021(generations=0)])
def test_tokens_cover_the_limit_or_the_job_stays(policy: Policy) -> None:
    jobs = after_a_past(THREE, wait=3000.0)
    result = run(jobs, policy, share=0.0)
    assert not result.moved.any()
    assert result.cost.sum() == 0.0


def test_ambati_tries_out_who_cannot_start_at_once() -> None:
    jobs = after_a_past(THREE, wait=0.0)
    result = run(jobs, ambati(t=600.0))
    begin = float(jobs.submit[0])
    assert result.moved.tolist() == [False, True, True]
    # the long one comes back after its trial, and starts when the first has ended
    assert result.end[0] == pytest.approx(begin + 5000.0)
    assert result.end[1] == pytest.approx(begin + 10_000.0)
    assert result.cost[1] == pytest.approx(600.0)
    # the short one ends in its trial, a boot after its submission
    assert result.end[2] == pytest.approx(begin + 20.0 + 120.0 + 400.0)
    assert result.cost[2] == pytest.approx(400.0)


def test_ambati_lets_no_job_wait_longer_than_b() -> None:
    window = [(0.0, 1, 9000.0, 9000.0), (10.0, 1, 9000.0, 9000.0)]
    jobs = after_a_past(window, wait=0.0)
    result = run(jobs, ambati(t=0.5, b=3600.0))
    assert result.moved[1]
    start = float(result.end[1]) - 9000.0 - 120.0
    assert 3600.0 <= start - float(jobs.submit[1]) <= 3600.0 + 600.0
    assert np.all(np.isfinite(result.end))


def test_zrigui_puts_the_jobs_of_the_user_who_runs_short_first() -> None:
    past = [(5000.0 * at, 1, 4000.0 if at % 3 else 10.0, 5000.0) for at in range(400)]
    begin = 5000.0 * 400
    # the machine is busy; then a long one, a short one
    window = [(begin, 1, 3000.0, 5000.0), (begin + 1.0, 1, 4000.0, 5000.0), (begin + 2.0, 1, 10.0, 5000.0)]
    table = log(
        past + window, machine=1, waits=[0.0] * 403, users=[int(at % 3 == 0) for at in range(400)] + [0, 0, 1]
    )
    jobs = loop_jobs(table, skip=400)
    usual, result = run(jobs, Policy()), run(jobs, Zrigui2022())
    assert (usual.end - begin).tolist() == pytest.approx([3000.0, 7000.0, 7010.0])
    assert (result.end - begin).tolist() == pytest.approx([3000.0, 7010.0, 3010.0])
    assert not result.moved.any()


def test_zrigui_lets_no_job_starve() -> None:
    past = [(5000.0 * at, 1, 4000.0 if at % 3 else 10.0, 300_000.0) for at in range(400)]
    begin = 5000.0 * 400
    window = [
        (begin, 1, 250_000.0, 300_000.0),
        (begin + 1.0, 1, 4000.0, 300_000.0),
        (begin + 240_000.0, 1, 10.0, 300_000.0),
    ]
    table = log(
        past + window, machine=1, waits=[0.0] * 403, users=[int(at % 3 == 0) for at in range(400)] + [0, 0, 1]
    )
    result = run(loop_jobs(table, skip=400), Zrigui2022())
    assert (result.end - begin).tolist() == pytest.approx([250_000.0, 254_000.0, 254_010.0])
