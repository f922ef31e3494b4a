"""One run of tasks on changing nodes under one scheduler: the live loops' steps, at full speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.decide.matching.acquirer import AcquirerRules, acquire
from advisor.decide.matching.matching import NOWHERE, OURS, MatchRules, match
from advisor.model.node_view import NODE_RECORD, NodeView
from advisor.papers.stability.evidence import survival_with_evidence
from advisor.papers.stability.giving_way import least_lost
from advisor.papers.stability.likeliest import most_stable
from advisor.papers.stability.published_survival import published
from advisor.papers.stability.world import _kernel
from advisor.papers.stability.world.baselines import Shrinks, any_node, lasting_node
from advisor.papers.stability.world.cluster import (
    FINISHED,
    NO_CHECKPOINTS,
    SCHEDULE,
    SHORT,
    Checkpoints,
    Cluster,
    Outcome,
)
from advisor.papers.stability.world.nodes import NodeChanges
from advisor.papers.stability.world.tasks import Tasks
from advisor.predict.survival.node_survival import Intervals, SurvivalModel

HOUR = 3600.0
Choice: TypeAlias = Literal["any", "likeliest", "match", "clairvoyant"]
Model: TypeAlias = Literal["none", "published", "to-shrink", "ours"]
GivesWay: TypeAlias = Literal["oldest", "least-lost"]
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """One row of the comparison.

    Attributes:
        name: Of the row.
        choice: {"any", "likeliest", "match", "clairvoyant"}: How nodes are chosen.
        model: {"none", "published", "to-shrink", "ours"}: What predicts: nothing, section 3.1.1, appendix
            B.2, or ours.
        rules: For ``match``.
        gives_way: {"oldest", "least-lost"}: Which tasks end when a node shrinks: the oldest, as published
            (section 4.1, YARN's way), or those whose loss costs least
            (``advisor.papers.stability.giving_way``). Where a node vanishes, all on it do.
        acquirer: Whether nodes are exchanged.
        copies: Replication (appendix B.1).
        checkpoints: Checkpointing (appendix B.1).
    """

    name: str
    choice: Choice
    model: Model = "none"
    rules: MatchRules = OURS
    gives_way: GivesWay = "oldest"
    acquirer: AcquirerRules | None = None
    copies: int = 1
    checkpoints: Checkpoints = NO_CHECKPOINTS


CAPACITY = Scheduler(name="capacity", choice="any")
NO_DELAY = Scheduler(name="no-delay", choice="likeliest", model="published")
SHIELDED = OURS._replace(shielded=True)
LITERAL = MatchRules(reserves=False, longest_first=False, keeps_busy=False)
MATCHED = Scheduler(name="matched", choice="match", model="ours", rules=SHIELDED, gives_way="least-lost")
MATCHED_ACQUIRER = Scheduler(
    name="matched+acquirer",
    choice="match",
    model="ours",
    rules=SHIELDED,
    gives_way="least-lost",
    acquirer=AcquirerRules(),
)
MATCHED_OLDEST = Scheduler(name="matched-oldest-first", choice="match", model="ours")
CAPACITY_LEAST_LOST = Scheduler(name="capacity-least-lost", choice="any", gives_way="least-lost")
ORACLE = Scheduler(name="oracle", choice="clairvoyant")
EQUATION_2 = Scheduler(name="equation-2-literal", choice="match", model="published", rules=LITERAL)
TO_SHRINK = Scheduler(name="matched-to-shrink", choice="match", model="to-shrink")
ACQUIRER_ONLY = Scheduler(name="capacity+acquirer", choice="any", model="ours", acquirer=AcquirerRules())
CHECKPOINT_1 = Scheduler(
    name="checkpoint-1min", choice="any", checkpoints=Checkpoints(every=600.0, cost=60.0)
)
CHECKPOINT_2 = Scheduler(
    name="checkpoint-2min", choice="any", checkpoints=Checkpoints(every=600.0, cost=120.0)
)
REPLICATION = Scheduler(name="replication-3", choice="any", copies=3)


def run(
    changes: NodeChanges,
    tasks: Tasks,
    scheduler: Scheduler,
    generator: np.random.Generator,
    *,
    rented: int | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run all tasks to their end.

    Args:
        changes: What becomes of all nodes.
        tasks: What is submitted.
        scheduler: Who decides.
        generator: Chance of the capacity scheduler and of which node a request gets.
        rented: The first so many nodes are had at the start; all by default.
        progress: Called with (tasks done, tasks).
    """
    return Run(changes, tasks, scheduler, generator, rented=rented).to_end(progress)


class Run:
    """A run as it goes on; see :func:`run`."""

    def __init__(
        self,
        changes: NodeChanges,
        tasks: Tasks,
        scheduler: Scheduler,
        generator: np.random.Generator,
        *,
        rented: int | None = None,
    ) -> None:
        had = np.arange(changes.nodes) < (changes.nodes if rented is None else rented)
        self.scheduler = scheduler
        self.cluster = Cluster(
            changes,
            tasks,
            rented=had,
            copies=scheduler.copies,
            checkpoints=scheduler.checkpoints,
            asks=scheduler.gives_way != "oldest",
        )
        self._generator = generator
        self._shrinks = Shrinks(changes) if scheduler.choice == "clairvoyant" else None
        self._stability = self._learn()
        self._target_cores = float(changes.cores[had].sum())
        self._others = bool(np.any(~had))  # else the provider has none to give instead
        running = max(1, int(self.cluster.state.running.size))
        self._room = (np.zeros(changes.nodes, NODE_RECORD), np.zeros(running), np.zeros(running, np.int64))

    def to_end(self, progress: Progress | None = None) -> Outcome:
        """Go on until every task is done."""
        tick = HOUR
        count = len(self.cluster.state.copies)
        while True:
            reason = self.cluster.advance(tick)
            if reason == FINISHED:
                return self.cluster.outcome()
            if reason == SCHEDULE:
                self._decide()
                continue
            if reason == SHORT:
                self._give_way()
                continue
            self._every_hour()
            tick += HOUR
            if progress is not None:
                progress(count - int(self.cluster.state.cluster["open"][0]), count)

    def _decide(self) -> None:
        """One scheduling pass."""
        cluster, choice = self.cluster, self.scheduler.choice
        waiting = cluster.waiting.copy()
        rows = np.flatnonzero(cluster.nodes["rented"])
        view = self.look(rows)
        cores = cluster.tasks["cores"][waiting]
        during = cluster.tasks["estimate"][waiting] - cluster.tasks["done_before"][waiting]
        if choice == "any":
            chosen: Ints = any_node(view.nodes, cores, self._generator.random(len(waiting)))
        elif self._shrinks is not None:
            chosen = lasting_node(view.nodes, cores, during, self._shrinks.after(cluster.now, rows))
        else:
            known = self._stability._replace(
                shape=self._stability.shape[rows], rate=self._stability.rate[rows]
            )
            if choice == "likeliest":
                chosen = most_stable(view, cores, during, known)
            else:
                chosen = match(view, cores, during, known, self.scheduler.rules)
        placed = chosen != NOWHERE
        cluster.start(waiting[placed], rows[chosen[placed]])

    def _give_way(self) -> None:
        """A node has shrunk to less than its tasks use."""
        cluster = self.cluster
        node, rows = cluster.nodes[cluster.short], cluster.running(cluster.short)
        mine = cluster.tasks[rows]
        ends = least_lost(mine["cores"], cluster.now - mine["start"], int(node["used"] - node["cores"]))
        cluster.give_way(rows[ends])

    def look(self, rows: Ints) -> NodeView:
        """What a scheduler sees of some nodes now."""
        nodes, remaining, held = self._room
        _kernel.look(self.cluster.state, rows, nodes, remaining, held)
        return NodeView(nodes[: len(rows)], remaining, held)

    def _every_hour(self) -> None:
        self._stability = self._learn()
        if self.scheduler.acquirer is not None and self._others:
            self._acquire(self.scheduler.acquirer)
        self.cluster.wake()

    def _learn(self) -> SurvivalModel:
        """Fit the model to what is known now."""
        count, now = len(self.cluster.nodes), self.cluster.now
        match self.scheduler.model:
            case "none":
                return published(Intervals.empty(), now, count)
            case "ours":
                return survival_with_evidence(self.seen(), now, count)
            case kind:
                return published(self.seen(), now, count, to_shrink=kind == "to-shrink")

    def seen(self) -> Intervals:
        """All intervals seen so far, with those still open."""
        done, nodes, now = self.cluster.intervals(), self.cluster.nodes, self.cluster.now
        still = np.flatnonzero((nodes["rented"] == 1) & (nodes["cores"] > 0) & (nodes["changed"] < now))
        none = np.zeros(len(still), np.int64)
        return Intervals(
            node=np.concatenate([done["node"], still]),
            start=np.concatenate([done["start"], nodes["changed"][still]]),
            end=np.concatenate([done["end"], np.full(len(still), now)]),
            completed=np.concatenate([done["completed"], none]).astype(np.bool_),
            began=np.concatenate([done["began"], nodes["last"][still]]),
            ended=np.concatenate([done["ended"], none]),
            size=np.concatenate([done["size"], none.astype(np.float64)]),
        )

    def _acquire(self, rules: AcquirerRules) -> None:
        """One step of the acquirer: ask for new nodes first, then retire."""
        nodes = self.cluster.nodes
        rows = np.flatnonzero((nodes["rented"] == 1) & (nodes["draining"] == 0))
        own: Floats = self._own_rates()
        plan = acquire(
            nodes["cores"][rows],
            self.cluster.now - nodes["changed"][rows],
            own[rows],
            busy_cores=float(nodes["used"].sum()),
            target_cores=self._target_cores,
            rules=rules,
        )
        spare = max(0.0, float(nodes["cores"][rows].sum()) - self._target_cores) + self._get(plan.cores)
        for row in rows[plan.retire]:  # as far as others came instead
            spare -= float(nodes["cores"][row])
            if spare < 0:
                return
            self.cluster.retire(int(row))

    def _own_rates(self) -> Floats:
        shape, rate = self._stability.shape, self._stability.rate
        return np.where(np.isinf(shape), 1.0, shape / rate)

    def _get(self, cores: float) -> float:
        """Ask for cores: the provider hands out random servers that have some; returns how many came."""
        got = 0.0
        nodes = self.cluster.nodes
        there = np.flatnonzero((nodes["rented"] == 0) & (nodes["cores"] > 0))
        for row in self._generator.permutation(there):
            if got >= cores:
                break
            self.cluster.rent(int(row))
            got += float(nodes["cores"][row])
        return got
