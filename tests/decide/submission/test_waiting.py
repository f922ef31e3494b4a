"""Question 3 on hand-computed cases (Ambati et al. 2021, section 2.1)."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.wording import sentence
from advisor.decide.submission.advise import advise
from advisor.decide.submission.cloud_terms import cost_usd
from advisor.decide.submission.waiting import short_chance_of
from advisor.model.advice import Capacity, Placement, Verdict
from advisor.model.estimate import Estimate, Estimates
from advisor.model.site import SiteState
from tests.decide.cases import CLUSTER, NAN, ask, make_cloud, make_estimates, make_job, make_settings

# 4 processors, s = 1, boot 0, spot at 0.10 USD a core hour, one hour: 0.40 USD.
CHEAP = {"placement": {"overhead_per_processor": 0.0, "boot_seconds": 0.0}}
PRICED = make_cloud(spot_usd_per_core_hour=0.10, on_demand_usd_per_core_hour=0.30)


def answers(estimates=None, *, job=None, cloud=PRICED, budget=None, **waiting):
    gated = {"short_wait_seconds", "long_job_seconds"} & waiting.keys()
    cluster = {"policy": "ambati2021" if gated else "cunha2017"}
    settings = make_settings(**CHEAP, cluster=cluster, waiting=waiting, budget=budget or {})
    advice = ask(job, estimates, cloud=cloud, settings=settings)
    return advice, advice.answers[2]


@pytest.mark.parametrize(("wait", "reason"), [(899.0, Reason.SHORT_WAIT), (900.0, Reason.WORTH_PAYING)])
def test_short_waits_wait(wait, reason):
    advice, answer = answers(make_estimates(wait=wait), short_wait_seconds=900.0)
    assert answer.reason == reason
    assert (advice.placement is Placement.ON_PREMISE) == (reason is Reason.SHORT_WAIT)


@pytest.mark.parametrize(
    ("run", "reason"),
    [(86401.0, Reason.LONG_JOB), (86400.0, Reason.WORTH_PAYING), (NAN, Reason.LENGTH_UNKNOWN)],
)
def test_long_jobs_wait(run, reason):
    _, answer = answers(make_estimates(run=run), job=make_job(requeue=False), long_job_seconds=86400.0)
    assert answer.reason == reason
    assert (answer.verdict is Verdict.UNSURE) == (reason is Reason.LENGTH_UNKNOWN)


@pytest.mark.parametrize(
    ("spent", "reason"),
    [(0.60, Reason.WORTH_PAYING), (0.61, Reason.BUDGET_SPENT), (5.0, Reason.BUDGET_SPENT)],
)
def test_the_budget_counts_this_job(spent, reason):
    cloud = make_cloud(spot_usd_per_core_hour=0.10, spent_usd=spent)
    advice, answer = answers(cloud=cloud, budget={"usd": 1.0})
    assert answer.reason == reason
    assert dict(answer.numbers)["predicted_cost"].value == pytest.approx(0.40)
    assert (advice.placement is Placement.ON_PREMISE) == (reason is Reason.BUDGET_SPENT)


def test_day_one_10_spent_and_promised_are_two_words():
    cloud = make_cloud(spot_usd_per_core_hour=0.10, spent_usd=0.25, promised_usd=0.5)
    _, answer = answers(cloud=cloud, budget={"usd": 1.0})
    assert answer.reason == Reason.BUDGET_SPENT
    assert sentence(answer).startswith(
        "Of the budget of 1.00 USD, 0.25 USD are spent and 0.50 USD promised; "
    )
    cloud = make_cloud(
        spot_usd_per_core_hour=0.10, spent_by_account={"chem": 0.7}, promised_by_account={"chem": 0.1}
    )
    _, answer = answers(job=make_job(account="chem"), cloud=cloud, budget={"accounts": {"chem": 1.0}})
    assert "budget of account chem, 1.00 USD, 0.70 USD are spent and 0.10 USD promised" in sentence(answer)


@pytest.mark.parametrize(
    ("account", "reason"), [("chem", Reason.ACCOUNT_BUDGET_SPENT), ("bio", Reason.WORTH_PAYING)]
)
def test_budgets_of_accounts(account, reason):
    cloud = make_cloud(spot_usd_per_core_hour=0.10, spent_by_account={"chem": 0.7, "bio": 0.7})
    job = make_job(account=account)
    _, answer = answers(job=job, cloud=cloud, budget={"accounts": {"chem": 1.0}})
    assert answer.reason == reason
    if reason is Reason.ACCOUNT_BUDGET_SPENT:
        assert answer.detail == "account chem"


def test_budgets_of_users_and_of_any_other_account():
    cloud = make_cloud(spot_usd_per_core_hour=0.10, spent_by_account={"user ann": 0.7, "bio": 0.7})
    budget = {"accounts": {"chem": 9.0, "*": 1.0}, "users": {"ann": 1.0, "eve": 0.0}}

    def reason(**job):
        return answers(job=make_job(**job), cloud=cloud, budget=budget)[1]

    assert reason(account="chem", user="ann").detail == "user ann"
    assert reason(account="bio", user="bob").detail == "account bio"
    assert reason(account="chem", user="eve").reason == Reason.ACCOUNT_BUDGET_SPENT, "0: nothing is theirs"
    assert reason(account="chem", user="bob").reason == Reason.WORTH_PAYING


def test_a_job_without_account_is_only_under_the_sites_budget():
    _, answer = answers(budget={"accounts": {"chem": 0.01}})
    assert answer.reason == Reason.WORTH_PAYING


def test_no_gate_is_skipped_and_says_the_cost():
    _, answer = answers()
    assert answer.verdict is Verdict.SKIPPED
    assert dict(answer.numbers)["predicted_cost"].value == pytest.approx(0.40)


def test_a_cost_that_is_unknown_is_doubt_under_a_budget_only():
    unknown = make_estimates(run=NAN)
    assert answers(unknown, budget={"usd": 1e9})[1].reason == Reason.COST_UNKNOWN
    assert answers(unknown)[0].placement is Placement.BURST


@pytest.mark.parametrize("spent", [1.0, 1.5])
def test_reserved_nodes_cost_nothing_more(spent):
    cloud = make_cloud(reserved_free_nodes=4, spent_usd=spent)
    advice, answer = answers(make_estimates(run=NAN), cloud=cloud, budget={"usd": 1.0})
    assert answer.reason == Reason.WORTH_PAYING
    assert advice.capacity is Capacity.RESERVED


HOUR = 3600.0
COMPOUND = {"short_wait_seconds": 24 * HOUR, "long_job_seconds": 900.0}


def moves(estimates, *, waited=0.0, cloud=PRICED, **waiting):
    """Of a job that may not be tried out."""
    settings = make_settings(**CHEAP, cluster={"policy": "ambati2021"}, waiting=COMPOUND | waiting)
    advice = advise(
        make_job(submit_time=1000.0 - waited, requeue=False),
        SiteState(time=1000.0, cluster=CLUSTER, cloud=cloud),
        estimates,
        settings,
        advice_id="a",
    )
    return advice.placement is Placement.BURST


def test_seeds_3_short_jobs_never_wait_and_nobody_longer_than_b():
    """t = 15 min, b = 24 h: the paper's baseline, where the advisor did the opposite in both cases."""
    assert moves(make_estimates(wait=2 * HOUR, run=300.0))
    assert moves(make_estimates(wait=28 * HOUR, run=10 * HOUR))
    assert not moves(make_estimates(wait=2 * HOUR, run=10 * HOUR))
    # of an unknown length: it waits, and no longer than b either
    assert not moves(make_estimates(wait=2 * HOUR, run=NAN))
    assert moves(make_estimates(wait=28 * HOUR, run=NAN))


def test_g17_12_nobody_waits_longer_than_b_whatever_is_forecast():
    wrong = make_estimates(wait=60.0, run=10 * HOUR)
    assert not moves(wrong, waited=24 * HOUR - 61.0)
    assert moves(wrong, waited=24 * HOUR)
    assert moves(make_estimates(wait=NAN, run=NAN), waited=24 * HOUR)
    assert not moves(make_estimates(wait=NAN, run=NAN), waited=23 * HOUR)
    # without b nobody is promised anything
    assert not moves(make_estimates(wait=NAN, run=NAN), waited=999 * HOUR, short_wait_seconds=0.0)


@pytest.mark.parametrize("gates", [COMPOUND, {"short_wait_seconds": 24 * HOUR}])
def test_a_wait_that_is_not_known_is_not_said_to_be_short(gates):
    settings = make_settings(**CHEAP, cluster={"policy": "ambati2021"}, waiting=gates)
    answer = ask(estimates=make_estimates(wait=NAN, run=10 * HOUR), settings=settings).decisive
    assert (answer.verdict, answer.reason) == (Verdict.UNSURE, Reason.WAIT_UNKNOWN)
    assert "in_time_probability" not in dict(answer.numbers)
    answer = ask(estimates=make_estimates(wait=HOUR, run=10 * HOUR), settings=settings).decisive
    assert (answer.verdict, dict(answer.numbers)["in_time_probability"].value) == (Verdict.NO, 1.0)


def test_the_wait_gate_asks_the_distribution():
    """P(wait > b) and not the mean: two in three start within b, the third waits for a week."""
    waits = Estimate(seconds=60 * HOUR, variance=1.0, quantiles=(HOUR, 2 * HOUR, 168 * HOUR))
    runs = Estimate(seconds=10 * HOUR, variance=1.0, quantiles=(9 * HOUR, 10 * HOUR, 11 * HOUR))
    assert not moves(Estimates(wait=waits, run=runs))
    late = replace(waits, quantiles=(HOUR, 40 * HOUR, 168 * HOUR))
    assert moves(Estimates(wait=late, run=runs))


@pytest.mark.parametrize(
    ("limit", "chance"),
    [(50.0, 0.05), (100.0, 0.05), (300.0, 0.275), (500.0, 0.5), (700.0, 0.725), (9e9, 0.95)],
)
def test_a_run_known_by_its_interval_is_short_with_a_chance_between(limit, chance):
    run = Estimate(seconds=500.0, variance=1.0, lower=100.0, upper=900.0, coverage=0.9)
    assert short_chance_of(run, limit) == pytest.approx(chance)


def test_g17_13_no_gate_leaves_a_paid_node_idle():
    """Four reserved nodes idle: a long job, and one with a short wait, waited beside them."""
    idle = make_cloud(reserved_free_nodes=4)
    long, soon = make_estimates(wait=2 * HOUR, run=10 * HOUR), make_estimates(wait=600.0, run=HOUR)
    for estimates in (long, soon):
        assert not moves(estimates)
        assert moves(estimates, cloud=idle)
    assert not moves(long, cloud=make_cloud(reserved_free_nodes=3))  # of unknown size: one core each


def test_cost_by_hand():
    settings = make_settings(placement={"boot_seconds": 600.0}, ec2={"on_demand_usd_per_hour": 0.8})
    # 10 processors on nodes of 4: three nodes, 12 cores billed for (3000 + 600) s = 1 h at 0.2 USD; 5 tasks.
    cloud = make_cloud(processors_per_node=4)
    job = make_job(processors=10, array_tasks=5)
    assert cost_usd(job, 3000.0, Capacity.ON_DEMAND, cloud, settings) == pytest.approx(12 * 0.2 * 5)
    # Size of a node unknown: each core pays for a whole instance.
    assert cost_usd(job, 3000.0, Capacity.ON_DEMAND, make_cloud(), settings) == pytest.approx(10 * 0.8 * 5)
    assert cost_usd(job, 3000.0, Capacity.RESERVED, cloud, settings) == 0.0
    assert math.isnan(cost_usd(job, NAN, Capacity.SPOT, cloud, settings))
