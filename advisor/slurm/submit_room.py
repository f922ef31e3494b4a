"""How many more jobs may be submitted, by the limits of jobs in the queue, as slurmctld counts them.

Where there is little room, no placeholders are submitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from advisor.model.submit_limits import SubmitKey

_LIMIT = re.compile(r"\b(?:Grp|Max)SubmitJobs(?:PU|PA)?=(\d+)\((\d+)\)")
_ASSOCIATION = re.compile(r"ClusterName=\S* Account=(\S*) UserName=([^\s(]*)(?:\((\d+)\))?")
_PARENT = re.compile(r"\bParentAccount=([^\s(]+)")
_MIN_LEFT: Final = 100
"""A user may submit as many before it is noticed."""


def shares_left(text: str) -> dict[SubmitKey, float]:
    """The least share that is left of the limits of each association, account and QOS that has any.

    It is 0 where fewer than a hundred jobs are left. An account has what is left of those above it.

    Args:
        text: What ``scontrol show assoc_mgr flags=assoc,qos`` prints.
    """
    found, parents, names = dict[SubmitKey, float](), dict[str, str](), dict[str, str]()
    key, section = SubmitKey(), ""
    for line in map(str.strip, text.splitlines()):
        if association := _ASSOCIATION.match(line):
            account, user, uid = association.groups("")
            names[uid] = user
            key, section = SubmitKey(account=account, user=user), ""
        elif line.startswith("QOS="):
            key, section = SubmitKey(qos=line[4:].partition("(")[0]), ""
        elif line in {"Account Limits", "User Limits"}:
            section = line
        elif section and "=" not in line:  # the accounts and users whose jobs a QOS counts; users by number
            name = line.partition("(")[0]
            whose = {"account": name} if section[0] == "A" else {"user": names.get(name, name)}
            key = SubmitKey(qos=key.qos, **whose)
        elif not (key.qos or key.user) and (parent := _PARENT.search(line)):
            parents[key.account] = parent[1]
        for most, used in _LIMIT.findall(line):
            left = int(most) - int(used)
            share = left / int(most) if left >= _MIN_LEFT else 0.0
            found[key] = min(share, found.get(key, 1.0))
    return found | _of_accounts(found, parents)


def _of_accounts(found: Mapping[SubmitKey, float], parents: Mapping[str, str]) -> dict[SubmitKey, float]:
    """What is left of each account, with those above it."""
    shares = {}
    for account in parents:
        above, share = [account], 1.0
        while above[-1]:
            share = min(share, found.get(SubmitKey(account=above[-1]), 1.0))
            parent = parents.get(above[-1], "")
            above.append("" if parent in above else parent)
        if share < 1.0:
            shares[SubmitKey(account=account)] = share
    return shares
