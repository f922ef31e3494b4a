"""Question 1 on hand-made jobs."""

from __future__ import annotations

import pytest

from advisor.decide.reasons import Reason
from advisor.decide.rules import may_move, partitions_of
from advisor.model import Placement, Verdict
from tests.decide.cases import ask, make_cloud, make_job, make_settings

STAYS = [
    ({"comment": "please no-burst"}, {}, {}, Reason.OPT_OUT_COMMENT),
    ({"comment": "x;NO-BURST,y"}, {}, {}, Reason.OPT_OUT_COMMENT),
    ({"comment": "home"}, {"opt_out_comment": "Home"}, {}, Reason.OPT_OUT_COMMENT),
    ({"features": ("avx", "onprem")}, {}, {"features": ("avx",)}, Reason.OPT_OUT_FEATURE),
    ({"queue": "onprem", "explicit_partition": True}, {}, {}, Reason.EXPLICIT_PARTITION),
    ({"queue": "onprem,burst", "explicit_partition": True}, {}, {}, Reason.EXPLICIT_PARTITION),
    (
        {"queue": "onprem", "explicit_partition": True, "name": "place-of-7"},
        {"move_explicit_partition": True},
        {},
        Reason.KEEPS_A_PLACE,
    ),
    ({"queue": "burst", "explicit_partition": True}, {}, {}, Reason.EXPLICIT_BURST),
    ({"queue": "burst"}, {"move_explicit_partition": True}, {}, Reason.EXPLICIT_BURST),
    (
        {"queue": "gpu", "explicit_partition": True},
        {"move_explicit_partition": True},
        {},
        Reason.PARTITION_NOT_MANAGED,
    ),
    ({"queue": "gpu"}, {}, {}, Reason.PARTITION_NOT_MANAGED),
    ({"queue": "onprem,gpu"}, {}, {}, Reason.PARTITION_NOT_MANAGED),
    ({"node_list": "n[1-3]"}, {}, {}, Reason.NODE_LIST),
    ({"reservation": "class"}, {}, {}, Reason.RESERVATION),
    ({"licenses": "matlab:1"}, {}, {}, Reason.LICENSES),
    ({"gres": "gpu:1"}, {}, {}, Reason.GRES),
    ({"dependency": "afterok:17"}, {}, {}, Reason.DEPENDENCY),
    ({"interactive": True}, {}, {}, Reason.INTERACTIVE),
    ({"heterogeneous": True}, {}, {}, Reason.HETEROGENEOUS),
    ({"user": "eve"}, {"deny_users": ("eve",)}, {}, Reason.USER_DENIED),
    ({"user": "eve"}, {"deny_users": ("eve",), "allow_users": ("eve",)}, {}, Reason.USER_DENIED),
    ({"user": "eve"}, {"allow_users": ("ann",)}, {}, Reason.USER_NOT_ALLOWED),
    ({}, {"allow_users": ("ann",)}, {}, Reason.USER_NOT_ALLOWED),
    ({"account": "chem"}, {"deny_accounts": ("chem",)}, {}, Reason.ACCOUNT_DENIED),
    ({"account": "chem"}, {"allow_accounts": ("bio",)}, {}, Reason.ACCOUNT_NOT_ALLOWED),
    ({"qos": "debug"}, {"deny_qos": ("debug",)}, {}, Reason.QOS_DENIED),
    ({"processors": 65}, {"max_processors": 64}, {}, Reason.TOO_MANY_PROCESSORS),
    ({"processors": 9}, {}, {"nodes_total": 2, "processors_per_node": 4}, Reason.LARGER_THAN_BURST),
    ({"nodes": 3, "processors": 3}, {}, {"nodes_total": 2}, Reason.LARGER_THAN_BURST),
    ({"memory_mb": 9000}, {}, {"memory_mb_per_node": 8000}, Reason.MORE_MEMORY_THAN_BURST),
    (
        {"processors": 8, "memory_mb": 9000, "memory_mb_per_node": 9000},  # two nodes, each of them too small
        {},
        {"processors_per_node": 4, "memory_mb_per_node": 8000},
        Reason.MORE_MEMORY_THAN_BURST,
    ),
    ({"features": ("infiniband",)}, {}, {"features": ("avx",)}, Reason.FEATURE_NOT_IN_BURST),
]


@pytest.mark.parametrize(("job", "rules", "cloud", "reason"), STAYS)
def test_a_rule_objects_and_nothing_is_changed(job, rules, cloud, reason):
    settings = make_settings(rules=rules)
    advice = ask(make_job(**job), cloud=make_cloud(**cloud), settings=settings)

    assert [answer.reason for answer in advice.answers] == [reason]
    assert advice.decisive.verdict is Verdict.NO
    assert advice.partition is None
    assert advice.prefer == ()
    assert advice.capacity is None
    expected = Placement.BURST if reason is Reason.EXPLICIT_BURST else Placement.ON_PREMISE
    assert advice.placement is expected


MOVES = [
    ({}, {}, {}),
    ({"comment": "no-bursting today"}, {}, {}),
    ({"comment": "no-burst"}, {"opt_out_comment": ""}, {}),
    ({"features": ("onprem",)}, {"opt_out_feature": ""}, {"features": ("onprem",)}),
    ({"queue": "onprem"}, {}, {}),
    ({"queue": "onprem", "explicit_partition": True}, {"move_explicit_partition": True}, {}),
    ({"interactive": True}, {"move_interactive": True}, {}),
    ({"dependency": "afterok:17"}, {"move_dependent": True}, {}),
    ({"user": "ann"}, {"allow_users": ("ann",), "deny_users": ("eve",)}, {}),
    ({"account": "bio"}, {"allow_accounts": ("bio",)}, {}),
    ({"processors": 64}, {"max_processors": 64}, {}),
    ({"processors": 8}, {}, {"nodes_total": 2, "processors_per_node": 4}),
    ({"memory_mb": 16000, "nodes": 2}, {}, {"memory_mb_per_node": 8000}),
    ({"features": ("avx",)}, {}, {"features": ("avx", "intel")}),
    ({"requeue": False}, {}, {}),
    ({"array_tasks": 100}, {}, {"nodes_total": 2, "processors_per_node": 4}),
]


@pytest.mark.parametrize(("job", "rules", "cloud"), MOVES)
def test_no_rule_objects(job, rules, cloud):
    advice = ask(make_job(**job), cloud=make_cloud(**cloud), settings=make_settings(rules=rules))

    assert advice.answers[0].reason == Reason.MAY_MOVE
    assert advice.placement is Placement.BURST
    assert advice.partition == "burst"


def test_the_users_own_word_is_the_reason_told_before_the_sites():
    job = make_job(comment="no-burst", licenses="matlab", user="eve")
    answer = may_move(job, make_cloud(), make_settings(rules={"deny_users": ("eve",)}))
    assert answer.reason == Reason.OPT_OUT_COMMENT


def test_partition_lists_are_split():
    assert partitions_of(make_job(queue=" a, b,,c ")) == ("a", "b", "c")
    assert partitions_of(make_job()) == ()
