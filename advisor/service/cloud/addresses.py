"""Slurm is told where its cloud nodes are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from advisor.model.settings import Settings
from advisor.service.running.isolating import for_each
from advisor.slurm.protocol import SlurmBackend

_LOOPBACK: Final = "127.0.0.1"


class Addresses:
    """Tells Slurm each node's address, once an instance has one: before its slurmd registers."""

    def __init__(self, settings: Settings, slurm: SlurmBackend) -> None:
        self._is_loopback = settings.ec2.node_address == "loopback"
        self._slurm = slurm

    def tell(self, found: Iterable[tuple[str, str]]) -> set[str]:
        """Set NodeAddr of nodes whose address is known; returns those nodes.

        Parameters
        ----------
        found : iterable of (node, private address)
            An empty address is not known yet.

        Raises
        ------
        RetryLater
            slurmctld did not take one.
        """
        told = set()

        def tell_one(pair: tuple[str, str]) -> None:
            node, private_ip = pair
            address = _LOOPBACK if self._is_loopback else private_ip
            if address:
                # a Slurm node's host name is its own name: slurmd -N, or the instance's host name
                self._slurm.update_node([node], address=address, hostname=node)
                told.add(node)

        for_each(found, tell_one)
        return told
