"""Policies that need no learning of their own, each on the simulated cluster; and the exact oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Ints
from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.papers.waiting.waiting_policies import LengthFrom, WaitFrom, WaitingPolicy
from advisor.papers.waiting.world.costs import CostModel
from advisor.papers.waiting.world.world import (
    Dispatch,
    Length,
    Mode,
    Outcome,
    Simulation,
    Workload,
    WorldRules,
    workload_of,
)


def workload_from(table: JobTable, costs: CostModel, seed: int) -> Workload:
    """Jobs of a log that ran, with drawn lives of spot nodes.

    Raises:
        BadInput: No job ran.
    """
    ran = table.select(table.run > 0)
    if not len(ran):
        raise BadInput(
            "no job in it ever ran", where=table.name, mend="Give a log of finished jobs", code="trace.empty"
        )
    return workload_of(
        ran.submit,
        ran.run,
        ran.processors,
        ran.requested_time,
        user=ran.user,
        program=ran.executable,
        queue=ran.queue,
        revoked_after=costs.revoked_after(len(ran), np.random.default_rng(seed)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One log and machine, to be run under many policies.

    Attributes:
        workload: Jobs.
        cores: Fixed.
        dispatch: Which waiting job is next.
    """

    workload: Workload
    cores: int
    dispatch: Dispatch = Dispatch.FCFS

    def outcome(self, policy: WaitingPolicy, learner: Simulation | None = None) -> Outcome:
        """Run a policy through the log.

        A policy whose waits an oracle knows is run without the oracle first: those who left are then sent
        away at once. They never started on fixed cores, so nobody else's start changes: exact for
        work-conserving dispatch, and no second run is needed. With EASY a waiting job can hold a
        reservation; there the same is repeated until nobody waits in vain, which is close to the best, not
        exact.

        Args:
            policy: Not one with a wait model.
            learner: Whose forecasts of run times are used.
        """
        modes = self._modes(policy)
        while True:
            world = self._world(policy, modes, learner)
            found = world.outcome()
            in_vain = np.zeros(len(modes), np.bool_)
            if policy.wait is WaitFrom.ORACLE:
                left = np.isfinite(found.start) & ~found.on_fixed & (found.ondemand_seconds > 0)
                in_vain = left & (modes != Mode.RENTS) & self._long(policy)
            if not in_vain.any():
                return found
            if self.dispatch is not Dispatch.EASY:
                return self._sent_away(found, in_vain)
            modes = np.where(in_vain, Mode.RENTS, modes).astype(np.int64)

    def _sent_away(self, found: Outcome, gone: NDArray[np.bool_]) -> Outcome:
        """The same, with some jobs on on-demand from their submission."""
        return Outcome(
            start=np.where(gone, self.workload.submit, found.start),
            on_fixed=found.on_fixed,
            spot_seconds=np.where(gone, 0.0, found.spot_seconds),
            ondemand_seconds=np.where(gone, self.workload.run, found.ondemand_seconds),
            restarts=np.where(gone, 0, found.restarts),
            left_early=found.left_early & ~gone,
        )

    def _long(self, policy: WaitingPolicy) -> NDArray[np.bool_]:
        long: NDArray[np.bool_] = self.workload.run > policy.short_seconds
        return long & (self.workload.processors <= self.cores)

    def _modes(self, policy: WaitingPolicy) -> Ints:
        """What an oracle of lengths says of each job."""
        if policy.length is LengthFrom.SPECULATION:
            return np.full(len(self.workload), Mode.SPECULATES, np.int64)
        leaves = self.workload.run <= policy.short_seconds
        if policy.longest_wait_seconds <= 0.0:
            leaves = np.ones(len(self.workload), np.bool_)
        return np.where(leaves, Mode.LEAVES, Mode.WAITS).astype(np.int64)

    def _world(self, policy: WaitingPolicy, modes: Ints, learner: Simulation | None) -> Simulation:
        is_forecast = policy.length is LengthFrom.RUNTIME_MODEL
        rules = WorldRules(
            # trials without forecasts are given modes too: every job tries, but those known to leave
            length=Length.FORECAST if is_forecast else Length.GIVEN,
            wait=policy.wait_in_world,
            dispatch=self.dispatch,
            trial_seconds=policy.short_seconds,
            longest_wait_seconds=policy.longest_wait_seconds,
        )
        world = Simulation(workload=self.workload, cores=self.cores, rules=rules, modes=modes)
        if learner is not None:
            world.take_forecasts(learner)
        world.advance(np.inf)
        return world
