"""How many more jobs a user may submit, by the limits of jobs in the queue, as slurmctld counts them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_LIMIT = re.compile(r"\b(?:Grp|Max)SubmitJobs(?:PU|PA)?=(\d+)\((\d+)\)")
_ASSOCIATION = re.compile(r"ClusterName=\S* Account=(\S*) UserName=([^\s(]*)")
_PARENT = re.compile(r"\bParentAccount=([^\s(]+)")


def least_left(text: str, user: Collection[str], account: str, qos: str) -> tuple[int, float]:
    """Further jobs that the limits leave a user, and the least share that one of them leaves; 1: no limit.

    Args:
        text: What ``scontrol show assoc_mgr flags=assoc,qos`` prints.
        user: Name and number.
    """
    found = list(_counted(text, user, account, qos))
    left = min((most - used for most, used in found), default=0)
    return left, min(((most - used) / max(1, most) for most, used in found), default=1.0)


def _counted(text: str, user: Collection[str], account: str, qos: str) -> Iterator[tuple[int, int]]:
    """Each limit that counts the user's jobs in an account, and what is used of it."""
    of_accounts, parents = dict[str, list[tuple[int, int]]](), dict[str, str]()
    name, section, counts = "", frozenset[str](), False
    for line in map(str.strip, text.splitlines()):
        if association := _ASSOCIATION.match(line):
            name, section = association[1] if not association[2] else "", frozenset()
            counts = association[1] == account and association[2] in user
        elif line.startswith("QOS="):
            name, section, counts = "", frozenset(), line[4:].partition("(")[0] == qos
        elif line in {"Account Limits", "User Limits"}:
            section, counts = frozenset((account,) if line[0] == "A" else user), False
        elif section and "=" not in line:
            counts = line.partition("(")[0] in section
        elif name and (parent := _PARENT.search(line)):
            parents[name] = parent[1]
        limits = [(int(most), int(used)) for most, used in _LIMIT.findall(line)]
        if counts:
            yield from limits
        elif name:
            of_accounts.setdefault(name, []).extend(limits)
    while account in of_accounts:
        yield from of_accounts.pop(account)
        account = parents.get(account, "")
