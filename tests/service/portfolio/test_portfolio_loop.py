"""The portfolio loop on a burst partition in memory: what it sets, and that nothing of it stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.model.advice import Capacity
from advisor.model.errors import TellAdmin
from advisor.service.state.budget_records import LaunchRequest, RunningNode, limits_of
from advisor.slurm.steering import Demand, PowerSaving
from tests.service.cloud_site import comment
from tests.service.portfolio_world import PortfolioWorld, node, running, waiting

IDLE = ("IDLE",)


def states_told(world: PortfolioWorld, word: str) -> list[tuple[str, ...]]:
    return [nodes for told, nodes in world.slurm.told if told == word]


def test_nothing_is_done_before_anything_has_been_judged(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="auto")
    world.slurm.add(waiting(1), waiting(2))
    assert world.tick(3)
    assert world.closed == set()
    assert world.slurm.factors == {1: 0, 2: 0}
    assert world.slurm.told == []
    assert world.loop.report()["policy"] is None


def test_only_as_many_nodes_as_the_policy_rents_are_open(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit")
    world.slurm.add(*(waiting(n, limit=600.0) for n in range(1, 7)))  # an hour of work
    assert world.tick()
    assert world.closed == {"burst2", "burst3", "burst4"}
    world.slurm.add(*(waiting(n, limit=600.0) for n in range(7, 10)))  # half an hour more
    assert world.tick()
    assert world.closed == {"burst3", "burst4"}
    report = world.loop.report()
    assert report["nodes_allowed"] == 2
    assert report["policy"] == "ODE-FCFS-FirstFit"
    assert report["closed_nodes"] == ["burst3", "burst4"]


def test_on_demand_all_closes_nothing_and_opens_what_was_closed(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit")
    world.tick()
    assert len(world.closed) == 4
    world.start(leader="ODA-FCFS-FirstFit")
    world.tick()
    assert world.closed == set()


def test_the_end_of_the_reservation_is_put_off_only_now_and_then(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit", lease_seconds=180.0)
    ends = set()
    for _ in range(30):
        assert world.tick()
        assert world.slurm.reservation is not None
        ends.add(world.slurm.reservation.until)
        assert world.slurm.reservation.until - world.clock.wall >= 60.0
    assert len(ends) <= 8


def test_nodes_that_others_have_reserved_are_left_alone(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit")
    world.slurm.nodes["burst4"] = node("burst4", "IDLE", "POWERED_DOWN", "RESERVED")
    world.tick()
    assert world.closed == {"burst1", "burst2", "burst3"}


def test_a_look_that_is_older_than_what_we_opened_opens_no_other_node(tmp_path: Path) -> None:
    """Slurm shows a node as reserved for a while after it was taken out of the reservation."""
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit")
    world.tick()
    world.slurm.nodes = {name: node(name, "IDLE", "POWERED_DOWN", "RESERVED") for name in world.slurm.nodes}
    world.slurm.add(waiting(1, limit=60.0))
    for _ in range(3):
        world.tick(seconds=1.0)
        assert world.closed == {"burst2", "burst3", "burst4"}


def test_a_node_that_a_job_was_given_a_moment_ago_is_rented(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit")
    world.slurm.nodes["burst1"] = node("burst1", "ALLOCATED", "POWERED_DOWN")
    world.slurm.add(replace(running(1, "burst1", world.clock.wall), state="CONFIGURING"), waiting(2))
    world.tick()
    assert world.loop.report()["nodes_rented"] == 1
    assert world.closed == {"burst2", "burst3", "burst4"}


def test_an_open_node_is_one_that_the_next_job_may_use(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit")
    world.slurm.nodes = {
        f"burst{n}": node(f"burst{n}", features=("cloud", "on-demand" if n == 4 else "spot"))
        for n in range(1, 5)
    }
    world.slurm.add(waiting(1, features=("cloud", "on-demand")))
    world.tick()
    assert world.closed == {"burst1", "burst2", "burst3"}


def test_a_job_that_cannot_use_the_idle_node_gets_another(tmp_path: Path) -> None:
    """The simulator knows nothing of constraints: to it the idle spot node would do."""
    world = PortfolioWorld(tmp_path, leader="ODM-FCFS-FirstFit")
    world.slurm.nodes = {
        "burst1": node("burst1", *IDLE, features=("spot",)),
        "burst2": node("burst2", features=("spot",)),
        "burst3": node("burst3", features=("on-demand",)),
    }
    world.slurm.add(waiting(1, features=("on-demand",)))
    world.tick()
    assert world.closed == {"burst2", "burst3"}
    world.tick(4)
    assert world.closed == {"burst2"}


@pytest.mark.parametrize("kind", [{"gres": "gres:gpu:1"}, {"plain_constraint": False}, None])
def test_a_job_that_asks_for_a_kind_of_node_finds_all_open(tmp_path: Path, kind: dict | None) -> None:
    """No snapshot tells which nodes have it: under a limit of one the first, a wrong one, would be open."""
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit")
    world.slurm.add(waiting(1, **(kind or {})))
    if kind is None:
        world.slurm.asked = {1: Demand(is_particular=True)}
    world.tick()
    assert world.closed == set()
    world.slurm.end(1)
    world.slurm.add(waiting(2))
    world.tick()
    assert world.closed == {"burst2", "burst3", "burst4"}


def test_an_open_node_has_the_memory_of_the_next_job(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit")
    world.slurm.nodes["burst3"] = node("burst3", memory_mb=64_000)
    world.slurm.add(waiting(1))
    world.slurm.asked = {1: Demand(memory_mb=16_000)}
    world.tick()
    assert world.closed == {"burst1", "burst2", "burst4"}


def test_an_open_node_that_nobody_takes_is_soon_not_the_only_one(tmp_path: Path) -> None:
    """Whatever it is that Slurm knows and we do not: two, four, all nodes are open in the end."""
    world = PortfolioWorld(tmp_path, nodes=6, leader="ODE-FCFS-FirstFit")
    world.slurm.add(waiting(1, limit=600.0), waiting(2, limit=600.0))
    open_nodes = []
    for _ in range(14):
        world.tick()
        open_nodes.append(6 - len(world.closed))
    assert open_nodes[:3] == [1, 1, 1]
    assert open_nodes == sorted(open_nodes)
    assert open_nodes[-1] == 6
    world.slurm.jobs.clear()
    world.tick()
    assert len(world.closed) == 6


def test_short_jobs_on_the_rented_node_do_not_make_a_stuck_job_wait_anew(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, nodes=3, leader="ODE-FCFS-FirstFit")
    world.slurm.add(waiting(1, limit=600.0))
    closed = []
    for n in range(6):
        world.slurm.nodes["burst1"] = node("burst1", "ALLOCATED" if n % 2 else "IDLE")
        if n % 2:
            world.slurm.add(running(100 + n, "burst1", start=world.clock.wall, limit=30.0))
        else:
            world.slurm.jobs.pop(99 + n, None)
        world.tick()
        closed.append(len(world.closed))
    assert closed == [2, 2, 2, 1, 1, 1]


def test_a_job_that_was_moved_here_does_not_wait_as_long_as_it_runs(tmp_path: Path) -> None:
    """ODX lets a job wait as long as it runs; we told its user that it starts after a boot."""
    for told, closed in (("", 4), (comment(Capacity.SPOT, 7200.0), 3)):
        folder = tmp_path / str(closed)
        folder.mkdir()
        world = PortfolioWorld(folder, leader="ODX-FCFS-FirstFit")
        now = world.clock.wall
        world.slurm.add(waiting(1, limit=7200.0, submit_time=now, admin_comment=told))
        world.tick()
        assert len(world.closed) == 4
        world.tick(2 + round(world.settings.placement.boot_seconds / 20.0) + 3)
        assert len(world.closed) == closed


def test_waiting_jobs_stand_in_the_policys_order(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-UNICEF-FirstFit")
    world.slurm.add(waiting(1, limit=3600.0), waiting(2, limit=60.0), waiting(3, limit=600.0))
    world.tick()
    assert world.slurm.order() == [2, 3, 1]
    assert min(world.slurm.factors.values()) >= 0
    before = dict(world.slurm.factors)
    world.tick()
    assert world.slurm.factors == before


def test_jobs_that_could_start_elsewhere_too_keep_their_place(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-UNICEF-FirstFit")
    both = waiting(2, limit=60.0, partitions=("onprem", "burst"))
    world.slurm.add(waiting(1), both, waiting(3, limit=600.0))
    world.tick()
    assert world.slurm.factors[2] == 0
    assert world.slurm.factors[3] > 0


def test_a_job_that_goes_home_has_its_own_place_again(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-UNICEF-FirstFit")
    world.slurm.add(waiting(1), waiting(2, limit=60.0))
    world.tick()
    assert world.slurm.factors[2] > 0
    world.slurm.jobs[2] = replace(world.slurm.jobs[2], partitions=("onprem",))
    world.tick()
    assert world.slurm.factors[2] == 0


def test_what_an_admin_sets_is_left_alone(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-UNICEF-FirstFit")
    world.slurm.add(waiting(1), waiting(2, limit=60.0))
    world.tick()
    world.slurm.factors[2] = 77
    world.tick(2)
    assert world.slurm.factors[2] == 77
    world.loop.release()
    assert world.slurm.factors[2] == 77


def test_an_admin_takes_a_factor_back_for_good(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-UNICEF-FirstFit")
    world.slurm.add(waiting(1), waiting(2, limit=60.0))
    world.tick(2)
    assert world.slurm.factors[2] > 0
    world.slurm.factors[2] = 0
    world.tick(3)
    assert world.slurm.factors[2] == 0


def test_without_site_factors_the_order_is_slurms(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-UNICEF-FirstFit")
    world.slurm.knows_site_factors = False
    world.slurm.add(waiting(1), waiting(2, limit=60.0))
    assert world.tick()
    assert set(world.slurm.factors.values()) == {0}
    assert len(world.closed) == 2  # an hour and a minute of work


def test_idle_nodes_are_given_back_when_nobody_waits(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODA-FCFS-FirstFit")
    world.slurm.nodes["burst1"] = node("burst1", *IDLE)
    world.slurm.nodes["burst2"] = node("burst2", "ALLOCATED")
    world.slurm.add(running(1, "burst2", start=world.clock.wall))
    world.tick()
    assert states_told(world, "POWER_DOWN") == [("burst1",)]
    world.tick()
    assert states_told(world, "POWER_DOWN") == [("burst1",)]


def test_headroom_is_warmed_and_kept_warm(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODA-WSPT-WorstFit+h2+bf")
    world.tick()
    assert states_told(world, "POWER_UP") == [("burst1", "burst2")]
    for name in ("burst1", "burst2"):
        world.slurm.nodes[name] = node(name, *IDLE)
    world.tick()
    assert states_told(world, "POWER_UP") == [("burst1", "burst2")]
    assert states_told(world, "IDLE") == [("burst1", "burst2")]  # Slurm counts its idle time anew
    assert states_told(world, "POWER_DOWN") == []


def test_no_node_is_warmed_while_the_partition_is_down(tmp_path: Path) -> None:
    """An admin who sets it down wants no more cloud nodes (docs/operate.md)."""
    world = PortfolioWorld(tmp_path, leader="ODA-WSPT-WorstFit+h2+bf")
    world.slurm.is_up = False
    world.tick(3)
    assert states_told(world, "POWER_UP") == []
    world.slurm.is_up = True
    world.tick()
    assert states_told(world, "POWER_UP") == [("burst1", "burst2")]


def test_a_kept_node_is_told_so_only_when_half_its_idle_time_is_over(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODA-WSPT-WorstFit+h1+bf")
    world.slurm.saving = PowerSaving(idle_seconds=300.0)
    world.slurm.nodes["burst1"] = node("burst1", *IDLE)
    world.tick(16)  # 320 s
    assert states_told(world, "IDLE") == [("burst1",)] * 3


@pytest.mark.parametrize("word", ["DRAIN", "FAIL", "POWERING_DOWN", "MAINT", "RESERVED", "ALLOCATED"])
def test_a_node_that_somebody_wants_otherwise_by_now_is_not_kept(tmp_path: Path, word: str) -> None:
    """To slurmctld state=IDLE is the end of a DRAIN as well, and what was seen is seconds old."""
    world = PortfolioWorld(tmp_path, leader="ODA-WSPT-WorstFit+h2+bf")
    for name in ("burst1", "burst2"):
        world.slurm.nodes[name] = node(name, *IDLE)
    base = () if word == "ALLOCATED" else ("IDLE",)
    world.slurm.now["burst2"] = frozenset({"CLOUD", word, *base})
    world.tick()
    assert states_told(world, "IDLE") == [("burst1",)]


def test_nodes_that_slurm_conf_or_others_keep_are_not_given_back(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODA-FCFS-FirstFit")
    world.slurm.saving = PowerSaving(excluded=frozenset({"burst1"}))
    world.slurm.nodes["burst1"] = node("burst1", *IDLE)
    world.slurm.nodes["burst2"] = node("burst2", *IDLE, "RESERVED")
    world.slurm.nodes["burst3"] = node("burst3", *IDLE)
    world.tick()
    assert states_told(world, "POWER_DOWN") == [("burst3",)]


def test_nothing_is_kept_or_opened_while_the_cloud_is_protected(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODA-WSPT-WorstFit+h2+bf")
    world.slurm.nodes["burst1"] = node("burst1", *IDLE)
    world.cloud.boot_failed(10)
    world.slurm.add(waiting(1, processors=8))
    world.tick()
    assert states_told(world, "IDLE") == []
    assert world.closed == {"burst2", "burst3", "burst4"}
    world.cloud.try_one_boot()
    world.tick()
    assert world.closed == set()


def test_a_warm_node_that_cannot_be_had_is_not_asked_for_at_every_tick(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODA-WSPT-WorstFit+h1+bf")
    world.tick()
    for _ in range(8):
        world.slurm.nodes["burst1"] = node("burst1")  # EC2 had none
        world.tick()
    assert len(states_told(world, "POWER_UP")) == 1
    world.tick(4)
    assert len(states_told(world, "POWER_UP")) == 2


def test_nothing_more_is_rented_when_the_days_money_is_gone(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, budget_usd=1.0, leader="ODA-WSPT-WorstFit+h2+bf")
    world.cloud.budget.rebuild([], [], [])
    promised = world.cloud.budget.promise(
        [LaunchRequest(node="burst3", account="", usd=1.0, usd_per_hour=0.1)], limits_of(world.settings)
    )
    assert not promised
    world.slurm.add(waiting(1))
    world.tick()
    assert states_told(world, "POWER_UP") == []
    assert world.closed == {"burst1", "burst2", "burst3", "burst4"}
    assert world.loop.report()["no_more_because"]


def test_a_paid_hour_is_kept_and_the_fuller_node_comes_first(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, billing="hour-kept", leader="ODA-FCFS-BestFit")
    now = world.clock.wall
    ages = {"burst1": 600.0, "burst2": 3000.0, "burst3": 3590.0}
    world.cloud.budget.count(
        [
            RunningNode(instance_id=f"i-{name}", node=name, usd_per_hour=0.1, launch_time=now - age)
            for name, age in ages.items()
        ]
    )
    for name in ages:
        world.slurm.nodes[name] = node(name, *IDLE)
    world.tick(seconds=1.0)
    assert states_told(world, "POWER_DOWN") == [("burst3",)]
    assert states_told(world, "IDLE") == [("burst1", "burst2")]
    weights = {name: found.weight for name, found in world.slurm.nodes.items()}
    assert weights == {"burst1": 102, "burst2": 101, "burst3": 100, "burst4": 110}
    world.loop.release()
    assert {found.weight for found in world.slurm.nodes.values()} == {100}


def test_an_old_look_changes_nothing(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-UNICEF-FirstFit")
    world.slurm.add(waiting(1), waiting(2, limit=60.0))
    world.tick()
    closed, factors = world.closed, dict(world.slurm.factors)
    world.clock.pass_by(61.0)
    assert not world.runner.run_once()
    assert (world.closed, world.slurm.factors) == (closed, factors)


def test_switched_off_it_takes_back_what_a_killed_process_left(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-UNICEF-FirstFit")
    world.slurm.add(waiting(1), waiting(2, limit=60.0))
    world.tick()
    assert world.closed
    world.start(enabled=False)
    assert world.loop.steps()
    world.tick()
    assert not world.closed
    assert set(world.slurm.factors.values()) == {0}
    world.start()
    assert not world.loop.steps()


def test_a_folder_that_cannot_be_written_sets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-UNICEF-FirstFit")
    world.slurm.add(waiting(1), waiting(2, limit=60.0))

    def full(_content: object) -> None:
        raise TellAdmin("no space", code="disk.full")

    monkeypatch.setattr(world.loop._memory, "write", full)
    assert not world.tick()
    assert not world.closed
    assert set(world.slurm.factors.values()) == {0}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.integers(0, 12), min_size=1, max_size=6), limits=st.permutations([60, 600, 3600]))
def test_killed_at_random_moments_no_job_is_held_and_no_node_stays_closed(
    tmp_path_factory: pytest.TempPathFactory, calls: list[int], limits: list[int]
) -> None:
    world = PortfolioWorld(tmp_path_factory.mktemp("world"), leader="ODE-UNICEF-FirstFit")
    for number, left in enumerate(calls):
        world.slurm.calls_left = 1_000_000
        world.slurm.add(waiting(number + 1, limit=limits[number % 3]))
        world.slurm.calls_left = left  # slurmctld hears so many calls more of this process
        world.tick(2)
        world.start()  # it was killed; the next one begins
    world.slurm.calls_left = 1_000_000
    assert min(world.slurm.factors.values()) >= 0
    assert all(queued.reason == "Resources" for queued in world.slurm.jobs.values())
    world.tick()
    shortest_first = sorted(
        world.slurm.jobs, key=lambda job_id: (world.slurm.jobs[job_id].job.requested_time, job_id)
    )
    assert [world.slurm.jobs[j].job.requested_time for j in world.slurm.order()] == [
        world.slurm.jobs[j].job.requested_time for j in shortest_first
    ]
    world.loop.release()
    assert not world.closed
    assert set(world.slurm.factors.values()) == {0}


def test_left_alone_a_reservation_ends_by_itself(tmp_path: Path) -> None:
    world = PortfolioWorld(tmp_path, leader="ODE-FCFS-FirstFit", lease_seconds=180.0)
    world.tick()
    assert world.closed
    world.clock.pass_by(181.0)
    assert not world.closed
    world.start()
    assert world.tick()
    assert world.closed
