"""Queues, their hosts, the hosts' hardware and the site's priorities, asked for every half a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from advisor.lsf import answers
from advisor.lsf.cloud_hosts import CloudHosts
from advisor.lsf.commands import LsfCommands
from advisor.lsf.job_finish import SiteTerms
from advisor.lsf.pend_reasons import REASONS_ARGUMENTS, Reasons, read_reasons
from advisor.lsf.resource_request import MemoryUnit
from advisor.lsf.shares import queue_orders
from advisor.model.cluster import Node
from advisor.model.queue_order import QueueOrder
from advisor.model.settings import ClusterSettings
from advisor.model.snapshot import Partition

_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class LsfSite:
    """The data of the cluster that change rarely.

    Attributes:
        hosts: Names of the hosts of each queue.
        orders: How each queue orders its jobs.
        hardware: Host name to its hardware.
        reasons: Why jobs wait; those are not known that are not in it.
        full_users: Users whose jobs hold all slots that lsb.users gives them.
        max_priority: ``MAX_USER_PRIORITY`` of lsb.params; None: users' jobs have no priorities.
        has_absolute_limits: ``ABS_RUNLIMIT``.
        reserves_per_task: ``RESOURCE_RESERVE_PER_TASK``.
    """

    queues: Mapping[str, answers.Queue] = field(default_factory=dict)
    hosts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    orders: Mapping[str, QueueOrder] = field(default_factory=dict)
    hardware: Mapping[str, answers.Hardware] = field(default_factory=dict)
    reasons: Reasons = field(default_factory=dict)
    full_users: frozenset[str] = frozenset()
    max_priority: int | None = None
    has_absolute_limits: bool = False
    reserves_per_task: bool = False


class SiteReader:
    """Asks LSF's commands. Not thread-safe.

    Args:
        monotonic: A clock in seconds.
    """

    def __init__(self, commands: LsfCommands, monotonic: Callable[[], float]) -> None:
        self._commands = commands
        self._monotonic = monotonic
        self._read_at = float("-inf")
        self._known: set[tuple[int, int]] = set()
        self.last = LsfSite()

    def read(self, hosts: Iterable[answers.Host]) -> LsfSite:
        """The site, at most half a minute old; `hosts` are those that bhosts shows now.

        Raises:
            RetryLater: LSF does not answer.
        """
        now = self._monotonic()
        if now - self._read_at < _SECONDS:
            return self.last
        pages = self._commands.text("bqueues", "-l")
        queues = answers.read_queues(pages)
        has_groups = any(word.endswith("/") for queue in queues for word in queue.hosts)
        groups = answers.read_groups(self._commands.text("bmgroup", "-r", "-w")) if has_groups else {}
        names = {host.name for host in hosts}
        parameters = self._commands.text("bparams", "-l")
        by_name = {queue.name: queue for queue in queues}
        self.last = LsfSite(
            queues=by_name,
            hosts={queue.name: answers.hosts_of(queue, groups, names) for queue in queues},
            orders=self._orders(by_name, pages, parameters),
            hardware=answers.read_hardware(self._commands.text("lshosts", "-w")),
            reasons=self._reasons(),
            full_users=self._full_users(),
            max_priority=answers.read_max_priority(parameters),
            has_absolute_limits=answers.read_has_absolute_limits(parameters),
            reserves_per_task=answers.read_reserves_per_task(parameters),
        )
        self._read_at = now
        return self.last

    def terms(self, hosts: Iterable[answers.Host], memory_unit: MemoryUnit) -> SiteTerms:
        """What lsb.acct leaves to the site's configuration; see :meth:`read`."""
        site = self.read(hosts)
        minutes = {name: queue.limit_minutes for name, queue in site.queues.items()}
        limits = {name: 60.0 * limit for name, limit in minutes.items() if limit is not None}
        return SiteTerms(memory_unit=memory_unit, reserves_per_task=site.reserves_per_task, limits=limits)

    def lets_in(self, user: str, queue: str) -> bool:
        """Whether a user may use a queue: LSF is asked where not all may, for it knows their groups."""
        found = self.last.queues.get(queue)
        if found is None or found.is_for_all:
            return True
        return queue in self._commands.optional("bqueues", "-w", "-u", user, queue).split()

    def _orders(
        self, queues: Mapping[str, answers.Queue], pages: str, parameters: str
    ) -> Mapping[str, QueueOrder]:
        """With the whole trees of accounts where queues have FAIRSHARE; else its jobs start by priority."""
        shares = self._commands.optional("bqueues", "-r") if "USER_SHARES:" in pages else ""
        groups = answers.read_groups(self._commands.optional("bugroup", "-r", "-w")) if shares else {}
        return queue_orders(queues, shares, parameters, groups)

    def _full_users(self) -> frozenset[str]:
        """Where hosts are full as well, bjobs names those alone."""
        return answers.read_full_users(self._commands.optional("busers", "all"))

    def _reasons(self) -> Reasons:
        """None where no job waits, or bjobs does not say it."""
        found = read_reasons(self._commands.optional("bjobs", *REASONS_ARGUMENTS))
        before, self._known = self._known, set(found)
        # for a moment LSF names full hosts of a new job, and then the dependency that it waits for
        return {job: word for job, word in found.items() if word or job in before}


def nodes_of(
    hosts: Sequence[answers.Host], site: LsfSite, cluster: ClusterSettings, ours: CloudHosts | None
) -> tuple[Node, ...]:
    """All hosts; those that LSF's resource connector gets from us also while there is none."""
    of_the_cloud = [] if ours is None else ours.nodes(hosts, site.hardware)
    names = {node.name for node in of_the_cloud}
    nodes = (
        answers.node_of(
            host,
            site.hardware.get(host.name, answers.Hardware()),
            site.hosts,
            burst=cluster.burst_partition,
            others=cluster.on_premise_partitions,
        )
        for host in hosts
        if host.name not in names
    )
    return (*(node for node in nodes if node is not None), *of_the_cloud)


def partitions_of(
    hosts: Iterable[answers.Host], site: LsfSite, cluster: ClusterSettings, ours: CloudHosts | None
) -> tuple[Partition, ...]:
    """All queues; the cloud's also has the hosts that could be."""
    slots = {
        host.name: site.hardware.get(host.name, answers.Hardware()).processors
        if host.slots is None
        else host.slots
        for host in hosts
    }
    cores = {} if ours is None else ours.cores
    of_queue = {**site.hosts}
    if (burst := cluster.burst_partition) in of_queue:
        of_queue[burst] = of_queue[burst] | cores.keys()
    return tuple(
        answers.partition_of(queue, of_queue[name], {**cores, **slots}) for name, queue in site.queues.items()
    )
