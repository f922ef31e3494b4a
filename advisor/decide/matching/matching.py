"""Match long tasks with nodes that are likely to survive (Agarwal et al., NSDI 2023, section 3.1.2).

A task's expected worst-case completion on a node (Eq. 2) is ``a + p d + (1 - p)(w + r)``: the wait for the
node's cores, the run if nothing happens, else what is wasted until the change and the restart. Read literally
it does harm: every waiting task counts on the same cores becoming free, and a restart is expected on a node
that has just changed, so tasks wait too much. Ours differs in these points; each can be switched off:

* a waiting task reserves the cores it waits for, so that those behind it count on others;
* each node has its own change rate (``advisor.predict.survival.node_survival``);
* the longest of the tasks that can start chooses first, because in the queue's order short tasks would take
  the nodes that long ones need;
* no task waits for a better node while tasks request many more cores than are free: on nodes that fail
  often, idle cores cost more than restarts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.decide.matching._matching import NOWHERE, Floats, Ints, Weights, chance, likeliest_all, match_all
from advisor.model.node_view import NodeView
from advisor.predict.survival.node_survival import SurvivalModel

__all__ = ["LITERAL", "NOWHERE", "OURS", "MatchRules", "heartbeat", "match", "most_stable"]

THRESHOLD = 0.9
"""Completion probability above which Algorithm 3 starts a task at once; the paper gives no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRules:
    """Variants of Eq. 2.

    Attributes:
        waits: Delayed scheduling: busy nodes are considered too.
        reserves: A waiting task reserves the cores it waits for.
        typical_restart: A preempted task restarts on an average node; False, as published: on one that has
            just changed. Off, because it gains one percent on quiet clusters and loses four on busy ones.
        longest_first: Among tasks that fit free cores the longest choose first; False: the queue's order.
        keeps_busy: No task waits for a better node while tasks request more than the free cores and the
            backlog.
        backlog: Share of all cores by which requested cores may exceed free ones while tasks still wait. With
            0 each arrival of a large job stops all waiting; without a bound overloaded nodes idle.
        depth: A decision ends after this many tasks that fit nowhere now.
        shielded: When a node shrinks, the tasks whose loss costs least end first, so that a new task is ended
            only by a shrink beyond the spare cores. Off where nodes vanish whole or others choose which tasks
            end.
    """

    waits: bool = True
    reserves: bool = True
    typical_restart: bool = False
    longest_first: bool = True
    keeps_busy: bool = True
    backlog: float = 0.25
    depth: int = 64
    shielded: bool = False


OURS = MatchRules()
LITERAL = MatchRules(reserves=False, longest_first=False, keeps_busy=False)


def match(
    view: NodeView, cores: Ints, during: Floats, stability: SurvivalModel, rules: MatchRules = OURS
) -> Ints:
    """Choose for each waiting task the node on which it starts now, if any.

    Args:
        view: The present nodes.
        cores: int64 array, shape (tasks,): Cores of each waiting task, in the queue's order.
        during: float64 array, shape (tasks,): Expected run time of each, seconds.
        stability: Survival of the nodes.

    Returns:
        int64 array, shape (tasks,): Row of the node, or ``NOWHERE`` for a task that waits for the next event.
    """
    weights = Weights(
        waits=rules.waits,
        reserves=rules.reserves,
        typical_restart=rules.typical_restart,
        depth=rules.depth,
        longest_first=rules.longest_first,
        keeps_busy=rules.keeps_busy,
        backlog=rules.backlog,
        shielded=rules.shielded,
    )
    found: Ints = match_all(view, cores, during, stability, weights)
    return found


def most_stable(view: NodeView, cores: Ints, during: Floats, stability: SurvivalModel) -> Ints:
    """The paper's SLACKSCHEDNODELAY: the free node of highest completion probability, without waiting.

    Parameters and result as for :func:`match`.
    """
    found: Ints = likeliest_all(view, cores, during, stability)
    return found


def heartbeat(
    view: NodeView,
    node: int,
    cores: Ints,
    during: Floats,
    stability: SurvivalModel,
    *,
    rules: MatchRules = OURS,
    threshold: float = THRESHOLD,
) -> int:
    """The waiting task to start on the node that reports (Algorithm 3), or ``NOWHERE``.

    It is the task of highest completion probability if that exceeds the threshold; else the shortest task, if
    no other node is better for it.

    Args:
        node: Row of the node that sent a heartbeat.
    """
    record = view.nodes[node]
    fitting = np.flatnonzero(cores <= (record["free"] if record["open"] else -1))
    if not len(fitting):
        return NOWHERE
    chances = np.array([chance(record, stability, node, 0.0, during[task]) for task in fitting])
    best = int(np.argmax(chances))
    if chances[best] > threshold:
        return int(fitting[best])
    shortest = int(fitting[np.argmin(during[fitting])])
    only = np.array([shortest])
    chosen = match(view, cores[only], during[only], stability, rules)
    return shortest if chosen[0] == node else NOWHERE
