"""Checkpoints of a portfolio's contenders, by utility or day by day, for tests of who leads."""

from __future__ import annotations

import numpy as np

from advisor.decide.portfolio.portfolio_lead import days_of
from advisor.decide.portfolio.portfolio_options import Options


def checkpoints(*utilities: float):
    """Rows of charged, work, slowdown, jobs with these utilities over kappa."""
    return np.array([[1000.0, 1000.0 * u, 10.0, 10.0] for u in utilities])


def days(*charged: float):
    """Checkpoints once a day: ten jobs each, so much charged for them, the same slowdown."""
    one = np.array([[0.0, 1000.0, 10.0, 10.0]] * len(charged))
    one[:, 0] = charged
    return np.cumsum(one, axis=0)


DAILY = Options(checkpoint_seconds=86_400.0)


def evidence_of(alone, reigning, contender, options):
    """After 1, 2, ... days."""
    each = round(86_400.0 / options.checkpoint_seconds)
    champions = days_of(alone, options).of_champions(reigning, each)
    return days_of([contender], options).evidence(champions)[0, 1:]
