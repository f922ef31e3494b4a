"""The addresses of cloud nodes, as the provision and reconcile loops let Slurm know them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from advisor.model.scheduler import CloudScheduler
from advisor.model.settings_cloud import Ec2Settings
from advisor.service.running.isolating import for_each

UNREACHABLE: Final = "255.255.255.255"
"""Of a node that has no machine and is powered down: no connection to it is even tried.

Until its power-save thread has its turn, slurmctld may ask such a node whether it is there. Where no DNS
knows the node it looks for it by name then, for ten seconds, and answers no command meanwhile.
"""
_LOOPBACK: Final = "127.0.0.1"


def tell_addresses(
    slurm: CloudScheduler, settings: Ec2Settings, found: Iterable[tuple[str, str]]
) -> set[str]:
    """Set NodeAddr of nodes whose address is known, before their slurmd registers; returns those nodes.

    ``found`` holds pairs of node and private address; an empty address is not known yet.

    Raises:
        RetryLater: slurmctld refused at least one address; the others are set.
    """
    is_loopback = settings.node_address == "loopback"
    reported = set()

    def tell_one(pair: tuple[str, str]) -> None:
        node, private_ip = pair
        address = _LOOPBACK if is_loopback else private_ip
        if address:
            # a Slurm node's host name is its own name: slurmd -N, or the instance's host name
            slurm.update_node([node], address=address, hostname=node)
            reported.add(node)

    for_each(found, tell_one)
    return reported
