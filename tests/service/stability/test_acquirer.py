"""The acquirer for 24 simulated hours: nodes are exchanged, and nobody's job is killed for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.ec2.account import Account, Reservation
from advisor.ec2.errors import FailureClass
from advisor.ec2.pools import FIRST_PAUSE_SECONDS, QUOTA_PAUSE_SECONDS, Pool
from advisor.model.advice import Capacity
from advisor.model.settings_cloud import CapacitySettings
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.exchange.handover import HandoverFolder, decode
from advisor.service.observation.poll_view import SharedView
from advisor.service.state.cloud_record import CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.state_files import INTERRUPTIONS
from advisor.testing.memory_ec2_paid import MemoryReservation
from advisor.testing.memory_slurm import ENDED, MemorySlurm
from tests.service.cloud_site import comment
from tests.service.doubles import FakeFleet, Hands, make_look, make_node
from tests.service.site import make_cluster
from tests.service.stability_world import SHAKY, STEADY, StabilityWorld, quick, settings_of

HOUR = 3600.0
KEPT = {"kept_nodes": 6, "max_nodes": 10}

__all__ = ["quick"]

pytestmark = pytest.mark.usefixtures("quick")


def submit_some(world: StabilityWorld, rate_per_hour: float, step: float, mean_seconds: float) -> None:
    for _ in range(world.generator.poisson(rate_per_hour * step / HOUR)):
        seconds = float(np.clip(world.generator.exponential(mean_seconds), 60.0, 6 * HOUR))
        advice = comment(Capacity.SPOT, round(seconds, -2))
        world.slurm.submit(seconds, limit_seconds=2.0 * seconds, admin_comment=advice)


def day(world: StabilityWorld, rate_per_hour: float = 4.0, mean_seconds: float = 3000.0) -> None:
    step = 600.0
    for _ in range(int(24 * HOUR / step)):
        submit_some(world, rate_per_hour, step, mean_seconds)
        world.live(step, tick=100.0)


@pytest.mark.parametrize(("seed", "policy"), [(0, "price"), (2, "agarwal2023")])
def test_24_hours_of_exchanges_kill_no_job(tmp_path: Path, seed: int, policy: str) -> None:
    """`StabilityWorld.wrongs`: a machine ended, or a node powered down, under a job that ran well there."""
    settings = settings_of(tmp_path, acquirer=KEPT, policy=policy)
    world = StabilityWorld(settings, generator=np.random.default_rng(seed))
    day(world)
    assert world.wrongs == []
    assert world.acquire.retired > 0
    lost = sum(job.restarts for job in world.slurm.jobs.values())
    assert lost <= world.reclaims  # EC2 took their nodes, not we
    world.taken_at.clear()
    world.live(6 * HOUR, tick=100.0)
    assert {job.state for job in world.slurm.jobs.values()} <= ENDED
    assert all(job.ends == ["COMPLETED"] for job in world.slurm.jobs.values())
    assert world.wrongs == []


def test_the_kept_nodes_end_up_in_the_steady_pool(tmp_path: Path) -> None:
    """The first pool that the settings name is the shaky one."""
    world = StabilityWorld(settings_of(tmp_path, acquirer=KEPT), generator=np.random.default_rng(11))
    world.live(200.0)
    assert world.pools_in_use() == [SHAKY] * 6
    day(world)
    pools = world.pools_in_use()
    assert pools.count(STEADY) > pools.count(SHAKY)
    known = world.knowledge
    assert known.fresh_survives(f"spot|c5.xlarge|{STEADY}") > known.fresh_survives(f"spot|c5.xlarge|{SHAKY}")


def test_a_kept_node_that_is_paid_for_is_not_exchanged(tmp_path: Path) -> None:
    """The reservation stood empty after some hours, with spot nodes paid for beside it."""
    reservation = Reservation(reservation_id="cr-1", instance_type="c5.xlarge", zone="us-east-1a", total=3)
    world = StabilityWorld(
        settings_of(tmp_path, acquirer={"kept_nodes": 3}, subnets=[STEADY]),
        generator=np.random.default_rng(0),
        account=Account(reservations=(reservation,), zones={STEADY: "us-east-1a"}),
    )
    world.ec2.paid.reservations.append(
        MemoryReservation(reservation_id="cr-1", instance_type="c5.xlarge", total=3)
    )
    world.live(5 * HOUR, tick=100.0)
    assert [item.reservation_id for item in world.ec2.alive()] == ["cr-1"] * 3
    assert world.acquire.retired == 0


def test_nodes_that_an_admin_ends_are_not_asked_for_while_the_partition_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/operate.md says how to end all cloud nodes: they were up again a minute later."""
    world = StabilityWorld(
        settings_of(tmp_path, acquirer={"kept_nodes": 3}, subnets=[STEADY]),
        generator=np.random.default_rng(0),
    )
    world.live(600.0)
    assert len(world.ec2.alive()) == 3
    up = world.slurm.partitions()
    with monkeypatch.context() as patch:
        patch.setattr(world.slurm, "partitions", lambda: tuple(replace(one, is_up=False) for one in up))
        world.slurm.update_node(world.slurm.nodes, state="POWER_DOWN_FORCE")
        world.live(2 * HOUR)
        assert world.ec2.alive() == []
    world.live(600.0)
    assert len(world.ec2.alive()) == 3


def test_where_no_node_is_kept_nothing_is_acquired(tmp_path: Path) -> None:
    world = StabilityWorld(settings_of(tmp_path), generator=np.random.default_rng(0), idle_seconds=60.0)
    world.slurm.submit(600.0)
    world.live(2 * HOUR)
    assert (world.acquire.asked, world.acquire.retired, world.ec2.alive()) == (0, 0, [])


def test_the_size_follows_the_use_within_its_bounds(tmp_path: Path) -> None:
    rules = {"kept_nodes": 2, "max_nodes": 6}
    world = StabilityWorld(
        settings_of(tmp_path, acquirer=rules, subnets=[STEADY]), generator=np.random.default_rng(5)
    )
    world.taken_at.clear()
    world.live(600.0)
    assert len(world.ec2.alive()) == 2
    advice = comment(Capacity.SPOT, 4 * HOUR)
    jobs = [world.slurm.submit(3.5 * HOUR, limit_seconds=4 * HOUR, admin_comment=advice) for _ in range(4)]
    world.live(2.5 * HOUR, tick=60.0)
    assert all(job.state == "RUNNING" for job in jobs)
    assert len(world.ec2.alive()) in (5, 6)  # four in use are 80 % of five
    world.live(4 * HOUR, tick=60.0)
    assert all(job.restarts == 0 and job.state == "COMPLETED" for job in jobs)
    assert len(world.ec2.alive()) == 2
    assert world.wrongs == []


def test_a_node_that_powers_down_at_the_hour_is_no_node_less_for_an_hour(tmp_path: Path) -> None:
    world = StabilityWorld(
        settings_of(tmp_path, acquirer={"kept_nodes": 6}, subnets=[STEADY]),
        generator=np.random.default_rng(3),
        nodes=6,
    )
    world.live(100.0)
    world.taken_at.clear()
    world.live(HOUR - 20.0 - (world.clock.wall - world.acquire.report()["planned"]))
    planned = world.acquire.report()["planned"]
    world.slurm.update_node(["burst1"], state="POWER_DOWN_FORCE")
    world.live(20.0)
    assert world.acquire.report()["planned"] > planned
    assert world.acquire.report()["target_nodes"] == 6
    world.live(600.0)
    assert len(world.ec2.alive()) == 6


@pytest.mark.parametrize(("budget_usd", "launched"), [(7.0, 0), (8.0, 1), (15.0, 2)])
def test_the_budget_holds_for_kept_nodes_too(tmp_path: Path, budget_usd: float, launched: int) -> None:
    """A node without a job is promised a day: 7.2 USD at 0.3 an hour, which it costs should spot fail."""
    settings = settings_of(tmp_path, acquirer={"kept_nodes": 4}, budget_usd=budget_usd)
    world = StabilityWorld(settings, generator=np.random.default_rng(5))
    world.live(40.0)
    assert len(world.ec2.alive()) == launched
    world.live(2 * HOUR, tick=100.0)
    assert world.cloud.budget.spent_today()[0] <= budget_usd
    assert world.wrongs == []


def test_a_restart_forgets_neither_what_was_asked_nor_the_hour(tmp_path: Path) -> None:
    world = StabilityWorld(settings_of(tmp_path, acquirer=KEPT), generator=np.random.default_rng(3))
    world.turn()
    asked = world.acquire.wanted()
    assert len(asked) == 6
    planned = world.acquire.report()["planned"]
    world.boot()
    assert world.acquire.wanted() == asked
    world.live(300.0)
    assert world.acquire.report()["planned"] == planned
    assert {item.market for item in world.ec2.alive()} == {"spot"}
    assert len(world.ec2.alive()) == 6


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_node_given_to_a_job_is_not_spot_for_being_kept(tmp_path: Path, *, is_seen: bool) -> None:
    """Submitted a moment ago, the job is in no look at Slurm yet; it may be one that can't be requeued."""
    hands, fleet, folder = Hands(), FakeFleet(), HandoverFolder(tmp_path / "handover")
    folder.prepare()
    view = SharedView(hands.clock, 60.0)
    nodes = [make_node(name, "POWERING_UP") for name in ("burst1", "burst2")]
    view.update(make_look(hands.wall, nodes), make_cluster(time=hands.wall))
    provision = ProvisionLoop(
        CloudContext(
            settings=settings_of(tmp_path),
            fleet=fleet,
            slurm=MemorySlurm(now=lambda: hands.wall),
            view=view,
            cloud=CloudRecord(tmp_path, hands.clock),
            interruptions=InterruptionRecord(INTERRUPTIONS.at(tmp_path)),
            clock=hands.clock,
        ),
        folder=folder,
        instances=tuple,
        kept=lambda: {"burst1", "burst2"},
    )
    provision.act_on_handovers()
    if not is_seen:
        hands.monotonic += 61.0  # it knows which nodes there are, and has not seen Slurm lately
    message = {
        "v": 1,
        "op": "resume",
        "id": f"{1:020d}-1-00000000",
        "time": hands.wall,
        "nodes": "burst[1-2]",
        "resume_file": json.dumps({"jobs": [{"job_id": 7, "nodes_resume": "burst1"}]}),
    }
    line = json.dumps(message).encode() + b"\n"
    folder.put(decode(line), line)
    provision.act_on_handovers()
    assert not fleet.of("resume")  # a look that shows the job may still come
    hands.pass_by(30.0)
    provision.act_on_handovers()
    assert fleet.of("resume") == [(("burst1", "burst2"), {"burst2": Capacity.SPOT})]


def test_while_nothing_is_sent_to_the_cloud_no_node_is_asked_for(tmp_path: Path) -> None:
    world = StabilityWorld(settings_of(tmp_path, acquirer=KEPT), generator=np.random.default_rng(3))
    world.cloud.boot_failed(10)
    world.live(300.0)
    assert (world.acquire.asked, len(world.ec2.instances)) == (0, 0)
    world.cloud.booted(60.0)
    world.live(40.0)
    assert world.acquire.asked == 6


def test_nodes_that_do_not_boot_are_asked_for_ever_more_seldom(tmp_path: Path) -> None:
    """A broken image: every machine costs money until Slurm's ResumeTimeout."""
    world = StabilityWorld(
        settings_of(tmp_path, acquirer={"kept_nodes": 4}, subnets=[STEADY]),
        generator=np.random.default_rng(3),
    )
    answers, world.slurm.answers = world.slurm.answers, lambda *_asked: False
    world.live(HOUR, tick=60.0)
    asked = world.acquire.asked
    world.boot()  # and a restart does not begin anew
    world.live(5 * HOUR, tick=60.0)
    assert 6 <= asked + world.acquire.asked <= 12  # four of them every seven minutes would be 200
    assert world.acquire.report()["did_not_come"]
    world.slurm.answers = answers
    world.live(2 * HOUR, tick=60.0)
    assert len(world.ec2.alive()) == 4
    assert world.acquire.report()["did_not_come"] == []


@pytest.mark.parametrize("kind", [FailureClass.CAPACITY, FailureClass.QUOTA])
def test_no_kept_node_is_asked_for_while_every_spot_pool_is_closed(
    tmp_path: Path, kind: FailureClass
) -> None:
    """It would be on-demand, at three times the price, until an hourly exchange."""
    world = StabilityWorld(
        settings_of(tmp_path, acquirer={"kept_nodes": 4}, subnets=[STEADY]),
        generator=np.random.default_rng(3),
    )
    world.live(300.0)
    world.taken_at.clear()
    pool = Pool(option=Capacity.SPOT, instance_type="c5.xlarge", subnet_id=STEADY)
    for item in world.ec2.alive():
        world.ec2.reclaim(item.instance_id, 120.0)
    world.breakers.mark_unavailable(pool, kind, "closed")
    asked = world.acquire.asked
    pause = FIRST_PAUSE_SECONDS if kind is FailureClass.CAPACITY else QUOTA_PAUSE_SECONDS
    world.live(pause - 20.0)
    assert world.acquire.asked == asked
    world.live(300.0)
    assert [item.market for item in world.ec2.alive()] == ["spot"] * 4
    assert world.acquire.asked == asked + 4


def test_without_spot_kept_nodes_do_not_wait_for_its_pools(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, acquirer={"kept_nodes": 4}, subnets=[STEADY])
    settings = settings.model_copy(update={"capacity": CapacitySettings(use_spot=False)})
    world = StabilityWorld(settings, generator=np.random.default_rng(3))
    pool = Pool(option=Capacity.SPOT, instance_type="c5.xlarge", subnet_id=STEADY)
    world.breakers.mark_unavailable(pool, FailureClass.CAPACITY, "closed")
    world.live(100.0)
    assert [item.market for item in world.ec2.alive()] == ["on-demand"] * 4


def test_a_burst_after_an_idle_hour_keeps_its_nodes(tmp_path: Path) -> None:
    world = StabilityWorld(
        settings_of(tmp_path, acquirer={"kept_nodes": 2, "max_nodes": 8}, subnets=[STEADY]),
        generator=np.random.default_rng(5),
        nodes=8,
    )
    jobs = [world.slurm.submit(60.0, limit_seconds=120.0) for _ in range(8)]
    world.live(3540.0, tick=60.0)
    assert all(job.state == "COMPLETED" for job in jobs)
    jobs = [world.slurm.submit(1200.0, limit_seconds=1800.0) for _ in range(12)]
    world.live(600.0, tick=60.0)
    assert world.acquire.retired == 0
    assert len(world.acquire.report()["to_retire"]) <= 1  # to be exchanged; of the others all are needed
    world.live(2 * HOUR, tick=60.0)
    assert all(job.state == "COMPLETED" for job in jobs)
    assert len(world.ec2.alive()) < 8
    assert world.wrongs == []
