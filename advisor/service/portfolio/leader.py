"""Which policy leads now, since when and why: the admin's, the champion, or the selection's choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import structlog
from msgspec import structs

from advisor.decide.portfolio.portfolio import Budget, Worth
from advisor.decide.portfolio.portfolio_choice import AdaptivePeriod, Chooser
from advisor.decide.portfolio.portfolio_lead import HYSTERESIS
from advisor.decide.portfolio.portfolio_options import Options
from advisor.model.errors import BadInput
from advisor.model.settings import Settings
from advisor.service.portfolio.judge import policies_of
from advisor.service.portfolio.portfolio_view import BurstView
from advisor.service.state.records import PortfolioState, Verdict
from advisor.simulate.portfolio.moment import policy_named
from advisor.simulate.portfolio.policies import RELEASE_WORDS, Release, RentingPolicy
from advisor.simulate.portfolio.state import Rules

log = structlog.get_logger(__name__)

_MAX_PERIODS: Final = 16
_SHOWN: Final = 5
_CHOICE_SECONDS: Final = 0.2
"""Time limit for one choice by simulation (Algorithm 1); sixty policies on 100 waiting jobs take 13 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """The leading policy, since when (epoch seconds), and why, in words."""

    policy: RentingPolicy
    since: float
    why: str


class LeaderChoice:
    """Chooses the leading policy. Used by one thread; `report` by any.

    ``kept`` is what the last process remembered; ``monotonic`` gives
    seconds and limits the time of a choice.
    """

    def __init__(self, settings: Settings, kept: PortfolioState, *, monotonic: Callable[[], float]) -> None:
        self._settings = settings.portfolio
        self._policies = policies_of(settings)
        self._places = {policy.name: at for at, policy in enumerate(self._policies)}
        self._monotonic = monotonic
        self._options = Options()
        self._chooser: Chooser | None = None
        self._rules: Rules | None = None
        self._memory: Mapping[str, Any] = structs.asdict(kept)
        least = settings.portfolio.period_seconds
        self._period = AdaptivePeriod(min_seconds=least, max_seconds=_MAX_PERIODS * least)
        self._next_choice = -np.inf
        self._members: frozenset[tuple[int, int]] = frozenset()
        self._losses: dict[str, float] = {}
        self.in_force: InForce | None = _in_force(kept.in_force)
        self.chosen: Counter[str] = Counter()
        self.changes = 0
        self.choice_ms = 0.0

    def decide(self, view: BurstView, verdict: Verdict | None, rules: Rules) -> InForce | None:
        """The leading policy; None while no policy has been judged yet."""
        now = view.situation.now
        margin = self._margin(verdict)
        if self._settings.leader not in _WORDS:
            self._put(policy_named(self._settings.leader), now, "portfolio.leader names it")
        elif verdict is None:
            self.in_force = None
        elif margin is None or not view.waiting:
            self._lead_by_champion(verdict, now)  # a choice for one queue does not suit the next one
        elif self._is_due(view):
            self._select(view, verdict, rules, margin)
        return self.in_force

    def _margin(self, verdict: Verdict | None) -> float | None:
        """How much better the selection must be to replace the champion; None if the champion leads."""
        if self._settings.leader == "selection":
            return self._settings.margin
        if self._settings.leader == "auto" and verdict is not None:
            return verdict.leader
        return None

    def _lead_by_champion(self, verdict: Verdict, now: float) -> None:
        self._put(policy_named(verdict.champion), now, f"champion: {_why_champion(verdict)}")
        self._next_choice = -np.inf

    def _is_due(self, view: BurstView) -> bool:
        """Whether the period is over, or a tenth of the queue has changed."""
        members = frozenset(_members(view))
        changes = len(members ^ self._members)
        has_changed = changes > 0 and 10 * changes >= len(view.waiting)
        return self.in_force is None or has_changed or view.situation.now >= self._next_choice

    def _select(self, view: BurstView, verdict: Verdict, rules: Rules, margin: float) -> None:
        champion = self._places.get(verdict.champion, 0)
        worth = Worth.so_far(
            verdict.charged_seconds,
            verdict.slowdown_sum,
            alpha=self._settings.alpha,
            beta=self._settings.beta,
        )
        budget = Budget(seconds=_CHOICE_SECONDS, clock=self._monotonic)
        chooser = self._chooser_for(rules, margin)
        began = self._monotonic()
        choice = chooser.choose(view.situation, worth, budget, champion)
        self.choice_ms = 1000.0 * (self._monotonic() - began)
        names = [policy.name for policy in self._policies]
        best = sorted(choice.tried.tolist(), key=lambda at: choice.loss[at])[:_SHOWN]
        self._losses = {names[at]: float(choice.loss[at]) for at in [*best, champion]}
        self._members = frozenset(_members(view))
        self._next_choice = view.situation.now + self._period.after(choice.applied)
        if choice.applied == champion:
            tried = len(choice.tried)
            why = f"selection: none of {tried} policies simulated saves {margin:.0%} of the champion's loss"
        else:
            saved = (
                1.0 - choice.loss[choice.applied] / choice.loss[champion] if choice.loss[champion] else 0.0
            )
            why = (
                f"selection: simulated on {len(view.waiting):,} waiting jobs it loses {saved:.0%} less than "
                f"the champion {verdict.champion}"
            )
        self._put(self._policies[choice.applied], view.situation.now, why)
        self.chosen[names[choice.applied]] += 1

    def _chooser_for(self, rules: Rules, margin: float) -> Chooser:
        if self._chooser is None or self._rules != rules or self._chooser.margin != margin:
            memory = self._chooser.as_plain() if self._chooser is not None else self._memory
            self._chooser = Chooser(
                self._policies,
                rules,
                margin=margin,
                hold_seconds=self._options.hold_seconds,
                seed=self._options.seed,
            )
            self._chooser.remember(memory)
            self._rules = rules
        return self._chooser

    def _put(self, policy: RentingPolicy, now: float, why: str) -> None:
        before = self.in_force
        if before is not None and before.policy == policy:
            self.in_force = InForce(policy=policy, since=before.since, why=why)
            return
        self.in_force = InForce(policy=policy, since=now, why=why)
        self.changes += before is not None
        log.info(
            "portfolio.policy", policy=policy.name, before=before.policy.name if before else None, why=why
        )

    def state(self, *, acts: bool) -> PortfolioState:
        """The memory of past choices, for the state file."""
        plain = self._chooser.as_plain() if self._chooser is not None else self._memory
        now = self.in_force
        in_force = (now.policy.name, now.since, now.why) if now is not None else None
        return PortfolioState(**{**plain, "acts": acts, "in_force": in_force})

    def report(self, verdict: Verdict | None) -> dict[str, Any]:
        """What `advisor status` shows."""
        now = self.in_force
        scores = verdict.scores if verdict is not None else {}
        best = sorted(scores, key=lambda name: -scores[name])[:_SHOWN]
        return {
            "policy": now.policy.name if now else None,
            "since": now.since if now else None,
            "why": now.why if now else "no policy has been judged yet: Slurm's own behaviour",
            "in_charge": self._settings.leader,
            "billing": self._settings.billing,
            "release_rule": RELEASE_WORDS[Release.of_billing(self._settings.billing)],
            "champion": verdict.champion if verdict else None,
            "selection_margin": self._margin(verdict),
            "judged_jobs": verdict.jobs if verdict else 0,
            "judged_at": verdict.time if verdict else None,
            "scores": {name: scores[name] for name in best},
            "losses": dict(self._losses),
            "chosen": dict(self.chosen),
            "changes": self.changes,
            "choice_ms": self.choice_ms,
        }


_WORDS: Final = frozenset({"auto", "champion", "selection"})


def _members(view: BurstView) -> Iterator[tuple[int, int]]:
    """Waiting jobs, each array task on its own."""
    counts: Counter[int] = Counter()
    for queued in view.waiting:
        job_id = queued.job.job_id
        counts[job_id] += 1
        yield job_id, counts[job_id]


def _in_force(kept: tuple[str, float, str] | None) -> InForce | None:
    """The policy that led before a restart; None where this release does not know it."""
    if kept is None:
        return None
    name, since, why = kept
    try:
        return InForce(policy=policy_named(name), since=since, why=why)
    except BadInput:
        return None


def _why_champion(verdict: Verdict) -> str:
    """Why the champion leads; another policy may have the best score (`decide.portfolio_lead`)."""
    known = f"{verdict.jobs:,} finished burst jobs" if verdict.jobs else "synthetic workloads"
    best = max(verdict.scores, key=lambda name: verdict.scores[name], default=verdict.champion)
    score = verdict.scores.get(verdict.champion, 0.0)
    if best == verdict.champion or verdict.scores[best] <= score * (1.0 + HYSTERESIS):
        return f"of all policies it would have done best on {known}"
    one, other = policy_named(verdict.champion), policy_named(best)
    if (one.order, one.backfill) == (other.order, other.backfill):
        return f"as {best}, with as many warm nodes as would have done best on {known} themselves"
    gain = verdict.scores[best] / score - 1.0
    return (
        f"it would have done best on {known} of those with its order of jobs; {best} would have done "
        f"{gain:.0%} better, but not day by day"
    )
