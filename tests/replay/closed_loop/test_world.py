"""The closed loop: the clock, the cloud, kept places and money, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.decide.price.demand_price import Pace
from advisor.decide.price.tokens import DAY
from advisor.model.errors import BadInput
from advisor.replay.closed_loop.fidelity import fidelity_of
from advisor.replay.closed_loop.learned_runs import LearnedRuns
from advisor.replay.closed_loop.log import LoopJobs, OnPremise, loop_jobs
from advisor.replay.closed_loop.plain_policies import Clairvoyant, Overflow, Starburst
from advisor.replay.closed_loop.price_policy import PricePolicy
from advisor.replay.closed_loop.sizing import narrow
from advisor.replay.closed_loop.world import LoopResult, Policy, World, WorldOptions, price_now
from advisor.replay.sources import load_table
from tests.replay.closed_loop.hand_made import log

RICH = WorldOptions(budget_share=1000.0, boot_seconds=10.0, slowdown=2.0, round_seconds=5.0)
CHEAP = Pace(first_price=0.0)


class Sliced(Policy):
    """Sends one row to the cloud at its submission, in slices of a length, as a script says."""

    name = "sliced"

    def __init__(self, row: int, stop: float, *, goes_on: bool = False, stays: bool = False) -> None:
        self.row, self.stop, self.goes_on, self.stays = row, stop, goes_on, stays
        self.turns: list[float] = []
        self.slices: list[tuple[float, float]] = []

    def submitted(self, world: World, row: int) -> None:
        if row == self.row:
            assert world.start_in_cloud(row, self.stop, keeps_place=True)

    def slice_ended(self, world: World, row: int, elapsed: float) -> None:
        self.slices.append((world.now, elapsed))
        if self.goes_on:
            world.go_on(row, elapsed, elapsed + self.stop)

    def turn_came(self, world: World, row: int) -> bool:
        assert row == self.row
        self.turns.append(world.now)
        return self.stays


class KnownRuns:
    """Forecasts that put a job's true run time in one bin, or 50:50 in two."""

    edges = np.geomspace(1.0, 2.0**20, 21)

    def __init__(self, *alternatives: float) -> None:
        self.alternatives = alternatives

    def submitted(self, jobs: LoopJobs, row: int) -> None:
        pass

    def forecast(self, jobs: LoopJobs, row: int) -> np.ndarray:
        found = np.zeros(21)
        for run in (float(jobs.run[row]), *self.alternatives):
            found[int(np.searchsorted(self.edges, min(run, jobs.limit[row])))] += 1.0
        return found / found.sum()

    def learn_history(self, jobs: LoopJobs, until: float) -> None:
        pass

    def learn(self, jobs: LoopJobs, row: int) -> None:
        pass


def ran(
    policy: Policy, rows: list[tuple[float, ...]], options: WorldOptions = RICH
) -> tuple[LoopResult, World]:
    world = World(loop_jobs(log(rows, machine=4)), options, policy)
    world.tokens.held = world.budget  # these logs are too short for anything to accrue
    return world.run(), world


BUSY = [(0.0, 4, 1000.0), (1.0, 4, 100.0, 200.0), (2.0, 4, 50.0)]
"""The second and third job wait for the first."""


def test_without_a_policy_every_job_waits_its_turn() -> None:
    result, _ = ran(Policy(), BUSY)
    assert result.end.tolist() == [1000.0, 1100.0, 1150.0]
    assert not result.moved.any()


def test_a_job_in_the_cloud_ends_after_boot_and_slower_run_and_leaves_its_place() -> None:
    result, world = ran(Sliced(1, 200.0), BUSY)
    assert result.end.tolist() == [1000.0, 1.0 + 10.0 + 2.0 * 100.0, 1050.0]
    assert result.cost.tolist() == [0.0, 4 * 200.0, 0.0]
    assert world.tokens.spent == 800.0


def test_a_failed_slice_costs_money_and_no_time() -> None:
    policy = Sliced(1, 60.0)
    result, _ = ran(policy, BUSY)
    assert policy.slices == [(1.0 + 10.0 + 120.0, 60.0)]
    assert result.end.tolist() == [1000.0, 1100.0, 1150.0]
    assert result.cost[1] == 4 * 120.0


def test_a_job_that_goes_on_ends_as_if_it_had_one_slice() -> None:
    policy = Sliced(1, 60.0, goes_on=True)
    result, _ = ran(policy, BUSY)
    assert [elapsed for _, elapsed in policy.slices] == [60.0]
    assert result.end[1] == 1.0 + 10.0 + 200.0


def test_the_kept_place_comes_and_the_job_restarts_there() -> None:
    rows = [(0.0, 4, 50.0), *BUSY[1:]]
    policy = Sliced(1, 200.0)
    result, _ = ran(policy, rows)
    assert policy.turns == [50.0]
    assert result.end.tolist() == [50.0, 150.0, 200.0]
    assert result.cost[1] == 4 * (50.0 - 1.0 - 10.0)


def test_the_kept_place_comes_and_the_job_stays_in_the_cloud() -> None:
    rows = [(0.0, 4, 50.0), *BUSY[1:]]
    result, _ = ran(Sliced(1, 200.0, stays=True), rows)
    assert result.end.tolist() == [50.0, 211.0, 100.0]


def test_no_slice_begins_without_tokens() -> None:
    world = World(loop_jobs(log(BUSY, machine=4)), RICH, Policy())
    world.tokens.held = 4 * 200.0 - 1.0
    world.pool.add(0, processors=4, limit=200.0, run=100.0, order=0.0)
    assert not world.start_in_cloud(0, 100.0, keeps_place=True)
    assert world.cloud == {}


def test_a_paid_boot_is_part_of_the_worst_case_and_of_the_cost() -> None:
    options = WorldOptions(budget_share=1000.0, boot_seconds=10.0, slowdown=2.0, bills_boot=True)
    result, world = ran(Sliced(1, 200.0), BUSY, options)
    assert world.most(1, 0.0, 200.0, 10.0) == 4 * 410.0
    assert result.cost[1] == 4 * 210.0


@pytest.mark.parametrize("policy", [Overflow(), Starburst(CHEAP), Clairvoyant(CHEAP)], ids=lambda p: p.name)
def test_every_policy_moves_the_waiting_jobs_where_money_is_plenty(policy: Policy) -> None:
    result, world = ran(policy, BUSY)
    assert result.moved.tolist() == [False, True, True]
    assert world.tokens.committed == 0.0
    assert np.all(np.isfinite(result.end))


def test_the_price_moves_what_saves_time_and_leaves_what_does_not() -> None:
    result, _ = ran(PricePolicy(KnownRuns, pace=CHEAP), [*BUSY, (995.0, 4, 300.0)])
    assert result.moved.tolist() == [False, True, True, False]  # the last would wait less than a boot


def test_the_price_probes_a_job_that_may_be_short_and_takes_it_back() -> None:
    rows = [(0.0, 4, 4000.0), (1.0, 4, 3000.0, 4000.0)]
    forecasts = KnownRuns(4.0, 4.0, 4.0)
    pace = Pace(reserve_days=1.0 / DAY)  # all that accrues from the first submission to the last
    result, world = ran(PricePolicy(lambda: forecasts, pace=pace), rows)
    assert result.moved[1]
    assert result.end[1] == 7000.0
    assert 0.0 < result.cost[1] < 4 * 100.0
    assert world.cloud == {}


class RunsToldByEnds(KnownRuns):
    """Every job seems to run to its limit until one has ended; then all run times are known."""

    last_run: float | None = None

    def forecast(self, jobs: LoopJobs, row: int) -> np.ndarray:
        found = np.zeros(21)
        found[int(np.searchsorted(self.edges, jobs.limit[row]))] = 1.0
        return super().forecast(jobs, row) if self.last_run is not None else found

    def learn(self, jobs: LoopJobs, row: int) -> None:
        self.last_run = float(jobs.run[row])


def test_a_waiting_job_is_decided_by_what_jobs_have_taught_since_its_submission() -> None:
    rows = [(0.0, 2, 100.0), (0.0, 2, 1000.0), (1.0, 4, 60.0, 5000.0)]
    result, _ = ran(PricePolicy(RunsToldByEnds, fixed_price=1.0), rows)
    assert result.moved.tolist() == [False, False, True]
    # at the round after the first job's end, and not at its submission: boot, then twice its run time
    assert 100.0 + 10.0 + 120.0 <= result.end[2] <= 106.0 + 10.0 + 120.0


def test_a_budget_is_never_exceeded() -> None:
    draw = np.random.default_rng(3)
    rows = [
        (float(time), int(draw.integers(1, 5)), float(draw.integers(10, 2000)), 2000.0)
        for time in np.cumsum(draw.integers(1, 600, 300))
    ]
    for share in (0.02, 0.1):
        options = WorldOptions(budget_share=share, boot_seconds=10.0)
        for policy in (Overflow(), Starburst(), Clairvoyant(), PricePolicy(lambda: KnownRuns(30.0))):
            world = World(loop_jobs(log(rows, machine=4)), options, policy)
            result = world.run()
            assert float(result.cost.sum()) <= world.budget * (1.0 + 1e-9), policy.name
            assert np.all(result.end >= world.jobs.submit)


def test_jobs_larger_than_the_machine_of_the_header_are_left_out() -> None:
    larger = (BUSY[0][0], 100, *BUSY[0][2:])
    jobs = loop_jobs(log([larger, *BUSY], machine=4))
    assert (len(jobs), jobs.too_large, jobs.machine) == (len(BUSY), 1, 4)
    assert int(jobs.table.processors.max()) == int(jobs.processors.max()) == 4


def test_a_log_without_its_machines_size_is_refused() -> None:
    with pytest.raises(BadInput, match=r"MaxProcs.*--nodes"):
        loop_jobs(log(BUSY, machine=0))
    with pytest.raises(BadInput, match="0 jobs that ran and fit the machine"):
        loop_jobs(log(BUSY, machine=4), nodes=2)
    with pytest.raises(BadInput, match="3 are skipped"):
        loop_jobs(log(BUSY, machine=4), skip=3)


def test_the_price_begins_with_what_the_earlier_rows_have_shown() -> None:
    draw = np.random.default_rng(5)
    times = np.cumsum(draw.integers(1, 400, 600))
    rows = [(float(time), 2, float(draw.integers(200, 2000)), 2000.0) for time in times]

    def first_price(earlier_jobs: int, days_before: float = 0.0) -> float:
        away = [(time - days_before * DAY, *job) for time, *job in rows[:400]]
        jobs = loop_jobs(log([*away, *rows[400:]], machine=4), skip=400)
        policy = PricePolicy(KnownRuns, earlier_jobs=earlier_jobs)
        world = World(jobs, WorldOptions(), policy)
        policy.begin(world)
        world.tokens.held = world.tokens.ahead + Pace().reserve_days * world.tokens.per_day
        return price_now(policy.demand_price, world)

    assert first_price(0) == Pace().first_price
    assert first_price(400) not in {Pace().first_price, 0.0}
    assert first_price(400) == first_price(5_000)  # there are no more
    assert first_price(400, days_before=29.0) == Pace().first_price  # the price remembers 28 days


def test_a_job_without_a_limit_runs_to_its_end() -> None:
    rows = [(0.0, 4, 1000.0, 2000.0), (1.0, 4, 9000.0, np.nan)]
    jobs = loop_jobs(log(rows, machine=4))
    assert jobs.run.tolist() == [1000.0, 9000.0]
    assert World(jobs, RICH, Policy()).run().end.tolist() == [1000.0, 10_000.0]


def test_waits_are_forecast_by_expected_run_times_and_not_by_limits() -> None:
    """The job that runs has a limit of a day, and is known to end within minutes: it is not worth a boot."""
    rows = [(0.0, 4, 100.0, DAY), (90.0, 4, 100.0)]
    result, _ = ran(PricePolicy(KnownRuns, pace=CHEAP, earlier_jobs=0), rows)
    assert not result.moved.any()
    assert result.end.tolist() == [100.0, 200.0]


def test_a_machine_of_its_own_decides_as_the_whole_one() -> None:
    """The same results, digit by digit, whether or not the machine is one of several."""
    jobs = loop_jobs(load_table("synthetic:600:3"))
    sizes = np.array([[jobs.machine, 9, 0], [8, 9, 0]])
    idle = replace(jobs, on_premise=OnPremise(sizes, np.zeros(len(jobs.table), np.int64), jobs.table.held))
    for policy in (Policy, Overflow, Starburst, Clairvoyant, lambda: PricePolicy(LearnedRuns)):
        one, two = (World(each, WorldOptions(), policy()).run() for each in (jobs, idle))
        assert one.end.tolist() == two.end.tolist()
        assert one.cost.tolist() == two.cost.tolist()


def test_jobs_wait_for_their_own_machine() -> None:
    jobs = loop_jobs(log([(0, 4, 100), (1, 4, 100), (2, 4, 100)], machine=8))
    sizes = np.array([[4, 0, 0], [4, 0, 0]])
    apart = replace(jobs, on_premise=OnPremise(sizes, np.array([0, 0, 1]), jobs.table.held))
    assert World(jobs, WorldOptions(), Policy()).run().end.tolist() == [100.0, 101.0, 200.0]
    assert World(apart, WorldOptions(), Policy()).run().end.tolist() == [100.0, 200.0, 102.0]


def test_jobs_wait_for_memory_on_premise_and_pay_for_processors_in_the_cloud() -> None:
    """Two jobs of one processor ask for half of the memory and more; the third asks for little."""
    jobs = loop_jobs(log([(0, 1, 100), (1, 1, 100), (2, 1, 50)], machine=8))
    held = np.array([[1, 60, 0], [2, 60, 0], [1, 10, 0]])
    site = replace(jobs, on_premise=OnPremise(np.array([[8, 100, 0]]), np.zeros(3, np.int64), held))
    assert World(jobs, WorldOptions(), Policy()).run().end.tolist() == [100.0, 101.0, 52.0]
    assert World(site, WorldOptions(), Policy()).run().end.tolist() == [100.0, 200.0, 52.0]
    seen = fidelity_of(site, World(jobs, WorldOptions(), Policy()).run())
    assert seen.mean_wait_seconds == 0.0
    late = loop_jobs(log([(0, 1, 9000), (1, 1, 9000)], machine=8))
    both = replace(late, on_premise=OnPremise(np.array([[8, 100, 0]]), np.zeros(2, np.int64), held[:2]))
    rich = WorldOptions(budget_share=1000.0)
    moved = World(both, rich, Clairvoyant()).run()
    assert moved.moved.sum() == 1
    assert moved.cost.sum() == pytest.approx(rich.slowdown * 9000.0)


def test_a_smaller_machine_has_less_memory_in_proportion() -> None:
    jobs = loop_jobs(log([(0, 1, 100), (1, 1, 100), (2, 4, 50)], machine=8))
    held = np.array([[1, 60, 0], [1, 40, 0], [4, 10, 0]])
    site = replace(jobs, on_premise=OnPremise(np.array([[8, 100, 0]]), np.zeros(3, np.int64), held))
    half = narrow(site, 4)
    assert half.on_premise is not None
    assert (half.on_premise.sizes.tolist(), half.on_premise.held.tolist()) == (
        [[4, 50, 0]],
        held[1:].tolist(),
    )
    assert half.submit.tolist() == [1.0, 2.0]
