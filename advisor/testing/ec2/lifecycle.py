"""From pending to terminated: delays, events, read-after-write lag and spot reclaims."""

from __future__ import annotations

import datetime as dt
import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.utils import filter_reservations
from moto.events.models import events_backends

from advisor.testing.ec2 import capacity
from advisor.testing.ec2.state import EmulatorState

_RUNNING: Final = ("running", 16)
_PENDING: Final = ("pending", 0)
_SHUTTING_DOWN: Final = ("shutting-down", 32)
_TERMINATED: Final = ("terminated", 48)
_BY_USER: Final = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
_BY_EC2: Final = (
    "Server.SpotInstanceTermination",
    "Server.SpotInstanceTermination: Spot instance termination",
)
# EC2's own words for it are not documented: nothing may depend on them
_BLOCK_OVER: Final = ("Server.CapacityBlockEnded", "Server.CapacityBlockEnded: the capacity block is over")

_log = structlog.get_logger("advisor.testing.ec2")


class Lifecycle:
    """Moves instances through their states and tells EventBridge.

    Args:
        state: The emulator's memory; instances are in ``state.instances``.
    """

    def __init__(self, state: EmulatorState) -> None:
        self.state = state
        self._events: queue.Queue[tuple[Any, str, dict[str, str]]] = queue.Queue()

    def install(self) -> None:
        """Patch moto: termination takes time, and new instances are invisible for a while."""
        lifecycle = self
        original = Instance.terminate
        everything = InstanceBackend.all_reservations

        def terminate(instance: Any, *_: Any, **__: Any) -> Any:
            return lifecycle.terminate(instance, original)

        def all_reservations(backend: Any, filters: Any = None) -> Any:
            visible = []
            for reservation in everything(backend):
                reservation.instances = [i for i in reservation.instances if lifecycle.is_visible(i)]
                if reservation.instances:
                    visible.append(reservation)
            return visible if filters is None else filter_reservations(visible, filters)

        self._original_terminate = original
        setattr(Instance, "terminate", terminate)  # noqa: B010 -- a patch, and meant as one
        setattr(InstanceBackend, "all_reservations", all_reservations)  # noqa: B010 -- as above
        threading.Thread(target=self.state.timers.run_forever, daemon=True).start()
        threading.Thread(target=self._deliver_forever, daemon=True).start()

    def is_visible(self, instance: Any) -> bool:
        """Whether Describe calls show an instance already."""
        return time.monotonic() >= float(getattr(instance, "emulator_visible_at", 0.0))

    def born(self, instance: Any) -> None:
        """Begin the life of an instance that was just launched."""
        behaviour = self.state.behaviour
        self.state.instances[instance.id] = instance
        instance.emulator_visible_at = time.monotonic() + self.state.scaled(behaviour.visible_after_s)
        if self.state.free_addresses:
            _set_address(instance, self.state.free_addresses.pop(0))
        if behaviour.address_after_s:
            address = instance.private_ip
            _set_address(instance, None)
            after = self.state.scaled(behaviour.address_after_s)
            self.state.timers.after(after, lambda: _set_address(instance, address))
        self._become(instance, _PENDING)

        def run() -> None:
            if instance._state.code == _PENDING[1]:  # noqa: SLF001 -- moto has no public setter
                self._become(instance, _RUNNING)

        if behaviour.pending_s:
            self.state.timers.after(self.state.scaled(behaviour.pending_s), run)
        else:
            run()

    def terminate(
        self,
        instance: Any,
        original: Callable[[Any], Any],
        reason: tuple[str, str] = _BY_USER,
        request_code: str = "instance-terminated-by-user",
    ) -> Any:
        """Begin the end of an instance; its capacity is free again at once."""
        with self.state.lock:
            before = type("State", (), {"name": instance._state.name, "code": instance._state.code})()  # noqa: SLF001
            if before.code in (_SHUTTING_DOWN[1], _TERMINATED[1]):
                return before
            original(instance)
            instance.emulator_ended = time.time()  # EC2 bills until an instance begins to shut down
            instance.state_reason.code, instance.state_reason.message = reason
            capacity.give_back(self.state, getattr(instance, "emulator_pool", None))
            if self.state.behaviour.reuse_addresses and instance.private_ip:
                self.state.free_addresses.append(instance.private_ip)
            request = self.state.spot_requests.get(getattr(instance, "spot_instance_request_id", ""))
            if request:
                status = {"Code": request_code, "Message": reason[1], "UpdateTime": _now()}
                request.update(State="closed", Status=status)
            self._become(instance, _SHUTTING_DOWN)
            if self.state.behaviour.shutdown_s:
                after = self.state.scaled(self.state.behaviour.shutdown_s)
                self.state.timers.after(after, lambda: self._end(instance))
            else:
                self._end(instance)
            return before

    def reclaim(
        self,
        instance_id: str,
        notice_s: float = 120.0,
        rebalance_lead_s: float | None = None,
        reason: str = "no-capacity",
    ) -> None:
        """Take a spot instance back: rebalance recommendation, warning, and after the notice the end."""
        instance = self.state.instances[instance_id]

        def warn() -> None:
            if instance._state.code not in (_PENDING[1], _RUNNING[1]):  # noqa: SLF001
                return
            request = self.state.spot_requests.get(getattr(instance, "spot_instance_request_id", ""))
            if request:
                text = "Your Spot Instance is marked for termination."
                code = "marked-for-termination"
                request["Status"] = {"Code": code, "Message": text, "UpdateTime": _now()}
            kind = "EC2 Spot Instance Interruption Warning"
            self._events.put((instance, kind, {"instance-action": "terminate"}))
            self.state.timers.after(
                self.state.scaled(notice_s), lambda: self.take_back(instance_id, reason=reason)
            )

        if rebalance_lead_s is None:
            warn()
        else:
            self._events.put((instance, "EC2 Instance Rebalance Recommendation", {}))
            self.state.timers.after(self.state.scaled(rebalance_lead_s), warn)

    def take_back(self, instance_id: str, reason: str = "no-capacity") -> None:
        """Take a spot instance back now, whatever was said of it before, or nothing."""
        instance = self.state.instances.get(instance_id)
        if instance is not None:
            code = f"instance-terminated-{reason}"
            self.terminate(instance, self._original_terminate, _BY_EC2, code)

    def end_of_block(self, instance_id: str) -> None:
        """End an instance because its capacity block is over."""
        instance = self.state.instances.get(instance_id)
        if instance is not None:
            self.terminate(instance, self._original_terminate, _BLOCK_OVER)

    def _become(self, instance: Any, state: tuple[str, int]) -> None:
        instance._state.name, instance._state.code = state  # noqa: SLF001
        self._events.put((instance, "EC2 Instance State-change Notification", {"state": state[0]}))

    def _end(self, instance: Any) -> None:
        if instance._state.code == _TERMINATED[1]:  # noqa: SLF001
            return
        self._become(instance, _TERMINATED)
        purge = self.state.scaled(self.state.behaviour.purge_s)
        self.state.timers.after(purge, lambda: self._purge(instance))

    def _purge(self, instance: Any) -> None:
        for reservation in list(instance.ec2_backend.reservations.values()):
            reservation.instances = [other for other in reservation.instances if other is not instance]
            if not reservation.instances:
                instance.ec2_backend.reservations.pop(reservation.id, None)
        self.state.instances.pop(instance.id, None)

    def _deliver_forever(self) -> None:
        """Put events on the default bus, in order, outside the lock."""
        while True:
            instance, kind, detail = self._events.get()
            try:
                _put_event(instance, kind, detail)
            except Exception:  # noqa: BLE001 -- one lost event must not stop the others
                _log.exception("event.lost", kind=kind, instance=instance.id)


def _put_event(instance: Any, kind: str, detail: dict[str, str]) -> None:
    backend = events_backends[instance.ec2_backend.account_id][instance.region_name]
    if not any(rule.targets for bus in backend.event_buses.values() for rule in bus.rules.values()):
        return
    zone = instance._placement.zone  # noqa: SLF001
    backend.put_events(
        [
            {
                "Source": "aws.ec2",
                "DetailType": kind,
                "Detail": json.dumps({"instance-id": instance.id, **detail}),
                "Resources": [f"arn:aws:ec2:{zone}:instance/{instance.id}"],
            }
        ]
    )


def _set_address(instance: Any, address: str | None) -> None:
    instance.nics[0].private_ip_address = address
    instance.nics[0].private_ip_addresses = (
        [{"Primary": True, "PrivateIpAddress": address}] if address is not None else []
    )


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
