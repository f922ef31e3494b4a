"""Queues, their hosts, the hosts' hardware and the site's priorities, asked for every half a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from advisor.lsf import answers
from advisor.lsf.commands import LsfCommands
from advisor.lsf.pend_reasons import REASONS_ARGUMENTS, Reasons, read_reasons
from advisor.lsf.shares import queue_orders
from advisor.model.queue_order import QueueOrder

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
