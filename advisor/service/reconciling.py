"""The reconcile loop: Slurm's nodes against EC2's instances. Minimal, and never in a hurry to kill.

An instance or a node is only ever given up when both sides agree (DESIGN.md, rule 4); an unreadable answer of
either means that nothing is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from advisor.ec2.instances import Instance
from advisor.ec2.prices import Prices
from advisor.model.advice import Capacity
from advisor.model.cluster import Node, NodePower
from advisor.model.errors import BadInput
from advisor.model.settings import Settings
from advisor.service.clock import Clock
from advisor.service.cloud_record import CloudRecord
from advisor.service.loops import Step
from advisor.service.pricing import AskPrices
from advisor.service.provisioning import Addresses, CloudFleet
from advisor.service.site_view import burst_nodes
from advisor.service.view import SharedView
from advisor.slurm.node_sets import expand
from advisor.slurm.protocol import SlurmBackend, SlurmSnapshot

log = structlog.get_logger(__name__)


class ReconcileLoop:
    """Looks for what hand-overs missed.

    Parameters
    ----------
    settings : Settings
        In force.
    fleet : CloudFleet
        EC2's side.
    slurm : SlurmBackend
        Told what has changed.
    view : SharedView
        Slurm's side.
    cloud : CloudRecord
        Told what runs, for the day's bill.
    clock : Clock
        Time.
    prices : callable, optional
        Prices in force; the settings' own without it.
    """

    name = "reconcile"

    def __init__(
        self,
        settings: Settings,
        *,
        fleet: CloudFleet,
        slurm: SlurmBackend,
        view: SharedView,
        cloud: CloudRecord,
        clock: Clock,
        prices: AskPrices | None = None,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._slurm = slurm
        self._view = view
        self._cloud = cloud
        self._clock = clock
        self._prices = prices or (lambda: Prices.of_settings(settings.ec2))
        self._addresses = Addresses(settings, slurm)
        self._unclaimed_since: dict[str, float] = {}  # instance: monotonic seconds
        self._lost_since: dict[str, float] = {}  # node: monotonic seconds
        self.instances: tuple[Instance, ...] = ()

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.loops.Loop`."""
        return self._settings.loops.reconcile_seconds

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.loops.Loop`."""
        return (
            Step("settle launches", self.settle_launches),
            Step("read instances", self.read_instances),
            Step("addresses", self.set_addresses),
            Step("unclaimed instances", self.give_up_unclaimed),
            Step("lost nodes", self.give_up_lost),
            Step("down nodes", self.mend_down),
            Step("bill", self.count_money),
        )

    def settle_launches(self) -> None:
        """Find out what became of launches that a crash interrupted (F09)."""
        nodes = burst_nodes(self._view.fresh(), self._settings)
        wanted = {node.name for node in nodes if node.power is NodePower.POWERING_UP}
        for launched in self._fleet.recover(wanted):
            log.info("cloud.recovered", node=launched.node, instance=launched.instance_id)
        self._fleet.name_unnamed()

    def read_instances(self) -> None:
        """All our instances; when EC2 cannot be read, the steps after this one see none and do nothing."""
        self.instances = ()
        self.instances = tuple(self._fleet.instances())

    def _pairs(self) -> tuple[SlurmSnapshot, dict[str, Node], dict[str, Instance]]:
        snapshot = self._view.fresh()
        nodes = {node.name: node for node in burst_nodes(snapshot, self._settings)}
        alive = {item.node: item for item in self.instances if item.is_alive and item.node is not None}
        return snapshot, nodes, alive

    def set_addresses(self) -> None:
        """A node that powers up must have the address of its own instance (F07: never matched by address)."""
        if self._settings.ec2.node_address == "loopback":
            return
        _, nodes, alive = self._pairs()
        self._addresses.tell(
            (name, instance.private_ip)
            for name, instance in alive.items()
            if name in nodes
            and nodes[name].power is NodePower.POWERING_UP
            and nodes[name].address != instance.private_ip
        )

    def give_up_unclaimed(self) -> None:
        """Terminate instances whose node Slurm calls powered down, or that have no node at all (F12).

        Only after the grace time, throughout which both sides have said the same.
        """
        if not self.instances:
            self._unclaimed_since.clear()
            return
        snapshot, nodes, alive = self._pairs()
        now = self._clock.monotonic()
        unclaimed = set()
        for instance in self.instances:
            if not instance.is_alive:
                continue
            node = nodes.get(instance.node or "")
            is_double = instance.node is not None and alive.get(instance.node) is not instance
            if node is None or node.power is NodePower.DOWN or is_double:
                unclaimed.add(instance.instance_id)
        self._unclaimed_since = {
            instance_id: self._unclaimed_since.get(instance_id, now) for instance_id in unclaimed
        }
        grace = self._settings.loops.orphan_grace_seconds
        ripe = sorted(i for i, since in self._unclaimed_since.items() if now - since >= grace)
        if ripe:
            log.warning("cloud.unclaimed", instances=ripe, looked_at=snapshot.time)
            self._fleet.terminate(ripe)

    def give_up_lost(self) -> None:
        """Power down nodes whose instance EC2 has ended and that Slurm cannot reach either (F19, F24)."""
        if not self.instances:
            return
        _, nodes, alive = self._pairs()
        ended = {item.node: item for item in self.instances if item.is_gone and item.node is not None}
        now = self._clock.monotonic()
        lost = {
            name
            for name, node in nodes.items()
            if name in ended
            and name not in alive
            and ("NOT_RESPONDING" in node.states or node.is_down)
            and node.power not in (NodePower.DOWN, NodePower.POWERING_DOWN)
        }
        self._lost_since = {name: self._lost_since.get(name, now) for name in lost}
        ripe = [n for n, since in self._lost_since.items() if now - since >= self.period_seconds / 2]
        for name in ripe:
            instance = ended[name]
            why = instance.state_reason or instance.state
            log.warning("cloud.lost", node=name, instance=instance.instance_id, why=why)
            self._slurm.update_node(
                [name],
                state="POWER_DOWN_FORCE",
                reason=f"burst advisor: {instance.instance_id} ended ({why})",
            )
            del self._lost_since[name]

    def mend_down(self) -> None:
        """Make powered-down nodes usable again that a failed boot left DOWN (F02)."""
        _, nodes, alive = self._pairs()
        broken = [
            name
            for name, node in nodes.items()
            if node.is_down and node.power is NodePower.DOWN and name not in alive and not node.is_draining
        ]
        if broken:
            log.info("cloud.node_usable_again", nodes=broken)
            self._slurm.update_node(broken, state="RESUME")

    def count_money(self) -> None:
        """Add what runs now to the day's bill, by the accounts that use it."""
        snapshot, _, alive = self._pairs()
        accounts = _account_of_nodes(snapshot)
        now = self._prices()
        prices: dict[str, float] = {}
        for name, instance in alive.items():
            quote = now.spot if instance.option is Capacity.SPOT else now.on_demand
            account = accounts.get(name, "")
            prices[account] = prices.get(account, 0.0) + quote.usd_per_hour
        self._cloud.spend(prices)


def _account_of_nodes(snapshot: SlurmSnapshot) -> Mapping[str, str]:
    """Account of one job on each node (a shared node is paid for by one of them)."""
    found: dict[str, str] = {}
    for queued in snapshot.jobs:
        if not queued.nodes or not queued.job.account:
            continue
        try:
            found.update(dict.fromkeys(expand(queued.nodes), queued.job.account))
        except BadInput:
            continue
    return found
