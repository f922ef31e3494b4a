"""Jobs with checkpoints that run on-demand go back to spot; all others stay where they are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from advisor.ec2.account import Account, ReservedInstances
from advisor.model.advice import Capacity
from advisor.model.cluster import Node
from advisor.model.settings import Settings
from advisor.model.settings_cloud import CapacitySettings
from advisor.model.snapshot import QueuedJob
from advisor.service.cloud.back_to_spot import BackToSpot
from tests.service.cloud.rig import Rig, comment, rig
from tests.service.doubles import make_instance, make_node, make_queued

__all__ = ["rig"]


def job(**fields: Any) -> QueuedJob:
    given = {
        "comment": "checkpoint=10min",
        "queue": "burst",
        "requeue": True,
        "nodes": "burst[1-2]",
        "admin_comment": comment(capacity=Capacity.SPOT),
        "start_time": 1_800_000_000.0,
    }
    return make_queued(7, "RUNNING", **given | fields)


SPARE = tuple(make_node(f"burst{number}", "IDLE", "POWERED_DOWN") for number in (3, 4))


def sent(
    rig: Rig,
    queued: QueuedJob | None = None,
    *,
    options: tuple[Capacity, Capacity] = (Capacity.ON_DEMAND, Capacity.ON_DEMAND),
    others: tuple[QueuedJob, ...] = (),
    spare: tuple[Node, ...] = SPARE,
    since: QueuedJob | None = None,
    **context: Any,
) -> list[str]:
    """What is done about one job on two nodes, with a price that says yes.

    ``since`` is what has become of it since the last poll.
    """
    given = {"goes_back": lambda _queued, _elapsed: True} | context
    nodes = [make_node("burst1", "ALLOCATED"), make_node("burst2", "ALLOCATED"), *spare]
    rig.look(nodes, [queued or job(), *others])
    listed = [make_instance(f"burst{n + 1}", option=option) for n, option in enumerate(options)]
    back = BackToSpot(replace(rig.context, **given), instances=lambda: listed)
    if since is not None:
        rig.slurm.show(nodes, [since])
    rig.slurm.told.clear()
    back.consider()
    back.consider()  # a minute later at the earliest
    return [call[0] for call in rig.slurm.told]


def test_its_nodes_are_given_back_and_it_is_requeued(rig: Rig) -> None:
    assert sent(rig) == ["node", "requeue"]
    (node, requeue) = rig.slurm.told
    assert (node[1], node[2]["state"]) == (("burst1", "burst2"), "POWER_DOWN_ASAP")
    assert requeue[1] == (7,)
    assert rig.context.interruptions.to_place() == {7}
    assert rig.context.interruptions.interruptions_of(7) == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"comment": "standby"},
        {"reason": "JobHeldUser"},  # it would not start again
        {"requeue": False},
        {"state": "COMPLETING"},
        {"queue": "onprem"},
        {"admin_comment": comment(capacity=Capacity.ON_DEMAND)},
        {"admin_comment": ""},
        {"nodes": "burst[1-3]"},  # the third is none of ours
    ],
)
def test_any_other_job_stays(rig: Rig, fields: dict[str, Any]) -> None:
    state = fields.pop("state", "RUNNING")
    assert sent(rig, replace(job(**fields), state=state)) == []


def test_it_runs_on_while_the_burst_partition_is_down(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not start there again: an admin who sets it down lets running jobs go on (docs/operate.md)."""
    down = tuple(replace(one, is_up=False) for one in rig.slurm.partitions())
    monkeypatch.setattr(rig.slurm, "partitions", lambda: down)
    assert sent(rig) == []


def test_where_it_is_not_worth_it_it_stays(rig: Rig) -> None:
    bought = Account(reserved=(ReservedInstances(name="ri", instance_type="c5.xlarge", zone="", count=2),))
    for context in (
        {"goes_back": lambda _queued, _elapsed: False},
        {"stop_of": lambda _job_id: 3600.0},  # it is in a slice
        {"account": lambda: bought},
        {"settings": Settings(cluster=rig.settings.cluster, capacity=CapacitySettings(use_spot=False))},
    ):
        assert sent(rig, **context) == []
    assert sent(rig, options=(Capacity.ON_DEMAND, Capacity.SPOT)) == []
    assert sent(rig, stop_of=lambda _job_id: math.inf)  # a promise, or its turn has been


def test_a_job_that_shares_a_node_stays(rig: Rig) -> None:
    """Its node would be paid for until the other job's end, and take no new job."""
    assert sent(rig, others=(make_queued(8, "RUNNING", queue="burst", nodes="burst2"),)) == []


@pytest.mark.parametrize(
    "spare",
    [
        SPARE[:1],
        (SPARE[0], make_node("burst4", "IDLE")),
        (SPARE[0], make_node("burst4", "DOWN", "POWERED_DOWN")),
        (SPARE[0], replace(SPARE[1], features=("cloud", "steady"))),
        (SPARE[0], replace(SPARE[1], features=("cloud", "large"))),
    ],
)
def test_a_job_stays_where_there_are_too_few_other_nodes_like_its_own(
    rig: Rig, spare: tuple[Node, ...]
) -> None:
    """It would wait until its own are powered down, behind others."""
    assert sent(rig, spare=spare) == []


@pytest.mark.parametrize(
    "fields", [{"nodes": "", "restarts": 1, "queue": "onprem"}, {"start_time": 1_800_000_001.0}]
)
def test_a_job_that_has_left_its_run_since_the_last_poll_is_left_alone(
    rig: Rig, fields: dict[str, Any]
) -> None:
    """It may have been brought back to its place here a moment ago."""
    assert sent(rig, since=job(**fields)) == []


def test_after_too_many_losses_it_stays(rig: Rig) -> None:
    for number in range(20):
        rig.context.interruptions.interrupted([7], f"i-{number}")
    assert sent(rig) == []
