"""A site in a temporary folder: settings, snapshots, an estimator that says what it is told."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from advisor.decide.submission.policy import in_force
from advisor.model.advice import Mode
from advisor.model.cluster import ClusterState
from advisor.model.estimate import Estimate, Estimates, SizeEstimate
from advisor.model.job import Job
from advisor.model.settings import ClusterSettings, PathSettings, Policy, Settings
from advisor.model.settings_cloud import CapacitySettings
from advisor.model.settings_decision import RuleSettings, WaitingSettings
from advisor.model.settings_hedge import HedgeSettings
from advisor.model.settings_price import BudgetSettings
from advisor.model.settings_promise import PromiseSettings
from advisor.model.settings_service import SubmitSettings
from advisor.model.site import CloudState, SiteState
from advisor.service.exchange.protocol import VERSION, AdviseRequest
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.submit.answering import Answerer
from advisor.service.submit.state_holder import LoadedModel, StateHolder

NOW = 1_800_000_000.0


def make_cluster(**changed: Any) -> ClusterState:
    values: dict[str, Any] = {
        "time": NOW,
        "queue_size": 4,
        "queued_work_core_seconds": 4000.0,
        "remaining_work_core_seconds": 8000.0,
        "free_processors": 0,
        "total_processors": 64,
        "running_jobs": 8,
    }
    return ClusterState(**{**values, **changed})


def make_snapshot(
    now: float = NOW,
    cluster: ClusterState | None = None,
    features: tuple[str, ...] = ("spot", "on-demand", "x86"),
    **cloud: Any,
) -> Snapshot:
    shape = {
        "nodes_total": 100,
        "processors_per_node": 4,
        "features": ("x86",),
        "nodes_with": MappingProxyType(dict.fromkeys(features, 50.0)),
    }
    return Snapshot(
        state=SiteState(
            time=now, cluster=cluster or make_cluster(time=now), cloud=CloudState(**{**shape, **cloud})
        ),
    )


def make_settings(
    folder: Path, *, mode: Mode = Mode.ACT, policy: Policy = "cunha2017", **sections: Any
) -> Settings:
    run, state = folder / "run", folder / "state"
    for made in (run, state):
        made.mkdir(exist_ok=True)
    submit = {"snapshot_max_age_seconds": 60.0, **sections.pop("submit", {})}
    settings = Settings(
        cluster=ClusterSettings(default_mode=mode, policy=policy),
        paths=PathSettings(run=run, state=state, slurm_conf=folder / "slurm.conf"),
        submit=SubmitSettings(**submit),
        waiting=WaitingSettings(**sections.pop("waiting", {})),
        rules=RuleSettings(**sections.pop("rules", {})),
        capacity=CapacitySettings(**sections.pop("capacity", {})),
        hedge=HedgeSettings(**sections.pop("hedge", {})),
        budget=BudgetSettings(**sections.pop("budget", {})),
        promise=PromiseSettings(**sections.pop("promise", {})),
    )
    assert not sections
    return in_force(settings)


@dataclass
class FixedEstimator:
    """Says the same of every job, and remembers what it was shown."""

    wait: float = 7200.0
    run: float = 600.0
    seen: list[tuple[Job, ClusterState]] = field(default_factory=list)
    fails: bool = False

    def classify(self, _job: Job, _probability_cut: float) -> SizeEstimate:
        # no NaN: records are compared after a round trip
        return SizeEstimate(is_small=False, probability_small=0.2, divider_seconds=300.0)

    def estimate(self, job: Job, state: ClusterState) -> Estimates:
        self.seen.append((job, state))
        if self.fails:
            msg = "damaged knowledge base"
            raise RuntimeError(msg)
        return Estimates(
            wait=Estimate(seconds=self.wait, variance=1.0, lower=self.wait, upper=self.wait, neighbours=9),
            run=Estimate(seconds=self.run, variance=1.0, lower=self.run, upper=self.run, neighbours=9),
            size=self.classify(job, 0.5),
        )


class Clock:
    """A clock that stands still until told."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def make_answerer(
    settings: Settings, snapshot: Snapshot | None, estimator: FixedEstimator | None, clock: Any = time.time
) -> tuple[Answerer, StateHolder]:
    from dataclasses import replace

    holder = StateHolder(settings, load_model=lambda _version: None)
    model = None if estimator is None else LoadedModel("1", estimator, estimator)
    holder.current = replace(holder.current, snapshot=snapshot, model=model)
    return Answerer(holder, clock=clock), holder


def ask(**fields: Any) -> AdviseRequest:
    values: dict[str, Any] = {"v": VERSION, "seq": 1, "user": "alice", "min_cpus": 2, "time_limit": 60}
    return AdviseRequest(**{**values, **fields})
