"""Evidence about nodes that come and go: against plain sums, and never from the future."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.papers.stability._evidence import (
    AGE,
    COSINE,
    OTHERS,
    OWN_RATE,
    POOL_RATE,
    PRESENCE,
    SINE,
    EvidenceRules,
    next_shrinks,
)
from advisor.papers.stability.evidence import PRIOR, Evidence, survival_with_evidence, weigh
from advisor.predict.survival.node_survival import GROWTH, SHRINK, Intervals, fit_survival

HOUR, DAY = 3600.0, 86400.0
RULES = EvidenceRules()


def history(seed: int, nodes: int = 4, until: float = 6 * DAY, mean_hours: float = 5.0) -> Intervals:
    """Nodes that are there and gone by turns."""
    generator = np.random.default_rng(seed)
    rows = []
    for node in range(nodes):
        at = generator.uniform(0, DAY / 2)
        while at < until:
            end = at + generator.exponential(mean_hours) * HOUR
            rows.append((node, at, end))
            at = end + generator.exponential(2.0) * HOUR
    node, start, end = (np.array(column) for column in zip(*rows, strict=True))
    whole = np.zeros(len(rows), np.int64)
    return known(Intervals(node, start, end, whole == 0, whole, whole + SHRINK, np.ones(len(rows))), until)


def known(seen: Intervals, now: float) -> Intervals:
    begun = seen.start < now
    parts = Intervals(*(getattr(seen, name)[begun] for name in Intervals.__slots__))
    return Intervals(
        parts.node,
        parts.start,
        np.minimum(parts.end, now),
        parts.completed & (parts.end < now),
        parts.began,
        parts.ended,
        parts.size,
    )


def learned(seen: Intervals, now: float, nodes: int = 4, rules: EvidenceRules = RULES):
    shrank = seen.completed & (seen.ended == SHRINK)
    found = weigh(seen.node, seen.start, seen.end, seen.completed, shrank, now, nodes, rules)
    assert found is not None
    return found


def fading(seen: Intervals, now: float, rows: np.ndarray, half_life: float) -> tuple[float, float]:
    """Ends, and hours at risk, of some intervals, each weighed by its age: the plain definition."""
    scale = half_life / math.log(2.0)
    start, end, completed = seen.start[rows], seen.end[rows], seen.completed[rows]
    ends = np.exp2((end[completed] - now) / half_life).sum()
    hours = scale / HOUR * (np.exp2((end - now) / half_life) - np.exp2((start - now) / half_life)).sum()
    return float(ends), float(hours)


@pytest.mark.parametrize("seed", range(5))
def test_features_of_a_node_equal_plain_sums(seed) -> None:
    now = 6 * DAY
    seen = history(seed)
    found = learned(seen, now).learned
    everyone = np.arange(len(seen))
    ends, hours = fading(seen, now, everyone, RULES.rate_half_life)
    usual = (ends + 0.5) / (hours + 5.0)
    counts = [np.sum((seen.start <= at) & (seen.end > at)) for at in np.sort(seen.start)]
    for node in range(4):
        mine = np.flatnonzero(seen.node == node)
        own_ends, own_hours = fading(seen, now, mine, RULES.rate_half_life)
        _, there = fading(seen, now, mine, RULES.presence_half_life)
        first = float(seen.start[mine].min())
        scale = RULES.presence_half_life / math.log(2.0) / HOUR
        possible = scale * (1.0 - math.exp2((first - now) / RULES.presence_half_life))
        row = found.known[node]
        assert row[POOL_RATE] == pytest.approx(math.log(usual))
        assert row[OWN_RATE] == pytest.approx(math.log((own_ends + 1.0) / (own_hours * usual + 1.0)))
        assert row[PRESENCE] == pytest.approx(there / possible - 1.0)
        assert row[AGE] == 0.0
        assert (row[SINE], row[COSINE]) == pytest.approx((0.0, 1.0))  # midnight
        alive = np.sum(~seen.completed)
        # the most fades with a half-life of a month between the moments looked at
        assert alive / max(counts) - 1.0 - 1e-9 <= row[OTHERS] <= alive / (max(counts) * 0.85) - 1.0 + 1e-9
    assert found.ends == np.count_nonzero(seen.completed)


def test_the_pass_equals_a_plain_regression_step_by_step() -> None:
    found = learned(history(3), 6 * DAY).learned
    coefficients, precision = PRIOR.copy(), np.diag([100.0] * 6 + [20.0] * 2)
    for moment in np.unique(found.moments[found.moments + HOUR <= 6 * DAY]):
        mine = found.moments == moment
        samples, outcomes = found.samples[mine], found.outcomes[mine]
        weight = 0.5 / math.sqrt(len(samples))
        chances = 1.0 / (1.0 + np.exp(-samples @ coefficients))
        precision += weight * (samples * (chances * (1.0 - chances))[:, None]).T @ samples
        coefficients = coefficients + np.linalg.solve(precision, weight * samples.T @ (outcomes - chances))
    assert not np.isnan(found.outcomes[found.moments + HOUR <= 6 * DAY]).any()
    np.testing.assert_allclose(found.coefficients, coefficients, rtol=1e-9)


def test_later_intervals_change_nothing() -> None:
    seen, then = history(4), 3.3 * DAY
    before, after = learned(known(seen, then), then).learned, learned(seen, 6 * DAY).learned
    count = int(np.count_nonzero(before.moments + HOUR <= then))
    assert 100 < count < len(before.moments)
    np.testing.assert_array_equal(before.samples[:count], after.samples[:count])
    np.testing.assert_array_equal(before.outcomes[:count], after.outcomes[:count])
    later = known(seen, then)
    assert np.all(later.end <= then)


def test_shrinks_follow_growths_and_what_stays_is_counted() -> None:
    # node 0 grows at 10, shrinks but stays at 20, is lost at 30; node 1 is given back at 15
    node = np.array([0, 0, 0, 1])
    start, end = np.array([0.0, 10.0, 20.0, 0.0]), np.array([10.0, 20.0, 30.0, 15.0])
    completed = np.array([True, True, True, False])
    shrank = np.array([False, True, True, False])
    at, until, stayed = next_shrinks(node, start, end, completed, shrank)
    assert at.tolist() == [20.0, 20.0, 30.0, math.inf]
    assert until.tolist()[3] == 15.0
    assert stayed == 1


def test_nodes_that_only_change_their_size_keep_their_curves() -> None:
    times = np.arange(0.0, 2 * DAY, HOUR)
    count = len(times)
    whole = np.zeros(count, np.int64)
    seen = Intervals(
        whole, times, times + HOUR, np.arange(count) < count - 1, whole, whole + SHRINK, np.ones(count)
    )
    now = 2 * DAY
    assert weigh(seen.node, seen.start, seen.end, seen.completed, seen.completed, now, 1) is None
    with_evidence, without = survival_with_evidence(seen, now, 1), fit_survival(seen, now, 1)
    np.testing.assert_array_equal(with_evidence.rate, without.rate)
    nothing = Intervals.empty()
    assert (
        weigh(nothing.node, nothing.start, nothing.end, nothing.completed, nothing.completed, 0.0, 1) is None
    )


def test_the_hour_of_the_day_is_learned() -> None:
    """Nodes are lost every hour from nine to three, and last from three to nine."""
    hours = [9, 10, 11, 12, 13, 14, 15]
    start = np.array([day * DAY + hour * HOUR for day in range(15) for hour in hours for _ in range(4)])
    lasts = np.where(start % DAY == 15 * HOUR, 17.9 * HOUR, 0.9 * HOUR)
    whole = np.zeros(len(start), np.int64)
    node = np.arange(len(start)) % 4
    seen = Intervals(node, start, start + lasts, whole == 0, whole, whole + SHRINK, np.ones(len(start)))
    now = 14 * DAY + 18 * HOUR
    by_night = learned(known(seen, now), now)
    by_day = learned(known(seen, now - 6 * HOUR), now - 6 * HOUR)
    assert by_day.stays(0, 2 * HOUR) < by_night.stays(0, 2 * HOUR) - 0.2
    alike = EvidenceRules(certainty_of_hours=1e9)
    unaware = [learned(known(seen, at), at, rules=alike).stays(0, 2 * HOUR) for at in (now - 6 * HOUR, now)]
    assert abs(unaware[1] - unaware[0]) < by_night.stays(0, 2 * HOUR) - by_day.stays(0, 2 * HOUR)


def test_few_losses_leave_the_forecast_near_the_plain_rate() -> None:
    start = np.array([0.0, 3 * DAY])
    whole = np.zeros(2, np.int64)
    seen = Intervals(
        whole,
        start,
        np.array([2.9 * DAY, 6 * DAY]),
        np.array([True, False]),
        whole,
        whole + SHRINK,
        np.ones(2),
    )
    found = learned(seen, 6 * DAY, 1)
    assert found.learned.ends == 1
    assert found.stays(0, 60.0) == pytest.approx(found.learned.rate, abs=0.02)
    sure = learned(seen, 6 * DAY, 1, EvidenceRules(trusted_from=0.0))
    assert sure.stays(0, 60.0) < 0.8


def test_the_weight_of_the_evidence_grows_with_the_losses_seen() -> None:
    found = learned(history(1), 6 * DAY)

    def log_odds(ends: float) -> float:
        seen = Evidence(found.learned._replace(ends=ends), RULES)
        chance = seen.stays(0, HOUR)
        return math.log(chance / (1.0 - chance))

    plain, all_of_it = log_odds(0.0), log_odds(1e9)
    assert plain == pytest.approx(math.log(found.learned.rate / (1.0 - found.learned.rate)))
    assert abs(all_of_it - plain) > 0.1
    say = [(log_odds(ends) - plain) / (all_of_it - plain) for ends in (20.0, 40.0, 80.0)]
    assert say == pytest.approx([1 / 9, 1 / 2, 8 / 9])


def test_the_plain_rate_begins_at_that_of_other_pools() -> None:
    """One loss after half an hour, and no outcome known: four hours at three quarters are all there is."""
    whole = np.zeros(2, np.int64)
    start, end = np.array([0.0, HOUR]), np.array([HOUR / 2, 1.2 * HOUR])
    seen = Intervals(whole, start, end, np.array([True, False]), whole, whole + SHRINK, np.ones(2))
    assert learned(seen, 1.2 * HOUR, 1).learned.rate == RULES.usual


@pytest.mark.parametrize("seed", range(3))
def test_the_curves_meet_the_forecast_at_its_horizon(seed) -> None:
    now = 6 * DAY
    seen = history(seed)
    found = learned(seen, now)
    curves = survival_with_evidence(seen, now, 4)
    there = np.flatnonzero(~seen.completed)
    assert len(there)
    for at in there:
        node, age = int(seen.node[at]), now - float(seen.start[at])
        chance = curves.completion_probability(node, GROWTH, age, HOUR)
        assert chance == pytest.approx(found.stays(node, age), abs=1e-9)
        course = [curves.completion_probability(node, GROWTH, age, during) for during in (60.0, 600.0, HOUR)]
        assert course == sorted(course, reverse=True)
