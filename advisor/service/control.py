"""The life of `advisor control`: everything slow. Loops, hand-overs, metrics; never the submit path."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from advisor import __version__
from advisor.ec2.fleet import Fleet
from advisor.ec2.interruptions import Interruptions
from advisor.ec2.journal import Journal
from advisor.ec2.pools import Breakers
from advisor.ec2.prices import PriceCache, Prices
from advisor.ec2.state_file import StateFile
from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model.advice import Capacity
from advisor.model.errors import AdvisorError, BadInput
from advisor.model.settings import Settings
from advisor.service.client import SubmitClient
from advisor.service.clock import Clock
from advisor.service.cloud_metrics import CloudCollector
from advisor.service.cloud_record import CloudRecord
from advisor.service.cloud_report import CloudReport
from advisor.service.handover import ControlSocket, HandoverFolder
from advisor.service.interrupting import InterruptionLoop, SpotParts
from advisor.service.interruption_record import InterruptionRecord
from advisor.service.knowledge import Knowledge
from advisor.service.learning import LearnLoop
from advisor.service.listening import NoticeLoop
from advisor.service.looking import LookLoop
from advisor.service.loops import LoopHealth, LoopRunner
from advisor.service.metrics import ControlMetrics
from advisor.service.metrics_page import LoopCollector, MetricsPage
from advisor.service.notify import Notifier
from advisor.service.placement_loop import PlacementLoop
from advisor.service.pricing import PriceLoop, price_table
from advisor.service.provisioning import CloudFleet, ProvisionLoop
from advisor.service.reconciling import ReconcileLoop
from advisor.service.size_knowledge import SizeKnowledge
from advisor.service.socket_file import SocketFile, permitted_uids
from advisor.service.view import SharedView
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.running_jobs import RunningJobs

log = structlog.get_logger(__name__)

_TICK_SECONDS: Final = 5.0
HANDOVER_FOLDER: Final = "handover"


class Control:
    """All loops and what they share.

    Parameters
    ----------
    settings : Settings
        In force; read again only at the next start.
    slurm : SlurmBackend
        Slurm.
    fleet : CloudFleet or None
        EC2; None where no image is set: then nothing is provisioned.
    breakers : Breakers or None
        The fleet's.
    prices : PriceCache or None
        What nodes cost; None: what the settings say.
    clock : Clock
        Time.
    notifier : Notifier
        systemd.
    spot : SpotParts or None
        What EC2 says about the end of instances; None: only what it lists is looked at.

    Raises
    ------
    BadInput
        The history cannot be opened, a folder not be made.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        fleet: CloudFleet | None,
        breakers: Breakers | None = None,
        prices: PriceCache | None = None,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        spot: SpotParts | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or Clock()
        self.store = HistoryStore(settings.paths.history_url)
        self.metrics = ControlMetrics()
        self.view = SharedView(self.clock, settings.submit.snapshot_max_age_seconds)
        self.cloud = CloudRecord(
            settings.paths.state / "cloud.json", self.clock, quantile=settings.placement.boot_quantile
        )
        self.folder = HandoverFolder(settings.paths.state / HANDOVER_FOLDER)
        models = ModelStore(folder=settings.paths.models)
        self.knowledge = Knowledge(settings, self.store, models)
        self._breakers = breakers
        self._prices = prices
        self._notifier = notifier or Notifier(None)
        self.placement: PlacementLoop | None = None
        if settings.placement.rule == "advisor":
            self.placement = PlacementLoop(settings, store=self.store, models=models, clock=self.clock)
        self.look = LookLoop(
            settings,
            slurm=slurm,
            view=self.view,
            cloud=self.cloud,
            is_open=self._is_open,
            status=self.status,
            clock=self.clock,
            prices=self.prices,
            placement=self.placement,
        )
        self.learn = LearnLoop(
            settings,
            slurm=slurm,
            store=self.store,
            knowledge=self.knowledge,
            sizes=SizeKnowledge(models, self.clock),
            view=self.view,
            metrics=self.metrics,
            clock=self.clock,
        )
        self.runners: dict[str, LoopRunner] = {
            loop.name: LoopRunner(loop, self.clock) for loop in (self.look, self.learn)
        }
        if self.placement is not None:
            self.runners[self.placement.name] = LoopRunner(self.placement, self.clock)
        self.report: CloudReport | None = None
        if fleet is not None:
            self._add_cloud(fleet, slurm, spot)
        self.metrics.registry.register(LoopCollector(self.health, self._gauges))
        self._page: MetricsPage | None = None
        self._socket: ControlSocket | None = None

    def _add_cloud(self, fleet: CloudFleet, slurm: SlurmBackend, spot: SpotParts | None) -> None:
        record = InterruptionRecord(StateFile(self.settings.paths.state / "interruptions.json"))
        provision = ProvisionLoop(
            self.settings,
            folder=self.folder,
            fleet=fleet,
            slurm=slurm,
            view=self.view,
            cloud=self.cloud,
            clock=self.clock,
            prices=self.prices,
            interruptions=record,
        )
        reconcile = ReconcileLoop(
            self.settings,
            fleet=fleet,
            slurm=slurm,
            view=self.view,
            cloud=self.cloud,
            clock=self.clock,
            prices=self.prices,
            interruptions=record,
        )
        for loop in (provision, reconcile):
            self.runners[loop.name] = LoopRunner(loop, self.clock)
        if spot is not None:
            interruptions = InterruptionLoop(
                self.settings,
                instances=lambda: reconcile.last_listed,
                slurm=slurm,
                jobs=spot.jobs,
                view=self.view,
                record=record,
                clock=self.clock,
            )
            runner = self.runners[interruptions.name] = LoopRunner(interruptions, self.clock)
            notices = NoticeLoop(
                source=spot.source,
                instances=lambda: reconcile.last_listed,
                record=record,
                heard=runner.wake,
                clock=self.clock,
            )
            self.runners[notices.name] = LoopRunner(notices, self.clock)
        self.report = CloudReport(
            self.settings,
            cloud=self.cloud,
            provision=provision,
            reconcile=reconcile,
            record=record,
            breakers=self._breakers,
            view=self.view,
            prices=self.prices,
            clock=self.clock,
        )
        self.metrics.registry.register(CloudCollector(self.report))
        if self._prices is not None:
            self.runners[PriceLoop.name] = LoopRunner(PriceLoop(self._prices), self.clock)

    def prices(self) -> Prices:
        """Prices in force, asking nobody."""
        return self._prices.prices if self._prices else Prices.of_settings(self.settings.ec2)

    def start(self) -> None:
        """Take hand-overs, look at Slurm once, then run all loops.

        Raises
        ------
        BadInput
            The socket, a folder or the metrics page cannot be had.
        """
        socket_file = SocketFile(self.settings.paths.control_socket, group=self.settings.submit.socket_group)
        self.folder.prepare()
        self._socket = ControlSocket(
            socket_file, self.folder, permitted_uids(self.settings), self._handover_arrived
        )
        self._socket.start()
        try:
            self._start_page()
        except BaseException:
            self._socket.stop()
            raise
        # before READY: the submit server then finds a snapshot from its first question on
        self.runners["look"].run_once()
        self._prepare_knowledge()
        for runner in self.runners.values():
            runner.start()
        self._notifier.ready(self.status_line())
        log.info("control.ready", loops=sorted(self.runners), status=self.status_line())

    def _prepare_knowledge(self) -> None:
        """Hand the submit server what the history knows; what fails here the learn loop tries again."""
        try:
            self.knowledge.prepare()
        except AdvisorError as error:
            log.warning("knowledge.not_prepared", code=error.code, message=str(error))

    def _start_page(self) -> None:
        loops = self.settings.loops
        if loops.metrics_port:
            self._page = MetricsPage((loops.metrics_address, loops.metrics_port), self._metrics_text)
            self._page.start()

    def stop(self) -> None:
        """End after the rounds under way; hand-overs are left as files from now on."""
        self._notifier.stopping()
        if self._socket is not None:
            self._socket.stop()
        if self._page is not None:
            self._page.stop()
        if self.placement is not None:
            self.placement.stop()
        for name, runner in self.runners.items():
            if not runner.stop():
                log.warning("control.loop_did_not_end", loop=name)
        self.store.close()
        log.info("control.stopped")

    def feed_watchdog(self) -> None:
        """Tell systemd we are alive, unless a loop is stuck."""
        stuck = [name for name, runner in self.runners.items() if runner.is_stuck]
        if stuck:
            log.error("control.stuck", loops=stuck)
            return
        self._notifier.alive(self.status_line())

    def health(self) -> Mapping[str, LoopHealth]:
        """Each loop's health."""
        return {name: runner.health for name, runner in self.runners.items()}

    def status(self) -> Mapping[str, Any]:
        """What `advisor status` shows besides the cluster."""
        return {
            "release": __version__,
            "pid": os.getpid(),
            "cloud_configured": "provision" in self.runners,
            "boot_failures_in_a_row": self.cloud.boot_failures,
            "knowledge_base_jobs": self.knowledge.cases,
            "jobs_learned": self.learn.jobs_learned,
            "prices": price_table(self.prices(), self.clock.wall()),
            "cloud_report": self.report.everything() if self.report is not None else None,
            "placement": self.placement.report() if self.placement is not None else None,
            "closed_pools": self._breakers.table() if self._breakers is not None else {},
            "loops": {
                name: {
                    "rounds": health.rounds,
                    "seconds": health.seconds,
                    "last_good_round": health.last_good_round,
                    "failures": sum(health.failures.values()),
                    "open_failures": health.open_failures,
                }
                for name, health in self.health().items()
            },
        }

    def status_line(self) -> str:
        """One line for systemctl status."""
        troubles = [
            f"{name}: {step}" for name, health in self.health().items() for step in health.open_failures
        ]
        return f"{self.knowledge.cases} jobs known; " + (
            ", ".join(troubles) if troubles else "all loops well"
        )

    def _handover_arrived(self) -> None:
        runner = self.runners.get("provision")
        if runner is not None:
            runner.wake()

    def _is_open(self) -> tuple[bool, bool]:
        if self._breakers is None:
            return True, True
        return (
            self._breakers.option_open(Capacity.SPOT, self.settings.ec2),
            self._breakers.option_open(Capacity.ON_DEMAND, self.settings.ec2),
        )

    def _gauges(self) -> Mapping[str, tuple[float, str]]:
        usd, _ = self.cloud.purse.spent_today()
        return {
            "knowledge_base_jobs": (float(self.knowledge.cases), "Run times in the knowledge base."),
            "jobs_learned": (float(self.learn.jobs_learned), "Jobs learned since the start."),
            "cloud_spent_today_usd": (usd, "Dollars spent in the cloud since midnight UTC."),
            "cloud_boot_failures_in_a_row": (float(self.cloud.boot_failures), "Since the last good boot."),
            "cloud_protected": (float(bool(self.cloud.protected)), "1: nothing is sent to the cloud."),
            "cloud_boot_seconds": (self.cloud.boot_seconds or 0.0, "Boot time reckoned with; 0 until known."),
        }

    def _metrics_text(self) -> bytes:
        with SubmitClient(self.settings.paths.submit_socket, timeout=1.0) as client:
            return self.metrics.exposition(client.metrics)


def make_control(settings: Settings, *, notifier: Notifier | None = None) -> Control:
    """Put the real parts together.

    Raises
    ------
    BadInput
        A folder cannot be made, the history not be opened.
    """
    _make_folder(settings.paths.state, "paths.state")
    _make_folder(settings.paths.run, "paths.run")
    fleet, breakers, prices, spot = None, None, None, None
    if settings.ec2.image_id:
        breakers = Breakers(StateFile(settings.paths.state / "pools.json"), Clock().wall)
        journal = Journal(settings.paths.state / "launches.jsonl")
        fleet = Fleet(settings.ec2, settings.cluster.name, journal, breakers)
        commands = Commands(settings.paths.slurm_bin, settings.paths.slurm_conf)
        spot = SpotParts(Interruptions(settings.ec2, settings.cluster.name), RunningJobs(commands))
        prices = PriceCache(settings.ec2, StateFile(settings.paths.state / "prices.json"), Clock().wall)
    else:
        log.info("control.no_cloud", reason="ec2.image_id is empty")
    slurm = CliBackend.of(settings)
    return Control(
        settings,
        slurm=slurm,
        fleet=fleet,
        breakers=breakers,
        prices=prices,
        notifier=notifier,
        spot=spot,
    )


def _make_folder(path: Path, setting: str) -> None:
    try:
        path.mkdir(mode=0o750, parents=True, exist_ok=True)
        probe = path / f".probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise BadInput(
            f"the folder cannot be used ({error.strerror})",
            where=f"{setting} = {path}",
            mend="Give it to the advisor's user, or name another one",
            code="control.folder",
        ) from None


def run(settings: Settings, *, reload_settings: Callable[[], Settings]) -> None:
    """Run until SIGTERM or SIGINT. SIGHUP starts anew with the settings as they are then, if good."""
    stop, reload, wake = threading.Event(), threading.Event(), threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        (reload if number == signal.SIGHUP else stop).set()
        wake.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    notifier = Notifier.from_environment(os.environ)
    tick = min(_TICK_SECONDS, (notifier.watchdog_seconds or 3 * _TICK_SECONDS) / 3)
    while not stop.is_set():
        reload.clear()
        control = make_control(settings, notifier=notifier)
        control.start()
        try:
            while not (stop.is_set() or reload.is_set()):
                wake.wait(tick)
                wake.clear()
                control.feed_watchdog()
                if reload.is_set():
                    settings, changed = _reloaded(settings, reload_settings)
                    if not changed:
                        reload.clear()
        finally:
            control.stop()


def _reloaded(settings: Settings, reload_settings: Callable[[], Settings]) -> tuple[Settings, bool]:
    try:
        return reload_settings(), True
    except AdvisorError as error:
        log.warning("settings.not_reloaded", message=str(error), kept="the previous ones")
        return settings, False
