"""The class of each node (`ec2.classes`)."""

from __future__ import annotations

from advisor.model.errors import BadInput
from advisor.model.node_sets import expand
from advisor.model.settings_cloud import Ec2Settings


def class_of_nodes(settings: Ec2Settings) -> dict[str, str]:
    """The class of each node that a class names.

    Raises:
        BadInput: A class names no node list, or a node that another class names.
    """
    found: dict[str, str] = {}
    for name, each in settings.classes.items():
        for node in expand(each.nodes):
            other = found.setdefault(node, name)
            if other != name:
                raise BadInput(
                    f"node {node} is in the classes {other} and {name}",
                    where="ec2.classes",
                    mend="Name each node in one class",
                    code="ec2.classes",
                )
    return found


def instance_types_of(settings: Ec2Settings, node_class: str | None) -> tuple[str, ...]:
    """The instance types that may be launched for a node of a class; None: a node without a class."""
    return (settings.instance_type,) if node_class is None else settings.classes[node_class].instance_types
