"""What Slurm's accounting says of QOS and associations: who may preempt, enter the burst partition, how much.

Three loops of `advisor control` ask, each for its part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import structs

from advisor.model.burst_limits import BurstLimits, PerResource, whose
from advisor.model.job import payers_of
from advisor.model.job_words import mebibytes
from advisor.slurm import records
from advisor.slurm.commands import Commands

_ASSOCIATIONS = ("sacctmgr", "-nP", "show", "associations", "format=user,account,partition")
_PREEMPTS = ("sacctmgr", "-nP", "show", "qos", "format=name,preempt")
_SUBMITS = ("sacctmgr", "-nP", "show", "associations", "format=user,account,maxsubmitjobs,grpsubmitjobs")
_LIMIT_FIELDS: Final = (
    "name,maxwall,grpwall,mintres,grptres,maxtres,maxtrespu,maxtrespa,maxtrespernode,"
    "maxtresmins,grptresmins,grptresrunmins,maxtresrunminspu,maxtresrunminspa,"
    "grpsubmit,maxsubmitpu,maxsubmitpa"
)
_LIMITS = ("sacctmgr", "-nP", "show", "qos", f"format={_LIMIT_FIELDS}")
_RESOURCES: Final = (("cpu", "billing"), ("node",), ("mem",), ("gres/gpu",))
"""Without ``TRESBillingWeights`` Slurm bills one unit for each processor."""


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


def limits_in_partition(
    commands: Commands, cluster: str, partition: str, qos: str, home: Mapping[str, str]
) -> BurstLimits:
    """The limits of a partition's QOS, if it has one, and how many jobs the associations for it allow.

    Args:
        home: The QOS of each on-premise partition that has one.

    Raises:
        RetryLater: slurmdbd does not say.
    """
    where = ("where", f"cluster={cluster}", f"partition={partition}")
    rows = (line.split("|") for line in commands.text(*_SUBMITS, *where).splitlines())
    of_users = {
        whose(payers_of(account, user)): min(_limit(records.whole(most)) for most in limits)
        for user, account, *limits in rows
        if user and any(limits)
    }
    said = commands.text(*_LIMITS) if qos or home else ""
    there = {name: own for name, of in home.items() if (own := _limits_of(of, said)) != BurstLimits()}
    return structs.replace(_limits_of(qos, said), max_jobs_of_association=of_users, home=there)


def _limits_of(qos: str, said: str) -> BurstLimits:
    for line in said.splitlines():
        found, *words = line.split("|")
        if qos and found == qos and len(words) == _LIMITS[-1].count(","):
            wall, of_all_walls, least, *most, of_all, of_user, of_account = words
            return BurstLimits(
                max_seconds=min(_limit(records.seconds(wall)), _limit(records.seconds(of_all_walls))),
                min_processors=max(_tres([least], "cpu"), default=0.0),
                min_nodes=max(_tres([least], "node"), default=0.0),
                max_of_job=_most(most[:4]),
                max_of_node=_most(most[4:5]),
                max_resource_seconds=_most(most[5:], times=60.0),
                max_jobs=_limit(records.whole(of_all)),
                max_jobs_of_user=_limit(records.whole(of_user)),
                max_jobs_of_account=_limit(records.whole(of_account)),
            )
    return BurstLimits()


def _limit(said: float | None) -> float:
    return math.inf if said is None else float(said)


def _most(texts: Sequence[str], times: float = 1.0) -> PerResource:
    cpu, node, mem, gpu = (
        times * min((most for kind in kinds for most in _tres(texts, kind)), default=math.inf)
        for kinds in _RESOURCES
    )
    return cpu, node, mem, gpu


def _tres(texts: Iterable[str], kind: str) -> list[float]:
    """What lists such as ``cpu=8,mem=16G`` say of one kind; a limit of one GPU type holds for all GPUs."""
    pairs = (part.partition("=") for text in texts for part in text.split(","))
    said = (
        mebibytes(value) if kind == "mem" else records.whole(value)
        for name, _, value in pairs
        if name.partition(":")[0] == kind
    )
    return [float(number) for number in said if number is not None]
