"""``bsub -R``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.lsf.answers import read_reserves_per_task
from advisor.lsf.resource_request import ResourceRequest, read_resource_request


@pytest.mark.parametrize(
    ("text", "processors", "whole", "per_node"),
    [
        ("rusage[mem=4915] span[hosts=1]", 8, 4915, 4915),
        ("rusage[mem=2G]", 1, 2048, 2048),
        ("rusage[mem=2G]", 8, None, 2048),  # on how many hosts nobody said
        ("rusage[mem=2GB] span[ptile=4]", 8, 4096, 2048),
        ("rusage[mem=2G/host] span[ptile=3]", 8, 6144, 2048),
        ("rusage[mem=2G/task]", 8, 16384, None),
        ("rusage[mem=1.5T/job]", 8, 1572864, None),
        ("select[mem>100] order[mem] rusage[ mem = 512 : duration=1h ]", 1, 512, 512),
        ("rusage[mem=0]", 1, None, None),
        ("rusage[mem=4\u212a]", 1, None, None),  # the sign of Kelvin is a K in lower case only
        ("rusage[mem=999999999999999P]", 1, 2**40, 2**40),  # the history has 64 bits for a number
        ("rusage[mem=(20 10):duration=(1 2)]", 1, None, None),  # phases
        ("rusage[mem=20:duration=1, mem=10]", 1, None, None),
        ("rusage[mem=20] || rusage[swp=10]", 1, None, None),  # alternatives
        ("rusage[mem=20 || mem=30]", 1, None, None),
        ("rusage[mem=20] rusage[mem=30]", 1, None, None),
        ("1*{rusage[mem=20]} + 2*{rusage[mem=30]}", 3, None, None),
        ("rusage[mem=much]", 1, None, None),
        ("rusage[]", 1, None, None),
        ("", 1, None, None),
    ],
)
def test_memory(text: str, processors: int, whole: int | None, per_node: int | None) -> None:
    asked = read_resource_request(text, processors)
    assert (asked.memory_mb, asked.memory_mb_per_node) == (whole, per_node)


def test_the_sites_unit_is_for_numbers_without_one() -> None:
    assert read_resource_request("rusage[mem=4]", 1, "GB").memory_mb == 4096
    assert read_resource_request("rusage[mem=4M]", 1, "GB").memory_mb == 4
    assert read_resource_request("rusage[mem=4096]", 1, "KB").memory_mb == 4


def test_the_sites_method_is_for_numbers_without_one() -> None:
    asked = read_resource_request("rusage[mem=4G] span[hosts=1]", 8, per_task=True)
    assert (asked.memory_mb, asked.memory_mb_per_node) == (32_768, None)
    assert read_resource_request("rusage[mem=4G/host] span[hosts=1]", 8, per_task=True).memory_mb == 4096
    assert read_reserves_per_task("slots:\n    RESOURCE_RESERVE_PER_TASK = Y\n")
    assert not read_reserves_per_task("slots:\n    RESOURCE_RESERVE_PER_TASK = N\n")


@pytest.mark.parametrize(
    ("text", "nodes", "on_one"),
    [
        ("span[hosts=1]", 1, 128),
        ("span[ptile=16]", 8, 16),
        ("span[ptile=100]", 2, 100),
        ("span[ptile=1]", 128, None),
        ("span[hosts=-1]", None, None),
        ("span[ptile='!']", None, None),
        ("span[ptile=0]", None, None),
        ("cu[maxcus=1]", None, None),
    ],
)
def test_hosts(text: str, nodes: int | None, on_one: int | None) -> None:
    asked = read_resource_request(text, 128)
    assert (asked.nodes, asked.node_processors) == (nodes, on_one)


def test_licences_and_gpus() -> None:
    asked = read_resource_request("rusage[mem=4G, matlab=2:duration=1m, ngpus_physical=1.00:tmp=5]", 1)
    assert (asked.licenses, asked.gres) == ("matlab=2", "ngpus_physical=1.00")
    assert read_resource_request("rusage[mem=4G:swp=1:ut=0.5]", 1).licenses is None


@given(st.text(max_size=100), st.integers(1, 10**6))
def test_any_text_is_survived(text: str, processors: int) -> None:
    assert isinstance(read_resource_request(f"rusage[{text}]", processors), ResourceRequest)


@pytest.mark.parametrize(
    ("text", "chooses"),
    [
        ("select[mem>100] rusage[mem=4]", True),
        ("bigmem", True),  # as users of LSF have written it for thirty years
        ("mem>1000 && bigmem", True),
        ("bigmem rusage[mem=100]", True),
        ("same[model]", True),
        ("affinity[core(2)]", True),
        ("1*{rusage[mem=20]} + 2*{rusage[mem=30]}", True),
        ("rusage[mem=20] || rusage[swp=10]", True),
        ("rusage[mem=20] rusage[mem=30]", True),
        ("rusage[mem=20", True),
        (" order[mem] rusage[mem=2G:duration=1h] span [ptile=4] ", False),
        ("", False),
    ],
)
def test_what_chooses_hosts(text: str, *, chooses: bool) -> None:
    assert read_resource_request(text, 8).chooses_hosts is chooses
