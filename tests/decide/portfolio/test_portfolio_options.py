"""What is usual for what is known of run times and how nodes are paid."""

from __future__ import annotations

from typing import get_args

from advisor.cli.replay_portfolio import Billing
from advisor.decide.portfolio.portfolio_options import (
    CHAMPION,
    Options,
    prior_jobs,
    usual_evidence,
    usual_first_leader,
    usual_margins,
    usual_policies,
)
from advisor.model.settings_nodes import PortfolioSettings
from advisor.simulate.portfolio.cluster import Runtimes
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, Release


def test_usual_policies():
    assert usual_policies(Release.HOUR) == (*PUBLISHED, BEYOND[0])  # no warm nodes: they are given back
    assert usual_policies(Release.SECOND) == PUBLISHED + BEYOND


def test_only_exact_run_times_are_worth_any_deviation():
    assert usual_margins(Runtimes.ACTUAL) == (0.0, 0.05)
    assert all(usual_margins(known) == (0.05,) for known in Runtimes if known is not Runtimes.ACTUAL)
    assert [usual_evidence(known) == 0.0 for known in Runtimes] == [
        known is Runtimes.ACTUAL for known in Runtimes
    ]


def test_a_selection_leads_first_only_with_exact_run_times_and_nothing_kept():
    first = {
        (known, release): usual_first_leader(known, release) for known in Runtimes for release in Release
    }
    assert first.pop((Runtimes.ACTUAL, Release.HOUR)) == 0
    assert set(first.values()) == {CHAMPION}


def test_the_prior_weighs_more_where_run_times_are_guessed():
    assert [prior_jobs(Options(runtimes=known)) for known in Runtimes] == [
        150.0 if known is Runtimes.ACTUAL else 500.0 for known in Runtimes
    ]


def test_settings_and_command_name_every_billing_there_is():
    billings = {release.billing for release in Release}
    assert set(get_args(PortfolioSettings.model_fields["billing"].annotation)) == billings
    assert {billing.value for billing in Billing} == billings | {"all"}
    assert [Release.of_billing(release.billing) for release in Release] == list(Release)
