"""Expand and fold node list expressions with clustershell, within limits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from advisor.model.errors import BadInput

_LIMIT: Final = 100_000
_CHARACTERS: Final = re.compile(r"[A-Za-z0-9_.,\[\]-]{0,65536}")
_RANGE: Final = re.compile(r"([0-9]{1,12})-([0-9]{1,12})")


@lru_cache(maxsize=4096)
def expand(expression: str) -> tuple[str, ...]:
    """Node names of an expression such as ``burst[1-3,7]``, in order.

    Raises:
        BadInput: The text is no node list, or names more than 100,000 nodes.
    """
    if not _CHARACTERS.fullmatch(expression):
        raise _refused(expression, "it has a character that no node list has")
    if sum(max(0, int(end) - int(begin)) for begin, end in _RANGE.findall(expression)) > _LIMIT:
        raise _refused(expression, f"it names more than {_LIMIT} nodes")
    try:
        # no groups: "@name" would run a command of clustershell's configuration
        nodes = NodeSet(expression, resolver=RESOLVER_NOGROUP)
    except (NodeSetException, ValueError) as error:
        raise _refused(expression, str(error)) from None
    if len(nodes) > _LIMIT:
        raise _refused(expression, f"it names more than {_LIMIT} nodes")
    return tuple(str(name) for name in nodes)


def fold(names: Iterable[str]) -> str:
    """The shortest expression for some nodes.

    Raises:
        BadInput: A name is no node name.
    """
    wanted = list(names)
    for name in wanted:
        if not name or not re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", name):
            raise _refused(name, "it is not a node name")
    return str(NodeSet.fromlist(wanted, resolver=RESOLVER_NOGROUP))


def _refused(expression: str, why: str) -> BadInput:
    return BadInput(
        why,
        where=f"node list {expression[:80]!a}",
        mend="Correct it in slurm.conf, or in ec2.classes if it is from there",
        code="slurm.nodes",
    )
