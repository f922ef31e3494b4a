"""The capacity that is paid for already, at a poll of Slurm and at a launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping

from advisor.ec2.account import Account
from advisor.ec2.classes import class_of_nodes, instance_types_of
from advisor.ec2.instances import Instance
from advisor.ec2.paid import PaidBook, PaidRow, paid_book
from advisor.ec2.prices import Prices
from advisor.model.advice import Capacity
from advisor.model.cluster import Node
from advisor.model.settings import Settings

AskAccount = Callable[[], Account]
"""Returns the last data read of the AWS account, without a call."""


class PaidNow:
    """Counts the paid capacity of a site."""

    def __init__(self, settings: Settings, account: AskAccount, prices: Callable[[], Prices]) -> None:
        self._settings = settings
        self._account = account
        self._prices = prices
        self._class_of = class_of_nodes(settings.ec2)

    def types_of(self, node: str) -> tuple[str, ...]:
        """The instance types that may be a node."""
        return instance_types_of(self._settings.ec2, self._class_of.get(node))

    def at_poll(self, nodes: Iterable[Node], listed: Iterable[Instance]) -> PaidBook:
        """The paid capacity that is free for further jobs, including idle nodes that are paid for.

        A busy node whose instance EC2 does not list yet uses paid capacity, so that none is promised twice.

        Args:
            nodes: All nodes of the burst partition, drained ones with a job as well.
        """
        busy = {node.name for node in nodes if node.is_busy}
        found = self._book(listed, busy)
        with_instance = {item.node for item in listed if item.is_alive}
        for node in sorted(busy - with_instance):
            found.take(self.types_of(node))
        return found

    def at_launch(self, listed: Iterable[Instance]) -> PaidBook:
        """The paid capacity that is free for further instances."""
        return self._book(listed, None)

    def free_nodes(
        self, book: PaidBook, capacity_of: Mapping[str, Capacity], ends: Mapping[str, float]
    ) -> dict[str, PaidRow]:
        """The nodes about to be launched that are paid for, and what pays for each.

        A spot instance uses no discount, but a capacity reservation is used first.

        Args:
            ends: When the jobs of a node end at the latest, epoch seconds.
        """
        return {
            node: row
            for node, capacity in capacity_of.items()
            if (
                row := book.take(
                    self.types_of(node), ends.get(node, math.inf), reservations_only=capacity is Capacity.SPOT
                )
            )
            is not None
        }

    def _book(self, listed: Iterable[Instance], busy: Collection[str] | None) -> PaidBook:
        return paid_book(self._account(), self._settings, self._prices(), listed, busy)
