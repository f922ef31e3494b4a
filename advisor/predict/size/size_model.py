"""The size classifier in service: small or large, for one submission.

`advisor retrain` makes it, the learn loop keeps its history up to date, `advisor serve` asks it.

Zrigui et al. 2022, sections 3.3 to 5.3, with the history kept up to the second instead of to the last week.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from advisor.model.errors import BadInput
from advisor.model.estimate import SizeEstimate
from advisor.model.job import Job, JobOutcome
from advisor.predict.size import _size_rows as kernel
from advisor.predict.size import _size_state
from advisor.predict.size._size_state import (
    KINDS,
    REMEMBERED_SUBMISSIONS,
    State,
    empty_state,
    hashes_of,
    reindexed,
    with_room,
)
from advisor.predict.size.size_features import FEATURE_NAMES, NO_DIVIDER
from advisor.predict.size.size_history import SizeHistory
from advisor.predict.trees.forest import TreeEnsemble

FORMAT: Final = 1
GONE_SECONDS: Final = 3600.0
"""A job that is gone from snapshots for this long without an outcome was cancelled while it waited."""
_FEATURES: Final = "features."
_TREES: Final = "trees."


@dataclass(slots=True)
class _Followed:
    """A live job: its submission number, whether its start is noted, and since when snapshots lack it."""

    number: int
    started: bool = False
    gone: float = math.nan


class LiveFeatures:
    """The classifier's features (``FEATURE_NAMES``), updated event by event.

    A replay of a log uses the same functions.

    Args:
        state: Initial state, e.g. of a replayed history.
        start_of_log: Epoch seconds at which the jobs' clock shows 0; 0 when their times are epoch seconds.
        utc_offset_seconds: The site's offset from UTC.
    """

    def __init__(
        self, state: State | None = None, *, start_of_log: float = 0.0, utc_offset_seconds: float = 0.0
    ) -> None:
        self._clock = start_of_log + utc_offset_seconds
        self.start_of_log = start_of_log
        self.utc_offset_seconds = utc_offset_seconds
        self._state = state if state is not None else empty_state()

    def row(self, job: Job, divider: float) -> NDArray[np.float32]:
        """Features of a submission, shape (features,)."""
        time = job.submit_time
        asked = np.array((time, job.requested_time or 0.0, job.processors, time + self._clock, divider))
        row = np.empty(len(kernel.ADVISOR_NAMES), np.float32)
        kernel.live_row(self._state, np.array(hashes_of(job), np.uint64), asked, row)
        return row

    def submit(self, job: Job) -> int:
        """Note a submission; returns its number."""
        self._state = with_room(self._state, KINDS)
        request, processors = job.requested_time or 0.0, float(job.processors)
        names = np.array(hashes_of(job), np.uint64)
        keys = np.empty(KINDS, np.uint64)
        _size_state.categories_of(names, request, processors, job.submit_time + self._clock, keys)
        return int(_size_state.submit(self._state, keys, job.submit_time, request, processors))

    def start(self, number: int, time: float) -> None:
        """Note that the job with this number runs since ``time``; NaN: it waits again."""
        _size_state.start(self._state, number, time)

    def runs_since(self, number: int) -> float:
        """When the job with this number started; NaN where it waits or is no longer followed."""
        slot = self._state.slots[number % len(self._state.slots)]
        return float(slot[_size_state.SLOT_START]) if slot[_size_state.SLOT_NUMBER] == number else math.nan

    def end(self, number: int, time: float, run_seconds: float, divider: float) -> None:
        """Note that the job ended; ``run_seconds`` below 0: it never ran."""
        _size_state.end(self._state, number, time, run_seconds, divider)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, no longer than the part in use."""
        used = int(self._state.counters[0])
        followed = min(int(self._state.counters[1]), len(self._state.slots))
        return {
            "index_keys": self._state.index_keys,
            "index_rows": self._state.index_rows,
            "stats": self._state.stats[:used],
            "slots": self._state.slots[:followed],
            "counters": self._state.counters,
            "capacity": np.array([len(self._state.slots)], np.int64),
            "clock": np.array([self.start_of_log, self.utc_offset_seconds]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild the features from :meth:`to_arrays`, checked so that no index leaves an array.

        Raises BadInput for incomplete or damaged arrays.
        """
        try:
            state = _checked_state(arrays)
            start_of_log, utc_offset_seconds = (float(number) for number in arrays["clock"])
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise BadInput(
                f"damaged: {error!r}",
                where="size model",
                mend="Run `advisor retrain`, which makes a new one from the history",
                code="size.arrays",
            ) from None
        return cls(state, start_of_log=start_of_log, utc_offset_seconds=utc_offset_seconds)


class SizeModel:
    """Divider, trees and the history that gives their features.

    Before the first training (the first week) there is no divider and every job is large.

    Pass the live jobs of each snapshot to :meth:`observe`, because a user's running jobs say much about the
    next one, and every finished job once to :meth:`learn`. An instance belongs to one thread, or to the
    holder of its owner's lock.

    Args:
        trees: Trained on the columns of ``FEATURE_NAMES``.
        divider_seconds: Run time that divides small from large; NaN while unknown.
        trained_at: Time of the training, on the jobs' clock; NaN before the first.

    Examples:
        >>> job = Job(job_id=0, submit_time=0.0, processors=4, user="mia")
        >>> SizeModel().classify(job, probability_cut=0.5).is_small
        False
    """

    def __init__(
        self,
        features: LiveFeatures | None = None,
        trees: TreeEnsemble | None = None,
        *,
        divider_seconds: float = math.nan,
        trained_at: float = math.nan,
    ) -> None:
        self.features = features if features is not None else LiveFeatures()
        if trees is not None and trees.features != len(FEATURE_NAMES):
            msg = f"the trees have {trees.features} features, not {len(FEATURE_NAMES)}"
            raise ValueError(msg)
        self.trees = trees
        self.divider_seconds = divider_seconds
        self.trained_at = trained_at
        self._followed: dict[int, _Followed] = {}

    def classify(self, job: Job, probability_cut: float) -> SizeEstimate:
        """Classify a submission from what is known at its ``submit_time``; nothing is changed.

        A job is small from the probability ``probability_cut`` on (``settings.size.probability_cut``).
        """
        if self.trees is None or math.isnan(self.divider_seconds):
            return SizeEstimate(is_small=False, probability_small=0.0, divider_seconds=self.divider_seconds)
        probability = self.trees.predict_one(self.features.row(job, self.divider_seconds))
        return SizeEstimate(
            is_small=probability >= probability_cut,
            probability_small=probability,
            divider_seconds=self.divider_seconds,
        )

    def submitted(self, job: Job) -> None:
        """Note a submission, once; a job without an id is ignored."""
        if job.job_id <= 0 or job.job_id in self._followed:
            return
        self._followed[job.job_id] = _Followed(self.features.submit(job))
        if len(self._followed) > REMEMBERED_SUBMISSIONS:
            del self._followed[next(iter(self._followed))]

    def started(self, job_id: int, time: float) -> None:
        """Note that a job has run since ``time``; jobs that are not followed are ignored.

        A job that had run for the divider before it was requeued is known to be large. It counts as running
        since its first start, so that its user's next jobs are judged by that until it has ended.
        """
        followed = self._followed.get(job_id)
        if followed is not None and not self._is_shown_large(followed, time):
            followed.started = True
            self.features.start(followed.number, time)

    def requeued(self, job_id: int, now: float = math.nan) -> None:
        """Note that a job waits again; ``now`` shows whether it had run for the divider (see `started`)."""
        followed = self._followed.get(job_id)
        if followed is not None and followed.started and not self._is_shown_large(followed, now):
            followed.started = False
            self.features.start(followed.number, math.nan)

    def _is_shown_large(self, followed: _Followed, now: float) -> bool:
        """Whether a job that was requeued had run for the divider, and so is large."""
        return followed.started and now - self.features.runs_since(followed.number) >= self.divider_seconds

    def observe(self, live: Iterable[tuple[Job, float | None]], now: float = math.nan) -> None:
        """Note the live jobs of one snapshot, each with its start time (None while it waits); idempotent.

        ``now`` is the snapshot's time; without it no requeued job is shown to be large, and none counts as
        gone.
        """
        present = set[int]()
        for job, start_time in sorted(live, key=lambda pair: (pair[0].submit_time, pair[0].job_id)):
            present.add(job.job_id)
            self.submitted(job)
            if start_time is None:
                self.requeued(job.job_id, now)
            else:
                self.started(job.job_id, start_time)
        self._forget_gone(present, now)

    def _forget_gone(self, present: Container[int], now: float) -> None:
        """Drop jobs that are gone: accounting does not report jobs that never ran."""
        for job_id, followed in list(self._followed.items()):
            if job_id in present:
                followed.gone = math.nan
            elif math.isnan(followed.gone):
                followed.gone = now
            elif now - followed.gone > GONE_SECONDS:
                del self._followed[job_id]
                self.features.end(followed.number, now, -1.0, NO_DIVIDER)

    def learn(self, outcome: JobOutcome) -> None:
        """Learn from a finished job, once; one that never ran is only dropped.

        A job that was cut short is still followed: it waits again, or is gone from the next snapshots.
        """
        if not outcome.is_whole:
            return
        followed = self._followed.pop(outcome.job.job_id, None)
        if followed is None and outcome.run_seconds <= 0:
            return
        number = followed.number if followed is not None else self.features.submit(outcome.job)
        run = outcome.run_seconds if outcome.run_seconds > 0 else -1.0
        divider = NO_DIVIDER if math.isnan(self.divider_seconds) else self.divider_seconds
        self.features.start(number, outcome.start_time)
        self.features.end(number, outcome.end_time, run, divider)

    def warm(self) -> None:
        """Compile, or load from the cache, all code that :meth:`classify` needs."""
        job = Job(job_id=0, submit_time=0.0, processors=1, user="warm", requested_time=60.0)
        row = self.features.row(job, 60.0)
        if self.trees is not None:
            self.trees.predict_one(row)

    @classmethod
    def retrain(
        cls,
        history: SizeHistory,
        *,
        now: float,
        start_of_log: float = 0.0,
        utc_offset_seconds: float = 0.0,
    ) -> Self:
        """Train on the jobs that finished before ``now`` (section 4.2), in seconds, off the submit path.

        ``now`` is in seconds on the history's clock; see
        :class:`advisor.predict.size.size_model.LiveFeatures` for ``start_of_log``. The new model includes
        the history; it is untrained (all jobs large) when that is too short.
        """
        from advisor.predict.size.size_training import train  # noqa: PLC0415 (scikit-learn: training only)

        trained = train(history, now=now)
        features = LiveFeatures(
            trained.state, start_of_log=start_of_log, utc_offset_seconds=utc_offset_seconds
        )
        divider = trained.divider_seconds if trained.trees is not None else math.nan
        return cls(features, trained.trees, divider_seconds=divider, trained_at=now)

    def to_arrays(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Plain arrays for the model store, and metadata for JSON."""
        arrays = {_FEATURES + name: array for name, array in self.features.to_arrays().items()}
        if self.trees is not None:
            arrays |= {_TREES + name: array for name, array in self.trees.to_arrays().items()}
        followed = [(job_id, one.number, one.started) for job_id, one in self._followed.items()]
        arrays["followed"] = np.array(followed, np.int64).reshape(-1, 3)
        meta = {
            "format": FORMAT,
            "schema": list(FEATURE_NAMES),
            "divider_seconds": self.divider_seconds,
            "trained_at": self.trained_at,
            "trees": 0 if self.trees is None else self.trees.trees,
        }
        return arrays, meta

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """Rebuild the model from :meth:`to_arrays`; raises BadInput for damage or other features."""
        try:
            if meta["format"] != FORMAT or tuple(meta["schema"]) != FEATURE_NAMES:
                msg = "it has another format or other features"
                raise ValueError(msg)  # noqa: TRY301 (every damage becomes one message below)
            trees = TreeEnsemble.from_arrays(part_of(arrays, _TREES)) if meta["trees"] else None
            model = cls(
                LiveFeatures.from_arrays(part_of(arrays, _FEATURES)),
                trees,
                divider_seconds=float(meta["divider_seconds"]),
                trained_at=float(meta["trained_at"]),
            )
            for job_id, number, started in arrays["followed"].tolist():
                model._followed[job_id] = _Followed(max(0, number), bool(started))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(
                f"damaged model: {error!r}",
                where="size model",
                mend="Run `advisor retrain`",
                code="size.arrays",
            ) from None
        return model


def part_of(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _checked_state(arrays: Mapping[str, NDArray[Any]]) -> State:
    categories, submissions = (int(number) for number in arrays["counters"])
    capacity = int(arrays["capacity"][0])
    index_keys = np.array(arrays["index_keys"], np.uint64)
    index_rows = np.array(arrays["index_rows"], np.int64)
    stats = np.array(arrays["stats"], np.float64)
    stored = np.array(arrays["slots"], np.float64)
    entries = len(index_keys)
    is_consistent = (
        0 < capacity <= 2**24
        and 0 <= categories == len(stats)
        and entries >= 16
        and entries & (entries - 1) == 0
        and entries > categories
        and index_rows.shape == index_keys.shape
        and stats.shape == (categories, _size_state.STATS)
        and stored.shape == (min(submissions, capacity), _size_state.SLOTS)
        and np.array_equal(np.sort(index_rows[index_rows >= 0]), np.arange(categories))
        and bool(np.all(stored[:, _size_state.SLOT_CATEGORY :] < max(categories, 1)))
        and bool(np.all(stored[:, _size_state.SLOT_CATEGORY :] >= 0))
    )
    if not is_consistent:
        msg = "its arrays do not fit together"
        raise ValueError(msg)
    slots = np.full((capacity, _size_state.SLOTS), -1.0)
    slots[: len(stored)] = stored
    counters = np.array([categories, submissions], np.int64)
    return reindexed(State(index_keys, index_rows, stats, slots, counters))
