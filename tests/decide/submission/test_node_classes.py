"""A job meets the cheapest class of nodes that it fits, and `why` says which."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.wording import sentence
from advisor.decide.submission.capacity import choose
from advisor.decide.submission.cloud_terms import cost_usd
from advisor.decide.submission.rules import may_move
from advisor.model.advice import Capacity
from advisor.model.node_classes import Gpus, NodeClassState, class_for, gpu_count, gpus_asked
from advisor.model.site import Room
from tests.decide.cases import ask, make_cloud, make_job, make_settings


def kind(name, cores, memory_mb, usd, **more):
    count = more.pop("nodes_total", 10)
    features = more.pop("features", (name,))
    return NodeClassState(
        name=name,
        nodes_total=count,
        processors_per_node=cores,
        memory_mb_per_node=memory_mb,
        spot_usd_per_hour=usd / 2,
        on_demand_usd_per_hour=usd,
        features=features,
        nodes_with=dict.fromkeys((*features, "spot", "on-demand"), float(count)),
        **more,
    )


SMALL, BIG, FAT = kind("small", 4, 8000, 0.2), kind("big", 32, 64000, 1.5), kind("fat", 8, 128000, 0.9)
GPU = kind("gpu", 8, 64000, 3.0, gpus_per_node=2, gpu_type="a10")
CLOUD = make_cloud(
    classes=(BIG, FAT, GPU, SMALL), rooms={"class big": (Room(processors=32, free=3, total=3),)}
)


def test_a_job_that_may_not_be_requeued_goes_where_nodes_are_never_spot():
    steady = kind("steady", 4, 8000, 0.3)
    spot = kind("spot4", 4, 8000, 0.2)
    spot = structs.replace(spot, nodes_with={"spot4": 10.0})
    cloud = make_cloud(classes=(spot, steady))
    names = {
        requeue: cloud.for_job(make_job(processors=2, requeue=requeue)).node_class.name
        for requeue in (True, None, False)
    }
    assert names == {True: "spot4", None: "spot4", False: "steady"}
    alone = make_cloud(classes=(spot,)).for_job(make_job(processors=2, requeue=False))
    assert alone.node_class.name == "spot4"  # and there it is refused


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ({"processors": 1}, "small"),
        ({"processors": 8}, "small"),  # two small nodes cost less than any large one
        ({"processors": 8, "node_processors": 8}, "fat"),  # two small nodes will not do
        ({"processors": 30}, "big"),  # eight small nodes cost more
        ({"processors": 1, "memory_mb_per_node": 60000}, "fat"),
        ({"processors": 1, "memory_mb": 60000}, "fat"),
        ({"processors": 1, "features": ("big",)}, "big"),
        ({"processors": 4, "nodes": 2}, "small"),
        ({"processors": 1, "gres": "gpu:1"}, "gpu"),
        ({"processors": 1, "gres": "gres/gpu:a10:2"}, "gpu"),
    ],
)
def test_a_job_meets_the_cheapest_class_that_it_fits(job, name):
    seen = CLOUD.for_job(make_job(**job))
    assert seen.node_class is not None
    assert seen.node_class.name == name
    assert seen.processors_per_node == seen.node_class.processors_per_node
    assert seen.for_job(make_job(processors=99)) is seen


def test_a_class_that_cannot_be_launched_comes_last():
    shut = kind("small", 4, 8000, 0.2, spot_open=False, on_demand_open=False)
    seen = make_cloud(classes=(shut, FAT)).for_job(make_job(processors=1))
    assert seen.node_class is FAT


def test_a_class_has_its_own_room_price_and_reservations():
    paid = replace(BIG, reserved_free_nodes=2)
    cloud = make_cloud(classes=(paid,), reserved_free_nodes=5, rooms=CLOUD.rooms)
    seen = cloud.for_job(make_job(processors=32))
    assert seen.rooms[""][0].free == 3
    assert seen.on_demand_usd_per_core_hour == 1.5 / 32
    assert seen.reserved_free_nodes == 2
    taken = cloud.committed(0.0, {}, {"big": 1, "": 9})
    assert (taken.for_job(make_job(processors=32)).reserved_free_nodes, taken.reserved_free_nodes) == (1, 0)
    paid_for = choose(make_job(processors=32), 60.0, seen, make_settings(), 0.0)[1]
    assert "Nodes of its class big that are already paid for are free: 2 nodes" in sentence(paid_for)
    assert cost_usd(make_job(processors=1), 3480.0, Capacity.ON_DEMAND, seen, make_settings()) == 1.5


def test_a_site_without_classes_is_what_it_was():
    cloud = make_cloud(processors_per_node=4)
    assert cloud.for_job(make_job(processors=1)) is cloud


def test_what_no_class_has_keeps_the_job_here():
    job = make_job(processors=1, memory_mb_per_node=500_000)
    assert may_move(job, CLOUD.for_job(job), make_settings()).reason == Reason.MORE_MEMORY_THAN_BURST
    job = make_job(processors=1, features=("avx9",))
    assert may_move(job, CLOUD.for_job(job), make_settings()).reason == Reason.FEATURE_NOT_IN_BURST


@pytest.mark.parametrize(
    ("gres", "moves"),
    [
        ("gpu:2", True),
        ("gres:gpu:a10:1", True),
        ("gpu:3", False),
        ("gpu:h100:1", False),
        ("fpga:1", False),
        ("gpu:1,fpga:1", False),
        ("not by node alone: gres:gpu:1", False),
        ("of all nodes: gres:gpu:2", True),
        ("of all nodes: gres:gpu:4", False),  # one of two nodes may have to have three
        ("not by node alone: of all nodes: gres:gpu:2", False),
    ],
)
def test_a_gpu_job_moves_where_the_site_says_so_and_a_class_has_its_gpus(gres, moves):
    job = make_job(processors=1, gres=gres)
    seen = CLOUD.for_job(job)
    assert may_move(job, seen, make_settings()).reason == Reason.GRES
    allowed = make_settings(rules={"move_gpu": True})
    assert (may_move(job, seen, allowed).reason == Reason.MAY_MOVE) is moves
    assert may_move(job, make_cloud(), allowed).reason == Reason.GRES


def test_words_for_gpus():
    assert gpus_asked("gres/gpu=4") == Gpus(4, "")
    assert gpus_asked("gpu") == Gpus(1, "")
    assert gpus_asked("gpu:a100-80g") == Gpus(1, "a100-80g")
    assert gpus_asked("shard:1") is None


@pytest.mark.parametrize("word", ["", "not by node alone: ", "by task or socket: ", "of all nodes: "])
def test_gpus_are_counted_whatever_release_the_hook_is_of(word):
    assert gpu_count(f"{word}gres:gpu:2") == 2


def test_why_says_the_class():
    job = make_job(processors=1, requeue=True)
    capacity, answer = choose(job, 600.0, CLOUD.for_job(job), make_settings(), 0.0)
    assert capacity is Capacity.SPOT
    assert sentence(answer).endswith("that it fits have 4 cores and 8000 MiB: class small.")
    job = make_job(processors=30, requeue=False)
    capacity, answer = choose(job, 600.0, CLOUD.for_job(job), make_settings(), 0.0)
    assert "(32 cores and 64000 MiB), because the job may not be requeued; class big" in sentence(answer)


def test_a_moved_job_prefers_nodes_of_its_class():
    advice = ask(make_job(processors=30, requeue=True), cloud=CLOUD)
    assert advice.partition == "burst"
    assert advice.prefer == (advice.capacity, "big")


def test_a_class_that_is_paid_for_is_the_cheapest_but_its_gpus_are_left_to_who_needs_them():
    paid = {"reserved_free_nodes": 2}
    classes = (replace(BIG, **paid), replace(GPU, **paid), SMALL)
    assert class_for(make_job(processors=1), classes).name == "big"
    assert class_for(make_job(processors=1, array_tasks=3), classes).name == "small"
    assert class_for(make_job(processors=1, gres="gpu:1"), classes).name == "gpu"
