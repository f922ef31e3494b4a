"""The portfolio loop: applies the leading policy to the burst partition (Deng et al., SC13).

All its changes are visible to admins, are undone by ``advisor portfolio undo`` and when the loop ends, and
are harmless if the process is killed (docs/designs/0014-portfolio-live.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from advisor.history.store import HistoryStore
from advisor.model.cluster import Node
from advisor.model.errors import AdvisorError, RetryLater
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import burst_nodes
from advisor.service.portfolio.actuators import UNDO, PortfolioActuators
from advisor.service.portfolio.burst_history import BurstHistory
from advisor.service.portfolio.held_nodes import SteeredNodes, ranks
from advisor.service.portfolio.judge import PortfolioJudge
from advisor.service.portfolio.leader import LeaderChoice
from advisor.service.portfolio.node_limit import NodeLimit
from advisor.service.portfolio.portfolio_view import (
    BurstView,
    view_of,
)
from advisor.service.running.clock import Clock
from advisor.service.running.feature import Feature, Gauges
from advisor.service.running.loops import LoopRunner, Step
from advisor.service.state.budget_records import limits_of
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.records import PortfolioState
from advisor.service.state.state_files import PORTFOLIO, VERDICT
from advisor.simulate.portfolio.moment import Moment, moment_of
from advisor.simulate.portfolio.policies import Release
from advisor.simulate.portfolio.state import PREDICTED, Rules
from advisor.slurm.protocol import SlurmBackend
from advisor.slurm.steering import RESERVATION, BurstSteering, Closed

log = structlog.get_logger(__name__)

_IDLE_PERIOD_SECONDS: Final = 300.0


class PortfolioLoop(Feature):
    """Applies the leading policy; switched off, it only takes back what an earlier process left.

    The judge, which simulates for minutes, has a loop of its own.
    """

    name = "portfolio"
    steering = (name,)

    def __init__(
        self,
        settings: Settings,
        *,
        slurm: SlurmBackend,
        steering: BurstSteering,
        view: SharedView,
        store: HistoryStore,
        cloud: CloudRecord,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._ours = settings.portfolio
        self._slurm = slurm
        self._view = view
        self._cloud = cloud
        self._clock = clock
        self._memory = PORTFOLIO.at(settings.paths.state)
        kept = self._memory.read()
        self.leader = LeaderChoice(settings, kept, monotonic=clock.monotonic)
        self._actuators = PortfolioActuators.of(settings, slurm=slurm, steering=steering)
        self.closed, self.order = self._actuators.closed, self._actuators.order
        self.nodes = SteeredNodes(
            slurm,
            steering,
            partition=settings.cluster.burst_partition,
            period_seconds=self._ours.period_seconds,
        )
        self.judge = PortfolioJudge(
            settings,
            store=store,
            state=VERDICT.at(settings.paths.state),
            clock=clock,
            burst=self._burst,
        )
        self._history = BurstHistory(settings, store)
        self._first_seen: dict[str, float] = {}
        self._moment: tuple[BurstView, Moment] | None = None
        self._has_decided = False  # in this round; else nothing is changed and closed nodes open by lease
        self._weighed_at = -math.inf  # epoch seconds
        self._limit = NodeLimit(settings, steering)
        self._is_undone = not kept.acts
        self._remembered: PortfolioState | None = None
        self._report: Mapping[str, Any] = {}
        loops = (self, self.judge) if self._ours.enabled else (self,)
        self.runners = tuple(LoopRunner(loop, clock) for loop in loops)

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return self._ours.period_seconds if self._ours.enabled else _IDLE_PERIOD_SECONDS

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        if not self._ours.enabled:
            return () if self._is_undone else (Step("undo", self.restore),)
        return (
            Step("learn run times", self._history.learn),
            Step("choose a policy", self.choose),
            Step("limit nodes", self.limit_nodes),
            Step("order jobs", self.order_jobs),
            Step("steer nodes", self.steer_nodes),
            Step("choose among idle nodes", self.weigh_nodes),
            Step("remember", self.remember),
        )

    # ------------------------------------------------------------------------------------ decide

    def choose(self) -> None:
        """Choose the leading policy, and compute what it does now.

        Raises:
            RetryLater: There is no fresh snapshot of Slurm: nothing is changed.
        """
        self._has_decided = False
        snapshot = self._view.fresh()
        view = view_of(
            snapshot,
            self._settings,
            last=self._history.run_times,
            launched=self._launched,
            boot_seconds=self._boot_seconds,
            closed=self.closed.ours(self._clock.wall()),
        )
        self._note_first_seen(view)
        rules = self._rules(view)
        view = replace(view, situation=replace(view.situation, ready=self._history.recent.ready(view, rules)))
        leading = self.leader.decide(view, self.judge.verdict, rules)
        self._moment = None if leading is None else (view, moment_of(view.situation, leading.policy, rules))
        self._has_decided = True

    def _rules(self, view: BurstView) -> Rules:
        return Rules(
            max_nodes=max(view.usable, 1),
            boot=float(round(self._boot_seconds)),
            tick=self._ours.period_seconds,
            release=int(Release.of_billing(self._ours.billing)),
            runtimes=PREDICTED,
            checkpoint=3600.0,
        )

    @property
    def _boot_seconds(self) -> float:
        return self._cloud.boot_seconds or self._settings.placement.boot_seconds

    def _launched(self, node: str) -> float | None:
        return self._cloud.budget.launched_at(node) or self._first_seen.get(node)

    def _note_first_seen(self, view: BurstView) -> None:
        now = view.situation.now
        self._first_seen = {node.name: self._first_seen.get(node.name, now) for node in view.rented}

    def _burst(self) -> tuple[int, int, float]:
        """For the judge: number of nodes, processors of one, boot time in seconds."""
        nodes = [node for node in burst_nodes(self._view.fresh(), self._settings) if node.is_cloud]
        if not nodes:
            raise RetryLater(
                "Slurm shows no cloud node in the burst partition. "
                "Correct cluster.burst_partition or slurm.conf",
                code="portfolio.no_nodes",
            )
        return len(nodes), min(node.processors for node in nodes), self._boot_seconds

    @property
    def _no_more_because(self) -> str:
        """Why no further node may be rented; empty if it may."""
        is_spent, _ = self._cloud.budget.exhausted(limits_of(self._settings))
        return "the budget is spent or promised" if is_spent else self._cloud.protected

    # ------------------------------------------------------------------------------------- apply

    def limit_nodes(self) -> None:
        """Close the powered-down nodes that the policy does not rent."""
        if not self._has_decided:
            return
        if self._moment is None or not self._ours.limit_nodes:
            if self.closed.known is not None:
                self.closed.open_all()
            return
        view, moment = self._moment
        order: list[Node] = list(view.asleep)
        may_start: int | None = 0
        if not self._no_more_because:
            known = self.closed.known
            order, may_start = self._limit.to_open(
                view,
                moment,
                closed=known.nodes if known is not None else (),
                boot_seconds=self._boot_seconds,
                now=self._clock.monotonic(),
            )
        self._may_act()
        self.closed.apply(order, may_start, self._clock.wall())

    def order_jobs(self) -> None:
        """Put the waiting jobs in the policy's order."""
        if not self._has_decided:
            return
        if self._moment is None or not self._ours.order_jobs:
            self.order.restore()
            return
        view, moment = self._moment
        snapshot = self._view.fresh()
        burst = (self._settings.cluster.burst_partition,)
        waiting = {
            queued.job.job_id
            for queued in snapshot.jobs
            if queued.state == PENDING and queued.partitions == burst
        }
        self._may_act()
        self.order.apply(
            [job_id for at in moment.order if (job_id := view.waiting[at].job.job_id) in waiting],
            waiting,
            {queued.job.job_id for queued in snapshot.jobs},
        )

    def steer_nodes(self) -> None:
        """Give nodes back, keep them, warm them up."""
        if self._moment is None or not self._has_decided or not self._steers:
            return
        view, moment = self._moment
        seen, now = view.situation.now, self._clock.wall()
        self.nodes.give_back([view.rented[at] for at in moment.back], seen, now)
        self.nodes.keep([] if self._no_more_because else [view.rented[at] for at in moment.kept], now)
        self.nodes.warm(view.asleep, 0 if self._no_more_because else moment.warm, seen, now)

    @property
    def _steers(self) -> bool:
        """Whether this loop steers nodes; nodes that are kept always belong to the acquirer."""
        return self._ours.steer_nodes and not self._settings.acquirer.kept_nodes

    def weigh_nodes(self) -> None:
        """Set weights by which slurmctld gives the next job the idle node that the policy chooses.

        Which one matters only where whole hours are paid.
        """
        if self._settings.matching.enabled or not self._has_decided:
            return  # the match loop sets the weights
        leading = self.leader.in_force
        snapshot = self._view.fresh()
        if snapshot.time <= self._weighed_at:
            return  # the snapshot does not show our last change
        added: Mapping[str, int] = {}
        if self._moment is not None and leading is not None and self._ours.steer_nodes:
            added = ranks(*self._moment, leading.policy, Release.of_billing(self._ours.billing))
        if added:
            self._may_act()
        self._weighed_at = self._clock.wall()
        self._actuators.weights.apply(burst_nodes(snapshot, self._settings), added)

    # ---------------------------------------------------------------------------------- and back

    def restore(self) -> None:
        """Restore everything in Slurm; see :meth:`PortfolioActuators.restore`."""
        self._actuators.restore(lambda: burst_nodes(self._slurm.snapshot(self._clock.wall()), self._settings))
        self._is_undone = True
        self.remember()

    def stop(self) -> None:
        """See :class:`Feature`. Abort a simulation that runs."""
        self.judge.stop()

    def release(self) -> None:
        """See :class:`Feature`. Restore what Slurm lets us restore."""
        if self._is_undone:
            return
        try:
            self.restore()
        except AdvisorError as error:
            log.warning("portfolio.not_undone", code=error.code, message=str(error), undo=UNDO)

    def _may_act(self) -> None:
        """Note on disk, before anything is set, that there will be something to take back."""
        if self._is_undone:
            self._write_down(acts=True)
            self._is_undone = False

    def remember(self) -> None:
        """Store what was learned of the policies, for the next process."""
        self._write_down(acts=not self._is_undone)
        self._report = self._status()

    def _write_down(self, *, acts: bool) -> None:
        plain = self.leader.state(acts=acts)
        if plain != self._remembered:
            self._memory.write(plain)
            self._remembered = plain

    def status(self) -> Mapping[str, Any]:
        """See :class:`Feature`."""
        return {"portfolio": self.report()}

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows."""
        return self._report

    def _status(self) -> dict[str, Any]:
        view, moment = self._moment if self._moment is not None else (None, None)
        return {
            "enabled": self._ours.enabled,
            **self.leader.report(self.judge.verdict),
            **_burst_status(view, moment, self.closed.known),
            "no_more_because": self._no_more_because,
            "jobs_ordered": len(self.order),
            "given_back": self.nodes.given_back,
            "warmed": self.nodes.warmed,
            "undo": UNDO,
        }

    def gauges(self) -> Gauges:
        """See :class:`Feature`."""
        report = self._report
        allowed = report.get("nodes_allowed")
        return {
            "portfolio_nodes_allowed": (
                -1.0 if allowed is None else float(allowed),
                "Nodes that the leading policy rents; -1: as many as the jobs need.",
            ),
            "portfolio_nodes_closed": (
                len(report.get("closed_nodes", ())),
                "Powered-down nodes that are closed to new jobs.",
            ),
            "portfolio_jobs_ordered": (len(self.order), "Waiting jobs put first by the policy."),
            "portfolio_changes": (self.leader.changes, "Changes of policy since the start."),
            "portfolio_choice_ms": (self.leader.choice_ms, "Duration of the last choice, milliseconds."),
        }


def _burst_status(view: BurstView | None, moment: Moment | None, closed: Closed | None) -> dict[str, Any]:
    """Fields of status.json about nodes and jobs; all unknown while no policy leads."""
    return {
        "nodes_rented": len(view.rented) if view else None,
        "nodes_allowed": moment.allowed if moment else None,
        "closed_nodes": sorted(closed.nodes) if closed else [],
        "closed_until": closed.until if closed else None,
        "reservation": RESERVATION if closed else None,
        "jobs_waiting": len(view.waiting) if view else None,
        "nodes_kept": [view.rented[at].name for at in moment.kept] if view and moment else [],
    }
