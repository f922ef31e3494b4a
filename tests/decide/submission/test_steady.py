"""What a long job asks for at its submission, so that it starts on a node that stays."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from advisor.decide.submission.capacity import preferred_survivors
from advisor.model.estimate import Estimate, Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.settings_nodes import MatchingSettings
from advisor.model.site import CloudState

ON = Settings(matching=MatchingSettings(enabled=True, long_job_seconds=1800.0))


def cloud(**changes: Any) -> CloudState:
    values: dict[str, Any] = {
        "nodes_total": 4,
        "processors_per_node": 4,
        "features": ("cloud", "spot"),
        "nodes_with": MappingProxyType({"steady": 2.0}),
        "steady_free_nodes": 1,
    }
    return CloudState(**(values | changes))


def job(**changes: Any) -> Job:
    values: dict[str, Any] = {"job_id": 1, "submit_time": 0.0, "processors": 4, "requested_time": 7200.0}
    return Job(**(values | changes))


def runs(seconds: float) -> Estimates:
    return Estimates(run=Estimate(seconds=seconds, variance=1.0))


def test_a_long_job_wishes_for_a_node_that_stays() -> None:
    assert preferred_survivors(job(), runs(7000.0), cloud(), ON) == ("steady",)


def test_a_job_of_unknown_length_is_as_long_as_its_limit() -> None:
    assert preferred_survivors(job(), Estimates(), cloud(), ON) == ("steady",)
    assert preferred_survivors(job(requested_time=None), Estimates(), cloud(), ON) == ("steady",)
    assert preferred_survivors(job(requested_time=600.0), Estimates(), cloud(), ON) == ()


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ({}, {"steady_free_nodes": 0}),  # nothing idle to be had: it would only lose its preference for spot
        ({"processors": 8}, {}),  # two nodes: the mark is always on one, no more is promised
        ({"nodes": 2}, {}),
        ({"processors": 4}, {"processors_per_node": 0}),
        ({"features": ("gpu",)}, {}),  # not on every node: slurmctld might refuse the two together
        ({"array_tasks": 7}, {}),
    ],
)
def test_what_might_be_refused_or_bring_nothing_is_not_asked_for(asked: dict, there: dict) -> None:
    assert preferred_survivors(job(**asked), runs(7000.0), cloud(**there), ON) == ()


def test_short_jobs_and_sites_that_did_not_ask_for_it() -> None:
    assert preferred_survivors(job(), runs(60.0), cloud(), ON) == ()
    assert preferred_survivors(job(), runs(7000.0), cloud(), Settings()) == ()
    nameless = Settings(matching=MatchingSettings(enabled=True, long_lived_feature=""))
    assert preferred_survivors(job(), runs(7000.0), cloud(), nameless) == ()
