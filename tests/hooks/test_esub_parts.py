"""The parts of the esub: what it reads, asks and judges."""

from __future__ import annotations

import ast
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.job import Job
from advisor.service.exchange.protocol import (
    AdviseRequest,
    decode_request,
)
from advisor.service.submit.submission import job_of
from tests.hooks.esub import SCRIPT, script

__all__ = ["script"]

SETTINGS = {
    "default_project": "default",
    "default_queue": "normal",
    "memory_unit": "MB",
    "memory_of": "host",
    "harmless_options": "",
}

LOST_SETTINGS = {**SETTINGS, "queue_for.spot": "aws_spot"}


def test_it_is_written_for_python_3_6() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    newer = {"isascii", "removeprefix", "removesuffix", "posix_spawn", "posix_spawnp"}
    assert not newer & {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def request_of(script: ModuleType, **options: str) -> AdviseRequest:
    request = decode_request(script.encode(script.describe(options, SETTINGS)))
    assert isinstance(request, AdviseRequest)
    return request


def job(script: ModuleType, **options: str) -> Job:
    return job_of(request_of(script, **options), now=1.0, default_queue="other", group_names={})


def test_every_option(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LSB_DEFAULTPROJECT", raising=False)
    plain = job(script)
    assert (plain.queue, plain.account, plain.processors, plain.requested_time) == (
        "normal",
        "default",
        1,
        None,
    )
    assert (plain.requeue, plain.interactive, plain.explicit_partition) == (False, False, False)
    assert job(script, QUEUE="long").explicit_partition
    assert job(script, NUM_TASKS="8", NUM_PROCESSORS="4").processors == 8
    assert job(script, PTY="Y").interactive
    assert job(script, HOLD="Y").deferred
    assert job(script, BEGIN_TIME="99").deferred
    assert job(script, HOSTS="node1 node2 ").node_list == "node1 node2 "
    assert job(script, DEPEND_COND="done(7)").dependency == "done(7)"
    assert job(script, ADVRSV_ID="ann#0").reservation == "ann#0"
    assert job(script, SLA="gold").qos == "gold"
    assert job(script, JOB_DESCRIPTION="no-burst").comment == "no-burst"
    assert job(script, RLIMIT_RUN="61").requested_time == 120.0
    monkeypatch.setenv("LSB_DEFAULTPROJECT", "chemistry")
    assert job(script).account == "chemistry"


@pytest.mark.parametrize(
    ("requirement", "nodes", "whole", "per_node", "licenses", "gres"),
    [
        ("", None, None, None, None, None),
        ("rusage[mem=4G]", None, 4096, 4096, None, None),
        ("rusage[mem=4G/task]", None, 32768, None, None, None),
        ("rusage[mem=4G/job] span[hosts=1]", 1, 4096, 4096, None, None),
        ("span[ptile=3] rusage[mem=512]", 3, 1536, 512, None, None),
        ("order[mem] rusage[matlab=1,ngpus_physical=2]", None, None, None, "matlab=1", "ngpus_physical=2"),
        ("rusage[mem=much]", None, None, None, None, None),
        ("span[hosts=-1]", None, None, None, None, None),
    ],
)
def test_resource_requirements(
    script: ModuleType,
    requirement: str,
    nodes: int | None,
    whole: int | None,
    per_node: int | None,
    licenses: str | None,
    gres: str | None,
) -> None:
    asked = job(script, RES_REQ=requirement, NUM_PROCESSORS="8")
    assert asked.nodes == nodes
    assert (asked.memory_mb, asked.memory_mb_per_node) == (whole, per_node)
    assert (asked.licenses, asked.gres, asked.processors) == (licenses, gres, 8)
    assert asked.node_processors == {1: 8, 3: 3, None: None}[nodes]


@pytest.mark.parametrize(
    ("text", "name", "tasks"),
    [
        ("flow", "flow", 1),
        ("scan[1-100]", "scan", 100),
        ("scan[1-10:2,50]%3", "scan", 6),
        ("odd[1", "odd[1", 1),
    ],
)
def test_arrays(script: ModuleType, text: str, name: str, tasks: int) -> None:
    asked = job(script, JOB_NAME=text)
    assert (asked.name, asked.array_tasks) == (name, tasks)


@given(st.dictionaries(st.sampled_from(["JOB_NAME", "COMMAND_LINE", "PROJECT_NAME"]), st.text(max_size=40)))
def test_what_is_written_is_read(script: ModuleType, tmp_path_factory: Any, options: dict[str, str]) -> None:
    written = {name: value.replace("\\", "").replace("\r", "") for name, value in options.items()}
    text = "".join(f'LSB_SUB_{name}="' + value.replace('"', '\\"') + '"\n' for name, value in written.items())
    path = tmp_path_factory.getbasetemp() / "parameters"
    path.write_text(text, newline="")
    assert script.read_options(str(path)) == written


@given(st.binary(max_size=300))
def test_any_parameter_file_is_read_or_left_alone(
    script: ModuleType, tmp_path_factory: Any, text: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "parameters"
    path.write_bytes(b"LSB_SUB_" + text)
    try:
        options = script.read_options(str(path))
        script.look_at(options, SETTINGS)
        line = script.encode(script.describe(options, SETTINGS))
    except script.LeftAlone:
        return
    assert decode_request(line)


@given(st.text(max_size=60))
def test_no_name_hides_another_option(script: ModuleType, tmp_path_factory: Any, name: str) -> None:
    """A job called `x"\\nLSB_SUB_QUEUE="y` is called that, and asks for no queue."""
    path = tmp_path_factory.getbasetemp() / "parameters"
    for text in (name, f'{name}"\nLSB_SUB_QUEUE="y', f"{name}\nLSB_SUB_QUEUE=y"):
        written = text.replace("\\", "/")
        path.write_text('LSB_SUB_JOB_NAME="' + written.replace('"', '\\"') + '"\n', newline="")
        assert "QUEUE" not in script.read_options(str(path))


@given(st.text(max_size=100))
def test_any_answer_is_judged(script: ModuleType, answer: str) -> None:
    for line in (
        answer,
        f"=000991\t1\t\t{answer}\t\t\t\t\t\t\t\n",
        f"=000991\t1\t\tburst\t{answer}\t\t\t\t\t{answer}\t\n",
    ):
        try:
            lines, message = script.changes_for(line, {}, LOST_SETTINGS)
        except script.LeftAlone:
            continue
        assert lines == "" or lines.startswith('LSB_SUB_QUEUE="')
        assert lines.count("\n") <= 2
        assert message == "" or message.isprintable()


def test_the_script_knows_the_protocols_fields(script: ModuleType) -> None:
    known = {field.name for field in msgspec.structs.fields(AdviseRequest)}
    asked = script.describe(
        {"JOB_NAME": "a[1-2]", "RES_REQ": "rusage[mem=1:lic=1:ngpus=1] span[ptile=1]"}, SETTINGS
    )
    assert asked.keys() <= known


def test_a_job_of_one_host_needs_all_its_slots_there(script: ModuleType) -> None:
    asked = script.resources_of({"RES_REQ": "span[hosts=1]"}, script.DEFAULTS, 64)
    assert (asked["min_nodes"], asked["max_nodes"]) == (1, 1)


def test_memory_is_for_each_slot_where_the_site_says_so(script: ModuleType) -> None:
    """RESOURCE_RESERVE_PER_TASK: a job of 16 slots with `mem=4G` waits for a host with 64 GB, not 4."""
    for of_site, written, asked in (
        ("task", "4G", {"memory_per_cpu": 4096}),
        ("task", "4G/host", {"memory_per_node": 4096}),
        ("host", "4G", {"memory_per_node": 4096}),
    ):
        settings = {**SETTINGS, "memory_of": of_site}
        assert script.resources_of({"RES_REQ": f"rusage[mem={written}]"}, settings, 16) == asked
