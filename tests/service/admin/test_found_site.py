"""What `advisor init` proposes for a cluster."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from advisor.config import load
from advisor.config.reference import MAX_STARTING, starting_file
from advisor.model.snapshot import Partition
from advisor.service.admin.found_site import FoundSite, Proposal, proposal_for
from tests.service.doubles import make_node

CONFIG = {
    "ClusterName": "c1",
    "SLURM_CONF": "/opt/slurm/etc/slurm.conf",
    "JobSubmitPlugins": "lua",
    "JobRequeue": "1",
    "PriorityType": "priority/multifactor",
    "AccountingStorageType": "accounting_storage/slurmdbd",
}


def partition(name: str, **fields: Any) -> Partition:
    return Partition(**({"name": name, "is_up": True, "nodes": "", "total_processors": 8} | fields))


def propose(config: dict[str, str] | None = None, **fields: Any) -> Proposal:
    site: dict[str, Any] = {
        "partitions": (
            partition("gpu"),
            partition("work", is_default=True),
            partition("old", is_up=False),
            partition("cloud", max_minutes=1440),
        ),
        "nodes": (
            make_node("n1", "IDLE", partitions=("gpu", "work", "old")),
            make_node("c1", "IDLE", "CLOUD", partitions=("cloud",)),
        ),
        "slurm_bin": Path("/usr/bin"),
        "loads_hook": True,
    }
    return proposal_for(FoundSite(config=CONFIG | (config or {}), **(site | fields)))


def values(found: Proposal) -> dict[str, Any]:
    return {key: value for key, (value, _) in found.values.items()}


def test_a_cluster_with_a_cloud_partition_is_described() -> None:
    assert values(propose()) == {
        "paths.slurm_conf": "/opt/slurm/etc/slurm.conf",
        "cluster.name": "c1",
        "cluster.on_premise_partitions": ["work", "gpu"],
        "cluster.burst_partition": "cloud",
        "placement.max_time_limit_seconds": 86_400.0,
    }


def test_a_partition_whose_nodes_are_hidden_is_said_and_is_not_on_premise(tmp_path: Path) -> None:
    shown = make_node("n1", "IDLE", partitions=("work",))
    found = propose(partitions=(partition("work"), partition("burst")), nodes=(shown,))
    assert values(found)["cluster.on_premise_partitions"] == ["work"]
    assert any("burst" in note and "PrivateData=cloud" in note for note in found.notes)
    path = tmp_path / "advisor.toml"
    path.write_text(starting_file(found.values, found.notes))
    assert load(path, {}).settings.cluster.on_premise_partitions == ("work",)


@pytest.mark.parametrize(
    ("config", "fields", "key", "value"),
    [
        ({"JobSubmitPlugins": "(null)"}, {"loads_hook": False}, "cluster.hook", False),
        ({}, {"loads_hook": False}, "cluster.hook", False),
        ({"JobRequeue": "0"}, {}, "cluster.requeue_default", False),
        ({"PriorityType": "priority/basic"}, {}, "size.small_priority_offset", 0),
        ({"PriorityWeightAge": "5000"}, {}, "size.small_priority_offset", 5001),
        ({}, {"slurm_bin": Path("/opt/slurm/bin")}, "paths.slurm_bin", "/opt/slurm/bin"),
        ({"ClusterName": "_my cluster!"}, {}, "cluster.name", "mycluster"),
    ],
)
def test_what_differs_from_a_default_is_set(
    config: dict[str, str], fields: dict[str, Any], key: str, value: object
) -> None:
    assert values(propose(config, **fields))[key] == value
    assert key not in values(propose()) or value != values(propose())[key]


@pytest.mark.parametrize(
    ("config", "fields", "word"),
    [
        ({"ClusterName": "cluster"}, {}, "cluster.name"),
        ({"AccountingStorageType": "(null)"}, {}, "slurmdbd"),
        ({}, {"partitions": (partition("work"),)}, "cloud nodes"),
        ({}, {"partitions": ()}, "No partition is up"),
        ({}, {"loads_hook": False}, "already"),
        ({}, {}, "instance_type"),
    ],
)
def test_what_an_admin_has_to_decide_is_said(
    config: dict[str, str], fields: dict[str, Any], word: str
) -> None:
    assert any(word in note for note in propose(config, **fields).notes)


@pytest.mark.parametrize("is_odd", [False, True])
def test_the_file_has_at_most_30_settings_and_says_what_was_found(tmp_path: Path, *, is_odd: bool) -> None:
    odd = {"JobSubmitPlugins": "", "JobRequeue": "0", "PriorityType": "priority/basic"}
    found = propose(odd if is_odd else None, loads_hook=not is_odd, slurm_bin=Path("/opt/bin"))
    text = starting_file(found.values, found.notes)
    path = tmp_path / "advisor.toml"
    path.write_text(text)
    loaded = load(path, {})
    assert loaded.settings.cluster.name == "c1"
    assert loaded.settings.cluster.hook is not is_odd
    assert loaded.settings.cluster.default_mode == "shadow"
    written = {f"{section}.{name}" for section, names in tomllib.loads(text).items() for name in names}
    assert written == found.values.keys()
    # with those that are commented out
    everything = "\n".join(line.removeprefix("#") if line[:2] != "# " else "" for line in text.splitlines())
    shown = [line for line in everything.splitlines() if " = " in line]
    assert len(found.values) < len(shown) <= MAX_STARTING
    assert all(note.split(".")[0][:60] in " ".join(text.replace("\n#", " ").split()) for note in found.notes)
