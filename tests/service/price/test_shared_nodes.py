"""What jobs wait for beside processors: memory, GPUs, and whole nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from advisor.model.job import Job
from advisor.model.machine import Asked, Machine, PartitionTerms, Sharing
from advisor.model.snapshot import Partition, QueuedJob
from advisor.service.observation.sharing import sharing_of
from advisor.service.price.queue_view import OnPremiseQueue, forecast_waits, on_premise_queue, seen_queues
from advisor.service.submit.recent import QueueForecast, Submission
from advisor.service.submit.state_holder import profiles_of
from tests.decide.cases import make_settings
from tests.service.doubles import make_look, make_node, make_queued
from tests.service.site import make_snapshot

NOW = 1_800_000_000.0
HOUR = 3600.0
NODES = tuple(make_node(f"n{n}", processors=8, memory_mb=1000, gpus=2, partitions=("cpu",)) for n in (1, 2))
MEMORY = Sharing(memory=True, partitions={"cpu": PartitionTerms(memory_per_processor=100)})
WHOLE = Sharing(partitions={"cpu": PartitionTerms(whole_nodes=True)})


def busy(job_id: int, memory_mb: int = 0, **changes: Any) -> QueuedJob:
    job = make_queued(job_id, "RUNNING", queue="cpu", start_time=NOW, requested_time=HOUR, **changes)
    return replace(job, memory_mb=memory_mb)


def waits(job_id: int, memory_mb: int = 0, **changes: Any) -> QueuedJob:
    job = make_queued(job_id, queue="cpu", requested_time=HOUR, reason="Resources", **changes)
    return replace(job, memory_mb=memory_mb)


def queue_of(*jobs: QueuedJob, sharing: Sharing = MEMORY) -> OnPremiseQueue:
    look = replace(make_look(NOW, NODES, jobs), sharing=sharing)
    return on_premise_queue(look, make_settings(cluster={"on_premise_partitions": ["cpu"]}))


def submit_server(queue: OnPremiseQueue) -> QueueForecast:
    snapshot = replace(make_snapshot(NOW), queues=seen_queues(queue))
    return QueueForecast(snapshot.queues, profiles_of(snapshot))


def test_a_job_waits_for_memory_where_slurm_shares_it_out() -> None:
    jobs = busy(1, processors=1, memory_mb=1800), waits(2, processors=1, memory_mb=500)
    assert forecast_waits(queue_of(*jobs)) == {2: HOUR}
    assert forecast_waits(queue_of(*jobs, sharing=Sharing())) == {2: 0.0}


def test_a_job_waits_for_gpus_and_others_do_not() -> None:
    jobs = busy(1, processors=1, gpus=3), waits(2, processors=1, gpus=2), waits(3, processors=1)
    assert forecast_waits(queue_of(*jobs)) == {2: HOUR, 3: 0.0}


@pytest.mark.parametrize(
    ("sharing", "asks"),
    [(WHOLE, {}), (Sharing(), {"whole_nodes": True})],
    ids=["exclusive partition", "--exclusive"],
)
def test_a_job_with_whole_nodes_takes_them(sharing: Sharing, asks: dict[str, Any]) -> None:
    """slurmctld shows one processor of a job that waits, and all of its node when it runs."""
    jobs = busy(1, processors=8, **asks), *(waits(n, processors=1, **asks) for n in (2, 3, 4))
    assert forecast_waits(queue_of(*jobs, sharing=sharing)) == {2: 0.0, 3: HOUR, 4: HOUR}


@pytest.mark.parametrize(("gres", "gpus"), [("gres:gpu:4", 8), ("of all nodes: gres:gpu:4", 4)])
def test_gpus_of_all_nodes_together_are_counted_once(gres: str, gpus: int) -> None:
    asked = Asked.by(Job(job_id=0, submit_time=NOW, processors=2, nodes=2, queue="cpu", gres=gres))
    assert asked.gpus == gpus


@pytest.mark.parametrize(
    ("asks", "nodes", "takes"),
    [  # processors of a waiting job, and those that it got of slurmctld 22.05 (CR_Core, two threads a core)
        ({"processors": 1}, None, 2),
        ({"processors": 3}, None, 4),
        ({"processors": 10}, None, 10),
        ({"processors": 2}, 2, 4),
        ({"processors": 4, "whole_cores": True}, None, 8),
        ({"processors": 8, "whole_cores": True}, None, 16),
    ],
)
def test_a_job_takes_whole_cores(asks: dict[str, Any], nodes: int | None, takes: int) -> None:
    two = tuple(replace(node, threads=2) for node in NODES)
    settings = make_settings(cluster={"on_premise_partitions": ["cpu"]})
    job = waits(2, **asks)
    job = replace(job, job=structs.replace(job.job, nodes=nodes))
    for by_core, processors in ((True, takes), (False, asks["processors"])):
        look = replace(make_look(NOW, two, (job,)), sharing=Sharing(by_core=by_core))
        (machine,) = on_premise_queue(look, settings).machines
        assert machine.needs(job.asked)[0] == machine.needs(Asked.by(job.job))[0] == processors
        assert machine.taken_by(job.asked)[0] == processors
    mixed = replace(look, nodes=(two[0], NODES[1]), sharing=Sharing(by_core=True))
    assert on_premise_queue(mixed, settings).machines[0].threads == 1


def test_gpus_of_more_than_one_node_are_on_several() -> None:
    """--exclusive --gpus=4, where a node has two: slurmctld shows one node of it while it waits."""
    (machine,) = queue_of(sharing=Sharing()).machines
    assert machine.needs(Asked(1, gpus=4, partition="cpu", whole_nodes=True)) == (16, 4)
    assert machine.needs(Asked(1, gpus=3, partition="cpu")) == (2, 3)
    assert machine.needs(Asked(1, gpus=2, partition="cpu", whole_nodes=True)) == (8, 2)
    assert machine.room_for(Asked(1, gpus=4, partition="cpu", whole_nodes=True)) == (0, 2, 1, 0, True)


def test_a_job_on_several_whole_nodes_takes_as_many_as_it_names() -> None:
    machine = queue_of(sharing=replace_terms(whole_nodes=True)).machines[0]
    assert machine.sizes == (16, 2000, 4)
    assert machine.needs(Asked(2, nodes=2, partition="cpu")) == (16, 0, 0)
    assert machine.needs(Asked(9, memory_mb=5, gpus=1, partition="cpu")) == (16, 5, 1)
    assert machine.needs(Asked(8, partition="cpu")) == (8, 0, 0)
    assert machine.needs(Asked(1, nodes=3, partition="cpu")) == (24, 0, 0)  # it never starts


def test_a_running_job_has_what_slurm_says_on_nodes_of_any_size() -> None:
    """On one large node of an exclusive partition, not on as many mean ones as have its processors."""
    nodes = tuple(
        make_node(f"n{n}", processors=size, partitions=("cpu",)) for n, size in enumerate((24, 4, 4))
    )
    jobs = busy(1, processors=24), waits(2, processors=1), waits(3, processors=1)
    look = replace(make_look(NOW, nodes, jobs), sharing=WHOLE)
    queue = on_premise_queue(look, make_settings(cluster={"on_premise_partitions": ["cpu"]}))
    (seen,) = seen_queues(queue)
    assert seen.closed().running[:, 0].tolist() == [24.0]


def replace_terms(**terms: Any) -> Sharing:
    return Sharing(memory=True, partitions={"cpu": PartitionTerms(**terms)})


@pytest.mark.parametrize(
    ("asked", "memory"),
    [
        ({"processors": 3}, 300),
        ({"processors": 3, "memory_mb": 50}, 50),
        ({"processors": 3, "queue": "elsewhere"}, 0),
    ],
)
def test_a_job_that_asks_for_no_memory_gets_its_partitions(asked: dict[str, Any], memory: int) -> None:
    job = Job(**{"job_id": 0, "submit_time": NOW, "queue": "cpu"} | asked)
    assert queue_of().machines[0].needs(Asked.by(job)) == (3, memory, 0)
    of_nodes = queue_of(sharing=replace_terms(memory_per_node=400)).machines[0]
    on_two = Asked.by(structs.replace(job, nodes=2, memory_mb=None, queue="cpu"))
    assert of_nodes.needs(on_two) == (3, 800, 0)


ASKED = (
    {"memory_mb": 500},
    {"memory_mb": 100},
    {"gres": "gres:gpu:2"},
    {"gres": "gpu:a100:1", "memory_mb": 100},
    {"whole_nodes": True, "memory_mb": 100},
    {"nodes": 2, "gres": "gpu:1", "memory_mb": 100},
)


@pytest.mark.parametrize("asked", ASKED)
def test_the_submit_server_forecasts_what_the_queue_shows_later(asked: dict[str, Any]) -> None:
    ahead = (
        busy(1, processors=1, memory_mb=1600, gpus=1),
        busy(2, processors=2, memory_mb=100, gpus=1),
        waits(3, processors=4, memory_mb=1900, gpus=1),
    )
    job = Job(job_id=0, submit_time=NOW, processors=2, queue="cpu", requested_time=2 * HOUR, **asked)
    gpus = {"gres:gpu:2": 2, "gpu:a100:1": 1, "gpu:1": 2}.get(asked.get("gres", ""), 0)
    later = waits(9, processors=2, memory_mb=job.memory_mb or 200, gpus=gpus)
    same = {"whole_nodes": job.whole_nodes, "nodes": job.nodes, "requested_time": 2 * HOUR}
    later = replace(later, job=structs.replace(later.job, **same))
    forecast = submit_server(queue_of(*ahead))
    assert forecast.waits(job, NOW)[0] == forecast_waits(queue_of(*ahead, later))[9]
    assert forecast.waits(job, NOW)[1] == forecast.waits(job, NOW)[0]


def test_a_submission_takes_its_memory_from_those_after_it() -> None:
    forecast = submit_server(queue_of(busy(1, processors=1, memory_mb=1000)))
    job = Job(job_id=0, submit_time=NOW, processors=1, queue="cpu", requested_time=HOUR, memory_mb=600)
    assert forecast.waits(job, NOW)[0] == 0.0
    asked = Asked.by(job)
    forecast.join(Submission(time=NOW, processors=1, requested_seconds=HOUR, queue="cpu", asked=asked))
    assert forecast.waits(job, NOW)[0] == HOUR


def test_the_rest_of_a_large_array_is_as_wide_as_its_memory_allows() -> None:
    machine = Machine(("cpu",), processors=16, nodes=2, memory_mb=2000)
    assert machine.at_once((1, 500), 100) == 4
    assert machine.at_once((1, 0), 100) == 16
    assert machine.at_once((32, 0), 3) == 1  # none ever starts


def test_the_terms_are_read_from_slurms_configuration() -> None:
    partitions = (
        Partition(name="a", is_up=True, nodes="n1", total_processors=8, default_memory=(None, 200)),
        Partition(name="b", is_up=True, nodes="n1", total_processors=8, whole_nodes=True),
    )
    config = {
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CORE_MEMORY",
        "DefMemPerNode": "900",
    }
    found = sharing_of(config, partitions)
    assert found.memory
    assert found.partitions == {"a": PartitionTerms(False, 0, 200), "b": PartitionTerms(True, 900, 0)}
    linear = sharing_of({"SelectType": "select/linear", "SelectTypeParameters": "NONE"}, partitions)
    assert not linear.memory
    assert all(terms.whole_nodes for terms in linear.partitions.values())
