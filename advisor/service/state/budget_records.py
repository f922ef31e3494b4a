"""The records that the budget counts with, and their form in its file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

import msgspec
import structlog

from advisor.files.field_types import Amount
from advisor.files.state_file import StateFile
from advisor.model.bill import PaidTime, cost_by_day, day_of
from advisor.model.errors import BadInput, TellAdmin
from advisor.model.job import payers_of
from advisor.model.periods import (
    any_of,
    is_user,
    payer_words,
    period_now,
    period_span,
    user_payer,
)
from advisor.model.settings import Settings

log = structlog.get_logger(__name__)

_GROWING_SECONDS: Final = 180.0  # what was counted so shortly before the last count may have run on


Amounts = tuple[float, MappingProxyType[str, float]]
"""US dollars in total and by payer, account or user; money without an account is in the total alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """A node that costs money now.

    Attributes:
        launch_time: When EC2 launched it, epoch seconds; 0 if unknown.
        shares: The share of its price that each account, and each user, pays; the rest is idle time.
        left_usd: The cost to come of its jobs by their forecasts, US dollars; None while it boots.
        least_usd: While it boots: the cost to come of the jobs that wait for it by now.
    """

    instance_id: str
    node: str
    usd_per_hour: float
    launch_time: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    left_usd: float | None = None
    least_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """A node about to be launched: account and user, its expected cost and its price per hour, in dollars."""

    node: str
    account: str
    usd: float
    usd_per_hour: float
    user: str = ""

    def promise(self, now: float) -> Promise:
        """Its money, set aside at a time (epoch seconds)."""
        return Promise(self.account, self.usd, now, self.usd_per_hour, user=self.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingLimit:
    """The money that the burst partition, and single accounts and users, may spend in a period of UTC.

    Attributes:
        usd: US dollars in all; 0: no limit.
        payers: The same by payer (:mod:`advisor.model.periods`); one that is not there, and for which no
            ``*`` stands, has no limit of its own. 0: nothing may be spent.
        period: See :mod:`advisor.model.periods`.
        carries_over: What the period before has left may be spent as well.
    """

    usd: float = 0.0
    payers: Mapping[str, float] = field(default_factory=dict)
    period: str
    carries_over: bool = False

    def of(self, payer: str) -> float | None:
        """The limit of a payer, ``""`` being the site; None: it has none."""
        if not payer:
            return self.usd or None
        return self.payers.get(payer, self.payers.get(any_of(payer)))

    def key(self, payer: str) -> str:
        """A name of the budget of a payer, which the payers for whom ``*`` stands share."""
        return f"{self.period} {payer if not payer or payer in self.payers else any_of(payer)}"

    def others(self, known: Iterable[str]) -> set[str]:
        """The known payers of a kind, account or user, that has a limit by ``*``."""
        return {payer for payer in known if any_of(payer) in self.payers}

    def refusal(self, payer: str, usd: float, taken: float, most: float) -> str:
        """Why ``usd`` more dollars are too many, in words; empty if they are not.

        Args:
            taken: Spent or promised.
            most: What may be, with what was carried over.
        """
        if taken + usd <= most:
            return ""
        whose = f" for {payer_words(payer)}" if payer else ""
        when = period_now(self.period) if payer else f"for {period_now(self.period)}"
        return f"{taken:.2f} USD of {most:.2f}{whose} {when} are spent or promised"


class Given(msgspec.Struct):
    """What a budget gives to the period that begins then (epoch seconds), and gave to the one before."""

    begin: Amount
    usd: Amount
    before: Amount

    def before_period(self, begin: float) -> float:
        """What it gave to the period before one that begins then, epoch seconds."""
        return self.before if self.begin >= begin else self.usd


GivenBudgets = dict[str, Given]
"""By :meth:`SpendingLimit.key`."""


def given_now(known: GivenBudgets | None, limits: Iterable[SpendingLimit], now: float) -> GivenBudgets:
    """What the limits give, as it is known at a time (epoch seconds).

    A budget that is set, raised or lowered has no more, nor less, to carry over from the period before.

    Args:
        known: The same a moment ago; None: nothing was kept yet, and all limits are taken to be old.
    """
    found: GivenBudgets = {}
    for limit in limits:
        begin, _ = period_span(now, limit.period)
        for payer in ("", *limit.payers):
            usd, key = limit.of(payer), limit.key(payer)
            if usd is not None:
                last = Given(begin, usd, usd) if known is None else known.get(key)
                found[key] = Given(begin, usd, 0.0 if last is None else last.before_period(begin))
    return found


def limits_of(settings: Settings) -> tuple[SpendingLimit, ...]:
    """The limits in force: the site's, those of accounts, those of users; empty where there is none."""
    budget = settings.budget
    users = {user_payer(user): usd for user, usd in budget.users.items()}
    found = (
        SpendingLimit(usd=budget.usd, period=budget.period, carries_over=budget.carry_over),
        SpendingLimit(
            payers=budget.accounts,
            period=budget.account_period or budget.period,
            carries_over=budget.carry_over,
        ),
        SpendingLimit(
            payers=users, period=budget.user_period or budget.period, carries_over=budget.carry_over
        ),
    )
    return tuple(limit for limit in found if limit.usd or limit.payers)


@dataclass(slots=True)
class Seen:
    """An instance at its last count."""

    until: Amount
    usd_per_hour: Amount
    shares: dict[str, Amount]
    node: str = ""
    since: Amount = math.nan  # when this stretch at one price began
    is_ended: bool = False  # EC2 was told to end it
    launched: Amount = 0.0  # 0: not known

    def __post_init__(self) -> None:
        """A stretch whose beginning a former release did not say begins where it was counted last."""
        if math.isnan(self.since):
            self.since = self.until

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
    """Money set aside for a node: for the account and the user that it is launched for.

    Attributes:
        shares: The parts of those whose jobs are on it, once it is up.
    """

    account: str
    usd: Amount
    time: Amount
    usd_per_hour: Amount = 0.0
    is_counted: bool = False  # its instance has been counted: what it cost is known
    user: str = ""
    shares: dict[str, Amount] = field(default_factory=dict)

    @property
    def by_payer(self) -> dict[str, float]:
        """The share that each account, and each user, pays."""
        return self.shares or dict.fromkeys(payers_of(self.account, self.user), 1.0)


def in_all(by_account: Mapping[str, float]) -> Amounts:
    """The total, and each account's part of it."""
    named = {account: usd for account, usd in by_account.items() if account}
    return sum(by_account.values()), MappingProxyType(named)


def share_out(day: dict[str, float], shares: Mapping[str, float], usd: float) -> None:
    """Add dollars to a day's accounts; what the shares leave is idle time."""
    named = {account: share for account, share in shares.items() if account and not is_user(account)}
    for account, share in named.items():
        day[account] = day.get(account, 0.0) + usd * share
    day[""] = day.get("", 0.0) + usd * max(0.0, 1.0 - sum(named.values()))


class Rebuilt(msgspec.Struct):
    """When (epoch seconds) and why the day's spending was rebuilt; None: never."""

    time: float | None = None
    why: str = ""


class BudgetRecord(msgspec.Struct, kw_only=True):
    """All that survives a restart. What says how much was spent is required: a file without it is damaged.

    Attributes:
        days: US dollars by day of UTC and account; ``""`` is no account's.
        users: The parts of it that are a user's, by day of UTC and user.
        seen: Instances that were running when they were counted last.
        promises: Money set aside, by node.
        paid: Stretches that have ended and the history has not got.
        unattributed: US dollars by day that were rebuilt: whose they are is not known.
        saved_at: Epoch seconds.
        began: When the first record was begun, epoch seconds; 0: not known.
        given: What the budgets give; None: no budget was looked at yet, or by a former release.
    """

    days: dict[str, dict[str, Amount]]
    seen: dict[str, Seen]
    promises: dict[str, Promise]
    paid: list[PaidTime]
    unattributed: dict[str, Amount] = {}
    rebuilt: Rebuilt = msgspec.field(default_factory=Rebuilt)
    saved_at: Amount = 0.0
    users: dict[str, dict[str, Amount]] = {}
    began: Amount = 0.0
    given: dict[str, Given] | None = None

    def __post_init__(self) -> None:
        """Refuse negative amounts in what was paid."""
        if any(min(piece.since, piece.until, piece.usd_per_hour) < 0.0 for piece in self.paid):
            raise ValueError("a negative amount in paid")

    @classmethod
    def empty(cls, began: float = 0.0) -> Self:
        """The record of a first start."""
        return cls(days={}, seen={}, promises={}, paid=[], began=began)


class BudgetFile:
    """The state file of the budget, and the copy of its former content.

    Args:
        state: The file; the copy is beside it.

    Attributes:
        is_damaged: Whether the file or its copy could not be used and was set aside.
        doubt: Why spending may be missing in what `read` returned; empty if nothing is.
        unwritten: Why the last `write` failed; empty if it succeeded.
    """

    def __init__(self, state: StateFile[BudgetRecord]) -> None:
        self._state = state
        self.path = state.path
        self.is_damaged = False
        self.doubt = self.unwritten = ""

    def read(self) -> BudgetRecord | None:
        """The last record written, else the one before it; None if neither can be used.

        Raises:
            RetryLater: This process cannot open them for the moment.
        """
        for file in (self._state, self._state.former):
            try:
                content = file.load()
            except BadInput as error:
                file.set_aside(str(error))
                self.is_damaged = True
                self.doubt = f"{file.path.name} was damaged"
                continue
            if content is not None:
                return content
            self.doubt = self.doubt or f"there was no {file.path.name}"
        return None

    def write(self, content: BudgetRecord) -> None:
        """Replace the record; when this returns, it survives a power cut.

        Raises:
            OSError: It could not be written; the previous record stays.
        """
        try:
            self._state.write_keeping_former(content)
        except OSError as error:
            if not self.unwritten:
                log.warning("budget.not_saved", file=str(self.path), error=error.strerror)
            self.unwritten = f"{self.path} cannot be written ({error.strerror})"
            raise
        self.unwritten = ""

    def not_saved(self, error: OSError) -> TellAdmin:
        """The error of a launch whose promise cannot be written, on a site with a budget."""
        return TellAdmin(
            f"{self.path} cannot be written ({error.strerror}): with a budget nothing is launched until it "
            "can. Make room on its disk, or give its folder to the service's user",
            code="budget.not_saved",
        )


def of_history(
    paid: Sequence[PaidTime], mine: Sequence[PaidTime], since: float, now: float
) -> tuple[dict[str, float], dict[str, Seen], float]:
    """The spending of the period in the history, together with that counted in memory since.

    Args:
        mine: Stretches in memory; the history may have some of them, and shorter ones of the same instances.
        since: Begin of the period, a midnight of UTC, epoch seconds.
        now: Epoch seconds.

    Returns:
        US dollars spent on each day of the period.
        Instances that only the history knows and that may still run.
        The end of the history's last stretch, epoch seconds; 0 if it has none.
    """
    spans: dict[str, list[PaidTime]] = {}
    for piece in mine:
        spans.setdefault(piece.instance_id, []).append(piece)
    others = [
        piece
        for piece in paid
        if not any(own.since <= piece.since < own.until for own in spans.get(piece.instance_id, ()))
    ]
    by_day = {day_of(now): 0.0}
    for piece in [*others, *mine]:
        for day, usd in cost_by_day(piece.since, piece.until, piece.usd_per_hour).items():
            if day >= day_of(since):
                by_day[day] = by_day.get(day, 0.0) + usd
    counted_at = max((piece.until for piece in paid), default=0.0)
    seen = {
        piece.instance_id: Seen(
            piece.until, piece.usd_per_hour, {}, piece.node, piece.since, launched=piece.since
        )
        for piece in sorted(paid, key=lambda piece: piece.until)
        if min(now, counted_at) - piece.until < _GROWING_SECONDS and piece.instance_id not in spans
    }
    return by_day, seen, counted_at
