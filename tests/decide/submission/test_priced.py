"""The one price at a submission: what moves, how it is bought, what it says."""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.display import quantity
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment, message
from advisor.decide.explanation.wording import explanation, recorded_explanation, why_sentence, would_message
from advisor.decide.price.slices import CloudOffer, best_slice
from advisor.decide.submission.priced import saving_deviation
from advisor.model.advice import Advice, Capacity, HedgeKind, Placement, Quantity, Question, Verdict
from advisor.model.estimate import Estimate, Estimates
from advisor.model.settings import Settings
from advisor.model.site import PerformanceRatios, Price, Ratio, Refill
from advisor.predict.run_times.grid import BINS, GRID, bin_of
from tests.decide.cases import ask, make_cloud, make_job, make_settings

USD_PER_CORE_HOUR = 0.05
PRICE = Price(seconds_per_usd=3600.0, tokens_usd=100.0)


def chances_of(*runs: tuple[float, float]) -> tuple[float, ...]:
    """Probabilities by bin, from run times in seconds with their shares."""
    found = np.zeros(BINS)
    for seconds, share in runs:
        found[bin_of(seconds)] += share
    return tuple(found.tolist())


def estimates_of(
    wait: float = 7200.0, chances: tuple[float, ...] | None = None, *, wait_variance: float = 100.0
) -> Estimates:
    chances = chances_of((600.0, 0.9), (36_000.0, 0.1)) if chances is None else chances
    mean = math.fsum(p * e for p, e in zip(chances, GRID, strict=True)) if chances else math.nan
    return Estimates(
        wait=Estimate(seconds=wait, variance=wait_variance),
        run=Estimate(seconds=mean, variance=1e6),
        run_chances=chances,
    )


def priced(**sections: dict[str, Any]) -> Settings:
    return make_settings(cluster={"policy": "price"}, **{"budget": {"usd": 1.0}} | sections)


HEDGING = {"enabled": True}


def offered(price: Price | None = PRICE, estimates: Estimates | None = None, **rest: Any) -> Advice:
    settings = rest.pop("settings", None) or priced(hedge=HEDGING)
    cloud = rest.pop("cloud", None) or make_cloud(
        on_demand_usd_per_core_hour=USD_PER_CORE_HOUR, spot_usd_per_core_hour=USD_PER_CORE_HOUR / 3.0
    )
    ratios = rest.pop("ratios", None)
    job = make_job(**{"requested_time": 86_400.0} | rest)
    return ask(job, estimates or estimates_of(), settings=settings, cloud=cloud, price=price, ratios=ratios)


def test_a_job_that_may_be_requeued_gets_the_best_slice_and_keeps_its_place() -> None:
    advice = offered()
    assert advice.placement is Placement.BURST
    assert advice.hedge is not None
    assert advice.hedge.kind is HedgeKind.SLICE
    best = best_slice(
        np.array(estimates_of().run_chances),
        GRID,
        limit=86_400.0,
        elapsed=0.0,
        wait=7200.0,
        offer=CloudOffer(120.0, 1.04, 4 * USD_PER_CORE_HOUR / 3.0 / 3600.0, 120.0, is_whole=False),
        loss_weight=1.0,
    )
    assert advice.hedge.stop_seconds == pytest.approx(1.04 * best.stop)
    assert advice.hedge.stop_seconds < 1000.0  # the long tenth is not paid for
    assert advice.number("predicted_saving") == pytest.approx(best.saving)
    assert advice.number("slice_chance") == pytest.approx(0.9)


def test_a_long_job_with_checkpoints_gets_the_time_until_its_turn() -> None:
    """Without them the time in which it does not end would be paid in vain."""
    long = estimates_of(chances=chances_of((600.0, 0.01), (6000.0, 0.01), (80_000.0, 0.98)))
    assert offered(estimates=long).placement is Placement.ON_PREMISE
    advice = offered(estimates=long, comment="checkpoint=10min")
    assert advice.hedge is not None
    assert 4000.0 < advice.hedge.stop_seconds < 8000.0
    saving = advice.number("predicted_saving")
    assert saving is not None
    assert 0.5 * 7200.0 < saving < 7200.0
    assert "work that a new start loses at most" in explanation(advice)


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        ({"requeue": False}, priced(hedge=HEDGING)),
        ({}, priced()),  # no helper keeps places
        ({"comment": "no-hedge"}, priced(hedge=HEDGING)),
        ({"array_tasks": 3}, priced(hedge=HEDGING)),
    ],
)
def test_any_other_job_is_bought_whole(job: dict[str, Any], settings: Settings) -> None:
    short = estimates_of(chances=chances_of((600.0, 1.0)))
    advice = offered(estimates=short, settings=settings, **job)
    assert (advice.placement, advice.hedge) == (Placement.BURST, None)
    assert advice.number("slice") is None


def test_capacity_is_reserved_then_spot_then_on_demand() -> None:
    dear = Price(seconds_per_usd=1e9, tokens_usd=0.0)
    assert offered(dear, cloud=make_cloud(reserved_free_nodes=50)).capacity is Capacity.RESERVED
    assert offered().capacity is Capacity.SPOT
    assert offered(requeue=False).capacity is Capacity.ON_DEMAND


def test_a_job_whose_hour_is_too_dear_stays() -> None:
    value = 3600.0 / offered().values()["hour_costs"]
    assert offered(Price(seconds_per_usd=0.99 * value, tokens_usd=100.0)).placement is Placement.BURST
    advice = offered(Price(seconds_per_usd=1.01 * value, tokens_usd=100.0))
    assert (advice.placement, advice.decisive.reason) == (Placement.ON_PREMISE, Reason.TOO_DEAR)


def test_tokens_cover_the_worst_case() -> None:
    worst = offered().values()["worst_cost"]
    assert worst > offered().values()["predicted_cost"] > 0.0
    assert offered(replace(PRICE, tokens_usd=worst)).placement is Placement.BURST
    advice = offered(replace(PRICE, tokens_usd=0.99 * worst))
    assert (advice.placement, advice.decisive.reason) == (Placement.ON_PREMISE, Reason.BUDGET_USED_UP)


def test_the_worst_case_of_a_whole_run_is_its_limit_there() -> None:
    """The launch holds the money for that limit: a start that it would refuse is not advised."""
    unsure = Ratio(factor=1.2, deviation=0.8, jobs=9)
    ratios = PerformanceRatios(overhead=0.0, baseline=1.2, deviation=0.8, jobs=9, applications={"md": unsure})
    terms: dict[str, Any] = {"requeue": False, "explicit_time_limit": True, "requested_time": 7200.0}
    learned = offered(ratios=ratios, name="md", **terms)
    assert learned.time_limit is not None
    given = learned.time_limit.given_seconds
    assert given > 1.2 * 7200.0
    paid_seconds = 120.0 + given + 60.0
    assert learned.values()["worst_cost"] == pytest.approx(4 * USD_PER_CORE_HOUR / 3600.0 * paid_seconds)


def test_a_faster_cloud_leaves_a_whole_run_its_own_limit() -> None:
    fast = PerformanceRatios(overhead=0.0, baseline=0.5, deviation=0.1, jobs=9)
    terms: dict[str, Any] = {"requeue": False, "explicit_time_limit": True, "requested_time": 7200.0}
    worst = offered(ratios=fast, **terms).values()["worst_cost"]
    assert worst == pytest.approx(4 * USD_PER_CORE_HOUR / 3600.0 * (120.0 + 7200.0 + 60.0))


def test_a_cloud_that_may_be_faster_is_believed_as_far_as_it_is_sure() -> None:
    def ratio(factor: float, deviation: float) -> float:
        found = PerformanceRatios(overhead=0.0, baseline=factor, deviation=deviation, jobs=9)
        return offered(ratios=found).values()["performance_ratio"]

    configured = offered().values()["performance_ratio"]
    assert ratio(0.5, 0.1) == pytest.approx(0.5 * math.exp(0.1))
    assert ratio(0.5, 3.0) == configured
    assert ratio(2.0, 3.0) == 2.0


def test_the_worst_case_of_spot_is_a_launch_on_demand_where_spot_has_no_room() -> None:
    """The launch promises that price (`BudgetGuard`): with less it would be put aside."""
    advice = offered()
    assert advice.capacity is Capacity.SPOT
    assert advice.hedge is not None
    on_demand = offered(settings=priced(hedge=HEDGING, capacity={"use_spot": False}))
    assert on_demand.hedge == advice.hedge
    assert advice.values()["worst_cost"] == on_demand.values()["worst_cost"]
    assert advice.values()["predicted_cost"] == pytest.approx(on_demand.values()["predicted_cost"] / 3.0)
    paid_seconds = 120.0 + advice.hedge.stop_seconds + 60.0
    worst = 4 * USD_PER_CORE_HOUR / 3600.0 * paid_seconds
    assert offered(replace(PRICE, tokens_usd=1.001 * worst)).placement is Placement.BURST
    assert offered(replace(PRICE, tokens_usd=0.999 * worst)).decisive.reason == Reason.BUDGET_USED_UP


def test_a_slice_that_the_tokens_do_not_cover_gives_way_to_a_shorter_one() -> None:
    runs = estimates_of(chances=chances_of((600.0, 0.1), (3000.0, 0.8), (36_000.0, 0.1)))
    best = offered(estimates=runs)
    assert best.hedge is not None
    short = replace(PRICE, tokens_usd=0.5 * best.values()["worst_cost"])
    left = replace(short, share_by_account=MappingProxyType({"chem": 0.49}))
    assert offered(left, runs, account="bio").decisive.reason == Reason.BUDGET_USED_UP
    shorter = offered(left, runs, account="chem")
    assert shorter.hedge is not None
    assert 600.0 < shorter.hedge.stop_seconds < best.hedge.stop_seconds
    assert shorter.values()["worst_cost"] <= short.tokens_usd
    assert shorter.number("slice_chance") == pytest.approx(0.1)
    whole = offered(left, runs, account="chem", requeue=False)
    assert whole.decisive.reason == Reason.BUDGET_USED_UP
    dear = replace(left, seconds_per_usd=2.0 * 3600.0 / best.values()["hour_costs"])
    assert offered(replace(dear, tokens_usd=100.0), runs, account="chem").placement is Placement.BURST
    refused = offered(dear, runs, account="chem")  # the shorter slice saves less for its money
    assert refused.decisive.reason == Reason.BUDGET_USED_UP
    assert refused.values()["worst_cost"] == best.values()["worst_cost"]


def test_a_budget_that_is_used_up_says_when_there_is_enough() -> None:
    worst = offered().values()["worst_cost"]
    refill = Refill(usd_per_second=worst / 7200.0, most_usd=2 * worst, period_ends=90_000.0, next_usd=worst)
    price = replace(PRICE, tokens_usd=0.0, refill=refill)
    advice = offered(price)
    assert advice.decisive.reason == Reason.BUDGET_USED_UP
    assert "there is enough in 2 h 00 min at the latest, if nothing else is spent" in explanation(advice)
    half = replace(price, tokens_usd=worst / 2)
    assert offered(half).values()["enough_in"] == pytest.approx(3600.0)
    assert offered(half.committed(worst / 2, {})).values()["enough_in"] == pytest.approx(7200.0)
    until_next = replace(price, refill=replace(refill, usd_per_second=0.0, most_usd=0.0))
    assert offered(until_next).values()["enough_in"] == 90_000.0 - advice.time
    never = replace(until_next, refill=replace(until_next.refill, next_usd=0.9 * worst))
    assert "enough_in" not in offered(never).values()
    assert "are free at the moment." in explanation(offered(never))
    small = priced(hedge=HEDGING, budget={"usd": 0.5 * worst, "period": "day"})
    said = explanation(offered(never, settings=small))
    assert f"the budget of a whole period is {quantity(Quantity(0.5 * worst, 'USD'))}: there is never" in said
    account = replace(price, tokens_by_account=MappingProxyType({"chem": -1.0}))
    assert "enough_in" not in offered(account, account="chem").values()


def test_an_accounts_tokens_bind_its_jobs_alone() -> None:
    price = replace(PRICE, tokens_by_account=MappingProxyType({"chem": 0.0}))
    advice = offered(price, account="chem")
    assert advice.decisive.reason == Reason.PAYER_BUDGET_USED_UP
    assert "0.00 USD of the budget of account chem are free" in explanation(advice)
    assert offered(price, account="physics").placement is Placement.BURST


def test_an_hour_may_cost_more_for_an_account_that_has_spent_less_than_evenly() -> None:
    value = 3600.0 / offered().values()["hour_costs"]
    price = Price(
        seconds_per_usd=1.5 * value, tokens_usd=100.0, share_by_account=MappingProxyType({"chem": 0.5})
    )
    assert offered(price, account="bio").decisive.reason == Reason.TOO_DEAR
    advice = offered(price, account="chem")
    assert advice.placement is Placement.BURST
    assert advice.values()["hour_may_cost"] == pytest.approx(3600.0 / (0.75 * value))


def test_without_a_price_nothing_moves() -> None:
    assert offered(None).decisive.reason == Reason.PRICE_UNKNOWN


def test_without_a_budget_nothing_moves_and_why_says_so() -> None:
    for price in (PRICE, None):
        advice = offered(price, settings=priced(budget={}))
        assert advice.placement is Placement.ON_PREMISE
        assert advice.decisive.question is Question.WORTH_PAYING, "what it saves is forecast"
        assert "No budget is set" in explanation(advice)
    assert offered(settings=priced(budget={"usd_per_hour_saved": 1.0})).placement is Placement.BURST


def test_a_job_that_starts_here_at_once_stays() -> None:
    assert offered(estimates=estimates_of(wait=0.0)).decisive.reason == Reason.SAVES_NO_TIME


def test_an_uncertain_saving_keeps_a_job_where_the_site_sets_a_limit() -> None:
    def limited(minutes: float) -> Advice:
        settings = priced(hedge=HEDGING, price={"uncertainty_limit_minutes": minutes})
        return offered(settings=settings)

    deviation = limited(1e6).values()["saving_deviation"]
    assert limited(1.01 * deviation / 60.0).placement is Placement.BURST
    advice = limited(0.99 * deviation / 60.0)
    assert (advice.placement, advice.decisive.reason) == (Placement.ON_PREMISE, Reason.TOO_UNCERTAIN)


def test_a_lost_hour_weighs_more_where_the_site_says_so() -> None:
    doubtful = estimates_of(wait=400.0, chances=chances_of((60.0, 0.5), (80_000.0, 0.5)))
    easy = Price(seconds_per_usd=0.0, tokens_usd=math.inf)
    fast = {"overhead_per_processor": 0.0, "baseline": 1.005}

    def weighed(weight: float) -> Advice:
        settings = priced(placement=fast, price={"loss_weight": weight})
        return offered(easy, doubtful, settings=settings)

    assert weighed(1.0).placement is Placement.BURST
    assert weighed(10.0).decisive.reason == Reason.SAVES_NO_TIME


def test_the_deviation_is_that_of_what_a_slice_saves() -> None:
    chances = np.array(chances_of((600.0, 0.8), (36_000.0, 0.2)))
    low, high = GRID[bin_of(600.0) - 1], GRID[bin_of(600.0)]
    run = math.sqrt(low * high)
    saved = np.where(np.random.default_rng(1).random(400_000) < 0.8, 1.0, 0.0)
    waits = np.random.default_rng(2).normal(7200.0, 900.0, 400_000)
    expected = float(np.std(saved * (waits + run - 120.0 - 1.1 * run)))
    found = saving_deviation(chances, GRID, float(high), 86_400.0, 7200.0, 810_000.0, 120.0, 1.1)
    assert found == pytest.approx(expected, rel=0.01)
    assert math.isnan(saving_deviation(chances, GRID, float(high), 86_400.0, 7200.0, math.nan, 120.0, 1.1))


def test_the_line_of_an_array_says_that_each_task_saves_and_all_cost() -> None:
    one, three = offered(requeue=False), offered(requeue=False, array_tasks=3)
    cost = three.number("predicted_cost") or 0.0
    assert cost == pytest.approx(3.0 * (one.number("predicted_cost") or 0.0))
    said = message(three, tasks=3)
    assert said is not None
    money = quantity(Quantity(cost, "USD"))
    assert f"for each of its 3 tasks, for {money} in all, and an hour may cost 1.00 USD now" in said
    assert "each of its" not in (message(one) or "")


def test_the_sentences_say_saving_money_and_price() -> None:
    advice = offered()
    said = why_sentence(advice)
    assert said.startswith("It would wait about 2 h 00 min here; in the cloud it saves about 1 h")
    assert said.endswith("and an hour may cost 1.00 USD now.")
    printed = message(advice, opt_out_comment="no-burst")
    assert printed is not None
    assert said.removesuffix(".") in printed
    assert printed.endswith("To stay: --comment=no-burst")
    assert "after 13 min, and when its slot is free, it is decided whether it goes on" in printed
    recorded = parse_admin_comment(admin_comment(advice))
    assert recorded is not None
    assert said in recorded_explanation(recorded)
    paid_for = offered(cloud=make_cloud(reserved_free_nodes=50))
    assert why_sentence(paid_for).endswith("on nodes that are paid for already.")


amounts = st.floats(0, 1e6) | st.sampled_from([math.nan, math.inf, 0.0])
some_chances = st.sampled_from(
    [
        (),
        (0.0,) * BINS,
        (math.nan,) * BINS,
        chances_of((30.0, 0.5), (5000.0, 0.5)),
        chances_of((600.0, 1.0)),
    ]
)
prices = st.none() | st.builds(Price, seconds_per_usd=amounts, tokens_usd=amounts)


@given(
    price=prices,
    wait=amounts,
    chances=some_chances,
    limit=st.sampled_from([None, 60.0, 86_400.0]),
    requeue=st.sampled_from([None, True, False]),
    hedging=st.booleans(),
    tasks=st.integers(1, 4),
)
def test_no_job_moves_without_tokens_and_none_in_slices_that_may_not_be_requeued(
    price: Price | None,
    wait: float,
    chances: tuple[float, ...],
    limit: float | None,
    *,
    requeue: bool | None,
    hedging: bool,
    tasks: int,
) -> None:
    estimates = estimates_of(wait, chances)
    settings = priced(hedge={"enabled": hedging})
    advice = offered(
        price, estimates, settings=settings, requested_time=limit, requeue=requeue, array_tasks=tasks
    )
    if requeue is False or not hedging or tasks > 1:
        assert advice.hedge is None
    if math.isnan(wait) or not chances or math.isnan(chances[0]) or not sum(chances):
        assert advice.placement is Placement.ON_PREMISE
    if advice.placement is Placement.BURST:
        assert price is not None
        assert advice.values()["worst_cost"] <= price.tokens_usd
        assert not math.isnan(price.seconds_per_usd + price.tokens_usd)
        assert advice.values()["predicted_saving"] > 0.0
    else:
        assert advice.decisive.verdict is not Verdict.YES


def test_a_user_reads_that_the_cost_is_that_of_all_tasks_where_the_job_stays_as_well() -> None:
    cluster = {"policy": "price", "default_mode": "advise"}
    settings = make_settings(cluster=cluster, budget={"usd": 1.0})
    advice = offered(settings=settings, array_tasks=1_000, price=Price(seconds_per_usd=1.0, tokens_usd=1e6))
    said = would_message(advice, make_job(array_tasks=1_000), settings.cluster)
    assert said is not None
    assert re.search(r"saves about .* for each of its 1,000 tasks, for [\d.,]+ USD in all", said)


def test_a_user_whose_job_has_no_time_limit_reads_that_one_lets_it_move() -> None:
    advice = offered(requested_time=None, settings=priced())
    assert advice.decisive.reason == Reason.NO_TIME_LIMIT
    recorded = parse_admin_comment(admin_comment(advice))
    assert recorded is not None
    for said in (explanation(advice), recorded_explanation(recorded)):
        assert "and 100.00 USD of the budget are free at the moment. With `--time` it may move." in said
    fixed = offered(replace(PRICE, tokens_usd=math.inf), requested_time=None, settings=priced())
    assert fixed.placement is Placement.BURST
    # of slices the account has money for
    left = Price(
        seconds_per_usd=3600.0,
        tokens_usd=1.0,
        tokens_by_account=MappingProxyType({"bio": 1.0}),
        share_by_account=MappingProxyType({"bio": 0.4}),
    )
    runs = estimates_of(chances=chances_of((600.0, 1.0)))
    sliced = offered(left, runs, requested_time=None, account="bio")
    assert sliced.hedge is not None
    assert math.isfinite(sliced.hedge.stop_seconds)
