"""The order of each queue's jobs: its priority and, where it has FAIRSHARE, the shares of its users. Pure.

The dynamic priority of a user or group is shares / load, where load = CPU_TIME_FACTOR * hours of CPU time +
RUN_TIME_FACTOR * hours of run time of running jobs + RUN_JOB_FACTOR * (1 + slots). bqueues shows it with
three decimals, which do not tell the users of many slots apart: it is computed again from the other columns,
and that is used where it agrees with what is shown.

Source: IBM, "Dynamic user priority" (Spectrum LSF 10.1), and the columns of volclava 2.2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from advisor.lsf.answers import Queue, read_max_priority
from advisor.model.queue_order import QueueOrder, ShareAccount

QUEUE_STEP: Final = 1 << 40
"""Between the priorities of jobs of two queues whose own differ by one."""
_FIRST: Final = QUEUE_STEP - (1 << 21)
"""Of the next job of a queue with shares; the others are below it."""
_FACTORS: Final = {"CPU_TIME_FACTOR": 0.7, "RUN_TIME_FACTOR": 0.7, "RUN_JOB_FACTOR": 3.0}
_FACTOR: Final = re.compile(
    r"^\s*(CPU_TIME_FACTOR|RUN_TIME_FACTOR|RUN_JOB_FACTOR)\s*[=:]\s*([0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})\s*$"
)
_ASSIGNED: Final = re.compile(r"\[\s*([^\s,\[\]]+)\s*,\s*([0-9]{1,9})\s*\]")
_ROUNDING: Final = 0.001


def priority_of_queue(queue: Queue | None) -> int:
    """The lowest priority of a job in a queue."""
    return QUEUE_STEP * (0 if queue is None else queue.priority)


def own_priority(given: int | None, most: int | None) -> int:
    """What a job's ``-sp`` adds: half of the most where its user has given none."""
    return 0 if most is None else most // 2 if given is None else given


def queue_orders(
    queues: Mapping[str, Queue], pages: str, parameters: str, groups: Mapping[str, Sequence[str]]
) -> dict[str, QueueOrder]:
    """The order of each queue.

    Args:
        pages: The answer of ``bqueues -r``; empty where no queue has FAIRSHARE.
        parameters: The answer of ``bparams -l``.
        groups: The users of each user group, by ``bugroup -r -w``.
    """
    most = read_max_priority(parameters)
    orders = {
        name: QueueOrder(first_priority=priority_of_queue(queue) + own_priority(None, most))
        for name, queue in queues.items()
    }
    general = _factors(parameters, _FACTORS)
    for page in re.split(r"^QUEUE:", pages, flags=re.MULTILINE)[1:]:
        name = next(iter(page.split(maxsplit=1)), "")
        assigned = next((line for line in page.splitlines() if line.startswith("USER_SHARES:")), "")
        if assigned and name in queues:
            first = priority_of_queue(queues[name]) + _FIRST
            shares = {user: float(count) for user, count in _ASSIGNED.findall(assigned)}
            factors = _factors(page, general)
            orders[name] = QueueOrder(
                first_priority=first,
                default_shares=shares.get("default", shares.get("others", 1.0)),
                accounts=_accounts(page, factors, groups),
                slot_load=factors["RUN_JOB_FACTOR"],
            )
    return orders


def _factors(text: str, otherwise: Mapping[str, float]) -> dict[str, float]:
    said = (match.groups() for line in text.splitlines() if (match := _FACTOR.match(line)))
    return {**otherwise, **{name: float(number) for name, number in said}}


def _accounts(
    page: str, factors: Mapping[str, float], groups: Mapping[str, Sequence[str]]
) -> tuple[ShareAccount, ...]:
    found: list[ShareAccount] = []
    above: tuple[str, ...] | None = None
    header: list[str] = []
    for line in page.splitlines():
        words = line.split()
        if line.startswith("SHARE_INFO_FOR:") and len(words) > 1:
            above = tuple(words[1].strip("/").split("/")[1:])
        elif above is not None and words[:1] == ["USER/GROUP"]:
            header = words
        elif above is None or not words:
            above = None
        elif (account := _account(above, dict(zip(header, words, strict=False)), factors)) is not None:
            users = frozenset(groups.get(account.path[-1], ()))
            found.append(replace(account, users=users))
    return tuple(found)


def _account(
    above: tuple[str, ...], row: Mapping[str, str], factors: Mapping[str, float]
) -> ShareAccount | None:
    """One row; None where it cannot be read."""
    try:
        shares, shown = float(row["SHARES"]), float(row["PRIORITY"])
        slots, cpu, run = (_number(row, name) for name in ("STARTED", "CPU_TIME", "RUN_TIME"))
        slots += _number(row, "RESERVED")
    except (KeyError, ValueError):
        return None
    if not all(map(math.isfinite, (shares, shown, slots, cpu, run))):
        return None
    run_load = factors["RUN_TIME_FACTOR"] * run / 3600.0
    load = factors["CPU_TIME_FACTOR"] * cpu / 3600.0 + run_load + factors["RUN_JOB_FACTOR"] * (1.0 + slots)
    if load <= 0.0 or (shown > 0.0 and abs(shares / load - shown) > _ROUNDING):
        load = shares / max(shown, _ROUNDING)
    return ShareAccount(
        path=(*above, row["USER/GROUP"].rstrip("/")), shares=shares, load=load, run_load=run_load
    )


def _number(row: Mapping[str, str], name: str) -> float:
    word = row.get(name, "0")
    return 0.0 if word == "-" else float(word)
