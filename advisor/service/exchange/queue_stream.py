"""From looks at Slurm and finished jobs to a stream of events, and the file it is handed over in.

A stream follows a *base*: the jobs of the history and of the queue at one moment, stored beside the forests
(:mod:`advisor.service.exchange.placement_store`). Whoever has the base and all events since knows the
queue and every user's last jobs as of the last look. Times are seconds since the base's origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from advisor.files.whole_file import replace_file
from advisor.model.errors import UseFallback
from advisor.predict.forecast.queue_events import COLUMNS
from advisor.predict.forecast.submission_features import Submission

Floats = NDArray[np.float64]

FILE_NAME: Final = "queue.msgpack"
FORMAT: Final = 3
"""2: with jobs cut short and started again, which a submit server of an earlier release does not know.
3: bounds are ``IntervalCalibration.cut``."""
_MAX_BYTES: Final = 32 * 1024 * 1024


class Seen(NamedTuple):
    """A job of the on-premise queue as last seen; ``start`` is None while it waits."""

    submission: Submission
    start: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The stream at one moment: what a base begins with.

    Attributes:
        index: Events before it are in the base.
        time: Of the last look, seconds since the origin.
        live, gone: Jobs in the queue or on the machine; jobs that left and whose end is not known yet.
        started_before: Jobs whose next start, or the one seen, is not their first.
        total_processors: Of the machine.
    """

    index: int
    time: float
    live: Mapping[int, Seen]
    gone: Mapping[int, Seen]
    total_processors: int
    started_before: frozenset[int] = frozenset()


class StreamFile(msgspec.Struct, frozen=True):
    """What the control process writes at every look.

    Attributes:
        format: Of this file.
        base: The base that ``events`` follow.
        time: When the last look began, seconds since the epoch.
        total_processors: Of the machine now.
        bounds: Per target, where its interval is cut (``IntervalCalibration.cut``).
        names: Column, name and number of names the base does not know.
        events: float64, shape (n, 9).
    """

    format: int
    base: str
    time: float
    total_processors: int
    bounds: dict[str, tuple[float, float]]
    names: list[tuple[str, str, int]]
    events: bytes

    @property
    def rows(self) -> Floats:
        """The events."""
        return np.frombuffer(self.events, dtype="<f8").reshape(-1, COLUMNS)


def write(folder: Path, content: StreamFile) -> None:
    """Replace the file; a reader sees the old one or the new one, never half.

    Raises:
        OSError: The folder is missing, full or not writable.
    """
    replace_file(folder / FILE_NAME, msgspec.msgpack.encode(content))


def read(folder: Path) -> StreamFile:
    """Read the file.

    Raises:
        UseFallback: There is none (``queue.missing``) or it cannot be used (``queue.unreadable``): the
            published rule decides.
    """
    path = folder / FILE_NAME
    try:
        with path.open("rb") as file:
            packed = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise UseFallback(f"{path}: no stream of events yet", code="queue.missing") from None
    except OSError as error:
        raise UseFallback(f"{path}: {error.strerror}", code="queue.unreadable") from error
    try:
        content = msgspec.msgpack.decode(packed, type=StreamFile)
        is_sound = len(packed) <= _MAX_BYTES and content.format == FORMAT and len(content.events) % 72 == 0
    except (msgspec.MsgspecError, ValueError, RecursionError):
        is_sound = False
    if not is_sound:
        raise UseFallback(f"{path}: not a stream of events", code="queue.unreadable")
    return content
