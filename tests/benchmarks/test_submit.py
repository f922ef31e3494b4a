"""What `advisor bench submit` makes of its runs."""

from __future__ import annotations

from collections import Counter

import pytest

from advisor.model.errors import TellAdmin
from benchmarks.submit_slurm import Run, check_hook, in_turn, result_of


def run_of(per_second: float, *, serve: float = 0.0) -> Run:
    seconds = 10 / per_second
    return Run(
        submissions=10, seconds=seconds, rpc_us=1e3, clients=0.3, slurmctld=0.1, serve=serve, advised=9
    )


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
    result = result_of(runs, clients=4)
    assert result["throughput_ratio"] == pytest.approx(0.9)
    assert result["throughput_ratio_to_empty_hook"] == pytest.approx(0.9 / 0.95)
    assert result["processor_ratio"] == pytest.approx(0.4 / 0.44)
    assert result["processor_us_per_submission"]["with_hook"]["serve"] == pytest.approx(4000.0)
    assert result["rounds"] == 3
    assert result["not_advised"] == 3 * (10 - 9)


@pytest.mark.parametrize(("name", "advised"), [("with_hook", 0), ("no_hook", 1), ("empty_hook", 100)])
def test_a_run_with_another_hook_than_its_own_is_refused(name: str, advised: int) -> None:
    with pytest.raises(TellAdmin) as caught:
        check_hook(name, advised)
    assert caught.value.code == "bench.hook"


@pytest.mark.parametrize(("name", "advised"), [("with_hook", 95), ("no_hook", 0), ("empty_hook", 0)])
def test_a_few_questions_without_an_answer_are_no_mistake(name: str, advised: int) -> None:
    check_hook(name, advised)
