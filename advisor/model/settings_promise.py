"""Settings of promises: a user names a time by which a job is to be done."""

from __future__ import annotations

from advisor.model.settings_section import Dollars, Section, setting


class PromiseSettings(Section):
    """Promises: ``sbatch --comment=by=18:00`` (docs/designs/0020). They need ``cluster.policy = "price"``."""

    enabled: bool = setting(
        False,
        "Whether a job may name the time by which it is to be done. It then waits on-premise as long as that "
        "time can be kept, and starts in the cloud when it has to.",
        why="Users decide about money by it, so the site should decide whether they may.",
        expert=True,
    )
    confidence: float = setting(
        0.95,
        "The share of promises that are to be kept.",
        why="One promise in twenty may be broken: certainty would cost the whole time limit of each job.",
        ge=0.5,
        le=0.999,
        expert=True,
    )
    usd_per_job: Dollars = setting(
        5.0,
        "The largest worst-case cost of one job with a promise: a job that could cost more is not started in "
        "the cloud for it. At 0 only promises that cost nothing are given. The budgets hold as well.",
        why="It is the price of a few hours of a node, so that a user cannot spend a budget with one job.",
        unit="USD",
        expert=True,
    )
