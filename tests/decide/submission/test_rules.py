"""Question 1 on hand-made jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.explanation.wording import headline, recorded_headline
from advisor.decide.submission.advise import advise
from advisor.decide.submission.rules import RULES, may_move, partitions_of
from advisor.model.advice import Capacity, Placement, Verdict
from advisor.model.site import PerformanceRatios, SiteState
from tests.decide.cases import CLUSTER, ask, make_cloud, make_estimates, make_job, make_settings

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
    ({"user": "eve"}, {}, {"drawn": {"user eve": "class"}}, Reason.RESERVATION),
    ({"account": "chem"}, {}, {"drawn": {"chem": "class"}}, Reason.RESERVATION),
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
    ({"account": "Chem"}, {}, {"denied_accounts": frozenset({"chem"})}, Reason.ACCOUNT_DENIED),
    ({"qos": "debug"}, {"deny_qos": ("debug",)}, {}, Reason.QOS_DENIED),
    ({"processors": 65}, {"max_processors": 64}, {}, Reason.TOO_MANY_PROCESSORS),
    ({"processors": 9}, {}, {"nodes_total": 2, "processors_per_node": 4}, Reason.LARGER_THAN_BURST),
    ({"nodes": 3, "processors": 3}, {}, {"nodes_total": 2}, Reason.LARGER_THAN_BURST),
    ({"processors": 8, "node_processors": 8}, {}, {"processors_per_node": 4}, Reason.WIDER_THAN_NODES),
    (
        {"processors": 4, "node_processors": 4, "whole_cores": True},  # two of its threads are one core
        {},
        {"processors_per_node": 4},
        Reason.WIDER_THAN_NODES,
    ),
    (
        {"processors": 15, "node_processors": 3, "task_processors": 3},  # 4 nodes have 16 processors
        {},
        {"nodes_total": 4, "processors_per_node": 4},
        Reason.LARGER_THAN_BURST,
    ),
    (
        {"processors": 4, "node_processors": 4, "memory_mb": 12_000},
        {},
        {"processors_per_node": 4, "memory_mb_per_node": 8000},
        Reason.MORE_MEMORY_THAN_BURST,
    ),
    ({"tmp_disk": 100}, {}, {}, Reason.TMP_DISK),
    ({"layout": True}, {}, {}, Reason.NODE_LAYOUT),
    ({"memory_mb": 9000}, {}, {"memory_mb_per_node": 8000}, Reason.MORE_MEMORY_THAN_BURST),
    (
        {"processors": 8, "memory_mb": 9000, "memory_mb_per_node": 9000},  # two nodes, each of them too small
        {},
        {"processors_per_node": 4, "memory_mb_per_node": 8000},
        Reason.MORE_MEMORY_THAN_BURST,
    ),
    ({"features": ("infiniband",)}, {}, {"features": ("avx",)}, Reason.FEATURE_NOT_IN_BURST),
    ({"prefer": ("infiniband",)}, {}, {"features": ("avx",)}, Reason.FEATURE_NOT_IN_BURST),
]


@pytest.mark.parametrize(("job", "rules", "cloud", "reason"), STAYS)
def test_a_rule_objects_and_nothing_is_changed(job, rules, cloud, reason):
    settings = make_settings(rules=rules)
    advice = ask(make_job(**job), cloud=make_cloud(**cloud), settings=settings)

    assert [answer.reason for answer in advice.answers] == [reason]
    assert advice.decisive.verdict is Verdict.NO
    assert advice.partition is None
    assert advice.prefer == ()
    assert advice.capacity is (Capacity.SPOT if reason is Reason.EXPLICIT_BURST else None)
    expected = Placement.BURST if reason is Reason.EXPLICIT_BURST else Placement.ON_PREMISE
    assert advice.placement is expected


@pytest.mark.parametrize(
    ("job", "capacity"),
    [
        ({}, Capacity.SPOT),
        ({"requeue": False}, Capacity.ON_DEMAND),
        ({"features": ("on-demand",)}, Capacity.ON_DEMAND),
        ({"features": ("spot",)}, Capacity.SPOT),
        ({"features": ("spot",), "requeue": False}, None),
    ],
)
@pytest.mark.parametrize("mode", ["act", "shadow"])
def test_day_one_9_a_users_own_burst_job_gets_the_cheap_capacity(job, capacity, mode):
    """It got on-demand at 2.72 where a moved job got spot at 1.09 USD/h. In shadow mode nothing changes."""
    settings = make_settings(cluster={"default_mode": mode})
    cloud = make_cloud(features=("spot", "on-demand"))
    advice = ask(make_job(queue="burst", explicit_partition=True, **job), cloud=cloud, settings=settings)
    assert advice.capacity is (capacity if mode == "act" else None)
    assert (advice.partition, advice.prefer, advice.require) == (None, (), ())
    assert advice.decisive.reason == Reason.EXPLICIT_BURST
    recorded = parse_admin_comment(admin_comment(advice))
    assert recorded is not None
    assert recorded.capacity == advice.capacity
    assert headline(advice) == recorded_headline(recorded)
    assert str(capacity) in headline(advice) or advice.capacity is None


def test_day_one_9_and_g17_16_a_users_own_burst_job_is_priced_by_the_learned_ratio():
    """An hour here is two there, as learned: too long for spot where that may take 90 minutes."""
    settings = make_settings(capacity={"spot_max_run_seconds": 5400.0})
    learned = PerformanceRatios(overhead=0.0, baseline=2.0, deviation=0.1, jobs=9)
    job = make_job(queue="burst", explicit_partition=True)
    state = SiteState(time=1000.0, cluster=CLUSTER, cloud=make_cloud(features=("spot", "on-demand")))
    for ratios, capacity in ((None, Capacity.SPOT), (learned, Capacity.ON_DEMAND)):
        advice = advise(job, replace(state, ratios=ratios), make_estimates(), settings, advice_id="a")
        assert advice.capacity is capacity


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
    ({"account": "bio"}, {}, {"denied_accounts": frozenset({"chem"})}),
    ({"processors": 64}, {"max_processors": 64}, {}),
    ({"processors": 8}, {}, {"nodes_total": 2, "processors_per_node": 4}),
    ({"memory_mb": 16000, "nodes": 2}, {}, {"memory_mb_per_node": 8000}),
    ({"features": ("avx",)}, {}, {"features": ("avx", "intel")}),
    ({"prefer": ("avx",)}, {}, {"features": ("avx", "intel")}),
    ({"processors": 8, "memory_mb": 12_000}, {}, {"processors_per_node": 8, "memory_mb_per_node": 8000}),
    ({"requeue": False}, {}, {}),
    ({"array_tasks": 100}, {}, {"nodes_total": 2, "processors_per_node": 4}),
]


@pytest.mark.parametrize(("job", "rules", "cloud"), MOVES)
def test_no_rule_objects(job, rules, cloud):
    advice = ask(make_job(**job), cloud=make_cloud(**cloud), settings=make_settings(rules=rules))

    assert advice.answers[0].reason == Reason.MAY_MOVE
    assert advice.placement is Placement.BURST
    assert advice.partition == "burst"


ODDITIES = [
    {"processors": 500},
    {"nodes": 3},
    {"memory_mb": 10**6},
    {"memory_mb_per_node": 10**6},
    {"prefer": ("sse",)},
    *({"features": names} for names in (("onprem",), ("avx",), ("avx", "OnPrem"))),
    *({"comment": words} for words in ("no-burst", "say No-Burst", "hello")),
    *({"name": name} for name in ("place-of-7", "place-of-")),
    *(
        {"queue": queue}
        for queue in ("fat", "onprem,fat", " fat ", "burst", "onprem,burst", "other", ",", "")
    ),
    *({field: name} for field in ("user", "account", "qos") for name in ("ann", "eve")),
    *({field: "x:1"} for field in ("licenses", "reservation", "dependency", "gres", "node_list")),
    {"burst_buffer": "#BB"},
    *({field: True} for field in ("interactive", "explicit_partition", "heterogeneous", "deferred")),
]
JOBS = st.lists(st.sampled_from(ODDITIES), max_size=3).map(
    lambda odd: make_job(
        **{key: value for one in [{"queue": "onprem", "name": "sim"}, *odd] for key, value in one.items()}
    )
)
NAMES = ("ann", "eve")
SITES = st.builds(
    lambda partitions, rules: make_settings(cluster={"on_premise_partitions": partitions}, rules=rules),
    st.sampled_from((("onprem",), ("fat", "onprem"))),
    st.fixed_dictionaries(
        {},
        optional={
            "opt_out_comment": st.sampled_from(("", "NO-BURST")),
            "opt_out_feature": st.just(""),
            "max_processors": st.just(64),
            **dict.fromkeys(
                ("allow_users", "deny_users", "allow_accounts", "deny_accounts", "deny_qos"),
                st.lists(st.sampled_from(NAMES), max_size=2),
            ),
            **dict.fromkeys(
                ("move_explicit_partition", "move_interactive", "move_dependent", "move_deferred"),
                st.just(True),
            ),
        },
    ),
)
CLOUDS = st.builds(
    make_cloud,
    nodes_total=st.sampled_from((0, 2, 100)),
    processors_per_node=st.sampled_from((0, 4)),
    memory_mb_per_node=st.sampled_from((0, 8000)),
    features=st.sampled_from(((), ("avx",))),
)


@given(job=JOBS, cloud=CLOUDS, settings=SITES)
def test_rules_that_are_left_out_had_nothing_to_object_to(job, cloud, settings):
    objections = (rule(job, cloud, settings) for rule in RULES)
    first = next((objection for objection in objections if objection is not None), None)
    if first is None:
        assert may_move(job, cloud, settings).verdict is Verdict.YES
    else:
        assert may_move(job, cloud, settings) == first


def test_the_users_own_word_is_the_reason_told_before_the_sites():
    job = make_job(comment="no-burst", licenses="matlab", user="eve")
    answer = may_move(job, make_cloud(), make_settings(rules={"deny_users": ("eve",)}))
    assert answer.reason == Reason.OPT_OUT_COMMENT


def test_partition_lists_are_split():
    assert partitions_of(make_job(queue=" a, b,,c ")) == ("a", "b", "c")
    assert partitions_of(make_job()) == ()
