"""A job that says what another said: does that one's advice hold for it? Pure.

Who submits in a loop asks the same question again and again. Until somebody looks at the site anew it stays
as it was, but for what the moved jobs take themselves: of the money, of what may be staked, of the reserved
nodes. So of an advice that moved a job these are asked again for each job that says the same, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from advisor.decide.submission.capacity import kind_of_node
from advisor.decide.submission.cloud_queue import ANY, cloud_wait
from advisor.decide.submission.proven import is_overexposed
from advisor.decide.submission.waiting import has_cap, within_caps
from advisor.model.advice import Advice, Capacity, Verdict
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import SiteState


class Moved(msgspec.Struct, frozen=True, gc=False):
    """An advice that moved a job, and all that it rests on.

    Attributes
    ----------
    advice : Advice
        As :func:`advisor.decide.submission.advise.advise` gave it; one that :func:`may_be_repeated`.
    values : mapping
        The advice's ``values()``.
    job, state, estimates, settings
        What it was given for.
    """

    advice: Advice
    values: Mapping[str, float]
    job: Job
    state: SiteState
    estimates: Estimates
    settings: Settings

    def holds_for(self, job: Job, state: SiteState) -> bool:
        """Whether `advise` would say the same of another job, with the same estimates and settings.

        Parameters
        ----------
        job : Job
            Any.
        state : SiteState
            Of the same look at the site as this one's: they differ by the time, by the jobs that have joined
            the queue (the cluster is another object then) and by what moved jobs have taken.

        Returns
        -------
        bool
            False where it might not.
        """
        return (
            state.cluster is self.state.cluster
            and state.cloud.reserved_free_nodes == self.state.cloud.reserved_free_nodes
            # no answer to a job that is moved rests on its name or on its time
            and replace(job, submit_time=self.job.submit_time, name=self.job.name) == self.job
            # the cloud's queue is asked anew where there is one: it moves with each job and each second
            and "cloud_wait" not in self.values
            and not self._would_wait(job, state)
            and self._may_be_staked(state)
            and self._is_paid(state)
        )

    def _would_wait(self, job: Job, state: SiteState) -> bool:
        """Whether a job that says the same would wait in the cloud by now, or on what may be spot."""
        cloud, run = state.cloud, self.values.get("predicted_cloud_run", math.nan)
        if not cloud.rooms:
            return False
        kind = kind_of_node(job, cloud, self.settings)
        kinds = (ANY, Capacity.SPOT.value) if kind == ANY else (kind,)
        return any(cloud_wait(kind, job, run, cloud, state.time) > 0.0 for kind in kinds)

    def _may_be_staked(self, state: SiteState) -> bool:
        stake, trusted = self.values.get("stake"), self.values.get("record")
        if stake is None or trusted is None:  # the rule in force asks for none
            return True
        placement = self.settings.placement
        return state.record is not None and not is_overexposed(
            state.record, self.job.array_tasks * stake, trusted, placement
        )

    def _is_paid(self, state: SiteState) -> bool:
        waiting = self.settings.waiting
        if not has_cap(waiting):
            return True
        cost = self.values.get("predicted_cost", math.nan)
        return within_caps(self.job, cost, state.cloud, waiting).verdict is Verdict.YES


def may_be_repeated(advice: Advice) -> bool:
    """Whether an advice moved a job for good.

    One that stays joins the queue and so changes what the next one meets; whether one keeps its place here
    may itself rest on what is staked.
    """
    return advice.partition is not None and advice.hedge is None
