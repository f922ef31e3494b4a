"""Who leads: the champion by score and days, a selection by evidence; by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.decide.portfolio.portfolio_lead import Leader, champions_of, leaders_of
from advisor.decide.portfolio.portfolio_options import CHAMPION, Options
from advisor.simulate.portfolio.cluster import Runtimes
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED
from tests.decide.portfolio_days import DAILY, checkpoints, days, evidence_of


def test_champions_start_from_the_prior_and_follow_the_scores():
    before = np.concatenate([checkpoints(0.5), checkpoints(0.6)])
    champions = champions_of([checkpoints(0.5, 0.9), checkpoints(0.5, 0.5)], before, Options())
    assert champions.tolist() == [1, 1, 0]


def test_how_many_nodes_to_keep_warm_is_learnt_sooner():
    """A prior of 500 jobs says one node, one of 100 jobs is soon outweighed by what three nodes make."""
    policies = PUBLISHED[:1] + BEYOND[1:4]
    options = Options(policies=policies, runtimes=Runtimes.PREDICTED)
    before = np.concatenate([50.0 * checkpoints(u) for u in (0.1, 0.60, 0.58, 0.50)])
    found = [20.0 * checkpoints(u, u) for u in (0.2, 0.5, 0.5, 0.58)]
    assert champions_of(found, before, options).tolist() == [1, 3, 3]
    # with known run times the prior counts 150 jobs itself
    exact = Options(policies=policies)
    assert champions_of(found, before, exact).tolist() == [1, 1, 1]


def test_of_warm_nodes_the_best_number_is_taken_at_once():
    """Half a per cent is enough; between policies of other kinds a whole one is needed."""
    before = np.concatenate([1e-6 * checkpoints(u) for u in (0.5, 0.5)])
    found = [checkpoints(0.500, 0.500, 0.500), checkpoints(0.4975, 0.5025, 0.4975)]
    warm = Options(policies=BEYOND[2:4])
    assert champions_of(found, before, warm).tolist() == [0, 0, 1, 0]
    other = Options(policies=(PUBLISHED[0], PUBLISHED[20]))
    assert champions_of(found, before, other).tolist() == [0, 0, 0, 0]


def test_a_policy_of_another_kind_has_the_whole_prior():
    policies = (PUBLISHED[0], BEYOND[1])
    before = np.concatenate([50.0 * checkpoints(u) for u in (0.5, 0.60)])
    found = [20.0 * checkpoints(u, u) for u in (0.62, 0.5)]
    guessed = Options(policies=policies, runtimes=Runtimes.PREDICTED)
    assert champions_of(found, before, guessed).tolist() == [1, 1, 1]


def led_by(champion, *selections, first: int = 0) -> list[int]:
    """Leaders day by day, each contender charged so much a day."""
    options = replace(DAILY, first_leader=first)
    found = [days(*each) for each in selections]
    reigns = np.zeros(len(champion) + 1, np.int64)
    return leaders_of([days(*champion)], reigns, found, days(1.0)[0], options).tolist()


def test_the_first_leader_is_not_refuted_by_a_burst():
    """The champion was far better in one burst, and is by a third ahead in sum."""
    burst = (800.0,) + (100.0,) * 11
    assert led_by((100.0,) * 12, burst, (200.0,) * 12) == [0] * 13


def test_better_days_refute_the_first_leader():
    """Three days of the same gain are more than one and a half standard errors."""
    assert led_by((90.0,) * 9, (100.0,) * 9) == [0] * 3 + [CHAMPION] * 7
    assert led_by((100.0,) * 9, (100.0,) * 9, (90.0,) * 9) == [0] * 3 + [1] * 7


def test_who_refuted_the_leader_is_refuted_by_days_as_well():
    """The first leader has the better days from the fifth on: it takes more than as many until they tell."""
    champion = (90.0,) * 4 + (110.0,) * 20
    led = led_by(champion, (100.0,) * 24)
    assert led[:3] == [0] * 3
    assert led[3:10] == [CHAMPION] * 7
    assert led[-1] == 0


def test_a_per_cent_is_no_reason_to_change():
    assert led_by((99.5,) * 40, (100.0,) * 40) == [0] * 41


ORDERS = (PUBLISHED[0], PUBLISHED[3], PUBLISHED[12])
"""ODA-FCFS, ODA-LXF and ODB-FCFS."""


def champion_after(*losses: tuple[float, ...]) -> list[int]:
    """Champions day by day, of policies that begin as equals but for a hair and are charged so much a day."""
    found = [days(*each) for each in losses]
    before = np.concatenate([days(1.0 + 0.1 * at) for at in range(len(losses))])
    options = replace(DAILY, evidence=2.0, policies=ORDERS[: len(losses)])
    return champions_of(found, before, options).tolist()


def test_another_order_of_jobs_needs_better_days():
    """One burst in which the other order was far better is one day; four days of the same gain are enough."""
    assert champion_after((100.0,) * 5 + (900.0,) + (100.0,) * 6, (100.0,) * 12) == [0] * 13
    assert champion_after((100.0,) * 9, (90.0,) * 9) == [0] * 4 + [1] * 6


def test_an_order_that_has_proved_itself_is_not_kept_out_by_one_that_has_not():
    burst = (300.0, *[100.0] * 7)  # only better in the burst, but best in sum
    losses = (800.0, *[100.0] * 7), burst, (750.0, *[95.0] * 7)
    found = [days(*each) for each in losses]
    before = np.concatenate([days(1.0 + 0.1 * at) for at in range(3)])
    options = replace(DAILY, evidence=2.0, policies=(PUBLISHED[0], PUBLISHED[3], PUBLISHED[6]))
    assert champions_of(found, before, options).tolist() == [0] * 5 + [2] * 4


def test_evidence_for_an_order_counts_days_and_not_hours():
    """Three whole days of hourly checkpoints, all the same gain: not enough; the fourth is."""
    hours = [np.cumsum([[each, 1000.0, 10.0, 10.0]] * 120, axis=0) for each in (100.0, 90.0)]
    before = np.concatenate([days(1.0), days(1.1)])
    options = Options(evidence=2.0, policies=ORDERS[:2])
    assert champions_of(hours, before, options).tolist() == [0] * 96 + [1] * 25
    shorter = replace(options, day_seconds=6 * 3600.0)
    assert champions_of(hours, before, shorter).tolist() == [0] * 24 + [1] * 97


def test_the_best_of_the_reigning_order_takes_over_meanwhile():
    """The other order has not proved itself yet: the better provisioning goes with the order that reigns."""
    assert champion_after((100.0,) * 3, (50.0,) * 3, (70.0,) * 3) == [0, 2, 2, 2]


def test_another_provisioning_needs_no_better_days():
    """A champion that is wrong for a site must go at once: waiting for evidence lost 68 % of LPC-EGEE."""
    found = [days(*[100.0] * 12), days(*[100.0] * 5, 1.0, *[100.0] * 6)]
    before = np.concatenate([days(100.0), days(101.0)])
    guessed = replace(DAILY, evidence=2.0, policies=(PUBLISHED[0], PUBLISHED[12]))
    assert champions_of(found, before, guessed).tolist() == [0] * 6 + [1] * 7


def test_a_selection_leads_from_enough_evidence_until_half_of_it_is_gone():
    champion = days(*[100.0] * 12)
    contender = days(*[80.0] * 6, *[105.0] * 2, *[125.0] * 4)
    reigns = np.zeros(13, np.int64)
    options = replace(DAILY, evidence=1.9)
    evidence = evidence_of([champion], reigns[1:], contender, options)
    led = leaders_of([champion], reigns, [contender], np.zeros(4), options)
    assert led[:4].tolist() == [CHAMPION] * 4
    assert evidence[3] == pytest.approx(2.0)
    kept = evidence[4:] >= 0.95
    assert 0 < kept.sum() < len(kept)
    assert led[4:].tolist() == [0, *np.where(kept, 0, CHAMPION)]
    assert leaders_of([champion], reigns, [contender], np.zeros(4), DAILY)[2] == 0


def test_the_leader_changes_with_hysteresis():
    leader = Leader(first=0)
    assert leader.after(np.array([1.0, 1.009])) == 0
    assert leader.after(np.array([1.0, 1.02])) == 1
    assert leader.after(np.array([1.005, 1.0])) == 1
    assert leader.after(np.array([1.02, 1.0])) == 0
