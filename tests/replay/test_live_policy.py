"""The live waiting policy, asked job by job, against the replay's compiled world: the same starts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.decide.submission.published_policies import speculation_of
from advisor.decide.submission.waiting import WaitingCase, choice
from advisor.decide.submission.waiting_policy import LEAVES, SPECULATES, WAITS
from advisor.model.advice import Capacity
from advisor.model.estimate import Estimate, Estimates
from advisor.papers.waiting.world.world import Length, Simulation, Wait, WorldRules, workload_of
from tests.decide.cases import make_job, make_settings
from tests.papers.waiting.world.plain import PlainWorld
from tests.papers.waiting.world.test_world import constant_forest

T, CORES = 9.0, 5
JOBS = st.lists(
    st.tuples(
        st.integers(0, 20),  # seconds after the job before
        st.integers(1, 40),  # run
        st.integers(1, 6),  # processors
        st.integers(0, 20),  # twentieths of a chance to be short
        st.sampled_from([3.0, 7.0, 1000.0]),  # life of a spot node
    ),
    min_size=1,
    max_size=25,
)


def workload(jobs: list[tuple[Any, ...]]) -> Any:
    submit = np.cumsum([float(job[0]) for job in jobs])
    run = np.array([float(job[1]) for job in jobs])
    nothing = np.zeros(len(jobs), np.int64)
    return workload_of(
        submit - submit[0],
        run,
        np.array([job[2] for job in jobs], np.int64),
        run,
        user=nothing,
        program=nothing,
        queue=nothing,
        revoked_after=np.array([job[4] for job in jobs]),
    )


class LiveWorld(PlainWorld):
    """The plain world, whose jobs ask the live waiting policy whenever something is to be decided."""

    def __init__(self, load: Any, longest: float, runs: list[Estimate], *, tries: bool, wait: float) -> None:
        modes = np.zeros(len(load), np.int64)
        super().__init__(load, CORES, modes, trial_seconds=T, longest_wait_seconds=longest)
        b = 0.0 if math.isinf(longest) else longest
        self._settings = make_settings(
            cluster={"policy": "ambati2021"}, waiting={"short_wait_seconds": b, "long_job_seconds": T}
        )
        self._tries = tries
        self._runs, self._wait = runs, wait

    def _asks(self, row: int, now: float, *, is_new: bool = False, wait: float = math.nan) -> int:
        known = Estimate(seconds=wait, variance=0.0, quantiles=() if math.isnan(wait) else (wait,))
        job = make_job(processors=int(self._load.processors[row]))
        run = self._runs[row] if is_new else Estimate(seconds=1e6, variance=0.0)  # it has waited: it is long
        case = WaitingCase(
            job=job,
            estimates=Estimates(wait=known, run=run),
            capacity=Capacity.ON_DEMAND,
            cost_usd=0.0,
            trial=speculation_of(job, self._settings) if is_new and self._tries else None,
            waited_seconds=now - float(self._load.submit[row]),
        )
        return choice(case, self._settings.waiting)[0]

    def _impatient(self, now: float) -> list[int]:
        return [row for row in self._queue if self._asks(row, now) == LEAVES]

    def _join(self, row: int, now: float) -> None:
        if self._asks(row, now) == LEAVES:
            self._rent(row, now)
        elif self._fits(row):
            self._begin(row, now)
        elif self._asks(row, now, wait=self._wait) == LEAVES:
            self._rent(row, now)
        else:
            self._queue.append(row)

    def _submit(self, row: int, now: float) -> None:
        if self._load.processors[row] > self._cores:
            self._rent(row, now)
        elif self._fits(row):
            self._begin(row, now)
        else:
            does = self._asks(row, now, is_new=True, wait=self._wait)
            if does == LEAVES:
                self._rent(row, now)
            elif does == SPECULATES:
                length = min(self._load.run[row], self._trial, self._load.revoked_after[row])
                self._trials[row], self.start[row] = now + float(length), now
            else:
                assert does == WAITS
                self._queue.append(row)


def same(load: Any, world: Simulation, live: LiveWorld) -> None:
    found = world.outcome()
    live.run()
    assert found.start.tolist() == live.start
    assert found.on_fixed.tolist() == live.on_fixed
    assert found.spot_seconds.tolist() == live.spot_seconds
    assert found.ondemand_seconds.tolist() == live.ondemand_seconds
    # what a trial in vain took is no waiting
    waits = found.start - load.submit - np.where(found.restarts > 0, found.spot_seconds, 0.0)
    assert np.all(waits[~found.on_fixed] <= live._longest_wait)


@settings(max_examples=120, deadline=None)
@given(jobs=JOBS, longest=st.sampled_from([5.0, 30.0, math.inf]), wait=st.sampled_from([2.0, 12.0, 500.0]))
def test_g17_12_the_live_policy_by_forecast_is_the_replays(
    jobs: list[tuple[Any, ...]], longest: float, wait: float
) -> None:
    """Run times forecast right, waits by a model: short jobs leave, the others wait at most b."""
    load = workload(jobs)
    rules = WorldRules(
        length=Length.FORECAST,
        wait=Wait.MODEL,
        trial_seconds=T,
        longest_wait_seconds=longest,
        ask_again_seconds=1e9,
    )
    world = Simulation(workload=load, cores=CORES, rules=rules)
    world._world.job["median_run"] = load.run
    world.advance(np.inf, waits=constant_forest(wait))
    runs = [Estimate(seconds=float(run), variance=0.0) for run in load.run]
    same(load, world, LiveWorld(load, longest, runs, tries=False, wait=wait))


@settings(max_examples=120, deadline=None)
@given(jobs=JOBS, longest=st.sampled_from([5.0, 30.0, math.inf]), wait=st.sampled_from([2.0, 12.0, 500.0]))
def test_g17_12_the_live_policy_by_speculation_is_the_replays(
    jobs: list[tuple[Any, ...]], longest: float, wait: float
) -> None:
    """Tried out for t unless hardly ever short; then, and from then on, at most b."""
    load = workload(jobs)
    chances = np.array([job[3] / 20.0 for job in jobs])
    rules = WorldRules(
        length=Length.SPECULATION,
        wait=Wait.MODEL,
        trial_seconds=T,
        longest_wait_seconds=longest,
        skip_below=0.1,
        ask_again_seconds=1e9,
    )
    world = Simulation(workload=load, cores=CORES, rules=rules)
    world._world.job["short_chance"] = chances
    world.advance(np.inf, waits=constant_forest(wait))
    runs = [
        Estimate(seconds=T, variance=1.0, quantiles=(1.0,) * job[3] + (100.0,) * (20 - job[3]))
        for job in jobs
    ]
    # s(c) > 1 would ask for shorter runs: here the cloud is as fast
    same(load, world, LiveWorld(load, longest, runs, tries=True, wait=wait))
