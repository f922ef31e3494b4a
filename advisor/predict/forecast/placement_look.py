"""What the placement forests look at: the names of the features, and compiled code that works them out.

What is asked about a submission and what the past says of it stands in a block of words, filled in by
`PlacementFeatures` (``placement_features``); the queue is read where it is.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from advisor.predict._addresses import WORD_BYTES, by_address, doubles_at, words_at
from advisor.predict.forecast._placement_lags import UNKNOWN
from advisor.predict.forecast._placement_queue import (
    COLUMNS,
    HEAD,
    ORDER,
    PROCESSORS,
    QUEUE,
    QUEUE_FEATURES,
    REQUEST,
    ROWS,
    TABLE,
    USER,
    order_at,
    queue_features,
)

_REQUEST_FEATURES: Final = (
    "requested_time",
    "processors",
    "requested_work",
    "queue",
    "user",
    "group",
    "executable",
    "time_of_day",
    "day_of_week",
    "submission_time",
)
_HISTORY_FEATURES: Final = (
    *(f"user_run_{lag}" for lag in (1, 2, 3)),
    "user_run_max",
    "user_run_median",
    *(f"user_size_run_{lag}" for lag in (1, 2)),
    *(f"user_request_run_{lag}" for lag in (1, 2)),
    *(f"user_executable_run_{lag}" for lag in (1, 2)),
    "alike_run_1",
    "alike_run_mean",
    "alike_run_max",
    "alike_runs",
    "recent_wait_mean_5",
    "recent_wait_mean_20",
    "queue_wait_1",
    "queue_wait_mean",
    "user_wait_1",
    "user_wait_mean",
    "queue_size_wait_1",
    "queue_size_wait_mean",
    "since_last_submission",
    "last_is_alike",
    "last_state",
    "last_elapsed",
    "last_wait",
)
FEATURES: Final = (*_REQUEST_FEATURES, *QUEUE_FEATURES, *_HISTORY_FEATURES)
"""Names of the columns, in order."""

_QUEUE_AT: Final = len(_REQUEST_FEATURES)
_HISTORY_AT: Final = _QUEUE_AT + len(QUEUE_FEATURES)

# The block of one submission, in words: heads of the tables of waiting and running jobs; what is asked; then
# the features, of which those of the past are filled in beforehand.
WAITING, RUNNING, _NOW, _TOTAL, _CLOCK, _JOB = range(6)
_REQUESTED: Final = _JOB + COLUMNS
_GROUP: Final = _REQUESTED + 1
_EXECUTABLE: Final = _REQUESTED + 2
FEATURES_AT: Final = _REQUESTED + 3
"""Where in the block the features are."""
BLOCK_WORDS: Final = FEATURES_AT + len(FEATURES)
_LAST_JOB: Final = 5
_PAST_BYTES: Final = WORD_BYTES * (len(_HISTORY_FEATURES) - _LAST_JOB)
ASKED: Final = struct.Struct(f"={FEATURES_AT - _NOW}d")
"""What is asked, from the time on, in the order above."""
ASKED_OFFSET: Final = WORD_BYTES * _NOW
"""Bytes into the block."""
HISTORY: Final = struct.Struct(f"={_PAST_BYTES}s{_LAST_JOB}d")
"""The features of the past as one string of bytes, then those of the user's last job."""
HISTORY_OFFSET: Final = WORD_BYTES * (FEATURES_AT + _HISTORY_AT)
"""Bytes into the block."""


@by_address
def look_at(address: int) -> None:
    """Work out the features of the submission that a block asks about, but for the user's past."""
    words = words_at(address, FEATURES_AT)
    asked = doubles_at(address, FEATURES_AT)
    out = doubles_at(address + WORD_BYTES * FEATURES_AT, _HISTORY_AT)
    now, clock = asked[_NOW], asked[_CLOCK]
    job = asked[_JOB:_REQUESTED]
    out[0] = UNKNOWN if np.isnan(asked[_REQUESTED]) else asked[_REQUESTED]
    out[1] = job[PROCESSORS]
    out[2] = job[PROCESSORS] * job[REQUEST]
    out[3], out[4], out[5], out[6] = job[QUEUE], job[USER], asked[_GROUP], asked[_EXECUTABLE]
    out[7] = clock % 86_400.0
    out[8] = clock // 86_400.0 % 7.0
    out[9] = now
    order_at(words[RUNNING])
    running = words_at(words[RUNNING], HEAD)
    waiting = words_at(words[WAITING], HEAD)
    queue_features(
        now,
        asked[_TOTAL],
        job,
        doubles_at(waiting[TABLE], waiting[ROWS] * COLUMNS).reshape((waiting[ROWS], COLUMNS)),
        doubles_at(running[TABLE], running[ROWS] * COLUMNS).reshape((running[ROWS], COLUMNS)),
        words_at(running[ORDER], running[ROWS]),
        out[_QUEUE_AT:_HISTORY_AT],
    )
