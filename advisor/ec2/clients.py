"""botocore clients with their retry behaviour said out loud: its default differs between releases.

It is `legacy` in boto3 1.43 and `standard` in 1.44. Launches have one attempt and a loop of our own above
them (`advisor.ec2.fleet`): a throttled call is repeated with the same token, a capacity error goes to the
next pool at once and not after nine seconds of retries. Everything else may be repeated by botocore.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

import botocore.loaders
import botocore.session
from botocore.config import Config

from advisor.ec2.errors import failure_of
from advisor.model.settings import Ec2Settings

_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 30
_LONG_POLL_READ_SECONDS: Final = 30  # SQS long polls last 20
_MODELS: Final = botocore.loaders.create_loader()  # shared: reading EC2's model takes a tenth of a second

LAUNCH_CONFIG: Final = Config(
    retries={"mode": "adaptive", "total_max_attempts": 1},
    connect_timeout=_CONNECT_SECONDS,
    read_timeout=_READ_SECONDS,
    max_pool_connections=16,
)
READ_CONFIG: Final = Config(
    retries={"mode": "adaptive", "total_max_attempts": 5},
    connect_timeout=_CONNECT_SECONDS,
    read_timeout=max(_READ_SECONDS, _LONG_POLL_READ_SECONDS),
    max_pool_connections=16,
)


def client(service: str, settings: Ec2Settings, config: Config = READ_CONFIG) -> Any:
    """Make a client; credentials come from botocore's own chain and are never a setting of ours.

    Parameters
    ----------
    service : str
        ``"ec2"``, ``"sqs"``, ``"pricing"`` ...
    settings : Ec2Settings
        Region and endpoint. ``AWS_ENDPOINT_URL`` is honoured by botocore itself when the setting is empty.
    config : Config
        `LAUNCH_CONFIG` for RunInstances, `READ_CONFIG` for everything else.

    Returns
    -------
    botocore client
        Untyped on purpose: botocore makes its classes at run time.

        Its first use raises an AdvisorError where credentials cannot be had or AWS is configured wrongly.
    """
    endpoint = settings.endpoint_url or os.environ.get("AWS_ENDPOINT_URL") or None

    def make() -> Any:
        session = botocore.session.get_session()
        session.register_component("data_loader", _MODELS)
        return session.create_client(
            service, region_name=settings.region, endpoint_url=endpoint, config=config
        )

    return _MadeWhenUsed(make)


class _MadeWhenUsed:
    """A client that is made at its first use, and again after a failure.

    botocore looks for credentials when it makes one, and may run the site's `credential_process`: that must
    not keep a process from starting, and what it raises must be an error that a caller acts on.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._client: Any = None

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._made()
        return getattr(self._client, name)

    def _made(self) -> Any:
        try:
            return self._make()
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            raise failure.as_error() from error
