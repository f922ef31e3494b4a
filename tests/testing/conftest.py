"""boto3 as everybody uses it, against the emulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config

from advisor.testing.ec2 import Ec2Emulator


@pytest.fixture
def client(emulator: Ec2Emulator) -> Callable[..., Any]:
    """Makes clients of any service; nothing is repeated unless a test asks for it."""

    def make(service: str, **options: Any) -> Any:
        options.setdefault("retries", {"mode": "standard", "total_max_attempts": 1})
        return boto3.client(
            service, region_name="us-east-1", endpoint_url=emulator.url, config=Config(**options)
        )

    return make


@pytest.fixture
def ec2(client: Callable[..., Any]) -> Any:
    return client("ec2")


@pytest.fixture
def run(ec2: Any) -> Callable[..., list[dict[str, Any]]]:
    """RunInstances with defaults; the instances of the answer."""

    def launch(**request: Any) -> list[dict[str, Any]]:
        defaults = {"ImageId": "ami-12c6146b", "MinCount": 1, "MaxCount": 1, "InstanceType": "c5.large"}
        return list(ec2.run_instances(**{**defaults, **request})["Instances"])

    return launch
