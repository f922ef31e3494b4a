"""What must hold in every story of `tests.service.cloud_world`, by the truth of Slurm and EC2 alone."""

from __future__ import annotations

import math
from typing import Final

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.ec2.journal import Journal
from advisor.ec2.tags import CLUSTER_TAG, node_of
from advisor.model.cluster import NodePower
from advisor.model.settings import Settings
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.state.cloud_record import CloudRecord
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_ec2 import MemoryEc2, MemoryInstance
from advisor.testing.memory_slurm import ENDED, MemoryNode, MemorySlurm
from advisor.testing.memory_slurm_records import as_queued

CLUSTER: Final = "here"
USD_PER_HOUR: Final = {"spot": 0.07, "on-demand": 0.17}
GRACE_SECONDS: Final = 60.0
BOOT_SECONDS: Final = 40.0
TICK_SECONDS: Final = 15.0


def usd_per_hour(item: MemoryInstance) -> float:
    """What an instance costs: what is in a capacity reservation is paid for already."""
    return 0.0 if item.reservation_id else USD_PER_HOUR[item.market]


class CloudRules:
    """Looks at everything that is launched and ended, and at what is left.

    Attributes
    ----------
    violations : list of str
        What should not have happened: noted, for an error raised inside a loop would be its own failure.
    """

    settings: Settings
    slurmd_b: bool
    clock: ManualClock
    ec2: MemoryEc2
    slurm: MemorySlurm
    cloud: CloudRecord
    journal: Journal
    handovers: HandoverFolder
    strangers: list[MemoryInstance]

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._predicted: dict[str, float] = {}  # instance: dollars, as predicted at its launch
        self._job_of: dict[str, tuple[int, int] | None] = {}  # instance: job and restarts it is for
        self._payers: dict[str, tuple[str, ...]] = {}  # instance: account and user of that job
        self._own_cost: dict[str, float] = {}  # instance: dollars while that job has it
        self._orphan_seconds: dict[str, float] = {}
        self._counted_at = 0.0

    def _slurmd_answers(self, node: str, address: str, since: float = 0.0) -> bool:
        return any(
            item.private_ip == address
            and (self.slurmd_b or item.launched_at >= since)
            and self.node_of(item) == node
            and self.clock.wall - item.launched_at >= BOOT_SECONDS
            for item in self.ours()
        )

    @staticmethod
    def node_of(item: MemoryInstance) -> str:
        return node_of(item.tags, item.launch_index) or ""

    def ours(self) -> list[MemoryInstance]:
        """Instances of ours that are alive, in truth."""
        return [item for item in self.ec2.alive() if item.tags.get(CLUSTER_TAG) == CLUSTER]

    def _launched(self, item: MemoryInstance) -> None:
        node = self.node_of(item)
        if not node:
            return  # of a fleet: this is called again when it gets its name
        others = [o for o in self.ours() if self.node_of(o) == node and o is not item]
        if others:
            self.violations.append(f"{node} has {others[0].instance_id} and gets {item.instance_id}")
        job = self.slurm.jobs.get(self.slurm.nodes[node].job_id or 0)
        self._job_of[item.instance_id] = (job.job_id, job.restarts) if job is not None else None
        boot = self.cloud.boot_seconds or self.settings.placement.boot_seconds
        recorded = parse_admin_comment(job.admin_comment) if job is not None else None
        run = recorded.numbers["predicted_cloud_run"] if recorded is not None else 0.0
        self._predicted[item.instance_id] = usd_per_hour(item) * (boot + run) / 3600.0
        queued = as_queued(job, "").job if job is not None else None
        self._payers[item.instance_id] = queued.payers if queued is not None else ()
        self._note_own_costs()
        for payer in ("", *self._payers[item.instance_id]):
            most = self.settings.budget.of(payer)
            if most is not None:
                self._check_budget(payer, most)

    def _note_own_costs(self) -> None:
        """What each instance has cost its payers: later jobs on it have payers of their own."""
        for item in self.ours():
            if item.instance_id in self._predicted and self._has_its_job(item):
                cost = usd_per_hour(item) / 3600.0 * (self.clock.wall - item.launched_at)
                self._own_cost[item.instance_id] = min(cost, self._predicted[item.instance_id])

    def _check_budget(self, payer: str, most: float) -> None:
        """What was spent and what is promised stays under a budget; what jobs overrun does not count."""
        now = self.clock.wall
        total = slack = 0.0
        for name, predicted in self._predicted.items():
            item = self.ec2.instances[name]
            if payer and (payer not in self._payers[name] or not self._has_its_job(item)):
                total += self._own_cost.get(name, 0.0) if payer in self._payers[name] else 0.0
                continue
            ended = item.ended_at()
            is_alive = ended is None or ended > now
            price = usd_per_hour(item) / 3600.0
            cost = price * ((now if is_alive else ended or now) - item.launched_at)
            if is_alive or (ended or 0.0) > self._counted_at:
                slack += price * (now - self._counted_at)
            total += (
                min(predicted, cost + self._still_to_come(item, price)) if is_alive else min(predicted, cost)
            )
        if total > most + slack + 1e-9:
            self.violations.append(
                f"{total:.4f} USD of {payer or 'the site'} are spent and promised, {most:.4f} may be "
                f"(slack {slack:.4f})"
            )

    def _has_its_job(self, item: MemoryInstance) -> bool:
        """Whether the job that an instance was launched for still has it."""
        job = self.slurm.jobs.get(self.slurm.nodes[self.node_of(item)].job_id or 0)
        return job is not None and self._job_of[item.instance_id] == (job.job_id, job.restarts)

    def _still_to_come(self, item: MemoryInstance, price: float) -> float:
        """What the job that an instance was launched for will still cost, by what was predicted.

        Another job that finds the node up, or its instance alive, is a running one: nobody is asked for it.
        """
        node = self.slurm.nodes[self.node_of(item)]
        job = self.slurm.jobs.get(node.job_id or 0)
        if job is None or self._job_of[item.instance_id] != (job.job_id, job.restarts):
            return 0.0
        if node.power is not NodePower.UP or job.start_time is None:
            return math.inf
        recorded = parse_admin_comment(job.admin_comment)
        predicted = recorded.numbers["predicted_cloud_run"] if recorded is not None else 0.0
        return price * max(0.0, predicted - (self.clock.wall - job.start_time))

    def _runs_a_job(self, node: MemoryNode) -> int | None:
        """The job that runs on a node whose machine is well."""
        if node.job_id is None or node.power is not NodePower.UP or node.is_down:
            return None
        is_well = self._slurmd_answers(node.name, node.address)
        return node.job_id if is_well and self.slurm.jobs[node.job_id].state == "RUNNING" else None

    def _terminating(self, item: MemoryInstance) -> None:
        if item in self.strangers:
            self.violations.append(f"{item.instance_id} is somebody else's")
            return
        if not self.node_of(item):
            return  # nobody knows it yet
        node = self.slurm.nodes[self.node_of(item)]
        job = self._runs_a_job(node)
        if job is not None and node.address == item.private_ip:
            self.violations.append(f"{item.instance_id} is terminated under job {job}")
        waiting = {name for _, asked in self.handovers.waiting() for name in asked.nodes}
        is_its = item.launched_at >= node.since or self.slurmd_b
        is_booting = node.power is NodePower.POWERING_UP and node.job_id is not None
        if is_booting and is_its and node.name not in waiting:
            self.violations.append(f"{item.instance_id} is terminated while {node.name} boots on it")

    def _powered_down(self, node: MemoryNode) -> None:
        job = self._runs_a_job(node)
        if job is not None:
            self.violations.append(f"{node.name} is powered down under job {job}")

    def _watch_orphans(self, seconds: float, *, is_well: bool) -> None:
        """An instance whose node Slurm has powered down goes within the grace, while all loops do well."""
        orphans = {
            item.instance_id
            for item in self.ours()
            if (node := self.node_of(item)) and self.slurm.nodes[node].power is NodePower.DOWN
        }
        if not is_well:
            orphans = set()
        self._orphan_seconds = {name: self._orphan_seconds.get(name, 0.0) + seconds for name in orphans}
        longest = GRACE_SECONDS + self.ec2.times.lag + 4 * TICK_SECONDS
        for name, age in self._orphan_seconds.items():
            if age > longest:
                self.violations.append(f"{name} has been an orphan for {age:.0f} s")

    def check(self) -> None:
        """Raise what has been found."""
        self._note_own_costs()
        for job in self.slurm.jobs.values():
            if "COMPLETED" in job.ends[:-1]:
                self.violations.append(f"job {job.job_id} has ended {len(job.ends)} times: {job.ends}")
        if self.violations:
            raise AssertionError("; ".join(self.violations[:5]))

    def left_over(self) -> list[str]:
        """What has not come to its end."""
        left = [f"job {j.job_id} {j.state}" for j in self.slurm.jobs.values() if j.state not in ENDED]
        left += [f"{item.instance_id} alive" for item in self.ours()]
        left += [f"hand-over {path.name}" for path, _ in self.handovers.waiting()]
        left += [f"intent for {intent.nodes}" for intent in self.journal.open_intents()]
        left += [
            f"{node.name} {'+'.join(sorted(node.words))}"
            for node in self.slurm.nodes.values()
            if node.power is not NodePower.DOWN or node.is_down
        ]
        return left
