"""The same stream on the simulated cluster, for machines that cannot have a Slurm.

The decisions are the real ones (`advisor.decide.submission.advise` on the real estimators); the on-premise
cluster is
`advisor.simulate`, the cloud a boot delay and the slow-down s(c). The policy is `cunha2017`, since no loop
reads a price here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.progress import track

from advisor.decide.explanation.wording import why_sentence
from advisor.decide.submission.advise import advise
from advisor.model.advice import Capacity, Mode, Placement
from advisor.model.cluster import ClusterState
from advisor.model.job import Job
from advisor.model.settings import ClusterSettings, Settings
from advisor.model.settings_decision import PlacementSettings
from advisor.model.site import CloudState, SiteState
from advisor.papers.cluster.demand import demand_of
from advisor.papers.cluster.engine import simulate
from advisor.predict.knn.features import CUNHA_TABLE_I, Encoder
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.predictor import Predictor
from advisor.predict.knn.tracker import ClusterTracker, SnapshotRow, states_of
from demo.plan import ACCOUNTS, DemoJob, Plan, account_code, group_of, stream_table
from demo.report import JobResult, show, summarise
from demo.stage import (
    BOOT_SECONDS,
    BURST_NODES,
    KERNEL_WIDTH,
    KNOWN_JOBS,
    NEIGHBOURS,
    NODES,
    ON_DEMAND_USD_PER_HOUR,
    OVERHEAD_PER_PROCESSOR,
    SPOT_USD_PER_HOUR,
)

# An afternoon: midnight in the middle of a compressed history of hours would look like another world.
_NOON = 1_800_014_400.0


def play(plan: Plan, console: Console) -> int:
    """Decide, simulate, report; exit code 0."""
    settings = Settings(
        cluster=ClusterSettings(default_mode=Mode.ACT, policy="cunha2017"),
        placement=PlacementSettings(overhead_per_processor=OVERHEAD_PER_PROCESSOR, boot_seconds=BOOT_SECONDS),
    )
    predictor = _taught(plan)
    kept: list[DemoJob] = []
    moved: dict[int, float] = {}
    prices: dict[int, float] = {}
    predicted: list[float] = []
    for number, job in enumerate(track(plan.stream, description="deciding", console=console, transient=True)):
        state = _site_state(kept, plan.processors, job.submit_seconds, len(moved))
        request = _as_job(job)
        estimates = predictor.estimate(request, state.cluster)
        advice = advise(request, state, estimates, settings, advice_id=f"demo-{number}")
        predicted.append(estimates.wait.seconds)
        if advice.placement is Placement.BURST:
            is_spot = advice.capacity is Capacity.SPOT
            prices[number] = SPOT_USD_PER_HOUR if is_spot else ON_DEMAND_USD_PER_HOUR
            moved[number] = job.run_seconds * settings.placement.performance_ratio(job.processors)
        else:
            kept.append(job)
        if not job.explicit:
            where = "cloud" if number in moved else "here "
            console.print(
                f"{job.submit_seconds:5.0f} s  {job.user:9} {job.processors:4d} cpus  {where}  "
                f"{why_sentence(advice)}",
                markup=False,
                highlight=False,
                no_wrap=True,
                overflow="ellipsis",
            )
    results = _results(plan, kept, moved, predicted)
    per_node = plan.processors / NODES
    dollars = sum(
        seconds / 3600.0 * plan.stream[number].processors / per_node * prices[number]
        for number, seconds in moved.items()
    )
    summary = summarise(
        results,
        processors=plan.processors,
        cloud_usd=dollars,
        instances=min(BURST_NODES, len(moved)),
    )
    show(summary, results, processors=plan.processors, compression=plan.compression, console=console)
    return 0


def _taught(plan: Plan) -> Predictor:
    """Build both estimators from the plan's history."""
    end = float(plan.table.end.max())
    accounts = np.array([account_code(int(user)) for user in plan.table.user])
    table = replace(
        plan.table,
        submit=plan.table.submit - end,
        start_of_log=_NOON,
        user=accounts,
        total_processors=plan.processors,
        names={"user": ACCOUNTS},
    )
    states = states_of(table)
    encoder = Encoder(CUNHA_TABLE_I, start_of_log=_NOON)
    untuned = KnnParameters.untuned(CUNHA_TABLE_I, k=NEIGHBOURS, omega=KERNEL_WIDTH, s=KNOWN_JOBS)
    predictor = Predictor(untuned, untuned, encoder=encoder)
    predictor.learn_table(table, states)
    return predictor


def _as_job(job: DemoJob) -> Job:
    return Job(
        job_id=0,
        submit_time=job.submit_seconds,
        processors=job.processors,
        user=job.user,
        group=group_of(job.user),
        queue="onprem",
        requested_time=60.0 * job.limit_minutes,
        requeue=job.may_requeue,
        comment="no-burst" if job.opts_out else None,
        explicit_partition=job.explicit,
        name=job.name,
    )


def _site_state(kept: list[DemoJob], processors: int, now: float, cloud_jobs: int) -> SiteState:
    """What a submission meets: jobs kept so far, scheduled without knowing what comes after."""
    cluster = _cluster_state(kept, processors, now)
    cloud = CloudState(
        boot_seconds=BOOT_SECONDS, nodes_total=BURST_NODES, nodes_up=min(BURST_NODES, cloud_jobs)
    )
    return SiteState(time=now, cluster=cluster, cloud=cloud)


def _cluster_state(kept: list[DemoJob], processors: int, now: float) -> ClusterState:
    if not kept:
        return ClusterTracker(processors).state(now)
    schedule = simulate(demand_of(stream_table(kept)), processors)
    rows = [
        SnapshotRow(
            key=number,
            processors=job.processors,
            requested_time=60.0 * job.limit_minutes,
            submit_time=job.submit_seconds,
            start_time=float(schedule.start[number]) if schedule.start[number] <= now else None,
        )
        for number, job in enumerate(kept)
        if schedule.end[number] > now
    ]
    return ClusterTracker.from_snapshot(rows, total_processors=processors, time=now).state(now)


def _results(
    plan: Plan, kept: list[DemoJob], moved: dict[int, float], predicted: list[float]
) -> list[JobResult]:
    schedule = simulate(demand_of(stream_table(kept)), plan.processors) if kept else None
    waits = iter(schedule.start - np.array([job.submit_seconds for job in kept]) if schedule else ())
    results = []
    for number, job in enumerate(plan.stream):
        in_cloud = number in moved
        results.append(
            JobResult(
                job=job,
                state="COMPLETED",
                placement=Placement.BURST if in_cloud else Placement.ON_PREMISE,
                wait_seconds=BOOT_SECONDS if in_cloud else float(next(waits)),
                run_seconds=moved[number] if in_cloud else job.run_seconds,
                predicted_wait_seconds=predicted[number],
                starts=1,
            )
        )
    return results
