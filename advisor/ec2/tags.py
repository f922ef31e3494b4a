"""The tags an instance is launched with, and what they say about it.

All are set by the launch call itself, so there is no moment at which an instance of ours has none: they
prove the owner, name the launch, and say which node each instance is. One RunInstances call gives all its
instances the same tags; they are told apart by the launch index, which EC2 numbers from 0 within a call and
an instance can read in its own metadata. So the node is known without a second call, whatever crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from advisor.model.errors import BadInput
from advisor.slurm.node_sets import expand, fold

CLUSTER_TAG: Final = "advisor:cluster"
INTENT_TAG: Final = "advisor:intent"
NODE_TAG: Final = "advisor:node"
"""The node of an instance that was launched alone, or was named afterwards."""
NODES_TAG: Final = "advisor:nodes"
"""Nodes of a whole launch, folded (``burst[1-500]``); number i is the one with launch index i."""

_MAX_VALUE: Final = 256  # EC2's limit of a tag's value


def batches(nodes: Iterable[str], largest: int) -> list[tuple[str, ...]]:
    """Split nodes into launches: each at most `largest`, its names short enough for one tag.

    Returns
    -------
    list of tuple of str
        Every node once, in the order in which `NODES_TAG` expands.

    Raises
    ------
    BadInput
        A name is not a node's.
    """
    stack = [expand(fold(nodes))]
    done = []
    while stack:
        batch = stack.pop()
        cut = len(batch)
        if len(batch) > largest:
            cut = largest
        elif len(batch) > 1 and len(fold(batch)) > _MAX_VALUE:
            cut = len(batch) // 2
        if cut < len(batch):
            stack += [batch[cut:], batch[:cut]]
        elif batch:
            done.append(batch)
    return done


def node_tags(nodes: tuple[str, ...]) -> list[dict[str, str]]:
    """Tag that tells which nodes a launch is for."""
    if len(nodes) == 1:
        return [{"Key": NODE_TAG, "Value": nodes[0]}]
    return [{"Key": NODES_TAG, "Value": fold(nodes)}]


def as_mapping(raw: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """EC2's list of keys and values as a mapping."""
    return {tag["Key"]: tag.get("Value", "") for tag in raw}


def has_tags(raw: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
    """Whether something that EC2 lists carries exactly these tags, letter by letter."""
    found = as_mapping(raw.get("Tags") or ())
    return all(found.get(name) == value for name, value in tags.items())


def node_of(tags: Mapping[str, str], launch_index: int) -> str | None:
    """Node an instance was launched for; None when its tags do not say."""
    if tags.get(NODE_TAG):
        return tags[NODE_TAG]
    try:
        nodes = expand(tags.get(NODES_TAG, ""))
    except BadInput:  # somebody else's hand
        return None
    return nodes[launch_index] if launch_index < len(nodes) else None
