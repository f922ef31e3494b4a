"""Each published rule is selected whole and alone (``cluster.policy``)."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.policy import (
    AMBATI_SHORT_SECONDS,
    AMBATI_WAIT_SECONDS,
    fixed,
    in_force,
)
from advisor.model.advice import Advice, HedgeKind, Placement, Verdict
from advisor.model.estimate import SizeEstimate
from advisor.model.settings import Policy, Settings
from tests.decide.cases import CLUSTER, ask, make_estimates, make_job, make_settings

SMALL = SizeEstimate(is_small=True, probability_small=0.9, divider_seconds=600.0)
ROOM = replace(CLUSTER, queue_size=0, free_processors=64)


def under(policy: Policy, **sections: dict[str, Any]) -> Settings:
    cluster = {"policy": policy} | sections.pop("cluster", {})
    return make_settings(cluster=cluster, **sections)


@pytest.mark.parametrize("policy", get_args(Policy))
def test_the_settings_in_force_are_those_of_the_policy_however_often_they_are_asked_for(
    policy: Policy,
) -> None:
    once = under(policy, hedge={"enabled": True})
    assert in_force(once) == once


def test_cunha2017_moves_by_forecast_and_cutoff_alone() -> None:
    settings = under("cunha2017", waiting={"short_wait_seconds": 1e6}, hedge={"enabled": True})
    assert ask(settings=settings).placement is Placement.BURST
    assert ask(settings=settings, cluster=ROOM).placement is Placement.BURST  # it has no room gate
    late = make_estimates(wait=60.0)
    assert ask(estimates=late, settings=settings).decisive.reason == Reason.CLOUD_NOT_FASTER
    unsure = make_estimates(wait_variance=1e12)
    assert ask(estimates=unsure, settings=settings).decisive.reason == Reason.TOO_UNCERTAIN


def test_cunha2017_changes_no_priority() -> None:
    stays = make_estimates(wait=0.0, size=SMALL)
    assert ask(estimates=stays, settings=under("cunha2017")).priority_offset == 0


def test_zrigui2022_puts_small_jobs_first_and_moves_none() -> None:
    advice = ask(estimates=make_estimates(size=SMALL), settings=under("zrigui2022"))
    assert (advice.placement, advice.priority_offset) == (Placement.ON_PREMISE, 1000)
    assert advice.decisive.reason == Reason.POLICY_MOVES_NOTHING


@pytest.mark.parametrize(("policy", "section"), [("deng2013", "portfolio"), ("agarwal2023", "matching")])
def test_the_policies_of_nodes_run_their_loop_and_move_no_job(policy: Policy, section: str) -> None:
    settings = under(policy)
    on = {name for name in ("portfolio", "matching") if getattr(settings, name).enabled}
    assert on == {section}
    advice = ask(settings=settings)
    assert (advice.placement, advice.decisive.reason) == (
        Placement.ON_PREMISE,
        Reason.POLICY_MOVES_NOTHING,
    )


def test_ambati2021_lets_long_jobs_wait_and_short_ones_leave() -> None:
    settings = under("ambati2021")
    assert settings.waiting.short_wait_seconds == AMBATI_WAIT_SECONDS
    assert settings.waiting.long_job_seconds == AMBATI_SHORT_SECONDS

    def asked(wait: float, run: float, **job: Any) -> Advice:
        return ask(make_job(**job), make_estimates(wait=wait, run=run), settings=settings)

    short = asked(60.0, 300.0, requeue=False)
    assert short.placement is Placement.BURST  # faster or not
    assert short.answers[1].reason == Reason.POLICY_DOES_NOT_ASK
    assert asked(3600.0, 7200.0, requeue=False).decisive.reason == Reason.LONG_JOB_IN_TIME
    assert asked(2e5, 7200.0, requeue=False).placement is Placement.BURST  # nobody waits longer than b
    tried = asked(3600.0, 800.0)
    assert tried.hedge is not None
    assert (tried.hedge.kind, tried.hedge.stop_seconds) == (HedgeKind.SPECULATION, AMBATI_SHORT_SECONDS)


def test_ambati2021_keeps_a_job_that_starts_here_at_once() -> None:
    now = make_estimates(wait=1.0, run=300.0)
    bounded = replace(now, wait=replace(now.wait, coverage=1.0))
    assert ask(estimates=bounded, settings=under("ambati2021")).decisive.reason == Reason.ROOM_HERE
    # without a bound it is the wait of similar jobs, which says nothing about room now
    assert ask(estimates=now, settings=under("ambati2021")).placement is Placement.BURST


@given(st.sampled_from(["zrigui2022", "deng2013", "agarwal2023"]), st.floats(0, 1e7) | st.just(math.nan))
def test_these_policies_never_move_a_job(policy: Policy, wait: float) -> None:
    advice = ask(estimates=make_estimates(wait=wait), settings=under(policy))
    assert advice.partition is None
    assert advice.decisive.verdict is Verdict.NO


@pytest.mark.parametrize("scheduler", ["slurm", "lsf"])
@pytest.mark.parametrize(("policy", "is_on"), [("price", True), ("cunha2017", False), ("ambati2021", False)])
def test_promises_are_those_of_the_price(scheduler: str, policy: Policy, *, is_on: bool) -> None:
    """Under the published rules a user reads that the site makes none, and the job uses spot like others."""
    cluster = {"scheduler": scheduler, "policy": policy}
    settings = Settings.model_validate({"cluster": cluster, "promise": {"enabled": True}})
    assert in_force(settings).promise.enabled is is_on


def test_under_lsf_a_job_may_be_requeued_only_where_it_says_so() -> None:
    """Replays of the history, which does not know it, would put every job on spot."""
    settings = Settings.model_validate({"cluster": {"scheduler": "lsf"}})
    assert not in_force(settings).cluster.requeue_default
    assert fixed(settings)["cluster.requeue_default"] is False
    assert in_force(Settings()).cluster.requeue_default
