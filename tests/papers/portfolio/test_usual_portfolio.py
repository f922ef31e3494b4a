"""What is usual for what is known of run times and how nodes are paid."""

from __future__ import annotations

from typing import get_args

from advisor.decide.portfolio.portfolio_options import CHAMPION
from advisor.model.settings_nodes import PortfolioSettings
from advisor.papers.commands.replay_portfolio import Billing
from advisor.papers.portfolio.usual_portfolio import usual_first_leader, usual_policies
from advisor.simulate.portfolio.cluster import Runtimes
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, Release


def test_usual_policies():
    assert usual_policies(Release.HOUR) == (*PUBLISHED, BEYOND[0])  # no warm nodes: they are given back
    assert usual_policies(Release.SECOND) == PUBLISHED + BEYOND


def test_a_selection_leads_first_only_with_exact_run_times_and_nothing_kept():
    first = {
        (known, release): usual_first_leader(known, release) for known in Runtimes for release in Release
    }
    assert first.pop((Runtimes.ACTUAL, Release.HOUR)) == 0
    assert set(first.values()) == {CHAMPION}


def test_settings_and_command_name_every_billing_there_is():
    billings = {release.billing for release in Release}
    assert set(get_args(PortfolioSettings.model_fields["billing"].annotation)) == billings
    assert {billing.value for billing in Billing} == billings | {"all"}
    assert [Release.of_billing(release.billing) for release in Release] == list(Release)
