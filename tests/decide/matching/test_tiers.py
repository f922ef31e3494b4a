"""Which nodes count as steady."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.decide.matching.tiers import SPREAD, SURE, Tier, tiers, weight_offset

PROBABILITY = st.floats(0.0, 1.0)


def test_nodes_that_are_about_alike_are_not_told_apart() -> None:
    assert set(tiers({"a": 0.52, "b": 0.6, "c": 0.55}).values()) == {Tier.STEADY}


def test_one_shaky_node_among_many_and_one_steady_one() -> None:
    many = {f"n{number}": 0.8 for number in range(9)}
    assert [name for name, tier in tiers(many | {"x": 0.4}).items() if tier is Tier.SHAKY] == ["x"]
    few = {f"n{number}": 0.4 for number in range(9)}
    assert [name for name, tier in tiers(few | {"x": 0.8}).items() if tier is Tier.STEADY] == ["x"]


def test_none_at_all() -> None:
    assert tiers({}) == {}
    assert tiers({"a": None}) == {"a": Tier.FIXED}


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), st.none() | PROBABILITY, min_size=1))
def test_the_best_is_never_shaky_and_no_shaky_one_is_better_than_a_steady_one(survives) -> None:
    found = tiers(survives)
    known = {name: value for name, value in survives.items() if value is not None}
    shaky = [value for name, value in known.items() if found[name] is Tier.SHAKY]
    steady = [value for name, value in known.items() if found[name] is Tier.STEADY]
    if known:
        assert max(known.values()) in steady
    if shaky:
        assert max(shaky) < min(steady)
        assert max(shaky) < SURE
        assert max(known.values()) - min(known.values()) >= SPREAD


@settings(deadline=None)
@given(st.none() | PROBABILITY, st.none() | PROBABILITY)
def test_weights_follow_the_probability(one, other) -> None:
    p, q = (1.0 if value is None else value for value in (one, other))
    last = [weight_offset(value, steady_last=True) for value in (one, other)]
    first = [weight_offset(value, steady_last=False) for value in (one, other)]
    assert all(0 <= weight <= 10 for weight in last + first)
    if p <= q:
        assert last[0] <= last[1]
        assert first[0] >= first[1]
