"""Jobs, sites and estimates for the tests of the decision."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import Any

from advisor.decide.submission.advise import advise
from advisor.decide.submission.policy import in_force
from advisor.model.advice import Advice, Mode
from advisor.model.cluster import ClusterState, Limit
from advisor.model.estimate import Estimate, Estimates, SizeEstimate
from advisor.model.job import Job
from advisor.model.settings import ClusterSettings, Settings
from advisor.model.site import CloudState, Cutoff, PerformanceRatios, Price, SiteState

CLUSTER = ClusterState(
    time=1000.0,
    queue_size=3,
    queued_work_core_seconds=5e5,
    remaining_work_core_seconds=1e5,
    free_processors=0,
    total_processors=64,
    running_jobs=4,
)
ACT = ClusterSettings(default_mode=Mode.ACT)


def make_job(**fields: Any) -> Job:
    return Job(**{"job_id": 0, "submit_time": 1000.0, "processors": 4} | fields)


def make_estimates(
    wait: float = 7200.0,
    run: float = 3600.0,
    *,
    wait_variance: float = 100.0,
    run_variance: float = 100.0,
    size: SizeEstimate | None = None,
) -> Estimates:
    return Estimates(
        wait=Estimate(seconds=wait, variance=wait_variance),
        run=Estimate(seconds=run, variance=run_variance),
        **({"size": size} if size else {}),
    )


def make_settings(**sections: dict[str, Any]) -> Settings:
    """Settings in act mode; ``make_settings(placement={"boot_seconds": 0})``."""
    cluster = {"default_mode": Mode.ACT, "policy": "cunha2017"} | sections.pop("cluster", {})
    return in_force(Settings.model_validate({"cluster": cluster} | sections))


def make_cloud(**fields: Any) -> CloudState:
    spent = MappingProxyType(fields.pop("spent_by_account", {}))
    promised = MappingProxyType(fields.pop("promised_by_account", {}))
    nodes_with = fields.pop("nodes_with", {"spot": 20, "on-demand": 20})
    return CloudState(
        spent_by_account=spent,
        promised_by_account=promised,
        nodes_with=MappingProxyType(nodes_with),
        **fields,
    )


def ask(
    job: Job | None = None,
    estimates: Estimates | None = None,
    *,
    cloud: CloudState | None = None,
    cluster: ClusterState | None = CLUSTER,
    settings: Settings | None = None,
    cutoff: Cutoff | None = None,
    price: Price | None = None,
    ratios: PerformanceRatios | None = None,
    limits: tuple[Limit, ...] = (),
) -> Advice:
    """One advice, from parts that move a job unless told otherwise."""
    return advise(
        job or make_job(),
        SiteState(
            time=1000.0,
            cluster=cluster,
            cloud=cloud or make_cloud(),
            cutoff=cutoff,
            price=price,
            ratios=ratios,
            limits=limits,
        ),
        estimates or make_estimates(),
        settings or make_settings(),
        advice_id="advice-1",
    )


NOTHING_KNOWN = Estimates()
NAN = math.nan
