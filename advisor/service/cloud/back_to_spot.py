"""Jobs with checkpoints that run on-demand because spot had no room go back to spot.

A job that was advised spot is launched on-demand where no pool has room. With checkpoints it need not stay
there: after a time it is requeued, its node is powered down, and it goes on where its next node is launched,
on spot if there is room by then. A start in vain costs little of what has run since the last one
(:meth:`advisor.service.price.slice_decider.Slices.goes_back_to_spot`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

import structlog

from advisor.decide.submission.capacity import is_never_spot
from advisor.ec2.instances import Instance
from advisor.model.advice import Capacity
from advisor.model.checkpoint_word import NO_CHECKPOINT
from advisor.model.cluster import Node, NodePower
from advisor.model.node_sets import expand
from advisor.model.snapshot import RUNNING, QueuedJob, is_partition_up
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.observation.advice_of_jobs import moved_by_us
from advisor.service.observation.site_view import burst_nodes
from advisor.service.running.isolating import for_each

log = structlog.get_logger(__name__)

_PERIOD_SECONDS: Final = 60.0
_MOST: Final = 5
"""Jobs of one round: each is a launch more."""


class BackToSpot:
    """Looks for such jobs once a minute."""

    def __init__(self, context: CloudContext, *, instances: Callable[[], Sequence[Instance]]) -> None:
        self._context = context
        self._instances = instances
        self._looked = -math.inf  # monotonic seconds

    def consider(self) -> None:
        """Send back those for which that is worth it."""
        now = self._context.clock.monotonic()
        if now - self._looked < _PERIOD_SECONDS:
            return
        self._looked = now
        if not self._context.settings.capacity.use_spot:
            return
        listed = self._instances()
        paid = self._context.paid_now().at_launch(listed).covered
        on_demand = {
            item.node
            for item in listed
            if item.is_alive and item.option is Capacity.ON_DEMAND and item.instance_id not in paid
        }
        found = list(islice(self._going(on_demand), _MOST)) if on_demand else []
        burst = self._context.settings.cluster.burst_partition
        if found and is_partition_up(self._context.slurm.partitions(), burst):
            for_each(self._still(found), self._send)

    def _going(self, on_demand: set[str | None]) -> Iterator[QueuedJob]:
        """The jobs that go, for each of which there are as many other nodes like its own."""
        snapshot = self._context.view.fresh()
        burst = burst_nodes(snapshot, self._context.settings)
        kinds = {node.name: node.features for node in burst}
        spare = Counter(node.features for node in burst if _is_spare(node))
        for queued in snapshot.jobs:
            if not self._is_kept_from_spot(queued):
                continue
            nodes = expand(queued.nodes)
            if not nodes or not on_demand.issuperset(nodes) or not kinds.keys() >= set(nodes):
                continue
            # a node that others use would be paid for still, and take no new job
            is_alone = all(snapshot.jobs_on[node] == [queued] for node in nodes)
            needed = Counter(kinds[node] for node in nodes)
            if not is_alone or not needed <= spare:
                continue
            elapsed = snapshot.time - (queued.start_time or snapshot.time)
            if self._context.spot_tries(queued) and self._context.goes_back(queued, elapsed):
                spare.subtract(needed)
                yield queued

    def _is_kept_from_spot(self, queued: QueuedJob) -> bool:
        """Whether a job with checkpoints runs in the cloud that was advised spot, and is in no slice."""
        job, context = queued.job, self._context
        if job.at_risk_seconds == NO_CHECKPOINT or queued.state != RUNNING or queued.is_held:
            return False
        if queued.partitions != (context.settings.cluster.burst_partition,):
            return False
        moved = moved_by_us(queued)
        if moved is None or moved.capacity != Capacity.SPOT:
            return False
        stop = None if context.stop_of is None else context.stop_of(job.job_id)
        return stop is None or stop == math.inf  # a slice has been bought for the node that it has

    def _still(self, found: Sequence[QueuedJob]) -> list[QueuedJob]:
        """Those that are still in the same run in the cloud: another loop may have brought one back since."""
        now = self._context.slurm.snapshot(self._context.clock.wall())
        runs = {(one.job.job_id, one.restarts, one.start_time) for one in now.jobs if one.state == RUNNING}
        return [one for one in found if (one.job.job_id, one.restarts, one.start_time) in runs]

    def _send(self, queued: QueuedJob) -> None:
        """Requeue a job. Its nodes are given back first, so that it does not start there again."""
        job_id, nodes = queued.job.job_id, expand(queued.nodes)
        self._context.interruptions.leaves(job_id)
        reason = f"burst advisor: job {job_id} goes back to spot"
        self._context.slurm.update_node(nodes, state="POWER_DOWN_ASAP", reason=reason)
        self._context.slurm.requeue([job_id])
        log.info("job.goes_back_to_spot", job=job_id, nodes=queued.nodes)


def _is_spare(node: Node) -> bool:
    """Whether a node can be resumed at once, and as spot."""
    is_off = node.power is NodePower.DOWN and not (node.is_down or node.is_draining or node.is_busy)
    return is_off and not is_never_spot(node.features)
