"""Compiled features of the size classifier, from the state of :mod:`advisor.predict.size._size_state`."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import compiled
from advisor.predict.size import _size_state as s
from advisor.predict.size._size_state import State

OWN_NAMES: Final = (
    "log_requested",
    "processors",
    "hour",
    "day_of_week",
    "log_requested_work",
    "log_requested_to_divider",
    "log_requested_to_previous",
    "log_processors_to_previous",
    "user_burst",
    "log_expected_to_divider",
    "script_burst",
)
CATEGORY_NAMES: Final = (
    "finished",
    "log_run_1",
    "log_run_2",
    "recent_small_share",
    "mean_log_run",
    "small_share",
    "log_since_end",
    "live",
    "newest",
    "newest_small_share",
)
ADVISOR_KINDS: Final = (s.USER, s.USER_SHAPE, s.USER_WORK, s.SHAPE)
_KIND_NAMES: Final = ("user", "user_shape", "user_work", "shape")
ADVISOR_NAMES: Final = (
    *OWN_NAMES,
    *(f"{kind}.{feature}" for kind in _KIND_NAMES for feature in CATEGORY_NAMES),
)
_OWN: Final = len(OWN_NAMES)
_PER_CATEGORY: Final = len(CATEGORY_NAMES)
_WAITS: Final = -100.0  # `newest` of a job that still waits


@compiled
def advisor_row(
    state: State,
    keys: NDArray[np.uint64],
    numbers: NDArray[np.float64],
    time: float,
    local: float,
    divider: float,
    row: NDArray[np.float32],
) -> None:
    """Our features: Table 4's ideas on everything known at ``time``; NaN where unknown.

    ``numbers`` as in :func:`replay`. A job with neither queue nor name has no USER_WORK category.
    """
    request, processors, labelled = numbers[0], numbers[1], numbers[3] > 0
    row[:] = np.nan
    _own(state, keys, request, processors, divider, row)
    row[2] = local % 86400.0 // 3600.0
    row[3] = s.day_of_week(local)
    base = _OWN
    for kind in ADVISOR_KINDS:
        index = s.find(state, keys[kind])
        if index >= 0 and (labelled or kind != s.USER_WORK):
            part = row[base : base + _PER_CATEGORY]
            _history(state.stats[index], time, math.log(divider), part)
            _newest(state, index, time, divider, part)
        base += _PER_CATEGORY


@compiled
def live_row(
    state: State, names: NDArray[np.uint64], asked: NDArray[np.float64], row: NDArray[np.float32]
) -> None:
    """Write the `advisor_row` of a submission into ``row``.

    ``names`` are hashes of user, queue and name; ``asked`` are the time, requested seconds, processors, the
    site's local time and the divider.
    """
    time, request, processors, local, divider = asked
    is_labelled = names[1] != 0 or names[2] != 0
    numbers = np.array([request, processors, np.nan, 1.0 if is_labelled else 0.0])
    keys = np.empty(s.KINDS, np.uint64)
    s.categories_of(names, request, processors, local, keys)
    advisor_row(state, keys, numbers, time, local, divider, row)


@compiled
def _own(
    state: State,
    keys: NDArray[np.uint64],
    request: float,
    processors: float,
    divider: float,
    row: NDArray[np.float32],
) -> None:
    """The request, alone and relative to the user's previous submission and usual share of the request."""
    asked = math.log(request) if request > 0 else np.nan
    log_divider = math.log(divider)
    row[0] = asked
    row[1] = processors
    row[4] = asked + math.log(processors)
    row[5] = asked - log_divider
    user = s.find(state, keys[s.USER])
    if user < 0:
        return
    category = state.stats[user]
    previous = int(category[s.RECENT + (int(category[s.SUBMITTED]) - 1) % s.RECENT_JOBS])
    slot = state.slots[previous % len(state.slots)]
    if slot[s.SLOT_NUMBER] == previous:
        if slot[s.SLOT_REQUEST] > 0:
            row[6] = asked - math.log(slot[s.SLOT_REQUEST])
        row[7] = math.log(processors / slot[s.SLOT_PROCESSORS])
    row[8] = category[s.BURST]
    row[9] = asked + math.log(max(category[s.MEAN_SHARE], 1e-4)) - log_divider
    script = s.find(state, keys[s.USER_SHAPE])
    if script >= 0:
        row[10] = state.stats[script, s.BURST]


@compiled
def _history(
    category: NDArray[np.float64], time: float, log_divider: float, part: NDArray[np.float32]
) -> None:
    """Features of one category's finished jobs."""
    finished = int(category[s.FINISHED])
    part[0] = finished
    part[7] = category[s.LIVE]
    kept = min(finished, s.RING)
    if kept == 0:
        return
    small = 0
    for lag in range(kept):
        run = category[s.RUNS + (finished - 1 - lag) % s.RING]
        if lag < 2:
            part[1 + lag] = run
        if run < log_divider:
            small += 1
    part[3] = small / kept
    part[4] = category[s.MEAN_LOG]
    part[5] = category[s.SMALL] / finished
    part[6] = math.log1p(max(0.0, time - category[s.LAST_END]))


@compiled
def _newest(state: State, index: int, time: float, divider: float, part: NDArray[np.float32]) -> None:
    """Features of one category's newest submissions, finished or not.

    A job that has run for the divider is known to be large before it ends. The finished jobs alone are biased
    towards short ones.
    """
    category = state.stats[index]
    submitted = int(category[s.SUBMITTED])
    known = 0
    small = 0
    for lag in range(min(submitted, s.RECENT_JOBS)):
        number = int(category[s.RECENT + (submitted - 1 - lag) % s.RECENT_JOBS])
        slot = state.slots[number % len(state.slots)]
        if slot[s.SLOT_NUMBER] != number:
            continue
        run = slot[s.SLOT_RUN]
        newest = _WAITS if np.isnan(run) else np.nan  # NaN: it never ran
        if run >= 0:
            known += 1
            if run < divider:
                small += 1
            newest = math.log(max(run, 1.0))
        elif np.isnan(run) and not np.isnan(slot[s.SLOT_START]):
            age = time - slot[s.SLOT_START]
            if age >= divider:
                known += 1
            newest = -math.log(max(age, 1.0))  # below 0: minus the log of its age so far
        if lag == 0:
            part[8] = newest
    if known > 0:
        part[9] = small / known


SUBMISSION: Final = 0
START: Final = 1
END: Final = 2


@compiled
def replay(
    state: State,
    events: tuple[NDArray[np.int8], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]],
    names: NDArray[np.uint64],
    numbers: NDArray[np.float64],
    local: NDArray[np.float64],
    rows: NDArray[np.float32],
    submissions: NDArray[np.int64],
) -> None:
    """Process events in order and write one row of features at each submission.

    ``events`` are kind, time, job and divider; ``numbers`` each job's request, processors, run time (below 0:
    it never ran) and whether it has a queue or a name; ``local`` its submission in the site's local time.
    ``submissions`` receives each job's submission number.
    """
    what, when, which, dividers = events
    keys = np.empty(s.KINDS, np.uint64)
    for i in range(len(what)):
        job = which[i]
        request, processors, run = numbers[job, 0], numbers[job, 1], numbers[job, 2]
        if what[i] == SUBMISSION:
            s.categories_of(names[job], request, processors, local[job], keys)
            advisor_row(state, keys, numbers[job], when[i], local[job], dividers[i], rows[job])
            submissions[job] = s.submit(state, keys, when[i], request, processors)
        elif what[i] == START:
            s.start(state, submissions[job], when[i])
        else:
            s.end(state, submissions[job], when[i], run, dividers[i])
