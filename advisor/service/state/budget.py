"""The budgets' money: what was spent, what is promised to nodes, and whether another node may start.

Spent money is counted from running instances, from each launch until the instance is terminated or seen to
be gone: after hours without an advisor, those hours are counted. Each counted stretch of time is stored until
the history has it (:meth:`SpendingBudget.paid`), so that every report adds up the same stretches
(`advisor.model.bill`). The split by account serves only the budgets and errs on the expensive side: a boot is
charged to the account that it is for, and jobs are those of the last snapshot of the queue.

Promised money is what launched nodes may still cost: the longest runs of their jobs where a budget is set,
else their forecasts (`advisor.service.cloud.reckoning`). It is written to disk before the launch, so that a
restart forgets nothing. A launch is allowed only while spent, promised and the new node's money stay within
each budget.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import structlog

from advisor.files.state_file import StateFile
from advisor.model.bill import MIN_SECONDS, PaidTime, day_of, midnight
from advisor.model.errors import TellAdmin
from advisor.service.running.clock import Clock
from advisor.service.state.budget_limits import Books, BudgetNow, JudgedBudgets, Limits
from advisor.service.state.budget_records import (
    Amounts,
    BudgetFile,
    BudgetRecord,
    LaunchRequest,
    Promise,
    Rebuilt,
    RunningNode,
    Seen,
    given_now,
    of_history,
)
from advisor.service.state.spent_days import SpentDays

log = structlog.get_logger(__name__)

_STALE_SECONDS: Final = 900.0  # a promise of a node that never came: a launch that a crash prevented
_TWO_CLOCKS_SECONDS: Final = 1.0  # a smaller difference comes from reading two clocks and is no jump
_MAX_PAID: Final = 100_000  # stretches kept for a history that cannot be written


class SpendingBudget:
    """The spending of a day or another period (UTC), with the money promised to nodes. Thread-safe.

    Attributes:
        file: The stored record, and whether it could be written.
        doubt: Why what was spent is unknown until `rebuild`; empty if it is known.
        is_damaged: Whether the stored record was unusable and was set aside. False also at the first start.
    """

    def __init__(self, state: StateFile[BudgetRecord], clock: Clock) -> None:
        self.file = BudgetFile(state)
        self._clock = clock
        self._lock = threading.Lock()
        self._doubted_at = clock.wall()
        found = self.file.read()
        self._is_known, self._kept = found is not None, found or BudgetRecord.empty()
        kept = self._kept
        self.is_damaged, self.doubt = self.file.is_damaged, self.file.doubt
        self._days = SpentDays(kept.days, kept.users)  # it changes these two in place, for the next save
        kept.began = kept.began or self._days.first_time() or self._doubted_at
        self._held_since = dict.fromkeys(kept.promises, clock.monotonic())  # node: seen last, or promised
        is_back = self._doubted_at < kept.saved_at  # how long no advisor ran is not known then
        self._last_count = (kept.saved_at, clock.monotonic()) if is_back else None  # wall, monotonic

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
            counted_at, mine = self._kept.saved_at, self._paid()
            known = {piece.instance_id for piece in mine}
            if paid is not None:
                begin = midnight(now) if since is None else since
                paid = list(paid)
                by_day, seen, counted_at = of_history(paid, mine, begin, now)
                self._kept.seen = seen | self._kept.seen
                self._days.replace(by_day)
                self._kept.unattributed = by_day
                # nothing is carried over from days of which the history says nothing
                self._kept.began = min([self._kept.began, *(midnight(piece.since) for piece in paid)])
                self._last_count = None  # those of the history were counted longer ago
            for item in ended:
                if item.launch_time > counted_at and item.instance_id not in known | self._kept.seen.keys():
                    self._kept.seen[item.instance_id] = Seen.launched_as(item)
            self._kept.rebuilt = Rebuilt(now, self.doubt) if self.is_damaged else Rebuilt()
            why, self.doubt, self._is_known = self.doubt, "", True
            self._count(running)
            if self.is_damaged:
                usd, _ = self._days.of_accounts(now, "day")
                log.warning("budget.rebuilt", why=why, spent_today_usd=round(usd, 4))

    @property
    def rebuilt_today(self) -> str:
        """Why the record of spending had to be rebuilt today; empty if it was not."""
        time = self._kept.rebuilt.time
        is_today = time is not None and day_of(time) == day_of(self._clock.wall())
        return self._kept.rebuilt.why if is_today else ""

    # ------------------------------------------------------------------ spending

    def count(self, running: Sequence[RunningNode]) -> None:
        """Add what these nodes have cost since the last count.

        Accounts share a node's price by their jobs' processors. A boot is of the account that it is for.
        """
        with self._lock:
            self._count(running)

    def renew(self, running: Iterable[RunningNode]) -> None:
        """Promise nodes that are up what their jobs may still cost: one may have begun since the count."""
        with self._lock:
            for item in running:
                if item.left_usd is not None or item.least_usd:
                    self._keep_promise(item, 0.0)

    def _count(self, running: Sequence[RunningNode]) -> None:
        now, most = self._elapsed()
        before, self._kept.seen = self._kept.seen, {}
        for item in running:
            last = before.pop(item.instance_id, None)
            seen, usd = self._counted(item, last, now, most)
            self._kept.seen[item.instance_id] = seen
            self._keep_promise(item, usd)
        for instance_id, gone in before.items():  # its end is unknown: it is counted until now
            self._end(gone, now, most)
            self._close(gone.paid(instance_id))
        self._drop_stale({item.node for item in running})
        self._days.forget_old()
        with suppress(OSError):  # known in memory still; `file.unwritten` tells it
            self._save()

    def _elapsed(self) -> tuple[float, float]:
        """Wall time, and the longest time that can have passed: a clock that was set adds no hours (F32).

        What was counted goes with the clock: a minute that is paid in advance is not counted again.
        """
        now, steady = self._clock.wall(), self._clock.monotonic()
        last, self._last_count = self._last_count, (now, steady)
        if last is None:
            return now, math.inf
        most = steady - last[1]
        if abs(jump := now - last[0] - most) >= _TWO_CLOCKS_SECONDS:
            for name, seen in self._kept.seen.items():
                self._close(seen.paid(name))
                seen.since = seen.until = seen.until + jump
        return now, most

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
        return seen, self._days.add(since, until, item.usd_per_hour, seen.shares)

    def _end(self, seen: Seen, now: float, most: float) -> None:
        """Count an instance for the last time."""
        if not seen.is_ended:
            begin, seen.is_ended = _not_before(now - most, seen.until), True
            self._days.add(begin, now, seen.usd_per_hour, seen.shares)
            seen.until = max(seen.until, now) if begin == seen.until else seen.until

    def _close(self, paid: PaidTime) -> None:
        if paid.until > paid.since:
            self._kept.paid = [*self._kept.paid, paid][-_MAX_PAID:]

    def _shares(self, item: RunningNode) -> dict[str, float]:
        promise = self._kept.promises.get(item.node)
        if item.left_usd is None and promise is not None:
            return promise.by_payer
        return dict(item.shares)

    def _keep_promise(self, item: RunningNode, usd: float) -> None:
        promise = self._kept.promises.get(item.node)
        if item.left_usd is None:
            if promise is not None:
                promise.usd, promise.is_counted = max(item.least_usd, promise.usd - usd), True
            return
        now, shares = self._clock.wall(), dict(item.shares)
        self._kept.promises[item.node] = Promise("", item.left_usd, now, is_counted=True, shares=shares)

    def _drop_stale(self, alive: set[str]) -> None:
        now = self._clock.monotonic()
        held = {
            node: now if node in alive else self._held_since.get(node, now) for node in self._kept.promises
        }
        self._held_since = {node: since for node, since in held.items() if now - since < _STALE_SECONDS}
        self._kept.promises = {node: self._kept.promises[node] for node in self._held_since}

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
                f"{self.doubt}: nothing is launched until it is known what was spent. `advisor doctor` "
                "says what to mend",
                code="budget.doubt",
            )
        with self._lock:
            for request in requests:  # a node asked for again: its earlier promise is replaced
                self._kept.promises.pop(request.node, None)
            refused: dict[str, str] = {}
            judged, now = self._judged(limits), self._clock.wall()
            for request in requests:
                if why := judged.refusal(request):
                    refused[request.node] = why
                else:
                    self._kept.promises[request.node] = request.promise(now)
                    self._held_since[request.node] = self._clock.monotonic()
            try:
                self._save()
            except OSError as error:
                if limits:
                    raise self.file.not_saved(error) from error
        return refused

    def _judged(self, limits: Limits) -> JudgedBudgets:
        now = self._clock.wall()
        self._kept.given = given_now(self._kept.given, limits, now)
        return JudgedBudgets(limits, self._books(), now)

    def _books(self) -> Books:
        kept = self._kept
        kept.began = min(kept.began, self._clock.wall())  # the clock was ahead at the first start
        books = Books(spent=self._days, unattributed=kept.unattributed, began=kept.began, given=kept.given)
        for promise in self._kept.promises.values():
            books.add(promise)
        return books

    def is_in_the_way(self, limits: Limits) -> bool:
        """Whether nothing may be launched because what was spent is in doubt."""
        return bool(self.doubt) and (self.is_damaged or bool(limits))

    def release(self, nodes: Iterable[str], *, launched: bool, kept: Collection[str] = ()) -> None:
        """Drop the promises of nodes that will cost nothing more; ``kept`` have been launched again.

        Terminated instances are paid until now. One that lived too shortly to be counted is charged the most
        that it can have cost.
        """
        with self._lock:
            now, steady = self._clock.wall(), self._clock.monotonic()
            most = math.inf if self._last_count is None else steady - self._last_count[1]
            for node in nodes:
                promises = self._kept.promises
                promise = promises.get(node) if node in kept else promises.pop(node, None)
                if not launched:
                    continue
                there = self._running_on(node)
                for seen in there:
                    self._end(seen, now, most)
                if promise is not None and not promise.is_counted and not there:
                    self._count_unseen(node, promise, now)

    def _count_unseen(self, node: str, promise: Promise, now: float) -> None:
        since, price = promise.time, promise.usd_per_hour
        hours = max(0.0, now - since) / 3600.0
        usd = max(min(promise.usd, hours * price), MIN_SECONDS / 3600.0 * price)
        until = since + usd / price * 3600.0 if price else since
        self._days.add(since, until, price, promise.by_payer)
        name = f"{node} launched {since:.0f}"
        self._close(PaidTime(instance_id=name, node=node, since=since, until=until, usd_per_hour=price))

    def paid(self) -> list[PaidTime]:
        """Counted stretches of time that the history has not confirmed (:meth:`noted`), or that grow."""
        with self._lock:
            return self._paid()

    def _paid(self) -> list[PaidTime]:
        growing = [seen.paid(name) for name, seen in self._kept.seen.items() if seen.until > seen.since]
        return [*self._kept.paid, *growing]

    def launched_at(self, node: str) -> float | None:
        """When EC2 launched the node's present instance, epoch seconds; None if unknown."""
        with self._lock:
            return max((seen.launched for seen in self._running_on(node) if seen.launched), default=None)

    def _running_on(self, node: str) -> list[Seen]:
        return [seen for seen in self._kept.seen.values() if seen.node == node and not seen.is_ended]

    def noted(self, paid: Iterable[PaidTime]) -> None:
        """Forget stretches that the history has stored."""
        known = set(paid)
        with self._lock:
            self._kept.paid = [piece for piece in self._kept.paid if piece not in known]

    # ------------------------------------------------------------------ reading

    @property
    def began(self) -> float:
        """From when on budgets count, epoch seconds."""
        return self._kept.began

    def exposure(
        self, period: str, account_period: str | None = None, user_period: str | None = None
    ) -> tuple[Amounts, Amounts]:
        """Dollars spent since the periods (UTC) began, and dollars promised, at the same moment.

        Args:
            period: Of the sum.
            account_period, user_period: Of accounts and of users, where they differ.
        """
        with self._lock:
            now, promised = self._clock.wall(), self._books().promised
            spent, _ = self._days.of_accounts(now, period)
            payers = self._days.of_payers(now, account_period or period, user_period or period)
            named = {payer: usd for payer, usd in promised.items() if payer}
            return (spent, payers), (promised.get("", 0.0), MappingProxyType(named))

    def spent_today(self) -> Amounts:
        """Dollars spent since midnight UTC."""
        with self._lock:
            return self._days.of_accounts(self._clock.wall(), "day")

    def days(self) -> dict[str, dict[str, float]]:
        """Every day known to account to dollars; ``""`` is idle time and jobs without an account."""
        with self._lock:
            return self._days.copy().days

    def books(self) -> Books:
        """What was spent and promised; not to be changed."""
        with self._lock:
            books = self._books()
            books.spent = self._days.copy()
            return books

    def budgets(self, limits: Limits) -> list[BudgetNow]:
        """Every budget as it is now."""
        with self._lock:
            return self._judged(limits).all()

    def exhausted(self, limits: Limits) -> tuple[bool, frozenset[str]]:
        """Whether the site's limit is reached, and which accounts and users have reached theirs."""
        payers = {budget.payer for budget in self.budgets(limits) if budget.is_exhausted}
        return "" in payers, frozenset(payers - {""})

    def _save(self) -> None:
        if self.doubt and not self._is_known:
            return  # a restart would take a part of the day for the whole day
        self._kept.saved_at = self._clock.wall()
        self.file.write(self._kept)


def _not_before(earliest: float, begin: float) -> float:
    """Begin no earlier, but for the time between two readings of clocks."""
    return earliest if earliest - begin >= _TWO_CLOCKS_SECONDS else begin
