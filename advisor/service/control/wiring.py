"""The parts of `advisor control`: the poll loop, the features, hand-overs and metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from advisor import __version__
from advisor.ec2.account import Account
from advisor.ec2.prices import Prices
from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model.advice import Capacity
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.service.cloud.pricing import price_table
from advisor.service.control.connections import Connections, Shared
from advisor.service.control.features import Features
from advisor.service.control.metrics_page import LoopCollector, MetricsPage
from advisor.service.control.polling import PollLoop
from advisor.service.exchange.announcing import Announced
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.control_socket import ControlSocket
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.exchange.socket_file import SocketFile, permitted_uids
from advisor.service.exchange.staged import Staged
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges
from advisor.service.running.isolating import do_all
from advisor.service.running.loops import LoopHealth, LoopRunner
from advisor.service.running.metrics import ControlMetrics
from advisor.service.running.notify import Notifier
from advisor.service.state.cloud_record import ClosedOptions, CloudRecord

log = structlog.get_logger(__name__)

HANDOVER_FOLDER: Final = "handover"
_OPTIONAL_FIELDS: Final = (
    "cloud_report",
    "placement",
    "places",
    "advising",
    "asking_again",
    "price",
    "portfolio",
    "matching",
    "acquirer",
)
"""Fields of status.json that are null while their feature is off."""


class Control:
    """The poll loop, all features, and the objects that they share.

    Args:
        settings: The settings in force; they are read again only at the next start.

    Raises:
        BadInput: A folder cannot be made.
    """

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        *,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or Clock()
        # the loops that learn open it: a problem with it must not keep instances from being ended
        self.store = HistoryStore(settings.history_url, later=True)
        self.metrics = ControlMetrics()
        self.view = SharedView(self.clock, settings.submit.snapshot_max_age_seconds)
        self.cloud = CloudRecord(settings.paths.state, self.clock)
        self.folder = HandoverFolder(settings.paths.state / HANDOVER_FOLDER)
        self._connections = connections
        self._notifier = notifier or Notifier(None)
        self._named = Features(settings, connections, self._shared())
        self.features: tuple[Feature, ...] = self._named.all
        self._poll_runner = LoopRunner(self._poll_loop(), self.clock)
        self.runners = {
            runner.loop.name: runner
            for runner in (self._poll_runner, *(runner for each in self.features for runner in each.runners))
        }
        self.metrics.registry.register(LoopCollector(self.health, self._gauges))
        self._page: MetricsPage | None = None
        self._socket: ControlSocket | None = None

    def _shared(self) -> Shared:
        return Shared(
            clock=self.clock,
            store=self.store,
            models=self._connections.models or ModelStore(folder=self.settings.paths.models),
            view=self.view,
            cloud=self.cloud,
            folder=self.folder,
            metrics=self.metrics,
            prices=self.prices,
            account=self.account,
            wake_poll=self._wake_poll,
        )

    def _poll_loop(self) -> PollLoop:
        cloud, hedge, moves = self._named.cloud, self._named.hedge, self._named.moves
        return PollLoop(
            self.settings,
            slurm=self._connections.slurm,
            view=self.view,
            cloud=self.cloud,
            closings=self._closings,
            status=self.status,
            clock=self.clock,
            features=self.features,
            runs=self._named.expected_runs,
            prices=self.prices,
            instances=tuple if cloud is None else lambda: cloud.listed()[0],
            account=self.account,
            stop_of=(lambda _: None) if hedge is None else hedge.watch.stop_of,
            renew=(lambda: None) if cloud is None else cloud.renew,
            foreseen=(lambda jobs: jobs) if moves is None else moves.foreseen,
        )

    def prices(self) -> Prices:
        """The prices in force, without a call."""
        cache = self._connections.prices
        return Prices.of_settings(self.settings.ec2) if cache is None else cache.prices

    def account(self) -> Account:
        """The last data read of the AWS account, without a call."""
        cache = self._connections.account
        return Account() if cache is None else cache.account

    def start(self) -> None:
        """Accept hand-overs, poll Slurm once, then run all loops.

        Raises:
            BadInput: The socket, a folder or the metrics page cannot be had.
        """
        socket_file = SocketFile(self.settings.paths.control_socket, group=self.settings.submit.socket_group)
        self.folder.prepare()
        self._socket = ControlSocket(
            socket_file,
            self.folder,
            permitted_uids(self.settings),
            self.handover_arrived,
            self.placeholder_started,
            self.hedges_announced,
            self.stage_in_ended,
            None if self._named.connector is None else self._named.connector.answer,
        )
        self._socket.start()
        try:
            self._start_page()
        except BaseException:
            self._socket.stop()
            raise
        early = self._named.reading
        for feature in early:
            feature.start()
        # before READY: the submit server then finds a snapshot from its first question on
        self._poll_runner.run_once()
        self._poll_runner.start()
        for feature in self.features:
            if feature not in early:
                feature.start()
        self._notifier.ready(self.status_line())
        log.info("control.ready", loops=sorted(self.runners), status=self.status_line())

    def prepare(self) -> None:
        """Make the preparations of `start`, for a caller that runs the loops' rounds itself.

        Raises:
            BadInput: The hand-over folder cannot be made.
        """
        self.folder.prepare()
        self._poll_runner.run_once()
        for feature in self.features:
            feature.prepare()

    def _start_page(self) -> None:
        loops = self.settings.loops
        if loops.metrics_port:
            self._page = MetricsPage((loops.metrics_address, loops.metrics_port), self._metrics_text)
            self._page.start()

    def stop(self, timeout: float = 40.0) -> bool:
        """End after the rounds under way; from now on hand-overs stay files.

        Args:
            timeout: Seconds for all loops together; systemd waits 60 before it kills.

        Returns:
            False when a loop is still at work, as in a launch that EC2 throttles. No other process may begin
                then: both would launch for the same nodes.
        """
        if self._socket is not None:
            self._socket.stop()
        if self._page is not None:
            self._page.stop()
        for feature in self.features:
            feature.stop()
        for runner in self.runners.values():
            runner.ask_to_stop()
        deadline = time.monotonic() + timeout
        steering = {name for feature in self.features for name in feature.steering}
        at_work = self._at_work(steering, deadline)
        if not at_work:  # before the other loops end, which may simulate for a minute
            self._release()
        at_work += self._at_work(self.runners.keys() - steering, deadline)
        if at_work:
            log.warning("control.loop_did_not_end", loops=at_work)
            return False
        self._named.learn.keep()
        self.store.close()
        log.info("control.stopped")
        return True

    def _release(self) -> None:
        """Let each feature give back what it has set, also where one cannot (a full disk)."""
        try:
            do_all(*(feature.release for feature in self.features))
        except AdvisorError as error:
            log.warning("control.not_released", code=error.code, message=str(error), exc_info=error.__cause__)

    def _at_work(self, names: Iterable[str], deadline: float) -> list[str]:
        """Wait for loops to end; the names of those that have not by then (monotonic seconds)."""
        return [
            name
            for name in sorted(names)
            if not self.runners[name].stop(max(0.0, deadline - time.monotonic()))
        ]

    def feed_watchdog(self) -> None:
        """Tell systemd that the process is alive, unless a loop is stuck."""
        stuck = [name for name, runner in self.runners.items() if runner.is_stuck]
        if stuck:
            log.error("control.stuck", loops=stuck)
            return
        self._notifier.alive(self.status_line())

    def health(self) -> Mapping[str, LoopHealth]:
        """Each loop's health."""
        return {name: runner.health for name, runner in self.runners.items()}

    @property
    def is_outdated(self) -> bool:
        """Whether the loops have to start anew: the history they have learned from was replaced."""
        return self.store.was_replaced

    def history_problem(self) -> str:
        """The problem with the history, in words; empty if its last use succeeded in every loop."""
        for health in self.health().values():
            for failure in health.open_failures.values():
                if failure.code.startswith("history."):
                    return failure.message
        return ""

    def status(self) -> Mapping[str, Any]:
        """The fields of `advisor status` besides those of the cluster."""
        breakers = self._connections.breakers
        content: dict[str, Any] = {
            "release": __version__,
            "pid": os.getpid(),
            "cloud_configured": False,
            "boot_failures_in_a_row": self.cloud.boot_failures,
            "history_problem": self.history_problem() or None,
            "prices": price_table(self.prices(), self.clock.wall()),
            **dict.fromkeys(_OPTIONAL_FIELDS),
            "closed_pools": breakers.unavailable() if breakers is not None else {},
            "loops": {name: health.summary() for name, health in self.health().items()},
        }
        for feature in self.features:
            content |= feature.status()
        return content

    def status_line(self) -> str:
        """One line for systemctl status."""
        troubles = [
            f"{name}: {step}" for name, health in self.health().items() for step in health.open_failures
        ]
        cases = self._named.learn.knowledge.cases
        return f"{cases} jobs known; " + ("failing: " + ", ".join(troubles) if troubles else "all loops well")

    def handover_arrived(self) -> None:
        """Wake the loop that acts on hand-overs: one was stored."""
        if self._named.cloud is not None:
            self._named.cloud.handed_over()

    def _wake_poll(self) -> None:
        self._poll_runner.wake()

    def placeholder_started(self) -> None:
        """Poll Slurm now: a placeholder has started."""
        if self._named.hedge is not None:
            self._named.hedge.placeholder_started()

    def hedges_announced(self, jobs: Sequence[Announced]) -> None:
        """Submit placeholders now for jobs that start hedged."""
        if self._named.hedge is not None:
            self._named.hedge.announced(jobs)

    def stage_in_ended(self, ended: Staged) -> bool:
        """Learn from the stage-in of a job's data, or bring the job back; whether that is settled."""
        return self._named.cloud is not None and self._named.cloud.stage_in_ended(ended)

    def _closings(self, types: Sequence[str] = ()) -> ClosedOptions:
        breakers = self._connections.breakers
        if breakers is None:
            return ClosedOptions()
        return ClosedOptions(
            spot=breakers.closed(Capacity.SPOT, self.settings.ec2, types),
            on_demand=breakers.closed(Capacity.ON_DEMAND, self.settings.ec2, types),
        )

    def _gauges(self) -> Gauges:
        usd, _ = self.cloud.budget.spent_today()
        gauges = {
            "history_usable": (not self.history_problem(), "0: nothing is learned, see the status."),
            "cloud_spent_today_usd": (usd, "Dollars that the budget counts as spent since midnight UTC."),
            "cloud_boot_failures_in_a_row": (self.cloud.boot_failures, "Since the last good boot."),
            "cloud_protected": (bool(self.cloud.protected), "1: nothing is sent to the cloud."),
            "cloud_boot_seconds": (self.cloud.boot_seconds or 0.0, "Boot time reckoned with; 0 until known."),
        }
        for feature in self.features:
            gauges |= feature.gauges()
        return gauges

    def _metrics_text(self) -> bytes:
        with SubmitClient(self.settings.paths.submit_socket, timeout=1.0) as client:
            return self.metrics.exposition(client.metrics)
