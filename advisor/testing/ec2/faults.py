"""Faults by rule: which call fails, how often, and in what way.

A rule is a JSON object. What it matches: ``service`` (``ec2``), ``action`` (``RunInstances``), ``params``
(flat query key to regular expression; null: must be absent). When it fires: ``skip`` (let the first N
through), ``times`` (at most N), ``prob`` with ``seed``. What happens, one of: ``error`` {code, message,
status}, ``http`` {status, body}, ``reset`` (``before`` or ``after`` the call was carried out: a lost answer),
``hang`` seconds, ``throttle`` {burst, rate, each}: a call takes a token, or as many as its parameter ``each``
says (``MaxCount``: EC2 limits instances, too); and ``latency`` seconds before anything else.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

# SDKs retry by status, so it must be the real one: EC2's own faults are 5xx, ours are 4xx
STATUS_OF: Final[Mapping[str, int]] = {
    "InsufficientInstanceCapacity": 500,
    "InsufficientHostCapacity": 500,
    "InsufficientReservedInstanceCapacity": 500,
    "InsufficientCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "RequestLimitExceeded": 503,
    "Unavailable": 503,
    "ServiceUnavailable": 503,
}
_KNOWN_KEYS: Final = frozenset(
    {"service", "action", "params", "skip", "times", "prob", "seed", "error", "http", "reset", "hang"}
    | {"throttle", "latency"}
)


class _Rule:
    """One rule and how often it has matched and fired."""

    def __init__(self, definition: Mapping[str, Any]) -> None:
        unknown = set(definition) - _KNOWN_KEYS
        if unknown:
            msg = f"unknown key in a fault rule: {', '.join(sorted(unknown))}"
            raise ValueError(msg)
        self.definition = definition
        self.seen = 0
        self.fired = 0
        self._random = random.Random(definition.get("seed", 0))  # noqa: S311 -- a test's dice
        bucket = definition.get("throttle", {})
        self._tokens = float(bucket.get("burst", 0))
        self._filled = time.monotonic()

    def matches(self, service: str, action: str, params: Mapping[str, str]) -> bool:
        definition = self.definition
        if definition.get("service", service) != service or definition.get("action", action) != action:
            return False
        return all(
            name not in params if pattern is None else re.fullmatch(pattern, params.get(name, ""))
            for name, pattern in definition.get("params", {}).items()
        )

    def fires(self, params: Mapping[str, str]) -> bool:
        definition = self.definition
        self.seen += 1
        if self.seen <= definition.get("skip", 0) or self.fired >= definition.get("times", self.seen):
            return False
        if self._random.random() >= definition.get("prob", 1.0):
            return False
        if "throttle" in definition and self._has_tokens(definition["throttle"], params):
            return False
        self.fired += 1
        return True

    def _has_tokens(self, bucket: Mapping[str, Any], params: Mapping[str, str]) -> bool:
        wanted = float(params.get(bucket.get("each", ""), 1.0))
        now = time.monotonic()
        self._tokens = min(bucket["burst"], self._tokens + (now - self._filled) * bucket["rate"])
        self._filled = now
        if self._tokens < wanted:
            return False
        self._tokens -= wanted
        return True


class FaultRules:
    """The rules in force, in order; the first that fires decides."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []

    def replace(self, definitions: Sequence[Mapping[str, Any]]) -> None:
        """Put new rules in the place of the old ones; a mistyped key is refused."""
        rules = [_Rule(definition) for definition in definitions]
        with self._lock:
            self._rules = rules

    def pick(self, service: str, action: str, params: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Find the fault to inject into a call, if any."""
        with self._lock:
            for rule in self._rules:
                if rule.matches(service, action, params) and rule.fires(params):
                    return rule.definition
        return None
