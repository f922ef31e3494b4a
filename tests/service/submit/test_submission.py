"""A request becomes a job."""

from __future__ import annotations

import dis
from types import FunctionType
from typing import Any

import pytest

from advisor.decide.submission.advise import advise
from advisor.service.submit.answering import reply_to
from advisor.service.submit.submission import job_of, memory_of, processors_of, submission_of
from tests.service.site import NOW, ask


@pytest.mark.parametrize(
    ("options", "processors"),
    [
        ({"min_cpus": None}, 1),
        ({"min_cpus": 1}, 1),
        ({"min_cpus": 12, "num_tasks": 6, "cpus_per_task": 2}, 12),  # -N2 --ntasks-per-node=3 -c2
        ({"min_cpus": 1, "num_tasks": 6}, 6),
        ({"min_cpus": 1, "min_nodes": 4}, 4),
        ({"min_cpus": 1, "min_nodes": 2, "ntasks_per_node": 8, "cpus_per_task": 2}, 32),
        ({"min_cpus": 2**60}, 2**31 - 1),
    ],
)
def test_processors_are_the_most_the_options_imply(options: dict[str, int], processors: int) -> None:
    assert processors_of(ask(**options)) == processors


@pytest.mark.parametrize(
    ("options", "processors"),
    [
        ({"min_cpus": 8}, None),  # -n8
        ({"min_cpus": 8, "min_nodes": 1, "max_nodes": 1}, 8),  # -n8 -N1
        ({"min_cpus": 8, "min_nodes": 2, "max_nodes": 3}, 3),  # -n8 -N2-3
        ({"min_cpus": 8, "num_tasks": 1, "cpus_per_task": 8}, 8),  # -c8
        ({"min_cpus": 16, "num_tasks": 8, "cpus_per_task": 2, "ntasks_per_node": 4}, 8),
        ({"min_cpus": 2, "num_tasks": 2, "ntasks_per_node": 8}, 2),
        ({"min_cpus": 1, "min_cpus_per_node": 8}, 8),  # --mincpus=8
        ({"min_cpus": 1, "min_nodes": 1, "max_nodes": 1}, None),
    ],
)
def test_a_node_must_have_what_the_options_put_on_one(
    options: dict[str, int], processors: int | None
) -> None:
    job = job_of(ask(**options), now=NOW, default_queue="onprem", group_names={})
    assert job.node_processors == processors


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        ({"num_tasks": 6, "ntasks_per_node": 1}, 6),
        ({"num_tasks": 7, "ntasks_per_node": 2, "min_nodes": 3}, 4),
        ({"num_tasks": 2, "ntasks_per_node": 8, "min_nodes": 2}, 2),
        ({"num_tasks": 6}, None),
        ({"ntasks_per_node": 4}, None),
    ],
)
def test_as_many_nodes_as_the_most_tasks_of_each_make_of_all(
    options: dict[str, int], nodes: int | None
) -> None:
    job = job_of(ask(**options), now=NOW, default_queue="onprem", group_names={})
    assert job.nodes == nodes


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"min_nodes": 1, "max_nodes": 3}, 3),  # -N1-3
        ({"num_tasks": 4, "max_nodes": 4}, 4),  # -n4 --spread-job
        ({"min_nodes": 2, "max_nodes": 2}, None),
        ({"num_tasks": 6, "ntasks_per_node": 1, "max_nodes": 6}, None),
        ({"max_nodes": 2**40}, 2**31 - 1),
    ],
)
def test_a_range_of_nodes_may_take_its_largest_number(options: dict[str, int], most: int | None) -> None:
    job = job_of(ask(**options), now=NOW, default_queue="onprem", group_names={})
    assert job.most_nodes == most


def test_memory_is_the_whole_jobs() -> None:
    assert memory_of(ask(memory_per_cpu=100), 8) == 800
    assert memory_of(ask(memory_per_node=100, min_nodes=3), 8) == 300
    assert memory_of(ask(memory_per_node=100, num_tasks=8, ntasks_per_node=2), 8) == 400
    assert memory_of(ask(memory_per_node=0), 8) is None
    assert memory_of(ask(), 8) is None


def test_memory_beyond_all_bounds_is_the_most_the_ledger_holds() -> None:
    most = 2**63 - 1
    assert memory_of(ask(memory_per_cpu=2**60), 2**31 - 1) == most
    assert memory_of(ask(memory_per_node=2**62, min_nodes=4_000_000), 8) == most


def test_a_job_has_what_the_user_said() -> None:
    request = ask(
        gid=5,
        default_partition="onprem",
        array="1-4",
        requeue=False,
        req_nodes="n1",
        generic_resources="gpu:1",
    )
    job = job_of(request, now=NOW, default_queue="other", group_names={5: "chemists"})
    assert (job.submit_time, job.group, job.queue) == (NOW, "chemists", "onprem")
    assert (job.array_tasks, job.requeue, job.node_list, job.gres) == (4, False, "n1", "gpu:1")
    assert job.requested_time == 3600.0
    assert not job.explicit_partition


def test_a_named_partition_is_explicit_and_its_limit_holds() -> None:
    request = ask(partition="long", time_limit=None, partition_time_limit=10)
    job = job_of(request, now=NOW, default_queue="onprem", group_names={})
    assert job.explicit_partition
    assert job.queue == "long"
    assert job.requested_time == 600.0
    assert job.group is None


@pytest.mark.parametrize(
    ("says", "field", "value"),
    [
        ({"memory_per_cpu": 10}, "memory_mb", 20),
        ({"memory_per_node": 7}, "memory_mb_per_node", 7),
        ({"comment": ""}, "comment", ""),
        ({"features": "a&b"}, "features", ("a", "b")),
        ({"features": "a|b"}, "plain_constraint", False),
        ({"array": "1-7"}, "array_tasks", 7),
        ({"licenses": "x"}, "licenses", "x"),
        ({"reservation": "x"}, "reservation", "x"),
        ({"dependency": "x"}, "dependency", "x"),
        ({"interactive": True}, "interactive", True),
        ({"whole_nodes": True}, "whole_nodes", True),
        ({"burst_buffer": "x"}, "burst_buffer", "x"),
        ({"generic_resources": "gpu:1"}, "gres", "gpu:1"),
        ({"req_nodes": "n1"}, "node_list", "n1"),
    ],
)
def test_what_few_jobs_say_is_taken_up_alone(says: dict[str, Any], field: str, value: object) -> None:
    job = job_of(ask(**says), now=NOW, default_queue="onprem", group_names={})
    assert getattr(job, field) == value
    assert job.processors == 2


@pytest.mark.parametrize(
    ("said", "field", "value"),
    [
        ({"comment": "no-burst"}, "comment", "no-burst"),
        ({"licenses": "matlab"}, "licenses", "matlab"),
        ({"reservation": "night"}, "reservation", "night"),
        ({"dependency": "afterok:3"}, "dependency", "afterok:3"),
        ({"burst_buffer": "#BB"}, "burst_buffer", "#BB"),
        ({"tmp_disk": 100}, "tmp_disk", 100),
        ({"layout": True}, "layout", True),
        ({"whole_cores": True}, "whole_cores", True),
        ({"prefer": "a&b"}, "prefer", ("a", "b")),
        ({"cpus_per_task": 2}, "task_processors", 2),
        ({"memory_per_node": 0}, "memory_mb_per_node", 0),
        ({"generic_resources": "gpu:1"}, "gres", "gpu:1"),
        ({"req_nodes": "n[1-2]"}, "node_list", "n[1-2]"),
        ({"interactive": True}, "interactive", True),
        ({"features": "a|b"}, "features", ("a", "b")),
        ({"features": "a|b"}, "plain_constraint", False),
        ({"array": "1-9:2"}, "array_tasks", 5),
        ({"memory_per_cpu": 100, "min_cpus": 3}, "memory_mb", 300),
        ({"memory_per_node": 100, "min_nodes": 3}, "memory_mb", 300),
        ({"memory_per_node": 100}, "memory_mb_per_node", 100),
    ],
)
def test_a_job_has_each_rare_field_that_is_the_only_one_of_its_request(
    said: dict[str, Any], field: str, value: object
) -> None:
    usual = job_of(ask(), now=NOW, default_queue="onprem", group_names={})
    job = job_of(ask(**said), now=NOW, default_queue="onprem", group_names={})
    assert getattr(usual, field) != value
    assert getattr(job, field) == value
    assert job != usual


@pytest.mark.parametrize("function", [job_of, reply_to, advise, submission_of])
def test_no_record_is_made_of_more_keywords_than_the_interpreter_passes_directly(
    function: FunctionType,
) -> None:
    """From sixteen on CPython 3.11 makes a dictionary of them, which costs seven times as much."""
    assert "CALL_FUNCTION_EX" not in {step.opname for step in dis.get_instructions(function)}
