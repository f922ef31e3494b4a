"""The submit server forecasts a submission's wait by the queue, and answers by the price."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from advisor.decide.explanation.reasons import Reason
from advisor.history.models import ModelStore
from advisor.model.advice import HedgeKind, Placement
from advisor.model.estimate import Estimate
from advisor.model.job import Job, JobOutcome
from advisor.model.machine import Machine
from advisor.model.settings_price import BudgetSettings
from advisor.model.settings_promise import PromiseSettings
from advisor.model.site import Price
from advisor.predict.run_times.grid import BINS, GRID, bin_of
from advisor.predict.run_times.run_times import RunTimesOfJobs, estimate_of
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.protocol import VERSION, AgainRequest
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.submit.answering import Answerer
from advisor.service.submit.recent import QueueForecast, Submission
from advisor.service.submit.run_times import RUN_TIMES_KIND
from advisor.service.submit.state_holder import StateHolder, profiles_of
from tests.service.site import NOW, Clock, ask, make_settings, make_snapshot

MACHINE = 64
ONPREM = Machine(("onprem",), MACHINE)
BUSY_SECONDS = 7200.0
PRICE = Price(seconds_per_usd=3600.0, tokens_usd=50.0)


def full_machine(waiting: int = 0) -> SeenQueue:
    """All processors are taken for two hours; each waiting job wants the machine for an hour."""
    return SeenQueue.of(
        ONPREM,
        np.array([[MACHINE, NOW, BUSY_SECONDS, BUSY_SECONDS]]),
        np.array([[MACHINE, 3600.0, 3600.0]] * waiting).reshape(-1, 3),
    )


def site_of(queue: SeenQueue | None, price: Price | None = PRICE, now: float = NOW) -> Snapshot:
    seen = make_snapshot(now)
    return replace(
        seen, state=structs.replace(seen.state, price=price), queues=() if queue is None else (queue,)
    )


def learned() -> RunTimesOfJobs:
    """Alice's jobs take ten minutes."""
    known = RunTimesOfJobs()
    for row in range(40):
        job = Job(
            job_id=row, submit_time=0.0, processors=2, user="alice", queue="onprem", requested_time=3600.0
        )
        known.learn(JobOutcome(job=job, start_time=0.0, end_time=600.0))
    return known


@pytest.fixture(scope="module")
def run_times() -> RunTimesOfJobs:
    return learned()


def serving(
    folder: Path,
    snapshot: Snapshot,
    run_times: RunTimesOfJobs | None,
    clock: Clock | None = None,
    **sections: Any,
) -> tuple[Answerer, StateHolder]:
    sections.setdefault("hedge", {"enabled": True})
    promise = PromiseSettings(**sections.pop("promise", {}))
    made = make_settings(folder, policy="price", **sections)
    settings = made.model_copy(update={"budget": BudgetSettings(usd=1.0), "promise": promise})
    snapshots.write(settings.paths.snapshot, snapshot)
    holder = StateHolder(settings, load_model=lambda _version: None)
    holder.refresh()
    holder.run_times.current = run_times
    return Answerer(holder, clock=clock or Clock()), holder


def test_a_submission_is_answered_by_the_price(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    answerer, _ = serving(tmp_path, site_of(full_machine()), run_times)
    answered = answerer.answer(ask())
    advice, reply = answered.record.advice, answered.reply
    assert reply.partition == "burst"
    assert advice.hedge is not None
    assert advice.hedge.kind is HedgeKind.SLICE
    assert advice.number("predicted_wait") == pytest.approx(BUSY_SECONDS)
    assert advice.number("predicted_run") == pytest.approx(600.0, rel=0.3)
    assert reply.message is not None
    assert "It would wait about 2 h 00 min here; in the cloud it saves about 1 h" in reply.message
    assert "and an hour may cost 1.00 USD now" in reply.message
    assert answered.record.estimates.run_chances == ()
    assert len(answered.record.estimates.run.quantiles) == 20


def test_submissions_that_stay_lengthen_the_wait_of_the_next(
    tmp_path: Path, run_times: RunTimesOfJobs
) -> None:
    answerer, _ = serving(tmp_path, site_of(full_machine()), run_times)
    wide = ask(min_cpus=MACHINE, comment="no-burst", dry=False)
    waits = []
    for _ in range(3):
        waits.append(answerer.answer(ask(min_cpus=MACHINE, dry=True)).record.estimates)
        answerer.answer(wide)
    planned = [each.planned_wait for each in waits]
    assert planned == pytest.approx([BUSY_SECONDS, BUSY_SECONDS + 3600.0, BUSY_SECONDS + 7200.0])
    run = waits[0].run.seconds  # hers take ten minutes of their hour
    expected = [each.wait.seconds for each in waits]
    assert expected == pytest.approx([BUSY_SECONDS, BUSY_SECONDS + run, BUSY_SECONDS + 2.0 * run])


def test_submissions_since_the_poll_outlive_the_next_poll(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    clock = Clock()
    answerer, holder = serving(tmp_path, site_of(full_machine()), run_times, clock)
    clock.now = NOW + 10.0
    answerer.answer(ask(min_cpus=MACHINE, comment="no-burst"))
    snapshots.write(holder.current.settings.paths.snapshot, site_of(full_machine(), now=NOW + 5.0))
    holder.refresh()
    clock.now = NOW + 12.0
    found = answerer.answer(ask(min_cpus=MACHINE, dry=True)).record.estimates
    assert found.planned_wait == pytest.approx(BUSY_SECONDS + 3600.0 - 12.0)
    assert found.wait.seconds == pytest.approx(BUSY_SECONDS + found.run.seconds - 12.0)


def test_tokens_are_not_spent_twice_between_two_polls(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    answerer, _ = serving(tmp_path, site_of(full_machine(), replace_tokens(0.5)), run_times)
    reasons = [answerer.answer(ask()).reply.reason for _ in range(40)]
    worst = answerer.answer(ask()).record.advice.number("worst_cost")
    assert worst is not None
    moved = sum(reason != Reason.BUDGET_USED_UP for reason in reasons)
    assert 0 < moved == int(0.5 / worst) < 40
    assert set(reasons[moved:]) == {Reason.BUDGET_USED_UP}


def test_times_of_a_user_with_open_promises_are_spread(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    """Such promises are kept or broken together: each has a level of its own, as in the replay."""
    answerer, _ = serving(
        tmp_path, site_of(full_machine()), run_times, promise={"enabled": True}, hedge={"enabled": False}
    )

    def free_in(user: str, *, dry: bool) -> float | None:
        named = ask(comment="by=+9h", user=user, dry=dry)
        return answerer.answer(named).record.advice.number("free_in")

    assert free_in("ann", dry=True) == free_in("ann", dry=False)
    assert free_in("ann", dry=True) != free_in("bob", dry=True)


def replace_tokens(usd: float) -> Price:
    return structs.replace(PRICE, tokens_usd=usd)


@pytest.mark.parametrize(
    ("snapshot", "knows_runs", "reason"),
    [
        (site_of(None), True, Reason.WAIT_UNKNOWN),
        (site_of(full_machine(), now=NOW - 600.0), True, Reason.STATE_UNKNOWN),
        (site_of(full_machine()), False, Reason.RUN_UNKNOWN),
        (site_of(full_machine(), None), True, Reason.PRICE_UNKNOWN),
    ],
)
def test_what_is_not_known_keeps_the_job(
    tmp_path: Path, run_times: RunTimesOfJobs, snapshot: Snapshot, *, knows_runs: bool, reason: Reason
) -> None:
    answerer, _ = serving(tmp_path, snapshot, run_times if knows_runs else None)
    answered = answerer.answer(ask())
    assert (answered.record.advice.placement, answered.reply.reason) == (Placement.ON_PREMISE, reason)


def test_a_waiting_job_is_judged_by_the_wait_that_control_forecasts(
    tmp_path: Path, run_times: RunTimesOfJobs
) -> None:
    answerer, _ = serving(tmp_path, site_of(full_machine()), run_times)
    job = Job(
        job_id=7, submit_time=NOW - 60.0, processors=2, user="alice", queue="onprem", requested_time=3600.0
    )

    def asked(wait: float | None) -> str:
        return answerer.again(AgainRequest(v=VERSION, job=job, wait_seconds=wait)).reply.placement

    assert asked(9000.0) == Placement.BURST
    assert asked(0.0) == asked(None) == Placement.ON_PREMISE


def test_run_times_saved_by_control_are_taken_up(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    answerer, holder = serving(tmp_path, site_of(full_machine()), None)
    ModelStore(folder=holder.current.settings.paths.models).save(RUN_TIMES_KIND, run_times.to_arrays(), {})
    assert answerer.answer(ask(dry=True)).reply.reason == Reason.RUN_UNKNOWN
    holder.refresh()
    assert holder.errors == {}
    assert answerer.answer(ask(dry=True)).reply.placement == Placement.BURST


def test_damaged_run_times_leave_those_in_use(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    _, holder = serving(tmp_path, site_of(full_machine()), run_times)
    damaged = run_times.to_arrays() | {"keys": np.zeros(3)}
    ModelStore(folder=holder.current.settings.paths.models).save(RUN_TIMES_KIND, damaged, {})
    holder.refresh()
    assert holder.run_times.current is run_times
    assert holder.errors == {"run_times.arrays": 1}


def test_a_damaged_queue_in_the_snapshot_keeps_jobs_and_is_counted(
    tmp_path: Path, run_times: RunTimesOfJobs
) -> None:
    torn = SeenQueue(machine=ONPREM, running=b"12345", waiting=b"")
    answerer, holder = serving(tmp_path, site_of(torn), run_times)
    assert sum(holder.errors.values()) >= 1
    assert answerer.answer(ask()).reply.placement == Placement.ON_PREMISE


def test_a_large_array_joins_in_a_bounded_number_of_steps() -> None:
    snapshot = site_of(full_machine())
    queue = QueueForecast(snapshot.queues, profiles_of(snapshot))
    queue.join(Submission(time=NOW, processors=1, tasks=100_000, requested_seconds=60.0))
    job = Job(job_id=0, submit_time=NOW, processors=MACHINE, requested_time=60.0)
    rounds = math.ceil((100_000 - 8) / MACHINE)
    assert queue.waits(job, NOW)[0] == pytest.approx(BUSY_SECONDS + 60.0 * (rounds + 1), rel=0.01)
    (machine,) = queue._machines
    assert all(profile.passes.shape[1] < 30 for profile in machine.of(0))


def test_the_wait_is_that_of_expected_run_times_and_its_interval_is_learned_beside_the_limits(
    tmp_path: Path, run_times: RunTimesOfJobs
) -> None:
    """The machine is taken for two hours by its limit, and for half an hour by what is expected."""
    queue = SeenQueue.of(ONPREM, np.array([[MACHINE, NOW, BUSY_SECONDS, 1800.0]]), np.empty((0, 3)))
    answerer, _ = serving(tmp_path, site_of(queue), run_times)
    found = answerer.answer(ask(dry=True)).record.estimates
    assert found.wait.seconds == 1800.0
    assert found.planned_wait == found.plan.seconds == BUSY_SECONDS
    assert (found.plan.lower, found.plan.upper) == (found.wait.lower, found.wait.upper)
    assert found.wait.upper == pytest.approx(run_times.intervals.wait(BUSY_SECONDS).upper)
    assert found.wait.variance == run_times.errors.wait(1800.0).variance


def test_the_admin_comment_has_the_forecast_wait_and_its_interval(
    tmp_path: Path, run_times: RunTimesOfJobs
) -> None:
    answerer, _ = serving(tmp_path, site_of(full_machine()), run_times, promise={"enabled": True})
    answered = answerer.answer(ask(dry=True, comment="by=+30d"))
    wait = answered.record.estimates.wait
    comment = json.loads(answered.reply.admin_comment)
    assert comment["why"].startswith("promise.")
    assert comment["wait"] == pytest.approx([wait.seconds, wait.lower, wait.upper], rel=1e-3)
    assert comment["n"]["deadline_in"] == 30 * 86_400  # to the second: it is shown to the minute
    stays = answerer.answer(ask(dry=True, comment="no-burst"))
    assert "wait" not in json.loads(stays.reply.admin_comment)


def test_a_job_that_is_asked_about_again_has_a_plan_too(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    answerer, _ = serving(tmp_path, site_of(full_machine()), run_times)
    job = Job(
        job_id=7, submit_time=NOW - 60.0, processors=2, user="alice", queue="onprem", requested_time=3600.0
    )
    again = AgainRequest(v=VERSION, job=job, wait_seconds=1800.0, planned_wait_seconds=BUSY_SECONDS)
    found = answerer.again(again).record.estimates
    assert (found.wait.seconds, found.plan.seconds) == (1800.0, BUSY_SECONDS)
    assert found.wait.upper == pytest.approx(run_times.intervals.wait(BUSY_SECONDS).upper)


def test_a_job_that_a_rule_keeps_here_joins_the_queue_for_as_long_as_it_is_expected_to_run(
    tmp_path: Path, run_times: RunTimesOfJobs
) -> None:
    answerer, _ = serving(tmp_path, site_of(full_machine()), run_times)
    kept = ask(user="alice", min_cpus=MACHINE, time_limit=600, comment="no-burst")
    assert answerer.answer(kept).reply.placement == Placement.ON_PREMISE
    behind = answerer.answer(ask(dry=True, min_cpus=MACHINE)).record.estimates
    assert behind.planned_wait == pytest.approx(BUSY_SECONDS + 36_000.0, rel=0.01)
    assert BUSY_SECONDS + 60.0 < behind.wait.seconds < BUSY_SECONDS + 7200.0


def test_a_promise_looks_at_both_plans_of_the_wait(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    short, to_limits = (
        SeenQueue.of(ONPREM, np.array([[MACHINE, NOW, BUSY_SECONDS, run]]), np.empty((0, 3)))
        for run in (1800.0, BUSY_SECONDS)
    )
    free = []
    for name, queue in (("short", short), ("limits", to_limits)):
        (tmp_path / name).mkdir()
        answerer, _ = serving(tmp_path / name, site_of(queue), run_times, promise={"enabled": True})
        free.append(answerer.answer(ask(dry=True, comment="by=+9h")).record.advice.values()["free_in"])
    assert 0.5 * BUSY_SECONDS < free[0] < free[1]


def test_intervals_that_control_has_learned_are_those_of_the_answers(tmp_path: Path) -> None:
    known = learned()
    for _ in range(3000):
        known.intervals.learn_wait(known.intervals.wait(BUSY_SECONDS), 0.5 * BUSY_SECONDS)
        known.errors.learn_wait(known.errors.wait(BUSY_SECONDS), 0.5 * BUSY_SECONDS)
        known.intervals.learn_run(Estimate(seconds=600.0, variance=0.0, lower=500.0, upper=700.0), 900.0)
    answerer, holder = serving(tmp_path, site_of(full_machine()), learned())
    first = answerer.answer(ask(dry=True)).record.estimates
    ModelStore(folder=holder.current.settings.paths.models).save(RUN_TIMES_KIND, known.to_arrays(), {})
    holder.refresh()
    found = answerer.answer(ask(dry=True)).record.estimates
    assert first.wait.seconds == found.wait.seconds == BUSY_SECONDS
    assert first.wait.lower < 0.1 * BUSY_SECONDS < 0.4 * BUSY_SECONDS < found.wait.lower
    assert found.wait.deviation < first.wait.deviation
    assert found.run.seconds == first.run.seconds
    assert found.run.upper > first.run.upper


def test_a_distribution_as_an_estimate() -> None:
    chances = np.zeros(BINS)
    chances[[bin_of(60.0), bin_of(5000.0)]] = 0.5
    found = estimate_of(chances, math.inf)
    middles = [math.sqrt(GRID[k - 1] * GRID[k]) for k in (bin_of(60.0), bin_of(5000.0))]
    assert found.seconds == pytest.approx(np.mean(middles))
    assert found.deviation == pytest.approx(np.std(middles))
    assert found.lower < 65.0
    assert 3500.0 < found.quantiles[15] < found.upper
    assert estimate_of(chances, 1000.0).upper == 1000.0
    assert not estimate_of(np.full(BINS, math.nan), math.inf).is_usable
