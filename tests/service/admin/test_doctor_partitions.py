"""Which partitions share nodes with the on-premise ones."""

from __future__ import annotations

import pytest

from advisor.model.snapshot import Partition
from advisor.service.admin.doctor import Level
from advisor.service.admin.doctor_slurm import shared_processors, unmanaged_partitions
from advisor.slurm import parsing
from tests.decide.cases import make_settings


def partition(name: str, nodes: str) -> Partition:
    return Partition(name=name, is_up=True, nodes=nodes, total_processors=8)


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ({"gpu": "g[1-2]", "burst": "cloud[1-9]"}, ""),
        ({"short": "n[7-12]", "gpu": "g1", "scavenger": "n1,g1"}, "short, scavenger"),
        ({"burst": "n1"}, ""),  # the burst partition has a check of its own
        ({"odd": "n[1"}, ""),
    ],
)
def test_partitions_that_share_nodes_are_named(others: dict[str, str], named: str) -> None:
    every = {name: partition(name, nodes) for name, nodes in {"onprem": "n[1-8]", **others}.items()}
    settings = make_settings(cluster={"on_premise_partitions": ["onprem", "gone"]})
    (found,) = unmanaged_partitions(settings, every)
    assert found.level is (Level.WARNING if named else Level.OK)
    assert named in found.what
    managed = make_settings(cluster={"on_premise_partitions": ["onprem", "short", "scavenger", "gpu"]})
    (found,) = unmanaged_partitions(managed, every)
    assert found.level is Level.OK


def test_partitions_whose_jobs_share_processors_are_named() -> None:
    shown = {
        "gang": "FORCE:2",
        "main": "NO",
        "old": "FORCE:4",
        "burst": "FORCE:2",
        "one": "FORCE:1",
        "may": "YES:4",
    }
    text = "\n".join(f"PartitionName={name} State=UP OverSubscribe={word}" for name, word in shown.items())
    partitions = {one.name: one for one in parsing.partitions(text)}
    ours = ["gang", "main", "old", "one", "gone"]
    settings = make_settings(cluster={"on_premise_partitions": ours, "modes": {"old": "off"}})
    found = [one.what.partition(" lets")[0] for one in shared_processors(settings, partitions)]
    assert found == [f"OverSubscribe=FORCE:2 of partition {name}" for name in ("gang", "burst")]
