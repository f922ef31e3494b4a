"""Read the reservations that scontrol shows into typed records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from advisor.model.errors import BadInput
from advisor.model.node_sets import expand
from advisor.model.periods import USER
from advisor.model.snapshot import Reservation
from advisor.slurm import records
from advisor.slurm.parsing import pairs_of

_WITHOUT_NODES: Final = frozenset({"LICENSE_ONLY", "ANY_NODES"})
"""Flags of reservations that leave the nodes to all jobs."""
_FOR_EVER: Final = 365 * 86_400


def read_reservations(text: str) -> tuple[Reservation, ...]:
    """Reservations of ``scontrol -o show reservations``; administrators type its values."""
    found = []
    for line in text.splitlines():
        pairs = pairs_of(line)
        name, nodes = pairs.get("ReservationName"), records.text(pairs.get("Nodes", ""), 65536)
        begin, end = records.whole(pairs.get("StartTime", "")), records.whole(pairs.get("EndTime", ""))
        if not name or begin is None or end is None:
            continue
        tres = re.search(r"\bTRES=cpu=([0-9]+[KMGTP]?)", line)
        flags = pairs.get("Flags", "").split(",")
        if not _WITHOUT_NODES.isdisjoint(flags):
            nodes = None
        if "TIME_FLOAT" in flags:  # it never begins, and keeps longer jobs away for ever
            end = begin + _FOR_EVER
        try:
            names = frozenset(expand(nodes) if nodes else ())
        except BadInput:
            continue
        processors = None if tres is None else records.leading(tres[1])
        draws = _draws(pairs) if "MAGNETIC" in flags else frozenset[str]()
        found.append(
            Reservation(
                name=name,
                begin=float(begin),
                end=float(end),
                nodes=names,
                processors=processors,
                draws=draws,
            )
        )
    return tuple(found)


def _draws(pairs: Mapping[str, str]) -> frozenset[str]:
    """Whose jobs a reservation admits; names behind a minus, and groups, are left out."""
    accounts, users = (
        [name for name in (records.text(pairs.get(key, "")) or "").split(",") if name and name[0] != "-"]
        for key in ("Accounts", "Users")
    )
    return frozenset((*accounts, *(USER + user for user in users)))
