"""Everything that an answer may read, in memory, replaced by one reference assignment.

A watcher thread reads the snapshot file, the models and the names of groups. The threads that answer only
read ``StateHolder.current``, one immutable record, and so see the old state or the new one, never a mixture.
If something cannot be read, the last good value stays and the error is counted. A snapshot that is not
replaced grows old, and is then no longer used.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol

import structlog

from advisor.files.owners import group_name
from advisor.files.whole_file import unless_stale
from advisor.history.models import ModelStore
from advisor.model.cluster import ClusterState
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.settings_section import for_reading
from advisor.predict.size.size_model import SizeModel
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.submit.recent import QueueLevel, QueueLevels
from advisor.service.submit.run_times import RunTimesFollower
from advisor.simulate.pool.start_profile import queue_profiles

_LOOK_SECONDS: Final = 0.25
_MODEL_LOOK_SECONDS: Final = 2.0
_NAMELESS_LOOK_SECONDS: Final = 600.0
"""A group that had no name is asked for again then: the name service may not have answered."""
_REHEARSALS: Final = 50
_SHARES: Final = (0.0, 0.015625, 0.125, 0.25, 0.5)
"""Of a queue's rows, those that are before a new job at the levels that are simulated beside its end.

A user who runs little has a few before them, of thousands.
"""
_LEAST_ROWS, _MOST_ROWS = 4, 10_000
"""In shorter queues the levels differ little; in longer ones they take seconds."""
_REHEARSAL_STATE: Final = ClusterState(
    time=0.0,
    queue_size=3,
    queued_work_core_seconds=7.2e4,
    remaining_work_core_seconds=3.6e5,
    free_processors=4,
    total_processors=64,
    running_jobs=10,
)
_NO_GROUPS: Final = MappingProxyType[int, str]({})

log = structlog.get_logger(__name__)


class Estimator(Protocol):
    """The interface of :class:`advisor.predict.knn.predictor.Predictor` that the server uses."""

    def estimate(self, job: Job, state: ClusterState) -> Estimates:
        """Predict wait, run time and size of one job."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Models and the version they were stored under.

    Attributes:
        estimator: None under the policy "price", which does not ask it.
        size: Without it every size is unknown.
    """

    version: str
    estimator: Estimator | None
    size: SizeModel | None = None


MakeReady = Callable[[Snapshot, Sequence[QueueLevels]], Callable[[], None]]
"""Function from a new snapshot and its profiles to what is called as it comes into use."""
LoadModel = Callable[[str | None], LoadedModel | None]
"""Function from the version in use to the newer model; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNow:
    """The knowledge at one moment; the record is never changed, only replaced.

    Attributes:
        settings: The settings in force, with Slurm's own values from the snapshot. Read-only.
        snapshot: The last snapshot that could be read.
        starts: When a job that joins one of the snapshot's queues would start, for each of them.
        group_names: Group id to name, for the groups of earlier requests. The name service may take seconds
            and is never asked during an answer.
    """

    settings: Settings
    snapshot: Snapshot | None = None
    model: LoadedModel | None = None
    starts: tuple[QueueLevels, ...] = ()
    group_names: Mapping[int, str] = field(default_factory=lambda: _NO_GROUPS)


class StateHolder:
    """Keeps :attr:`current` up to date.

    Args:
        load_model: See :data:`LoadModel`; may raise AdvisorError (kept: the old model).
        models: The store of models; None: that in ``paths.models``.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        load_model: LoadModel,
        monotonic: Callable[[], float] = time.monotonic,
        models: ModelStore | None = None,
    ) -> None:
        self._settings = settings
        self.current = KnownNow(settings=for_reading(settings))
        self.errors: dict[str, int] = {}
        self.lock = threading.Lock()
        """Held while an answer is worked out: models are asked by one thread at a time."""
        self.run_times = RunTimesFollower(models or ModelStore(folder=settings.paths.models))
        """Run times, for the policy "price"."""
        self.make_ready: MakeReady = lambda *_: _nothing
        """Told of a snapshot before it is the current one; what it returns is called as that happens."""
        self._load_model = load_model
        self._monotonic = monotonic
        self._load_anew = False
        self._signature: tuple[int, int, int] | None = None
        self._unknown_groups: set[int] = set()
        self._next_model_look = 0.0
        self._next_nameless_look = monotonic() + _NAMELESS_LOOK_SECONDS
        self._swap = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def start(self) -> None:
        """Begin to watch; call :meth:`refresh` once before, to start with what there is."""
        self._thread.start()

    def stop(self) -> None:
        """End the watcher."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def use_settings(self, settings: Settings, load_model: LoadModel | None = None) -> None:
        """Replace the settings; the watcher's next round reads the snapshot and models that they name.

        A new ``load_model`` loads the models in use anew: they depend on settings too.
        """
        with self._swap:
            if load_model is not None:
                self._load_model, self._load_anew = load_model, True
            self._settings = as_slurm_has_it(settings, self.current.snapshot)
            self.current = replace(self.current, settings=for_reading(self._settings))
            self._signature = None
            self._next_model_look = 0.0

    def want_group(self, gid: int) -> None:
        """Ask for a group's name, to be known at a later submission."""
        if len(self._unknown_groups) < 1024:
            self._unknown_groups.add(gid)

    def refresh(self) -> None:
        """Read all parts once, each separately, so that one that fails affects no other."""
        parts = (
            self._look_at_snapshot,
            self._look_at_models,
            self._look_at_run_times,
            self._look_at_groups,
        )
        for part in parts:
            try:
                part()
            except AdvisorError as error:
                self._count(error.code, str(error))
            except Exception as error:  # noqa: BLE001 - the watcher outlives whatever a damaged file brings
                self._count("watcher.failed", f"{part.__name__}: {type(error).__name__}: {error}")

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self.refresh()

    def _count(self, code: str, message: str) -> None:
        seen = self.errors.get(code, 0)
        self.errors[code] = seen + 1
        if seen & (seen + 1) == 0:  # the 1st, 2nd, 4th, 8th, ... error of a kind is logged
            log.warning("state.not_refreshed", code=code, message=message, times=seen + 1)

    def _look_at_snapshot(self) -> None:
        path = self.current.settings.paths.snapshot
        signature = _signature_of(path)
        if signature is None or signature == self._signature:
            return
        # remembered first: an unreadable file is reported once, not in every round
        self._signature = signature
        snapshot = snapshots.read(path)
        starts = profiles_of(snapshot)
        try:
            use = self.make_ready(snapshot, starts)
        except Exception as error:  # noqa: BLE001 - the next answer does it then
            self._count("snapshot.not_made_ready", f"{type(error).__name__}: {error}")
            use = _nothing
        with self.lock, self._swap:
            use()
            settings, in_force = self.current.settings, as_slurm_has_it(self._settings, snapshot)
            if in_force is not self._settings:
                self._settings, settings = in_force, for_reading(in_force)
            self.current = replace(self.current, snapshot=snapshot, starts=starts, settings=settings)

    def _look_at_models(self) -> None:
        now = self._monotonic()
        if now < self._next_model_look:
            return
        self._next_model_look = now + _MODEL_LOOK_SECONDS
        model, load_model = self.current.model, self._load_model
        in_use = None if model is None or self._load_anew else model.version
        newer = load_model(in_use)
        if load_model is self._load_model:  # the file was not replaced meanwhile
            self._load_anew = False
        if newer is None:
            return
        if newer.estimator is not None:
            warm_up(newer.estimator, self.lock)
        with self._swap:
            self.current = replace(self.current, model=newer)
        log.info("model.in_use", version=newer.version)

    @property
    def forecast_version(self) -> str | None:
        """Version of the forecasts that decide under the policy in force."""
        knowledge = self.current
        if knowledge.settings.cluster.policy == "price":
            return self.run_times.version
        return None if knowledge.model is None else knowledge.model.version

    def _look_at_run_times(self) -> None:
        if self.current.settings.cluster.policy == "price":
            self.run_times.refresh()

    def _look_at_groups(self) -> None:
        names = dict(self.current.group_names)
        if (now := self._monotonic()) >= self._next_nameless_look:
            self._next_nameless_look = now + _NAMELESS_LOOK_SECONDS
            self._unknown_groups.update(gid for gid, name in names.items() if name == str(gid))
        if not self._unknown_groups:
            return
        while self._unknown_groups:
            gid = self._unknown_groups.pop()
            names[gid] = group_name(gid)
        with self._swap:
            self.current = replace(self.current, group_names=MappingProxyType(names))


def _nothing() -> None:
    """Do nothing as a snapshot comes into use: nothing was made ready for it."""


def profiles_of(snapshot: Snapshot) -> tuple[QueueLevels, ...]:
    """Simulate the queue of each of the snapshot's machines, as jobs of several priorities meet it.

    Raises:
        ValueError: A queue is damaged.
    """
    is_ranked = bool(snapshot.first_priorities)
    return tuple(_levels(queue, snapshot.state.time, is_ranked=is_ranked) for queue in snapshot.queues)


def _levels(queue: SeenQueue, now: float, *, is_ranked: bool) -> QueueLevels:
    closed = queue.closed()
    every = len(closed.waiting)
    before_small = every if queue.before_small is None else min(every, queue.before_small)
    # a few rows of thousands are no level of their own: each takes seconds
    rows = {every} if every - before_small < _SHARES[1] * every else {every, before_small}
    if is_ranked and _LEAST_ROWS <= every <= _MOST_ROWS:
        rows |= {int(share * every) for share in _SHARES}
    levels = (QueueLevel(count, queue_profiles(queue.closed(count), now)) for count in sorted(rows))
    return QueueLevels(tuple(levels), queue.ranks(), queue.room())


def as_slurm_has_it(settings: Settings, snapshot: Snapshot | None) -> Settings:
    """Settings with Slurm's own ``JobRequeue``: Slurm decides whether a job may be requeued."""
    said = None if snapshot is None else snapshot.job_requeue
    if said is None or said == settings.cluster.requeue_default:
        return settings
    cluster = settings.cluster.model_copy(update={"requeue_default": said})
    return settings.model_copy(update={"cluster": cluster})


def warm_up(estimator: Estimator, lock: threading.Lock) -> None:
    """Let a model answer once before it is used: a broken model is detected, and its memory pages are loaded.

    Each answer holds the lock of the hot path, because parts of the model (the size model) may be in use.
    """
    for sequence in range(_REHEARSALS):
        processors = 1 + sequence % 64
        job = Job(
            job_id=0,
            submit_time=0.0,
            processors=processors,
            user="rehearsal",
            requested_time=60.0 * processors,
        )
        with lock:
            estimator.estimate(job, _REHEARSAL_STATE)


def _signature_of(path: Path) -> tuple[int, int, int] | None:
    """A value that changes if the file is replaced; None if there is no file."""

    def status_of() -> os.stat_result:
        with path.open("rb") as file:  # opened: NFS may show the attributes of half a minute ago otherwise
            return os.fstat(file.fileno())

    try:
        status = unless_stale(status_of)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UseFallback(
            f"{path} cannot be read ({error.strerror}): every job stays on-premise. Let the user of "
            "advisor-serve read paths.run; `advisor control` writes the file there",
            code="snapshot.unreadable",
        ) from error
    return status.st_mtime_ns, status.st_ino, status.st_size
