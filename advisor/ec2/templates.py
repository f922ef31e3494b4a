"""Launch templates: what CreateFleet cannot be told in its call.

A template's name holds the hash of its content, so it is made once for each content, by whichever process is
first, and never changed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import partial
from typing import Any, Final

from advisor.ec2.errors import Failure, answer_or_failure
from advisor.ec2.requests import METADATA, user_data
from advisor.ec2.tags import CLUSTER_TAG
from advisor.model.settings_cloud import Ec2Settings

_EXISTS: Final = "InvalidLaunchTemplateName.AlreadyExistsException"
GONE: Final = "InvalidLaunchTemplateName.NotFoundException"
"""EC2's answer to a launch from a template that was deleted."""
_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9().\-/_]")
_MADE_WITH_IT: Final = ("volume", "network-interface", "spot-instances-request")


def template_data(settings: Ec2Settings, cluster: str) -> dict[str, Any]:
    """The launch template with the data that all instances of a cluster share.

    Raises:
        TellAdmin: The user data cannot be read.
    """
    owner = [{"Key": CLUSTER_TAG, "Value": cluster}]
    optional = {
        "SecurityGroupIds": list(settings.security_group_ids),
        "KeyName": settings.key_name,
        "UserData": base64.b64encode(user_data(settings).encode()).decode(),
        "IamInstanceProfile": {"Name": settings.instance_profile} if settings.instance_profile else None,
    }
    return {
        "ImageId": settings.image_id,
        "MetadataOptions": dict(METADATA),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": [{"ResourceType": kind, "Tags": owner} for kind in _MADE_WITH_IT],
    } | {name: value for name, value in optional.items() if value}


def _template_name(data: dict[str, Any], cluster: str) -> str:
    """The name of the template with this content."""
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return f"advisor-{_UNUSABLE.sub('-', cluster)[:90]}-{digest[:16]}"


class Templates:
    """Makes the templates of one cluster, each once."""

    def __init__(self, ec2: Any, settings: Ec2Settings, cluster: str) -> None:
        self._ec2 = ec2
        self._settings = settings
        self._cluster = cluster
        self._made: set[str] = set()

    @property
    def is_made(self) -> bool:
        """Whether this process has made one, or seen that it exists."""
        return bool(self._made)

    def make(self) -> tuple[str, Failure | None]:
        """The name of the template of the present settings, which exists unless there is a failure.

        Raises:
            TellAdmin: The user data cannot be read.
        """
        data = template_data(self._settings, self._cluster)
        name = _template_name(data, self._cluster)
        if name in self._made:
            return name, None
        tags = [{"ResourceType": "launch-template", "Tags": [{"Key": CLUSTER_TAG, "Value": self._cluster}]}]
        call = partial(
            self._ec2.create_launch_template,
            LaunchTemplateName=name,
            LaunchTemplateData=data,
            TagSpecifications=tags,
        )
        _, failure = answer_or_failure(call)
        if failure is not None and failure.code != _EXISTS:
            return name, failure
        self._made.add(name)
        return name, None

    def forget(self) -> None:
        """Make the templates again: one was deleted."""
        self._made.clear()
