"""What `advisor bench submit` makes of its runs."""

from __future__ import annotations

from collections import Counter

import pytest

from advisor.testing.bench.submit_slurm import Run, in_turn, result_of


def run_of(per_second: float, *, serve: float = 0.0) -> Run:
    return Run(per_second=per_second, rpc_us=1000.0, clients=0.3, slurmctld=0.1, serve=serve)


def test_each_case_has_each_place_equally_often() -> None:
    places = Counter((name, place) for number in range(6) for place, name in enumerate(in_turn(number)))
    assert set(places.values()) == {2}
    assert len(places) == 9


def test_each_run_is_compared_with_those_of_its_own_round() -> None:
    drifting = [100.0, 50.0, 200.0]  # by more than the hook costs
    runs = {
        "no_hook": [run_of(rate) for rate in drifting],
        "empty_hook": [run_of(0.95 * rate) for rate in drifting],
        "with_hook": [run_of(0.9 * rate, serve=0.04) for rate in drifting],
    }
    result = result_of(runs, submissions=10, clients=4)
    assert result["throughput_ratio"] == pytest.approx(0.9)
    assert result["throughput_ratio_to_empty_hook"] == pytest.approx(0.9 / 0.95)
    assert result["processor_ratio"] == pytest.approx(0.4 / 0.44)
    assert result["processor_us_per_submission"]["with_hook"]["serve"] == pytest.approx(4000.0)
    assert result["rounds"] == 3
