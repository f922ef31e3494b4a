"""Long jobs with checkpoints on spot traces, where a job that found no room goes back to spot, or does not.

Traces of one kind are pools of one site: a job runs where spot can be had, and on-demand where none has any.
The rule is that of `advisor control`: spot while one more loss leaves time, and tried again as soon as a
start in vain costs no more than a given share of what has run on-demand since the last one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from advisor.arrays import Bools
from advisor.replay.spot_traces import malformed, read_spot_counts

Tell = Callable[[str], None]

_HOUR: Final = 3600.0
_ROUNDING: Final = 1e-6  # seconds
_FIRST_HOURS: Final = 72.0
_SPOT, _ON_DEMAND = "spot", "on-demand"


class Terms(NamedTuple):
    """A job and its site; seconds. ``time``: from its begin to its deadline."""

    work: float
    time: float
    start: float
    checkpoint: float


def run(
    *,
    spot: Sequence[Path],
    nodes: int = 1,
    hours: float = 48.0,
    fraction: float = 0.8,
    start_minutes: float = 12.0,
    checkpoint_minutes: float = 10.0,
    starts: int = 24,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Run jobs from `starts` moments of the traces, for each number of them together and in all choices.

    Raises:
        BadInput: The traces are not of one kind, or shorter than a job.
    """
    counts = [read_spot_counts(path) for path in spot]
    gap, ticks = counts[0].gap_seconds, min(len(one.counts) for one in counts)
    for path, one in zip(spot, counts, strict=True):
        if one.gap_seconds != gap:
            raise malformed(path, f"its gap is not {gap:g} s as in {spot[0]}", "traces of one kind")
        if len(one.counts) * gap <= hours * _HOUR / fraction:
            raise malformed(
                path, "it is shorter than a job", f"a trace of {hours / fraction:g} hours or more"
            )
    has_spot = np.array([one.counts[:ticks] >= nodes for one in counts])
    work = hours * _HOUR
    terms = Terms(work, work / fraction, 60.0 * start_minutes, 60.0 * checkpoint_minutes)
    last = ticks - 1 - int(terms.time / gap)
    moments = np.linspace(min(_FIRST_HOURS * _HOUR / gap, last), last, starts).astype(int)
    rows = []
    for number in range(1, len(spot) + 1):
        for share in (0.0, 1.0 / 3.0, 1.0 / 6.0, 1.0 / 12.0):
            tell(f"{number} pools, a start in vain for {share:.2f} of a run")
            found = np.array([
                _follow(has_spot[list(pools)], gap, moment, terms, share)
                for pools in itertools.combinations(range(len(spot)), number)
                for moment in moments
            ])  # fmt: skip
            names = ("on_demand_hours", "spot_hours", "tries", "late_share")
            means = dict(zip(names, found.mean(axis=0).tolist(), strict=True))
            rows.append({"pools": number, "vain_share": share, **means})
    return {"traces": [path.name for path in spot], "jobs": starts, "rows": rows}


def _follow(
    has_spot: Bools, gap: float, moment: int, terms: Terms, vain_share: float
) -> tuple[float, float, float, float]:
    """Hours on-demand, hours on spot, tries, and whether the job is late.

    Args:
        has_spot: Of each pool at each tick, shape (pools, ticks).
        vain_share: Share of a run on-demand that a start in vain may cost; 0: spot is not tried again.
    """
    lost = terms.start + terms.checkpoint
    left, passed, ran, starting, tries = terms.work, 0.0, 0.0, 0.0, 0
    market, pool, used = "", 0, {_SPOT: 0.0, _ON_DEMAND: 0.0}
    for at in itertools.count(moment):
        up = np.flatnonzero(has_spot[:, at % has_spot.shape[1]])
        if market == _SPOT and pool not in up:
            market, left = "", min(terms.work, left + min(0.5 * terms.checkpoint, ran))
        leaves_time = terms.time - passed - left >= 2.0 * lost + gap
        if market == _ON_DEMAND and lost <= vain_share * ran and leaves_time:
            market, left, tries = "", left + 0.5 * terms.checkpoint, tries + 1
        if not market:
            market = _SPOT if up.size and leaves_time else _ON_DEMAND
            pool, ran, starting = int(up[0]) if up.size else 0, 0.0, terms.start
        waits = min(starting, gap)
        done = min(left, gap - waits)
        starting, left, ran = starting - waits, left - done, ran + done
        used[market] += waits + done
        passed += waits + done
        if left <= _ROUNDING:
            break
    is_late = passed > terms.time + _ROUNDING
    return used[_ON_DEMAND] / _HOUR, used[_SPOT] / _HOUR, float(tries), float(is_late)
