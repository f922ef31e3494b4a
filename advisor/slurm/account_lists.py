"""Accounts that a partition lets in or keeps out (AllowAccounts), with those below them; for question 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from advisor.model.snapshot import Partition

INHERITED_FROM: Final = (23, 2)
"""The first release whose ``AllowAccounts`` and ``DenyAccounts`` hold for all accounts below those named."""
_ACCOUNTS: Final = "accounts"


def has_lists(partitions: Iterable[Partition]) -> bool:
    """Whether any partition lists accounts."""
    return any(_ACCOUNTS in one.allowed or _ACCOUNTS in one.denied for one in partitions)


def parents_of(text: str) -> dict[str, str]:
    """Account to the one above it, of the lines ``account|parent`` of ``sacctmgr -P show assoc``."""
    pairs = (line.strip().lower().partition("|") for line in text.splitlines())
    return {account: parent for account, _, parent in pairs if account}


def with_accounts_below(partitions: Iterable[Partition], parents: Mapping[str, str]) -> tuple[Partition, ...]:
    """The partitions, whose lists of accounts name those below as well."""

    def extended(lists: Mapping[str, frozenset[str]]) -> Mapping[str, frozenset[str]]:
        named = lists.get(_ACCOUNTS)
        if named is None:
            return lists
        below = (account for account in parents if _is_below(account, named, parents))
        return {**lists, _ACCOUNTS: named.union(below)}

    return tuple(
        replace(one, allowed=extended(one.allowed), denied=extended(one.denied)) for one in partitions
    )


def _is_below(account: str, named: frozenset[str], parents: Mapping[str, str]) -> bool:
    above = parents.get(account)
    while above and above not in named:
        above = parents.get(above)
    return bool(above)
