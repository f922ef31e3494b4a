"""The records that the budget counts with, and their form in its file."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final, Self

from advisor.files.state_file import StateFile
from advisor.model.bill import PaidTime, cost_by_day, day_of
from advisor.model.errors import AdvisorError
from advisor.model.settings import WaitingSettings

_GROWING_SECONDS: Final = 180.0  # what was counted so shortly before the last count may have run on


Amounts = tuple[float, MappingProxyType[str, float]]
"""US dollars in total and by account; money without an account is in the total alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """A node that costs money now.

    Attributes
    ----------
    launch_time : float
        When EC2 launched it, epoch seconds; 0 if unknown.
    shares : mapping of account to float
        The share of its price that each account pays; the rest is idle time.
    left_usd : float or None
        What its jobs will still cost by their forecasts; None while it boots.
    """

    instance_id: str
    node: str
    usd_per_hour: float
    launch_time: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    left_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """A node about to be launched: its account, its expected cost and its price per hour, in dollars."""

    node: str
    account: str
    usd: float
    usd_per_hour: float

    def refusal(self, total: float, mine: float, caps: WaitingSettings) -> str:
        """Which cap forbids it, in words; empty if none does.

        ``total`` and ``mine`` are dollars spent or promised today: in total, and for the node's account.
        """
        cap = caps.daily_cap_usd
        if cap and total + self.usd > cap:
            return f"{total:.2f} USD of {cap:.2f} for today are spent or promised"
        cap = caps.account_daily_cap_usd.get(self.account, 0.0)
        if cap and mine + self.usd > cap:
            return f"{mine:.2f} USD of {cap:.2f} for account {self.account} today are spent or promised"
        return ""


@dataclass(slots=True)
class Seen:
    """An instance at its last count."""

    until: float
    usd_per_hour: float
    shares: dict[str, float]
    node: str = ""
    since: float = math.nan  # when this stretch at one price began
    is_ended: bool = False  # EC2 was told to end it
    launched: float = 0.0  # 0: not known

    @classmethod
    def launched_as(cls, item: RunningNode) -> Self:
        """An instance of which nothing has been counted yet."""
        began = item.launch_time
        return cls(began, item.usd_per_hour, {}, item.node, began, launched=began)

    def paid(self, instance_id: str) -> PaidTime:
        """The stretch counted until now."""
        return PaidTime(
            instance_id=instance_id,
            node=self.node,
            since=self.since,
            until=self.until,
            usd_per_hour=self.usd_per_hour,
        )


@dataclass(slots=True)
class Promise:
    """Money set aside for a node."""

    account: str
    usd: float
    time: float
    usd_per_hour: float = 0.0
    is_counted: bool = False  # its instance has been counted: what it cost is known


def in_all(by_account: Mapping[str, float]) -> Amounts:
    """The total, and each account's part of it."""
    named = {account: usd for account, usd in by_account.items() if account}
    return sum(by_account.values()), MappingProxyType(named)


def share_out(day: dict[str, float], shares: Mapping[str, float], usd: float) -> None:
    """Add dollars to a day's accounts; what the shares leave is idle time."""
    named = {account: share for account, share in shares.items() if account}
    for account, share in named.items():
        day[account] = day.get(account, 0.0) + usd * share
    day[""] = day.get("", 0.0) + usd * max(0.0, 1.0 - sum(named.values()))


@dataclass(slots=True, kw_only=True)
class Kept:
    """All that survives a restart.

    Attributes
    ----------
    days : dict of str to dict of str to float
        US dollars by day of UTC and account; ``""`` is nobody's.
    seen : dict of str to Seen
        Instances that were running when they were counted last.
    promises : dict of str to Promise
        Money set aside, by node.
    paid : list of PaidTime
        Stretches that have ended and the history has not got.
    unattributed : dict of str to float
        US dollars by day that were rebuilt: whose they are is not known.
    rebuilt : dict
        When and why the day's spending was rebuilt; empty where it never was.
    saved_at : float
        Epoch seconds.
    """

    days: dict[str, dict[str, float]] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    promises: dict[str, Promise] = field(default_factory=dict)
    paid: list[PaidTime] = field(default_factory=list)
    unattributed: dict[str, float] = field(default_factory=dict)
    rebuilt: dict[str, Any] = field(default_factory=dict)
    saved_at: float = 0.0


class BudgetFile:
    """Where the budget is kept, and its copy of the time before.

    Parameters
    ----------
    state : StateFile
        The file; the copy is beside it.

    Attributes
    ----------
    path : Path
        The file's.
    is_damaged : bool
        What was kept could not be used, and was set aside.
    doubt : str
        Why what `read` returned may not be all; empty where it is.
    """

    def __init__(self, state: StateFile) -> None:
        self._state = state
        self._previous = StateFile(state.path.with_name(state.path.name + ".old"))
        self.path = state.path
        self.is_damaged = False
        self.doubt = ""

    def read(self) -> Kept | None:
        """The last record written, else the one before it; None if neither can be used."""
        for file in (self._state, self._previous):
            try:
                content = file.load()
                if content is not None and not _is_whole(content):
                    raise file.damaged("amounts that are none")
            except AdvisorError as error:
                file.set_aside(str(error))
                self.is_damaged = True
                self.doubt = f"{file.path.name} was damaged"
                continue
            if content is not None:
                return _decoded(content)
            self.doubt = self.doubt or f"there was no {file.path.name}"
        return None

    def write(self, kept: Kept) -> None:
        """Replace the record; when this returns, it survives a power cut.

        Raises
        ------
        OSError
            It could not be written; the previous record stays.
        """
        self._state.write_after(self._previous, asdict(kept))


def _decoded(content: Mapping[str, Any]) -> Kept:
    return Kept(
        days={str(day): _amounts(accounts) for day, accounts in _items(content.get("days"))},
        seen=dict(_seen(content.get("seen"))),
        promises=dict(_promises(content.get("promises"))),
        paid=list(_closed(content.get("paid"))),
        unattributed=_amounts(content.get("unattributed")),
        rebuilt=dict(_items(content.get("rebuilt"))),
        saved_at=float(content["saved_at"]) if _is_amount(content.get("saved_at")) else 0.0,
    )


def _items(content: object) -> Iterable[tuple[Any, Any]]:
    return content.items() if isinstance(content, Mapping) else ()


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and 0.0 <= value <= sys.float_info.max


def _is_whole(content: Mapping[str, Any]) -> bool:
    """Whether nothing of a file is lost when it is read."""
    try:
        days = content.get("days", {})
        read = {
            "days": sum(len(_amounts(accounts)) for _, accounts in _items(days)),
            "seen": len(list(_seen(content.get("seen")))),
            "promises": len(list(_promises(content.get("promises")))),
            "paid": len(list(_closed(content.get("paid")))),
        }
        there = {name: len(content.get(name, ())) for name in ("seen", "promises", "paid")}
        there["days"] = sum(len(accounts) for accounts in days.values())
    except (AttributeError, TypeError, ValueError):
        return False
    return read == there


def _amounts(content: object) -> dict[str, float]:
    return {str(name): float(value) for name, value in _items(content) if _is_amount(value)}


def _seen(content: object) -> Iterable[tuple[str, Seen]]:
    for name, entry in _items(content):
        if (
            isinstance(entry, Mapping)
            and _is_amount(entry.get("until"))
            and _is_amount(entry.get("usd_per_hour"))
        ):
            until, price = float(entry["until"]), float(entry["usd_per_hour"])
            # an earlier release did not say these: the stretch begins here
            since, launched = entry.get("since", math.nan), entry.get("launched", math.nan)
            yield (
                str(name),
                Seen(
                    until,
                    price,
                    _amounts(entry.get("shares")),
                    str(entry.get("node", "")),
                    float(since) if _is_amount(since) else until,
                    entry.get("is_ended") is True,
                    float(launched) if _is_amount(launched) else 0.0,
                ),
            )


def _closed(content: object) -> Iterable[PaidTime]:
    for entry in content if isinstance(content, list) else ():
        amounts = [entry.get(name) for name in ("since", "until", "usd_per_hour")]
        if all(map(_is_amount, amounts)):
            since, until, price = map(float, amounts)
            names = {name: str(entry.get(name, "")) for name in ("instance_id", "node")}
            yield PaidTime(since=since, until=until, usd_per_hour=price, **names)


def _promises(content: object) -> Iterable[tuple[str, Promise]]:
    for node, entry in _items(content):
        if not isinstance(entry, Mapping):
            continue
        amounts = [entry.get(name) for name in ("usd", "time", "usd_per_hour")]
        if all(map(_is_amount, amounts)):
            usd, time, price = map(float, amounts)  # type: ignore[arg-type]
            account, is_counted = str(entry.get("account", "")), entry.get("is_counted") is True
            yield str(node), Promise(account, usd, time, price, is_counted)


def of_history(
    paid: Sequence[PaidTime], mine: Sequence[PaidTime], now: float
) -> tuple[float, dict[str, Seen], float]:
    """What the history knows of the day, together with what was counted in memory since.

    Parameters
    ----------
    paid : sequence of PaidTime
        Stretches that the history has.
    mine : sequence of PaidTime
        Stretches in memory; the history may have some of them, and shorter ones of the same instances.
    now : float
        Epoch seconds.

    Returns
    -------
    float
        US dollars spent since midnight UTC.
    dict of str to Seen
        Instances that only the history knows and that may still run.
    float
        The end of the history's last stretch, epoch seconds; 0 if it has none.
    """
    today = day_of(now)
    spans: dict[str, list[PaidTime]] = {}
    for piece in mine:
        spans.setdefault(piece.instance_id, []).append(piece)
    others = [
        piece
        for piece in paid
        if not any(own.since <= piece.since < own.until for own in spans.get(piece.instance_id, ()))
    ]
    usd = 0.0
    for piece in [*others, *mine]:
        usd += cost_by_day(piece.since, piece.until, piece.usd_per_hour).get(today, 0.0)
    counted_at = max((piece.until for piece in paid), default=0.0)
    seen = {
        piece.instance_id: Seen(
            piece.until, piece.usd_per_hour, {}, piece.node, piece.since, launched=piece.since
        )
        for piece in sorted(paid, key=lambda piece: piece.until)
        if min(now, counted_at) - piece.until < _GROWING_SECONDS and piece.instance_id not in spans
    }
    return usd, seen, counted_at
