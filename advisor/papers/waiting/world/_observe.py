"""What the wait model sees: a job in its queue, and the cluster around it (Ambati et al., Table 1, and more).

Table 1 is in columns 0 to 7 (memory is in no log). The rest is what the same law of large numbers can use
beside it: the work before the job by predicted run times, the waits just seen, and how fast the queue moves.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from advisor.arrays import Floats
from advisor.compiled import compiled
from advisor.papers.waiting.world._state import SIZE_CLASSES, Rules, World
from advisor.simulate.heap import Records

DAY: Final = 86_400.0
TABLE_1: Final = (
    "utilisation",
    "running_jobs",
    "waiting_jobs",
    "running_mean_processors",
    "running_mean_age",
    "waiting_mean_processors",
    "waiting_mean_age",
    "processors",
)
WIDER: Final = (
    "age",
    "predicted_run",
    "requested",
    "free_processors",
    "ahead_jobs",
    "ahead_processors",
    "ahead_predicted_time",
    "ahead_requested_time",
    "ahead_oldest_age",
    "not_larger_jobs",
    "not_larger_oldest_age",
    "not_smaller_jobs",
    "not_smaller_oldest_age",
    "waiting_predicted_time",
    "waiting_processors",
    "running_predicted_time",
    "running_requested_time",
    "fluid_wait",
    "running_elapsed_time",
    "speculating_processors",
    "last_start_wait",
    "last_start_age",
    "class_start_wait",
    "class_start_age",
    "larger_start_wait",
    "larger_start_age",
    "start_rate",
    "arrival_rate",
    "leave_rate",
    "same_user_ahead_time",
    "time_of_day",
    "day_of_week",
)
WAIT_FEATURES: Final = TABLE_1 + WIDER
FEATURES: Final = len(WAIT_FEATURES)


@compiled
def size_class(processors: int) -> int:
    """Powers of two of processors."""
    found = 0
    while processors > 1 and found < SIZE_CLASSES - 1:
        processors >>= 1
        found += 1
    return found


@compiled
def fade(world: Records) -> None:
    """Bring the weighted rates to this moment."""
    it = world[0]
    factor = np.exp((it.rate_at - it.now) / DAY)
    it.start_rate *= factor
    it.arrival_rate *= factor
    it.leave_rate *= factor
    it.rate_at = it.now


@compiled
def left_of(predicted: float, age: float) -> float:
    """Seconds a job that ran ``age`` still needs: as predicted, and never less than a fifth of its age."""
    return max(predicted - age, 0.2 * age)


@compiled
def observe(here: World, rules: Rules, row: int, out: Floats) -> None:
    """Fill ``out`` for a job that waits, or is about to."""
    it = here.world[0]
    this = here.job[row]
    out[:] = 0.0
    fade(here.world)
    _running(here, rules, out)
    _waiting(here, rules, row, out)
    out[7] = this.processors
    out[8] = it.now - this.submit
    out[9] = this.mean_run
    out[10] = this.requested
    out[11] = it.free
    out[25] = out[14] + out[23]
    out[27] = it.speculating_cores / rules.total
    _recent(here, row, out)
    out[34] = it.start_rate / rules.total / DAY
    out[35] = it.arrival_rate / rules.total / DAY
    out[36] = it.leave_rate / rules.total / DAY
    out[38] = it.now % DAY
    out[39] = it.now // DAY % 7.0


@compiled
def _running(here: World, rules: Rules, out: Floats) -> None:
    """Jobs on fixed cores: number, sizes, ages, work left in seconds of the whole machine."""
    it = here.world[0]
    cores, age_sum, predicted, requested, elapsed = 0.0, 0.0, 0.0, 0.0, 0.0
    for at in range(it.running):
        other = here.job[here.running[at]]
        age = it.now - other.start
        cores += other.processors
        age_sum += age
        elapsed += other.processors * age
        predicted += other.processors * left_of(other.mean_run, age)
        requested += other.processors * max(other.requested - age, 0.0)
    out[0] = cores / rules.total
    out[1] = it.running
    if it.running > 0:
        out[3] = cores / it.running
        out[4] = age_sum / it.running
    out[23] = predicted / rules.total
    out[24] = requested / rules.total
    out[26] = elapsed / rules.total


@compiled
def _waiting(here: World, rules: Rules, row: int, out: Floats) -> None:
    """Jobs in the queue: all of them, and those before this one."""
    it = here.world[0]
    job = here.job
    this = job[row]
    cores, age_sum, predicted, count = 0.0, 0.0, 0.0, 0
    for at in range(it.head, it.tail):
        index = here.queue[at]
        if index == row:
            continue
        other = job[index]
        age = it.now - other.submit
        work = other.processors * other.mean_run
        count += 1
        cores += other.processors
        age_sum += age
        predicted += work
        is_ahead = other.key < this.key or (other.key == this.key and index < row)
        if not is_ahead:
            continue
        out[12] += 1.0
        out[13] += other.processors
        out[14] += work
        out[15] += other.processors * other.requested
        out[16] = max(out[16], age)
        if other.processors <= this.processors:
            out[17] += 1.0
            out[18] = max(out[18], age)
        if other.processors >= this.processors:
            out[19] += 1.0
            out[20] = max(out[20], age)
        if other.user == this.user:
            out[37] += work
    out[2] = count
    if count > 0:
        out[5] = cores / count
        out[6] = age_sum / count
    out[14] /= rules.total
    out[15] /= rules.total
    out[37] /= rules.total
    out[21] = predicted / rules.total
    out[22] = cores


@compiled
def _recent(here: World, row: int, out: Floats) -> None:
    """Waits of the jobs that started last from the queue: of any, of this size, of this size or larger."""
    it = here.world[0]
    mine = size_class(here.job[row].processors)
    out[28] = it.start_wait
    out[29] = it.now - it.last_start
    out[30] = here.classes[mine, 0]
    out[31] = it.now - here.classes[mine, 1]
    newest = mine
    for larger in range(mine, SIZE_CLASSES):
        if here.classes[larger, 1] > here.classes[newest, 1]:
            newest = larger
    out[32] = here.classes[newest, 0]
    out[33] = it.now - here.classes[newest, 1]
