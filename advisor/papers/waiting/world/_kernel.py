"""The event loop of a cluster that may rent, compiled.

At one moment: every job on fixed cores whose time has come ends; then every speculation whose time has come
ends (done, revoked, or at its limit: the job joins the queue at the place its submission gives it); then
waiting jobs start; then every job submitted now starts, leaves, speculates or queues; then, every so often,
the wait model is asked again for the whole queue; then whoever has waited the longest wait leaves for
on-demand. Dispatch is work-conserving: the first job in the queue that fits starts (Ambati et al., section
2.3), or EASY with a reservation for the first that does not.
"""

from __future__ import annotations

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.decide.submission.waiting_policy import LEAVES, RENTS, SPECULATES, by_length, by_wait
from advisor.papers.cluster._state import queue_insert, queue_remove, running_insert, running_remove
from advisor.papers.waiting.world._habits import forecast, learn
from advisor.papers.waiting.world._observe import fade, observe, size_class
from advisor.papers.waiting.world._state import (
    DONE,
    RENTED,
    RUNNING,
    SPECULATING,
    WAITING,
    Forest,
    Rules,
    World,
)
from advisor.papers.waiting.world._trees import outlook
from advisor.simulate.heap import heap_pop, heap_push

_by_length = compiled(by_length)
_by_wait = compiled(by_wait)

GIVEN, FORECAST, SPECULATION = 0, 1, 2
"""How a job's length is known: its ``mode`` was given, its median run time is predicted, by trying."""
PATIENCE, MODEL, FLUID = 0, 1, 2
"""How a wait is known: not at all, by the wait model, by the predicted work before it."""


@compiled
def _start(here: World, row: int) -> None:
    """Start a job on fixed cores."""
    it = here.world[0]
    this = here.job[row]
    this.where = RUNNING
    this.start = it.now
    this.end = it.now + this.run
    this.planned_end = it.now + this.planned
    heap_push(here.ending, it.endings, this.end, row)
    running_insert(here.running, here.job, it.running, row)
    it.endings += 1
    it.running += 1
    it.free -= this.processors


@compiled
def _start_waiting(here: World, row: int) -> None:
    """Start a job that waited, and remember how long."""
    it = here.world[0]
    this = here.job[row]
    _start(here, row)
    fade(here.world)
    it.start_rate += this.processors * this.mean_run
    it.start_wait = it.now - this.submit
    it.last_start = it.now
    mine = size_class(this.processors)
    here.classes[mine, 0] = it.start_wait
    here.classes[mine, 1] = it.now


@compiled
def _rent(here: World, rules: Rules, row: int) -> None:
    """Run a job on on-demand to its end."""
    it = here.world[0]
    this = here.job[row]
    this.where = RENTED
    this.start = it.now
    this.end = it.now + this.run
    this.ondemand += this.run
    if rules.learns:
        heap_push(here.lease, it.leases, this.end, row)
        it.leases += 1


@compiled
def _leave(here: World, rules: Rules, row: int) -> None:
    """Send a job that was in the queue, or would have been, to on-demand."""
    fade(here.world)
    here.world[0].leave_rate += here.job[row].processors * here.job[row].mean_run
    _rent(here, rules, row)


@compiled
def _speculate(here: World, rules: Rules, row: int) -> None:
    """Try a job out on rented cores."""
    it = here.world[0]
    this = here.job[row]
    this.where = SPECULATING
    this.start = it.now
    length = min(this.run, rules.trial, this.revoked_after)
    heap_push(here.trial, it.trials, it.now + length, row)
    it.trials += 1
    it.speculating_cores += this.processors


@compiled
def _keep_sample(here: World, row: int, scratch: Floats) -> None:
    """Remember what the model saw; the oldest sample gives way."""
    it = here.world[0]
    place = here.samples[it.samples % len(here.samples)]
    place[0] = row
    place[1] = it.now
    place[2:] = scratch
    it.samples += 1


@compiled
def _sent_away(here: World, rules: Rules, forest: Forest, row: int, scratch: Floats, keep: int) -> bool:
    """Ask whether a job would wait too long; one that would leaves at once."""
    it = here.world[0]
    if rules.knows_wait == PATIENCE and keep == 0:
        return False
    observe(here, rules, row, scratch)
    if keep != 0:
        _keep_sample(here, row, scratch)
    this = here.job[row]
    waited = it.now - this.submit
    left = rules.longest_wait - waited
    in_time, to_come, price = 1.0, 0.0, 0.0
    if rules.knows_wait == MODEL:
        if len(forest.roots) > 0:
            in_time, to_come = outlook(forest, scratch, left)
            price = it.price
    elif rules.knows_wait == FLUID:
        in_time = 0.0 if scratch[25] > left else 1.0
    if price > 0.0 and 0.0 < left < np.inf:
        # It leaves when the cores saved by waiting are worth less than the time lost. The chance is on the
        # left because a job that would wait longer than b is paid for anyway, only later.
        away = bool(in_time * (this.processors * this.mean_run) < price * to_come)
    else:
        away = _by_wait(waited, rules.longest_wait, in_time) == LEAVES
    if away:
        this.left_early = 1
        _leave(here, rules, row)
    return away


@compiled
def _join(here: World, rules: Rules, forest: Forest, row: int, scratch: Floats) -> None:
    """Put a job into the queue, unless it would wait too long or has waited too long already."""
    it = here.world[0]
    this = here.job[row]
    if it.now >= this.submit + rules.longest_wait:
        _leave(here, rules, row)
        return
    if _starts_now(here, rules, row):
        return
    this.where = WAITING
    this.queued = it.now
    fade(here.world)
    it.arrival_rate += this.processors * this.mean_run
    if not _sent_away(here, rules, forest, row, scratch, rules.keep_every):
        queue_insert(here.queue, here.job, here.world, row)
        it.dirty = 1


@compiled
def _starts_now(here: World, rules: Rules, row: int) -> bool:
    """Start a job that is not in the queue, if it may start before those who are."""
    it = here.world[0]
    this = here.job[row]
    if this.processors > it.free:
        return False
    if not rules.easy or it.tail == it.head:
        _start(here, row)
        return True
    queue_insert(here.queue, here.job, here.world, row)
    _dispatch(here, rules)
    if this.where == RUNNING:
        return True
    queue_remove(here.queue, here.job, here.world, row)
    return False


@compiled
def _learn_due(here: World, rules: Rules) -> None:
    """Learn from rented jobs that ended."""
    it = here.world[0]
    while it.leases > 0 and here.lease[0].time <= it.now:
        row = here.lease[0].job
        heap_pop(here.lease, it.leases)
        it.leases -= 1
        learn(here.job, row, rules.trial, here.habits)


@compiled
def _end_due(here: World, rules: Rules) -> None:
    """End jobs on fixed cores."""
    it = here.world[0]
    while it.endings > 0 and here.ending[0].time <= it.now:
        row = here.ending[0].job
        heap_pop(here.ending, it.endings)
        running_remove(here.running, here.job, it.running, row)
        it.endings -= 1
        it.running -= 1
        it.free += here.job[row].processors
        here.job[row].where = DONE
        if rules.learns:
            learn(here.job, row, rules.trial, here.habits)
        it.dirty = 1


@compiled
def _trials_due(here: World, rules: Rules, forest: Forest, scratch: Floats) -> None:
    """End speculations: done, or queued on fixed cores."""
    it = here.world[0]
    while it.trials > 0 and here.trial[0].time <= it.now:
        row = here.trial[0].job
        heap_pop(here.trial, it.trials)
        it.trials -= 1
        this = here.job[row]
        it.speculating_cores -= this.processors
        this.spot += it.now - this.start
        if this.run <= min(rules.trial, this.revoked_after):
            this.where = RENTED
            this.end = it.now
            if rules.learns:
                learn(here.job, row, rules.trial, here.habits)
            continue
        this.restarts += 1
        _join(here, rules, forest, row, scratch)


@compiled
def _mode_of(here: World, rules: Rules, row: int) -> int:
    """What a job does that cannot start at once."""
    this = here.job[row]
    if rules.length_from == FORECAST:
        return _by_length(1.0 if this.median_run <= rules.trial else 0.0, False, 0.0)
    if rules.length_from == SPECULATION:
        return _by_length(this.short_chance, True, rules.skip_below)
    return int(this.mode)


@compiled
def _arrive(here: World, rules: Rules, forest: Forest, runs: Forest, row: int, scratch: Floats) -> None:
    """A job is submitted."""
    this = here.job[row]
    if rules.learns:
        forecast(here.job, row, here.habits, runs, rules.trial, here.run_samples[row])
    this.mode = _mode_of(here, rules, row)
    if this.mode == RENTS or this.processors > rules.total:
        _rent(here, rules, row)
    elif _starts_now(here, rules, row):
        return
    elif this.mode == LEAVES:
        _rent(here, rules, row)
    elif this.mode == SPECULATES:
        _speculate(here, rules, row)
    else:
        _join(here, rules, forest, row, scratch)


@compiled
def _dispatch(here: World, rules: Rules) -> None:
    """Start every waiting job that may start now, in the queue's order."""
    it = here.world[0]
    it.dirty = 0
    shadow, extra, is_head = np.inf, it.free, True
    at = put = it.head
    while at < it.tail:
        row = here.queue[at]
        this = here.job[row]
        fits = this.processors <= it.free
        if fits and not is_head and rules.easy:
            fits = it.now + this.planned <= shadow or this.processors <= extra
            if fits and it.now + this.planned > shadow:
                extra -= this.processors
        if fits:
            _start_waiting(here, row)
        else:
            if is_head:
                is_head = False
                if rules.easy:
                    shadow, extra = _reserve(here, this.processors)
            here.queue[put] = row
            put += 1
        at += 1
        if it.free == 0:
            break
    if put != at:
        while at < it.tail:
            here.queue[put] = here.queue[at]
            put += 1
            at += 1
        it.tail = put


@compiled
def _reserve(here: World, processors: int) -> tuple[float, int]:
    """When so many processors will be free by plan, and how many are to spare then."""
    it = here.world[0]
    free = it.free
    for at in range(it.running):
        other = here.job[here.running[at]]
        free += other.processors
        if free >= processors:
            return max(other.planned_end, it.now + 1.0), free - processors
    return np.inf, 0


@compiled
def _sweep(here: World, rules: Rules, forest: Forest, scratch: Floats) -> None:
    """Ask again for the whole queue, first to last; keep a share of what was seen."""
    it = here.world[0]
    it.next_sweep += rules.ask_again
    if rules.knows_wait == PATIENCE and rules.keep_every == 0:
        return
    at = it.head
    while at < it.tail:
        row = here.queue[at]
        it.drawn += 1
        keep = int(rules.keep_every > 0 and it.drawn % rules.keep_every == 0)
        if _sent_away(here, rules, forest, row, scratch, keep):
            queue_remove(here.queue, here.job, here.world, row)
            it.dirty = 1
        else:
            at += 1


@compiled
def _leave_due(here: World, rules: Rules) -> None:
    """Send to on-demand whoever has waited the longest wait."""
    it = here.world[0]
    while it.left < it.arrived:
        row = it.left
        this = here.job[row]
        if this.where in (WAITING, SPECULATING):
            if this.submit + rules.longest_wait > it.now:
                return
            if this.where == WAITING:
                queue_remove(here.queue, here.job, here.world, row)
                _leave(here, rules, row)
                it.dirty = 1
        it.left += 1


@compiled
def _next_time(here: World, rules: Rules) -> float:
    """When something happens next; infinite when all is done."""
    it = here.world[0]
    time = np.inf
    if it.arrived < len(here.job):
        time = here.job[it.arrived].submit
    if it.endings > 0:
        time = min(time, here.ending[0].time)
    if it.trials > 0:
        time = min(time, here.trial[0].time)
    if it.tail > it.head:
        time = min(time, it.next_sweep)
    while it.left < it.arrived:
        this = here.job[it.left]
        if this.where in (WAITING, SPECULATING):
            time = min(time, max(it.now, this.submit + rules.longest_wait))
            break
        it.left += 1
    return time


@compiled
def advance(here: World, rules: Rules, forest: Forest, runs: Forest, until: float, scratch: Floats) -> None:
    """Go on with every moment before ``until``."""
    it = here.world[0]
    while True:
        now = _next_time(here, rules)
        if not now < until:
            return
        it.now = now
        if rules.learns:
            _learn_due(here, rules)
        _end_due(here, rules)
        if it.dirty:
            _dispatch(here, rules)
        _trials_due(here, rules, forest, scratch)
        if it.dirty:
            _dispatch(here, rules)
        while it.arrived < len(here.job) and here.job[it.arrived].submit <= it.now:
            it.arrived += 1
            _arrive(here, rules, forest, runs, it.arrived - 1, scratch)
        if it.dirty and rules.easy:
            _dispatch(here, rules)
        it.dirty = 0
        if it.next_sweep <= it.now:
            it.next_sweep = max(it.next_sweep, it.now - it.now % rules.ask_again)
            _sweep(here, rules, forest, scratch)
        _leave_due(here, rules)
        if it.dirty and rules.easy:
            _dispatch(here, rules)
        it.dirty = 0
