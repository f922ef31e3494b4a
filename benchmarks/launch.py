"""A thousand nodes asked for in one go: from the call until an instance is requested for each of them.

The endpoint is the emulator (`advisor.testing.ec2`) in a process of its own, so most of the time measured is
the emulator's; beside it the same instances are asked for with bare boto3, in the same batches, without a
journal, breakers or tokens. The difference is what the launch protocol costs.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import boto3

from advisor.ec2.fleet import Fleet, LaunchReport
from advisor.ec2.journal import Journal
from advisor.ec2.pools import UnavailablePools
from advisor.service.state.state_files import CLOSED_POOLS
from advisor.testing.ec2 import Ec2Emulator

Tell = Callable[[str], None]
_BAR_SECONDS: Final = 15.0
_PEER_BATCH: Final = 500
_REQUESTS_A_SECOND: Final = 2  # EC2's documented bucket of RunInstances requests: 5, and 2 a second
_BURST: Final = 5


def run(*, nodes: int = 1000, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Measure one resume of so many nodes, and its repetition.

    Args:
        nodes: How many.
        tell: Told what is being done.

    Returns:
        Seconds and counts; ``given_up`` are nodes that got no instance, ``double`` nodes that got two.
    """
    names = [f"burst{number}" for number in range(1, nodes + 1)]
    tell("starting the emulator")
    with tempfile.TemporaryDirectory() as folder, Ec2Emulator() as emulator, _credentials(emulator):
        tell(f"bare boto3: {nodes} instances")
        peer_seconds = _bare(emulator, nodes)
        emulator.reset()
        emulator.faults([{"service": "ec2", "action": "RunInstances", "throttle": _bucket()}])
        fleet = _fleet(emulator, Path(folder))
        tell(f"resume of {nodes} nodes")
        report, seconds = _timed(lambda: fleet.resume(names))
        calls = emulator.calls("RunInstances")
        tell("the same resume again")
        again, again_seconds = _timed(lambda: fleet.resume(names))
        running = [item for item in emulator.instances() if item["state"] in ("pending", "running")]
        launched_again = len(emulator.calls("RunInstances")) - len(calls)
        nodes_of = Counter(item.node for item in fleet.instances() if item.is_alive)
    return {
        "nodes": nodes,
        "seconds": seconds,
        "bar_seconds": _BAR_SECONDS,
        "instances": len(running),
        "given_up": len(report.failed),
        "double": sum(number > 1 for number in nodes_of.values()),
        "run_instances_calls": len(calls),
        "throttled_calls": sum(call["fault"] for call in calls),
        "again": {
            "seconds": again_seconds,
            "run_instances_calls": launched_again,
            "nodes_with_instance": len(again.launched),
        },
        "peer": {"name": "bare boto3, no journal", "seconds": peer_seconds},
        "cost_of_protocol_seconds": seconds - peer_seconds,
    }


def _bucket() -> dict[str, int]:
    return {"burst": _BURST, "rate": _REQUESTS_A_SECOND}


def _fleet(emulator: Ec2Emulator, folder: Path) -> Fleet:
    breakers = UnavailablePools(CLOSED_POOLS.at(folder), time.time)
    return Fleet(emulator.settings(), "bench", Journal(folder / "launches.jsonl"), breakers)


def _bare(emulator: Ec2Emulator, nodes: int) -> float:
    ec2: Any = boto3.client("ec2", endpoint_url=emulator.url, region_name="us-east-1")
    settings = emulator.settings()
    ec2.describe_instances()  # moto loads its back ends at the first call: not what is measured
    began = time.perf_counter()
    for first in range(0, nodes, _PEER_BATCH):
        number = min(_PEER_BATCH, nodes - first)
        ec2.run_instances(
            ImageId=settings.image_id, InstanceType=settings.instance_type, MinCount=number, MaxCount=number
        )
    return time.perf_counter() - began


def _timed(call: Callable[[], LaunchReport]) -> tuple[LaunchReport, float]:
    began = time.perf_counter()
    report = call()
    return report, time.perf_counter() - began


@contextmanager
def _credentials(emulator: Ec2Emulator) -> Iterator[None]:
    """Made-up credentials for as long as it takes, so that nobody's real ones are used."""
    before = {name: os.environ.get(name) for name in emulator.environment}
    os.environ.update(emulator.environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
