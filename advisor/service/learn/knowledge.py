"""The k-NN estimators in `advisor control`: loaded or built, taught, and saved for `advisor serve`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from advisor.history.columns import on_premise
from advisor.history.models import ModelStore
from advisor.history.parameters import CUTOFF_KIND, PARAMETERS_KIND, load_cutoff, load_parameters, untuned_of
from advisor.history.store import HistoryStore
from advisor.model.cluster import ClusterState
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.estimate import Estimate, holds
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.model.site import Cutoff
from advisor.model.snapshot import RUNNING, QueuedJob
from advisor.predict.knn.features import CUNHA_TABLE_I, Encoder
from advisor.predict.knn.known import Target
from advisor.predict.knn.predictor import Predictor
from advisor.predict.knn.tracker import states_of
from advisor.service.learn.on_premise_equivalents import AskRatio, on_premise_outcome
from advisor.service.submit.models import PREDICTOR_KIND

log = structlog.get_logger(__name__)

_REBUILD_JOBS: Final = 1000
"""More new jobs at once were imported from a log: the states they met are rebuilt from the history."""
_HISTORY_FACTOR: Final = 3
"""Jobs that are read to build the knowledge base, as a multiple of its size: its oldest jobs then meet a
complete queue."""

StateAt = Callable[[float], ClusterState | None]


class Knowledge:
    """The predictor, how far it has learned, and the version that `advisor serve` was given.

    Attributes:
        total_processors: Number of processors of the on-premise partitions; 0 while unknown.
        cutoff: The published rule's cutoff that `advisor tune --weekly` has put in force; None: none.
    """

    def __init__(
        self, settings: Settings, store: HistoryStore, models: ModelStore, ratio: AskRatio | None = None
    ) -> None:
        self._ratio = ratio
        self._settings = settings
        self._store = store
        self._models = models
        self._predictor: Predictor | None = None
        self._position = 0
        self._parameters_version: str | None = None
        self._saved_version: str | None = None
        self._waits: set[int] = set()  # jobs under way, or cut short, whose wait has been learned
        self._is_changed = False
        self.total_processors = 0
        self.cutoff: Cutoff | None = None
        self._cutoff_version: str | None = None
        self._take_cutoff()  # the first poll is published before `prepare`

    @property
    def predictor(self) -> Predictor:
        """The predictor; loaded or built at first use."""
        if self._predictor is None:
            self._predictor = self._loaded() or self._built()
        return self._predictor

    @property
    def cases(self) -> int:
        """Run times in the knowledge base."""
        return len(self._predictor.run) if self._predictor is not None else 0

    def prepare(self) -> None:
        """Load or build the predictor, and save it for `advisor serve`."""
        if self._predictor is None:
            self._predictor = self._loaded() or self._built()
        self.save()

    def refresh(self) -> None:
        """Reload or rebuild the predictor when other parameters or another predictor are in force."""
        self._take_cutoff()
        if self._predictor is None:
            return
        if self._models.current(PARAMETERS_KIND) != self._parameters_version:
            log.info("knowledge.new_parameters")
            self._predictor = self._built()
        elif self._models.current(PREDICTOR_KIND) != self._saved_version:
            log.info("knowledge.new_predictor")
            self._predictor = self._loaded() or self._built()

    def learn_starts(self, jobs: Iterable[QueuedJob], state_at: StateAt) -> int:
        """Learn the waits of jobs that have started on-premise; return their number."""
        running = [job for job in jobs if job.state == RUNNING]
        learned = 0
        for queued in running:
            job, start = queued.job, queued.start_time
            if job.job_id in self._waits or start is None or queued.restarts or self._is_burst(job.queue):
                continue
            self._waits.add(job.job_id)
            learned += self.predictor.learn_wait(job, start, state_at(job.submit_time))
        self._is_changed |= learned > 0
        return learned

    def learn_ends(self, state_at: StateAt) -> list[JobOutcome]:
        """Learn and return the jobs that were added to the history since the last call."""
        predictor = self.predictor
        new = self._store.last_position() - self._position
        if new <= 0:
            return []
        if new > _REBUILD_JOBS:
            self._predictor = self._built()
            return []
        outcomes = []
        for position, outcome in self._store.added_after(self._position):
            self._position = position
            self._learn(predictor, outcome, state_at)
            outcomes.append(outcome)
        self._is_changed |= bool(outcomes)
        return outcomes

    def judge(self, target: Target, predicted: Estimate, truth: float) -> None:
        """Compare an interval of the k-NN with the truth (seconds); skip other estimators' intervals."""
        if predicted.neighbours > 0 and predicted.lower <= predicted.upper and truth >= 0.0:
            estimator = self.predictor.wait if target == "wait" else self.predictor.run
            estimator.judge(inside=holds(predicted.lower, truth, predicted.upper))
            self._is_changed = True

    def save(self) -> bool:
        """Save what has been learned for the submit server; False when there is nothing new."""
        if not self._is_changed or self._predictor is None:
            return False
        arrays, meta = self._predictor.to_arrays()
        meta |= {"position": self._position, "parameters": self._parameters_version}
        meta["settings"] = self._signature(self._parameters_version)
        meta["waits"] = sorted(self._waits)
        self._saved_version = self._models.save(PREDICTOR_KIND, arrays, meta)
        self._is_changed = False
        return True

    def _take_cutoff(self) -> None:
        version = self._models.current(CUTOFF_KIND)
        if version == self._cutoff_version:
            return
        self._cutoff_version = version  # also when it fails: it is said once
        try:
            self.cutoff = load_cutoff(self._models)
        except AdvisorError as error:
            log.warning("cutoff.not_used", code=error.code, message=str(error))

    def _learn(self, predictor: Predictor, outcome: JobOutcome, state_at: StateAt) -> None:
        wait_is_new = outcome.job.job_id not in self._waits
        if outcome.is_whole:
            self._waits.discard(outcome.job.job_id)
        else:  # another run of it may end
            self._waits.add(outcome.job.job_id)
        state = state_at(outcome.job.submit_time)
        here = on_premise_outcome(outcome, self._settings, self._store, self._ratio)
        # the wait of one that ran in the cloud was not the on-premise queue's
        predictor.learn(here, state, wait=wait_is_new and not self._is_burst(outcome.partition))

    def _is_burst(self, partition: str | None) -> bool:
        return partition == self._settings.cluster.burst_partition

    def _loaded(self) -> Predictor | None:
        try:
            version = self._models.current(PREDICTOR_KIND)
            arrays, meta = self._models.load(PREDICTOR_KIND, version)
            predictor = Predictor.from_arrays(arrays, meta)
            position = int(meta["position"])
            waits = {int(job_id) for job_id in meta["waits"]}
        except UseFallback:
            return None
        except (AdvisorError, KeyError, TypeError, ValueError) as error:
            log.warning("knowledge.not_loaded", error=str(error), instead="built from the history")
            return None
        tuned = self._models.current(PARAMETERS_KIND)
        signature = self._signature(tuned)
        # earlier releases did not save the settings with which it was built
        if meta.get("parameters") != tuned or meta.get("settings", signature) != signature:
            return None
        if position > self._store.last_position():  # it was built from another database
            return None
        self._position, self._waits = position, waits
        self._saved_version = version
        self._parameters_version = meta["parameters"]
        return predictor

    def _signature(self, tuned: str | None) -> list[float]:
        """Settings that a knowledge base is built with; the estimators' own count until they are tuned."""
        own, offset = self._settings.estimator, self._settings.cluster.utc_offset_seconds
        untuned = [own.neighbours, own.kernel_width, own.knowledge_base_jobs] if tuned is None else []
        return [offset, *untuned]

    def _built(self) -> Predictor:
        self._parameters_version = self._models.current(PARAMETERS_KIND)
        untuned = untuned_of(self._settings.estimator, CUNHA_TABLE_I)
        parameters = load_parameters(self._models, CUNHA_TABLE_I, untuned)
        while True:
            position = self._store.last_position()
            recent = self._store.recent(_HISTORY_FACTOR * max(p.s for p in parameters.values()))
            since = recent[0].end_time if recent else math.inf
            table = self._store.table(
                since,
                utc_offset_seconds=self._settings.cluster.utc_offset_seconds,
                total_processors=self.total_processors,
            )
            if self._store.last_position() == position:
                break
        encoder = Encoder(
            CUNHA_TABLE_I,
            start_of_log=0.0,
            utc_offset_seconds=self._settings.cluster.utc_offset_seconds,
        )
        predictor = Predictor(parameters["wait"], parameters["run"], encoder=encoder)
        if self._predictor is not None:
            predictor.wait.widening = self._predictor.wait.widening
            predictor.run.widening = self._predictor.run.widening
        # run times in the cloud are learned one by one as jobs end (`learn_ends`)
        here = on_premise(table, self._settings.cluster.burst_partition)
        if len(here):
            predictor.learn_table(here, states_of(here))
        self._position, self._waits = position, set(here.job_id[~here.is_whole].tolist())
        self._is_changed = True
        log.info("knowledge.built", jobs=len(here), cases=len(predictor.run))
        return predictor
