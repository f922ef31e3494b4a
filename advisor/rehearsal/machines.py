"""The machines behind simulated instances: when their slurmd answers, and what they cost."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from advisor.ec2.tags import node_of
from advisor.testing.memory_ec2 import MemoryEc2, MemoryInstance
from advisor.testing.memory_ec2_market import SPOT

MIN_BILLED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Paid:
    """Seconds of instances, those of spot among them, and US dollars; each pays for a minute at least."""

    seconds: float = 0.0
    spot_seconds: float = 0.0
    usd: float = 0.0

    def __add__(self, other: Paid) -> Paid:
        return Paid(
            self.seconds + other.seconds, self.spot_seconds + other.spot_seconds, self.usd + other.usd
        )


@dataclass(slots=True)
class _Machine:
    instance: MemoryInstance
    node: str
    ready_at: float


class Machines:
    """Boots the instances of a `MemoryEc2`.

    Args:
        boot_seconds: Time from the launch until slurmd answers.
    """

    def __init__(self, ec2: MemoryEc2, boot_seconds: float) -> None:
        self._ec2 = ec2
        self._boot_seconds = boot_seconds
        self._at: dict[str, _Machine] = {}
        self._boots: list[float] = []
        self._past = Paid()
        ec2.launched, ec2.terminating, ec2.forgotten = self._launched, self._ending, self._forgotten

    def answers(self, node: str, address: str, since: float) -> bool:
        """Whether the slurmd of a node answers at an address, from a boot after ``since``."""
        machine = self._at.get(address)
        now = self._ec2.now()
        return (
            machine is not None
            and machine.node == node
            and machine.ready_at <= now
            and machine.instance.launched_at >= since
            and machine.instance.ended_at() is None
        )

    @property
    def next_boot(self) -> float:
        """When the next machine begins to answer, epoch seconds."""
        return self._boots[0] if self._boots else math.inf

    def advance(self) -> None:
        """Drop the boots that are over."""
        now = self._ec2.now()
        while self._boots and self._boots[0] <= now:
            heapq.heappop(self._boots)

    @property
    def paid(self) -> Paid:
        """The cost of all instances until now."""
        return sum(map(self._paid, self._ec2.instances.values()), self._past)

    def _paid(self, item: MemoryInstance) -> Paid:
        ended = item.ended_at()
        end = self._ec2.now() if ended is None else ended
        begin, end = item.launched_at, max(item.launched_at + MIN_BILLED_SECONDS, end)
        usd = self._ec2.market.usd(item.market, begin, end)
        return Paid(end - begin, end - begin if item.market == SPOT else 0.0, usd)

    def _launched(self, item: MemoryInstance) -> None:
        ready = item.launched_at + max(self._boot_seconds, self._ec2.times.pending)
        node = node_of(item.tags, item.launch_index) or ""
        self._at[item.private_ip] = _Machine(item, node, ready)
        heapq.heappush(self._boots, ready)

    def _ending(self, item: MemoryInstance) -> None:
        self._at.pop(item.private_ip, None)

    def _forgotten(self, item: MemoryInstance) -> None:
        self._past += self._paid(item)
        self._at.pop(item.private_ip, None)
