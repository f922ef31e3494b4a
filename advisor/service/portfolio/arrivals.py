"""The value of idle nodes to jobs that may still arrive, by the last jobs of the burst partition."""

from __future__ import annotations

from collections import deque

import numpy as np

from advisor.model.job import JobOutcome
from advisor.service.portfolio.portfolio_view import BurstView, nodes_of
from advisor.simulate.portfolio.arrivals import (
    NO_HINDRANCE,
    NOTHING,
    REMEMBERED,
    REMEMBERED_LONG,
    RENEWED,
    ExpectedJob,
    Hindrance,
    rate_of,
)
from advisor.simulate.portfolio.state import Readiness, Rules


class RecentJobs:
    """The last jobs that ended in the burst partition; waiting jobs count as arrived, too."""

    def __init__(self) -> None:
        self._ended: deque[JobOutcome] = deque(maxlen=REMEMBERED_LONG)
        self._since = 0
        self._next: ExpectedJob | None = None
        self._hindrance = NO_HINDRANCE
        self._made_for: tuple[Rules, int] | None = None

    def ended(self, outcome: JobOutcome) -> None:
        """Add a job that ran."""
        self._ended.append(outcome)
        self._since += 1

    def ready(self, view: BurstView, rules: Rules) -> Readiness:
        """The value of idle nodes now."""
        if not self._ended:
            return NOTHING
        now = view.situation.now
        made_for = rules, view.processors_per_node
        if self._next is None or made_for != self._made_for or self._since >= RENEWED:
            nodes = [nodes_of(outcome.job, view.processors_per_node) for outcome in self._ended]
            runs = [max(outcome.end_time - outcome.start_time, 1.0) for outcome in self._ended]
            first = min(outcome.job.submit_time for outcome in self._ended)
            self._next = ExpectedJob.of(np.array(nodes[-REMEMBERED:]), np.array(runs[-REMEMBERED:]), rules)
            self._hindrance = Hindrance.of(np.array(nodes), np.array(runs), now - first, rules.max_nodes)
            self._made_for, self._since = made_for, 0
        came = [outcome.job.submit_time for outcome in self._ended]
        came += [queued.job.submit_time for queued in view.waiting]
        return self._next.at(rate_of(np.sort(np.minimum(came, now)), now), self._hindrance)
