"""Long jobs on nodes that stay: a real slurmctld, both daemons, an emulated EC2 that takes nodes back.

Six nodes are kept up by the acquirer, three in a pool whose instances never last and three in one whose do;
the advisor knows that from the lives it has seen. In each round two long and two short jobs come in any
order, either while nodes are idle or while all are busy: then they wait, and the nodes are freed together. At
the end of some rounds EC2 takes what the shaky pool has. The same is done with matching switched off, the
nodes in a random order each time. Seconds stand for hours.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import tomlkit

from advisor.ec2.clients import client
from advisor.ec2.tags import NODE_TAG
from advisor.model.errors import AdvisorError
from advisor.service.exchange.snapshot import read as read_snapshot
from advisor.testing.lab import LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions

NODES: Final = 6
FEATURE: Final = "steady"
_LONG, _SHORT = "--time=60", "--time=15"
_SLEEP: Final = "sleep 3000"
_KIND: Final = "c5.xlarge"
_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """Where one long job started, how it had come there, and whether EC2 took that node from it."""

    on_steady: bool
    had_waited: bool
    was_interrupted: bool


class MatchingSite:
    """The site, and what is done to it.

    Args:
        site: Started, but for the daemons.
        enabled: Whether matching is.
        generator: Orders of jobs and of nodes.
        settings: More settings, section to name to value.
        steady_room: Instances that the steady pool has in the beginning.
    """

    def __init__(
        self,
        site: Site,
        *,
        enabled: bool,
        generator: np.random.Generator,
        settings: dict[str, dict[str, Any]] | None = None,
        steady_room: int = NODES // 2,
    ) -> None:
        self.site = site
        self.enabled = enabled
        self._generator = generator
        subnets = client("ec2", site.ec2.settings()).describe_subnets()["Subnets"]
        shaky, steady = sorted(subnets, key=lambda subnet: str(subnet["AvailabilityZone"]))[:2]
        self.shaky, self.steady = str(shaky["SubnetId"]), str(steady["SubnetId"])
        self._zones = {"shaky": shaky["AvailabilityZone"], "steady": steady["AvailabilityZone"]}
        self.room(shaky=NODES // 2, steady=steady_room)
        self._write_settings(settings or {})
        self._write_lives()

    def room(self, *, shaky: int, steady: int) -> None:
        """How many more instances EC2 has in each pool; on-demand there are none."""
        self.site.ec2.capacity(
            {
                f"{_KIND}|{self._zones['shaky']}|spot": shaky,
                f"{_KIND}|{self._zones['steady']}|spot": steady,
                f"{_KIND}|*|on-demand": 0,
            }
        )

    def forget_empty_pools(self) -> None:
        """Have the advisor try all pools again, as it would half an hour later."""
        self.site.control.stop()
        for name in ("pools.json", "acquirer.json"):  # with the pause after boots that failed
            (self.site.state / name).unlink(missing_ok=True)
        self.site.control.start()

    def _write_settings(self, more: dict[str, dict[str, Any]]) -> None:
        document = tomlkit.parse(self.site.config.read_text(encoding="utf-8"))
        ours: dict[str, dict[str, Any]] = {
            "cluster": {"policy": "agarwal2023"},
            "ec2": {"subnet_ids": [self.shaky, self.steady]},
            "matching": {"enabled": self.enabled, "long_lived_feature": FEATURE},
            "acquirer": {"kept_nodes": NODES},
            "loops": {"match_seconds": 0.5},
        }
        for part in (ours, more):
            for section, values in part.items():
                document.setdefault(section, tomlkit.table()).update(values)
        self.site.config.write_text(tomlkit.dumps(document), encoding="utf-8")

    def _write_lives(self) -> None:
        """Three days of history: in the shaky pool nobody has lived for an hour."""
        now = time.time()
        drawn = np.random.default_rng(1)
        ended = [
            [f"spot|{_KIND}|{self.shaky}", now - hours * _HOUR, now - hours * _HOUR + seconds, True]
            for hours, seconds in zip(drawn.uniform(1, 72, 60), drawn.exponential(1500.0, 60), strict=True)
        ]
        ended += [
            [f"spot|{_KIND}|{self.steady}", now - hours * _HOUR, now - 0.1 * hours * _HOUR, False]
            for hours in drawn.uniform(24, 72, 12)
        ]
        path = self.site.state / "lives.json"
        path.write_text(json.dumps({"open": {}, "ended": ended, "over": []}), encoding="utf-8")

    # ------------------------------------------------------------------ what is there

    def pool_of_nodes(self) -> dict[str, str]:
        """Node to ``shaky`` or ``steady``, by the zone of its living instance."""
        alive = [item for item in self.site.ec2.instances() if item["state"] in ("pending", "running")]
        named = {zone: name for name, zone in self._zones.items()}
        return {
            node: named[item["zone"]] for item in alive if (node := item["tags"].get(NODE_TAG)) is not None
        }

    def _states(self) -> dict[str, str]:
        shown = self.site.lab.run("sinfo", "-h", "-N", "-p", "burst", "-O", "NodeList:|,StateComplete:")
        rows = (line.strip().partition("|") for line in shown.stdout.splitlines())
        return {name: state for name, _, state in rows}

    def idle_nodes(self) -> set[str]:
        """Nodes that are up and that nobody uses."""
        return {name for name, state in self._states().items() if state == "idle+cloud"}

    def _nodes_off(self) -> set[str]:
        return {name for name, state in self._states().items() if state == "idle+cloud+powered_down"}

    def _launched_since(self, known: set[str]) -> set[str]:
        """Nodes with an instance that is not one of these."""
        alive = (item for item in self.site.ec2.instances() if item["state"] in {"pending", "running"})
        return {item["tags"].get(NODE_TAG, "") for item in alive if item["id"] not in known}

    def holders(self) -> set[str]:
        """Nodes that have the steady feature now."""
        shown = self.site.lab.run("sinfo", "-h", "-N", "-p", "burst", "-O", "NodeList:|,features_act:").stdout
        rows = (line.strip().partition("|") for line in shown.splitlines())
        return {name for name, _, features in rows if FEATURE in features.split(",")}

    def is_ready(self) -> bool:
        """All nodes idle and, with matching on, marked as what they are, and `advisor serve` told of it."""
        pools = self.pool_of_nodes()
        if len(pools) < NODES or len(self.idle_nodes()) < NODES:
            return False
        if not self.enabled:
            return True
        steady = {name for name, pool in pools.items() if pool == "steady"}
        try:
            told = read_snapshot(self.site.folder / "run" / "snapshot.msgpack").state.cloud.steady_free_nodes
        except AdvisorError:
            return False
        return self.holders() == steady and told == len(steady)

    def make_ready(self) -> None:
        """Wait until `is_ready`; nodes in a random order where the advisor does not order them."""
        self.site.wait_until("six nodes are up, idle and known", self.is_ready, seconds=180.0)
        if not self.enabled:
            for number, node in enumerate(self._generator.permutation(NODES)):
                self.site.lab.run("scontrol", "update", f"nodename=burst{node + 1}", f"weight={100 + number}")

    # ------------------------------------------------------------------ what is done

    def submit(self, limit: str) -> int:
        """One job for one node, sent to the cloud by its user."""
        return self.site.lab.sbatch("--partition=burst", "--ntasks=1", limit, script=_SLEEP).job_id

    def some_jobs(self) -> dict[int, str]:
        """Two long and two short ones, in any order."""
        limits = self._generator.permutation([_LONG, _LONG, _SHORT, _SHORT])
        return {self.submit(str(limit)): str(limit) for limit in limits}

    def node_of(self, job: int) -> str:
        """Where a job runs; empty while it does not."""
        shown = self.site.lab.job(job)
        return shown.get("BatchHost", "") if shown["JobState"] == "RUNNING" else ""

    def cancel(self, jobs: Sequence[int]) -> None:
        """End jobs."""
        self.site.lab.run("scancel", *map(str, jobs))
        self.site.lab.wait_for_jobs(jobs, seconds=120.0)

    def round(self, *, waiting: bool, reclaims: bool) -> list[Landed]:
        """Two long and two short jobs; where the long ones landed.

        Args:
            waiting: All nodes are busy when they come, and freed together a little later.
            reclaims: EC2 takes all instances of the shaky pool in the end.
        """
        self.make_ready()
        pools = self.pool_of_nodes()
        blockers = [self.submit(_SHORT) for _ in range(NODES)] if waiting else []
        if blockers:
            self.site.wait_until("all nodes are busy", lambda: all(map(self.node_of, blockers)))
        jobs = self.some_jobs()
        longs = [job for job, limit in jobs.items() if limit == _LONG]
        if blockers:
            self._await_steering(longs)
            self._free_together(blockers)
        self.site.wait_until("all run", lambda: all(map(self.node_of, jobs)))
        nodes = {job: self.node_of(job) for job in longs}
        if reclaims:
            self._reclaim({name for name, pool in pools.items() if pool == "shaky"}, list(jobs))
        landed = [
            Landed(
                on_steady=pools[nodes[job]] == "steady",
                had_waited=waiting,
                was_interrupted=self.site.lab.job(job)["Restarts"] != "0",
            )
            for job in longs
        ]
        self.cancel(list(jobs))
        return landed

    def _free_together(self, blockers: Sequence[int]) -> None:
        """One after the other, the first node to be free would take the first job, whatever both are."""
        self._partition("down")
        self.cancel(blockers)
        self.site.wait_until("the nodes are idle", lambda: len(self.idle_nodes()) >= NODES)
        self._partition("up")

    def _partition(self, state: str) -> None:
        self.site.lab.run("scontrol", "update", "partitionname=burst", f"state={state}")

    def _await_steering(self, longs: Sequence[int]) -> None:
        if self.enabled:
            self.site.wait_until(
                "the long jobs prefer steady nodes",
                lambda: all(FEATURE in self.site.lab.job(job).get("Prefer", "") for job in longs),
            )

    def _reclaim(self, taken: set[str], jobs: Sequence[int]) -> None:
        """EC2 takes these nodes; over when every job that was there has lost it."""
        losing = [job for job in jobs if self.node_of(job) in taken]
        before = self.site.ec2.instances()
        for item in before:
            if item["state"] == "running" and item["tags"].get(NODE_TAG) in taken:
                self.site.ec2.reclaim(item["id"], notice_s=1)
        self.site.wait_until(
            "their jobs are back in the queue",
            lambda: all(self.site.lab.job(job)["Restarts"] != "0" for job in losing),
            seconds=180.0,
        )
        if len(taken) > 1:
            self.site.wait_until("the pool that lost several is closed", self._is_shaky_closed)
            # the acquirer may launch one again before the pool is closed
            known = {item["id"] for item in before}
            self.site.wait_until(
                "the nodes it took are off, or launched again",
                lambda: taken <= self._nodes_off() | self._launched_since(known),
            )
            self.forget_empty_pools()

    def _is_shaky_closed(self) -> bool:
        pools = self.site.state / "pools.json"
        return pools.exists() and self.shaky in pools.read_text(encoding="utf-8")


@contextmanager
def matching_site(
    *,
    enabled: bool,
    generator: np.random.Generator,
    settings: dict[str, dict[str, Any]] | None = None,
    steady_room: int = NODES // 2,
) -> Iterator[MatchingSite]:
    """A site of its own, with both daemons running."""
    lab = LabOptions(
        nodes=1,
        burst_nodes=NODES,
        burst_processors=1,
        burst_features=("cloud", "spot", FEATURE),
        suspend_seconds=7200,
        suspend_timeout_seconds=2,
    )
    options = SiteOptions(lab=lab, settings={"submit": PATIENT}, boot_seconds=1.2)
    with tempfile.TemporaryDirectory(prefix="match-") as folder, Site(Path(folder), options) as site:
        found = MatchingSite(
            site, enabled=enabled, generator=generator, settings=settings, steady_room=steady_room
        )
        site.start_advisor()
        yield found


def run(*, tell: Callable[[str], object], rounds: int = 16, seed: int = 1) -> dict[str, Any]:
    """Both ways, each for so many rounds; every second with jobs that wait, half with reclaims."""
    found: dict[str, Any] = {"nodes": NODES, "rounds": rounds}
    for name, enabled in (("on", True), ("off", False)):
        generator = np.random.default_rng(seed)
        landed: list[Landed] = []
        began = time.perf_counter()
        with matching_site(enabled=enabled, generator=generator) as site:
            for number in range(rounds):
                landed += site.round(waiting=number % 2 == 1, reclaims=number % 4 >= 2)
                tell(f"matching {name}: round {number + 1} of {rounds}")
        found[name] = summary(landed) | {"seconds": time.perf_counter() - began}
    return found


def summary(landed: Sequence[Landed]) -> dict[str, Any]:
    """Counts and shares."""
    waited = [item for item in landed if item.had_waited]
    at_once = [item for item in landed if not item.had_waited]
    return {
        "long_jobs": len(landed),
        "on_steady_share": _share(item.on_steady for item in landed),
        "on_steady_share_of_those_that_waited": _share(item.on_steady for item in waited),
        "on_steady_share_of_those_that_started_at_once": _share(item.on_steady for item in at_once),
        "interrupted": sum(item.was_interrupted for item in landed),
    }


def _share(found: Iterator[bool] | Any) -> float | None:
    values = list(found)
    return sum(values) / len(values) if values else None
