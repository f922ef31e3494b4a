"""The paper's scheduler without delay: the free node on which a task is likeliest to end."""

from __future__ import annotations

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.compiled import compiled
from advisor.decide.matching.matching import NOWHERE, chance
from advisor.model.node_view import NodeView
from advisor.predict.survival.node_survival import SurvivalModel


@compiled
def most_stable(view: NodeView, cores: Ints, during: Floats, stability: SurvivalModel) -> Ints:
    """SLACKSCHEDNODELAY: the free node of highest completion probability for each task in order, or NOWHERE.

    Parameters and result: see `advisor.decide.matching.matching.match`.
    """
    chosen = np.full(len(cores), NOWHERE)
    free = view.nodes["free"].copy()
    for task in range(len(cores)):
        best = -1.0
        for at in range(len(view.nodes)):
            node = view.nodes[at]
            if node.open and free[at] >= cores[task]:
                p = chance(node, stability, at, 0.0, during[task])
                if p > best:
                    best, chosen[task] = p, at
        if chosen[task] != NOWHERE:
            free[chosen[task]] -= cores[task]
    return chosen
