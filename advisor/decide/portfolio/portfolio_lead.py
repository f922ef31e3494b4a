"""The leader of a portfolio: the champion among its policies, or a selection (Algorithm 1) among them.

A policy's score is its utility on the site's jobs, simulated alongside, after a prior from synthetic
workloads.
Jobs that wait or run count with their expected outcome, so that unfinished waits do not flatter a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.decide.portfolio.portfolio_evidence import Days
from advisor.decide.portfolio.portfolio_options import CHAMPION, PRIOR_JOBS_WARM, Options, prior_jobs
from advisor.simulate.portfolio.cluster import Totals
from advisor.simulate.portfolio.state import CHARGED, JOBS, SLOWDOWN, WORK

REFUTED: Final = 1.5
"""Standard errors at which a first leader other than the champion, or its successor, is replaced."""
_EVIDENCE_KEPT: Final = 0.5
"""A selection goes on leading while this share of the needed evidence (`Options.evidence`) is left."""
HYSTERESIS: Final = 0.01
"""A contender takes over when its utility is better by this share, because each change costs something."""


@dataclass(slots=True, kw_only=True)
class Leader:
    """The contender of best utility so far, with hysteresis."""

    first: int
    _current: int = -1

    def after(self, utility: Floats) -> int:
        """Index of the leader, given each contender's utility so far."""
        current = self.first if self._current < 0 else self._current
        best = int(np.argmax(utility))
        if utility[best] > utility[current] * (1.0 + HYSTERESIS):
            current = best
        self._current = current
        return current


def rows_of(totals: Sequence[Totals]) -> Floats:
    """Totals as rows of checkpoints, shape (n, 4)."""
    return np.array([[one.charged_seconds, one.work_seconds, one.slowdown_sum, one.jobs] for one in totals])


def champions_of(checkpoints: Sequence[Floats], before: Floats, options: Options) -> NDArray[np.int64]:
    """Champion when 0, 1, ... checkpoints are known: the best policy with the best number of warm nodes.

    The value of renting shows at once, the value of an order of jobs over days: with ``options.evidence`` a
    policy of another order takes over only when its days are better by so many standard errors. A change of
    the number of warm nodes costs nothing, so the best is taken without hysteresis.

    Args:
        checkpoints: sequence of ndarray, shape (c, 4): Checkpoints of each policy.
        before: ndarray, shape (n, 4): Each policy's prior.
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
    """Row of the best policy, column by column; another order of jobs needs better days."""
    orders = [(policy.order, policy.backfill) for policy in options.policies]
    kind = np.array([orders.index(one) for one in orders])
    days, first = days_of(checkpoints, options), int(np.argmax(utility[:, 0]))
    return _refuted_by_days(utility, kind, days, first, options.evidence, _each_day(options))


def _refuted_by_days(
    utility: Floats, kind: NDArray[np.int64], days: Days, first: int, least: float, each: int
) -> NDArray[np.int64]:
    """Row of the leader, column by column (after 0, 1, ... checkpoints), with hysteresis.

    A contender of the same ``kind`` takes over when it is better; of another kind when its days are also
    better by ``least`` standard errors. ``each``: checkpoints in a day.
    """
    rows = [np.flatnonzero(kind == one) for one in np.unique(kind)]
    current = first
    found = np.empty(utility.shape[1], np.int64)
    for known, column in enumerate(utility.T):
        best = [int(alike[np.argmax(column[alike])]) for alike in rows]
        for one in sorted(best, key=lambda row: -column[row]):
            if column[one] <= column[current] * (1.0 + HYSTERESIS):
                break
            if kind[one] == kind[current] or days.better(one, current, known // each) >= least:
                current = one
                break
        found[known] = current
    return found


def _best_so_far(utility: Floats) -> NDArray[np.int64]:
    """Row of the best, column by column, with hysteresis."""
    leader = Leader(first=int(np.argmax(utility[:, 0])))
    return np.array([leader.after(column) for column in utility.T], np.int64)


def days_of(checkpoints: Sequence[Floats], options: Options) -> Days:
    """Contenders' losses by day."""
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
    """The leader when 0, 1, ... checkpoints are known: index of a selection, or ``CHAMPION``.

    Args:
        alone: sequence of ndarray, shape (c, 4): Checkpoints of each policy.
        champions: ndarray of int, shape (c + 1,): Champion when 0, 1, ... checkpoints are known.
        contenders: sequence of ndarray, shape (c, 4): Checkpoints of each selection.
        before: ndarray, shape (4,): The prior, added to each.
    """
    of_champions = champions[1:]
    champion = np.array([alone[policy][k] for k, policy in enumerate(of_champions)]).reshape(-1, 4)
    utility = utility_of(np.stack([champion, *contenders]) + before, options)
    each = _each_day(options)
    if options.first_leader != CHAMPION:
        all_rows = np.arange(len(utility))
        utility = np.concatenate([np.ones((len(utility), 1)), utility], axis=1)  # as equals before the log
        days = days_of(alone, options).of_champions(of_champions, each).joined(days_of(contenders, options))
        return _refuted_by_days(utility, all_rows, days, options.first_leader + 1, REFUTED, each) - 1
    if options.evidence > 0.0:
        champions_days = days_of(alone, options).of_champions(of_champions, each)
        evidence = days_of(contenders, options).evidence(champions_days)
        for row, of_days in zip(utility[1:], evidence, strict=True):
            may = _may_lead(of_days, options.evidence)
            row[~may[(np.arange(len(row)) + 1) // each]] = -np.inf
    leader = Leader(first=0)
    return np.array([0, *(leader.after(utility[:, k]) for k in range(utility.shape[1]))], np.int64) - 1


def _may_lead(evidence: Floats, least: float) -> NDArray[np.bool_]:
    """True from where the evidence is enough until half of it is gone."""
    may = np.zeros(len(evidence), np.bool_)
    leads = False
    for at, found in enumerate(evidence):
        leads = found >= (least * _EVIDENCE_KEPT if leads else least)
        may[at] = leads
    return may


def utility_of(at: Floats, options: Options) -> Floats:
    """Utility, from the last axis of checkpoints."""
    utilisation = at[..., WORK] / at[..., CHARGED]
    utility: Floats = utilisation**options.alpha * (at[..., JOBS] / at[..., SLOWDOWN]) ** options.beta
    return utility
