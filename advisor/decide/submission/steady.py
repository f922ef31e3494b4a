"""Long jobs prefer cloud nodes that are likely to survive.

The match loop marks these nodes with a feature (`advisor.decide.matching.tiers`). A job prefers the
feature only
while such a node is idle, so that nothing is launched for it. A job that starts at once is never seen
waiting, so only its submission can steer it.
"""

from __future__ import annotations

import math

from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState


def preferred_survivors(
    job: Job, estimates: Estimates, cloud: CloudState, settings: Settings
) -> tuple[str, ...]:
    """Features to prefer: the mark of likely survivors, or none.

    slurmctld refuses a submission that prefers features which too few nodes have together: the mark is always
    on at least one node, and the job's own features must be on every node.
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
