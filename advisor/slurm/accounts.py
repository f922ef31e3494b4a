"""What Slurm's accounting says of QOS and associations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from advisor.model.burst_qos import BurstQos
from advisor.model.job_words import mebibytes
from advisor.slurm import records
from advisor.slurm.commands import Commands

_ASSOCIATIONS = ("sacctmgr", "-nP", "show", "associations", "format=user,account,partition")
_PREEMPTS = ("sacctmgr", "-nP", "show", "qos", "format=name,preempt")
_LIMITS = (
    "sacctmgr",
    "-nP",
    "show",
    "qos",
    "format=name,maxwall,mintres,grptres,maxtres,maxtrespu,maxtrespa,grpsubmit,maxsubmitpu,maxsubmitpa",
)


def preempting_qos(commands: Commands) -> Mapping[str, frozenset[str]]:
    """The QOS whose jobs each QOS may preempt; those that may preempt none are left out.

    Raises:
        RetryLater: slurmdbd does not say.
    """
    rows = (line.partition("|") for line in commands.text(*_PREEMPTS).splitlines())
    return {name: frozenset(of.split(",")) for name, _, of in rows if of}


def partitions_of_users(commands: Commands, cluster: str) -> Mapping[tuple[str, str], frozenset[str]]:
    """The partitions for which a user has associations in an account; empty: one for all partitions.

    Raises:
        RetryLater: slurmdbd does not say.
    """
    found = dict[tuple[str, str], set[str]]()
    for line in commands.text(*_ASSOCIATIONS, "where", f"cluster={cluster}").splitlines():
        user, _, rest = line.partition("|")
        account, _, partition = rest.partition("|")
        if user:
            found.setdefault((user, account), set()).add(partition)
    return {key: frozenset() if "" in names else frozenset(names) for key, names in found.items()}


def limits_of_qos(commands: Commands, name: str) -> BurstQos:
    """The limits of a QOS at which slurmctld refuses a job, or holds it for ever.

    Raises:
        RetryLater: slurmdbd does not say.
    """
    for line in commands.text(*_LIMITS).splitlines():
        found, *words = line.split("|")
        if found == name and len(words) == _LIMITS[-1].count(","):
            wall, least, *most, of_all, of_user, of_account = words
            return BurstQos(
                max_seconds=_limit(records.seconds(wall)),
                min_processors=max(_tres([least], "cpu"), default=0.0),
                min_nodes=max(_tres([least], "node"), default=0.0),
                max_processors=min(_tres(most, "cpu"), default=math.inf),
                max_nodes=min(_tres(most, "node"), default=math.inf),
                max_memory_mb=min(_tres(most, "mem"), default=math.inf),
                max_jobs=_limit(records.whole(of_all)),
                max_jobs_of_user=_limit(records.whole(of_user)),
                max_jobs_of_account=_limit(records.whole(of_account)),
            )
    return BurstQos()


def _limit(said: float | None) -> float:
    return math.inf if said is None else float(said)


def _tres(texts: Iterable[str], kind: str) -> list[float]:
    """What lists such as ``cpu=8,mem=16G`` say of one kind."""
    pairs = (part.partition("=") for text in texts for part in text.split(","))
    said = (
        mebibytes(value) if kind == "mem" else records.whole(value)
        for name, _, value in pairs
        if name == kind
    )
    return [float(number) for number in said if number is not None]
