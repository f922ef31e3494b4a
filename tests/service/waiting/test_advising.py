"""Jobs advised without a hook: the hook's decisions, set while they are pending."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.model.advice import Mode
from advisor.model.errors import RetryLater, UseFallback
from advisor.model.job import Job
from advisor.model.snapshot import Partition
from advisor.service.exchange.protocol import VERSION, AdviseReply, AgainRequest
from advisor.service.observation.site_view import cluster_state
from advisor.service.submit.answering import Answered, Answerer
from advisor.service.waiting.advising import AdvisingLoop
from advisor.service.waiting.unadvised import (
    before_unadvised,
    is_unadvised,
)
from advisor.testing.memory_slurm import MemorySlurm
from advisor.testing.memory_slurm_records import MemoryJob
from tests.service.doubles import Hands, make_look, make_queued
from tests.service.site import NOW, FixedEstimator, ask, make_answerer, make_settings, make_snapshot

HOME = Partition(name="onprem", is_up=True, nodes="", total_processors=64, is_default=True, max_minutes=600)
BURST = Partition(name="burst", is_up=True, nodes="", total_processors=64, max_minutes=90)
OTHER = Partition(name="other", is_up=True, nodes="", total_processors=64)
PARTITIONS = {each.name: each for each in (HOME, BURST, OTHER)}


class World:
    """slurmctld in memory, a submit server's answerer, and the loop between them."""

    def __init__(self, folder: Path, *, mode: Mode = Mode.ACT, **estimates: Any) -> None:
        self.hands = Hands(wall=NOW)
        self.settings = make_settings(folder, mode=mode)
        self.slurm = MemorySlurm(now=lambda: self.hands.wall, program=lambda *_: None, node_count=20)
        self.answerer = self.new_answerer(**estimates)
        self.answered: list[Answered] = []
        self.is_away = self.is_unknown = False
        self.hedged = 0
        self.loop = self.new_loop()

    def new_answerer(self, **estimates: Any) -> Answerer:
        estimator = FixedEstimator(**estimates)
        answerer, _ = make_answerer(self.settings, make_snapshot(), estimator, lambda: self.hands.wall)
        return answerer

    def new_loop(self) -> AdvisingLoop:
        return AdvisingLoop(
            slurm=self.slurm,  # type: ignore[arg-type]
            clock=self.hands.clock,
            session=self.session,
            hedged=self.hedge,
        )

    def hedge(self) -> None:
        self.hedged += 1

    @contextmanager
    def session(self) -> Iterator[Any]:
        yield self.ask

    def ask(self, job: Job) -> AdviseReply:
        if self.is_away:
            raise RetryLater("no answer", code="submit.unreachable")
        if self.is_unknown:
            return AdviseReply(v=1, seq=1, reason=Reason.STATE_UNKNOWN)
        self.answered.append(self.answerer.again(AgainRequest(v=VERSION, seq=1, job=job, is_new=True)))
        return self.answered[-1].reply

    def submit(self, job_id: int, **said: Any) -> MemoryJob:
        limit = said.pop("limit", 3600.0)
        known = {name: said.pop(name) for name in ("state", "admin_comment", "restarts") if name in said}
        described = Job(job_id=0, submit_time=0.0, **({"processors": 2, "requeue": True} | said))
        job = MemoryJob(
            job_id=job_id,
            seconds=60.0,
            submit_time=self.hands.wall,
            processors=described.processors,
            partition=described.queue or "onprem",
            limit_seconds=limit,
            described=described,
            **known,
        )
        self.slurm.jobs[job_id] = job
        return job

    def round(self, seconds: float = 1.0) -> None:
        self.hands.pass_by(seconds)
        self.loop.advise()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_new_job_is_moved_with_its_advice_and_told_once(world: World) -> None:
    job = world.submit(7)
    for _ in range(3):
        world.round()
    assert job.partition == "burst"
    recorded = parse_admin_comment(job.admin_comment)
    assert recorded is not None
    assert recorded.advice_id == world.answered[0].record.advice.advice_id
    assert len(world.answered) == 1
    assert world.loop.report() == {"advised": 1, "moved": 1, "left_alone": 0, "slowest_seconds": 1.0}


def test_a_moved_job_that_begins_before_the_next_poll_is_counted(world: World) -> None:
    job = world.submit(7)
    world.round()
    job.state = "RUNNING"
    world.round()
    assert (world.loop.advised, world.loop.moved) == (1, 1)


def test_a_job_that_stays_is_advised_and_gets_its_priority(tmp_path: Path) -> None:
    world = World(tmp_path, wait=0.0)
    job = world.submit(7)
    world.round()
    world.round()
    recorded = parse_admin_comment(job.admin_comment)
    assert recorded is not None
    assert (recorded.placement, job.partition) == ("on-premise", "onprem")
    assert (world.loop.advised, world.loop.moved) == (1, 0)


def test_in_shadow_mode_only_the_comment_is_set(tmp_path: Path) -> None:
    world = World(tmp_path, mode=Mode.SHADOW)
    job = world.submit(7)
    world.round()
    assert job.partition == "onprem"
    recorded = parse_admin_comment(job.admin_comment)
    assert recorded is not None
    assert (recorded.placement, recorded.mode) == ("burst", "shadow")


SUBMISSIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "wide": ({"processors": 40}, {"min_cpus": 40}),
    "too wide": ({"processors": 4000}, {"min_cpus": 4000}),
    "no requeue": ({"requeue": False}, {"requeue": False}),
    "opted out": ({"comment": "please no-burst"}, {"comment": "please no-burst"}),
    "constraint": ({"features": ("x86",)}, {"features": "x86"}),
    "constraint, no requeue": (
        {"features": ("x86",), "requeue": False},
        {"features": "x86", "requeue": False},
    ),
    "a feature of no cloud node": ({"features": ("gpu",)}, {"features": "gpu"}),
    "alternatives": ({"features": ("x86", "x86"), "plain_constraint": False}, {"features": "x86|x86"}),
    "array": ({"array_tasks": 20}, {"array": "1-20%3"}),
    "dependency": ({"dependency": "afterok:5(unfulfilled)"}, {"dependency": "afterok:5"}),
    "licence": ({"licenses": "matlab:1"}, {"licenses": "matlab:1"}),
    "reservation": ({"reservation": "maintenance"}, {"reservation": "maintenance"}),
    "nodes": ({"node_list": "n1"}, {"req_nodes": "n1"}),
    "gres": ({"gres": "gres:gpu:1"}, {"generic_resources": "gres:gpu:1"}),
    "burst buffer": ({"burst_buffer": "#BB"}, {"burst_buffer": "#BB"}),
    "interactive": ({"interactive": True}, {"interactive": True}),
    "another partition": ({"queue": "other"}, {"partition": "other"}),
    "the cloud by hand": ({"queue": "burst"}, {"partition": "burst"}),
    "memory": ({"memory_mb": 900_000}, {"memory_per_cpu": 450_000}),
    "named as a placeholder": ({"name": "place-of-12"}, {"name": "place-of-12"}),
}


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_g20_2_decisions_equal_those_of_the_hook(world: World, name: str) -> None:
    """The same state, the same job: inside `sbatch`, and seen in the queue a second later."""
    seen, said = SUBMISSIONS[name]
    hook = world.new_answerer()
    inside = hook.answer(ask(default_partition="onprem", **({"time_limit": 60} | said)))
    world.submit(7, user="alice", qos="normal", **seen)  # as slurmctld shows a job without one
    world.round()
    ((found),) = world.answered
    ignored = {"advice_id": "", "time": 0.0}
    assert with_fields(found.record.advice, **ignored) == with_fields(inside.record.advice, **ignored)
    assert found.submission == with_fields(inside.submission, time=found.submission.time)
    ours, theirs = (
        with_fields(reply, seq=0, id="", admin_comment="") for reply in (found.reply, inside.reply)
    )
    assert ours == theirs


def test_jobs_that_are_not_new_are_left_alone(world: World) -> None:
    world.submit(1, state="RUNNING")
    world.submit(2, admin_comment="the site's own")
    world.submit(3, restarts=1)
    world.submit(4, heterogeneous=True)
    world.round()
    world.round()
    assert world.answered == []
    assert world.slurm.told == []


def test_with_the_hook_beside_it_nothing_is_advised_twice(world: World) -> None:
    inside = world.answerer.answer(ask(default_partition="onprem"))
    job = world.submit(7, admin_comment=inside.reply.admin_comment)
    world.round()
    assert (world.answered, job.partition) == ([], "onprem")


def test_a_job_that_begins_before_it_is_moved_stays_where_it_is(world: World) -> None:
    job = world.submit(7)
    answer = world.ask

    def begins(asked: Job) -> AdviseReply:
        reply = answer(asked)
        job.state = "RUNNING"
        return reply

    world.ask = begins  # type: ignore[method-assign]
    world.round()
    assert (job.partition, job.admin_comment, world.slurm.told) == ("onprem", "", [])
    assert world.loop.left_alone == 1


def test_a_job_that_begins_while_slurmctld_is_told_is_refused_there(world: World) -> None:
    job = world.submit(7)

    def begin(call: str, stage: str) -> None:
        if (call, stage) == ("update_job", "before"):
            job.state = "RUNNING"

    world.slurm.observe = begin
    world.round()
    world.slurm.observe = lambda _call, _stage: None
    world.round()
    assert (job.partition, job.admin_comment) == ("onprem", "")


def test_a_job_that_its_user_changes_meanwhile_is_asked_about_as_it_is_then(world: World) -> None:
    job = world.submit(7)
    answer = world.ask

    def changes(asked: Job) -> AdviseReply:
        reply = answer(asked)
        job.described = with_fields(job.described, comment="no-burst")
        return reply

    world.ask = changes  # type: ignore[method-assign]
    world.round()
    assert job.partition == "onprem"
    world.ask = answer  # type: ignore[method-assign]
    world.round()
    assert job.partition == "onprem"
    recorded = parse_admin_comment(job.admin_comment)
    assert recorded is not None
    assert recorded.reason == "rule.opt_out_comment"


def test_of_an_array_no_task_may_have_begun(world: World) -> None:
    begun = world.submit(8, state="RUNNING")
    begun.array_job_id = 7
    rest = world.submit(7, array_tasks=3)
    whole = world.submit(9, array_tasks=3)
    world.round()
    assert (rest.partition, rest.admin_comment, whole.partition) == ("onprem", "", "burst")


def test_what_is_left_of_an_array_is_moved_without_a_preference(world: World) -> None:
    """Such a task (`--array=9`) would never start after a return on-premise; Slurm shows it as one job."""
    plain, task = world.submit(7), world.submit(9)
    task.array_job_id = 9
    world.round()
    assert (plain.partition, task.partition) == ("burst", "burst")
    assert (plain.prefer, task.prefer) == ("spot", "")


def test_the_rest_of_an_array_that_has_begun_is_left(world: World) -> None:
    world.submit(8, state="RUNNING").array_job_id = 7
    rest = world.submit(7)
    rest.array_job_id = 7
    world.round()
    assert (rest.partition, rest.admin_comment) == ("onprem", "")


def test_a_change_whose_answer_was_lost_is_not_asked_about_again(world: World) -> None:
    job = world.submit(7)
    world.slurm.fail("answer-lost", call="update_job")
    world.round()
    world.round()
    assert (job.partition, len(world.answered), world.loop.moved) == ("burst", 1, 1)


def test_a_change_that_is_refused_is_repeated_and_then_given_up(world: World) -> None:
    job = world.submit(7)
    world.slurm.fail("never-arrives", times=3, call="update_job")
    world.round()
    for _ in range(2):
        with pytest.raises(RetryLater):
            world.round()
    world.round()
    world.round()
    assert (job.partition, len(world.answered), world.loop.left_alone) == ("onprem", 1, 1)


def test_without_a_submit_server_or_snapshot_jobs_are_asked_about_later(world: World) -> None:
    job = world.submit(7)
    world.is_away = True
    with pytest.raises(RetryLater):
        world.round()
    world.is_away, world.is_unknown = False, True
    world.round()
    assert job.admin_comment == ""
    world.is_unknown = False
    world.round()
    assert job.partition == "burst"


def test_a_job_that_the_server_cannot_answer_about_keeps_no_other_from_its_advice(world: World) -> None:
    first, second = world.submit(7, comment="odd"), world.submit(8)
    answer = world.ask

    def fails_at_one(asked: Job) -> AdviseReply:
        if asked.comment:
            raise UseFallback("refused", code="server.failed")
        return answer(asked)

    world.ask = fails_at_one  # type: ignore[method-assign]
    with pytest.raises(UseFallback, match="refused"):
        world.round()
    assert (first.partition, second.partition) == ("onprem", "burst")


def test_a_new_process_finds_who_was_advised_in_the_comments(world: World) -> None:
    world.submit(7)
    world.round()
    world.submit(8)
    world.loop = world.new_loop()
    world.round()
    assert sorted(world.slurm.jobs[job_id].partition for job_id in (7, 8)) == ["burst", "burst"]
    assert len(world.answered) == 2


def test_of_thousands_that_wait_only_new_ones_are_read(world: World) -> None:
    """A queue from before does not delay the jobs of this moment, the oldest of which come first."""
    for job_id in range(1, 602):
        world.submit(job_id, comment="no-burst")
    world.hands.pass_by(60.0)
    for job_id in range(602, 702):
        world.submit(job_id, comment="no-burst")
    world.loop._advise()
    assert len(world.answered) == 300
    assert all(world.slurm.jobs[job_id].admin_comment for job_id in range(402, 702))
    world.round()
    assert len(world.answered) == 701
    read = world.slurm.waiting(world.loop._known)
    assert list(read.values()) == [None] * 701


@pytest.mark.parametrize(("hedge", "wakes"), [(',"hedge":["slice",60.0]', 1), ("", 0)])
def test_a_hedged_start_wakes_the_poll_that_finds_it(world: World, hedge: str, wakes: int) -> None:
    world.submit(7)
    comment = f'{{"burst_advisor":1,"id":"x","to":"burst","mode":"act","why":"y"{hedge}}}'
    reply = AdviseReply(v=1, seq=1, partition="burst", admin_comment=comment)
    world.ask = lambda _job: reply  # type: ignore[method-assign]
    world.round()
    assert world.hedged == wakes


def test_the_snapshot_that_decisions_use_is_from_before_a_new_job(world: World) -> None:
    new, advised = make_queued(7, submit_time=NOW - 2.0), make_queued(8, admin_comment="{}")
    old, begun = make_queued(9, submit_time=NOW - 61.0), make_queued(10, "RUNNING", start_time=NOW)
    snapshot = make_look(NOW, (), (new, advised, old, begun))
    assert [is_unadvised(queued) for queued in snapshot.jobs] == [True, False, True, False]
    met = before_unadvised(snapshot)
    assert [queued.job.job_id for queued in met.jobs] == [8, 9, 10]
    assert before_unadvised(met) is met
    assert cluster_state(met, world.settings).queue_size == 2
