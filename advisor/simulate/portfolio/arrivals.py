"""Value of idle nodes for jobs that have not come yet, and cost of busy ones.

The online simulator knows only the queue. A plan that starts the queue on fewer nodes, or lets it run empty
so that idle nodes are given back, looks cheaper than it is: the next job waits for a boot and pays for its
own hour. Each second in which a plan has idle nodes is therefore credited with what they save the jobs
expected in that second: jobs like the recent ones, at the recent rate.

On a full cloud a new job cannot rent either and waits until enough nodes are idle. The jobs that suffer most
are short, wide ones behind long ones. They are rare and come in groups, so the last hours say nothing about
them. Each second of a plan, and after it until all fit, is therefore charged with what jobs at the log's
long-run rate suffer until the running ones have made room (:class:`Hindrance`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.simulate.portfolio._tick import charge, weight_of
from advisor.simulate.portfolio.policies import JobOrder
from advisor.simulate.portfolio.state import SLOWDOWN_BOUND, Readiness, Rules

REMEMBERED: Final = 256
"""Recent jobs that stand for the expected ones."""
RENEWED: Final = 16
"""Their value is recomputed after so many new jobs."""
REMEMBERED_LONG: Final = 4096
"""Jobs that stand for those that meet a full cloud."""
_LATE: Final = 7200.0
_LONG: Final = 86_400.0
_SHARE_OF_LONG: Final = 0.2

NOTHING: Final = Readiness(np.zeros(0), np.zeros(0), np.zeros((0, 0)), np.zeros(0, np.int64), np.zeros(0))
"""No job is expected."""


def rate_of(submit: Floats, now: float) -> float:
    """Expected jobs per second: four fifths from the last two hours, one fifth from the last day.

    ``submit`` are earlier submissions in seconds, ascending, none after ``now``; shape (n,).

    Examples:
        >>> rate_of(np.array([0.0]), 10.0 * 86_400.0)
        0.0
    """
    if not len(submit):
        return 0.0
    long = min(_LONG, max(now - float(submit[0]), 3600.0))
    late = (len(submit) - int(np.searchsorted(submit, now - _LATE))) / _LATE
    daily = (len(submit) - int(np.searchsorted(submit, now - long))) / long
    return (1.0 - _SHARE_OF_LONG) * late + _SHARE_OF_LONG * daily


@dataclass(frozen=True, slots=True, eq=False)
class Hindrance:
    """Cost of waiting for expected jobs, by classes of width (powers of two).

    Attributes:
        width: ndarray of int64, shape (k,): Nodes of the widest job of each class, ascending.
        harm: ndarray of float64, shape (k,): Bounded slowdown that one second's jobs suffer per second of
            waiting.
    """

    width: Ints
    harm: Floats

    @classmethod
    def of(cls, processors: Ints, run: Floats, seconds: float, max_nodes: int) -> Hindrance:
        """From the jobs of so many seconds: each second of waiting costs a job 1 / max(run, bound)."""
        fits = processors <= max_nodes
        octave, place = np.unique(
            np.ceil(np.log2(np.maximum(processors[fits], 1))).astype(np.int64), return_inverse=True
        )
        width = np.ones(len(octave), np.int64)
        np.maximum.at(width, place, processors[fits])
        harm = np.bincount(place, 1.0 / np.maximum(run[fits], SLOWDOWN_BOUND), len(octave))
        return cls(width, harm / max(seconds, _LONG))


NO_HINDRANCE: Final = Hindrance(NOTHING.width, NOTHING.harm)
"""No job waits."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedJob:
    """The next job, like the recent ones: what idle nodes save it.

    Attributes:
        slowdown, charged: ndarray of float64, shape (max_nodes + 1,): Mean bounded slowdown and node-seconds
            charged that it is saved, by number of idle nodes.
        weight: ndarray of float64, shape (orders, k): Its weights in each job order, ascending.
    """

    slowdown: Floats
    charged: Floats
    weight: Floats

    @classmethod
    def of(cls, processors: Ints, run: Floats, rules: Rules) -> ExpectedJob:
        """From recent jobs' processors and run times in seconds.

        A job that finds its nodes idle does not wait for a boot, and no nodes are rented for it: whole hours,
        boot included, less what it uses. Jobs wider than the idle nodes are saved nothing.
        """
        count = len(run)
        slowdown, charged = np.zeros(rules.max_nodes + 1), np.zeros(rules.max_nodes + 1)
        fits = processors <= rules.max_nodes
        rented = np.array([charge(rules.boot + seconds, rules.release) for seconds in run])
        np.add.at(slowdown, processors[fits], (rules.boot / np.maximum(run, SLOWDOWN_BOUND))[fits] / count)
        np.add.at(charged, processors[fits], (processors * np.maximum(rented - run, 0.0))[fits] / count)
        weight = [
            [weight_of(int(order), seconds, width) for seconds, width in zip(run, processors, strict=True)]
            for order in JobOrder
        ]
        return cls(np.cumsum(slowdown), np.cumsum(charged), np.sort(np.array(weight), axis=1))

    def at(self, rate: float, hindrance: Hindrance = NO_HINDRANCE) -> Readiness:
        """Value of idle nodes at ``rate`` such jobs per second, and cost of busy ones."""
        return Readiness(
            rate * self.slowdown, rate * self.charged, self.weight, hindrance.width, hindrance.harm
        )
