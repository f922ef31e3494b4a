"""Queues, their hosts, the hosts' hardware and the site's priorities, asked for every half a minute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from advisor.lsf import answers
from advisor.lsf.commands import LsfCommands
from advisor.lsf.pend_reasons import REASONS_ARGUMENTS, Reasons, read_reasons
from advisor.model.errors import RetryLater

log = structlog.get_logger(__name__)

_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class LsfSite:
    """The data of the cluster that change rarely.

    Attributes:
        hosts: Names of the hosts of each queue.
        hardware: Host name to its hardware.
        reasons: Why jobs wait; those are not known that are not in it.
        full_users: Users whose jobs hold all slots that lsb.users gives them.
        max_priority: ``MAX_USER_PRIORITY`` of lsb.params; None: users' jobs have no priorities.
        has_absolute_limits: ``ABS_RUNLIMIT``.
        reserves_per_task: ``RESOURCE_RESERVE_PER_TASK``.
    """

    queues: Mapping[str, answers.Queue] = field(default_factory=dict)
    hosts: Mapping[str, frozenset[str]] = field(default_factory=dict)
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
        queues = answers.read_queues(self._commands.text("bqueues", "-l"))
        has_groups = any(word.endswith("/") for queue in queues for word in queue.hosts)
        groups = answers.read_groups(self._commands.text("bmgroup", "-r", "-w")) if has_groups else {}
        names = {host.name for host in hosts}
        parameters = self._commands.text("bparams", "-l")
        self.last = LsfSite(
            queues={queue.name: queue for queue in queues},
            hosts={queue.name: answers.hosts_of(queue, groups, names) for queue in queues},
            hardware=answers.read_hardware(self._commands.text("lshosts", "-w")),
            reasons=self._reasons(),
            full_users=self._full_users(),
            max_priority=answers.read_max_priority(parameters),
            has_absolute_limits=answers.read_has_absolute_limits(parameters),
            reserves_per_task=answers.read_reserves_per_task(parameters),
        )
        self._read_at = now
        return self.last

    def _full_users(self) -> frozenset[str]:
        """Where hosts are full as well, bjobs names those alone."""
        if not self._commands.has("busers"):
            return frozenset()
        try:
            return answers.read_full_users(self._commands.text("busers", "all"))
        except RetryLater as error:
            log.debug("lsf.no_full_users", why=str(error))
            return frozenset()

    def _reasons(self) -> Reasons:
        """None where no job waits, or bjobs does not say it: the forecasts do without."""
        try:
            found = read_reasons(self._commands.text("bjobs", *REASONS_ARGUMENTS))
        except RetryLater as error:
            log.debug("lsf.no_reasons", why=str(error))
            return {}
        before, self._known = self._known, set(found)
        # for a moment LSF names full hosts of a new job, and then the dependency that it waits for
        return {job: word for job, word in found.items() if word or job in before}
