"""The portfolio loop: the policy in charge, applied to the burst partition (Deng et al., SC13).

Everything it sets is seen by an admin, undone by ``advisor portfolio undo``, undone when it ends, and
harmless when it is killed (docs/designs/0014-portfolio-live.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from advisor.history.store import HistoryStore
from advisor.model.cluster import Node, NodePower
from advisor.model.errors import AdvisorError, RetryLater
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import burst_nodes
from advisor.service.portfolio.actuators import UNDO, Means
from advisor.service.portfolio.arrivals import RecentJobs
from advisor.service.portfolio.held_nodes import SteeredNodes, ranks
from advisor.service.portfolio.judge import PortfolioJudge
from advisor.service.portfolio.leader import LeaderChoice
from advisor.service.portfolio.patience import Patience, asks_for_a_kind
from advisor.service.portfolio.portfolio_view import (
    BurstView,
    LastTwo,
    Want,
    nodes_of,
    view_of,
    wanted_first,
)
from advisor.service.running.clock import Clock
from advisor.service.running.loops import Step
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.records import PortfolioState
from advisor.service.state.state_files import PORTFOLIO, VERDICT
from advisor.simulate.portfolio.moment import Moment, moment_of
from advisor.simulate.portfolio.policies import Release
from advisor.simulate.portfolio.state import PREDICTED, Rules
from advisor.slurm.protocol import PENDING, SlurmBackend
from advisor.slurm.steering import RESERVATION, BurstSteering, Demand

log = structlog.get_logger(__name__)

_MAX_NEW: Final = 20_000
_IDLE_PERIOD_SECONDS: Final = 300.0


class PortfolioLoop:
    """Applies the policy in charge; switched off, it only takes back what an earlier process left.

    Parameters
    ----------
    settings : Settings
        In force.
    slurm : SlurmBackend
        Told what becomes of nodes.
    steering : BurstSteering
        Told which nodes are closed and which job is next.
    view : SharedView
        What the look loop saw.
    store : HistoryStore
        What has ended.
    cloud : CloudRecord
        Boot times, launches, the day's money.
    clock : Clock
        Time.
    """

    name = "portfolio"

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
        self._store = store
        self._cloud = cloud
        self._clock = clock
        self._memory = PORTFOLIO.at(settings.paths.state)
        kept = self._memory.read()
        self.in_charge = LeaderChoice(settings, kept, monotonic=clock.monotonic)
        self._means = Means.of(settings, slurm=slurm, steering=steering)
        self.closed, self.order = self._means.closed, self._means.order
        self._steering = steering
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
        self._last = LastTwo()
        self._recent = RecentJobs()
        self._position: int | None = None
        self._first_seen: dict[str, float] = {}
        self._moment: tuple[BurstView, Moment] | None = None
        # in this round; else nothing is changed, and closed nodes open by themselves
        self._has_decided = False
        self._weighed_at = -math.inf  # epoch seconds
        self._patience = Patience(self._ours.period_seconds)
        self._is_undone = not kept.acts
        self._remembered: PortfolioState | None = None
        self._report: Mapping[str, Any] = {}

    @property
    def has_work(self) -> bool:
        """Whether it is to run at all: it acts, or an earlier process did and could not take it back."""
        return self._ours.enabled or not self._is_undone

    @property
    def period_seconds(self) -> float:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return self._ours.period_seconds if self._ours.enabled else _IDLE_PERIOD_SECONDS

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        if not self._ours.enabled:
            return () if self._is_undone else (Step("undo", self.let_go),)
        return (
            Step("learn run times", self.learn),
            Step("choose a policy", self.choose),
            Step("limit nodes", self.limit_nodes),
            Step("order jobs", self.order_jobs),
            Step("steer nodes", self.steer_nodes),
            Step("choose among idle nodes", self.weigh_nodes),
            Step("remember", self.remember),
        )

    # ------------------------------------------------------------------------------------ decide

    def learn(self) -> None:
        """Take in the run times of jobs that ended in the burst partition."""
        burst = self._settings.cluster.burst_partition
        if self._position is None:
            self._position = self._store.last_position()
            for outcome in self._store.recent(self._ours.judged_jobs, partition=burst):
                self._take_in(outcome)
            return
        for taken, (position, outcome) in enumerate(self._store.added_after(self._position)):
            self._position = position
            if outcome.partition == burst and outcome.end_time > outcome.start_time:
                self._take_in(outcome)
            if taken >= _MAX_NEW:
                return

    def _take_in(self, outcome: JobOutcome) -> None:
        if not outcome.is_whole:
            return  # its node was taken: it comes again when it has ended
        self._last.ended(outcome.job, outcome.end_time - outcome.start_time)
        self._recent.ended(outcome)

    def choose(self) -> None:
        """Look, decide who is in charge, and what that policy does now.

        Raises
        ------
        RetryLater
            Slurm has not been seen lately: nothing is changed.
        """
        self._has_decided = False
        snapshot = self._view.fresh()
        sight = view_of(
            snapshot,
            self._settings,
            last=self._last,
            launched=self._launched,
            boot_seconds=self._boot_seconds,
            closed=self.closed.ours(self._clock.wall()),
        )
        self._note_first_seen(sight)
        rules = self._rules(sight)
        sight = replace(sight, situation=replace(sight.situation, ready=self._recent.ready(sight, rules)))
        now = self.in_charge.decide(sight, self.judge.verdict, rules)
        self._moment = None if now is None else (sight, moment_of(sight.situation, now.policy, rules))
        self._has_decided = True

    def _rules(self, sight: BurstView) -> Rules:
        return Rules(
            max_nodes=max(sight.usable, 1),
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

    def _note_first_seen(self, sight: BurstView) -> None:
        now = sight.situation.now
        self._first_seen = {node.name: self._first_seen.get(node.name, now) for node in sight.rented}

    def _burst(self) -> tuple[int, int, float]:
        """For the judge: nodes, processors of one, boot time."""
        nodes = [node for node in burst_nodes(self._view.fresh(), self._settings) if node.is_cloud]
        if not nodes:
            raise RetryLater("the burst partition has no cloud node", code="portfolio.no_nodes")
        return len(nodes), min(node.processors for node in nodes), self._boot_seconds

    @property
    def _no_more(self) -> str:
        """Why no further node may be rented; empty when it may."""
        everything, _ = self._cloud.budget.exhausted(self._settings.waiting)
        return "the day's money is spent or promised" if everything else self._cloud.protected

    # ------------------------------------------------------------------------------------- apply

    def limit_nodes(self) -> None:
        """Close the powered-down nodes that the policy does not rent."""
        if not self._has_decided:
            return
        if self._moment is None or not self._ours.limit_nodes:
            if self.closed.known is not None:
                self.closed.let_go()
            return
        sight, moment = self._moment
        order, may_start = (list(sight.asleep), 0) if self._no_more else self._to_open(sight, moment)
        self._may_act()
        self.closed.apply(order, may_start, self._clock.wall())

    def _to_open(self, sight: BurstView, moment: Moment) -> tuple[list[Node], int | None]:
        """Powered-down nodes, the first to be opened first, and how many of them are; None: all."""
        asleep = list(sight.asleep)
        if moment.allowed is None:
            return asleep, None
        known, now = self.closed.known, self._clock.monotonic()
        closed = known.nodes if known is not None else frozenset[str]()
        unused = {n.name for n in asleep if n.power is NodePower.DOWN and n.name not in closed}
        overdue = self._patience.overdue(
            sight, moment, unused=unused, boot_seconds=self._boot_seconds, now=now
        )
        demands: Mapping[int, Demand] = {}
        if asleep and sight.waiting:
            demands = self._steering.demands(self._settings.cluster.burst_partition)
        if asks_for_a_kind(sight, moment, demands):
            return asleep, None
        besides = sum(want.nodes for want in overdue.stuck)
        policys = moment.allowed - (len(sight.rented) - len(moment.back))
        may_start = max(policys, sum(want.nodes for want in overdue.promised)) + besides
        queue = (sight.waiting[at].job for at in moment.order)
        wants = [
            *overdue.stuck,
            *overdue.promised,
            *(Want(job, nodes_of(job, sight.processors_per_node)) for job in queue),
        ]
        nothing = Demand()
        wanted = wanted_first(
            asleep,
            (replace(w, memory_mb=demands.get(w.job.job_id, nothing).memory_mb) for w in wants),
            most=may_start,
        )
        nodes = {node.name: node for node in asleep}
        return [nodes[name] for name in wanted], may_start

    def order_jobs(self) -> None:
        """Put the waiting jobs in the policy's order."""
        if not self._has_decided:
            return
        if self._moment is None or not self._ours.order_jobs:
            self.order.let_go()
            return
        sight, moment = self._moment
        snapshot = self._view.fresh()
        burst = (self._settings.cluster.burst_partition,)
        waiting = {
            queued.job.job_id
            for queued in snapshot.jobs
            if queued.state == PENDING and queued.partitions == burst
        }
        self._may_act()
        self.order.apply(
            [job_id for at in moment.order if (job_id := sight.waiting[at].job.job_id) in waiting],
            waiting,
            {queued.job.job_id for queued in snapshot.jobs},
        )

    def steer_nodes(self) -> None:
        """Give nodes back, keep them, warm them."""
        if self._moment is None or not self._has_decided or not self._steers:
            return
        sight, moment = self._moment
        seen, now = sight.situation.now, self._clock.wall()
        self.nodes.give_back([sight.rented[at] for at in moment.back], seen, now)
        self.nodes.keep([] if self._no_more else [sight.rented[at] for at in moment.kept], now)
        self.nodes.warm(sight.asleep, 0 if self._no_more else moment.warm, seen, now)

    @property
    def _steers(self) -> bool:
        """Kept nodes are the acquirer's."""
        return self._ours.steer_nodes and not self._settings.acquirer.kept_nodes

    def weigh_nodes(self) -> None:
        """Which idle node the next job gets: best or worst fit, where whole hours are paid."""
        if self._settings.matching.enabled or not self._has_decided:
            return  # weights are the matching loop's
        now = self.in_charge.in_force
        snapshot = self._view.fresh()
        if snapshot.time <= self._weighed_at:
            return  # it does not show what was set last
        added: Mapping[str, int] = {}
        if self._moment is not None and now is not None and self._ours.steer_nodes:
            added = ranks(*self._moment, now.policy, Release.of_billing(self._ours.billing))
        if added:
            self._may_act()
        self._weighed_at = self._clock.wall()
        self._means.weights.apply(burst_nodes(snapshot, self._settings), added)

    # ---------------------------------------------------------------------------------- and back

    def let_go(self) -> None:
        """Give Slurm everything back; see :meth:`Means.let_go`."""
        self._means.let_go(lambda: burst_nodes(self._slurm.snapshot(self._clock.wall()), self._settings))
        self._is_undone = True
        self.remember()

    def stop(self) -> None:
        """Give up what takes long."""
        self.judge.stop()

    def end(self) -> None:
        """After the last round: give Slurm everything back, as far as it answers."""
        if self._is_undone:
            return
        try:
            self.let_go()
        except AdvisorError as error:
            log.warning("portfolio.not_undone", code=error.code, message=str(error), undo=UNDO)

    def _may_act(self) -> None:
        """Written down before anything is set, so that a later process takes it back."""
        if self._is_undone:
            self._write_down(acts=True)
            self._is_undone = False

    def remember(self) -> None:
        """What was learned of the policies outlives this process."""
        self._write_down(acts=not self._is_undone)
        self._report = self._reported()

    def _write_down(self, *, acts: bool) -> None:
        plain = self.in_charge.state(acts=acts)
        if plain != self._remembered:
            self._memory.write(plain)
            self._remembered = plain

    def report(self) -> Mapping[str, Any]:
        """What `advisor status` shows."""
        return self._report

    def _reported(self) -> dict[str, Any]:
        known = self.closed.known
        sight, moment = self._moment if self._moment is not None else (None, None)
        return {
            "enabled": self._ours.enabled,
            **self.in_charge.report(self.judge.verdict),
            "nodes_rented": len(sight.rented) if sight else None,
            "nodes_allowed": moment.allowed if moment else None,
            "no_more_because": self._no_more,
            "closed_nodes": sorted(known.nodes) if known else [],
            "closed_until": known.until if known else None,
            "reservation": RESERVATION if known else None,
            "jobs_waiting": len(sight.waiting) if sight else None,
            "jobs_ordered": len(self.order),
            "nodes_kept": [sight.rented[at].name for at in moment.kept] if sight and moment else [],
            "given_back": self.nodes.given_back,
            "warmed": self.nodes.warmed,
            "undo": UNDO,
        }

    def gauges(self) -> dict[str, tuple[float, str]]:
        """For the metrics page."""
        report = self._report
        allowed = report.get("nodes_allowed")
        return {
            "portfolio_nodes_allowed": (
                -1.0 if allowed is None else float(allowed),
                "Nodes that the policy in charge rents; -1: as many as the jobs take.",
            ),
            "portfolio_nodes_closed": (
                float(len(report.get("closed_nodes", ()))),
                "Powered-down nodes that are closed to new jobs.",
            ),
            "portfolio_jobs_ordered": (float(len(self.order)), "Waiting jobs put first by the policy."),
            "portfolio_changes": (float(self.in_charge.changes), "Changes of policy since the start."),
            "portfolio_choice_ms": (self.in_charge.choice_ms, "Milliseconds the last choice took."),
        }
