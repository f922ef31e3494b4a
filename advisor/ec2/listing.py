"""List instances completely or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.ec2.errors import ask
from advisor.ec2.tags import has_tags


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
