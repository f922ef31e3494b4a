"""How long `advisor control` takes to value a whole queue by the one price."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.advice import Advice, Answer, Mode, Placement, Question, Verdict
from advisor.model.cluster import Node
from advisor.model.job import Job, JobOutcome, limit_seconds
from advisor.model.settings import Settings
from advisor.model.site import CloudState
from advisor.model.snapshot import ClusterSnapshot, QueuedJob
from advisor.predict.run_times.run_times import RunTimesOfJobs
from advisor.service.observation.site_view import cluster_state
from advisor.service.price.expected_runs import ExpectedRuns
from advisor.service.price.queue_view import forecast_waits, on_premise_queue
from advisor.service.price.valuing import Valuer

_NOW = 1_800_000_000.0
_NODES, _PROCESSORS = 64, 32
_TAUGHT = 5_000


def run(*, seed: int, rounds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Value queues of several lengths; the peer is what every poll computes of the same queue anyway.

    Args:
        rounds: Of which the median counts.
        tell: Told what is done.

    Returns:
        Seconds by length of the queue, the median round.
    """
    settings = Settings()
    tell("teaching run times")
    chances = RunTimesOfJobs()
    for queued in _jobs(_TAUGHT, np.random.default_rng(seed)):
        end = _NOW + 0.3 * (queued.job.requested_time or 60.0)
        chances.learn(JobOutcome(job=queued.job, start_time=_NOW, end_time=end))
    lengths = {}
    for length in (10, 500, 5_000):
        tell(f"{length} waiting jobs")
        snapshot = _snapshot(length, np.random.default_rng(seed + length))
        lengths[str(length)] = _measured(snapshot, settings, chances, rounds)
    return {"seed": seed, "processors": _NODES * _PROCESSORS, "waiting_jobs": lengths}


def _measured(
    snapshot: ClusterSnapshot, settings: Settings, chances: RunTimesOfJobs, rounds: int
) -> dict[str, float]:
    valuer = Valuer(
        settings,
        chances=chances.chances,
        slowdown=lambda _queued: 1.05,
        limit_there=limit_seconds,
        has_slices=True,
    )
    cloud = CloudState(on_demand_usd_per_core_hour=0.05, processors_per_node=_PROCESSORS, nodes_total=100)

    def value() -> int:
        queue = on_premise_queue(snapshot, settings)
        return len(valuer.value(queue.waiting, forecast_waits(queue, runs), cloud, snapshot.time))

    runs = ExpectedRuns(chances.chances, lambda: True)
    _seconds(value)  # compiled, or loaded
    runs = ExpectedRuns(chances.chances, lambda: True)
    first = _seconds(value)
    again = float(np.median([_seconds(value) for _ in range(rounds)]))
    peer = float(np.median([_seconds(lambda: cluster_state(snapshot, settings)) for _ in range(rounds)]))
    return {
        "first_seconds": first,
        "again_seconds": again,
        "poll_state_seconds": peer,
        "again_over_poll_state": again / peer,
        "valued_jobs": value(),
    }


def _seconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def _snapshot(waiting: int, rng: np.random.Generator) -> ClusterSnapshot:
    nodes = tuple(
        Node(
            name=f"node{number}",
            states=frozenset({"ALLOCATED"}),
            processors=_PROCESSORS,
            memory_mb=64_000,
            partitions=("onprem",),
        )
        for number in range(_NODES)
    )
    jobs = _jobs(waiting + _NODES * _PROCESSORS, rng)
    free, running = _NODES * _PROCESSORS, []
    while jobs[0].job.processors <= free:
        queued = jobs.pop(0)
        free -= queued.job.processors
        started = _NOW - float(rng.uniform(0.0, queued.job.requested_time or 60.0))
        running.append(replace(queued, state="RUNNING", reason="", start_time=started))
    return ClusterSnapshot(time=_NOW, jobs=(*running, *jobs[:waiting]), nodes=nodes)


def _jobs(count: int, rng: np.random.Generator) -> list[QueuedJob]:
    comment = admin_comment(
        Advice(
            advice_id="1-abc-1",
            time=_NOW,
            placement=Placement.ON_PREMISE,
            partition=None,
            capacity=None,
            mode=Mode.ACT,
            answers=(Answer(question=Question.FASTER, verdict=Verdict.NO, reason=Reason.TOO_DEAR),),
        )
    )
    processors = 2 ** rng.integers(0, 8, count)
    limits = rng.choice([600.0, 3600.0, 14_400.0, 86_400.0], count)
    users = rng.integers(0, 200, count)
    return [
        QueuedJob(
            job=Job(
                job_id=row + 1,
                submit_time=_NOW - 3600.0 + row,
                processors=int(processors[row]),
                user=f"user{users[row]}",
                account=f"account{users[row] % 20}",
                queue="onprem",
                name=f"app{users[row] % 7}",
                requested_time=float(limits[row]),
                requeue=True,
            ),
            state="PENDING",
            partitions=("onprem",),
            array_job_id=row + 1,
            priority=count - row,
            reason="Priority",
            admin_comment=comment,
        )
        for row in range(count)
    ]
