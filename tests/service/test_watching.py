"""The watch loop where no Slurm is needed: what it makes of a look at the queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from advisor.decide.wording import parse_admin_comment
from advisor.ec2.state_file import StateFile
from advisor.model import Job
from advisor.model.advice import HedgeKind
from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.service.hedge_record import HedgeRecord
from advisor.service.site_view import cluster_state
from advisor.service.small_jobs import SmallJobs
from advisor.service.view import SharedView
from advisor.service.watching import WatchLoop
from advisor.slurm.places import JobSight, Wish
from advisor.slurm.protocol import QueuedJob, SlurmSnapshot
from advisor.testing.manual_clock import ManualClock
from advisor.testing.watched import hedged_comment, open_record


def _id(comment: str) -> str | None:
    read = parse_admin_comment(comment)
    return None if read is None else read.advice_id


class Queue:
    """Both parts of Slurm that the loop speaks to, as far as it does here."""

    def __init__(self) -> None:
        self.jobs: dict[int, JobSight] = {}
        self.reserved: list[Wish] = []
        self.cancelled: list[int] = []
        self.requeued: list[int] = []
        self.refuses = False

    recalculation_seconds = 0.0
    knows_site_factors = True
    may_requeue_booting = True

    def sight(self, job_id: int) -> JobSight | None:
        return self.jobs.get(job_id)

    def place(self, placeholder: int, job_id: int) -> JobSight | None:
        sight = self.jobs.get(placeholder)
        return sight if sight is not None and sight.name == f"place-of-{job_id}" else None

    def reserve(self, wish: Wish) -> int:
        if self.refuses:
            raise RetryLater("no", code="slurm.command_failed")
        self.reserved.append(wish)
        return 900 + len(self.reserved)

    def cancel(self, placeholder: int, _job_id: int) -> None:
        self.cancelled.append(placeholder)

    def raise_priority(self, job_id: int, *, by: int, to: int | None) -> None:
        pass

    def age_points(self, _seconds: float) -> int:
        return 0

    def requeue(self, job_ids: Collection[int]) -> None:
        self.requeued += job_ids

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        pass


class World:
    """The loop, a queue and a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.queue = Queue()
        self.comment = hedged_comment(60.0, HedgeKind.HEDGE, 10)
        self.boot()

    def boot(self) -> None:
        settings = Settings.model_validate(
            {"paths": {"state": str(self.folder)}, "cluster": {"default_mode": "act"}}
        )
        self.settings, clock = settings, self.clock.clock
        self.view = SharedView(clock, 60.0)
        self.record: HedgeRecord = open_record(self.folder)
        parts = {"slurm": self.queue, "places": self.queue, "view": self.view, "clock": clock}
        small = SmallJobs(
            settings,
            state=StateFile(self.folder / "small.json"),
            divider=lambda _: 1.0,
            **parts,  # type: ignore[arg-type]
        )
        self.loop = WatchLoop(
            settings,
            record=self.record,
            small_jobs=small,
            quantiles=lambda _: (),
            pause=self.clock.sleep,
            **parts,  # type: ignore[arg-type]
        )

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
            }
            | fields  # type: ignore[arg-type]
        )
        self.queue.jobs[job_id] = JobSight(
            job_id=job_id, state=state, reason="None", partition=partition, priority=1, start_time=now - 10.0,
            submit_time=now - 20.0, restarts=0, limit_seconds=600.0, name=str(name or ""),
            advice_id=_id(comment),
        )  # fmt: skip
        return QueuedJob(
            job=job, state=state, partitions=(partition,), array_job_id=job_id, admin_comment=comment,
            start_time=None if state == "PENDING" else now - 10.0,
        )  # fmt: skip

    def look(self, *jobs: QueuedJob) -> None:
        """What the look loop sees, and a round."""
        self.clock.pass_by(5.0)
        snapshot = SlurmSnapshot(time=self.clock.wall, jobs=jobs, nodes=())
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


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_place_is_kept_with_what_the_user_asked_for(world: World) -> None:
    world.look(world.job())
    wish = world.queue.reserved[0]
    assert (wish.job_id, wish.partition, wish.limit_seconds) == (7, "onprem", 600.0)
    assert wish.held_seconds == world.settings.hedge.slot_held_seconds
    world.look(world.job())
    assert len(world.queue.reserved) == 1


def test_a_job_that_ends_before_its_place_was_had_is_forgotten(world: World) -> None:
    world.queue.refuses = True
    with pytest.raises(RetryLater):
        world.look(world.job())
    assert 7 in world.record
    world.queue.jobs.clear()
    world.queue.refuses = False
    world.look()
    assert 7 not in world.record
    assert world.queue.reserved == []


def test_somebody_elses_job_under_its_id_is_not_touched(world: World) -> None:
    world.look(world.job())
    other = world.job(comment=hedged_comment(1.0, HedgeKind.HEDGE, 10))
    world.look(other)
    world.look(other)
    assert world.queue.requeued == []
    assert [kept.advice_id for kept in world.record.all()] != [_id(world.comment)]


def test_somebody_elses_job_under_the_placeholders_id_is_no_slot(world: World) -> None:
    world.look(world.job())
    thief = world.job(901, comment="", partition="onprem", name="payroll")
    world.look(world.job(), thief)
    kept = world.record.all()[0]
    assert kept.why == "its place was given up"
    assert world.queue.requeued == []


def test_a_placeholder_submitted_before_a_crash_is_found(world: World) -> None:
    world.queue.refuses = True
    with pytest.raises(RetryLater):
        world.look(world.job())
    world.queue.refuses = False
    world.boot()
    found = world.job(950, comment="", partition="onprem", state="PENDING", name="place-of-7")
    world.look(world.job(), found)
    assert world.queue.reserved == []
    assert world.record.all()[0].placeholder == 950


def test_a_placeholder_of_another_user_is_none_of_ours(world: World) -> None:
    forged = world.job(
        950, comment="", partition="onprem", state="PENDING", name="place-of-7", user="mallory"
    )
    world.look(world.job(), forged)
    assert world.record.all()[0].placeholder == 901


def test_a_stop_loss_holds_without_a_place(world: World) -> None:
    world.queue.refuses = True
    with pytest.raises(RetryLater):
        world.look(world.job())
    running = world.job()
    world.clock.pass_by(100.0)
    with pytest.raises(RetryLater):
        world.look(running)
    assert world.queue.requeued
    assert set(world.queue.requeued) == {7}


@pytest.mark.parametrize(
    "fields",
    [
        {"requeue": False},
        {"array_tasks": 3},
        {"comment_of_user": "no-hedge"},
        {"dependency": "after:3"},
        {"interactive": True},
        {"partition": "onprem"},
    ],
)
def test_who_may_not_be_brought_back_gets_no_place(world: World, fields: dict[str, object]) -> None:
    fields = dict(fields)
    said = fields.pop("comment_of_user", None)
    queued = world.job(**fields)
    world.look(dataclasses.replace(queued, job=dataclasses.replace(queued.job, comment=said)))
    assert len(world.record) == 0
    assert world.queue.reserved == []


def test_a_job_others_wait_for_gets_no_place_and_keeps_none(world: World) -> None:
    waiting = world.job(
        8, comment="", partition="onprem", state="PENDING", dependency="afterok:7(unfulfilled)"
    )
    world.look(world.job(), waiting)
    assert len(world.record) == 0
    world.look(world.job())
    assert world.record.all()[0].placeholder == 901
    world.look(world.job(), waiting, world.job(901, comment="", partition="onprem", name="place-of-7"))
    assert world.record.all()[0].why == "it may not be requeued any more"
    assert world.queue.requeued == []
