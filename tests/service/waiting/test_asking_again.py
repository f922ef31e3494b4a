"""Waiting jobs asked again: who is, who is moved, and what a crash leaves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.files.state_file import StateFile
from advisor.history.records import AdviceRecord
from advisor.model.advice import Mode, Placement
from advisor.model.errors import RetryLater, TellAdmin
from advisor.model.job import Job
from advisor.model.snapshot import ClusterSnapshot, Partition, QueuedJob
from advisor.service.exchange.protocol import AdviseReply
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import cluster_state
from advisor.service.state.records import MovesUnderWay
from advisor.service.state.state_files import MOVES
from advisor.service.waiting.asking import Asking
from advisor.service.waiting.asking_again import AskingAgainLoop
from advisor.service.waiting.moving import Moves
from tests.decide.cases import ask, make_estimates, make_settings
from tests.service.doubles import Hands, make_look, make_queued

STAYS = ask(estimates=make_estimates(wait=0.0))
COMMENT = admin_comment(STAYS)
MOVED = admin_comment(replace(STAYS, placement=Placement.BURST, partition="burst", mode=Mode.ACT))
B = 3600.0


class Slurm:
    def __init__(self) -> None:
        self.jobs: dict[int, QueuedJob] = {}
        self.told: list[tuple[int, Mapping[str, str]]] = []
        self.dies = False
        self.looks = 0
        self.burst = Partition(name="burst", is_up=True, nodes="", total_processors=8, max_minutes=50)

    def snapshot(self, now: float) -> ClusterSnapshot:
        self.looks += 1
        return make_look(now, (), tuple(self.jobs.values()))

    def partitions(self) -> tuple[Partition, ...]:
        return (self.burst,)

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        if self.dies:
            raise RetryLater("no answer", code="slurm.timeout")
        for job_id in job_ids:
            self.told.append((job_id, dict(changes)))
            self.put(job_id, queue=changes["partition"], admin_comment=changes["admincomment"])

    def put(self, job_id: int, state: str = "PENDING", **changes: Any) -> None:
        known = {"reason": "Priority", "admin_comment": COMMENT, "user": "ann", "requested_time": 600.0}
        self.jobs[job_id] = make_queued(job_id, state, **(known | changes))


class World:
    """One loop, and a submit server that says what a test wants."""

    def __init__(self, folder: Path, **waiting: Any) -> None:
        self.hands, self.slurm = Hands(), Slurm()
        self.settings = make_settings(
            cluster={"policy": "ambati2021"}, waiting={"short_wait_seconds": B} | waiting
        )
        self.view = SharedView(self.hands.clock, 60.0)
        self.folder = folder
        self.asked: list[Job] = []
        self.moves = True
        self.mode = "act"
        self.prefers = ""
        self.reply: dict[str, Any] = {}
        self.submitted = Job(job_id=0, submit_time=0.0, processors=2, queue="onprem", requested_time=600.0)
        self.loop = self.new_loop()

    def new_loop(self) -> AskingAgainLoop:
        moves = Moves(
            self.settings,
            slurm=self.slurm,  # type: ignore[arg-type]
            view=self.view,
            state=MOVES.at(self.folder),
            clock=self.hands.clock,
            prefers=lambda _job_id: self.prefers,
        )
        asking = Asking(
            moves,
            advice=lambda _job_id: AdviceRecord(advice=STAYS, job=self.submitted),
            again=lambda job, _wait, _planned: self.again(job),
        )
        return AskingAgainLoop(self.settings, view=self.view, asking=asking, clock=self.hands.clock)

    def again(self, job: Job) -> AdviseReply:
        self.asked.append(job)
        where = Placement.BURST if self.moves else Placement.ON_PREMISE
        moved = admin_comment(replace(ask(), advice_id=f"again-{len(self.asked)}"))
        acts = self.moves and self.mode == "act"
        return AdviseReply(
            v=1,
            seq=1,
            id=f"again-{len(self.asked)}",
            placement=where,
            mode=self.mode,
            partition="burst" if acts else None,
            admin_comment=moved,
            time_limit=60,
            **self.reply,
        )

    def round(self, seconds: float = 31.0) -> None:
        self.hands.pass_by(seconds)
        snapshot = self.slurm.snapshot(self.hands.wall)
        self.view.update(snapshot, cluster_state(snapshot, self.settings))
        for step in self.loop.steps():
            step.run()

    @property
    def moved(self) -> list[int]:
        return [job_id for job_id, _ in self.slurm.told]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_g17_12_a_waiting_job_is_moved_with_what_the_hook_would_have_set(world: World) -> None:
    world.slurm.put(7)
    world.round()
    ((job_id, changes),) = world.slurm.told
    assert (job_id, changes["partition"]) == (7, "burst")
    assert "timelimit" not in changes  # it is raised once the job runs
    assert "again-1" in changes["admincomment"]
    world.round()
    assert (world.moved, world.loop.report()["moved"], world.loop.report()["moving"]) == ([7], 1, 0)


def test_a_moved_job_that_has_ended_before_the_next_poll_was_moved(world: World) -> None:
    world.slurm.put(7)
    world.round()
    world.slurm.jobs.clear()
    world.round()
    report = world.loop.report()
    assert (report["moved"], report["given_up"], report["moving"]) == (1, 0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "RUNNING"},
        {"reason": "JobHeldUser"},
        {"reason": "JobHeldAdmin"},
        {"reason": "Dependency"},
        {"reason": "QOSMaxJobsPerUserLimit"},
        {"restarts": 1},
        {"array_tasks": 3},
        {"array_job_id": 5},
        {"is_of_array": True},
        {"queue": "burst"},
        {"queue": "elsewhere"},
        {"admin_comment": ""},
        {"admin_comment": "the admin's own words"},
        {"admin_comment": MOVED},  # it was moved, and brought back by its user, or because Slurm held it
        {"name": "place-of-3"},
    ],
)
def test_who_is_never_asked(world: World, changes: dict[str, Any]) -> None:
    world.slurm.put(7, **changes)
    world.round()
    assert (world.asked, world.moved) == ([], [])


def test_the_question_has_what_the_hook_saw_and_what_the_user_changed_since(world: World) -> None:
    world.submitted = replace(world.submitted, explicit_partition=True, interactive=True, deferred=True)
    world.slurm.put(7, comment="no-burst", requested_time=1200.0)
    world.moves = False
    world.round()
    (job,) = world.asked
    assert (job.explicit_partition, job.interactive, job.comment) == (True, True, "no-burst")
    assert (job.requested_time, job.explicit_time_limit, job.deferred) == (1200.0, True, False)
    assert job.submit_time == world.slurm.jobs[7].job.submit_time  # since when it has waited


@pytest.mark.parametrize(("memory", "asked"), [(500, 9000), (None, None)])
def test_the_question_has_the_memory_that_its_user_asks_for_by_now(
    world: World, memory: int | None, asked: int | None
) -> None:
    """With that of its submission it moved to nodes without room for it (tried: MinMemoryNode=)."""
    world.moves = False
    world.slurm.put(7)
    world.slurm.jobs[7] = dataclasses.replace(world.slurm.jobs[7], memory_mb=9000, node_memory_mb=9000)
    # who asked for none gets what the burst partition gives
    world.submitted = replace(world.submitted, memory_mb=memory, memory_mb_per_node=memory)
    world.round()
    (job,) = world.asked
    assert (job.memory_mb, job.memory_mb_per_node) == (asked, asked)


@pytest.mark.parametrize("submitted", [{"queue": "other"}, {"array_tasks": 3}])
def test_a_job_whose_partition_was_changed_by_hand_or_an_arrays_last_task_is_left_alone(
    world: World, submitted: dict[str, Any]
) -> None:
    world.submitted = replace(world.submitted, **submitted)
    world.slurm.put(7)
    world.round()
    assert (world.asked, world.moved) == ([], [])


def test_in_shadow_mode_it_is_only_noted(world: World) -> None:
    world.mode = "shadow"
    world.slurm.put(7)
    world.round()
    world.round()
    assert (world.moved, world.loop.report()["would_move"]) == ([], 1)


@pytest.mark.parametrize(("seconds", "times"), [(300.0, 1), (601.0, 2)])
def test_asked_every_ten_minutes(world: World, seconds: float, times: int) -> None:
    world.moves = False
    world.slurm.put(7)
    world.round()
    world.round(seconds)
    assert len(world.asked) == times


def test_asked_when_the_queue_has_changed_much_and_when_b_is_over(world: World) -> None:
    world.moves = False
    world.slurm.put(7)
    world.round()
    world.slurm.put(8, processors=40)
    world.round()
    assert [job.job_id for job in world.asked] == [7, 7, 8]
    world.slurm.put(9, submit_time=world.hands.wall - B + 40.0, processors=1)
    world.round()
    world.asked.clear()
    world.round()
    assert [job.job_id for job in world.asked] == [9]  # it has waited b


def test_bounded_work_a_round_and_everybody_has_his_turn(world: World) -> None:
    world.moves = False
    for job_id in range(1, 451):
        world.slurm.put(job_id)
    for expected in (200, 400, 450):
        world.round()
        assert len({job.job_id for job in world.asked}) == expected
    world.moves = True
    world.round(601.0)
    assert len(world.moved) == 20


def test_the_intent_is_written_before_and_a_crash_is_made_good(world: World) -> None:
    world.slurm.put(7)
    world.slurm.dies = True
    with pytest.raises(RetryLater):
        world.round()
    assert MOVES.at(world.folder).read().moving.keys() == {7}
    world.slurm.dies = False
    world.loop = world.new_loop()  # killed, and started again
    world.round()
    assert world.moved == [7]
    assert len(world.asked) == 1  # not asked anew: the advice in the ledger is the one that holds
    world.round()
    assert MOVES.at(world.folder).read().moving == {}


def test_f32_a_move_is_finished_where_the_clock_was_set_back(world: World) -> None:
    world.slurm.put(7)
    world.slurm.dies = True
    with pytest.raises(RetryLater):
        world.round()
    world.slurm.dies = False
    world.hands.wall -= 3600.0
    world.round()
    assert world.moved == [7]
    world.round()
    assert MOVES.at(world.folder).read().moving == {}


@pytest.mark.parametrize(
    "since",
    [
        {"state": "RUNNING"},
        {"reason": "JobHeldUser"},
        {"queue": "other"},
        {"comment": "no-burst"},
        {"features": ("x86",)},
        {"requested_time": 60.0},
        {"node_list": "node1"},
        {"processors": 8},
    ],
)
def test_what_has_changed_since_the_intent_wins(world: World, since: dict[str, Any]) -> None:
    world.slurm.put(7)
    world.slurm.dies = True
    with pytest.raises(RetryLater):
        world.round()
    world.slurm.dies = False
    world.slurm.put(7, **since)
    world.moves = False  # one that is asked anew
    world.round()
    assert (world.moved, world.loop.report()["given_up"]) == ([], 1)


def test_g17_12_a_preference_of_the_users_own_stays(world: World) -> None:
    """Of ours nothing is set beside it; what must be required could not be, so the job stays."""
    world.prefers, world.reply = "bigmem", {"prefer": "spot"}
    world.slurm.put(7)
    world.round()
    assert (world.moved, "prefer" in world.slurm.told[0][1]) == ([7], False)
    world.reply = {"features": "on-demand"}
    world.slurm.put(8)
    world.round()
    assert (world.moved, world.loop.report()["given_up"]) == ([7], 1)
    world.prefers = ""
    world.round(601.0)
    assert world.slurm.told[1][1]["features"] == "on-demand"


@pytest.mark.parametrize(
    "closed",
    [
        {"is_up": False},
        {"max_minutes": 5},
        {"denied": {"accounts": frozenset({"physics"})}},
        {"name": "renamed"},
    ],
)
def test_a_job_stays_that_would_never_start_there(world: World, closed: dict[str, Any]) -> None:
    """slurmctld would put it there all the same; once an admin lets it in, it goes."""
    was = world.slurm.burst
    world.slurm.burst = dataclasses.replace(was, **closed)
    world.slurm.put(7, account="physics", requested_time=600.0)
    world.round()
    assert (len(world.asked), world.moved, world.loop.report()["given_up"]) == (1, [], 1)
    assert MOVES.at(world.folder).read().moving == {}
    world.slurm.burst = was
    world.round(601.0)
    assert world.moved == [7]


def test_g17_12_jobs_whose_advice_never_arrives_keep_nobody_waiting(world: World) -> None:
    world.moves = False
    world.loop._asking._advice = lambda job_id: (
        None if job_id <= 250 else AdviceRecord(advice=STAYS, job=world.submitted)
    )
    lost = admin_comment(replace(STAYS, advice_id="lost"))
    for job_id in range(1, 301):
        world.slurm.put(job_id, admin_comment=lost if job_id <= 250 else COMMENT)
    for _ in range(3):
        world.round()
    assert {job.job_id for job in world.asked} == set(range(251, 301))


def test_g17_12_what_cannot_be_written_down_is_not_done(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: StateFile[MovesUnderWay], _content: MovesUnderWay) -> None:
        raise OSError(28, "No space left on device")

    world.slurm.put(7)
    with monkeypatch.context() as disk:
        disk.setattr(StateFile, "write", full)
        for _ in range(2):
            with suppress(TellAdmin):
                world.round()
    assert (world.moved, world.loop.report()["moving"]) == ([], 0)
    world.round(601.0)
    assert world.moved == [7]


@pytest.mark.parametrize(
    ("waiting", "is_on"),
    [
        ({}, True),
        ({"short_wait_seconds": 0.0, "long_job_seconds": 900.0}, True),
        ({"ask_again_seconds": 0.0}, False),
    ],
)
def test_on_where_a_gate_makes_jobs_wait(tmp_path: Path, *, waiting: dict[str, float], is_on: bool) -> None:
    world = World(tmp_path, **waiting)
    world.slurm.put(7)
    world.round()
    assert world.loop.is_on is is_on
    assert bool(world.asked) is is_on


def test_nonsense_in_the_state_file_is_nothing_under_way(world: World) -> None:
    half = {"advice_id": "a", "was": ["onprem"], "changes": {}, "time": 1}
    content = {"moving": {"7": {"changes": 3}, "x": {}, "8": half}}
    MOVES.at(world.folder).path.write_text(json.dumps(content))
    world.loop = world.new_loop()
    world.round()
    assert world.loop.report()["moving"] == 0


def test_a_submit_server_that_does_not_answer_is_asked_once_a_round(world: World) -> None:
    asked: list[int] = []

    def no_answer(job: Job, _wait: float | None, _planned: float | None) -> AdviseReply:
        asked.append(job.job_id)
        raise RetryLater("no answer", code="submit.unreachable")

    for job_id in range(1, 5):
        world.slurm.put(job_id)
    world.loop._asking._again, answers = no_answer, world.loop._asking._again
    with pytest.raises(RetryLater):
        world.round()
    assert (len(asked), world.moved) == (1, [])
    world.loop._asking._again = answers
    world.round()
    assert sorted(world.moved) == [1, 2, 3, 4]  # the first one waits for no ten minutes
