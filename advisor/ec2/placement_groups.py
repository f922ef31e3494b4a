"""Cluster placement groups: the nodes of a job of several nodes, close together.

There is one group for each class and subnet. A group costs nothing, is made at its first launch and is left
there; the instances of a group are in one zone while there are any.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

from advisor.ec2.errors import Failure, answer_or_failure
from advisor.ec2.tags import CLUSTER_TAG

_EXISTS: Final = "InvalidPlacementGroup.Duplicate"
_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9._-]")
_MOST_CHARACTERS: Final = 255


def group_name(cluster: str, node_class: str, subnet_id: str | None) -> str:
    """The name of the group of a class in a subnet."""
    name = f"advisor-{cluster}-{node_class}-{subnet_id or 'default'}"
    return _UNUSABLE.sub("-", name)[:_MOST_CHARACTERS]


class PlacementGroups:
    """Makes the placement groups of one cluster, each once."""

    def __init__(self, ec2: Any, cluster: str) -> None:
        self._ec2 = ec2
        self._cluster = cluster
        self._made: set[str] = set()

    def make(self, name: str) -> Failure | None:
        """Make sure that a group exists; the failure where EC2 refuses."""
        if name in self._made:
            return None
        tags = [{"ResourceType": "placement-group", "Tags": [{"Key": CLUSTER_TAG, "Value": self._cluster}]}]
        call = partial(
            self._ec2.create_placement_group, GroupName=name, Strategy="cluster", TagSpecifications=tags
        )
        _, failure = answer_or_failure(call)
        if failure is not None and failure.code != _EXISTS:
            return failure
        self._made.add(name)
        return None
