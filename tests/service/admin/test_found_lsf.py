"""Settings for a cluster of LSF, from what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor.model.snapshot import Partition
from advisor.service.admin.found_lsf import FoundLsf, proposal_for_lsf
from advisor.service.admin.found_site import Proposal


def queue(name: str, nodes: str, *, is_default: bool = False, is_up: bool = True) -> Partition:
    return Partition(name=name, is_up=is_up, nodes=nodes, total_processors=8, is_default=is_default)


def proposal(*queues: Partition, **changes: Any) -> Proposal:
    said = {"environment_folder": Path("/lsf/conf"), "name": "hpc one!", "has_priorities": True} | changes
    return proposal_for_lsf(FoundLsf(queues=queues, **said))


def values(found: Proposal) -> dict[str, Any]:
    return {name: value for name, (value, _) in found.values.items()}


def test_the_queue_with_hosts_of_its_own_is_the_cloud() -> None:
    found = proposal(
        queue("long", "here1,here2"), queue("normal", "here1", is_default=True), queue("aws", "cloud1"),
        queue("closed", "here1", is_up=False),
    )  # fmt: skip
    assert values(found) == {
        "cluster.scheduler": "lsf",
        "cluster.name": "hpcone",
        "cluster.on_premise_partitions": ["normal", "long"],
        "cluster.burst_partition": "aws",
        "paths.lsf_envdir": "/lsf/conf",
    }


def test_what_the_admin_has_to_decide() -> None:
    found = proposal(
        queue("normal", "here1", is_default=True),
        queue("aws", ""),
        queue("gcp", ""),
        name="",
        has_priorities=False,
    )
    assert "cluster.burst_partition" not in values(found)
    assert "cluster.name" not in values(found)
    assert values(found)["size.small_priority_offset"] == 0
    assert any("aws, gcp" in note for note in found.notes)
    alone = proposal(queue("normal", "here1", is_default=True))
    assert any("Every queue shares hosts with the default queue" in note for note in alone.notes)
    assert any("No queue is open" in note for note in proposal().notes)
