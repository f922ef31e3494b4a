"""The match maker: long tasks to nodes that will stay (Agarwal et al., NSDI 2023, section 3.1.2). Pure.

A task's expected worst-case completion on a node (Eq. 2) is ``a + p d + (1 - p)(w + r)``: the wait for the
node's cores, the run if nothing happens, else what is wasted until the change and the restart. Read literally
it does harm: every waiting task counts on the same cores becoming free, and a restart is expected on a node
that has just changed, so tasks wait too much. Ours differs in these points; each can be switched off:

* a waiting task reserves the cores it waits for, so that those behind it count on others;
* each node has its own change rate (``advisor.predict.survival.node_survival``);
* the longest of the tasks that can start chooses first: in the queue's order short ones take what the long
  ones need;
* nobody waits for a better node while the tasks ask for many more cores than are free: on nodes that fail
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
"""Completion probability from which Algorithm 3 starts a task at once; the paper names no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRules:
    """How Eq. 2 is read.

    Attributes
    ----------
    waits : bool
        Delayed scheduling: busy nodes are considered too.
    reserves : bool
        A waiting task reserves the cores it waits for.
    typical_restart : bool
        After a preemption on the nodes there are, as old as they are; False: on one that has just changed, as
        published. Off: it wins on quiet clusters by a percent and loses four on busy ones.
    longest_first : bool
        Among the tasks for which there are free cores the longest choose first; False: in the queue's order.
    keeps_busy : bool
        Nobody waits for a better node while tasks ask for more than the free cores and the backlog.
    backlog : float
        Share of all cores by which what tasks ask for may exceed the free ones and they still wait. Without
        any, each arrival of a large job stops all waiting; without bound, overloaded nodes idle.
    depth : int
        A decision ends after so many tasks for which there is no room now.
    shielded : bool
        When a node shrinks, the tasks whose loss costs least give way
        (``advisor.papers.stability.giving_way``): one
        that starts now is ended by a shrink that takes more than the cores spare beside it. Off where nodes
        vanish whole, or somebody else chooses which tasks end.
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
    sight: NodeView, cores: Ints, during: Floats, stability: SurvivalModel, rules: MatchRules = OURS
) -> Ints:
    """Decide for each waiting task on which node it starts now, if anywhere.

    Parameters
    ----------
    sight : NodeView
        The nodes now.
    cores : int64 array, shape (tasks,)
        What each waiting task needs, in the queue's order.
    during : float64 array, shape (tasks,)
        How long each is expected to run, seconds.
    stability : SurvivalModel
        What is known of the nodes.
    rules : MatchRules
        How Eq. 2 is read.

    Returns
    -------
    int64 array, shape (tasks,)
        Row of the node, or ``NOWHERE``: it waits and is decided upon again at the next event.
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
    found: Ints = match_all(sight, cores, during, stability, weights)
    return found


def most_stable(sight: NodeView, cores: Ints, during: Floats, stability: SurvivalModel) -> Ints:
    """The paper's SLACKSCHEDNODELAY: the free node with the highest completion probability, no waiting.

    Parameters and result as for :func:`match`.
    """
    found: Ints = likeliest_all(sight, cores, during, stability)
    return found


def heartbeat(
    sight: NodeView,
    node: int,
    cores: Ints,
    during: Floats,
    stability: SurvivalModel,
    *,
    rules: MatchRules = OURS,
    threshold: float = THRESHOLD,
) -> int:
    """Which waiting task to start on the node that reports (Algorithm 3), or ``NOWHERE``.

    The task with the highest completion probability there if that exceeds the threshold; else the shortest
    task, if no other node is better for it.

    Parameters
    ----------
    sight, cores, during, stability, rules
        As for :func:`match`.
    node : int
        Row of the node that sent a heartbeat.
    threshold : float
        Completion probability that is good enough.
    """
    this = sight.nodes[node]
    fitting = np.flatnonzero(cores <= (this["free"] if this["open"] else -1))
    if not len(fitting):
        return NOWHERE
    chances = np.array([chance(this, stability, node, 0.0, during[task]) for task in fitting])
    best = int(np.argmax(chances))
    if chances[best] > threshold:
        return int(fitting[best])
    shortest = int(fitting[np.argmin(during[fitting])])
    only = np.array([shortest])
    chosen = match(sight, cores[only], during[only], stability, rules)
    return shortest if chosen[0] == node else NOWHERE
