"""Waiting jobs valued by the price: who moves first, what the tokens allow, and what a crash leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.advice import Answer, Quantity, Question, Verdict
from advisor.model.errors import RetryLater
from advisor.model.job import Job, limit_seconds
from advisor.model.site import CloudState
from advisor.service.exchange.protocol import AdviseReply
from advisor.service.price.queue_view import run_to_limits
from advisor.service.state.state_files import MOVES
from tests.decide.cases import ask, make_job
from tests.service.price.price_world import World, by_account

HOUR = 3600.0


def with_tokens(folder: Path, **budget: Any) -> World:
    """A site whose budget has accrued for half a day, and an hour may cost 100 USD."""
    world = World(folder, budget={"usd": 240.0, "period": "day", "usd_per_hour_saved": 100.0} | budget)
    world.hands.pass_by(12 * HOUR)
    for job_id in (1, 2):
        world.slurm.put(job_id, "RUNNING", processors=8, start_time=world.hands.wall)
    return world


def test_the_jobs_that_save_most_for_a_dollar_are_asked_about_first(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    for job_id, share in ((7, 0.9), (8, 0.05), (9, 0.3)):
        world.slurm.put(job_id, processors=16)
        world.chances.share[job_id] = share
    world.round()
    assert [job_id for job_id, _ in world.asked] == [8, 9, 7]
    assert world.moved == [8, 9, 7]


def test_the_submit_server_is_told_the_wait_that_the_place_in_the_queue_gives(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.slurm.put(7, processors=16, priority=50)
    world.slurm.put(8, processors=16, priority=90)
    world.round()
    waits = dict(world.asked)
    assert waits[8] == pytest.approx(HOUR - 31.0, abs=2.0)
    assert waits[7] == pytest.approx(2 * HOUR - 31.0, abs=3.0)


def test_jobs_are_valued_by_expected_run_times_and_asked_about_with_the_wait_by_limits(
    tmp_path: Path,
) -> None:
    world = with_tokens(tmp_path)
    world.runs = lambda queue: (0.5 * run_to_limits(queue)[0], 0.5 * run_to_limits(queue)[1])
    world.slurm.put(7, processors=16)
    world.round()
    ((job_id, wait),) = world.asked
    assert (job_id, wait) == (7, pytest.approx(HOUR / 2 - 31.0, abs=2.0))
    assert world.planned == [pytest.approx(HOUR - 31.0, abs=2.0)]


def test_a_job_that_would_start_now_is_not_moved(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    del world.slurm.jobs[2]
    world.slurm.put(7, processors=4)
    world.round()
    assert (world.asked, world.moved) == ([], [])


def test_a_job_that_slurmctld_has_not_looked_at_yet_is_valued_at_the_next_poll(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.slurm.put(7, processors=16, reason="None")
    world.round()
    assert world.asked == []
    world.slurm.put(7, processors=16)
    world.round()
    assert [job_id for job_id, _ in world.asked] == [7]


def test_a_submit_server_without_a_snapshot_is_asked_again(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.slurm.put(7, processors=16)
    world.reason = Reason.STATE_UNKNOWN
    world.stays = {7}
    world.round()
    world.round()
    assert [job_id for job_id, _ in world.asked] == [7, 7]


SMALL = CloudState(nodes_total=10, processors_per_node=4)


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": "JobHeldUser"},
        {"array_tasks": 3},
        {"queue": "elsewhere"},
        {"comment": "no-burst"},
        # squeue does not show what it prefers, nor how much memory it has for a processor
        {"admin_comment": admin_comment(ask(make_job(prefer=("rack1",))))},
        {"admin_comment": admin_comment(ask(make_job(processors=99), cloud=SMALL))},
    ],
)
def test_question_1_holds(tmp_path: Path, changes: dict[str, Any]) -> None:
    world = with_tokens(tmp_path)
    world.slurm.put(7, **changes)
    world.round()
    assert (world.asked, world.moved) == ([], [])


def test_no_more_is_moved_than_the_tokens_cover_at_worst(tmp_path: Path) -> None:
    world = with_tokens(tmp_path, usd=1.0)
    for job_id in range(10, 20):
        world.slurm.put(job_id, processors=8)  # 8 cores for up to an hour and a boot: about 0.4 USD
        world.chances.share[job_id] = 0.9
    world.round()
    assert len(world.moved) == 1
    assert world.keeper.current is not None
    assert 0.0 <= world.keeper.current.tokens_usd < 0.44
    world.round(601.0, promised_usd=0.48)
    assert len(world.moved) == 1


def test_a_job_that_is_to_be_spot_takes_the_tokens_of_its_launch_on_demand(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.slurm.put(7, processors=8)
    (on_demand,) = world.valued()
    world.cloud = replace(world.cloud, spot_open=True, spot_usd_per_core_hour=0.01)
    (spot,) = world.valued()
    assert spot.usd == pytest.approx(0.2 * on_demand.usd)
    assert spot.worst_usd == on_demand.worst_usd
    world.round()
    assert world.moved == [7]
    left = world.keeper.current
    world.keeper.polled(world.hands.wall, world.cloud)
    assert left is not None
    assert world.keeper.current is not None
    assert world.keeper.current.tokens_usd - left.tokens_usd == pytest.approx(spot.worst_usd)


def test_an_account_moves_no_more_than_its_own_budget_covers(tmp_path: Path) -> None:
    world = with_tokens(tmp_path, accounts={"chem": 0.1})
    world.slurm.put(7, processors=8, account="chem")
    world.slurm.put(8, processors=8, account="bio")
    world.round()
    assert world.moved == [8]
    world.round(601.0, promised_by_account=by_account(chem=0.1))
    assert world.moved == [8]


def test_a_job_moves_at_the_price_of_its_account(tmp_path: Path) -> None:
    world = World(tmp_path, budget={"usd": 240.0, "period": "day", "accounts": {"chem": 10.0}})
    world.hands.pass_by(86_400.0 - world.hands.wall % 86_400.0)
    world.hands.pass_by(20 * HOUR)  # even spending would have left a sixth
    for job_id in (1, 2):
        world.slurm.put(job_id, "RUNNING", processors=8, start_time=world.hands.wall)
    world.slurm.put(7, processors=8, account="chem")
    world.slurm.put(8, processors=8, account="bio")
    world.round()
    assert world.moved == [7]


def test_a_job_is_asked_about_where_a_shorter_slice_may_be_paid(tmp_path: Path) -> None:
    for number, (usd, expected) in enumerate(((0.2, [7]), (0.0, []))):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, budget={"usd": 240.0, "period": "day", "accounts": {"chem": usd}})
        world.hands.pass_by(86_400.0 - world.hands.wall % 86_400.0)
        world.hands.pass_by(23 * HOUR)
        for job_id in (1, 2):
            world.slurm.put(job_id, "RUNNING", processors=8, start_time=world.hands.wall)
        world.slurm.put(7, processors=8, account="chem")
        world.chances.share[7] = 0.9  # at worst it costs 0.4 USD
        world.round()
        assert [job_id for job_id, _ in world.asked] == expected
        assert world.keeper.current is not None
        assert world.keeper.current.tokens_of(["chem"])[0] >= 0.0


def test_nothing_moves_while_what_was_spent_is_unknown(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.spending.doubt = "budget.json was damaged"
    world.slurm.put(7, processors=8)
    world.round()
    assert (world.keeper.current, world.moved) == (None, [])
    assert world.keeper.report()["unknown"] == "budget.json was damaged"
    world.spending.doubt = ""
    world.round(601.0)
    assert world.moved == [7]


def test_new_jobs_are_valued_at_the_next_poll_and_others_every_ten_minutes(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.stays = set(range(10, 30))
    for job_id in range(10, 20):
        world.slurm.put(job_id, processors=8)
    world.round()
    assert len(world.asked) == 10
    world.slurm.put(20, processors=8)
    world.round()
    assert [job_id for job_id, _ in world.asked[10:]] == [20]
    world.round(601.0)
    assert len(world.asked) == 22


def test_a_job_is_valued_by_the_run_times_that_are_known_by_then(tmp_path: Path) -> None:
    world = with_tokens(tmp_path, usd_per_hour_saved=0.2)
    world.chances.share[7] = 1.0  # a run to its limit saves an hour for 0.48 USD
    world.slurm.put(7, processors=8)
    world.round()
    assert world.asked == []
    world.chances.share[7] = 0.01
    world.round(601.0)
    assert [job_id for job_id, _ in world.asked] == [7]


def test_all_are_valued_anew_when_the_queue_has_changed_much(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.stays = {7, 8}
    world.slurm.put(7, processors=8)
    world.round()
    world.slurm.put(8, processors=8)
    world.round()
    assert sorted(job_id for job_id, _ in world.asked) == [7, 7, 8]


def test_in_shadow_mode_it_is_only_noted(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.mode = "shadow"
    world.slurm.put(7, processors=8)
    world.round()
    assert (world.moved, world.loop.report()["would_move"]) == ([], 1)


def test_the_intent_is_written_before_and_a_crash_is_made_good(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.slurm.put(7, processors=8)
    world.slurm.dies = True
    with pytest.raises(RetryLater):
        world.round()
    assert MOVES.at(world.folder).read().moving.keys() == {7}
    world.slurm.dies = False
    world.start()  # killed, and started again
    world.round()
    assert (world.moved, len(world.asked)) == ([7], 1)


def test_the_best_job_is_asked_about_as_soon_as_the_submit_server_answers_again(tmp_path: Path) -> None:
    def no_answer(_job: Job, _wait: float | None, _planned: float | None) -> AdviseReply:
        raise RetryLater("no answer", code="submit.unreachable")

    world = with_tokens(tmp_path)
    world.slurm.put(7, processors=8)
    world.loop._asking._again, answers = no_answer, world.loop._asking._again
    with pytest.raises(RetryLater):
        world.round()
    world.loop._asking._again = answers
    world.round()
    assert world.moved == [7]


def test_a_job_that_may_not_be_requeued_is_worth_a_whole_run_at_most(tmp_path: Path) -> None:
    world = with_tokens(tmp_path)
    world.slurm.put(7, processors=8, requeue=False)
    world.chances.share[7] = 0.05
    world.slurm.put(8, processors=8)
    world.chances.share[8] = 0.05
    valued = {one.queued.job.job_id: one for one in world.valued()}
    assert valued[7].worst_usd > 5 * valued[8].worst_usd


def test_the_worst_case_of_a_whole_run_is_its_limit_in_the_cloud(tmp_path: Path) -> None:
    """The launch holds the money for the limit that it gives; a slice is ended at its stop."""
    world = World(tmp_path)
    world.slurm.put(7, processors=8, requeue=False)
    world.slurm.put(8, processors=8)
    usual = {one.queued.job.job_id: one.worst_usd for one in world.valued()}
    world.limit_there = lambda job: 2.0 * limit_seconds(job)
    longer = {one.queued.job.job_id: one.worst_usd for one in world.valued()}
    per_second = 8 * 0.05 / 3600.0
    assert longer[7] - usual[7] == pytest.approx(per_second * (2.0 - 1.05) * 3600.0)
    assert longer[8] == usual[8]


def test_jobs_that_moved_at_their_submission_count_as_demand(tmp_path: Path) -> None:
    """Else the price would be read off the jobs that stay alone, and be too low."""
    world = with_tokens(tmp_path)
    numbers = (("hour_costs", Quantity(0.5, "USD")), ("predicted_cost", Quantity(2.0, "USD")))
    worth_it = Answer(
        question=Question.WORTH_PAYING, verdict=Verdict.YES, reason=Reason.WORTH_ITS_PRICE, numbers=numbers
    )
    comment = admin_comment(replace(ask(), answers=(worth_it,)))
    world.slurm.put(7, "RUNNING", queue="burst", admin_comment=comment)
    world.slurm.put(8, queue="burst", admin_comment=None)  # its user sent it there
    for _ in range(2):
        world.round()
    seen = world.keeper._demand.kept().seen.values()
    assert [(index, usd) for _, index, usd in seen] == [(7200.0, 2.0)]
    # it runs there once more: its second slice is counted by itself
    world.slurm.put(
        7, "RUNNING", queue="burst", admin_comment=comment, restarts=1, submit_time=world.hands.wall
    )
    world.round()
    assert len(world.keeper._demand.kept().seen) == 1
    # tasks of an array are shown apart once they run, and what they were advised to cost is that of all
    world.slurm.put(20, queue="burst", admin_comment=comment, array_tasks=8, array_job_id=20)
    for task in (21, 22):
        world.slurm.put(task, "RUNNING", queue="burst", admin_comment=comment, array_job_id=20)
    world.round()
    assert len(world.keeper._demand.kept().seen) == 2


def test_a_job_that_names_a_time_is_asked_about_at_each_poll_whatever_an_hour_costs(tmp_path: Path) -> None:
    world = World(tmp_path, promise={"enabled": True}, budget={"usd": 0.0})
    world.slurm.put(7, processors=16, comment="by=+3h")
    world.slurm.put(8, processors=16, comment="by=soon")
    world.stays = {7}
    for _ in range(3):
        world.round()
    assert [job_id for job_id, _ in world.asked] == [7, 7, 7]
    world.stays = set()
    world.round()
    assert world.moved == [7]


def test_of_more_jobs_that_name_a_time_than_a_round_asks_about_each_has_its_turn(tmp_path: Path) -> None:
    world = World(tmp_path, promise={"enabled": True}, budget={"usd": 0.0})
    world.stays = set(range(11, 171))
    for job_id in world.stays:
        world.slurm.put(job_id, comment="by=+3h")
    world.round()
    world.round()
    assert {job_id for job_id, _ in world.asked} == world.stays
