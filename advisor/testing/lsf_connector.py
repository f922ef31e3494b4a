"""A stand-in for LSF's resource connector (ebrokerd): it asks a provider's scripts, as IBM documents them.

Each script gets a file of JSON and prints JSON
(https://github.com/IBMSpectrumComputing/cloud-provider-plugins, README). A host that a request has made joins
the stand-in for LSF; one that is idle is given back, and one that the provider has lost leaves.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from advisor.testing.lsf_stand_in import LsfStandIn

_RESULTS: Final = frozenset({"succeed", "executing", "fail"})
_STATUSES: Final = frozenset({"complete", "running", "complete_with_error"})
_SECONDS: Final = 60.0
_ROUND_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class _Asked:
    """An open request: slots that it brings, cores and resources of a host."""

    slots: int
    cores: int
    resources: frozenset[str]


class StandInConnector:
    """Plays ebrokerd, a round at a time.

    Args:
        scripts: The folder of the provider's scripts.
        queue: Its ``RC_HOSTS`` names the provider's hosts.
        idle_seconds: For so long a host is kept without a job.

    Attributes:
        machines: Instance of each host that has joined.
        log: Every question, with its input and answer.
    """

    def __init__(self, lsf: LsfStandIn, scripts: Path, queue: str, *, idle_seconds: float = 1.0) -> None:
        self._lsf = lsf
        self._scripts = scripts
        self._queue = queue
        self._idle_seconds = idle_seconds
        self._asked: dict[str, _Asked] = {}
        self._ending: set[str] = set()
        self._idle_since: dict[str, float] = {}
        self.machines: dict[str, str] = {}
        self.log: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def call(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Run a script; its answer.

        Raises:
            RuntimeError: It failed: ebrokerd asks again later.
        """
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "input.json"
            file.write_text(json.dumps(asked))
            done = subprocess.run(  # noqa: S603 - the script that is tried
                [str(self._scripts / f"{name}.sh"), "-f", str(file)],
                env={**os.environ, "PROVIDER_NAME": "advisor"},
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS,
            )
        answer: dict[str, Any] = json.loads(done.stdout)
        self.log.append((name, dict(asked), answer))
        if done.returncode:
            raise RuntimeError(answer["message"])
        return answer

    def run(self, stop: threading.Event) -> None:
        """Rounds until it is told to stop."""
        while not stop.wait(_ROUND_SECONDS):
            self.round()

    def round(self) -> None:
        """Ask for what waits, take what has come, give back what is idle or lost."""
        self._ask_for_hosts()
        for request in sorted(self._asked):
            self._take(request)
        self._give_up_lost()
        self._give_back_idle()
        for request in sorted(self._ending):
            if self._state(request)["status"] != "running":
                self._ending.discard(request)

    def _ask_for_hosts(self) -> None:
        """Hosts of the first template that fits, for the slots that wait beyond those on their way."""
        jobs = self._lsf.wanted(self._queue)
        if sum(slots for slots, _ in jobs) <= sum(asked.slots for asked in self._asked.values()):
            return
        for template in self.call("getAvailableTemplates", {})["templates"]:
            attributes = template["attributes"]
            has = {word for word, (kind, value) in attributes.items() if kind == "Boolean" and value == "1"}
            on_their_way = sum(asked.slots for asked in self._asked.values() if asked.resources == has)
            wanted = sum(slots for slots, resources in jobs if resources <= has) - on_their_way
            jobs = [job for job in jobs if not job[1] <= has]
            cores = int(attributes["ncpus"][1])
            if wanted > 0:
                count = min(math.ceil(wanted / cores), template["maxNumber"])
                self._ask(template["templateId"], count, cores, frozenset(has))

    def _ask(self, template: str, count: int, cores: int, resources: frozenset[str]) -> None:
        chosen = {"templateId": template, "machineCount": count}
        try:
            answer = self.call(
                "requestMachines", {"template": chosen, "rc_account": "default", "userData": {}}
            )
        except RuntimeError:  # it is asked again in the next round
            return
        self._asked[answer["requestId"]] = _Asked(count * cores, cores, resources)

    def _state(self, request: str) -> dict[str, Any]:
        (found,) = self.call("getRequestStatus", {"requests": [{"requestId": request}]})["requests"]
        assert found["status"] in _STATUSES, found  # noqa: S101 - a test double
        assert {machine["result"] for machine in found["machines"]} <= _RESULTS, found  # noqa: S101
        state: dict[str, Any] = found
        return state

    def _take(self, request: str) -> None:
        state = self._state(request)
        if state["status"] == "running":
            return
        came = [machine for machine in state["machines"] if machine["result"] == "succeed"]
        asked = self._asked.pop(request)
        for machine in came:
            self.machines[machine["name"]] = machine["machineId"]
            resources = " ".join(sorted(asked.resources))
            self._lsf.add_host(machine["name"], asked.cores, self._queue, resources)

    def _named(self, names: list[str]) -> dict[str, Any]:
        return {"machines": [{"name": name, "machineId": self.machines[name]} for name in names]}

    def _give_up_lost(self) -> None:
        if self.machines:
            answer = self.call("getReturnRequests", self._named(sorted(self.machines)))
            self._give_back([one["machine"] for one in answer["requests"]])

    def _give_back_idle(self) -> None:
        now = time.monotonic()
        idle = {name for name in self.machines if self._lsf.idle(name)}
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        self._give_back(
            [name for name, since in self._idle_since.items() if now - since >= self._idle_seconds]
        )

    def _give_back(self, names: list[str]) -> None:
        if not names:
            return
        for name in names:
            self._lsf.remove_host(name)
        self._ending.add(self.call("requestReturnMachines", self._named(names))["requestId"])
        for name in names:
            del self.machines[name]
            self._idle_since.pop(name, None)
