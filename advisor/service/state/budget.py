"""The day's money: what was spent, what is promised to nodes, and whether another node may start.

Spent money is counted from running instances, from each launch until the instance is terminated or seen to
be gone: after hours without an advisor, those hours are counted. Each counted stretch of time is stored until
the history has it (:meth:`SpendingBudget.paid`), so that every report adds up the same stretches
(`advisor.model.bill`). The split by account serves only the budgets and errs on the expensive side: a boot is
charged to the account that it is for, and jobs are those of the last snapshot of the queue.

Promised money is what launched nodes will still cost by the forecasts of their jobs. It is written to disk
before the launch, so that a restart forgets nothing. A launch is allowed only while spent, promised and the
new node's money stay within the budget, which is exceeded only as far as running jobs exceed their forecasts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import structlog

from advisor.decide.price.period_budget import Period, period_span, spent_in_period
from advisor.files.state_file import StateFile
from advisor.model.bill import MIN_SECONDS, PaidTime, cost_by_day, day_of, midnight
from advisor.model.errors import TellAdmin
from advisor.service.running.clock import Clock
from advisor.service.state.budget_records import (
    Amounts,
    BudgetFile,
    BudgetRecord,
    LaunchRequest,
    Promise,
    Rebuilt,
    RunningNode,
    Seen,
    SpendingLimit,
    in_all,
    of_history,
    share_out,
)

log = structlog.get_logger(__name__)

_STALE_SECONDS: Final = 900.0  # a promise of a node that never came: a launch that a crash prevented
_MAX_DAYS: Final = 400
_MAX_PAID: Final = 100_000  # stretches kept for a history that cannot be written

Limits: TypeAlias = Sequence[SpendingLimit]


class SpendingBudget:
    """What may still be spent in a day or another period (UTC). Thread-safe.

    Attributes:
        doubt: Why today's spending is unknown until `rebuild`; empty if it is known.
        is_damaged: Whether the stored record was unusable and was set aside. False also at the first start.
    """

    def __init__(self, state: StateFile[BudgetRecord], clock: Clock) -> None:
        self._file = BudgetFile(state)
        self._clock = clock
        self._lock = threading.Lock()
        self._doubted_at = clock.wall()
        found = self._file.read()
        self._is_known, kept = found is not None, found or BudgetRecord.empty()
        self.is_damaged, self.doubt = self._file.is_damaged, self._file.doubt
        self._days, self._unattributed = kept.days, kept.unattributed
        self._seen, self._promises, self._closed = kept.seen, kept.promises, kept.paid
        self._rebuilt, self._saved_at = kept.rebuilt, kept.saved_at
        self._last_count: tuple[float, float] | None = None  # wall, monotonic

    # ------------------------------------------------------------------ rebuilding

    def needs_history(self, since: float) -> bool:
        """Whether what was spent since a moment must be taken from the history: no copy of it was left.

        What was spent after the loss was counted since.
        """
        return bool(self.doubt) and not self._is_known and day_of(self._doubted_at) >= day_of(since)

    def rebuild(
        self,
        running: Sequence[RunningNode],
        ended: Iterable[RunningNode],
        paid: Iterable[PaidTime] | None,
        since: float | None = None,
    ) -> None:
        """Make up for lost records, never for less than what was spent.

        Instances that ran at the last count and are gone are counted until now, and so are those launched
        since. Time counted while the doubt lasted is added to what the history knows. Its accounts are
        unknown here: it counts against the budget of each account.

        Args:
            running: Instances that cost money now; for booting nodes, with the expected cost of their jobs.
            ended: The other instances that EC2 lists.
            paid: Paid stretches since ``since``, if `needs_history`.
            since: A midnight of UTC, epoch seconds; None: the last one.
        """
        with self._lock:
            if not self.doubt:
                return  # another loop has done it meanwhile
            now = self._clock.wall()
            counted_at, mine = self._saved_at, self._paid()
            known = {piece.instance_id for piece in mine}
            if paid is not None:
                begin = midnight(now) if since is None else since
                by_day, seen, counted_at = of_history(list(paid), mine, begin, now)
                self._seen = seen | self._seen
                self._days |= {day: {"": usd} for day, usd in by_day.items()}
                self._unattributed = by_day
                self._last_count = None  # those of the history were counted longer ago
            for item in ended:
                if item.launch_time > counted_at and item.instance_id not in known | self._seen.keys():
                    self._seen[item.instance_id] = Seen.launched_as(item)
            self._rebuilt = Rebuilt(now, self.doubt) if self.is_damaged else Rebuilt()
            why, self.doubt, self._is_known = self.doubt, "", True
            self._count(running)
            if self.is_damaged:
                log.warning("budget.rebuilt", why=why, spent_today_usd=round(self._spent()[0], 4))

    @property
    def rebuilt_today(self) -> str:
        """Why today's spending had to be rebuilt; empty if it was not."""
        time = self._rebuilt.time
        return self._rebuilt.why if time is not None and day_of(time) == self._today() else ""

    # ------------------------------------------------------------------ spending

    def count(self, running: Sequence[RunningNode]) -> None:
        """Add what these nodes have cost since the last count.

        Accounts share a node's price by the processors of their jobs on it. A boot is charged to the account
        that it is for, idle time to the site (account ``""``).
        """
        with self._lock:
            self._count(running)

    def _count(self, running: Sequence[RunningNode]) -> None:
        now, most = self._elapsed()
        before, self._seen = self._seen, {}
        for item in running:
            last = before.pop(item.instance_id, None)
            seen, usd = self._counted(item, last, now, most)
            self._seen[item.instance_id] = seen
            self._keep_promise(item, usd)
        for instance_id, gone in before.items():  # its end is unknown: it is counted until now
            self._end(gone, now, most)
            self._close(gone.paid(instance_id))
        self._drop_stale({item.node for item in running}, now)
        for old in sorted(self._days)[:-_MAX_DAYS]:
            del self._days[old]
        try:
            self._save()
        except OSError as error:  # known in memory still
            log.warning("budget.not_saved", file=str(self._file.path), error=error.strerror)

    def _elapsed(self) -> tuple[float, float]:
        """Wall time, and the longest time that can have passed: a clock that was set adds no hours (F32)."""
        now, steady = self._clock.wall(), self._clock.monotonic()
        last, self._last_count = self._last_count, (now, steady)
        return now, math.inf if last is None else steady - last[1]

    def _counted(self, item: RunningNode, last: Seen | None, now: float, most: float) -> tuple[Seen, float]:
        """An instance counted until now, and the dollars which that adds."""
        begin = last.until if last is not None else item.launch_time or now
        # EC2 may list an instance one poll later than it launched it
        since = _not_before(now - most - (MIN_SECONDS if last is None else 0.0), begin)
        until = max(since, now) if last is not None else max(now, begin + MIN_SECONDS)
        if begin > now + MIN_SECONDS:  # the clock was set back
            since = until = now
        launched = item.launch_time
        seen = Seen(until, item.usd_per_hour, self._shares(item), item.node, since, launched=launched)
        if last is not None and since == last.until and item.usd_per_hour == last.usd_per_hour:
            seen.since = last.since
        elif last is not None:
            self._close(last.paid(item.instance_id))
        return seen, self._spend(since, until, item.usd_per_hour, seen.shares)

    def _end(self, seen: Seen, now: float, most: float) -> None:
        """Count an instance for the last time."""
        if not seen.is_ended:
            begin, seen.is_ended = _not_before(now - most, seen.until), True
            self._spend(begin, now, seen.usd_per_hour, seen.shares)
            seen.until = max(seen.until, now) if begin == seen.until else seen.until

    def _close(self, paid: PaidTime) -> None:
        if paid.until > paid.since:
            self._closed = [*self._closed, paid][-_MAX_PAID:]

    def _shares(self, item: RunningNode) -> dict[str, float]:
        promise = self._promises.get(item.node)
        if item.left_usd is None and promise is not None:
            return {promise.account: 1.0}
        return dict(item.shares)

    def _keep_promise(self, item: RunningNode, usd: float) -> None:
        promise = self._promises.get(item.node)
        if item.left_usd is None:
            if promise is not None:
                promise.usd, promise.is_counted = max(0.0, promise.usd - usd), True
            return
        account = max(item.shares, key=lambda name: item.shares[name], default="")
        self._promises[item.node] = Promise(account, item.left_usd, self._clock.wall(), is_counted=True)

    def _drop_stale(self, alive: set[str], now: float) -> None:
        self._promises = {
            node: promise
            for node, promise in self._promises.items()
            if node in alive or abs(now - promise.time) < _STALE_SECONDS
        }

    # ------------------------------------------------------------------ promising

    def promise(self, requests: Sequence[LaunchRequest], limits: Limits) -> dict[str, str]:
        """Set money aside for nodes that are about to be launched; on disk when this returns.

        Returns:
            Nodes that may not be launched, and the limit that forbids it, in words.

        Raises:
            TellAdmin: There is a limit, and promises cannot be written or what was spent is unknown: nothing
                may be launched.
        """
        if self.is_in_the_way(limits):
            raise TellAdmin(
                f"{self.doubt}: nothing is launched until what was spent today is known", code="budget.doubt"
            )
        with self._lock:
            for request in requests:  # a node asked for again: its earlier promise is replaced
                self._promises.pop(request.node, None)
            refused: dict[str, str] = {}
            for request in requests:
                if why := self._refusal(request, limits):
                    refused[request.node] = why
                    continue
                self._promises[request.node] = Promise(
                    request.account, request.usd, self._clock.wall(), request.usd_per_hour
                )
            try:
                self._save()
            except OSError as error:
                if limits:
                    text = f"{self._file.path} can't be written ({error.strerror})"
                    raise TellAdmin(
                        f"{text}: with a budget nothing is launched until it can", code="budget.not_saved"
                    ) from error
        return refused

    def _refusal(self, request: LaunchRequest, limits: Limits) -> str:
        for limit in limits:
            total, mine = self._exposure(limit, request.account)
            if why := request.refusal(total, mine, limit):
                return why
        return ""

    def is_in_the_way(self, limits: Limits) -> bool:
        """Whether nothing may be launched because what was spent is in doubt."""
        return bool(self.doubt) and (self.is_damaged or bool(limits))

    def release(self, nodes: Iterable[str], *, launched: bool) -> None:
        """Drop the promises of nodes that will cost nothing more.

        Terminated instances are paid until now. One that lived too shortly to be counted is charged the most
        that it can have cost.
        """
        with self._lock:
            now, steady = self._clock.wall(), self._clock.monotonic()
            most = math.inf if self._last_count is None else steady - self._last_count[1]
            for node in nodes:
                promise = self._promises.pop(node, None)
                if not launched:
                    continue
                there = [seen for seen in self._seen.values() if seen.node == node]
                for seen in there:
                    self._end(seen, now, most)
                if promise is not None and not promise.is_counted and not there:
                    self._count_unseen(node, promise, now)

    def _count_unseen(self, node: str, promise: Promise, now: float) -> None:
        since, price = promise.time, promise.usd_per_hour
        hours = max(0.0, now - since) / 3600.0
        usd = max(min(promise.usd, hours * price), MIN_SECONDS / 3600.0 * price)
        until = since + usd / price * 3600.0 if price else since
        self._spend(since, until, price, {promise.account: 1.0})
        name = f"{node} launched {since:.0f}"
        self._close(PaidTime(instance_id=name, node=node, since=since, until=until, usd_per_hour=price))

    def paid(self) -> list[PaidTime]:
        """Counted stretches of time that the history has not confirmed (:meth:`noted`), or that grow."""
        with self._lock:
            return self._paid()

    def _paid(self) -> list[PaidTime]:
        growing = [seen.paid(name) for name, seen in self._seen.items() if seen.until > seen.since]
        return [*self._closed, *growing]

    def launched_at(self, node: str) -> float | None:
        """When EC2 launched the node's present instance, epoch seconds; None if unknown."""
        with self._lock:
            found = [seen.launched for seen in self._seen.values() if seen.node == node and seen.launched]
        return max(found, default=None)

    def noted(self, paid: Iterable[PaidTime]) -> None:
        """Forget stretches that the history has stored."""
        known = set(paid)
        with self._lock:
            self._closed = [piece for piece in self._closed if piece not in known]

    # ------------------------------------------------------------------ reading

    def exposure(self, period: Period) -> tuple[Amounts, Amounts]:
        """Dollars spent since the period (UTC) began, and dollars promised, at the same moment."""
        with self._lock:
            return self._spent(period), self._promised()

    def spent_today(self) -> Amounts:
        """Dollars spent since midnight UTC."""
        with self._lock:
            return self._spent()

    def days(self) -> dict[str, dict[str, float]]:
        """Every day known to account to dollars; ``""`` is idle time and jobs without an account."""
        with self._lock:
            return {day: dict(accounts) for day, accounts in self._days.items()}

    def exhausted(self, limits: Limits) -> tuple[bool, frozenset[str]]:
        """Whether a limit is reached, and which accounts have reached theirs."""
        with self._lock:
            accounts = {
                account
                for limit in limits
                for account, usd in limit.accounts.items()
                if usd and self._exposure(limit, account)[1] >= usd
            }
            is_over = any(limit.usd and self._exposure(limit, "")[0] >= limit.usd for limit in limits)
        return is_over, frozenset(accounts)

    def _spent(self, period: Period = "day") -> Amounts:
        begin, _ = period_span(self._clock.wall(), period)
        by_account: dict[str, float] = {}
        for day, accounts in self._days.items():
            if day_of(begin) <= day <= self._today():
                for account, usd in accounts.items():
                    by_account[account] = by_account.get(account, 0.0) + usd
        return in_all(by_account)

    def _promised(self) -> Amounts:
        by_account: dict[str, float] = {}
        for promise in self._promises.values():
            by_account[promise.account] = by_account.get(promise.account, 0.0) + promise.usd
        return in_all(by_account)

    def _exposure(self, limit: SpendingLimit, account: str) -> tuple[float, float]:
        """Dollars spent or promised in the limit's period: in all, and at most by one account."""
        now = self._clock.wall()
        total = dict.fromkeys(self._days, 0.0)
        own = dict(total)
        for day, accounts in self._days.items():
            total[day], own[day] = sum(accounts.values()), accounts.get(account, 0.0)
        unknown = spent_in_period(self._unattributed, now, limit.period)
        spent = spent_in_period(total, now, limit.period)
        mine = spent_in_period(own, now, limit.period) + (unknown if account else 0.0)
        promises = self._promises.values()
        promised = sum(promise.usd for promise in promises)
        return spent + promised, mine + sum(one.usd for one in promises if one.account == account)

    def _spend(self, since: float, until: float, usd_per_hour: float, shares: Mapping[str, float]) -> float:
        """Add the cost of a stretch of time, to each day its own part."""
        costs = cost_by_day(since, until, usd_per_hour)
        for day, usd in costs.items():
            share_out(self._days.setdefault(day, {}), shares, usd)
        return sum(costs.values())

    def _today(self) -> str:
        return day_of(self._clock.wall())

    def _save(self) -> None:
        if self.doubt and not self._is_known:
            return  # a restart would take a part of the day for the whole day
        self._saved_at = self._clock.wall()
        self._file.write(
            BudgetRecord(
                days=self._days,
                seen=self._seen,
                promises=self._promises,
                paid=self._closed,
                unattributed=self._unattributed,
                rebuilt=self._rebuilt,
                saved_at=self._saved_at,
            )
        )


def _not_before(earliest: float, begin: float) -> float:
    """Begin no earlier; a difference below one second comes from reading two clocks and is no jump."""
    return earliest if earliest - begin >= 1.0 else begin
