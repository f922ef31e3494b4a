"""The cheapest number of fixed cores among tenths of the mean load."""

from __future__ import annotations

import pytest

from advisor.papers.waiting.optimal_cores import coarse_optimum
from advisor.papers.waiting.waiting_rows import workload_from
from advisor.papers.waiting.world.costs import CostModel
from advisor.papers.waiting.world.world import Workload
from advisor.replay.sources import load_table


@pytest.fixture(scope="module")
def workload() -> Workload:
    return workload_from(load_table("synthetic:1500:3"), CostModel(), 1)


def test_it_is_a_tenth_of_the_mean_load(workload: Workload) -> None:
    held = float(workload.submit[-1] - workload.submit[0])
    load = float(workload.run @ workload.processors) / held
    cores = coarse_optimum(workload, 900.0, 86_400.0, CostModel())
    assert cores in {max(1, round(part * 0.1 * load)) for part in range(1, 21)}


def test_dear_cores_are_hardly_owned_and_cheap_ones_are(workload: Workload) -> None:
    dear = coarse_optimum(workload, 900.0, 86_400.0, CostModel(reserved=1.1))
    usual = coarse_optimum(workload, 900.0, 86_400.0, CostModel())
    cheap = coarse_optimum(workload, 900.0, 86_400.0, CostModel(reserved=0.01))
    assert dear < usual < cheap
