"""Read the resources that ``bsub -R`` asks for, as far as they mean the same at every site.

Example: ``rusage[mem=4G/host]``. LSF's defaults are megabytes and per host; ``LSF_UNIT_FOR_LIMITS`` changes
the first, ``RESOURCE_RESERVE_PER_TASK`` the second, and a unit or ``/job``, ``/host``, ``/task`` after the
number overrides both (IBM: "Usage string", "Enabling per-task memory reservation"). Alternatives (``||``),
phases (``mem=(8 2)``) and compound requests (``2*{...}+{...}``) count as unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

MemoryUnit: TypeAlias = Literal["KB", "MB", "GB", "TB"]

_SECTION: Final = re.compile(r"\b(rusage|span)\s*\[([^\[\]]*)\]")
_HARMLESS: Final = re.compile(r"\b(?:rusage|span|order)\s*\[[^\[\]]*\]")
"""Sections that choose no hosts."""
_TERM: Final = re.compile(r"\s*(\w+)\s*=\s*([^,:]*)")
_AMOUNT: Final = re.compile(
    r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([KMGTPE]?)B?(?:/(job|host|task))?", re.IGNORECASE | re.ASCII
)
_GPUS: Final = re.compile(r"\bngpus_\w+\s*=\s*[0-9.]+")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_MB_OF: Final = {
    "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3, "E": 1024.0**4
}  # fmt: skip
_MAX_MB: Final = 2**40
"""A number that is larger is stored as this: no host has as much, and the history has 64 bits for it."""
_LOAD_INDICES: Final = ("r15s", "r1m", "r15m", "ut", "pg", "io", "ls", "it", "tmp", "swp", "mem")
_NOT_COUNTED: Final = frozenset({*_LOAD_INDICES, "swap", "cpu", "duration", "decay"})
"""Names that are no licences: LSF's load indices, and the words for the duration of a reservation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """The resources that a job asks for; None: not asked for, or unknown.

    Attributes:
        memory_mb, memory_mb_per_node: MiB of the whole job, and of each of its hosts.
        nodes: Number of hosts, by ``span[hosts=1]`` or ``span[ptile=...]``.
        node_processors: Slots that one of its hosts must have, where ``span`` says so; None: any will do.
        chooses_hosts: Whether it says more (``select[...]``, or ``bigmem`` alone), or is not understood.
        licenses, gres: Other shared resources, and GPUs: ``name=number`` joined by commas.
    """

    memory_mb: int | None = None
    memory_mb_per_node: int | None = None
    nodes: int | None = None
    node_processors: int | None = None
    chooses_hosts: bool = False
    licenses: str | None = None
    gres: str | None = None


def read_resource_request(
    text: str, processors: int, unit: MemoryUnit = "MB", *, per_task: bool = False
) -> ResourceRequest:
    """Read a resource requirement string of a job with so many slots.

    `unit` is the site's ``LSF_UNIT_FOR_LIMITS``, for numbers without a unit; `per_task` its
    ``RESOURCE_RESERVE_PER_TASK``, for those without a method.

    Examples:
        >>> asked = read_resource_request("select[type==any] rusage[mem=2G:matlab=1] span[ptile=8]", 16)
        >>> asked.memory_mb, asked.memory_mb_per_node, asked.nodes, asked.licenses
        (4096, 2048, 2, 'matlab=1')
    """
    sections = _SECTION.findall(text)
    names = [name for name, _ in sections]
    if "||" in text or "{" in text or len(set(names)) < len(names):
        return ResourceRequest(chooses_hosts=True)
    by_name = dict(sections)
    nodes, on_one = _nodes(by_name.get("span", ""), processors)
    terms = _terms(by_name.get("rusage", ""))
    whole, per_node = _memory(terms.get("mem", ""), processors, nodes, unit, per_task=per_task)
    counted = {name: value for name, value in terms.items() if name not in _NOT_COUNTED}
    gpus = {name: value for name, value in counted.items() if "gpu" in name.lower()}
    return ResourceRequest(
        memory_mb=whole,
        memory_mb_per_node=per_node,
        nodes=nodes,
        node_processors=on_one if on_one and on_one > 1 else None,
        chooses_hosts=bool(_HARMLESS.sub("", text).strip()),
        licenses=_joined({name: value for name, value in counted.items() if name not in gpus}),
        gres=_joined(gpus),
    )


def gpus_of(combined: str) -> str:
    """The GPUs of a request that LSF has put together of all that counts, ``-gpu`` included.

    Examples:
        >>> gpus_of("select[(ngpus>0) && (type == any)] rusage[ngpus_physical=1.00]")
        'ngpus_physical=1.00'
    """
    return ",".join(_GPUS.findall(combined))


def _terms(section: str) -> dict[str, str]:
    """Names and values; a name that occurs twice (several phases) is left out."""
    found = _TERM.findall(section)
    names = [name for name, _ in found]
    return {name: value.strip() for name, value in found if names.count(name) == 1}


def _nodes(span: str, processors: int) -> tuple[int | None, int | None]:
    """Number of hosts, and slots that one of them must have; None: any will do."""
    terms = _terms(span)
    if _NUMBER.fullmatch(terms.get("hosts", "")) and (hosts := int(terms["hosts"])):
        return hosts, -(-processors // hosts)
    if _NUMBER.fullmatch(found := terms.get("ptile", "")) and (tile := int(found)):
        return -(-processors // tile), min(tile, processors)
    return None, None


def _memory(
    text: str, processors: int, nodes: int | None, unit: MemoryUnit, *, per_task: bool
) -> tuple[int | None, int | None]:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return None, None
    amount = float(match[1]) * _MB_OF[match[2].upper() or unit[0]]
    hosts = 1 if processors == 1 else nodes
    method = (match[3] or ("task" if per_task else "host")).lower()
    if method == "job":
        return _mb(amount), None
    if method == "task":
        return _mb(amount * processors), None
    return (_mb(amount * hosts) if hosts else None), _mb(amount)


def _mb(amount: float) -> int | None:
    return round(min(amount, _MAX_MB)) or None


def _joined(terms: dict[str, str]) -> str | None:
    return ",".join(f"{name}={value}" for name, value in terms.items()) or None
