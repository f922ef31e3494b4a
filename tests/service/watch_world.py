"""A watch loop, a queue and a clock: what the loop makes of a look at the queue, without Slurm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.submission.cloud_terms import configured_slowdown
from advisor.model.advice import HedgeKind
from advisor.model.errors import RetryLater
from advisor.model.job import PLACEHOLDER_COMMENT, Job
from advisor.model.settings import Settings
from advisor.model.snapshot import ClusterSnapshot, JobView, Partition, QueuedJob
from advisor.model.submit_limits import SubmitKey
from advisor.service.hedge.watch_context import SliceDecider, WatchContext
from advisor.service.hedge.watching import WatchLoop
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import cluster_state
from advisor.service.state.hedge_entries import HedgeRecord
from advisor.slurm.placeholders import PlaceholderRequest
from advisor.testing.manual_clock import ManualClock
from advisor.testing.watched import hedged_comment, open_record


def advice_id_of(comment: str) -> str | None:
    """The advice a comment names."""
    read = parse_admin_comment(comment)
    return None if read is None else read.advice_id


class Queue:
    """Both parts of Slurm that the loop speaks to, as far as it does here."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobView] = {}
        self.killed_jobs: dict[int, JobView] = {}
        self.reserved: list[PlaceholderRequest] = []
        self.cancelled: list[int] = []
        self.requeued: list[int] = []
        self.requeued_ended: list[int] = []
        self.raised: list[tuple[int, int]] = []
        self.updated: list[tuple[int, dict[str, str]]] = []
        self.refuses = False
        self.is_burst_up = True
        self.place_seconds = 0.0
        self.submits = 1.0
        self.asked_submits: list[tuple[Collection[str], Collection[str]]] = []
        self.on_requeue: Callable[[], object] = lambda: None
        self.on_reserve: Callable[[], object] = lambda: None
        self.in_burst: dict[int, QueuedJob] = {}
        """What a look at some users' jobs in the burst partition shows."""
        self.looks: list[tuple[float, tuple[int, ...]]] = []
        self.clock: ManualClock | None = None

    recalculation_seconds = 0.0
    knows_site_factors = True
    may_requeue_booting = True

    def view(self, job_id: int) -> JobView | None:
        return self.jobs.get(job_id)

    def killed(self, job_id: int) -> JobView | None:
        return self.killed_jobs.get(job_id)

    def place(self, placeholder: int, job_id: int) -> JobView | None:
        view = self.jobs.get(placeholder)
        return view if view is not None and view.name == f"place-of-{job_id}" else None

    def submitted_by(self, users: Collection[int], partition: str) -> tuple[QueuedJob, ...]:
        assert partition == "burst"
        self.looks.append((self.clock.steady if self.clock is not None else 0.0, tuple(users)))
        return tuple(self.in_burst.values())

    def prepare(self) -> None:
        pass

    def reserve(self, request: PlaceholderRequest) -> int:
        self.on_reserve()
        if self.refuses:
            raise RetryLater("no", code="slurm.command_failed")
        self.reserved.append(request)
        placeholder = 900 + len(self.reserved)
        if self.place_seconds:  # submitted by so much later than its job
            own = self.jobs[request.job_id]
            self.jobs[placeholder] = dataclasses.replace(
                own,
                job_id=placeholder,
                state="PENDING",
                name=f"place-of-{request.job_id}",
                partition=request.partition,
                submit_time=own.submit_time + self.place_seconds,
            )
        return placeholder

    def cancel(self, placeholder: int, _job_id: int) -> None:
        self.cancelled.append(placeholder)
        self.jobs.pop(placeholder, None)

    def submits_left(self, users: Collection[str] = (), qos: Collection[str] = ()) -> dict[SubmitKey, float]:
        self.asked_submits.append((users, qos))
        return {SubmitKey(user="eva"): self.submits}

    def raise_priority(self, job_id: int, *, by: int, to: int | None) -> None:  # noqa: ARG002 -- as theirs
        self.raised.append((job_id, by))

    def age_points(self, seconds: float) -> int:
        return round(seconds)

    def requeue(self, job_ids: Collection[int]) -> None:
        self.requeued += job_ids
        self.on_requeue()

    def requeue_ended(self, job_ids: Collection[int]) -> None:
        self.requeued_ended += job_ids
        self.on_requeue()

    def partitions(self) -> tuple[Partition, ...]:
        return (Partition(name="burst", is_up=self.is_burst_up, nodes="burst[1-4]", total_processors=16),)

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        self.updated += ((job_id, dict(changes)) for job_id in job_ids)


class World:
    """The loop, a queue and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.queue = Queue()
        self.queue.clock = self.clock
        self.comment = hedged_comment(60.0, HedgeKind.SLICE, 10)
        self.slices: SliceDecider | None = None
        self.is_hedging = True
        self.preempts = False
        self.boot()

    def boot(self) -> None:
        settings = Settings.model_validate(
            {
                "paths": {"state": str(self.folder)},
                "cluster": {"default_mode": "act"},
                "hedge": {"enabled": self.is_hedging},
                "size": {"enabled": True, "small_priority_offset": 100, "safeguard": True},
            }
        )
        self.settings, clock = settings, self.clock.clock
        self.view = SharedView(clock, 60.0)
        self.record: HedgeRecord = open_record(self.folder)
        context = WatchContext(
            settings=settings,
            slurm=self.queue,  # type: ignore[arg-type]
            places=self.queue,  # type: ignore[arg-type]
            view=self.view,
            record=self.record,
            clock=clock,
            divider=lambda _: 1.0,
            slowdown=lambda queued: configured_slowdown(queued.job.processors, settings.placement),
            slices=lambda: self.slices,
            may_preempt=lambda _job, home: self.preempts and home == "onprem",
        )
        self.loop = WatchLoop(context, pause=self.clock.sleep)

    def job(self, job_id: int = 7, *, comment: str | None = None, **fields: object) -> QueuedJob:
        """A job that runs in the cloud since ten seconds; also for whoever asks about it alone."""
        comment = self.comment if comment is None else comment
        now = self.clock.wall
        partition = str(fields.pop("partition", "burst"))
        state, name = str(fields.pop("state", "RUNNING")), fields.get("name")
        job = Job(
            **{
                "job_id": job_id,
                "submit_time": now - 20.0,
                "processors": 4,
                "queue": partition,
                "user": "eva",
                "requested_time": 600.0,
                "requeue": True,
                "comment": PLACEHOLDER_COMMENT if str(name or "").startswith("place-of-") else None,
            }
            | fields  # type: ignore[arg-type]
        )
        self.queue.jobs[job_id] = JobView(
            job_id=job_id, state=state, reason="None", partition=partition, priority=1, start_time=now - 10.0,
            submit_time=now - 20.0, restarts=0, limit_seconds=job.requested_time, name=str(name or ""),
            advice_id=advice_id_of(comment), processors=job.processors, nodes=job.nodes or 1,
            processors_asked=job.processors,
        )  # fmt: skip
        return QueuedJob(
            job=job, state=state, partitions=(partition,), array_job_id=job_id, admin_comment=comment,
            start_time=None if state == "PENDING" else now - 10.0,
        )  # fmt: skip

    def look(self, *jobs: QueuedJob) -> None:
        """What the look loop sees, and a round."""
        self.clock.pass_by(5.0)
        snapshot = ClusterSnapshot(time=self.clock.wall, jobs=jobs, nodes=())
        self.view.update(snapshot, cluster_state(snapshot, self.settings))
        self.clock.pass_by(0.5)
        failed: RetryLater | None = None
        for step in self.loop.steps():  # one that fails keeps no other from its turn
            try:
                step.run()
            except RetryLater as error:
                failed = error
        if failed is not None:
            raise failed


def home(world: World, *, state: str = "PENDING", since: float = 0.0) -> QueuedJob:
    """The job after its requeue, waiting on-premise; slurmctld's ages count from `since` on."""
    queued = world.job(partition="onprem", state=state)
    world.queue.jobs[7] = dataclasses.replace(
        world.queue.jobs[7], restarts=1, priority=1, ages_since=since or world.clock.wall
    )
    return dataclasses.replace(queued, restarts=1)


def place(world: World, state: str) -> QueuedJob:
    return world.job(901, comment="", partition="onprem", state=state, name="place-of-7")


def brought_home(world: World) -> QueuedJob:
    """A job at its stop-loss: requeued, moved, behind its placeholder."""
    world.look(world.job())
    running = world.job()
    world.clock.pass_by(100.0)
    waiting = place(world, "PENDING")
    world.queue.on_requeue = lambda: home(world)
    world.look(running, waiting)
    assert world.queue.requeued == [7]
    return waiting
