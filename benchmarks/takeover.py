"""Two controllers: the first one dies at random moments, under load. Is anything lost, doubled or refused?

A real pair of slurmctld with one StateSaveLocation, and on each side `advisor serve` and `advisor control`
with one `paths.state`. Nothing is judged here.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from advisor.ec2.tags import INTENT_TAG, node_of
from advisor.history.store import HistoryStore
from advisor.model.bill import MIN_SECONDS
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.lease_file import LEASE, read_holder
from advisor.testing.site import Daemon, Site, SiteOptions
from benchmarks.takeover_pair import (
    BACKUP,
    LAB,
    STANDBY_SECONDS,
    Load,
    Second,
    replaced,
    since,
    wait,
)

_ALIVE: Final = ("pending", "running")
_STOPPED_SECONDS: Final = 25.0  # longer than the lease


class Backup:
    """The second side: slurmctld with its programs and hook, settings and processes; the state is shared."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.folder = site.folder / "b"
        self.slurm = Second(site.lab, self.folder, site.programs)
        self.config = config = self.folder / "advisor.toml"
        environment = {
            **site.environment,
            "ADVISOR_CONFIG": str(config),
            "SLURM_CONF": str(self.slurm.conf),
        }
        python = (*self.slurm.alone, sys.executable)
        self.serve, self.control = (
            Daemon(command, config, self.folder / f"{command}.log", environment, python)
            for command in ("serve", "control")
        )

    def install(self) -> None:
        """Copy the first side's files, with the second side's paths."""
        site = self._site
        changes = {
            str(site.folder / "run"): str(self.folder / "run"),
            str(site.programs): str(self.folder / "programs"),
            str(site.lab.conf.parent): str(self.slurm.conf.parent),
        }
        self.slurm.install(changes)
        self.config.write_text(replaced(site.config.read_text(), changes))

    def start(self) -> None:
        """Start its slurmctld, `advisor control` and `advisor serve`."""
        self.slurm.start()
        self.control.start()
        self.serve.start()

    def stop(self) -> None:
        """End them."""
        self.control.stop()
        self.serve.stop()
        self.slurm.stop()


def run(
    *,
    times: int = 10,
    only_control: bool = False,
    restarts: bool = True,
    pause: float = 1.0,
    seed: int = 1,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Kill the first controller again and again.

    Args:
        times: Takeovers.
        only_control: Only `advisor control` ends, by SIGKILL and by SIGSTOP in turns; otherwise slurmctld and
            both services of the first side are killed together.
        restarts: Whether the second slurmctld is restarted after each duty.
        pause: Seconds between two submissions.
        seed: Of everything that is drawn.
        tell: Told what is being done.
    """
    settings: dict[str, dict[str, Any]] = {
        "paths": {"shared": True},
        "loops": {"orphan_grace_seconds": 20.0},
    }
    with tempfile.TemporaryDirectory(prefix="two-") as name:
        site = Site(Path(name), SiteOptions(lab=LAB, settings=settings, boot_seconds=1.2))
        tell("starting a site")
        with site:
            (site.state / LEASE).touch()
            # slow launches, so that a kill often comes between an intent and its answer
            site.ec2.faults(
                [{"service": "ec2", "action": "RunInstances", "prob": 0.5, "seed": seed, "latency": 1.0}]
            )
            backup = Backup(site)
            backup.install()
            try:
                site.start_advisor()
                backup.start()
                drawn = random.Random(seed)  # noqa: S311 -- a test's dice
                trial = _Trial(site, backup, drawn, only_control=only_control, restarts=restarts, tell=tell)
                return trial.run(times, pause)
            finally:
                backup.stop()


class _Trial:
    def __init__(
        self,
        site: Site,
        backup: Backup,
        drawn: random.Random,
        *,
        only_control: bool,
        restarts: bool,
        tell: Callable[[str], None],
    ) -> None:
        self._only_control = only_control
        self._restarts = restarts
        self._site = site
        self._backup = backup
        self._drawn = drawn
        self._tell = tell
        self._here = os.uname().nodename

    def run(self, times: int, pause: float) -> dict[str, Any]:
        began = time.monotonic()
        load = Load(self._site.lab, self._drawn, pause)
        load.start()
        rounds = []
        try:
            for number in range(times):
                time.sleep(self._drawn.uniform(2.0, 10.0) + (0.0 if self._only_control else STANDBY_SECONDS))
                if not self._only_control:
                    self._wait("both slurmctld", self._backup.slurm.both_are_up)
                how = "stop" if self._only_control and number % 2 else "kill"
                rounds.append(self._round(load, how))
                self._tell(f"{number + 1} of {times}: {json.dumps(rounds[-1])}")
        finally:
            load.stop()
        figures = {**self._backup.slurm.figures(), **self._figures(load)}
        return {"rounds": rounds, **figures, "seconds": time.monotonic() - began}

    # ------------------------------------------------------------------------ one takeover

    def _round(self, load: Load, how: str) -> dict[str, Any]:
        site = self._site
        number = read_holder(site.state).fence
        advised = self._advised_there()
        before = time.monotonic()
        if how == "stop":
            site.control.signal(signal.SIGSTOP)
        else:
            site.control.kill()
        if not self._only_control:
            site.serve.kill()
            load.kill()
        result: dict[str, Any] = {"how": how}
        self._wait("the backup has the lease", lambda: read_holder(site.state).host == BACKUP)
        result["lease_taken_after_seconds"] = since(before)
        self._wait("a submission is taken", lambda: load.last_started > before)
        result["first_submission_taken_after_seconds"] = since(before)
        self._wait("the backup launches", lambda: self._launched_by(number + 1) > 0)
        result["first_launch_after_seconds"] = since(before)
        if not self._only_control:
            self._wait("the backup advises", lambda: self._advised_there() > advised)
            result["advised_by_the_backup"] = self._advised_there() - advised
        if how == "stop":
            time.sleep(max(0.0, _STOPPED_SECONDS - (time.monotonic() - before)))
            site.control.signal(signal.SIGCONT)
            self._wait(
                "it ends", lambda: not site.control.is_running
            )  # it has seen that it has lost the lease
        self._bring_back()
        result["hand_back_seconds"] = self._hand_back()
        return result

    def _bring_back(self) -> None:
        site = self._site
        if not self._only_control:
            site.lab.start_slurmctld()
            self._wait("both slurmctld", self._backup.slurm.both_are_up)
            if self._restarts:
                self._backup.slurm.restart()
            site.serve.start()
        site.control.start()

    def _hand_back(self) -> float:
        """An admin stops the holder: the first side's process takes over at once."""
        before = time.monotonic()
        self._backup.control.stop()
        self._wait("it has the lease back", lambda: read_holder(self._site.state).host == self._here)
        seconds = since(before)
        self._backup.control.start()
        return seconds

    def _advised_there(self) -> int:
        with SubmitClient(self._backup.folder / "run" / "submit.sock", timeout=2.0) as client:
            return client.ping().advice_given

    def _launched_by(self, number: int) -> int:
        start = f"advisor-{number}-"
        return sum(item["tags"].get(INTENT_TAG, "").startswith(start) for item in self._site.ec2.instances())

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        wait(what, condition, self._site.lab, self._backup.control.log)

    # ------------------------------------------------------------------------- the figures

    def _figures(self, load: Load) -> dict[str, Any]:
        site = self._site
        self._tell("waiting for the end of all jobs and nodes")
        of_jobs = load.figures()
        orphans = self._left_over()
        instances = site.ec2.instances()
        by_node: dict[str, list[tuple[float, float]]] = {}
        for item in instances:
            node = node_of(item["tags"], item["launch_index"]) or "?"
            by_node.setdefault(node, []).append((item["launched"], item["ended"] or time.time()))
        doubles = [
            node
            for node, lives in by_node.items()
            for one, next_one in pairwise(sorted(lives))
            if next_one[0] < one[1]
        ]
        return {
            **of_jobs,
            "launches": len(instances),
            "orphans": orphans,
            "nodes_with_two_instances": doubles,
            **self._paid(instances),
            "takeovers": read_holder(site.state).fence - 1,
        }

    def _left_over(self) -> list[str]:
        end = time.monotonic() + 90.0
        while True:
            alive = [item["id"] for item in self._site.ec2.instances() if item["state"] in _ALIVE]
            if not alive or time.monotonic() > end:
                return alive
            time.sleep(1.0)

    def _paid(self, instances: list[dict[str, Any]]) -> dict[str, Any]:
        """Seconds that the history has as paid, beside those that EC2 bills."""
        billed = sum(
            max(MIN_SECONDS, (item["ended"] or time.time()) - item["launched"]) for item in instances
        )
        with HistoryStore(f"sqlite:///{self._site.state / 'history.db'}") as store:
            paid = store.paid_since(0.0)
        of_instance: dict[str, list[tuple[float, float]]] = {}
        for piece in paid:
            of_instance.setdefault(piece.instance_id, []).append((piece.since, piece.until))
        twice = [
            name
            for name, pieces in of_instance.items()
            if any(later[0] < one[1] for one, later in pairwise(sorted(pieces)))
        ]
        return {
            "billed_seconds": billed,
            "paid_seconds": sum(piece.until - piece.since for piece in paid),
            "paid_twice": twice,
        }
