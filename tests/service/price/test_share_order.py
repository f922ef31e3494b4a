"""The order in which jobs of a queue with fairshare start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from advisor.model.job import Job
from advisor.model.queue_order import QueueOrder, ShareAccount
from advisor.model.snapshot import PENDING, RUNNING, QueuedJob
from advisor.service.price.queue_view import forecast_waits, on_premise_queue, seen_queues
from advisor.service.price.share_order import by_shares
from advisor.service.submit.recent import QueueForecast
from advisor.service.submit.state_holder import profiles_of
from tests.decide.cases import make_settings
from tests.service.doubles import make_look, make_node, make_queued
from tests.service.site import make_snapshot

NOW, HOUR = 1_800_000_000.0, 3600.0
TOP = 30 << 40


def job(job_id: int, user: str, *, tasks: int = 1, processors: int = 1, queue: str = "normal") -> QueuedJob:
    asked = Job(job_id=job_id, submit_time=float(job_id), processors=processors, user=user, queue=queue)
    asked = structs.replace(asked, array_tasks=tasks)
    return QueuedJob(job=asked, state=PENDING, partitions=(queue,), array_job_id=job_id, priority=TOP - 1000)


def runs(job_id: int, user: str, *, processors: int = 1) -> QueuedJob:
    return replace(job(job_id, user, processors=processors), state=RUNNING, start_time=float(job_id))


def order(*accounts: ShareAccount, default_shares: float | None = 1.0) -> dict[str, QueueOrder]:
    return {"normal": QueueOrder(first_priority=TOP, default_shares=default_shares, accounts=accounts)}


def account(name: str, slots: float, shares: float = 1.0, *above: str) -> ShareAccount:
    return ShareAccount(path=(*above, name), shares=shares, load=3.0 * (1.0 + slots))


def users(queue: list[QueuedJob]) -> str:
    return "".join(queued.job.user or "" for queued in queue)


def test_who_runs_little_comes_first_and_then_in_turn() -> None:
    """Of eight slots each gets four, and keeps them as its jobs end, the oldest first."""
    running = [runs(number, "a") for number in range(1, 9)]
    waiting = [
        *(job(number, "a") for number in range(10, 18)),
        *(job(number, "b") for number in range(20, 28)),
    ]
    found, *_ = by_shares(waiting, running, order(account("a", 8), account("b", 0)))
    assert users(found) == "bbbbaaaabbbbaaaa"
    assert [queued.job.job_id for queued in found if queued.job.user == "b"] == list(range(20, 28))


def test_more_shares_are_more_slots() -> None:
    running = [runs(1, "a", processors=4), runs(2, "b", processors=4)]
    waiting = [job(number, user) for number, user in enumerate("aaaaaaaabbbbbbbb", 10)]
    found, *_ = by_shares(waiting, running, order(account("a", 4, 3.0), account("b", 4, 1.0)))
    assert users(found[:8]) == "aaaabaab"  # six of the eight slots: 3 / (1 + 6) is near 1 / (1 + 2)


def test_groups_are_compared_before_their_users() -> None:
    accounts = (
        replace(account("chem", 10, 10.0), users=frozenset("ac")),  # as bugroup says, beside their accounts
        account("a", 0, 1.0, "chem"),
        account("bio", 0, 1.0),
        account("b", 9, 1.0, "bio"),
    )
    running = [runs(number, "b") for number in range(1, 10)]
    found, *_ = by_shares([job(20, "b"), job(21, "a")], running, order(*accounts))
    assert users(found) == "ba"


def test_a_group_without_shares_of_its_own_is_one_account() -> None:
    accounts = (replace(account("chem", 4), users=frozenset("ab")), account("c", 0))
    running = [runs(number, "a") for number in range(1, 5)]
    found, *_ = by_shares([job(10, "b"), job(11, "a"), job(12, "c")], running, order(*accounts))
    assert users(found) == "cba"


def test_a_large_array_does_not_hold_all_others_up() -> None:
    """Its tasks start between the jobs of others, and are no one job."""
    running = [runs(number, "a") for number in range(1, 9)]
    waiting = [job(10, "a", tasks=100), job(11, "b", processors=6), job(12, "b"), job(13, "a")]
    found, tasks, _ = by_shares(waiting, running, order(account("a", 8)))
    assert [queued.job.job_id for queued in found] == [11, 10, 12, 13]
    (after,) = (queued.priority for queued in found if queued.job.job_id == 12)
    assert sum(priority > after for priority in tasks[10]) == 2
    assert len(tasks[10]) == 100
    _, tasks, _ = by_shares(waiting, [runs(1, "a", processors=800)], order(account("a", 800)))
    assert not tasks  # where so many slots are held that the whole array is a small part of them


def test_many_arrays_are_told_apart_in_fewer_parts_while_nothing_runs() -> None:
    """After a maintenance thousands wait, and a poll must not take longer than its period."""
    waiting = [job(number, "ab"[number % 2], tasks=1000) for number in range(1, 301)]
    _, tasks, _ = by_shares(waiting, [], order())
    assert 15_000 <= sum(map(len, tasks.values())) <= 20_300


def test_an_account_that_is_shown_twice_counts_once() -> None:
    """A group and a user of one name, for example; no job may be lost by it."""
    found, *_ = by_shares([job(1, "a"), job(2, "b")], [], order(account("a", 0), account("a", 2)))
    assert users(found) == "ba"


def test_a_new_job_is_behind_those_that_start_before_it() -> None:
    running = [runs(number, "a") for number in range(1, 9)]
    waiting = [job(number, "a") for number in range(10, 30)]
    found, _, first = by_shares(waiting, running, order(account("a", 8), account("b", 2)))

    def before(user: str) -> int:
        return sum(queued.priority >= first[f"{user}\nnormal"] for queued in found)

    assert before("a") == 20
    assert before("") == 0  # of a user who has nothing there
    assert before("b") == 0
    few = [runs(number, "a") for number in range(1, 3)] + [runs(number, "b") for number in range(3, 9)]
    found, _, first = by_shares(waiting, few, order(account("a", 2), account("b", 6)))
    assert before("b") == 4  # the first three b have ended then


def test_a_small_job_is_first_among_the_jobs_of_its_user_alone() -> None:
    running = [runs(number, "a") for number in range(1, 9)]
    waiting = [job(number, "a") for number in range(10, 30)]
    found, _, first = by_shares(waiting, running, order(account("a", 8)))
    own = first["a\nnormal"] + 1000.0  # size.small_priority_offset
    assert sum(queued.priority >= own for queued in found) == 20


def test_a_queue_without_shares_keeps_its_order() -> None:
    waiting = [job(10, "a"), job(11, "b")]
    orders = order(default_shares=None)
    found, _, first = by_shares(waiting, [runs(1, "a")], orders)
    assert found == waiting
    assert first == {"\nnormal": float(TOP)}
    assert by_shares(waiting, [], {}) == (waiting, {}, {})


def test_queues_keep_their_order_among_each_other() -> None:
    waiting = [job(10, "a"), replace(job(11, "b", queue="long"), priority=TOP - (1 << 40))]
    found, *_ = by_shares(waiting, [], order(account("a", 8)))
    assert users(found) == "ab"


def test_forecasts_of_waiting_and_of_new_jobs_follow_the_shares() -> None:
    """Each job runs for an hour on one of four processors; a has them all, and an array and two jobs wait."""
    node = make_node("c1", processors=4, partitions=("normal",))

    def queued(job_id: int, user: str, state: str = "PENDING", **changes: Any) -> QueuedJob:
        return make_queued(job_id, state, user=user, queue="normal", requested_time=HOUR, **changes)

    running = [queued(n, "a", "RUNNING", start_time=NOW) for n in range(1, 5)]
    waiting = [queued(10, "a", array_tasks=40), queued(11, "b"), queued(12, "a")]
    orders = order(account("a", 4), account("b", 0))
    snapshot = replace(make_look(NOW, (node,), (*running, *waiting)), queue_orders=orders)
    settings = make_settings(cluster={"on_premise_partitions": ["normal"]})
    queue = on_premise_queue(snapshot, settings)
    assert {job_id: wait / HOUR for job_id, wait in forecast_waits(queue).items()} == {10: 1, 11: 1, 12: 11}
    published = replace(
        make_snapshot(NOW), queues=seen_queues(queue), first_priorities=dict(queue.first_priorities)
    )
    server = QueueForecast(published.queues, profiles_of(published), published.first_priorities)

    def hours(user: str) -> float:
        new = Job(job_id=0, submit_time=NOW, processors=1, user=user, queue="normal", requested_time=HOUR)
        return server.waits(new, NOW)[0] / HOUR

    assert (hours("a"), hours("c")) == (11.0, 2.0)  # a new job meets the queue at the next eighth of it
