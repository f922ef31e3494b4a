"""The settings of a site that a running cluster of LSF determines, for `advisor init`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.model.settings import DEFAULT_CLUSTER_NAME
from advisor.model.snapshot import Partition
from advisor.service.admin.found_site import Proposal, cluster_name


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLsf:
    """The answers of LSF.

    Attributes:
        environment_folder: The folder of lsf.conf.
        name: The cluster's name as `lsid` shows it; empty if it shows none.
        has_priorities: Whether lsb.params has MAX_USER_PRIORITY.
    """

    environment_folder: Path
    name: str
    queues: Sequence[Partition]
    has_priorities: bool


def proposal_for_lsf(site: FoundLsf) -> Proposal:
    """Settings that differ from their defaults at this site, or that each site has to know."""
    found = Proposal()
    found.values["cluster.scheduler"] = "lsf", "lsf.conf is there"
    found.values["paths.lsf_envdir"] = str(site.environment_folder), "the folder of lsf.conf"
    name = cluster_name(site.name)
    if name and name != DEFAULT_CLUSTER_NAME:
        found.values["cluster.name"] = name, "lsid"
    else:
        found.notes.append("Set cluster.name to LSF's name of the cluster: it tags every instance.")
    _queues(site, found)
    if not site.has_priorities:
        why = "lsb.params has no MAX_USER_PRIORITY: small jobs cannot be put first"
        found.values["size.small_priority_offset"] = 0, why
    found.notes.append(
        "Run advisor control as root or as one of LSF's administrators, on a host that sees its logdir. "
        "docs/lsf.md says how bsub asks at submission, and how the resource connector gets hosts in EC2."
    )
    return found


def _queues(site: FoundLsf, found: Proposal) -> None:
    """The burst queue shares no host with the default queue, or has none yet."""
    here = sorted((queue for queue in site.queues if queue.is_up), key=lambda queue: not queue.is_default)
    default = next((queue for queue in here if queue.is_default), here[0] if here else None)
    hosts = set[str]() if default is None else _hosts(default)
    apart = [queue for queue in here if queue is not default and not hosts & _hosts(queue)]
    ours = [queue.name for queue in here if queue not in apart]
    if ours:
        why = "queues that are open, LSF's default first"
        found.values["cluster.on_premise_partitions"] = ours, why
        found.notes.append("Remove from cluster.on_premise_partitions those whose jobs are never to move.")
    else:
        found.notes.append("No queue is open: name cluster.on_premise_partitions yourself.")
    if len(apart) == 1:
        why = "it shares no host with the default queue"
        found.values["cluster.burst_partition"] = apart[0].name, why
        return
    names = ", ".join(queue.name for queue in apart)
    which = (
        f"Several queues share no host with the default queue: {names}."
        if apart
        else ("Every queue shares hosts with the default queue: which one is the cloud's is not known.")
    )
    found.notes.append(
        f"{which} Name the cloud's queue in cluster.burst_partition, and leave it out of "
        "cluster.on_premise_partitions. Its hosts are in no other queue; it has none while the resource "
        "connector has launched none."
    )


def _hosts(queue: Partition) -> set[str]:
    return {name for name in queue.nodes.split(",") if name}
