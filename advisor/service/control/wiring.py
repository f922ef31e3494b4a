"""What `advisor control` is made of: everything slow. Loops, hand-overs, metrics; never the submit path."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import structlog

from advisor import __version__
from advisor.ec2.pools import Breakers
from advisor.ec2.prices import PriceCache, Prices
from advisor.files.state_file import StateFile
from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model.advice import Capacity
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.service.cloud.cloud_fleet import CloudFleet
from advisor.service.cloud.interrupting import SpotParts
from advisor.service.cloud.launch_record import CloudRecord
from advisor.service.cloud.money import reserved_in_force
from advisor.service.cloud.pricing import price_table
from advisor.service.control.cloud_loops import CloudLoops
from advisor.service.control.cloud_metrics import CloudCollector
from advisor.service.control.cloud_report import CloudReport
from advisor.service.control.metrics_page import LoopCollector, MetricsPage
from advisor.service.control.polling import PollLoop
from advisor.service.exchange.announcing import Announced
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.handover import ControlSocket, HandoverFolder
from advisor.service.exchange.socket_file import SocketFile, permitted_uids
from advisor.service.hedge.watching import WatchLoop, watch_loop
from advisor.service.learn.as_here import queued_here
from advisor.service.learn.both_sides import PerformanceRatioBook
from advisor.service.learn.knowledge import Knowledge
from advisor.service.learn.learning import LearnLoop
from advisor.service.learn.placement_loop import PlacementLoop
from advisor.service.learn.size_knowledge import SizeKnowledge
from advisor.service.observation.accounting import SOURCE
from advisor.service.observation.hedge_budget import HedgeBudget
from advisor.service.observation.hedge_entries import Fate
from advisor.service.observation.poll_view import SharedView
from advisor.service.portfolio.portfolio_loop import PortfolioLoop
from advisor.service.running.clock import Clock
from advisor.service.running.loops import Loop, LoopHealth, LoopRunner
from advisor.service.running.metrics import ControlMetrics
from advisor.service.running.notify import Notifier
from advisor.service.stability.acquirer import AcquireLoop
from advisor.service.stability.actuators import StabilityMeans, TakeBackLoop
from advisor.service.stability.match_loop import MatchLoop
from advisor.service.stability.outlook import PoolOrder
from advisor.service.stability.steering import AskWishes
from advisor.service.waiting.asking_again import AskingAgainLoop, asking_by_socket
from advisor.slurm.placeholders import Placeholders
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.steering import BurstSteering

log = structlog.get_logger(__name__)

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
    places : Placeholders or None
        Keeps places on-premise; None: nothing is watched.
    steering : BurstSteering or None
        Steers the burst partition; None: the portfolio does not.
    pool_order : PoolOrder or None
        The fleet's, told which pools are steady.
    wishes : AskWishes or None
        What jobs ask for: so that what matching has left in Slurm is taken back also without a fleet, and a
        waiting job that is moved keeps its user's preference.

    Raises
    ------
    BadInput
        A folder cannot be made.
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
        places: Placeholders | None = None,
        steering: BurstSteering | None = None,
        pool_order: PoolOrder | None = None,
        wishes: AskWishes | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or Clock()
        # opened by the loops that learn: whatever is wrong with it, machines have to be ended
        self.store = HistoryStore(settings.paths.history_url, later=True)
        self.metrics = ControlMetrics()
        self.view = SharedView(self.clock, settings.submit.snapshot_max_age_seconds)
        self.cloud = CloudRecord(
            settings.paths.state / "cloud.json", self.clock, quantile=settings.placement.boot_quantile
        )
        self.folder = HandoverFolder(settings.paths.state / HANDOVER_FOLDER)
        models = ModelStore(folder=settings.paths.models)
        self.ratios = PerformanceRatioBook(settings, self.store)
        self.knowledge = Knowledge(settings, self.store, models, self.ratios.ratio)
        self._breakers = breakers
        self._prices = prices
        self._notifier = notifier or Notifier(None)
        self.placement: PlacementLoop | None = None
        self.report: CloudReport | None = None
        self.hedges = HedgeBudget(settings, StateFile(settings.paths.state / "hedge_budget.json"))
        if settings.placement.rule == "advisor":
            self.placement = PlacementLoop(
                settings,
                store=self.store,
                models=models,
                clock=self.clock,
                fates=self._fate_of_place,
                unspent=lambda: self.hedges.unspent,
                ratios=self.ratios,
            )
        self.look = PollLoop(
            settings,
            slurm=slurm,
            view=self.view,
            cloud=self.cloud,
            is_open=self._is_open,
            status=self.status,
            clock=self.clock,
            prices=self.prices,
            placement=self.placement,
            hedges=self.hedges,
            cutoff=lambda: self.knowledge.cutoff,
            ratios=lambda: self.ratios.current,
            looked=self._looked,
            spot_nodes=lambda: self.report.spot_nodes() if self.report is not None else frozenset(),
            mean_processors=lambda: self.knowledge.mean_processors,
        )
        self.learn = LearnLoop(
            settings,
            slurm=slurm,
            store=self.store,
            knowledge=self.knowledge,
            sizes=SizeKnowledge(models, self.clock),
            ratios=self.ratios,
            view=self.view,
            metrics=self.metrics,
            clock=self.clock,
            meter=self.cloud.budget if fleet is not None else None,
        )
        self.runners: dict[str, LoopRunner] = {}
        self._add(self.look, self.learn)
        if self.placement is not None:
            self._add(self.placement)
        self.watch: WatchLoop | None = None
        self._places = places
        if places is not None:
            self.watch = watch_loop(
                settings,
                slurm=slurm,
                places=places,
                view=self.view,
                store=self.store,
                clock=self.clock,
                slowdown=lambda queued: self.ratios.ratio(queued_here(queued, settings).job),
                budget=self.hedges,
            )
            self.runners[self.watch.name] = LoopRunner(
                self.watch, self.clock, urgent_task=self.watch.urgent_task
            )
        self.portfolio = self._portfolio_loop(slurm, steering)
        self.asking = AskingAgainLoop(
            settings,
            slurm=slurm,
            view=self.view,
            advice=lambda job_id: self.store.advice_of(job_id, source=SOURCE),
            again=asking_by_socket(settings),
            state=StateFile(settings.paths.state / "asked_again.json"),
            clock=self.clock,
            paid_nodes=lambda: reserved_in_force(settings.capacity, self.prices()),
            prefers=lambda job_id: "" if wishes is None else wishes.node_constraints(job_id).prefer,
        )
        self._add(self.asking)
        self.match: MatchLoop | None = None
        self.acquire: AcquireLoop | None = None
        if fleet is not None:
            loops = CloudLoops(
                settings,
                slurm=slurm,
                fleet=fleet,
                spot=spot,
                pool_order=pool_order,
                breakers=breakers,
                cache=prices,
                prices=self.prices,
                folder=self.folder,
                view=self.view,
                cloud=self.cloud,
                clock=self.clock,
                today=lambda: self.learn.costs.today,
                paid_since=self.store.paid_since,
            )
            self.report, self.match, self.acquire = loops.report, loops.match, loops.acquire
            self.runners |= loops.runners
            self.metrics.registry.register(CloudCollector(loops.report))
        self.take_back = self._take_back_loop(slurm, wishes) if self.match is None else None
        self.metrics.registry.register(LoopCollector(self.health, self._gauges))
        self._page: MetricsPage | None = None
        self._socket: ControlSocket | None = None

    def _add(self, *loops: Loop) -> None:
        self.runners |= {loop.name: LoopRunner(loop, self.clock) for loop in loops}

    def _portfolio_loop(self, slurm: SlurmBackend, steering: BurstSteering | None) -> PortfolioLoop | None:
        if steering is None:
            return None
        loop = PortfolioLoop(
            self.settings,
            slurm=slurm,
            steering=steering,
            view=self.view,
            store=self.store,
            cloud=self.cloud,
            clock=self.clock,
        )
        if not loop.has_work:
            return None
        self._add(loop)
        if self.settings.portfolio.enabled:
            self._add(loop.judge)
        return loop

    def _take_back_loop(self, slurm: SlurmBackend, wishes: AskWishes | None) -> TakeBackLoop | None:
        if wishes is None:
            return None
        means = StabilityMeans(self.settings, slurm=slurm, jobs=wishes, view=self.view, clock=self.clock)
        if means.is_empty:
            return None
        loop = TakeBackLoop(self.settings, means)
        self._add(loop)
        return loop

    def _fate_of_place(self, job_id: int, advice_id: str) -> Fate | None:
        return self.watch.fate(job_id, advice_id) if self.watch is not None else None

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
            socket_file,
            self.folder,
            permitted_uids(self.settings),
            self._handover_arrived,
            self._turn_came,
            self._hedges_announced,
        )
        self._socket.start()
        try:
            self._start_page()
        except BaseException:
            self._socket.stop()
            raise
        # before READY: the submit server then finds a snapshot from its first question on
        self.runners["look"].run_once()
        for name, runner in self.runners.items():
            if name != self.learn.name:
                runner.start()  # before the history is asked, which may be locked for a while
        self._prepare_knowledge()
        self.runners[self.learn.name].start()
        self._notifier.ready(self.status_line())
        log.info("control.ready", loops=sorted(self.runners), status=self.status_line())

    def _prepare_knowledge(self) -> None:
        """Hand the submit server what the history knows; what fails here the learn loop tries again."""
        try:
            self.knowledge.prepare()
        except AdvisorError as error:
            log.warning("knowledge.not_prepared", code=error.code, message=str(error))
        except (
            Exception
        ):  # a damaged history may hold anything; nodes are to be started and ended all the same
            log.exception("knowledge.not_prepared")

    def _start_page(self) -> None:
        loops = self.settings.loops
        if loops.metrics_port:
            self._page = MetricsPage((loops.metrics_address, loops.metrics_port), self._metrics_text)
            self._page.start()

    def stop(self, timeout: float = 40.0) -> bool:
        """End after the rounds under way; hand-overs are left as files from now on.

        Parameters
        ----------
        timeout : float
            Seconds for all loops together; systemd waits 60 before it kills.

        Returns
        -------
        bool
            False when a loop is still at work, as in a launch that EC2 throttles. Nobody else may begin then:
            two of them would launch for the same nodes.
        """
        self._notifier.stopping()
        if self._socket is not None:
            self._socket.stop()
        if self._page is not None:
            self._page.stop()
        if self.placement is not None:
            self.placement.stop()
        if self.portfolio is not None:
            self.portfolio.stop()
        for runner in self.runners.values():
            runner.ask_to_stop()
        deadline = time.monotonic() + timeout
        steering = (self.watch, self.asking, self.portfolio, self.match, self.take_back, self.acquire)
        steerers = [loop.name for loop in steering if loop is not None]
        at_work = self._at_work(steerers, deadline)
        if not at_work:  # before the others, which may simulate for a minute: Slurm is its admins' at once
            self._let_go()
        at_work += self._at_work(self.runners.keys() - steerers, deadline)
        if at_work:
            log.warning("control.loop_did_not_end", loops=at_work)
            return False
        self.store.close()
        log.info("control.stopped")
        return True

    def _at_work(self, names: Iterable[str], deadline: float) -> list[str]:
        """Wait for loops to end; those that have not by then (monotonic seconds)."""
        return [
            name
            for name in sorted(names)
            if not self.runners[name].stop(max(0.0, deadline - time.monotonic()))
        ]

    def _let_go(self) -> None:
        if self._places is not None:
            self._places.close()
        if self.portfolio is not None:
            self.portfolio.end()
        match = self.match or self.take_back
        if match is not None:
            try:
                match.stop()
            except AdvisorError as error:  # the next process does it, or the bound in it
                log.warning("match.not_let_go", code=error.code, message=str(error))

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

    @property
    def is_outdated(self) -> bool:
        """Whether the loops have to begin anew: the history they have learned from is another one now."""
        return self.store.is_another

    def history_problem(self) -> str:
        """What is wrong with the history, in words; empty where all that was asked of it went well."""
        for health in self.health().values():
            for failure in health.open_failures.values():
                if failure.code.startswith("history."):
                    return failure.message
        return ""

    def status(self) -> Mapping[str, Any]:
        """What `advisor status` shows besides the cluster."""
        return {
            "release": __version__,
            "pid": os.getpid(),
            "cloud_configured": "provision" in self.runners,
            "boot_failures_in_a_row": self.cloud.boot_failures,
            "history_problem": self.history_problem() or None,
            "knowledge_base_jobs": self.knowledge.cases,
            "jobs_learned": self.learn.jobs_learned,
            "performance_ratios": self.ratios.current,
            "prices": price_table(self.prices(), self.clock.wall()),
            "cloud_report": self.report.everything() if self.report is not None else None,
            "placement": self.placement.report() if self.placement is not None else None,
            "hedge_budget": self.hedges.report(),
            "places": self.watch.report() if self.watch is not None else None,
            "asking_again": self.asking.report(),
            "portfolio": self.portfolio.report() if self.portfolio is not None else None,
            "matching": self.match.report() if self.match is not None else None,
            "acquirer": self.acquire.report() if self.acquire is not None else None,
            "closed_pools": self._breakers.table() if self._breakers is not None else {},
            "loops": {name: health.summary() for name, health in self.health().items()},
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

    def _turn_came(self) -> None:
        """A look now, where somebody's place is kept or may be."""
        if self.watch is not None and self.watch.follows_looks:
            self.runners["look"].wake()

    def _hedges_announced(self, jobs: Sequence[Announced]) -> None:
        """Their places now: whoever is submitted before a placeholder goes before it."""
        if self.watch is not None:
            self.watch.expect(jobs)
            self.runners[self.watch.name].stir()

    def _looked(self) -> None:
        """A job whose turn has come waits for nothing else."""
        if self.watch is not None and self.watch.follows_looks:
            self.runners[self.watch.name].wake()

    def _is_open(self) -> tuple[bool, bool]:
        if self._breakers is None:
            return True, True
        return (
            self._breakers.option_open(Capacity.SPOT, self.settings.ec2),
            self._breakers.option_open(Capacity.ON_DEMAND, self.settings.ec2),
        )

    def _gauges(self) -> Mapping[str, tuple[float, str]]:
        usd, _ = self.cloud.budget.spent_today()
        return {
            **(self.placement.gauges() if self.placement is not None else {}),
            **(self.watch.gauges() if self.watch is not None else {}),
            **(self.portfolio.gauges() if self.portfolio is not None else {}),
            **(self.match.gauges() if self.match is not None else {}),
            **(self.acquire.gauges() if self.acquire is not None else {}),
            "knowledge_base_jobs": (float(self.knowledge.cases), "Run times in the knowledge base."),
            "jobs_learned": (float(self.learn.jobs_learned), "Jobs learned since the start."),
            "history_usable": (float(not self.history_problem()), "0: nothing is learned, see the status."),
            "cloud_spent_today_usd": (usd, "Dollars that caps reckon as spent since midnight UTC."),
            "cloud_boot_failures_in_a_row": (float(self.cloud.boot_failures), "Since the last good boot."),
            "cloud_protected": (float(bool(self.cloud.protected)), "1: nothing is sent to the cloud."),
            "cloud_boot_seconds": (self.cloud.boot_seconds or 0.0, "Boot time reckoned with; 0 until known."),
        }

    def _metrics_text(self) -> bytes:
        with SubmitClient(self.settings.paths.submit_socket, timeout=1.0) as client:
            return self.metrics.exposition(client.metrics)
