"""`advisor bench portfolio`: what it measures, and that it says under which billing."""

from __future__ import annotations

import pytest

from benchmarks import portfolio

pytestmark = pytest.mark.slow


def test_queues_of_both_lengths_and_each_seed_are_measured_under_a_billing_that_is_named() -> None:
    found = portfolio.run(situations=10, trace="synthetic:300", seeds=2)
    assert found["simulate_all_policies_ms"].keys() == {"100", "500"}
    assert all(one["p50"] <= one["p99"] <= one["max"] for one in found["simulate_all_policies_ms"].values())
    compared = found["algorithm_1"]
    lost = [compared["utility_all"] - some for some in compared["utility_some"]]
    assert compared["lost_points"] == lost
    assert len(lost) == 2
    assert (found["billing"], found["runtimes"]) == ("hour", "actual")
    assert found["release_rule"].startswith("whole hours charged; an idle node is given back")
