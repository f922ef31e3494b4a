"""One owner's spot nodes are spread over pools; a chain of jobs is one owner."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from advisor.decide.spot.blast_radius import LEAST_NODES, Part, owners_of, spread
from tests.service.doubles import make_queued

POOLS = ("a", "b", "c")


def nodes(number: int) -> list[str]:
    return [f"n{number}" for number in range(number)]


def test_few_nodes_may_be_anywhere() -> None:
    assert spread(nodes(3), POOLS, [Counter()], 0.5) == [Part(("n0", "n1", "n2"), POOLS)]


def test_more_are_divided_and_the_best_pool_is_filled_first() -> None:
    parts = spread(nodes(8), POOLS, [Counter()], 0.5)
    assert [(len(part.nodes), part.pools) for part in parts] == [(4, ("a",)), (4, ("b",))]


def test_running_nodes_count() -> None:
    parts = spread(nodes(2), POOLS, [Counter(a=6, b=2)], 0.5)
    assert parts == [Part(("n0", "n1"), ("b",))] or parts[0].pools == ("b",)
    (only,) = spread(nodes(1), POOLS, [Counter(a=1, b=4, c=4)], 0.5)
    assert only.pools == POOLS


def test_what_has_no_room_is_not_spot() -> None:
    # two pools are open, and the third has half of the owner's nodes already
    parts = spread(nodes(4), ("a",), [Counter(a=4)], 0.5)
    assert parts == [Part(tuple(nodes(4)), ("a",))]  # where one pool is all there is the share has no effect
    parts = spread(nodes(4), ("a", "b"), [Counter(a=6, b=6)], 0.4)
    assert sum(len(part.nodes) for part in parts if part.pools) == 4
    assert spread(nodes(2), (), [Counter()], 0.5) == [Part(("n0", "n1"), ())]


def test_one_switches_it_off() -> None:
    assert spread(nodes(50), POOLS, [Counter(a=50)], 1.0) == [Part(tuple(nodes(50)), POOLS)]


@given(
    number=st.integers(1, 40),
    running=st.lists(st.dictionaries(st.sampled_from(POOLS), st.integers(0, 20)), max_size=2),
    share=st.floats(0.05, 1.0),
    pools=st.lists(st.sampled_from(POOLS), min_size=1, max_size=3, unique=True),
)
def test_no_owner_has_too_many_in_a_pool(
    number: int, running: list[dict[str, int]], share: float, pools: list[str]
) -> None:
    parts = spread(nodes(number), pools, running, share)
    assert sorted(node for part in parts for node in part.nodes) == sorted(nodes(number))
    most = max(share, 1.0 / len(pools))
    for counts in running:
        total = sum(counts.values()) + number
        limit = math.ceil(most * total - 1e-9) if total >= LEAST_NODES else total
        for part in parts:
            for pool in part.pools:  # whichever of them EC2 takes
                assert counts.get(pool, 0) + len(part.nodes) <= limit


def test_jobs_that_depend_on_each_other_are_one_chain() -> None:
    jobs = [
        make_queued(1, user="ann"),
        make_queued(2, user="ann"),
        make_queued(3, user="bob", dependency="afterok:1:2(unfulfilled)"),
        make_queued(5, user="bob", dependency="afterany:3?afterok:4"),
        make_queued(6, user="bob"),
        make_queued(7),
    ]
    owners = owners_of(jobs)
    assert owners[1] == owners[2] == ("user ann", "chain 1")
    assert owners[3] == owners[5] == ("user bob", "chain 1")
    assert owners[6] == ("user bob",)
    assert owners[7] == ()
