"""The life of `advisor serve`: bind, warm up, say READY, answer, stop cleanly."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import structlog

from advisor.decide.submission import priced
from advisor.model.errors import AdvisorError
from advisor.model.estimate import NO_SIZE
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.predict.run_times.run_times import RunTimesOfJobs, priced_estimates
from advisor.service.exchange.announcing import Announcer
from advisor.service.exchange.protocol import VERSION, AdviseRequest, encode_hook_reply
from advisor.service.exchange.socket_file import SocketFile, permitted_uids
from advisor.service.exchange.spool import SpoolWriter
from advisor.service.running import huge_pages
from advisor.service.running.metrics import ServeMetrics
from advisor.service.running.notify import Notifier
from advisor.service.running.signals import DaemonSignals
from advisor.service.state.records import APPLIED_NAME
from advisor.service.submit.answering import Answerer
from advisor.service.submit.server import SubmitServer
from advisor.service.submit.state_holder import LoadModel, StateHolder
from advisor.simulate.pool.closed_queue import ClosedQueue
from advisor.simulate.pool.start_profile import NODE_COLUMNS, no_sooner, start_profile

_SWITCH_SECONDS: Final = 0.00005
_COLLECT_SECONDS: Final = 60.0
_WARM_UP_QUESTIONS: Final = 200
_TICK_SECONDS: Final = 10.0
_ROTATE_SECONDS: Final = 2.0
_JOINED_SECONDS: Final = 0.5

log = structlog.get_logger(__name__)


class Service:
    """All parts of the submit server, put together."""

    def __init__(self, settings: Settings, *, load_model: LoadModel, notifier: Notifier) -> None:
        self.settings = settings
        self.holder = StateHolder(settings, load_model=load_model)
        self.answerer = Answerer(self.holder)
        self.metrics = ServeMetrics()
        # advice that an esub asked for is joined to its job as soon as it is in the ledger
        rotate_seconds = _JOINED_SECONDS if settings.submit.every_user else _ROTATE_SECONDS
        self.spool = SpoolWriter(settings.paths.spool, rotate_seconds=rotate_seconds)
        self.announcer = Announcer(settings.paths.control_socket)
        self._socket_file = SocketFile(
            settings.paths.submit_socket,
            group=settings.submit.socket_group,
            every_user=settings.submit.every_user,
        )
        self._notifier = notifier
        self._server: SubmitServer | None = None

    def start(self) -> None:
        """Bind, read what there is, warm up, answer.

        Raises:
            BadInput: The socket or the spool cannot be made.
        """
        self._socket_file.claim()
        try:
            self.spool.start()
            self.holder.refresh()
            self.warm_up()
            # not earlier: a hook that connects must be answered, until then its connect fails at once
            listener = self._socket_file.listen()
        except BaseException:
            self._socket_file.remove()
            raise
        self._server = SubmitServer(
            listener,
            answerer=self.answerer,
            holder=self.holder,
            spool=self.spool,
            metrics=self.metrics,
            announcer=self.announcer,
            allowed_uids=permitted_uids(self.settings),
            every_user=self.settings.submit.every_user,
        )
        tune_interpreter()
        self.holder.start()
        self.announcer.start()
        self._server.start()
        self._notifier.ready(self.status())
        log.info("serve.ready", socket=str(self.settings.paths.submit_socket), status=self.status())

    def warm_up(self) -> None:
        """Answer made-up questions, so that the first real one meets compiled functions and full caches."""
        _load_compiled()
        for sequence in range(_WARM_UP_QUESTIONS):
            request = AdviseRequest(
                v=VERSION, seq=sequence, user="warm-up", name="warm-up", min_cpus=1 + sequence % 64, dry=True
            )
            encode_hook_reply(self.answerer.answer(request).reply)

    def stop(self) -> None:
        """Answer what is under way, write everything down, remove the socket."""
        self._notifier.stopping()
        self._socket_file.remove()
        if self._server is not None:
            self._server.stop()
        self.announcer.stop()
        self.holder.stop()
        self.spool.stop()
        log.info("serve.stopped", advice_given=self._server.advice_given if self._server else 0)

    def status(self) -> str:
        """One line for systemctl status."""
        knowledge = self.holder.current
        model = self.holder.forecast_version or "none"
        snapshot = knowledge.snapshot
        age = "none" if snapshot is None else f"{time.time() - snapshot.state.time:.0f} s old"
        given = self._server.advice_given if self._server is not None else 0
        return f"{given} advised; model {model}; snapshot {age}"

    def use_settings(self, settings: Settings, load_model: LoadModel) -> None:
        """Swap settings while running; socket and spool stay where they are until the next start."""
        self.settings = settings
        if self._server is not None:
            self._server.allowed_uids = permitted_uids(settings)
        self.holder.use_settings(settings, load_model)

    def is_answering(self, timeout: float) -> bool:
        """Whether the lock of the hot path comes free: a stuck answer must not be called alive."""
        if not self.answerer.lock.acquire(timeout=timeout):
            return False
        self.answerer.lock.release()
        return True

    def feed_watchdog(self) -> None:
        """Tell systemd we are alive, if we are."""
        if self.is_answering(timeout=1.0):
            self._notifier.alive(self.status())

    def collect_garbage(self) -> None:
        """Collect garbage between two answers; then put the memory of newly loaded models in huge pages."""
        with self.answerer.lock:
            gc.collect()
        huge_pages.collapse()


def tune_interpreter() -> None:
    """Let neither garbage collection nor a long slice of another thread delay a submission's answer.

    Everything loaded so far is frozen, so that the collector skips it; the rest is collected once a minute
    between two answers. A thread that wants the interpreter gets it within 0.05 ms instead of 5.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    sys.setswitchinterval(_SWITCH_SECONDS)
    huge_pages.collapse()


def run(
    settings: Settings, *, loader_of: Callable[[Settings], LoadModel], reload_settings: Callable[[], Settings]
) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the settings again (bad ones: the old ones stay)."""
    signals = DaemonSignals(settings.paths.state / APPLIED_NAME)
    notifier = Notifier.from_environment(os.environ)
    service = Service(settings, load_model=loader_of(settings), notifier=notifier)

    def take_up() -> None:
        fresh = reload_settings()
        service.use_settings(fresh, loader_of(fresh))

    service.start()
    try:
        _attend(service, notifier, signals, take_up)
    finally:
        service.stop()


def _attend(
    service: Service, notifier: Notifier, signals: DaemonSignals, take_up: Callable[[], None]
) -> None:
    tick = min(_TICK_SECONDS, (notifier.watchdog_seconds or 20.0) / 3)
    next_collection = time.monotonic() + _COLLECT_SECONDS
    while not signals.stop.is_set():
        signals.wait(tick)
        if signals.reload.is_set():
            signals.reload.clear()
            try:
                take_up()
                log.info("settings.reloaded")
            except AdvisorError as error:
                log.warning("settings.not_reloaded", message=str(error), kept="the previous ones")
        service.feed_watchdog()
        if time.monotonic() >= next_collection:
            service.collect_garbage()
            next_collection = time.monotonic() + _COLLECT_SECONDS


def _load_compiled() -> None:
    """Compile the functions that a first forecast needs, or load them from the cache."""
    running, waiting, one = np.array([[4.0, 0.0, 60.0, 60.0]]), np.array([[2.0, 60.0, 60.0]]), np.ones(1)
    profile = start_profile(ClosedQueue(np.array([4.0]), running, waiting), 0.0)
    profile.join(one, 60.0, 0.0, 60.0)
    no_sooner(np.zeros((1, NODE_COLUMNS)), np.ones(5), 0.0)
    priced.warm()
    job = Job(job_id=0, submit_time=0.0, processors=1, requested_time=60.0)
    priced_estimates(RunTimesOfJobs(), job, profile.start_of(one, 60.0, 0.0), NO_SIZE)
