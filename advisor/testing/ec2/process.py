"""The emulator as a process of its own, and the handle tests hold."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from advisor.ec2.clients import client
from advisor.model.errors import TellAdmin
from advisor.model.settings_cloud import Ec2Settings

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_TRIES: Final = 3


class _Forks:
    """The process from which this one's emulators are forked; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def start(self, port: int, environment: Mapping[str, str], log: Path) -> int:
        """Start an emulator; its process id."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "advisor.testing.ec2"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,
                )
            asked = {"port": port, "environment": {**os.environ, **environment}, "log": str(log)}
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            return int((self._process.stdout or sys.stdin).readline())


_FORKS: Final = _Forks()


class Ec2Emulator:
    """Starts the emulator and speaks to its control interface.

    Args:
        log: Where its output goes; nowhere by default.

    Examples:
        >>> with Ec2Emulator() as ec2:  # doctest: +SKIP
        ...     ec2.capacity({"c5.xlarge|us-east-1a|spot": 0})
        ...     settings = ec2.settings()
    """

    def __init__(self, log: Path | None = None) -> None:
        self._log = log
        self._process: int | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Endpoint for boto3."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to speak to it: made-up credentials and the endpoint."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "emulator",
            "AWS_SECRET_ACCESS_KEY": "emulator",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def __enter__(self) -> Self:
        for _ in range(_TRIES):  # another process may take the port before the server listens
            self._start()
            if self._await_answer():
                return self
            self.stop()
        msg = f"the EC2 emulator did not start; see {self._log or 'its log (pass log=)'}"
        raise TellAdmin(msg, code="emulator.start")

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process = _FORKS.start(self.port, self.environment, self._log or Path(os.devnull))

    def _await_answer(self) -> bool:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if not self._signal(0):
                return False
            try:
                self.control("ping")
            except OSError:
                time.sleep(0.05)
            else:
                return True
        return False

    def stop(self) -> None:
        """End the process; everything it knew is gone."""
        self._signal(signal.SIGTERM)
        end = time.monotonic() + _STOP_SECONDS
        while self._signal(0 if time.monotonic() < end else signal.SIGKILL):
            time.sleep(0.01)
        self._process = None

    def _signal(self, number: int) -> bool:
        """Whether the process is still there."""
        if self._process is None:
            return False
        try:
            os.kill(self._process, number)
        except ProcessLookupError:
            return False
        return True

    def control(self, verb: str, body: Any = None) -> Any:
        """Call the control interface.

        Raises:
            ValueError: If the emulator refuses the verb or a value.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", f"/_emulator/{verb}", json.dumps({} if body is None else body))
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise ValueError(answer["error"])
        return answer

    def config(self, **behaviour: float | bool | None) -> None:
        """Set how long things take (`advisor.testing.ec2.state.Behaviour`)."""
        self.control("config", behaviour)

    def capacity(self, pools: Mapping[str, int | None]) -> None:
        """Set what pools can give: ``{"c5.xlarge|us-east-1a|spot": 3}``; ``*`` for any zone or market."""
        self.control("capacity", dict(pools))

    def quotas(self, vcpus: Mapping[str, int]) -> None:
        """Set the vCPUs that the account may have: ``{"spot": 64}``; markets without an entry: any number."""
        self.control("quotas", dict(vcpus))

    def prices(self, prices: Mapping[str, float]) -> None:
        """Set spot prices (``"type|zone"``) and on-demand prices (``"type"``), dollars an hour."""
        self.control("prices", dict(prices))

    def history(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows of the spot price history, as DescribeSpotPriceHistory gives them."""
        self.control("history", list(rows))

    def reserved(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add reserved instances, as DescribeReservedInstances gives them."""
        self.control("reserved", list(rows))

    def reservations(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add capacity reservations, as DescribeCapacityReservations gives them; ``others``: in use."""
        self.control("reservations", list(rows))

    def savings(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add Savings Plans, as DescribeSavingsPlans gives them; ``rates``: dollars by instance type."""
        self.control("savings", list(rows))

    def products(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows of the price list, as GetProducts gives them."""
        self.control("products", list(rows))

    def faults(self, rules: Sequence[Mapping[str, Any]]) -> None:
        """Put fault rules in force and forget the calls seen so far (`advisor.testing.ec2.faults`)."""
        self.control("faults", list(rules))

    def reclaim(self, instance_id: str, **how: float | str | None) -> None:
        """Take a spot instance back: ``notice_s``, ``rebalance_lead_s``, ``reason``."""
        self.control("reclaim", {"instance_id": instance_id, **how})

    def reclaim_pool(self, instance_type: str, zone: str, **how: float | str | None) -> None:
        """Take all running spot instances of a type in a zone back together; as `reclaim`."""
        self.control("reclaim", {"instance_type": instance_type, "zone": zone, **how})

    def take_back(self, instance_id: str) -> None:
        """End a spot instance as EC2 would, now: after a long notice of `reclaim`, or without any."""
        self.control("take_back", {"instance_id": instance_id})

    def interruption_queue(self, name: str = "advisor") -> str:
        """Make a queue and the EventBridge rule that puts EC2's events into it; its URL, for the settings.

        `reset` takes both away again.
        """
        settings = self.settings()
        events, queue = client("events", settings), client("sqs", settings)
        url = str(queue.create_queue(QueueName=name)["QueueUrl"])
        attributes = queue.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        events.put_rule(Name=name, EventPattern=json.dumps({"source": ["aws.ec2"]}))
        events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": attributes["QueueArn"]}])
        return url

    def instances(self) -> list[dict[str, Any]]:
        """Every instance, terminated ones included: id, state, option, tags, user_data ..."""
        return list(self.control("instances"))

    def calls(self, action: str | None = None) -> list[dict[str, Any]]:
        """Requests since the last `faults` or `reset`."""
        return [call for call in self.control("calls") if action in (None, call["action"])]

    def reset(self) -> None:
        """Back to an empty account."""
        self.control("reset")

    def settings(self, **changes: Any) -> Ec2Settings:
        """Settings that point to this endpoint."""
        values = {"endpoint_url": self.url, "image_id": "ami-12c6146b", "instance_type": "c5.xlarge"}
        return Ec2Settings(**{**values, **changes})
