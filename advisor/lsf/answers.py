"""What bhosts, lshosts, bqueues and bmgroup show, read into nodes and partitions. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from advisor.model.cluster import Node
from advisor.model.job_words import mebibytes
from advisor.model.snapshot import Partition

_NO_HOST: Final = re.compile(r"[^A-Za-z0-9_.-]")
_CLUSTER_NAME: Final = re.compile(r"^My cluster name is (\S+)", re.MULTILINE)
_MINUTES: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?) min")
_DOWN: Final = frozenset({"unavail", "unreach", "closed_LIM"})
_TAKEN: Final = frozenset({"closed_Full", "closed_Excl"})
"""Words of bhosts for a host that is closed by the jobs on it."""
_MAX_PRIORITY: Final = re.compile(r"^\s*MAX_USER_PRIORITY\s*=\s*([0-9]{1,9})\s*$", re.MULTILINE)
_ABSOLUTE: Final = re.compile(r"^\s*ABS_RUNLIMIT\s*=\s*[Yy]", re.MULTILINE)
_PER_TASK: Final = re.compile(r"^\s*RESOURCE_RESERVE_PER_(?:TASK|SLOT)\s*=\s*[Yy]", re.MULTILINE)
_DEFAULT: Final = "This is the default queue."


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A row of ``bhosts -w``: its status, and the slots that it has and that jobs hold; None: no limit."""

    name: str
    status: str
    slots: int | None
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A row of ``lshosts -w``: processors, MiB, and the Boolean resources of a host."""

    processors: int = 0
    memory_mb: int = 0
    resources: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Queue:
    """A queue of ``bqueues -l``; minutes are None without a limit.

    Attributes:
        is_up, starts: Whether it takes jobs and starts them; a closed queue starts those that it has.
        is_for_all: Whether all users may use it (``USERS``).
        hosts: Words of its line ``HOSTS``: names of hosts, of groups with a slash at the end, ``all``.
        resource_request: ``RES_REQ``, which counts for what a job does not ask for itself.
    """

    name: str
    priority: int = 0
    is_up: bool = False
    starts: bool = False
    is_for_all: bool = True
    is_default: bool = False
    hosts: tuple[str, ...] = ()
    default_minutes: int | None = None
    max_minutes: int | None = None
    resource_request: str = ""
    is_rerunnable: bool = False

    @property
    def limit_minutes(self) -> int | None:
        """The run limit of a job that gives none."""
        return self.max_minutes if self.default_minutes is None else self.default_minutes


@dataclass(slots=True)
class Unread:
    """Rows that could not be read."""

    rows: list[str] = field(default_factory=list)


def read_hosts(text: str, unread: Unread) -> tuple[Host, ...]:
    """Rows of ``bhosts -w``."""
    found: list[Host] = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 5 or not words[4].isdecimal() or not (words[3] == "-" or words[3].isdecimal()):
            unread.rows += [line[:200]] if words else []
            continue
        slots = None if words[3] == "-" else int(words[3])
        found.append(Host(name=words[0], status=words[1], slots=slots, taken=int(words[4])))
    return tuple(found)


def read_hardware(text: str) -> dict[str, Hardware]:
    """Rows of ``lshosts -w`` by host: type, model, factor, processors, memory, swap, server, resources."""
    found: dict[str, Hardware] = {}
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 8:
            continue
        resources = " ".join(words[8:]).strip("()").split()
        found[words[0]] = Hardware(
            processors=int(words[4]) if words[4].isdecimal() else 0,
            memory_mb=mebibytes(words[5]) or 0,
            resources=tuple(resources),
        )
    return found


def read_cluster_name(text: str) -> str:
    """The cluster's name in the answer of ``lsid``; empty where it has none."""
    found = _CLUSTER_NAME.search(text)
    return found[1] if found else ""


def read_queues(text: str) -> tuple[Queue, ...]:
    """The queues of ``bqueues -l``."""
    queues: list[Queue] = []
    section = header = before = ""
    for line in text.splitlines():
        words = line.split()
        if line.startswith("QUEUE:") and len(words) > 1:
            queues.append(Queue(name=words[1]))
            section = ""
        if not queues or not words:
            continue
        queue = queues[-1]
        if words[0] in {"DEFAULT", "MAXIMUM"} and "LIMITS" in line:
            section = words[0]
        queue.is_rerunnable |= words[0] == "RERUNNABLE" and words[-1] == "yes"
        queue.is_default |= line.startswith("  --") and _DEFAULT in line
        if before.startswith("PRIO ") and len(words) > 2 and words[0].isdecimal():
            queue.priority, queue.is_up = int(words[0]), words[2] == "Open:Active"
            queue.starts = words[2].endswith(":Active")
        elif words[0] == "USERS:":
            queue.is_for_all = words[1:2] == ["all"] and not any(word.startswith("~") for word in words)
        elif words[0] == "HOSTS:":
            queue.hosts = tuple(words[1:])
        elif words[0] == "RES_REQ:":
            queue.resource_request = " ".join(words[1:])
        elif (at := header.find("RUNLIMIT")) >= 0 and (minutes := _MINUTES.match(line[at:])):
            _limit(queue, section, int(float(minutes[1])))
        header, before = line, line.lstrip()
    return tuple(queues)


def _limit(queue: Queue, section: str, minutes: int) -> None:
    if section == "DEFAULT":
        queue.default_minutes = minutes
    else:
        queue.max_minutes = minutes


def read_max_priority(text: str) -> int | None:
    """``MAX_USER_PRIORITY`` of ``bparams -l``; None where users' jobs have no priorities."""
    found = _MAX_PRIORITY.search(text)
    return int(found[1]) if found else None


def read_has_absolute_limits(text: str) -> bool:
    """Whether ``bparams -l`` has ``ABS_RUNLIMIT = Y``: run limits are not normalised by CPU factors."""
    return _ABSOLUTE.search(text) is not None


def read_reserves_per_task(text: str) -> bool:
    """Whether ``bparams -l`` says that ``rusage[mem=4]`` is for each slot, and not for each host."""
    return _PER_TASK.search(text) is not None


def read_full_users(text: str) -> frozenset[str]:
    """Users whose jobs hold all slots that they may, by ``busers all``: USER, JL/P, MAX, NJOBS, PEND."""
    rows = (line.split() for line in text.splitlines()[1:])
    return frozenset(
        words[0]
        for words in rows
        if len(words) > 4
        and words[2].isdecimal()
        and all(word.isdecimal() for word in words[3:5])
        and int(words[3]) - int(words[4]) >= int(words[2])
    )


def read_groups(text: str) -> dict[str, tuple[str, ...]]:
    """Rows of ``bmgroup -r -w``: the hosts of each group; ``all`` where it has all of them."""
    rows = (line.split() for line in text.splitlines()[1:])
    return {words[0].rstrip("/"): tuple(words[1:]) for words in rows if len(words) > 1}


def hosts_of(
    queue: Queue, groups: Mapping[str, tuple[str, ...]], every_host: Collection[str]
) -> frozenset[str]:
    """The hosts of a queue: groups in full, without those after a tilde.

    Preferences (``host+2``) do not count.
    """
    found, without = set[str](), set[str]()
    for word in queue.hosts:
        name = word.lstrip("~").partition("+")[0].rstrip("/")
        members = set(every_host) if name in {"all", "others"} else set(groups.get(name, (name,)))
        (without if word.startswith("~") else found).update(every_host if "all" in members else members)
    return frozenset(found - without).intersection(every_host)


def states_of(host: Host, *, is_cloud: bool) -> frozenset[str]:
    """Slurm's words for the state of a host; a status that is not known takes no job."""
    is_full = host.slots is not None and host.taken >= host.slots
    load = "ALLOCATED" if is_full or host.status in _TAKEN else "MIXED" if host.taken else "IDLE"
    cloud = {"CLOUD"} if is_cloud else set[str]()
    if host.status in _DOWN:
        return frozenset({"DOWN", *cloud})
    is_open = host.status == "ok" or host.status in _TAKEN or (host.status == "closed" and is_full)
    return frozenset({load, *cloud} if is_open else {load, "DRAIN", *cloud})


def node_of(
    host: Host,
    hardware: Hardware,
    queues: Mapping[str, frozenset[str]],
    *,
    burst: str,
    others: Collection[str],
) -> Node | None:
    """A host as a node; None for one whose name is none.

    One that is in the burst queue and in no on-premise queue counts as a cloud node.

    Args:
        queues: Hosts of each queue.
        others: The on-premise queues.
    """
    if _NO_HOST.search(host.name):
        return None
    partitions = tuple(name for name, hosts in queues.items() if host.name in hosts)
    is_cloud = burst in partitions and not set(others).intersection(partitions)
    features = tuple(word.replace("_", "-") for word in hardware.resources)
    return Node(
        name=host.name,
        states=states_of(host, is_cloud=is_cloud),
        processors=hardware.processors if host.slots is None else host.slots,
        memory_mb=hardware.memory_mb,
        partitions=partitions,
        features=features,
        active_features=features,
    )


def partition_of(queue: Queue, hosts: frozenset[str], slots: Mapping[str, int]) -> Partition:
    """A queue as a partition; `slots` are those of each host."""
    return Partition(
        name=queue.name,
        is_up=queue.is_up,
        nodes=",".join(sorted(hosts)),
        total_processors=sum(slots.get(host, 0) for host in hosts),
        max_minutes=queue.max_minutes,
        is_default=queue.is_default,
        default_minutes=queue.default_minutes,
        total_nodes=len(hosts),
    )
