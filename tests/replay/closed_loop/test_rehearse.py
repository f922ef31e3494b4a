"""Policies side by side: what is run, in which processes, and what is told of it."""

from __future__ import annotations

import pytest

from advisor.model.errors import BadInput
from advisor.replay.closed_loop.log import LoopJobs, loop_jobs
from advisor.replay.closed_loop.policies import ALWAYS, chosen
from advisor.replay.closed_loop.rehearse import Rehearsal, rehearse
from advisor.replay.closed_loop.world import WorldOptions
from advisor.replay.sources import load_table

Told = list[tuple[str, int, int]]


@pytest.fixture(scope="module")
def jobs() -> LoopJobs:
    return loop_jobs(load_table("synthetic:1200:3"))


def asked(*policies: str, processes: int = 1, shares: tuple[float, ...] = ()) -> Rehearsal:
    return Rehearsal(
        policies=policies,
        world=WorldOptions(),
        usd_per_core_hour=0.1,
        shares=shares,
        processes=processes,
    )


def test_each_policy_tells_how_far_it_is(jobs: LoopJobs) -> None:
    told: Told = []
    rehearse(jobs, asked("all-on-premise", "overflow"), lambda *step: told.append(step))
    assert told == [
        ("all-on-premise", 0, 1200),
        ("all-on-premise", 500, 1200),
        ("all-on-premise", 1000, 1200),
        ("overflow, 5 %", 0, 1200),
        ("overflow, 5 %", 500, 1200),
        ("overflow, 5 %", 1000, 1200),
    ]


def test_processes_tell_the_sum_of_their_jobs(jobs: LoopJobs) -> None:
    told: Told = []
    rehearse(jobs, asked("all-on-premise", "overflow", processes=2), lambda *step: told.append(step))
    assert {(what, total) for what, _, total in told} == {("jobs of all simulations", 2400)}
    done = [done for _, done, _ in told]
    assert done == sorted(done)


def test_the_curve_runs_all_on_premise_once_and_the_others_at_every_share(jobs: LoopJobs) -> None:
    result = rehearse(jobs, asked("all-on-premise", "overflow", shares=(0.01, 0.05)))
    cells = [(row["budget_share"], row["policy"]) for row in result["curve"]]
    assert cells == [
        (0.01, "all-on-premise"), (0.01, "overflow"), (0.05, "all-on-premise"), (0.05, "overflow"),
    ]  # fmt: skip
    spent = [row["cost_usd"] for row in result["curve"] if row["policy"] == "overflow"]
    assert 0.0 < spent[0] < spent[1]
    assert all(row["cost_usd"] <= row["budget_usd"] for row in result["curve"])


def test_named_policies_join_those_that_are_always_shown() -> None:
    assert chosen(()) == ALWAYS
    assert set(chosen(("zrigui2022", "overflow"))) == {*ALWAYS, "zrigui2022"}
    with pytest.raises(BadInput, match="there is no policy 'magic'"):
        chosen(("magic",))
