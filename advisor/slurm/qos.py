"""What Slurm's accounting says of QOS."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.slurm.commands import Commands

_PREEMPTS = ("sacctmgr", "-nP", "show", "qos", "format=name,preempt")


def preempting_qos(commands: Commands) -> Mapping[str, frozenset[str]]:
    """The QOS whose jobs each QOS may preempt; those that may preempt none are left out.

    Raises:
        RetryLater: slurmdbd does not say.
    """
    rows = (line.partition("|") for line in commands.text(*_PREEMPTS).splitlines())
    return {name: frozenset(of.split(",")) for name, _, of in rows if of}
