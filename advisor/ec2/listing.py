"""List a cluster's instances completely or not at all: one left out would be taken for lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.ec2.clients import client
from advisor.ec2.errors import ask
from advisor.ec2.instances import as_instance
from advisor.ec2.tags import CLUSTER_TAG, has_tags
from advisor.model.settings_cloud import Ec2Settings


def described(ec2: Any, tags: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Return every instance that EC2 lists and that has all these tags, terminated ones included.

    EC2 reads `*` and `?` in a filter's value as wildcards, so the tags are compared again here.

    Raises:
        AdvisorError: A page cannot be read. A caller would take the rest for lost (docs/faults.md, F23).
    """
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]
    )
    found: list[Mapping[str, Any]] = ask(
        lambda: [
            instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]
    )
    return [instance for instance in found if has_tags(instance, tags)]


def instances_that_may_cost(settings: Ec2Settings, cluster: str) -> list[str]:
    """The ids of a cluster's instances that have not ended; a stopped one may cost money.

    Raises:
        AdvisorError: EC2 cannot be asked.
    """
    raw = described(client("ec2", settings), {CLUSTER_TAG: cluster})
    return [found.instance_id for found in map(as_instance, raw) if found.may_cost]
