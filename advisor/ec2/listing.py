"""Reading instances, to the end or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.ec2.errors import failure_of
from advisor.ec2.tags import has_tags


def described(ec2: Any, tags: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Every instance with exactly these tags, terminated ones included as long as EC2 lists them.

    EC2 reads `*` and `?` in a filter's value as wildcards, so the tags of what it lists are compared again.

    Raises
    ------
    AdvisorError
        A page can't be read: half a list is no list, and no list means no action (F23).
    """
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": f"tag:{name}", "Values": [value]} for name, value in tags.items()]
    )
    try:
        return [
            instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
            if has_tags(instance, tags)
        ]
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            raise
        raise failure.as_error() from error
