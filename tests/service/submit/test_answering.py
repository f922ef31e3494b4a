"""From a request to a reply, in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.model.advice import Capacity, Mode, Placement
from advisor.model.cluster import Limit
from advisor.service.exchange.protocol import REPLY_BYTES, AdviseRequest, encode_line
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.submit.answering import Answered
from advisor.service.submit.recent import RecentSubmissions
from tests.service.site import (
    NOW,
    Clock,
    FixedEstimator,
    ask,
    make_answerer,
    make_cluster,
    make_settings,
    make_snapshot,
)


def answer_one(folder: Path, request: AdviseRequest, **site: Any) -> Answered:
    mode = site.pop("mode", Mode.ACT)
    snapshot = site.pop("snapshot", make_snapshot())
    answerer, _ = make_answerer(make_settings(folder, mode=mode, **site), snapshot, FixedEstimator(), Clock())
    return answerer.answer(request)


def test_a_job_that_would_wait_long_is_moved(tmp_path: Path) -> None:
    answered = answer_one(tmp_path, ask())
    reply, advice = answered.reply, answered.record.advice
    assert advice.placement is Placement.BURST
    assert (reply.seq, reply.partition, reply.prefer) == (1, "burst", "spot")
    assert reply.features is None
    assert reply.message
    assert "no-burst" in reply.message
    recorded = parse_admin_comment(reply.admin_comment)
    assert recorded is not None
    assert recorded.advice_id == reply.id == advice.advice_id


def test_a_moved_jobs_limit_is_raised(tmp_path: Path) -> None:
    reply = answer_one(tmp_path, ask(time_limit=60)).reply  # two processors: s(c) = 1.02
    assert (reply.partition, reply.time_limit) == ("burst", 62)
    recorded = parse_admin_comment(reply.admin_comment)
    assert recorded is not None
    assert recorded.time_limit is not None
    assert (recorded.time_limit.asked_seconds, recorded.time_limit.given_seconds) == (3600.0, 3720.0)
    for stays in (ask(time_limit=None, partition_time_limit=60), ask(time_limit=60, comment="no-burst")):
        assert answer_one(tmp_path, stays).reply.time_limit is None
    assert answer_one(tmp_path, ask(time_limit=60), mode=Mode.SHADOW).reply.time_limit is None


def test_in_shadow_mode_only_the_admin_comment_is_set(tmp_path: Path) -> None:
    reply = answer_one(tmp_path, ask(), mode=Mode.SHADOW).reply
    sent = json.loads(encode_line(reply))
    assert set(sent) == {"v", "seq", "id", "placement", "mode", "reason", "admin_comment"}
    assert (sent["placement"], sent["mode"]) == ("burst", "shadow")


def test_a_user_is_told_what_their_comment_does_not_say(tmp_path: Path) -> None:
    said = answer_one(tmp_path, ask(comment="data=20XB")).reply.message
    assert said is not None
    assert said.startswith(
        "Burst Advisor: stays here. What its comment says of its data is no size; write data="
    )
    both = answer_one(tmp_path, ask(comment="data=20XB,by=+3h")).reply.message
    assert both is not None
    assert both.startswith(
        "Burst Advisor: by= is promised nothing: this site makes no promises. What its comment says of"
    )
    small = answer_one(tmp_path, ask(comment="by=+3h,no-burst")).reply.message
    assert small == "Burst Advisor: by= is promised nothing: this site makes no promises"
    assert answer_one(tmp_path, ask(comment="no-burst")).reply.message is None
    often = answer_one(tmp_path, ask(comment="checkpoint=often,no-burst")).reply.message
    wrong = "the comment's checkpoint= is no time: write checkpoint=10min or checkpoint=1h"
    assert often == f"Burst Advisor: {wrong}"
    moved = answer_one(tmp_path, ask(comment="checkpoint=often")).reply.message
    assert moved is not None
    assert moved.startswith("Burst Advisor: starts in the cloud")
    assert moved.endswith(f"; {wrong}")
    assert answer_one(tmp_path, ask(comment="checkpoint=1h,no-burst")).reply.message is None


def test_an_explicit_partition_and_an_opt_out_are_respected(tmp_path: Path) -> None:
    for request, reason in (
        (ask(partition="onprem"), "rule.explicit_partition"),
        (ask(comment="please no-burst"), "rule.opt_out_comment"),
        (ask(req_nodes="onprem2"), "rule.node_list"),
    ):
        reply = answer_one(tmp_path, request).reply
        assert (reply.partition, reply.reason, reply.message) == (None, reason, None)


@pytest.mark.parametrize(
    ("rules", "asked", "reason"),
    [
        ({"deny_accounts": ("secret",)}, {"account": "SECRET"}, "rule.account_denied"),
        ({"deny_accounts": ("Secret",)}, {"account": "secret"}, "rule.account_denied"),
        ({"deny_qos": ("Debug",)}, {"qos": "DEBUG"}, "rule.qos_denied"),
    ],
)
def test_accounts_and_qos_count_however_they_are_typed(
    tmp_path: Path, rules: dict[str, Any], asked: dict[str, str], reason: str
) -> None:
    """slurmctld shows the hook what was typed, and takes it for the name in lower case."""
    answered = answer_one(tmp_path, ask(**asked), rules=rules)
    assert answered.reply.reason == reason
    for name, typed in asked.items():
        assert getattr(answered.record.job, name) == typed.lower()


@pytest.mark.parametrize(("qos", "stays"), [(None, True), ("normal", True), ("long", False)])
def test_a_limit_of_the_default_qos_counts_jobs_that_name_none(
    tmp_path: Path, qos: str | None, *, stays: bool
) -> None:
    """The hook sees no QOS of a job that asks for none, where its association has no DefaultQOS."""
    held = Limit("ann", qos="normal", reason="QOSMaxJobsPerUserLimit")
    snapshot = make_snapshot()
    snapshot = replace(snapshot, state=structs.replace(snapshot.state, limits=(held,)))
    reply = answer_one(tmp_path, ask(user="ann", qos=qos), snapshot=snapshot).reply
    assert (reply.reason == "rule.limited") is stays


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"held": True}, "rule.deferred"),
        ({"begin_time": int(NOW) + 60}, "rule.deferred"),
        ({"burst_buffer": "#BB create"}, "rule.burst_buffer"),
    ],
)
def test_a_job_that_waits_for_more_than_its_turn_stays(
    tmp_path: Path, asked: dict[str, Any], reason: str
) -> None:
    reply = answer_one(tmp_path, ask(**asked)).reply
    assert (reply.partition, reply.reason) == (None, reason)
    moved = answer_one(tmp_path, ask(**asked), rules={"move_deferred": True}).reply.partition
    assert moved == ("burst" if reason == "rule.deferred" else None)
    assert answer_one(tmp_path, ask(begin_time=int(NOW) - 60)).reply.partition == "burst"


def test_a_job_that_may_not_be_requeued_is_held_to_its_capacity(tmp_path: Path) -> None:
    reply = answer_one(tmp_path, ask(requeue=False)).reply
    assert (reply.partition, reply.features, reply.prefer) == ("burst", "on-demand", None)
    reply = answer_one(tmp_path, ask(requeue=False, features="x86")).reply
    assert reply.features == "x86&on-demand"
    # whatever the site thinks of preferring: this is no preference
    reply = answer_one(tmp_path, ask(requeue=False), capacity={"prefer_features": False}).reply
    assert (reply.partition, reply.features) == ("burst", "on-demand")


@pytest.mark.parametrize(
    ("asked", "snapshot"),
    [
        ({}, make_snapshot(features=("x86",))),  # no node says what it is
        ({}, make_snapshot(features=("x86", "spot"))),
        ({"features": "x86|x86"}, make_snapshot()),  # nothing can be added to it
        ({"min_nodes": 51}, make_snapshot()),  # 50 nodes have the feature
        ({}, make_snapshot(features=("x86",), reserved_free_nodes=9)),  # may still be spot nodes up
    ],
)
def test_a_job_that_nothing_can_hold_off_spot_stays(
    tmp_path: Path, asked: dict[str, Any], snapshot: Snapshot
) -> None:
    reply = answer_one(tmp_path, ask(requeue=False, **asked), snapshot=snapshot).reply
    assert (reply.partition, reply.features, reply.reason) == (None, None, "capacity.spot_not_excluded")
    assert answer_one(tmp_path, ask(requeue=True, **asked), snapshot=snapshot).reply.partition == "burst"


def test_nothing_is_added_to_a_constraint_so_long_that_the_hook_would_not_set_it(tmp_path: Path) -> None:
    longest = "&".join(["x86"] * 112)  # 447 bytes
    reply = answer_one(tmp_path, ask(features=longest)).reply
    assert (reply.partition, reply.prefer) == ("burst", f"{longest}&spot")
    longer = "&".join(["x86"] * 150)
    reply = answer_one(tmp_path, ask(features=longer)).reply
    assert (reply.partition, reply.features, reply.prefer) == ("burst", None, None)
    reply = answer_one(tmp_path, ask(features=longer, requeue=False)).reply
    assert (reply.partition, reply.features, reply.reason) == (None, None, "capacity.spot_not_excluded")


def test_where_there_is_no_spot_nothing_need_be_excluded(tmp_path: Path) -> None:
    snapshot = make_snapshot(features=("x86",))
    reply = answer_one(tmp_path, ask(requeue=False), snapshot=snapshot, capacity={"use_spot": False}).reply
    assert (reply.partition, reply.features) == ("burst", None)


def test_a_feature_of_too_few_nodes_is_not_preferred(tmp_path: Path) -> None:
    """slurmctld refuses the submission: "Requested node configuration is not available" (22.05)."""
    assert answer_one(tmp_path, ask(min_nodes=50)).reply.prefer == "spot"
    reply = answer_one(tmp_path, ask(min_nodes=51)).reply
    assert (reply.partition, reply.prefer) == ("burst", None)


@pytest.mark.parametrize("tasks", ["1-3", "5"])
def test_an_array_prefers_nothing_as_its_tasks_would_never_start_after_a_return(
    tmp_path: Path, tasks: str
) -> None:
    reply = answer_one(tmp_path, ask(array=tasks)).reply
    assert (reply.partition, reply.prefer, reply.features) == ("burst", None, None)
    assert answer_one(tmp_path, ask(array=tasks, requeue=False)).reply.features == "on-demand"


def test_a_users_constraint_is_kept_in_the_preference(tmp_path: Path) -> None:
    assert answer_one(tmp_path, ask(features="x86")).reply.prefer == "x86&spot"
    snapshot = make_snapshot(features=("spot", "a", "b"))
    cloud = structs.replace(snapshot.state.cloud, features=("a", "b"))
    snapshot = replace(snapshot, state=structs.replace(snapshot.state, cloud=cloud))
    reply = answer_one(tmp_path, ask(features="a|b"), snapshot=snapshot).reply
    assert (reply.partition, reply.prefer) == ("burst", None)


def test_no_feature_is_named_that_no_node_has(tmp_path: Path) -> None:
    reply = answer_one(tmp_path, ask(), snapshot=make_snapshot(features=())).reply
    assert (reply.partition, reply.prefer, reply.features) == ("burst", None, None)


def test_the_user_need_not_be_told(tmp_path: Path) -> None:
    assert answer_one(tmp_path, ask(), submit={"tell_user": False}).reply.message is None


@pytest.mark.parametrize("age", [61.0, -61.0, 1e9])
def test_an_old_snapshot_is_not_believed(tmp_path: Path, age: float) -> None:
    answered = answer_one(tmp_path, ask(), snapshot=make_snapshot(now=NOW - age))
    assert answered.record.advice.placement is Placement.ON_PREMISE
    assert answered.reply.partition is None


def test_without_snapshot_or_model_everything_stays(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    for snapshot, estimator in ((None, FixedEstimator()), (make_snapshot(), None), (None, None)):
        answerer, _ = make_answerer(settings, snapshot, estimator, Clock())
        assert answerer.answer(ask()).reply.placement == "on-premise"


def test_an_estimator_that_fails_is_doubt_and_counted(tmp_path: Path) -> None:
    answerer, _ = make_answerer(make_settings(tmp_path), make_snapshot(), FixedEstimator(fails=True), Clock())
    assert answerer.answer(ask()).reply.placement == "on-premise"
    assert answerer.estimator_errors == 1


def test_jobs_that_stay_are_met_by_the_next(tmp_path: Path) -> None:
    estimator = FixedEstimator(wait=1.0)
    answerer, _ = make_answerer(make_settings(tmp_path), make_snapshot(), estimator, Clock())
    for _ in range(3):
        answerer.answer(ask(array="1-10"))
    assert [state.queue_size for _, state in estimator.seen] == [4, 14, 24]


def test_a_dry_question_leaves_no_trace_in_the_queue(tmp_path: Path) -> None:
    estimator = FixedEstimator(wait=1.0)
    answerer, _ = make_answerer(make_settings(tmp_path), make_snapshot(), estimator, Clock())
    for _ in range(3):
        answerer.answer(ask(dry=True))
    assert {state.queue_size for _, state in estimator.seen} == {4}


def test_jobs_of_other_partitions_are_not_in_our_queue(tmp_path: Path) -> None:
    estimator = FixedEstimator(wait=1.0)
    answerer, _ = make_answerer(make_settings(tmp_path), make_snapshot(), estimator, Clock())
    answerer.answer(ask(partition="gpu"))
    answerer.answer(ask(partition="burst"))
    answerer.answer(ask())
    assert estimator.seen[-1][1].queue_size == 4


def test_in_shadow_mode_a_job_joins_the_queue_whatever_was_advised(tmp_path: Path) -> None:
    estimator = FixedEstimator()
    answerer, _ = make_answerer(
        make_settings(tmp_path, mode=Mode.SHADOW), make_snapshot(), estimator, Clock()
    )
    answerer.answer(ask())
    answerer.answer(ask())
    assert [state.queue_size for _, state in estimator.seen] == [4, 5]


def test_a_burst_of_submissions_does_not_outrun_the_budget(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, budget={"usd": 1.0})
    snapshot = make_snapshot(on_demand_usd_per_core_hour=0.1, spot_usd_per_core_hour=0.1)
    answerer, _ = make_answerer(settings, snapshot, FixedEstimator(), Clock())
    records = [answerer.answer(ask()).record for _ in range(200)]
    moved = [record.advice for record in records if record.advice.placement is Placement.BURST]
    costs = [
        quantity.value
        for advice in moved
        for answer in advice.answers
        for name, quantity in answer.numbers
        if name == "predicted_cost"
    ]
    assert 0 < len(moved) < 200
    assert 1.0 - costs[0] < sum(costs) <= 1.0


def test_reserved_nodes_are_not_promised_twice(tmp_path: Path) -> None:
    snapshot = make_snapshot(reserved_free_nodes=2)
    answerer, _ = make_answerer(make_settings(tmp_path), snapshot, FixedEstimator(), Clock())
    capacities = [answerer.answer(ask()).record.advice.capacity for _ in range(4)]
    assert capacities == [Capacity.RESERVED, Capacity.RESERVED, Capacity.SPOT, Capacity.SPOT]


def test_an_array_takes_a_reserved_node_for_each_task(tmp_path: Path) -> None:
    snapshot = make_snapshot(reserved_free_nodes=3)
    answerer, _ = make_answerer(make_settings(tmp_path), snapshot, FixedEstimator(), Clock())
    capacities = [
        answerer.answer(ask(array=array)).record.advice.capacity for array in ("1-2", "1-2", "1", "1")
    ]
    assert capacities == [Capacity.RESERVED, Capacity.SPOT, Capacity.RESERVED, Capacity.SPOT]


def test_the_burst_partitions_default_memory_counts_in_the_nodes_that_are_taken(tmp_path: Path) -> None:
    memory = {"memory_mb_per_node": 4_000, "default_memory": (0, 1_500)}  # two processors on a node
    snapshot = make_snapshot(reserved_free_nodes=3, **memory)
    answerer, _ = make_answerer(make_settings(tmp_path), snapshot, FixedEstimator(), Clock())
    answers = [answerer.answer(ask(min_cpus=4, num_tasks=4)) for _ in range(2)]
    assert [each.record.advice.capacity for each in answers] == [Capacity.RESERVED, Capacity.SPOT]
    assert [each.submission.cloud_processors for each in answers] == [8, 8]


def test_a_new_snapshot_takes_over(tmp_path: Path) -> None:
    estimator, clock = FixedEstimator(wait=1.0), Clock()
    answerer, holder = make_answerer(make_settings(tmp_path), make_snapshot(), estimator, clock)
    answerer.answer(ask())
    clock.now += 5
    cluster = make_cluster(queue_size=40)
    holder.current = replace(holder.current, snapshot=make_snapshot(now=NOW + 4, cluster=cluster))
    answerer.answer(ask())
    assert estimator.seen[-1][1].queue_size == 40


def test_a_new_snapshot_is_made_ready_beside_the_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a peak hundreds of jobs join the queue of the next snapshot, for which an answer waited a second."""
    estimator, clock = FixedEstimator(wait=1.0), Clock()
    answerer, holder = make_answerer(make_settings(tmp_path), make_snapshot(), estimator, clock)
    for number in range(1, 31):
        clock.now = NOW + number
        answerer.answer(ask())
    answerer.count()
    original, count = RecentSubmissions._count, Mock()
    monkeypatch.setattr(RecentSubmissions, "_count", lambda *own: (count(), original(*own))[1])
    second = make_snapshot(now=NOW + 10)
    use = holder.make_ready(second, ())
    assert count.call_count == 20
    answerer.answer(ask())  # meanwhile, on the first snapshot
    answerer.count()
    assert estimator.seen[-1][1].queue_size == 4 + 30
    count.reset_mock()
    use()
    holder.current = replace(holder.current, snapshot=second)
    answerer.answer(ask())
    assert estimator.seen[-1][1].queue_size == 4 + 21
    assert count.call_count == 1, "the job that was advised meanwhile"


def test_ids_are_never_given_twice(tmp_path: Path) -> None:
    ids = set()
    for _ in range(2):  # two servers started in the same second
        answerer, _ = make_answerer(make_settings(tmp_path), None, None, Clock())
        ids |= {answerer.answer(ask()).reply.id for _ in range(50)}
    assert len(ids) == 100


def test_an_unknown_group_is_looked_up_later(tmp_path: Path) -> None:
    answerer, holder = make_answerer(make_settings(tmp_path), make_snapshot(), FixedEstimator(), Clock())
    assert answerer.answer(ask(gid=0)).record.job.group is None
    holder.refresh()
    assert answerer.answer(ask(gid=0)).record.job.group == "root"


def test_a_reply_fits_its_line_whatever_was_asked(tmp_path: Path) -> None:
    long = "\x01é" * 8000
    request = ask(name=long, comment=long, account=long, user=long, licenses=long, features=long, array=long)
    assert len(encode_line(answer_one(tmp_path, request).reply)) < REPLY_BYTES
