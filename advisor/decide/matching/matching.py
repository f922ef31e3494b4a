"""Match long tasks with nodes that are likely to survive (Agarwal et al., NSDI 2023, section 3.1.2).

The match loop does so with jobs and cloud nodes, `advisor replay stability` with tasks of a trace.

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

from advisor.arrays import Floats, Ints
from advisor.decide.matching._matching import BACKLOG, NOWHERE, MatchRules, match_all
from advisor.model.node_view import NodeView
from advisor.predict.survival.node_survival import SurvivalModel

__all__ = ["BACKLOG", "NOWHERE", "OURS", "MatchRules", "match"]


OURS = MatchRules()


def match(
    view: NodeView, cores: Ints, during: Floats, stability: SurvivalModel, rules: MatchRules = OURS
) -> Ints:
    """Choose for each waiting task the node on which it starts now, if any.

    Args:
        cores: int64 array, shape (tasks,): Cores of each waiting task, in the queue's order.
        during: float64 array, shape (tasks,): Expected run time of each, seconds.

    Returns:
        int64 array, shape (tasks,): Row of the node, or ``NOWHERE`` for a task that waits for the next event.
    """
    found: Ints = match_all(view, cores, during, stability, rules)
    return found
