"""Progress and remaining time of a portfolio replay, and which policies were chosen when.

Each policy, then each selection, then the portfolio passes through the log. Bursts take far longer than calm
months, so the share of jobs says little about time: after one pass, the next ones are expected to take as
long at the same places of the log.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from advisor.decide.portfolio.portfolio_options import Options
from advisor.decide.portfolio.portfolio_standing import Simulated, Watcher
from advisor.simulate.portfolio.cluster import RentedCluster

Progress = Callable[[str, int, int], None]

IN_ALL: Final = "in all"
_PARTS: Final = 10_000
"""Parts of the expected total time; a progress bar whose total changes would lose its speed."""
CUT: Final = "choices cut short by the budget"
_PASS_BY_POLICIES: Final = 3.0
"""First guess: a pass with choices takes this many times as long as all policies."""
_SURE: Final = 0.05
"""From this share of a pass on, its duration is extrapolated from itself."""


@dataclass(slots=True)
class PolicyUse:
    """The policies that were chosen in one pass, the times of the choices, and the time that they took."""

    chosen: Counter[int] = field(default_factory=Counter)
    moments: list[float] = field(default_factory=list)
    policies: list[int] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    simulations: int = 0
    cut: int = 0
    """Choices by simulation, and those among them in which the budget did not allow every policy."""

    def add(self, cluster: RentedCluster, chosen: int, simulated: Simulated | None) -> None:
        """Record one choice."""
        self.chosen[chosen] += 1
        self.moments.append(cluster.now)
        self.policies.append(chosen)
        self.milliseconds.append(math.nan if simulated is None else 1000.0 * simulated.seconds)
        if simulated is not None:
            self.simulations += 1
            self.cut += int(len(simulated.choice.tried) < len(cluster.policies))


class Steps(Watcher):
    """Reports the present step and the elapsed share of the expected total time.

    Args:
        passes: Names of the passes with choices that follow the policies.
        clock: Seconds, monotonic.

    Attributes:
        uses: What was chosen in each pass.
    """

    def __init__(
        self, tell: Progress, passes: tuple[str, ...], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(lambda: None)
        self._tell = tell
        self._passes = passes
        self.uses = [PolicyUse() for _ in passes]
        self._clock = clock
        self._began = self._since = clock()
        self._policies = 0.0
        self._places: list[tuple[float, float]] = []
        self._shares, self._seconds = np.zeros(0), np.zeros(0)

    def prior(self, done: int, count: int) -> None:
        """Report policies that passed through the synthetic workloads."""
        self._tell("policies on synthetic workloads", done, count)
        self._began = self._since = self._clock()

    def policies(self, done: int, count: int) -> None:
        """Report policies that passed through the log."""
        self._tell("policies", done, count)
        if done:
            self._policies = (self._clock() - self._began) * count / done
            self._say(self._policies + len(self._passes) * _PASS_BY_POLICIES * self._policies)
        if done == count:
            self._since = self._clock()

    def passed(self, at: int, jobs: int, count: int) -> None:
        """Report that pass ``at`` has processed ``jobs`` of ``count`` jobs."""
        self._tell(self._passes[at], jobs, count)
        self.cut(self.uses[at].cut, len(self.uses[at].moments))
        taken = self._clock() - self._since
        self._places.append((jobs / count, taken))
        whole = self._whole(jobs / count, taken)
        before = self._since - self._began
        self._say(before + whole * (len(self._passes) - at))
        if jobs == count:
            self._shares, self._seconds = np.array([(0.0, 0.0), *self._places]).T
            self._places = []
            self._since = self._clock()

    def chose(self, at: int, cluster: RentedCluster, chosen: int, simulated: Simulated | None) -> None:
        """Record what was chosen in pass ``at``."""
        self.uses[at].add(cluster, chosen, simulated)

    def cut(self, cut: int, choices: int) -> None:
        """Report choices that the budget cut short."""
        if cut:
            self._tell(CUT, cut, choices)

    def _whole(self, share: float, taken: float) -> float:
        """Expected total seconds of the present pass."""
        if len(self._shares):
            return taken + float(self._seconds[-1] - np.interp(share, self._shares, self._seconds))
        if share >= _SURE:
            return taken / share
        return max(_PASS_BY_POLICIES * self._policies, taken)

    def _say(self, whole: float) -> None:
        passed = self._clock() - self._began
        self._tell(IN_ALL, round(_PARTS * passed / max(whole, passed)) if passed else 0, _PARTS)


def steps_of(options: Options, tell: Progress) -> Steps:
    """Progress through each policy, each selection and the portfolio."""
    names = [f"selection, margin {100 * margin:g} %" for margin in options.margins]
    return Steps(tell, (*names, "portfolio"))
