"""Check LSF: its files and commands, the queues, and what the advisor needs there beside its settings."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from advisor.lsf.backend import LsfBackend
from advisor.model.settings import Settings
from advisor.model.snapshot import Partition
from advisor.service.admin.doctor import Diagnosis, error, guarded, ok, warning
from advisor.service.state.state_files import LSF_ADVICE, LSF_HOSTS


class LsfExamination:
    """The checks of LSF; it is asked as `advisor control` asks it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.partitions: dict[str, Partition] = {}
        self._max_priority: int | None = None
        self._with_shares: list[str] = []

    def run(self) -> Iterator[Diagnosis]:
        """Make all checks; only the first one if LSF cannot be asked."""
        yield from guarded("lsf", self._reach())
        if self.partitions:
            yield from guarded("rights", self._rights())
            yield from guarded("small jobs first", self._small_first())
            yield from guarded("price", self._price())

    def _reach(self) -> Iterator[Diagnosis]:
        state = self._settings.paths.state
        hosts = LSF_HOSTS.at(state) if self._settings.ec2.image_id else None
        backend = LsfBackend.of(self._settings, LSF_ADVICE.at(state), hosts)
        try:
            snapshot = backend.snapshot(time.time())
            self.partitions = {partition.name: partition for partition in backend.partitions()}
            self._max_priority = backend.max_priority
            orders = snapshot.queue_orders.items()
            self._with_shares = [name for name, order in orders if order.default_shares is not None]
        finally:
            backend.close()
        yield ok(f"{len(snapshot.nodes)} hosts, {len(snapshot.jobs)} rows of jobs in lsb.events")
        if snapshot.malformed:
            yield warning(
                f"{snapshot.malformed} records of lsb.events or rows of bhosts cannot be read",
                "These jobs or hosts are left out: please report the release of your LSF",
            )
        burst = self._settings.cluster.burst_partition
        nodes = snapshot.nodes_of(burst)
        cloud = [node for node in nodes if node.is_cloud]
        if burst in self.partitions and len(cloud) < len(nodes):
            yield warning(
                f"{len(nodes) - len(cloud)} of {len(nodes)} hosts of the queue {burst} are on-premise, too",
                "Give the burst queue hosts of its own (HOSTS in lsb.queues), or jobs are moved for nothing",
            )
        elif burst in self.partitions and not cloud:
            yield warning(
                f"the queue {burst} has no host at the moment",
                "Jobs move only where a host is, or is known to come: see docs/lsf.md",
            )

    def _rights(self) -> Iterator[Diagnosis]:
        if os.getuid() == 0:
            yield ok("root may change jobs")
        else:
            yield warning(
                "whether this user may move the jobs of others is not known",
                "Run advisor control as root, or as one of Administrators in lsf.cluster",
            )

    def _small_first(self) -> Iterator[Diagnosis]:
        size = self._settings.size
        if not (size.enabled and size.small_priority_offset):
            return
        if self._max_priority is None:
            yield warning(
                "jobs have no priorities of their own here, so that small ones are not put first",
                "Set MAX_USER_PRIORITY in lsb.params, or size.small_priority_offset = 0",
            )
        else:
            queues = set(self._settings.cluster.on_premise_partitions).intersection(self._with_shares)
            within = f"; with FAIRSHARE only among the jobs of one user: {', '.join(sorted(queues))}"
            yield ok(f"by bmod -sp {self._max_priority}{within if queues else ''}")

    def _price(self) -> Iterator[Diagnosis]:
        settings = self._settings
        cluster, budget = settings.cluster, settings.budget
        is_ours = bool(settings.ec2.image_id)
        if cluster.policy == "price" and budget.usd and not budget.usd_per_hour_saved and not is_ours:
            yield error(
                "others launch the cloud's hosts: what is spent is unknown, and a budget alone moves no job",
                "Set budget.usd_per_hour_saved, or let the resource connector get its hosts from the advisor",
            )
