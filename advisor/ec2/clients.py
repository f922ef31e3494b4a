"""botocore clients with an explicit retry mode: the default is `legacy` in boto3 1.43, `standard` in 1.44.

Launches have one attempt, which `advisor.ec2.launching` repeats; botocore repeats everything else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import botocore.loaders
import botocore.session
from botocore.config import Config

from advisor.ec2.errors import ask
from advisor.model.settings_cloud import Ec2Settings

_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 30  # longer than SQS's long polls, which last 20
_MODELS: Final = botocore.loaders.create_loader()  # shared: reading EC2's model takes a tenth of a second

READ_CONFIG: Final = Config(
    retries={"mode": "adaptive", "total_max_attempts": 5},
    connect_timeout=_CONNECT_SECONDS,
    read_timeout=_READ_SECONDS,
    max_pool_connections=16,
)
REFUSED_CREDENTIALS: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Codes of AWS's answers to keys that have ended or are unknown, and to a clock that is wrong."""
LAUNCH_CONFIG: Final = READ_CONFIG.merge(Config(retries={"mode": "adaptive", "total_max_attempts": 1}))


def client(service: str, settings: Ec2Settings, config: Config = READ_CONFIG) -> Any:
    """A botocore client for ``"ec2"``, ``"sqs"``, ``"pricing"`` ...; botocore finds the credentials.

    Its first use raises an AdvisorError where there are no credentials or AWS is configured wrongly. An empty
    ``ec2.endpoint_url`` means ``AWS_ENDPOINT_URL``. Use `LAUNCH_CONFIG` for RunInstances.
    """
    endpoint = settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL") or None

    def make() -> Any:
        session = botocore.session.get_session()
        session.register_component("data_loader", _MODELS)
        return session.create_client(
            service, region_name=settings.region, endpoint_url=endpoint, config=config
        )

    return _MadeWhenUsed(make)


def rows_of(connection: Any, operation: str, name: str, **request: Any) -> list[Mapping[str, Any]]:
    """The rows under a name in all pages of a client's answer."""
    pages = connection.get_paginator(operation).paginate(**request)
    return [row for page in pages for row in page[name]]


def zones_of(ec2: Any, subnet_ids: Sequence[str]) -> dict[str, str]:
    """Zone by subnet; empty for no subnet, which means any zone.

    Raises:
        AdvisorError: EC2 does not answer, or does not know one of them.
    """
    if not subnet_ids:
        return {}
    rows = ask(lambda: ec2.describe_subnets(SubnetIds=list(subnet_ids))["Subnets"])
    return {row["SubnetId"]: row["AvailabilityZone"] for row in rows}


class _MadeWhenUsed:
    """A client that is made at its first use (that takes a quarter of a second), and again after a failure.

    botocore looks for credentials when it makes a client, and may run the site's `credential_process`. That
    must not delay the start of a process, and its exceptions must become errors that a caller acts on. It
    reads keys in a file only then, so a client whose credentials AWS refuses is made again.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._client: Any = None

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            made = self._client
            if made is None:
                self._client = made = ask(self._make)
                made.meta.events.register("after-call", self._forget_if_refused)
        return getattr(made, name)  # another thread may have forgotten it by now

    def _forget_if_refused(self, parsed: Mapping[str, Any], **_: Any) -> None:
        if parsed.get("Error", {}).get("Code") in REFUSED_CREDENTIALS:
            self._client = None
