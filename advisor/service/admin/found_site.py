"""The settings of a site that a running cluster of Slurm determines, for `advisor init`. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from advisor.model.cluster import Node
from advisor.model.settings import DEFAULT_CLUSTER_NAME, Settings
from advisor.model.snapshot import Partition
from advisor.service.admin.doctor_slurm import priority_weights

_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
_LONGEST_NAME: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSite:
    """The answers of the cluster.

    Attributes:
        config: Values of ``scontrol show config``.
        slurm_bin: Folder of Slurm's commands.
        loads_hook: Whether job_submit.lua, ours or the site's own, loads the advisor's module.
    """

    config: Mapping[str, str]
    partitions: Sequence[Partition]
    nodes: Sequence[Node]
    slurm_bin: Path
    loads_hook: bool = False


@dataclass(slots=True)
class Proposal:
    """Settings for a site.

    Attributes:
        values: Value and where it comes from, by ``section.name``.
        notes: What the admin has to know or to decide, whole sentences.
    """

    values: dict[str, tuple[Any, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def proposal_for(site: FoundSite) -> Proposal:
    """Settings that differ from their defaults at this site, or that each site has to know."""
    found = Proposal()
    _paths(site, found)
    _name(site, found)
    _partitions(site, found)
    _hook(site, found)
    _slurm_conf(site, found)
    return found


def _paths(site: FoundSite, found: Proposal) -> None:
    defaults = Settings().paths
    conf = site.config.get("SLURM_CONF", "")
    if conf and Path(conf) != defaults.slurm_conf:
        found.values["paths.slurm_conf"] = conf, "scontrol show config: SLURM_CONF"
    if site.slurm_bin != defaults.slurm_bin:
        found.values["paths.slurm_bin"] = str(site.slurm_bin), "where scontrol is"


def cluster_name(said: str) -> str:
    """A scheduler's name of the cluster as ``cluster.name`` may be."""
    return "".join(letter for letter in said if letter in _NAME)[:_LONGEST_NAME].strip("_.-")


def _name(site: FoundSite, found: Proposal) -> None:
    name = cluster_name(site.config.get("ClusterName", ""))
    if name and name != DEFAULT_CLUSTER_NAME:
        found.values["cluster.name"] = name, "scontrol show config: ClusterName"
    else:
        found.notes.append("Choose cluster.name before you set ec2.image_id: it tags every instance.")


def _partitions(site: FoundSite, found: Proposal) -> None:
    """The burst partition is the one whose nodes are all State=CLOUD; the default partition comes first."""
    cloud = [p for p in site.partitions if (nodes := _nodes_of(site, p)) and all(n.is_cloud for n in nodes)]
    fixed = [
        p for p in site.partitions if (nodes := _nodes_of(site, p)) and not any(n.is_cloud for n in nodes)
    ]
    if hidden := [p.name for p in site.partitions if not _nodes_of(site, p)]:
        found.notes.append(
            f"No node is shown of {', '.join(hidden)}: left out. If they are cloud nodes of a Slurm older "
            "than 23.02, set PrivateData=cloud in slurm.conf, and run this again."
        )
    ours = sorted((p for p in fixed if p.is_up), key=lambda p: not p.is_default)
    if ours:
        names = [partition.name for partition in ours]
        why = "partitions that are up and have no cloud node, Slurm's default first"
        found.values["cluster.on_premise_partitions"] = names, why
        found.notes.append("Remove from cluster.on_premise_partitions those whose jobs are never to move.")
    else:
        found.notes.append("No partition is up: name cluster.on_premise_partitions yourself.")
    if not cloud:
        found.notes.append(
            "No partition has cloud nodes alone. Shadow mode needs none; before jobs move, add one to "
            "slurm.conf (docs/install.md, step 6) and name it in cluster.burst_partition."
        )
        return
    burst = max(cloud, key=lambda partition: partition.total_processors)
    found.values["cluster.burst_partition"] = burst.name, "its nodes are State=CLOUD"
    if len(cloud) > 1:
        others = ", ".join(partition.name for partition in cloud if partition is not burst)
        found.notes.append(f"These partitions have cloud nodes as well: {others}. The advisor uses one.")
    if burst.max_minutes is not None:
        limit = 60.0 * burst.max_minutes
        found.values["placement.max_time_limit_seconds"] = limit, f"MaxTime of partition {burst.name}"
    nodes = _nodes_of(site, burst)
    sizes = ", ".join(
        f"{processors} processors and {memory} MiB"
        for processors, memory in sorted({(node.processors, node.memory_mb) for node in nodes})
    )
    found.notes.append(f"Nodes of partition {burst.name} have {sizes}: ec2.instance_type must match.")


def _nodes_of(site: FoundSite, partition: Partition) -> list[Node]:
    return [node for node in site.nodes if partition.name in node.partitions]


def _hook(site: FoundSite, found: Proposal) -> None:
    if site.loads_hook:
        return
    if "lua" in site.config.get("JobSubmitPlugins", ""):
        found.values["cluster.hook"] = False, "job_submit.lua does not load the advisor's module"
        how = 'Add its lines (docs/install.md, "You have a job_submit.lua already")'
    else:
        found.values["cluster.hook"] = False, "slurmctld runs no job_submit.lua"
        how = "Install the hook (docs/install.md, step 4)"
    found.notes.append(
        f"Without the hook new jobs are advised from the queue, within 5 s. {how}, then set cluster.hook = "
        "true."
    )


def _slurm_conf(site: FoundSite, found: Proposal) -> None:
    if site.config.get("JobRequeue") == "0":
        found.values["cluster.requeue_default"] = False, "scontrol show config: JobRequeue"
    if "multifactor" not in site.config.get("PriorityType", ""):
        why = "PriorityType is not priority/multifactor: small jobs cannot be put first"
        found.values["size.small_priority_offset"] = 0, why
    elif (most := sum(priority_weights(site.config).values())) >= Settings().size.small_priority_offset:
        why = "1 more than the sum of Slurm's priority weights: small jobs go first, whatever their age"
        found.values["size.small_priority_offset"] = math.floor(most) + 1, why
    if "slurmdbd" not in site.config.get("AccountingStorageType", ""):
        found.notes.append("There is no slurmdbd: without it the advisor learns nothing from ended jobs.")
