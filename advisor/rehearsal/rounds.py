"""When the loops of `advisor control` have their rounds in a rehearsal, on a virtual clock.

A loop has its rounds at its own period, but for those in which it would see nothing new. A round is left out
unless one of these holds:

- the loop was woken, or its urgent task is due (hand-overs of nodes, hedged jobs);
- since its last round a cloud node has booted or failed, a job has begun in the burst partition or was
  requeued, a job has ended there while jobs may keep places on-premise, or a loop has changed a job or a
  node's state: the poll then comes at the next multiple of its period, and each other loop at its next
  multiple after that poll;
- a hand-over that ends instances waits: the reconcile loop counts what they cost before they are ended;
- a decision is next (a submission): before it the queue is polled if the last poll is older than a period; if
  jobs have ended since, the loops that learn have their rounds first, the reconcile loop if a cloud node is
  up or what was spent is in doubt, and the prices are read where they move;
- the loop's work depends on time (`TIMED`), there is anything in the burst partition, and a minute has passed
  since its last round; the watch loop says itself when the next slice of a job ends;
- EC2 has said that it takes a spot instance back: the notices are read within a second where they come by a
  queue, else within half a minute;
- waiting jobs are asked again, and a job has started or ended on-premise (for the price: so that the waiting
  processors have changed much), or the last round is ten minutes ago;
- its last round is six hours ago.

The poll writes no status file, the day's bill is not added up, and the price is not saved: those are for
readers and restarts. Under the price the submit server gets what was learned every ten minutes, so the loops
that learn have their rounds that often; advice is collected before waiting jobs are asked about.

So what happens on-premise is seen at the next decision and not before, with the times that squeue and sacct
give; and a snapshot is as young as its submission, where a live one is up to a period old.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from advisor.rehearsal.site import SimulatedSite
from advisor.service.hedge.feature import HedgeFeature
from advisor.service.price.price_loop import PriceLoop
from advisor.service.running.loops import LoopRunner
from advisor.service.waiting.asking_again import AskingAgainLoop

_MIN_REST_SECONDS: Final = 0.5
_TIMED_SECONDS: Final = 60.0
_HEARTBEAT_SECONDS: Final = 21_600.0
POLL: Final = "poll"
_FOR_READERS: Final = frozenset({"write status", "bill of today", "save the price"})
"""Steps that write only what people or a restarted process read."""
_COLLECTING: Final = frozenset({"collect advice", "link jobs"})
"""Steps of the learn loop that make advice known to the loops."""
RECONCILE: Final = "reconcile"
LEARNING: Final = "learn"
TIMED: Final = frozenset({"portfolio", "acquire"})
WATCH: Final = "watch"
PRICES: Final = "prices"
NOTICES: Final = "notices"
_SPOT_REQUESTS_SECONDS: Final = 30.0
"""The state of spot requests is asked for so often (`advisor.service.cloud.listening`)."""
ASKING_PRICE: Final = "price"
ASKING: Final = frozenset({"ask again", ASKING_PRICE})
"""They ask about waiting jobs: after a change of the queue, and every ten minutes."""
_ASKING_SECONDS: Final = 600.0
_TEACHING_SECONDS: Final = 600.0
"""Under the price the submit server gets what was learned so often."""


@dataclass(slots=True)
class _LoopState:
    """One loop: its runner, when its last round was, and what it had seen then."""

    runner: LoopRunner
    last: float
    seen: tuple[int, ...] = ()
    learned: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.runner.loop.name

    @property
    def period(self) -> float:
        return self.runner.loop.period_seconds


class Rounds:
    """Gives the loops of a site their rounds.

    Attributes:
        counts, failures: Rounds so far, and those in which a step failed, by loop.
    """

    def __init__(self, site: SimulatedSite, *, is_every_round: bool = False) -> None:
        self._site = site
        self._every = is_every_round
        now = site.time.now
        self._timed = TIMED | ({"match"} if site.settings.matching.enabled else set())
        asking = (each for each in site.control.features if isinstance(each, AskingAgainLoop))
        self._asking = ASKING - {loop.name for loop in asking if not loop.is_on}
        hedges = (each for each in site.control.features if isinstance(each, HedgeFeature))
        self._watch = next((each.watch for each in hedges), None)
        prices = (each for each in site.control.features if isinstance(each, PriceLoop))
        self._price = next(prices, None)
        self._teaching_seconds = _TEACHING_SECONDS if self._price is not None else 0.0
        self._left_out = _FOR_READERS | ({"save knowledge"} if self._price is not None else set())
        self._collected = 0
        self._loops = {name: _LoopState(runner, now) for name, runner in site.control.runners.items()}
        self._prices_move = site.ec2.market.spot_prices_move
        self._poll = self._loops[POLL]
        self._polls = 0
        self._polled: tuple[int, ...] = ()
        self.counts = dict.fromkeys(self._loops, 0)
        self.failures = dict.fromkeys(self._loops, 0)

    # ------------------------------------------------------------------ when

    def next_due(self) -> float:
        """When the next round is due, epoch seconds."""
        return min(map(self._due, self._loops.values()))

    def _due(self, loop: _LoopState) -> float:
        runner, now = loop.runner, self._site.time.now
        due = loop.last + (loop.period if self._every else _HEARTBEAT_SECONDS)
        if runner.is_woken:
            due = min(due, loop.last + min(_MIN_REST_SECONDS, loop.period))
        urgent = runner.urgent_task_due_in
        if urgent < math.inf:
            due = min(due, now + urgent)
        if loop.name in self._timed and self._site.slurm.has_cloud_work:
            due = min(due, loop.last + max(_TIMED_SECONDS, loop.period))
        if loop.name == WATCH:
            due = min(due, self._next_stop(loop))
        if loop.name in self._asking and self._site.slurm.is_anything_waiting:
            due = min(due, loop.last + _ASKING_SECONDS)
        if not self._every and self._has_news(loop):
            period = self._period(loop)
            due = min(due, loop.last + period * max(1, math.ceil((now - loop.last) / period)))
        return max(now, due)

    def _has_news(self, loop: _LoopState) -> bool:
        if loop is self._poll:
            return loop.seen != self._changes()
        if loop.name == NOTICES:
            return loop.seen != self._told()
        if loop.name == LEARNING:
            return False
        if loop.name == ASKING_PRICE and self._price is not None:
            slurm = self._site.slurm
            return loop.seen != self._queue_seen() and self._price.would_value_anew(slurm.waiting_processors)
        if loop.name in ASKING:
            return loop.name in self._asking and loop.seen != self._queue_seen()
        return loop.seen != (self._polls,)

    def _queue_seen(self) -> tuple[int, ...]:
        return self._polls, self._site.slurm.queue_changes

    def _told(self) -> tuple[int, ...]:
        return (self._site.ec2.notices,)

    def _period(self, loop: _LoopState) -> float:
        """Seconds between rounds in which the loop does something."""
        is_polling = loop.name == NOTICES and not self._site.settings.ec2.interruption_queue_url
        return _SPOT_REQUESTS_SECONDS if is_polling else loop.period

    def _changes(self) -> tuple[int, ...]:
        slurm = self._site.slurm
        return slurm.cloud_changes, slurm.cloud_ends if self._keeps_places else 0

    @property
    def _keeps_places(self) -> bool:
        return self._watch is not None and self._watch.follows_polls

    def _next_stop(self, loop: _LoopState) -> float:
        """The first round of the watch loop in which a slice is over."""
        if self._watch is None or not self._site.slurm.has_cloud_work:
            return math.inf
        stop = self._watch.due_at(self._site.started_at)
        if stop <= loop.last:
            return loop.last + max(_TIMED_SECONDS, loop.period)
        return (
            loop.last + loop.period * math.ceil((stop - loop.last) / loop.period) if stop < math.inf else stop
        )

    # ------------------------------------------------------------------ rounds

    def run_due(self) -> None:
        """Run what is due now, the poll first."""
        if self._site.suspends:  # what the instances cost is counted while they run
            self._site.suspends = False
            if (reconcile := self._loops.get(RECONCILE)) is not None:
                self._run(reconcile)
        for loop in (self._poll, *(each for each in self._loops.values() if each is not self._poll)):
            if loop.runner.urgent_task_due_in <= 0.0:
                loop.runner.run_urgent_task()
            if self._due(loop) <= self._site.time.now:
                self._run(loop)

    def before_decision(self) -> None:
        """Let the site's state be known as it would be at a submission now."""
        now = self._site.time.now
        if self._every or now - self._poll.last < self._poll.period:
            return
        learn = self._loops[LEARNING]
        if learn.learned != self._lessons() and now - learn.last >= max(learn.period, self._teaching_seconds):
            self._run(learn)
        prices = self._loops.get(PRICES)
        if prices is not None and self._prices_move and now - prices.last >= prices.period:
            self._run(prices)
        reconcile = self._loops.get(RECONCILE)
        if reconcile is not None and self._costs() and now - reconcile.last >= reconcile.period:
            self._run(reconcile)
        self._run(self._poll)

    def _costs(self) -> bool:
        """Whether money may be spent now, or what was spent is in doubt."""
        return self._site.slurm.has_cloud_work or bool(self._site.control.cloud.budget.doubt)

    def _lessons(self) -> tuple[int, ...]:
        return (self._site.slurm.ended_runs.count,)

    def _run(self, loop: _LoopState) -> None:
        site, now = self._site, self._site.time.now
        if loop is not self._poll and self._is_poll_old():
            self._run(self._poll)
        if loop.name == LEARNING:
            site.spool.complete()
            loop.learned = self._lessons()
        if loop is self._poll:
            changes = self._changes()
            self._polls += changes != loop.seen
            self._polled = self._everything()
            loop.seen = changes
        elif loop.name == NOTICES:
            loop.seen = self._told()
        elif loop.name in ASKING:
            loop.seen = self._queue_seen()
        else:
            loop.seen = (self._polls,)
        if loop.name in ASKING and not self._every and site.slurm.is_anything_waiting:
            self._collect()
        loop.runner.take_wake()
        loop.last = now
        self.counts[loop.name] += 1
        if not loop.runner.run_once(leave_out=() if self._every else self._left_out):
            self.failures[loop.name] += 1

    def _is_poll_old(self) -> bool:
        """Whether a loop's round needs a new poll: something has changed, or the last one is aging."""
        age = self._site.time.now - self._poll.last
        if self._every or age >= 0.5 * self._site.settings.submit.snapshot_max_age_seconds:
            return age >= self._poll.period
        return age >= self._poll.period and self._polled != self._everything()

    def _everything(self) -> tuple[int, ...]:
        slurm = self._site.slurm
        return slurm.cloud_changes, slurm.cloud_ends, slurm.queue_changes, self._site.advice_given

    def _collect(self) -> None:
        """Make the advice that was given known, as the learn loop does every few seconds."""
        given, learn = self._site.advice_given, self._loops[LEARNING]
        if given == self._collected:
            return
        self._collected = given
        self._site.spool.complete()
        learn.runner.run_once(leave_out={step.name for step in learn.runner.loop.steps()} - _COLLECTING)
