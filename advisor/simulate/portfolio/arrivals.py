"""What idle nodes are worth to jobs that have not come yet, and what busy ones cost them.

The online simulator knows the queue and nothing that comes after it. A plan that starts the queue on fewer
nodes, or lets the queue run dry so that idle nodes are given back, looks cheaper than it is: the next job
waits for a boot and pays an hour of its own. So each second in which a plan has idle nodes it is credited
with what they spare the jobs expected in that second: those of the recent past, at the rate of late.

On a full cloud a job that comes cannot rent either: it waits until enough nodes are idle. What hurts are
short jobs on many nodes behind long ones, and such jobs are rare and come together, so that the last hours
tell nothing about them. So each second of a plan, and after it until there is room for all, costs what the
jobs that come in it by the log's long run suffer until the running ones have made room (:class:`Hindrance`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.simulate.portfolio._tick import charge, weight_of
from advisor.simulate.portfolio.policies import JobOrder
from advisor.simulate.portfolio.state import SLOWDOWN_BOUND, Floats, Ints, Readiness, Rules

REMEMBERED: Final = 256
"""Jobs that stand for those to come."""
RENEWED: Final = 16
"""Their worth is worked out anew when so many others came."""
REMEMBERED_LONG: Final = 4096
"""Jobs that stand for those that find the cloud full."""
_LATE: Final = 7200.0
_LONG: Final = 86_400.0
_SHARE_OF_LONG: Final = 0.2

NOTHING: Final = Readiness(np.zeros(0), np.zeros(0), np.zeros((0, 0)), np.zeros(0, np.int64), np.zeros(0))
"""No job is expected."""


def rate_of(submit: Floats, now: float) -> float:
    """Jobs a second that are expected: of the last two hours, and to a fifth of the last day.

    Parameters
    ----------
    submit : ndarray of float64, shape (n,)
        When jobs came, ascending, none after ``now``; seconds.
    now : float
        Seconds.

    Examples
    --------
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
    """What it costs the jobs that come if they have to wait, by classes of width (powers of two).

    Attributes
    ----------
    width : ndarray of int64, shape (k,)
        Nodes of the widest job of each class, ascending.
    harm : ndarray of float64, shape (k,)
        Bounded slowdown that the jobs of one second suffer for each second they wait.
    """

    width: Ints
    harm: Floats

    @classmethod
    def of(cls, processors: Ints, run: Floats, seconds: float, max_nodes: int) -> Hindrance:
        """From the jobs of so many seconds: a second's wait costs each 1 / max(run, bound)."""
        fits = processors <= max_nodes
        octave, place = np.unique(
            np.ceil(np.log2(np.maximum(processors[fits], 1))).astype(np.int64), return_inverse=True
        )
        width = np.ones(len(octave), np.int64)
        np.maximum.at(width, place, processors[fits])
        harm = np.bincount(place, 1.0 / np.maximum(run[fits], SLOWDOWN_BOUND), len(octave))
        return cls(width, harm / max(seconds, _LONG))


NO_HINDRANCE: Final = Hindrance(NOTHING.width, NOTHING.harm)
"""No job has to wait."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedJob:
    """The job that comes next, by the recent ones: what idle nodes spare it.

    Attributes
    ----------
    slowdown, charged : ndarray of float64, shape (max_nodes + 1,)
        Bounded slowdown and node-seconds charged that it is spared in the mean, by how many nodes are idle.
    weight : ndarray of float64, shape (orders, k)
        Its weights in each job order, ascending.
    """

    slowdown: Floats
    charged: Floats
    weight: Floats

    @classmethod
    def of(cls, processors: Ints, run: Floats, rules: Rules) -> ExpectedJob:
        """From recent jobs' nodes and run times in seconds.

        A job that finds its nodes idle does not wait for a boot, and nothing is rented for it: whole hours,
        boot included, less what it uses. Jobs wider than what is idle are spared nothing.
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
        """What idle nodes are worth while so many of it come a second, and what busy ones cost."""
        return Readiness(
            rate * self.slowdown, rate * self.charged, self.weight, hindrance.width, hindrance.harm
        )
