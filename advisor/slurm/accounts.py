"""What Slurm's accounting says of QOS and associations."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.slurm.commands import Commands

_ASSOCIATIONS = ("sacctmgr", "-nP", "show", "associations", "format=user,account,partition")
_PREEMPTS = ("sacctmgr", "-nP", "show", "qos", "format=name,preempt")


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
