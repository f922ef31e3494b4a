"""The tags of instances: their cluster, their launch, and their node.

The launch call sets them, so no instance of the advisor is ever without them. One RunInstances call gives all
its instances the same tags; the launch index, which EC2 counts from 0 within a call and an instance can read
in its metadata, says which of the launch's nodes an instance is. So no second call is needed to name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from advisor.model.errors import BadInput
from advisor.model.node_sets import expand, fold

CLUSTER_TAG: Final = "advisor:cluster"
INTENT_TAG: Final = "advisor:intent"
NODE_TAG: Final = "advisor:node"
"""The node of an instance that was launched alone or tagged afterwards."""
NODES_TAG: Final = "advisor:nodes"
"""Nodes of a whole launch, folded (``burst[1-500]``); node i is the instance with launch index i."""

_MAX_VALUE: Final = 256  # EC2's limit of a tag's value


def batches(nodes: Iterable[str], largest: int) -> list[tuple[str, ...]]:
    """Split nodes into launches of at most `largest`, whose folded names fit into one tag.

    Nodes are in the order in which `NODES_TAG` expands. Raises BadInput if a name is not a node name.
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
    """The tag that names the nodes of a launch."""
    if len(nodes) == 1:
        return [{"Key": NODE_TAG, "Value": nodes[0]}]
    return [{"Key": NODES_TAG, "Value": fold(nodes)}]


def as_mapping(raw: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """EC2's list of keys and values as a mapping."""
    return {tag["Key"]: tag.get("Value", "") for tag in raw}


def has_tags(raw: Mapping[str, Any], tags: Mapping[str, str]) -> bool:
    """Whether a resource in EC2's answer has all these tags with these values; it may have others."""
    found = as_mapping(raw.get("Tags") or ())
    return all(found.get(name) == value for name, value in tags.items())


def node_of(tags: Mapping[str, str], launch_index: int) -> str | None:
    """Node of an instance; None when its tags do not name it."""
    if tags.get(NODE_TAG):
        return tags[NODE_TAG]
    try:
        nodes = expand(tags.get(NODES_TAG, ""))
    except BadInput:  # edited by hand
        return None
    return nodes[launch_index] if launch_index < len(nodes) else None
