"""What becomes of nodes over time: changes of their cores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput


@dataclass(frozen=True, slots=True, eq=False)
class NodeChanges:
    """Cores of each node over time, as changes; ascending by time, seconds.

    Attributes:
        cores: int64, shape (nodes,): Of each node at time 0; 0 for one that is not there.
        time: float64, shape (n,): When a node changed.
        node: int64, shape (n,): Which one.
        after: int64, shape (n,): Its cores from then on; always other than before.
        until: End of what is known, seconds.
    """

    cores: Ints
    time: Floats
    node: Ints
    after: Ints
    until: float

    def __len__(self) -> int:
        return len(self.time)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.cores)

    @property
    def largest(self) -> int:
        """Most cores any node ever has."""
        return int(max(self.cores.max(initial=0), self.after.max(initial=0)))

    def before(self) -> Ints:
        """Cores just before each change; shape (n,)."""
        order = np.lexsort((np.arange(len(self)), self.node))
        node, after = self.node[order], self.after[order]
        first = np.concatenate([[True], node[1:] != node[:-1]]) if len(node) else np.zeros(0, np.bool_)
        previous = np.where(first, self.cores[node], np.roll(after, 1))
        found = np.empty(len(self), np.int64)
        found[order] = previous
        return found

    def mean_cores(self, begin: float = 0.0) -> float:
        """Cores of all nodes together, averaged from ``begin`` to the end."""
        steps = (self.after - self.before()) * (self.until - np.maximum(self.time, begin))
        return float((self.cores.sum() * (self.until - begin) + steps.sum()) / (self.until - begin))

    def repeated(self, times: int) -> NodeChanges:
        """The same again and again, and then every node at its largest for good.

        A replay's last tasks end after the trace does; what they meet then must not depend on luck.
        """
        best = self.cores.copy()
        np.maximum.at(best, self.node, self.after)
        time, node, after = [self.time], [self.node], [self.after]
        everyone = np.arange(self.nodes)
        for turn in range(1, times):
            time += [np.full(self.nodes, turn * self.until), self.time + turn * self.until]
            node += [everyone, self.node]
            after += [self.cores, self.after]
        time.append(np.full(self.nodes, times * self.until))
        node.append(everyone)
        after.append(best)
        return node_changes(
            self.cores, np.concatenate(time), np.concatenate(node), np.concatenate(after), times * self.until
        )


def node_changes(cores: Ints, time: Floats, node: Ints, after: Ints, until: float) -> NodeChanges:
    """Put changes in order and drop those that change nothing.

    Raises:
        BadInput: No node, a negative number of cores, or an impossible time.
    """
    if not len(cores) or not until > 0:
        raise BadInput("no node in it", where="nodes", mend="Give a trace of nodes", code="nodes.empty")
    if np.any(after < 0) or np.any(cores < 0) or np.any(~np.isfinite(time)) or np.any(time < 0):
        raise BadInput(
            "negative cores or an impossible time",
            where="nodes",
            mend="Cores are 0 or more, times seconds from 0",
            code="nodes.range",
        )
    order = np.lexsort((np.arange(len(time)), time))
    found = NodeChanges(cores, time[order], node[order], after[order], until)
    real = found.after != found.before()
    return NodeChanges(cores, found.time[real], found.node[real], found.after[real], until)
