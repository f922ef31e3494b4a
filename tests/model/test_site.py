"""What a job takes of the cloud, while the size of its nodes is known and while it is not."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from advisor.decide.submission.capacity import _fits_reserved, off_spot_feature
from advisor.decide.submission.cloud_terms import cores_billed
from advisor.model.job import Job
from advisor.model.site import CloudState, Price


def job(processors: int, nodes: int | None = None, tasks: int = 1, most_nodes: int | None = None) -> Job:
    return Job(
        job_id=0,
        submit_time=0.0,
        processors=processors,
        nodes=nodes,
        array_tasks=tasks,
        most_nodes=most_nodes,
    )


@pytest.mark.parametrize(
    ("asked", "per_node", "needed", "at_most", "cores"),
    [
        (job(9), 4, 3, 3, 12),
        (job(9, nodes=9), 4, 9, 9, 36),
        (job(9, nodes=1), 4, 3, 3, 12),
        (job(9, nodes=2), 0, 2, 2, 9),
        (job(9), 0, None, 9, 9),
        (job(9, nodes=0), 0, None, 9, 9),
        (job(9, nodes=0), 4, 3, 3, 12),
        (job(3, nodes=1, most_nodes=3), 4, 3, 3, 12),  # Slurm gives it all three: they are idle
        (job(9, most_nodes=2), 4, 3, 3, 12),
        (job(3, most_nodes=3), 0, 3, 3, 3),
    ],
)
def test_nodes_of_a_job(asked: Job, per_node: int, needed: int | None, at_most: int, cores: int) -> None:
    cloud = CloudState(processors_per_node=per_node)
    assert (cloud.nodes_needed(asked), cloud.nodes_at_most(asked)) == (needed, at_most)
    assert cores_billed(asked, cloud) == cores


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        ({"processors": 15, "task_processors": 3}, 5),  # -n5 -c3: one task of three on each node of four
        ({"processors": 8, "task_processors": 2}, 2),
        ({"processors": 10, "task_processors": 5}, 3),  # no node has room for one: it is refused
        ({"processors": 8, "memory_mb": 12_000}, 4),  # --mem-per-cpu=1500: two of them on a node
        ({"processors": 8, "memory_mb": 7_200}, 2),
        ({"processors": 8, "task_processors": 2, "memory_mb": 12_000}, 4),
        ({"processors": 8, "memory_mb": 12_000, "memory_mb_per_node": 3_000}, 2),
        ({"processors": 8, "memory_mb": 40_000}, 2),  # no node has room for one
        ({"processors": 8, "whole_cores": True}, 4),
        ({"processors": 6, "task_processors": 3, "nodes": 4}, 4),
    ],
)
def test_a_task_has_its_processors_and_their_memory_on_one_node(asked: dict[str, int], nodes: int) -> None:
    cloud = CloudState(processors_per_node=4, memory_mb_per_node=4_000)
    assert cloud.nodes_needed(Job(job_id=0, submit_time=0.0, **asked)) == nodes


@pytest.mark.parametrize(
    ("asked", "memory"),
    [
        ({}, 0),
        ({"memory_mb": 8_000}, 1_000),
        ({"memory_mb": 8_000, "task_processors": 2}, 2_000),
        ({"memory_mb": 8_000, "task_processors": 2, "node_processors": 4}, 4_000),
        ({"memory_mb": 8_000, "memory_mb_per_node": 8_000}, 8_000),
        ({"memory_mb": 8_000, "whole_nodes": True}, 16_000),
        ({"memory_mb": 8_000, "memory_mb_per_node": 8_000, "whole_nodes": True}, 8_000),
        ({"whole_nodes": True}, 0),
    ],
)
def test_one_node_must_have_the_memory_of_what_is_on_it(asked: dict[str, int], memory: int) -> None:
    assert Job(job_id=0, submit_time=0.0, processors=8, **asked).node_memory_mb(16) == memory


def test_all_memory_of_a_node_is_that_of_the_sites_smallest() -> None:
    whole = Job(job_id=0, submit_time=0.0, processors=8, nodes=2, memory_mb_per_node=0)
    known, unknown = whole.with_whole_memory(64_000), whole.with_whole_memory(0)
    assert (known.memory_mb, known.memory_mb_per_node) == (128_000, 64_000)
    assert (unknown.memory_mb, unknown.memory_mb_per_node) == (None, None)
    asked = job(8)
    assert asked.with_whole_memory(64_000) is asked


def test_a_job_that_asks_for_no_memory_gets_the_burst_partitions() -> None:
    of_processor, of_node = CloudState(default_memory=(0, 1_500)), CloudState(default_memory=(4_000, 0))
    there = of_processor.as_there(job(8)), of_node.as_there(job(8, nodes=2)), CloudState().as_there(job(8))
    found = [(one.memory_mb, one.memory_mb_per_node) for one in there]
    assert found == [(12_000, None), (8_000, 4_000), (None, None)]
    asked = Job(job_id=0, submit_time=0.0, processors=8, memory_mb=100)
    assert of_node.as_there(asked) is asked


def test_a_job_that_asks_for_no_nodes_in_particular_may_have_reserved_ones() -> None:
    """It was refused them, while five other places took it for a job of one core to a node."""
    cloud = CloudState(reserved_free_nodes=9, nodes_with={"on-demand": 9.0})  # type: ignore[arg-type]
    for asked in (job(9, nodes=0), job(9)):
        assert _fits_reserved(asked, cloud, 9)
        assert off_spot_feature(asked, cloud) == "on-demand"
    assert not _fits_reserved(job(9, nodes=0, tasks=2), cloud, 9)


def test_an_account_commits_no_more_than_its_own_tokens_or_the_clusters() -> None:
    price = Price(
        seconds_per_usd=60.0, tokens_usd=10.0, tokens_by_account=MappingProxyType({"chem": 3.0, "bio": 30.0})
    )
    accounts = (("chem",), ("bio",), ("physics",), ())
    assert [price.tokens_of(payers) for payers in accounts] == [
        (3.0, "chem"),
        (10.0, ""),
        (10.0, ""),
        (10.0, ""),
    ]


def test_of_several_payers_the_largest_share_of_the_price_holds() -> None:
    price = Price(
        seconds_per_usd=60.0,
        tokens_usd=10.0,
        share_by_account=MappingProxyType({"chem": 0.5, "user ann": 0.25, "user *": 0.1}),
    )
    payers = (("chem", "user ann"), ("bio", "user ann"), ("bio", "user bob"), ("bio",), ())
    assert [price.seconds_of(names) for names in payers] == [30.0, 15.0, 6.0, 60.0, 60.0]


def test_any_other_user_commits_no_more_than_the_budget_of_any() -> None:
    tokens = MappingProxyType({"user ann": 5.0, "user *": 2.0})
    price = Price(seconds_per_usd=60.0, tokens_usd=10.0, tokens_by_account=tokens)
    assert price.tokens_of(("chem", "user bob")) == (2.0, "user bob")
    left = price.committed(1.5, {"chem": 1.5, "user bob": 1.5})
    assert left.tokens_of(("user bob",)) == (0.5, "user bob")
    assert left.tokens_of(("user eve",)) == (2.0, "user eve"), "each of the others has it"
    assert left.tokens_of(("user ann",)) == (5.0, "user ann")


def test_a_commitment_takes_its_worst_case_from_the_tokens() -> None:
    price = Price(seconds_per_usd=1.0, tokens_usd=10.0, tokens_by_account=MappingProxyType({"chem": 5.0}))
    left = price.committed(3.0, {"chem": 1.0})
    assert (left.tokens_of(["chem"]), left.tokens_of([])) == ((4.0, "chem"), (7.0, ""))
