"""Choose the cutoff on past jobs: the (a, b) of ``C = a*exp(-b*o*c)`` that would have saved most.

`advisor tune --weekly` does so with a site's jobs, replays with those of a log.

The published rule as columns, for many jobs and many parameters at once. A test
(``tests/replay/test_cutoff_choice.py``) compares it with `advisor.decide.submission.placement.published`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Bools, Floats

SCALES: Final = 48
"""Candidates for a: quantiles of the variances seen, the last one above them all."""
DECAYS: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Candidates for b: from a flat cutoff to one that only certainty passes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PastJobs:
    """Jobs of the past with what was predicted for them and what happened; arrays of one length.

    Attributes:
        wait, run: Predictions, seconds; NaN where there was none.
        wait_variance: Seconds squared; infinite where unknown.
        actual_wait, actual_run: What happened, seconds.
    """

    processors: NDArray[np.int64]
    wait: Floats
    wait_variance: Floats
    run: Floats
    actual_wait: Floats
    actual_run: Floats

    def saved_seconds(self, overhead: float, baseline: float, boot_seconds: float = 0.0) -> Floats:
        """The time that the cloud would have saved each job: w + r - boot - s(c)*r (section V-B, negated)."""
        ratio = overhead * self.processors + baseline
        return self.actual_wait + self.actual_run - boot_seconds - ratio * self.actual_run

    def looks_faster(self, overhead: float, baseline: float, boot_seconds: float = 0.0) -> Bools:
        """Mask of jobs whose predicted turnaround is shorter in the cloud; False where it is unknown."""
        slowdown = overhead * self.processors + baseline - 1.0
        with np.errstate(invalid="ignore"):  # 0*inf and NaN are unknown, see the next line but one
            penalty = boot_seconds + np.where(slowdown == 0.0, 0.0, slowdown * self.run)
            return np.isfinite(self.wait) & np.isfinite(penalty) & (self.wait > penalty)

    def sure_enough(self, overhead: float, scale: float, decay: float) -> Bools:
        """Mask of jobs whose predicted wait has a variance below the cutoff."""
        cutoff = scale * np.exp(-decay * overhead * self.processors)
        return np.asarray(self.wait_variance < cutoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCutoff:
    """The best cutoff of a backtest.

    Attributes:
        scale, decay: a (seconds squared) and b.
        score: Mean fraction of the optimum's saved time over the factors, with it.
        score_without: The same without a cutoff.
    """

    scale: float
    decay: float
    score: float
    score_without: float


def choose_cutoff(
    jobs: PastJobs, factors: Sequence[float], baseline: float = 1.0, boot_seconds: float = 0.0
) -> ChosenCutoff:
    """Choose a and b by what they would have saved.

    One pair serves all factors, as in the paper, because the form depends on o. The score is the mean over
    the factors of the saved time divided by the clairvoyant's, so that each factor counts the same. Ties go
    to the larger a and the smaller b: the less strict cutoff.

    Args:
        jobs: Jobs that had ended before anything that the choice is used for.
        baseline: i of s(c).
        boot_seconds: Boot time of a cloud node; the paper leaves it out.
    """
    seen = jobs.wait_variance[np.isfinite(jobs.wait_variance) & (jobs.wait_variance > 0)]
    scales = np.quantile(seen, np.linspace(0.0, 1.0, SCALES)) if len(seen) else np.ones(1)
    scales = np.append(scales, 2.0 * scales[-1])[::-1]
    totals = np.zeros((len(scales), len(DECAYS)))
    without = 0.0
    counted = 0
    for factor in factors:
        saved = jobs.saved_seconds(factor, baseline, boot_seconds)
        optimum = float(np.maximum(saved, 0.0).sum())
        if optimum <= 0.0:
            continue
        counted += 1
        faster = jobs.looks_faster(factor, baseline, boot_seconds)
        gains = np.where(faster, saved, 0.0) / optimum
        without += float(gains.sum())
        for column, decay in enumerate(DECAYS):
            # jobs in the order of the a they need; the running sum is what each a would have let through
            needed = np.log(np.maximum(jobs.wait_variance, 1e-300)) + decay * factor * jobs.processors
            order = np.argsort(needed, kind="stable")
            running = np.concatenate([[0.0], np.cumsum(gains[order])])
            totals[:, column] += running[np.searchsorted(needed[order], np.log(scales), side="left")]
    row, column = divmod(int(np.argmax(totals)), totals.shape[1])
    return ChosenCutoff(
        scale=float(scales[row]),
        decay=DECAYS[column],
        score=float(totals[row, column]) / max(1, counted),
        score_without=without / max(1, counted),
    )
