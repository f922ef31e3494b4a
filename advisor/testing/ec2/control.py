"""What tests and sites may do to the emulator: one method a verb, JSON in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from advisor.testing.ec2.lifecycle import Lifecycle
from advisor.testing.ec2.reserving import as_reservation
from advisor.testing.ec2.state import Behaviour, EmulatorState, PoolKey


class Control:
    """Carries out verbs.

    Args:
        state: What they change.
        lifecycle: Ends instances.
    """

    def __init__(self, state: EmulatorState, lifecycle: Lifecycle) -> None:
        self.state = state
        self.lifecycle = lifecycle

    def carry_out(self, verb: str, body: Any) -> Any:
        """Carry out one verb; an unknown verb or value raises ValueError, KeyError or TypeError."""
        action = getattr(self, f"on_{verb}", None)
        if action is None:
            msg = f"no verb {verb!r}"
            raise ValueError(msg)
        with self.state.lock:
            answer = action(body)
        return {"ok": True} if answer is None else answer

    def on_ping(self, _: Any) -> None:
        """Do nothing, successfully."""

    def on_config(self, body: Mapping[str, Any]) -> None:
        """Change how long things take."""
        known = {field.name for field in fields(Behaviour)}
        if unknown := set(body) - known:
            msg = f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}"
            raise ValueError(msg)
        self.state.behaviour = replace(self.state.behaviour, **body)

    def on_capacity(self, body: Mapping[str, int | None]) -> None:
        """Set or (null) unset what pools can give."""
        for name, number in body.items():
            self._set_capacity(name, number)

    def on_quotas(self, body: Mapping[str, int]) -> None:
        """Set the quotas of vCPUs of the markets; those that are not named are lifted."""
        if unknown := set(body) - {"spot", "on-demand"}:
            msg = f"unknown market: {', '.join(sorted(unknown))}"
            raise ValueError(msg)
        self.state.quotas = {market: int(vcpus) for market, vcpus in body.items()}

    def on_prices(self, body: Mapping[str, float]) -> None:
        """Set prices."""
        for name, price in body.items():
            kind, _, zone = name.partition("|")
            self.state.prices[kind, zone or None] = float(price)

    def on_history(self, body: list[dict[str, Any]]) -> None:
        """Add rows of the spot price history."""
        self.state.history.extend(body)

    def on_reserved(self, body: list[dict[str, Any]]) -> None:
        """Add reserved instances."""
        self.state.reserved.extend(body)

    def on_reservations(self, body: list[dict[str, Any]]) -> None:
        """Add capacity reservations."""
        self.state.reservations.extend(as_reservation(row) for row in body)

    def on_savings(self, body: list[dict[str, Any]]) -> None:
        """Add Savings Plans."""
        self.state.savings.extend(body)

    def on_placement_scores(self, body: Mapping[str, int]) -> None:
        """Set the score of regions."""
        self.state.placement_scores.update(body)

    def on_products(self, body: list[dict[str, Any]]) -> None:
        """Add rows of the price list."""
        self.state.products.extend(body)

    def on_faults(self, body: list[dict[str, Any]]) -> None:
        """Put fault rules in force."""
        self.state.faults.replace(body)
        self.state.calls.clear()

    def on_reclaim(self, body: Mapping[str, Any]) -> None:
        """Take a spot instance back, or with ``instance_type`` and ``zone`` all of that pool together."""
        how = dict(body)
        if (kind := how.pop("instance_type", None)) is None:
            self.lifecycle.reclaim(**how)
            return
        zone = how.pop("zone")
        for one in [_as_json(each) for each in self.state.instances.values()]:
            if (one["type"], one["zone"], one["option"], one["state"]) == (kind, zone, "spot", "running"):
                self.lifecycle.reclaim(one["id"], **how)

    def on_take_back(self, body: Mapping[str, Any]) -> None:
        """Take a spot instance back without (more) notice."""
        if body["instance_id"] not in self.state.instances:
            raise KeyError(body["instance_id"])
        self.lifecycle.take_back(**body)

    def on_instances(self, _: Any) -> list[dict[str, Any]]:
        """List every instance."""
        return [_as_json(instance) for instance in self.state.instances.values()]

    def on_calls(self, _: Any) -> list[dict[str, Any]]:
        """List the calls seen."""
        return list(self.state.calls)

    def on_reset(self, _: Any) -> None:
        """Empty the account."""
        from moto.moto_api._internal.models import moto_api_backend  # noqa: PLC0415 -- heavy

        self.state.forget_everything()
        moto_api_backend.reset()

    def _set_capacity(self, name: str, number: int | None) -> None:
        kind, zone, market = name.split("|")
        key: PoolKey = (kind, zone, market)
        if number is None:
            self.state.capacity.pop(key, None)
        else:
            self.state.capacity[key] = number


def _as_json(instance: Any) -> dict[str, Any]:
    """Everything a boot harness needs to know of an instance."""
    data = instance.user_data
    return {
        "id": instance.id,
        "state": instance.state,
        "type": instance.instance_type,
        "zone": instance._placement.zone,  # noqa: SLF001
        "ip": instance.private_ip,
        "launch_index": instance.ami_launch_index,
        "launched": instance.launch_time.timestamp(),
        "ended": getattr(instance, "emulator_ended", None),
        "option": instance.lifecycle or "on-demand",
        "reservation": getattr(instance, "capacity_reservation_id", None),
        "group": instance._placement.group_name or None,  # noqa: SLF001
        "efa": getattr(instance, "emulator_efa", False),
        "tags": {tag["key"]: tag["value"] for tag in instance.get_tags()},
        "user_data": data.decode() if hasattr(data, "decode") else data,
    }
