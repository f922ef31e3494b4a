"""s(c) learned from jobs that ran on both sides: synthetic truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.predict.performance_ratio import BothSides, learn_ratios


def drawn(
    generator: np.random.Generator,
    *,
    groups: int = 60,
    overhead: float = 0.02,
    baseline: float = 1.5,
    within: float = 0.2,
    between: float = 0.1,
    applications: int = 12,
    wild: float = 0.0,
) -> tuple[list[BothSides], dict[str, float]]:
    """Work of several applications on 1 to 64 processors; what each application's factor truly is."""
    factors = {f"app{n}": math.exp(generator.normal(0.0, between)) for n in range(applications)}
    work = []
    for number in range(groups):
        application = f"app{number % applications}"
        processors = int(2 ** generator.integers(0, 7))
        ratio = (overhead * processors + baseline) * factors[application]
        usual = math.exp(generator.normal(7.0, 1.5))
        here = usual * np.exp(generator.normal(0.0, within, size=generator.integers(1, 8)))
        cloud = ratio * usual * np.exp(generator.normal(0.0, within, size=generator.integers(1, 5)))
        if generator.random() < wild:
            cloud = cloud * 50.0
        work.append(BothSides(processors, "onprem", application, here.tolist(), cloud.tolist()))
    return work, factors


def z_scores(runs: int, **how: float) -> list[float]:
    """How many stated deviations the truth is off, for a job of each application, over many sites."""
    found = []
    for seed in range(runs):
        work, factors = drawn(np.random.default_rng(seed), **how)
        learned = learn_ratios(work, 0.01, 1.0)
        assert learned is not None
        for application, factor in factors.items():
            told = learned.of(8, "onprem", application)
            truth = (how.get("overhead", 0.02) * 8 + how.get("baseline", 1.5)) * factor
            found.append(math.log(told.factor / truth) / told.deviation)
    return found


def test_g17_16_the_truth_lies_within_the_stated_interval() -> None:
    """Of 90 % intervals about 90 % hold, and they say something: a wrong start is corrected."""
    scores = np.abs(z_scores(40))
    assert 0.85 <= float(np.mean(scores < 1.645)) <= 0.99
    work, _ = drawn(np.random.default_rng(1))
    learned = learn_ratios(work, 0.01, 1.0)
    assert learned is not None
    for processors in (1, 16, 64):
        assert learned.of(processors, None, None).factor == pytest.approx(0.02 * processors + 1.5, rel=0.15)
    assert learned.of(8, "onprem", "app1").deviation < 0.2


@pytest.mark.parametrize(("overhead", "baseline"), [(0.5, 1.0), (0.0, 0.4), (0.01, 4.0)])
def test_g17_16_a_wrong_ratio_at_the_start_is_corrected(overhead: float, baseline: float) -> None:
    work, _ = drawn(np.random.default_rng(2), groups=100)
    learned = learn_ratios(work, overhead, baseline)
    assert learned is not None
    for processors in (2, 32):
        truth = 0.02 * processors + 1.5
        assert learned.of(processors, None, None).factor == pytest.approx(truth, rel=0.2)


def test_g17_16_outliers_hardly_count() -> None:
    """One group in eight ran fifty times as long in the cloud: a full disk, a wrong input."""
    clean, _ = drawn(np.random.default_rng(3), groups=80)
    dirty, _ = drawn(np.random.default_rng(3), groups=80, wild=0.12)
    for work in (clean, dirty):
        learned = learn_ratios(work, 0.01, 1.0)
        assert learned is not None
        assert learned.of(8, None, None).factor == pytest.approx(1.66, rel=0.25)


def test_g17_16_small_samples_shrink_to_the_site_and_the_site_to_the_configuration() -> None:
    assert learn_ratios([BothSides(4, "onprem", "md", [1000.0], [4000.0])], 0.01, 1.0) is None, "one run"
    three = [BothSides(4, "onprem", f"md{n}", [1000.0], [4000.0]) for n in range(3)]
    alone = learn_ratios(three, 0.01, 1.0)
    assert alone is not None
    site = alone.of(4, None, None)
    assert 1.04 < site.factor < 3.6
    assert site.deviation > 0.2
    assert alone.applications == {}, "one run is not enough for a value of its own"
    others = [BothSides(4, "onprem", f"other{n}", [1000.0] * 3, [1040.0] * 3) for n in range(30)]
    few, many = ([*others, BothSides(4, "onprem", "md", [1000.0] * n, [4000.0] * n)] for n in (3, 30))
    learned = [learn_ratios(work, 0.01, 1.0) for work in (few, many)]
    ratios = [found.of(4, None, "md").factor for found in learned if found is not None]
    assert 1.1 < ratios[0] <= ratios[1] < 4.1
    assert ratios[1] > 3.0
    assert learned[1] is not None
    assert learned[1].of(4, None, "other1").factor == pytest.approx(1.04, rel=0.1)
    assert learned[1].applications["md"].jobs == 30


def test_work_that_changes_as_time_goes_by_says_little_of_the_cloud() -> None:
    """Under one name whole runs of hours ran here, and probes of a minute ran there a day later.

    The pattern is that of a public log, on which jobs were taken to run a thousand times as fast there.
    """
    generator = np.random.default_rng(5)

    def runs(count: int, *usual: float) -> list[float]:
        return [run * math.exp(generator.normal(0.0, 0.05)) for run in np.resize(usual, count).tolist()]

    work = [
        BothSides(9, "onprem", "job#", runs(20, 5.0, 500.0, 4000.0, 2600.0), runs(4, 20.0)),
        BothSides(512, "onprem", "job#", [3.0], [1100.0]),
        BothSides(256, "onprem", "job#", [10.0, 120.0, 10_000.0, 700.0, 7000.0, 10_000.0], [7500.0]),
        BothSides(1, "onprem", "job#", [340.0], runs(7, 5.0, 40.0, 200.0, 3.0, 400.0)),
        BothSides(256, "onprem", "job#", runs(20, 20.0, 20.0, 20.0, 1000.0), [340.0]),
        BothSides(1, "onprem", "job#", runs(20, 73_000.0), runs(14, 77.0)),
    ]
    learned = learn_ratios(work, 0.0, 1.05)
    assert learned is not None
    alone = learned.of(1, None, "job#")
    assert 0.35 < alone.factor < 1.5
    assert alone.factor * math.exp(alone.deviation) > 0.8
    assert 0.7 < learned.of(512, None, "job#").factor < 3.0


def test_g17_16_partitions_have_their_own_ratios() -> None:
    work = [
        BothSides(4, partition, f"app{n}", [1000.0] * 5, [1000.0 * ratio] * 5)
        for n in range(20)
        for partition, ratio in (("fast", 2.0), ("slow", 0.8))
    ]
    learned = learn_ratios(work, 0.0, 1.0)
    assert learned is not None
    assert learned.of(4, "fast", None).factor == pytest.approx(2.0, rel=0.15)
    assert learned.of(4, "slow", None).factor == pytest.approx(0.8, rel=0.15)
    assert learned.of(4, "slow", None).jobs == 100


def test_nothing_is_learned_without_runs_on_both_sides() -> None:
    assert learn_ratios([], 0.01, 1.0) is None
