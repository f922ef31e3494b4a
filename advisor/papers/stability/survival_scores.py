"""How well survival is predicted: at each moment from what was known then, judged by what came."""

from __future__ import annotations

from collections import deque

import numpy as np
from scipy.stats import rankdata

from advisor.arrays import Floats, Ints
from advisor.papers.stability.evidence import survival_with_evidence
from advisor.papers.stability.published_survival import published
from advisor.papers.stability.world.baselines import Shrinks
from advisor.papers.stability.world.nodes import NodeChanges
from advisor.predict.survival.node_survival import GROWTH, SHRINK, Intervals, SurvivalModel

HORIZON = 3600.0
_DAY = 86400.0
_MAX_MOMENTS = 1500
_MIN_STEP = 900.0


def all_intervals(changes: NodeChanges) -> Intervals:
    """Every time a node that is there stays as it is, from change to change; the last ones stay open."""
    order = np.lexsort((np.arange(len(changes)), changes.node))
    node, time, after = changes.node[order], changes.time[order], changes.after[order]
    before = changes.before()[order]
    everyone = np.arange(changes.nodes)
    who = np.concatenate([everyone, node])
    start = np.concatenate([np.zeros(changes.nodes), time])
    cores = np.concatenate([changes.cores, after])
    began = np.concatenate([np.full(changes.nodes, GROWTH), np.where(after < before, SHRINK, GROWTH)])
    place = np.lexsort((start, who))
    who, start, cores, began = who[place], start[place], cores[place], began[place]
    same = np.concatenate([who[1:] == who[:-1], [False]])
    end = np.where(same, np.roll(start, -1), changes.until)
    then = np.where(same, np.roll(cores, -1), cores)
    there = cores > 0
    return Intervals(
        node=who[there],
        start=start[there],
        end=end[there],
        completed=same[there],
        began=began[there],
        ended=np.where(then < cores, SHRINK, GROWTH)[there],
        size=np.abs(then - cores)[there].astype(np.float64),
    )


def known_at(everything: Intervals, now: float) -> Intervals:
    """What of it was known at a moment: intervals still open have lasted until then."""
    begun = everything.start < now
    part = Intervals(*(getattr(everything, name)[begun] for name in Intervals.__slots__))
    open_still = part.end > now
    return Intervals(
        node=part.node,
        start=part.start,
        end=np.minimum(part.end, now),
        completed=part.completed & ~open_still,
        began=part.began,
        ended=part.ended,
        size=part.size,
    )


def survival_scores(changes: NodeChanges, horizon: float = HORIZON) -> dict[str, float | int | None]:
    """Area under the ROC curve and Brier score of "no shrink within ``horizon``", from the second day on.

    The base rate is that of the whole trace, known only in hindsight: the hardest constant to beat.
    ``brier_known_rate`` is that of the rate among outcomes already known at each moment, which is what anyone
    could have used instead, and ``skill_over_known_rate`` is ours against it.
    """
    everything = all_intervals(changes)
    shrinks = Shrinks(changes)
    begin = min(_DAY, changes.until / 5)
    step = max(_MIN_STEP, (changes.until - horizon - begin) / _MAX_MOMENTS)
    ours: list[Floats] = []
    paper: list[Floats] = []
    known: list[Floats] = []
    stayed: list[Floats] = []
    rate = _KnownRate(horizon)
    earlier = begin - step * int(begin / step)
    for now in np.arange(earlier, changes.until - horizon, step):
        seen = known_at(everything, now)
        alive = np.flatnonzero(seen.end == now)
        alive = alive[~seen.completed[alive]]
        if not len(alive):
            continue
        rows, age, last = seen.node[alive], now - seen.start[alive], seen.began[alive]
        truth = (shrinks.after(now, rows) > horizon).astype(np.float64)
        rate.note(now, truth)
        if now < begin:
            continue
        known.append(np.full(len(rows), rate.at(now)))
        stayed.append(truth)
        ours.append(_chances(survival_with_evidence(seen, now, changes.nodes), rows, age, last, horizon))
        paper.append(_chances(published(seen, now, changes.nodes), rows, age, last, horizon))
    if not stayed:
        return {"samples": 0, "auc": None, "brier": None, "brier_base_rate": None, "skill": None}
    truth = np.concatenate(stayed)
    found = scores(np.concatenate(ours), truth)
    as_published = scores(np.concatenate(paper), truth)
    by_known_rate = float(np.mean((np.concatenate(known) - truth) ** 2))
    return {
        **found,
        "brier_known_rate": by_known_rate,
        "skill_over_known_rate": 1.0 - float(np.mean((np.concatenate(ours) - truth) ** 2)) / by_known_rate,
        "published_auc": as_published["auc"],
        "published_brier": as_published["brier"],
    }


class _KnownRate:
    """Share of yes among outcomes known by now; each counts ``horizon`` after it was asked for."""

    def __init__(self, horizon: float) -> None:
        self._horizon = horizon
        self._pending: deque[tuple[float, Floats]] = deque()
        self._yes, self._count = 1.0, 2.0

    def note(self, now: float, truth: Floats) -> None:
        """What will be known a horizon from now."""
        self._pending.append((now + self._horizon, truth))

    def at(self, now: float) -> float:
        """The share known now."""
        while self._pending and self._pending[0][0] <= now:
            truth = self._pending.popleft()[1]
            self._yes += float(truth.sum())
            self._count += len(truth)
        return self._yes / self._count


def _chances(known: SurvivalModel, rows: Ints, age: Floats, last: Ints, horizon: float) -> Floats:
    parts = zip(rows, age, last, strict=True)
    return np.array([known.completion_probability(int(n), int(x), float(e), horizon) for n, e, x in parts])


def scores(chance: Floats, truth: Floats) -> dict[str, float | int | None]:
    """Scores of forecasts of yes (1) or no (0); shape (n,) each.

    Examples:
        >>> scores(np.array([0.9, 0.2]), np.array([1.0, 0.0]))["auc"]
        1.0
    """
    yes = float(truth.sum())
    no = len(truth) - yes
    base = yes / len(truth)
    brier, brier_base = float(np.mean((chance - truth) ** 2)), base * (1.0 - base)
    pairs = yes * no
    auc = (float(rankdata(chance)[truth == 1.0].sum()) - yes * (yes + 1) / 2) / pairs if pairs else None
    return {
        "samples": len(truth),
        "survived_share": base,
        "auc": auc,
        "brier": brier,
        "brier_base_rate": brier_base,
        "skill": 1.0 - brier / brier_base if pairs else None,
    }
