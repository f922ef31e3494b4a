"""What is usual for what is known of run times."""

from __future__ import annotations

from advisor.decide.portfolio.portfolio_options import Options, prior_jobs, usual_evidence, usual_margins
from advisor.simulate.portfolio.cluster import Runtimes


def test_only_exact_run_times_are_worth_any_deviation():
    assert usual_margins(Runtimes.ACTUAL) == (0.0, 0.05)
    assert all(usual_margins(known) == (0.05,) for known in Runtimes if known is not Runtimes.ACTUAL)
    assert [usual_evidence(known) == 0.0 for known in Runtimes] == [
        known is Runtimes.ACTUAL for known in Runtimes
    ]


def test_the_prior_weighs_more_where_run_times_are_guessed():
    assert [prior_jobs(Options(runtimes=known)) for known in Runtimes] == [
        150.0 if known is Runtimes.ACTUAL else 500.0 for known in Runtimes
    ]
