"""A thousand nodes asked for in one go: from the call until an instance is requested for each of them.

The endpoint is the emulator (`advisor.testing.ec2`) in a process of its own, so most of the time measured is
the emulator's; beside it as many instances of one type are asked for with bare boto3, 500 at a time and
without limits of requests, a journal, breakers or tokens. The difference is what the launch protocol costs,
classes of nodes and EC2's limits included.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import boto3

from advisor.ec2.classes import class_of_nodes, instance_types_of
from advisor.ec2.fleet import Fleet, LaunchReport
from advisor.ec2.journal import Journal
from advisor.ec2.pools import UnavailablePools
from advisor.model.advice import Capacity
from advisor.model.settings_classes import NodeClass
from advisor.service.state.state_files import CLOSED_POOLS
from advisor.testing.ec2 import Ec2Emulator

Tell = Callable[[str], None]
_BAR_SECONDS: Final = 15.0
_PEER_BATCH: Final = 500
_LIMITS: Final = {
    "RunInstances": ({"burst": 5, "rate": 2}, {"burst": 1000, "rate": 2, "each": "MaxCount"}),
    "CreateFleet": ({"burst": 50, "rate": 5},),
    "CreateTags": ({"burst": 100, "rate": 10},),
    "CreateLaunchTemplate": ({"burst": 50, "rate": 5},),
}
"""EC2's documented buckets of requests and of instances, and what each gets back in a second."""
_TYPES: Final = (
    ("c5.xlarge", "c5a.xlarge", "c6i.xlarge"),
    ("m5.xlarge", "m5a.xlarge", "m6i.xlarge"),
    ("r5.xlarge", "r5a.xlarge", "r6i.xlarge"),
    ("c5.2xlarge", "c5a.2xlarge", "c6i.2xlarge"),
    ("m5.2xlarge", "m5a.2xlarge", "m6i.2xlarge"),
)


def run(*, nodes: int = 1000, classes: int = 10, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Measure one resume of so many nodes, and its repetition.

    Args:
        nodes: How many.
        classes: Classes of nodes that share them, each of three types and on spot; 0: no class, on-demand.
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
        emulator.faults(_throttles())
        fleet = _fleet(emulator, Path(folder), _classes(nodes, classes))
        capacity_of = dict.fromkeys(names, Capacity.SPOT if classes else Capacity.ON_DEMAND)
        tell(f"resume of {nodes} nodes")
        report, seconds = _timed(lambda: fleet.resume(names, capacity_of=capacity_of))
        calls = _launch_calls(emulator)
        throttled = {action: sum(call["fault"] for call in emulator.calls(action)) for action in _LIMITS}
        tell("the same resume again")
        again, again_seconds = _timed(lambda: fleet.resume(names, capacity_of=capacity_of))
        running = [item for item in emulator.instances() if item["state"] in ("pending", "running")]
        launched_again = _launch_calls(emulator) - calls
        alive = [item for item in fleet.instances() if item.is_alive]
        nodes_of = Counter(item.node for item in alive)
        types_of = {
            name: instance_types_of(fleet.settings, of) for name, of in class_of_nodes(fleet.settings).items()
        }
    return {
        "nodes": nodes,
        "seconds": seconds,
        "bar_seconds": _BAR_SECONDS,
        "instances": len(running),
        "given_up": len(report.failed),
        "double": sum(number > 1 for number in nodes_of.values()),
        "wrong_class": sum(
            bool(types_of) and item.instance_type not in types_of.get(item.node or "", ()) for item in alive
        ),
        "launch_calls": dict(calls),
        "throttled_calls": throttled,
        "again": {
            "seconds": again_seconds,
            "launch_calls": dict(launched_again),
            "nodes_with_instance": len(again.launched),
        },
        "peer": {"name": "bare boto3, no journal", "seconds": peer_seconds},
        "cost_of_protocol_seconds": seconds - peer_seconds,
    }


def _throttles() -> list[dict[str, Any]]:
    return [
        {"service": "ec2", "action": action, "throttle": bucket}
        for action, buckets in _LIMITS.items()
        for bucket in buckets
    ]


def _launch_calls(emulator: Ec2Emulator) -> Counter[str]:
    return Counter({action: len(emulator.calls(action)) for action in ("RunInstances", "CreateFleet")})


def _classes(nodes: int, classes: int) -> dict[str, NodeClass]:
    """Classes with equal shares of the nodes; every second one has the types of the one before."""
    found = {}
    for number in range(classes):
        first, last = nodes * number // classes + 1, nodes * (number + 1) // classes
        if first <= last:
            found[f"class{number}"] = NodeClass(
                nodes=f"burst[{first}-{last}]",
                instance_types=_TYPES[number // 2 % len(_TYPES)],
                cores=4,
                memory_mb=7000,
                on_demand_usd_per_hour=0.2,
            )
    return found


def _fleet(emulator: Ec2Emulator, folder: Path, classes: Mapping[str, NodeClass]) -> Fleet:
    breakers = UnavailablePools(CLOSED_POOLS.at(folder), time.time)
    settings = emulator.settings().model_copy(update={"classes": classes})
    return Fleet(settings, "bench", Journal(folder / "launches.jsonl"), breakers)


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
