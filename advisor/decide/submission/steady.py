"""Long jobs to nodes that are expected to stay: what is asked for at the submission. Pure.

Which nodes those are the match loop has marked with a feature (`advisor.decide.matching.tiers`). A job
prefers it only
while such a node is idle: then it starts there, and nothing has to be launched for it. What starts at once is
never seen waiting, so nothing but its submission can steer it.
"""

from __future__ import annotations

import math

from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState


def steady_wish(job: Job, estimates: Estimates, cloud: CloudState, settings: Settings) -> tuple[str, ...]:
    """The feature to prefer, or nothing.

    slurmctld refuses a submission that names, or prefers, features that too few nodes have together: the mark
    is always on one node at least, and the job's own features must be on every one.
    """
    matching = settings.matching
    if not (matching.enabled and matching.long_lived_feature) or cloud.steady_free_nodes < 1:
        return ()
    if job.array_tasks > 1 or cloud.nodes_needed(job) != 1 or not set(job.features) <= set(cloud.features):
        return ()
    expected = estimates.run.seconds
    if math.isnan(expected):
        expected = math.inf if job.requested_time is None else job.requested_time
    return (matching.long_lived_feature,) if expected >= matching.long_job_seconds else ()
