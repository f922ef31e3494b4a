"""Who leads a portfolio: the champion among its policies, or a selection among them.

A policy's score is what it makes of the jobs by itself, simulated alongside. It begins with what the policy
makes of synthetic workloads, and jobs that wait or run count with what is expected of them: what looks good
only because its waits are not over does not take charge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.decide.portfolio.portfolio_evidence import Days
from advisor.decide.portfolio.portfolio_options import CHAMPION, PRIOR_JOBS_WARM, Options, prior_jobs
from advisor.simulate.portfolio.cluster import Totals
from advisor.simulate.portfolio.state import CHARGED, JOBS, SLOWDOWN, WORK

Floats = NDArray[np.float64]

REFUTED: Final = 1.5
"""So many standard errors refute a first leader that is not the champion, and whoever leads after it."""
_EVIDENCE_KEPT: Final = 0.5
"""A selection leads on while so much is left of the evidence that it needed (`Options.evidence`)."""
LOYALTY: Final = 0.01
"""Another takes over when its utility is better by this share: a change costs a while of neither's plan."""


@dataclass(slots=True, kw_only=True)
class Leader:
    """Who is in charge: the contender of best utility so far, with a little loyalty.

    Attributes
    ----------
    first : int
        In charge at first.
    loyalty : float
        Another takes over when its utility is better by this share.
    """

    first: int
    loyalty: float = LOYALTY
    _current: int = -1

    def after(self, utility: Floats) -> int:
        """Index of the leader, given each contender's utility so far."""
        current = self.first if self._current < 0 else self._current
        best = int(np.argmax(utility))
        if utility[best] > utility[current] * (1.0 + self.loyalty):
            current = best
        self._current = current
        return current


def rows_of(totals: Sequence[Totals]) -> Floats:
    """Totals as rows like checkpoints, shape (n, 4)."""
    return np.array([[one.charged_seconds, one.work_seconds, one.slowdown_sum, one.jobs] for one in totals])


def champions_of(checkpoints: Sequence[Floats], before: Floats, options: Options) -> NDArray[np.int64]:
    """Champion when 0, 1, ... checkpoints are known: the best policy, with as many warm nodes as are best.

    How much is to be rented shows at once; which job goes first shows over days. Where ``options.evidence``
    is asked for, a policy of another order of jobs takes over only when its days are that much better. To
    another number of warm nodes nothing is lost by changing, so that the best is taken, without loyalty.

    Parameters
    ----------
    checkpoints : sequence of ndarray, shape (c, 4)
        Of each policy.
    before : ndarray, shape (n, 4)
        Each policy's score before the log begins.
    options : Options
        Of the utility.
    """
    known = np.concatenate([np.zeros((len(checkpoints), 1, 4)), np.stack(checkpoints)], axis=1)
    utility = utility_of(known + before[:, None, :], options)
    if options.evidence > 0.0:
        champions = _best_by_order(utility, checkpoints, options)
    else:
        champions = _best_so_far(utility)
    lighter = before * (PRIOR_JOBS_WARM / prior_jobs(options))
    kinds = [replace(policy, headroom=0) for policy in options.policies]
    for kind in {kinds[champion] for champion in np.unique(champions)}:
        alike = np.flatnonzero([other == kind for other in kinds])
        degree = np.argmax(utility_of(known[alike] + lighter[alike][:, None, :], options), axis=0)
        champions = np.where(np.isin(champions, alike), alike[degree], champions)
    return champions


def _best_by_order(utility: Floats, checkpoints: Sequence[Floats], options: Options) -> NDArray[np.int64]:
    """Row of the best, loyally, column by column; of another order of jobs where its days say so."""
    orders = [(policy.order, policy.backfill) for policy in options.policies]
    kind = np.array([orders.index(one) for one in orders])
    days, first = days_of(checkpoints, options), int(np.argmax(utility[:, 0]))
    return _refuted_by_days(utility, kind, days, first, options.evidence, _each_day(options))


def _refuted_by_days(
    utility: Floats, kind: NDArray[np.int64], days: Days, first: int, least: float, each: int
) -> NDArray[np.int64]:
    """Row in charge, column by column (after 0, 1, ... checkpoints), loyally.

    Another of the same ``kind`` takes over when it is better; of another kind when its days are better, too,
    by ``least`` standard errors. ``each``: checkpoints a day.
    """
    rows = [np.flatnonzero(kind == one) for one in np.unique(kind)]
    current = first
    found = np.empty(utility.shape[1], np.int64)
    for known, column in enumerate(utility.T):
        best = [int(alike[np.argmax(column[alike])]) for alike in rows]
        for one in sorted(best, key=lambda row: -column[row]):
            if column[one] <= column[current] * (1.0 + LOYALTY):
                break
            if kind[one] == kind[current] or days.better(one, current, known // each) >= least:
                current = one
                break
        found[known] = current
    return found


def _best_so_far(utility: Floats) -> NDArray[np.int64]:
    """Row of the best, loyally, column by column."""
    leader = Leader(first=int(np.argmax(utility[:, 0])))
    return np.array([leader.after(column) for column in utility.T], np.int64)


def days_of(checkpoints: Sequence[Floats], options: Options) -> Days:
    """What contenders made of each day."""
    every = np.stack(checkpoints)
    return Days.of(
        every[..., CHARGED],
        every[..., SLOWDOWN],
        every[..., JOBS],
        each=_each_day(options),
        alpha=options.alpha,
        beta=options.beta,
    )


def _each_day(options: Options) -> int:
    return max(round(options.day_seconds / options.checkpoint_seconds), 1)


def leaders_of(
    alone: Sequence[Floats],
    champions: NDArray[np.int64],
    contenders: Sequence[Floats],
    before: Floats,
    options: Options,
) -> NDArray[np.int64]:
    """Who leads when 0, 1, ... checkpoints are known: index of a selection, or ``CHAMPION``.

    Parameters
    ----------
    alone : sequence of ndarray, shape (c, 4)
        Checkpoints of each policy.
    champions : ndarray of int, shape (c + 1,)
        Champion when 0, 1, ... are known.
    contenders : sequence of ndarray, shape (c, 4)
        Checkpoints of each selection.
    before : ndarray, shape (4,)
        Added to each.
    options : Options
        Of the utility, and what a selection needs to lead.
    """
    reigning = champions[1:]
    champion = np.array([alone[policy][k] for k, policy in enumerate(reigning)]).reshape(-1, 4)
    utility = utility_of(np.stack([champion, *contenders]) + before, options)
    utility[1:] /= 1.0 + options.hurdle
    each = _each_day(options)
    if options.first_leader != CHAMPION:
        everyone = np.arange(len(utility))
        utility = np.concatenate([np.ones((len(utility), 1)), utility], axis=1)  # as equals before the log
        days = days_of(alone, options).reigning(reigning, each).beside(days_of(contenders, options))
        return _refuted_by_days(utility, everyone, days, options.first_leader + 1, REFUTED, each) - 1
    if options.evidence > 0.0:
        evidence = days_of(contenders, options).evidence(days_of(alone, options).reigning(reigning, each))
        for row, of_days in zip(utility[1:], evidence, strict=True):
            may = _may_lead(of_days, options.evidence)
            row[~may[(np.arange(len(row)) + 1) // each]] = -np.inf
    leader = Leader(first=0)
    return np.array([0, *(leader.after(utility[:, k]) for k in range(utility.shape[1]))], np.int64) - 1


def _may_lead(evidence: Floats, least: float) -> NDArray[np.bool_]:
    """From where the evidence is enough until half of it is gone."""
    may = np.zeros(len(evidence), np.bool_)
    leads = False
    for at, found in enumerate(evidence):
        leads = found >= (least * _EVIDENCE_KEPT if leads else least)
        may[at] = leads
    return may


def utility_of(at: Floats, options: Options) -> Floats:
    """Utility from the last axis of checkpoints."""
    utilisation = at[..., WORK] / at[..., CHARGED]
    utility: Floats = utilisation**options.alpha * (at[..., JOBS] / at[..., SLOWDOWN]) ** options.beta
    return utility
