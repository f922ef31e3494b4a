"""Read a batch script and sbatch's command line as ``sbatch`` does, for ``advisor advise``.

Only options that a decision uses are read, in Slurm's own units; the names of others are reported.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from advisor.model.errors import BadInput
from advisor.model.job_words import MEBIBYTES
from advisor.model.node_classes import NOT_BY_NODE, OF_ALL_NODES
from advisor.slurm.begin_time import begin_time

_DIRECTIVE: Final = re.compile(r"^#SBATCH\s+(.*)$")
_NODES: Final = re.compile(r"(\d{1,9})([km]?)(?:-(\d{1,9})([km]?)(?::([1-9]\d{0,8}))?)?\Z", re.IGNORECASE)
_THOUSANDS: Final = {"": 1, "k": 1024, "m": 1024**2}
_MEMORY: Final = re.compile(r"(\d{1,15})([KMGT]?)B?\Z", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedOptions:
    """Options of one submission.

    Attributes:
        fields: Fields of ``advisor.service.exchange.protocol.AdviseRequest`` (minutes, MiB, counts, texts).
        ignored: Options of sbatch that no decision uses.
        unknown: Words that are no option of sbatch, without their values.
        heterogeneous: Whether the script has a ``hetjob`` line; such a job is never moved to the cloud.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    heterogeneous: bool = False


def time_limit_minutes(text: str) -> int | None:
    """Minutes, rounded up, of Slurm's time formats; None for ``UNLIMITED`` and 0 (no limit).

    The formats are ``M``, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M`` and ``D-H:M:S``.
    """
    if text.upper() in {"UNLIMITED", "INFINITE", "-1"}:
        return None
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(
        part.isascii() and part.isdigit() and len(part) <= 9 for part in [*parts, *([days] if dash else [])]
    ):
        raise ValueError(text)
    numbers = [int(part) for part in parts]
    if dash and len(numbers) <= 3:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif not dash and len(numbers) == 3:
        hours, minutes, seconds = numbers
    elif not dash and len(numbers) <= 2:
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    else:
        raise ValueError(text)
    total = ((int(days) if dash else 0) * 24 + hours) * 60 + minutes + math.ceil(seconds / 60)
    return total or None


def memory_mib(text: str) -> int:
    """Slurm's memory sizes (``4G``, ``512M``, ``2000``) in MiB, rounded up."""
    match = _MEMORY.match(text)
    if match is None:
        raise ValueError(text)
    return math.ceil(int(match[1]) * MEBIBYTES[match[2].upper()])


def node_range(text: str) -> tuple[int, int]:
    """The smallest and the largest number of nodes of ``2``, ``2-4``, ``1k`` or (23.02 on) ``2,4-8:2``."""
    counts = []
    for part in text.split(","):
        match = _NODES.match(part)
        if match is None:
            raise ValueError(text)
        first = int(match[1]) * _THOUSANDS[match[2].lower()]
        last = first if match[3] is None else int(match[3]) * _THOUSANDS[match[4].lower()]
        counts += [first, last - (last - first) % int(match[5] or 1)]
    return min(counts), max(counts)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**31):
        raise ValueError(text)
    return int(text)


def _asks_several(text: str) -> bool:
    """Whether more than one is asked for of any part of a node, such as ``1:4:2``; ``*``: any number."""
    return any(part != "*" and _count(part) > 1 for part in text.split(":"))


# option -> (field, or fields of several values; function that reads its value; a valid example)
_OPTIONS: Final[dict[str, tuple[str, Callable[[str], Any], str]]] = {
    "partition": ("partition", str, "onprem"),
    "time": ("time_limit", time_limit_minutes, "1-12:00:00"),
    "ntasks": ("num_tasks", _count, "16"),
    "nodes": ("min_nodes max_nodes", node_range, "2-4"),
    "cpus-per-task": ("cpus_per_task", _count, "4"),
    "ntasks-per-node": ("ntasks_per_node", _count, "8"),
    "mincpus": ("min_cpus_per_node", _count, "8"),
    "tmp": ("tmp_disk", memory_mib, "10G"),
    "mem": ("memory_per_node", memory_mib, "4G"),
    "mem-per-cpu": ("memory_per_cpu", memory_mib, "2000M"),
    "account": ("account", str, "physics"),
    "qos": ("qos", str, "normal"),
    "job-name": ("name", str, "test"),
    "comment": ("comment", str, "no-burst"),
    "constraint": ("features", str, "avx2"),
    "prefer": ("prefer", str, "avx2"),
    "licenses": ("licenses", str, "matlab:1"),
    "reservation": ("reservation", str, "class"),
    "dependency": ("dependency", str, "afterok:17"),
    "nodelist": ("req_nodes", str, "n[1-3]"),
    "array": ("array", str, "1-100%5"),
    "gres": ("generic_resources", str, "gpu:1"),
    "gpus": ("generic_resources", f"{OF_ALL_NODES}gpu:{{}}".format, "1"),
    "gpus-per-node": ("generic_resources", "gpu:{}".format, "1"),
    "gpus-per-socket": ("generic_resources", f"{NOT_BY_NODE}gpu:{{}}".format, "1"),
    "gpus-per-task": ("generic_resources", f"{NOT_BY_NODE}gpu:{{}}".format, "1"),
    "bb": ("burst_buffer", str, "capacity=1G"),
    "extra-node-info": ("layout", _asks_several, "1:4:2"),
    "sockets-per-node": ("layout", _asks_several, "1"),
    "cores-per-socket": ("layout", _asks_several, "4"),
    "ntasks-per-socket": ("layout", _asks_several, "4"),
    "threads-per-core": ("layout whole_cores", lambda text: (_asks_several(text), _count(text) == 1), "1"),
    "hint": ("whole_cores", "nomultithread".__eq__, "nomultithread"),
    "begin": ("begin_time", lambda text: begin_time(text, time.time()), "now+1hour"),
}
_SHORT: Final = {
    "p": "partition",
    "t": "time",
    "n": "ntasks",
    "N": "nodes",
    "c": "cpus-per-task",
    "A": "account",
    "q": "qos",
    "J": "job-name",
    "C": "constraint",
    "L": "licenses",
    "d": "dependency",
    "w": "nodelist",
    "a": "array",
    "G": "gpus",
    "B": "extra-node-info",
    "b": "begin",
    "H": "hold",
}
# short options that no decision uses, and those of them whose value may be the next word
_OTHER_LETTERS: Final = frozenset("DeFhikmMoOQsSvVWx")
_OTHER_WITH_VALUE: Final = frozenset("DeioxSMkFm")
_FLAGS: Final = {
    "requeue": ("requeue", True),
    "no-requeue": ("requeue", False),
    "hold": ("held", True),
    "exclusive": ("whole_nodes", True),
}
_SHARED_WITH_SOME: Final = frozenset({"--exclusive=user", "--exclusive=mcs", "--exclusive=topo"})
_OTHERS: Final = """
acctg-freq bbf burst-buffer chdir cluster-constraint clusters container container-id
container-type contiguous core-spec cpu-freq cpus-per-gpu deadline delay-boot
distribution error exclude export export-file extra get-user-env gid
gpu-bind gpu-freq gres-flags help ignore-pbs input job-id kill-on-invalid-dep
mail-type mail-user mcs-label mem-bind mem-per-gpu mem-update network nice no-bell no-kill
nodefile ntasks-per-core ntasks-per-gpu oom-kill-step open-mode output overcommit
oversubscribe parsable power priority profile propagate quiet reboot resv-ports segment share
signal spread-job spread-segments stepmgr switches test-only thread-spec
time-min tres-bind tres-per-task uid usage use-min-nodes verbose version wait
wait-all-nodes wckey workdir wrap
"""
_VARIABLES: Final = """
ACCOUNT ARRAY_INX CONSTRAINT EXCLUSIVE GPUS GPUS_PER_NODE GPUS_PER_SOCKET GPUS_PER_TASK GRES HINT JOB_NAME
MEM_PER_CPU MEM_PER_NODE NO_REQUEUE PARTITION QOS REQUEUE RESERVATION THREADS_PER_CORE TIMELIMIT
"""
_OPTION_OF_VARIABLE: Final = {"ARRAY_INX": "array", "MEM_PER_NODE": "mem", "TIMELIMIT": "time"}
"""Where the option's name is another one."""
_UNUSED_OPTIONS: Final = frozenset(_OTHERS.split())
"""Other long options of sbatch, 22.05 to 26.05; a test compares them with the installed sbatch."""


def read_script(text: str, *, where: str) -> SubmittedOptions:
    """Read the ``#SBATCH`` lines of a script up to its first command; `where` names it in messages.

    Raises:
        BadInput: The script has no ``#!`` line (sbatch refuses it, too) or a value that sbatch would refuse.
    """
    lines = text.splitlines()
    if not lines or not lines[0].startswith("#!"):
        raise BadInput(
            "this is no batch script",
            where=f"{where}:1",
            mend="Its first line must be #!, such as #!/bin/sh",
            code="script.no_interpreter",
        )
    found = SubmittedOptions()
    for number, line in enumerate(lines, start=1):
        if match := _DIRECTIVE.match(line):
            try:
                words = shlex.split(match[1], comments=True)
            except ValueError as error:
                raise BadInput(
                    f"cannot be read ({error})", where=f"{where}:{number}", mend="Close the quotes"
                ) from None
            found = merged(found, read_options(words, where=f"{where}:{number}"))
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return found


def read_environment(environment: Mapping[str, str]) -> SubmittedOptions:
    """Read the variables that sbatch takes for options, such as ``SBATCH_TIMELIMIT``.

    They win over the script's lines, and the command line over them.

    Raises:
        BadInput: A value that sbatch would refuse.
    """
    found = SubmittedOptions()
    for name in _VARIABLES.split():
        variable = f"SBATCH_{name}"
        if value := environment.get(variable):
            option = _OPTION_OF_VARIABLE.get(name, name.lower().replace("_", "-"))
            found = merged(found, read_options([f"--{option}={value}"], where=variable))
    return found


def merged(first: SubmittedOptions, second: SubmittedOptions) -> SubmittedOptions:
    """Join options; where both have one, the second (a later line, or the command line) wins."""
    return SubmittedOptions(
        fields=first.fields | second.fields,
        ignored=tuple(dict.fromkeys([*first.ignored, *second.ignored])),
        unknown=tuple(dict.fromkeys([*first.unknown, *second.unknown])),
        heterogeneous=first.heterogeneous or second.heterogeneous,
    )


def read_options(words: Sequence[str], *, where: str) -> SubmittedOptions:
    """Read options as sbatch takes them: ``--time=5``, ``--time 5``, ``-t 5``, ``-t5``.

    Raises:
        BadInput: A value is missing, or sbatch would refuse it.
    """
    fields: dict[str, Any] = {}
    ignored: list[str] = []
    unknown: list[str] = []
    rest = list(words)
    heterogeneous = False
    while rest:
        word = rest.pop(0)
        name, value = _option_of(word)
        if word in {"hetjob", "packjob"}:
            heterogeneous = True
        elif name in _FLAGS and word not in _SHARED_WITH_SOME:
            field_name, flag = _FLAGS[name]
            fields[field_name] = flag
        elif name in _OPTIONS:
            if value is None and not rest:
                raise _wrong(name, "no value", where)
            fields.update(_read_value(name, rest.pop(0) if value is None else value, where))
        else:
            if _is_option_of_sbatch(word, name) or word in _SHARED_WITH_SOME:
                ignored.append(name)
            else:
                unknown.append(word.partition("=")[0])
            if value is None and rest and _takes_next_word(word, rest[0]):
                rest.pop(0)
    return SubmittedOptions(
        fields=fields, ignored=tuple(ignored), unknown=tuple(unknown), heterogeneous=heterogeneous
    )


def options_like(name: str) -> str:
    """The option of sbatch whose name is closest to a misspelt one; empty if none is close."""
    known = [*_OPTIONS, *_FLAGS, *_UNUSED_OPTIONS]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.75)), "")


def _is_option_of_sbatch(word: str, name: str) -> bool:
    """Whether sbatch has this option: a long one is found by its name, a short one by its letter."""
    if word.startswith("--"):
        return name in _UNUSED_OPTIONS
    return word.startswith("-") and word[1:2] in _OTHER_LETTERS


def _option_of(word: str) -> tuple[str, str | None]:
    """Long name and value of one word; the value None when it must be in the next word."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name, value if equals else None
    if word.startswith("-") and len(word) > 1:
        return _SHORT.get(word[1], word[:2]), word[2:].removeprefix("=") or None
    return "", None


def _takes_next_word(word: str, following: str) -> bool:
    """Whether the word after an option that is not read is its value."""
    if following.startswith("-"):
        return False
    return word.startswith("--") or word[1:2] in _OTHER_WITH_VALUE


def _read_value(name: str, text: str, where: str) -> dict[str, Any]:
    field_names, read, _ = _OPTIONS[name]
    names = field_names.split()
    try:
        values = read(text) if len(names) > 1 else (read(text),)
        return {name: value for name, value in zip(names, values, strict=True) if value is not False}
    except ValueError:
        raise _wrong(name, repr(text), where) from None


def _wrong(name: str, value: str, where: str) -> BadInput:
    return BadInput(
        f"--{name}: {value} is not what sbatch takes",
        where=where,
        mend=f"Write it like --{name}={_OPTIONS[name][2]}",
        code="script.option",
    )
