"""Cunha et al. 2017 in a closed loop: asked once, at the submission; k nearest neighbours, cutoff on doubt.

Everything is as published (`advisor.decide.submission.placement.published`). A job moves if what the budget
has accrued (tokens, see `World`) covers its time limit. Of the paper's two columns, with the cutoff and
without, the one that would have saved more before the first job is taken: where the GA finds one neighbour
best, every variance is infinite, and no job would move.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from advisor.decide.submission.placement import as_case, published
from advisor.model.advice import Verdict
from advisor.model.settings_decision import PlacementSettings
from advisor.model.site import Cutoff
from advisor.replay.closed_loop.neighbours import GENERATIONS, Neighbours
from advisor.replay.closed_loop.world import Policy, World, WorldOptions
from advisor.replay.cutoff_choice import PastJobs, choose_cutoff

BACKTEST_ROWS: Final = 1_000
"""Rows before the first job on which the cutoff is chosen."""
_MIN_BACKTEST: Final = 100


class Cunha2017(Policy):
    """The published placement rule.

    Args:
        generations: Generations of the genetic algorithm that tunes the estimators; 0: they stay untuned.
        cutoff: The site's, if it has set one.
    """

    name = "cunha2017"

    def __init__(self, generations: int = GENERATIONS, *, cutoff: Cutoff | None = None) -> None:
        self._generations = generations
        self._given_cutoff = cutoff
        self._settings: PlacementSettings
        self._cutoff: Cutoff | None
        self._neighbours: Neighbours

    def begin(self, world: World) -> None:
        """Learn from the log's rows before the first job: parameters, cutoff and cases."""
        self._settings = settings_of(world.options)
        self._neighbours = Neighbours(world, self._generations)
        self._cutoff = self._given_cutoff or self._chosen_cutoff()

    def submitted(self, world: World, row: int) -> None:
        """Ask the published rule, once."""
        case = as_case(
            processors=int(world.jobs.processors[row]),
            estimates=self._neighbours.submitted(row, world.now),
            boot=self._settings.boot_seconds,
            settings=self._settings,
            cutoff=self._cutoff,
        )
        goes = published(case).verdict is Verdict.YES
        if goes and world.start_in_cloud(row, float(world.jobs.limit[row]), keeps_place=False):
            return
        self._neighbours.joined(row, world.now)

    def started(self, world: World, row: int) -> None:
        """Learn the wait."""
        self._neighbours.started(row, world.now)

    def ended(self, world: World, row: int) -> None:
        """Learn the run time; of a job in the cloud what it would have taken on-premise."""
        self._neighbours.ended(row, world.now)

    def _chosen_cutoff(self) -> Cutoff | None:
        """The cutoff that would have saved most, or no cutoff; None: too few rows, the settings' guess."""
        past = self._neighbours.past
        rows = np.flatnonzero((past.run > 0) & (past.wait >= 0))[-BACKTEST_ROWS:]  # the wait is known
        rows = rows[len(rows) // 2 :] if len(past) < 2 * BACKTEST_ROWS else rows
        if len(rows) < _MIN_BACKTEST:
            return None
        found = self._neighbours.of_past(rows)
        chosen = choose_cutoff(
            PastJobs(
                processors=past.processors[rows],
                wait=found["wait"].seconds,
                wait_variance=found["wait"].variance,
                run=found["run"].seconds,
                actual_wait=past.wait[rows],
                actual_run=past.run[rows],
            ),
            (self._settings.overhead_per_processor,),
            self._settings.baseline,
            self._settings.boot_seconds,
        )
        if chosen.score_without > chosen.score:
            return Cutoff(scale=math.inf, decay=0.0)
        return Cutoff(scale=chosen.scale, decay=chosen.decay)


def settings_of(options: WorldOptions, **more: object) -> PlacementSettings:
    """Placement settings of the simulated cloud: every job runs ``slowdown`` times as long there."""
    return PlacementSettings.model_validate(
        {
            "overhead_per_processor": 0.0,
            "baseline": options.slowdown,
            "boot_seconds": options.boot_seconds,
            **more,
        }
    )
