"""The policies of the portfolio (Deng et al., section 3.1), and two additions: headroom and backfilling."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Self

import numpy as np

from advisor.simulate.heap import Records


class Provisioning(enum.IntEnum):
    """How many nodes are rented.

    The paper leaves open which nodes count as present. Here ODA, ODM and ODX count idle and booting nodes,
    ODB and ODE all rented ones. The other reading would have ODM keep one node for a thousand sequential
    jobs, and ODE rent again every 20 s for work that its busy nodes were rented for.
    """

    ODA = 0
    """On-demand all: one node per processor of the queue."""
    ODB = 1
    """On-demand balance: as many rented nodes as processors in the queue."""
    ODE = 2
    """On-demand execution time: queued processor-hours, rounded up. When nothing runs, at least the widest
    job's nodes, because it could otherwise never start.
    """
    ODM = 3
    """On-demand maximum: nodes for the widest waiting job."""
    ODX = 4
    """On-demand X-factor: nodes for the jobs whose bounded slowdown has reached 2."""


class JobOrder(enum.IntEnum):
    """The next waiting job has the largest ``(grace + wait) x weight``; ties: earlier submission."""

    FCFS = 0
    LXF = 1
    """Largest slowdown first: (q + t) / t, the same order as q / t."""
    WFP3 = 2
    """(q / t)^3 n, the same order as q / t x n^(1/3)."""
    UNICEF = 3
    """q / (log2(n) t). The formula divides by zero for one processor, which counts as two."""
    WSPT = 4
    """Smith's rule for the mean bounded slowdown (ours): a second of waiting costs 1 / max(t, 10), so 1 /
    (max(t, 10) n t), with one hour of grace so that waiting still counts.
    """


class NodeChoice(enum.IntEnum):
    """Which idle nodes a job gets, by the time left of their paid hour after the job."""

    FIRST = 0
    """In the order they were rented."""
    BEST = 1
    """Least left."""
    WORST = 2
    """Most left."""


class Release(enum.IntEnum):
    """The billing, and when an idle node is given back."""

    HOUR = 0
    """Whole hours charged; idle nodes are given back when the queue is empty."""
    HOUR_KEPT = 1
    """Whole hours charged; idle nodes are kept to the end of their paid hour, then as above."""
    SECOND = 2
    """Charged by the second, 60 s at least; idle nodes are given back when the queue is empty."""

    @property
    def billing(self) -> str:
        """The name in settings, commands and their output.

        Examples:
            >>> Release.HOUR_KEPT.billing
            'hour-kept'
        """
        return self.name.lower().replace("_", "-")

    @classmethod
    def of_billing(cls, name: str) -> Self:
        """The member of that name; raises `KeyError` where there is none."""
        return cls[name.upper().replace("-", "_")]


RELEASE_WORDS: Final = {
    Release.HOUR: "whole hours charged; an idle node is given back when no job waits",
    Release.HOUR_KEPT: "whole hours charged; an idle node is kept to the end of its paid hour",
    Release.SECOND: "charged by the second, 60 s at least; an idle node is given back when no job waits",
}

POLICY = np.dtype(
    [(name, np.int64) for name in ("provisioning", "order", "choice", "headroom", "backfill")], align=True
)
"""A policy as the kernels read it."""

_ORDER_WORDS: Final = {order: order.name for order in JobOrder}
_CHOICE_WORDS: Final = {
    NodeChoice.FIRST: "FirstFit",
    NodeChoice.BEST: "BestFit",
    NodeChoice.WORST: "WorstFit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RentingPolicy:
    """One policy of the portfolio.

    Attributes:
        headroom: Idle nodes kept warm for jobs that have not come yet; 0 in the paper.
        backfill: Whether a job may start before a blocked one that it does not delay (EASY); the paper
            blocks.
    """

    provisioning: Provisioning
    order: JobOrder
    choice: NodeChoice
    headroom: int = 0
    backfill: bool = False

    @property
    def name(self) -> str:
        """The paper's name, ``ODA-UNICEF-FirstFit``; then ``+h4`` for headroom, ``+bf`` for backfilling.

        Examples:
            >>> PUBLISHED[0].name
            'ODA-FCFS-FirstFit'
        """
        return self._named(f"-{_CHOICE_WORDS[self.choice]}")

    @property
    def kind(self) -> str:
        """The name without the choice of nodes, ``ODA-UNICEF``."""
        return self._named("")

    def _named(self, choice: str) -> str:
        headroom = f"+h{self.headroom}" if self.headroom else ""
        backfill = "+bf" if self.backfill else ""
        return f"{self.provisioning.name}-{_ORDER_WORDS[self.order]}{choice}{headroom}{backfill}"


PUBLISHED_ORDERS: Final = (JobOrder.FCFS, JobOrder.LXF, JobOrder.WFP3, JobOrder.UNICEF)

PUBLISHED: Final = tuple(
    RentingPolicy(provisioning=provisioning, order=order, choice=choice)
    for provisioning, order, choice in product(Provisioning, PUBLISHED_ORDERS, NodeChoice)
)
"""The paper's sixty."""


BEYOND: Final = tuple(
    RentingPolicy(
        provisioning=Provisioning.ODA,
        order=JobOrder.WSPT,
        choice=NodeChoice.WORST,
        headroom=headroom,
        backfill=True,
    )
    for headroom in (0, 1, 2, 4, 8, 16, 32, 64)
)
"""Our policies: warm nodes, backfilling and Smith's order."""


def as_records(policies: Sequence[RentingPolicy]) -> Records:
    """Policies as the kernels read them, shape (n,) of ``POLICY``."""
    records = np.zeros(len(policies), POLICY)
    for record, policy in zip(records, policies, strict=True):
        for name in POLICY.names or ():
            record[name] = int(getattr(policy, name))
    return records
