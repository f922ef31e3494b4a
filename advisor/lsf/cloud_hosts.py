"""Hosts in the cloud as LSF's resource connector asks for them, seen as nodes that are powered up and down.

LSF keeps no list of hosts that could be: ``ec2.classes`` names them. The connector asks for a number of hosts
of a class; they get free names, which are their host names, and come and go as the cloud nodes of Slurm do.
What was asked for is on disk before anything is launched.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import msgspec
import structlog

from advisor.decide.submission.capacity import is_never_spot
from advisor.ec2.classes import class_of_nodes
from advisor.files.state_file import StateFile
from advisor.lsf.answers import Hardware, Host, states_of
from advisor.model.cluster import Node
from advisor.model.errors import BadInput, RetryLater
from advisor.model.settings import Settings
from advisor.model.settings_classes import NodeClass

log = structlog.get_logger(__name__)

_JOIN_SECONDS: Final = 1800.0
"""A host that LSF has not seen for so long after it was asked for is given up, and its instance ended."""
_UNREAD_SECONDS: Final = 900.0
"""The connector asks for the state of a request every few seconds: one that it does not know is given up."""
_KEPT_SECONDS: Final = 86_400.0
"""A request without hosts is remembered for so long, in case the connector asks for its state again."""
_TOLD_SECONDS: Final = 600.0
"""The name of a host that has gone is free again after this time: by then the connector has given it back."""


class CloudHost(msgspec.Struct):
    """A host that the connector has asked for.

    Attributes:
        asked: Epoch seconds.
        is_up: Whether LSF has shown it.
        closing: Why it is to take no new job; empty: it may.
        gone, gone_at: Why it was not launched, or is no more, and since when; empty: it is, or is coming.
        given_back: Whether the connector has given it back.
    """

    request: str
    asked: float
    is_up: bool = False
    closing: str = ""
    gone: str = ""
    gone_at: float = 0.0
    given_back: bool = False


class HostRequest(msgspec.Struct):
    """A request of the connector for hosts.

    Attributes:
        is_return: Whether hosts are given back.
        time: Epoch seconds.
        is_read: Whether the connector has asked for its state: it knows its id.
        account: The connector's ``rc_account``.
        ids: Instances of hosts that are given back, by host.
        failed: Hosts that could not be launched, and why; they may have been asked for again since.
    """

    is_return: bool
    nodes: list[str]
    time: float
    is_read: bool = False
    account: str = ""
    ids: dict[str, str] = {}
    failed: dict[str, str] = {}


class HostsAskedFor(msgspec.Struct):
    """The content of the state file: hosts by name, requests by id."""

    hosts: dict[str, CloudHost] = {}
    requests: dict[str, HostRequest] = {}


class CloudHosts:
    """Keeps what the connector asks for; each change is on disk before it returns. Thread-safe.

    Args:
        close: Lets LSF start no more jobs on a host: its name, and why.
        wall: Epoch seconds.

    Raises:
        BadInput: ``ec2.classes`` names no host.
    """

    def __init__(
        self,
        settings: Settings,
        file: StateFile[HostsAskedFor],
        *,
        close: Callable[[str, str], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._file = file
        self._close = close
        self._wall = wall
        self._lock = threading.RLock()
        self._known = file.read()
        self._class_of = class_of_nodes(settings.ec2)
        if not self._class_of:
            raise BadInput(
                "under LSF the cloud's hosts have to be named",
                where="ec2.classes",
                mend="Give each size of host a class with its host names (docs/lsf.md)",
                code="lsf.no_classes",
            )

    # ---------------------------------------------------------------------------------- the connector asks

    @property
    def classes(self) -> Mapping[str, NodeClass]:
        """The classes by name, which is the id of their template in LSF."""
        return self._settings.ec2.classes

    @property
    def cores(self) -> Mapping[str, int]:
        """Cores of every host that ``ec2.classes`` names."""
        return {node: self.classes[name].cores for node, name in self._class_of.items()}

    def nodes_in(self, template: str) -> list[str]:
        """All hosts of a class."""
        return [node for node, name in self._class_of.items() if name == template]

    def __contains__(self, node: str) -> bool:
        return node in self._class_of

    def create(self, template: str, count: int, account: str) -> tuple[str, HostRequest]:
        """Reserve hosts, fewer where no more are free.

        Raises:
            BadInput: There is no such template.
            RetryLater: None is free.
        """
        if template not in self.classes or count < 1:
            mend = "Name a class of ec2.classes, and at least one machine"
            raise BadInput(
                f"{count} machines of the template {template[:60]!a} cannot be launched",
                where="LSF's resource connector, requestMachines",
                mend=mend,
            )
        with self._lock:
            free = [node for node in self.nodes_in(template) if node not in self._known.hosts][:count]
            if not free:
                raise RetryLater(
                    f"all hosts of {template} are in use. LSF asks again; more host names of this class in "
                    "ec2.classes allow more of them",
                    code="lsf.no_free_host",
                )
            now, name = self._wall(), _new_id()
            self._known.hosts |= {node: CloudHost(request=name, asked=now) for node in free}
            made = self._known.requests[name] = HostRequest(
                is_return=False, nodes=free, time=now, account=account
            )
            self._write()
        return name, made

    def give_back(self, ids: Mapping[str, str]) -> tuple[str, HostRequest]:
        """Note that hosts are given back; `ids` are their instances, by host."""
        with self._lock:
            name = _new_id()
            made = self._known.requests[name] = HostRequest(
                is_return=True, nodes=list(ids), time=self._wall(), ids=dict(ids)
            )
            for node in ids:
                if (host := self._known.hosts.get(node)) is not None:
                    host.given_back = True
            self._write()
        return name, made

    def request(self, name: str) -> HostRequest | None:
        """A request whose state the connector asks for."""
        with self._lock:
            found = self._known.requests.get(name)
            if found is not None and not found.is_read:
                found.is_read = True
                self._write()
            return found

    def host(self, node: str) -> CloudHost | None:
        """A host that is asked for."""
        return self._known.hosts.get(node)

    def forget(self, alive: Collection[str]) -> list[str]:
        """Free the names of hosts that are no more.

        Args:
            alive: Hosts that have an instance, or may have one.

        Returns:
            Hosts to be ended: the connector did not learn the id of its request, and never gives them back.
        """
        now = self._wall()
        with self._lock:
            before = msgspec.json.encode(self._known)
            for node, host in list(self._known.hosts.items()):
                waits = _TOLD_SECONDS if host.is_up else 0.0  # the connector is told, and gives it back
                is_over = host.given_back or (host.gone and now - host.gone_at >= waits)
                is_over = is_over or _is_due(host, now, _JOIN_SECONDS)
                if is_over and node not in alive:
                    del self._known.hosts[node]
            unread = {
                node
                for node, host in self._known.hosts.items()
                if (asked := self._known.requests.get(host.request)) is not None
                and not asked.is_read
                and now - asked.time > _UNREAD_SECONDS
            }
            for node in unread:
                self._known.hosts[node].given_back = True
            in_use = {host.request for host in self._known.hosts.values()}
            self._known.requests = {
                name: asked
                for name, asked in self._known.requests.items()
                if name in in_use or now - asked.time < _KEPT_SECONDS
            }
            if msgspec.json.encode(self._known) != before:
                self._write()
        return sorted(unread)

    def spot(self) -> frozenset[str]:
        """Hosts that are asked for and may be spot."""
        with self._lock:
            return frozenset(
                node
                for node in self._known.hosts
                if node in self._class_of and not is_never_spot(self.classes[self._class_of[node]].features)
            )

    def due(self, older_than: float) -> list[str]:
        """Hosts that were asked for so many seconds ago, and that LSF has not shown yet."""
        now = self._wall()
        with self._lock:
            return [node for node, host in self._known.hosts.items() if _is_due(host, now, older_than)]

    # ------------------------------------------------------------------------------------- as nodes

    def nodes(self, shown: Iterable[Host], hardware: Mapping[str, Hardware]) -> list[Node]:
        """Every host that could be, as a cloud node.

        Args:
            shown: Rows of bhosts.
            hardware: Host name to its hardware.
        """
        by_name = {host.name: host for host in shown}
        with self._lock:
            new = [
                (node, host)
                for node, host in self._known.hosts.items()
                if not host.is_up and node in by_name and _is_there(by_name[node])
            ]
            for _, host in new:
                host.is_up = True
            if new:
                self._write()
            return [self._node(name, by_name.get(name), hardware.get(name)) for name in self._class_of]

    def _node(self, name: str, shown: Host | None, hardware: Hardware | None) -> Node:
        said, host = self.classes[self._class_of[name]], self._known.hosts.get(name)
        resources = () if hardware is None else hardware.resources
        features = (*said.features, *(word.replace("_", "-") for word in resources))
        return Node(
            name=name,
            states=_states(host, shown, self._wall()),
            processors=said.cores if shown is None or shown.slots is None else shown.slots,
            memory_mb=said.memory_mb if hardware is None else hardware.memory_mb or said.memory_mb,
            partitions=(self._settings.cluster.burst_partition,),
            features=tuple(dict.fromkeys(features)),
            active_features=tuple(dict.fromkeys(features)),
            reason=None if host is None else host.gone or host.closing or None,
        )

    def update(self, nodes: Collection[str], state: str, why: str) -> None:
        """Note that hosts are no more, are to take no new job, or may be used again, in Slurm's words.

        Raises:
            RetryLater: badmin refuses to close a host.
        """
        with self._lock:
            found = {node: host for node in nodes if (host := self._known.hosts.get(node)) is not None}
            for node, host in found.items():
                match state:
                    case "POWER_DOWN_FORCE":
                        self._end(node, host, why)
                    case "POWER_DOWN_ASAP":
                        host.closing = host.closing or why
                    case "RESUME":
                        host.gone = ""
            if found:
                self._write()
        for node, host in found.items() if state == "POWER_DOWN_ASAP" else ():
            if host.is_up:
                self._close(node, why)

    def _end(self, node: str, host: CloudHost, why: str) -> None:
        if not host.gone:
            host.gone, host.gone_at = why, self._wall()
        if not host.is_up and (asked := self._known.requests.get(host.request)) is not None:
            asked.failed.setdefault(node, why)

    def _write(self) -> None:
        self._file.write(self._known)


def _new_id() -> str:
    return f"advisor-{secrets.token_hex(8)}"


def _is_there(shown: Host) -> bool:
    return not shown.status.startswith(("unavail", "unreach"))


def _is_due(host: CloudHost, now: float, seconds: float) -> bool:
    is_wanted = not (host.is_up or host.gone or host.given_back)
    return is_wanted and now - host.asked >= seconds


def _states(host: CloudHost | None, shown: Host | None, now: float) -> frozenset[str]:
    """Slurm's words for a cloud node in this state."""
    if host is None or (host.gone and not host.is_up) or _is_due(host, now, _JOIN_SECONDS):
        return frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
    if host.given_back or host.gone:
        return frozenset({"IDLE", "CLOUD", "POWERING_DOWN"})
    if not host.is_up:
        return frozenset({"IDLE", "CLOUD", "POWERING_UP"})
    if shown is None or not _is_there(shown):
        return frozenset({"IDLE", "CLOUD", "DOWN", "NOT_RESPONDING"})
    states = states_of(shown, is_cloud=True)
    return states | {"DRAIN"} if host.closing else states
