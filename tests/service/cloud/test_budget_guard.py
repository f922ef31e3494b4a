"""The budget at the launch and after it, through the loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from advisor.ec2.account import Account, Reservation, ReservedInstances
from advisor.model.advice import Capacity, TimeLimit
from advisor.model.errors import RetryLater
from advisor.model.settings_cloud import CapacitySettings
from advisor.model.settings_nodes import PortfolioSettings
from advisor.model.settings_price import BudgetSettings
from advisor.service.cloud.bookkeeping import Bookkeeping
from advisor.service.cloud.budget_guard import BudgetGuard
from advisor.service.control.polling import PollLoop
from advisor.service.state.budget_records import LaunchRequest
from advisor.service.state.cloud_record import ClosedOptions
from tests.service.cloud.rig import EMPTY_POOL, SERVER_FAULT, Rig, comment
from tests.service.doubles import make_instance, make_node, make_queued, states_told

HOUR = 3600.0


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Spot costs 1, on-demand 2 dollars an hour; 5 dollars a day, 3 of them for physics."""
    rig = Rig(tmp_path)
    limits = BudgetSettings(usd=5.0, accounts={"physics": 3.0}, period="day")
    rig.settings = rig.settings.model_copy(update={"budget": limits})
    context = dataclasses.replace(rig.context, settings=rig.settings)
    rig.provision = rig.provision_of(context)
    return rig


def ask(
    rig: Rig,
    jobs: dict[int, tuple[str, float]],
    *,
    polled: Mapping[int, int] = MappingProxyType({}),
    told: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Each job wants a node of its own for so many hours; priorities of the queue and of the resume file."""
    rig.look(
        jobs=[
            make_queued(
                number,
                account=account,
                requested_time=hours * HOUR,
                queue="burst",
                admin_comment=comment(capacity=Capacity.ON_DEMAND),
                priority=polled.get(number, 0),
            )
            for number, (account, hours) in jobs.items()
        ]
    )
    nodes = ",".join(f"burst{number}" for number in jobs)
    rig.hand_over("resume", nodes, {number: f"burst{number}" for number in jobs}, priorities=told)
    rig.provision.act_on_handovers()


def test_what_the_caps_forbid_is_not_launched_and_its_job_returns(rig: Rig) -> None:
    ask(rig, {1: ("physics", 1.0), 2: ("physics", 1.0), 3: ("biology", 1.0), 4: ("biology", 1.0)})
    assert rig.fleet.of("resume")[0][0] == ("burst1", "burst3")  # 2.10 dollars each at worst, boot included
    assert states_told(rig.slurm) == {"burst2": "POWER_DOWN_FORCE", "burst4": "POWER_DOWN_FORCE"}
    assert rig.provision.returning == {2, 4}
    assert rig.provision.refusals == {"Budget": 2}


def test_a_job_is_promised_what_it_may_cost_with_the_limit_that_it_will_have(rig: Rig) -> None:
    """Its limit is raised once it runs, after its node was asked for; two such runs passed the budget."""
    raised = comment(
        capacity=Capacity.ON_DEMAND, time_limit=TimeLimit(asked_seconds=HOUR, given_seconds=1.5 * HOUR)
    )
    jobs = [
        make_queued(n, account="law", requested_time=HOUR, queue="burst", admin_comment=raised)
        for n in (1, 2)
    ]
    rig.look(jobs=jobs)
    rig.hand_over("resume", "burst1,burst2", {1: "burst1", 2: "burst2"})
    rig.provision.act_on_handovers()
    assert rig.fleet.of("resume")[0][0] == ("burst1",)  # 3.10 dollars at worst
    assert rig.provision.returning == {2}


def test_a_node_is_promised_the_longest_run_of_all_jobs_that_wait_for_it(rig: Rig) -> None:
    """Jobs that share it: the one of the hand-over was asked for, and a longer one passed the budget."""
    there = {"queue": "burst", "account": "law", "nodes": "burst1"}
    jobs = [
        make_queued(number, "CONFIGURING", requested_time=hours * HOUR, start_time=rig.hands.wall, **there)
        for number, hours in {7: 0.2, 8: 3.0}.items()
    ]
    rig.look(jobs=jobs)
    rig.hand_over("resume", "burst1", {7: "burst1"})
    rig.provision.act_on_handovers()
    assert rig.fleet.of("resume")[0][0] == ()


def test_a_node_that_boots_is_promised_the_money_of_a_job_that_comes_later(rig: Rig) -> None:
    """Its money was free until the node was up."""
    rig.cloud.budget.rebuild((), (), ())
    rig.cloud.budget.promise([LaunchRequest(node="burst1", account="law", usd=0.5, usd_per_hour=2.0)], ())
    rig.fleet.listed = [make_instance("burst1", option=Capacity.ON_DEMAND, launch_time=rig.hands.wall)]
    there = {"queue": "burst", "account": "law", "nodes": "burst1", "start_time": rig.hands.wall}
    jobs = [make_queued(n, "CONFIGURING", requested_time=h * HOUR, **there) for n, h in ((7, 0.2), (8, 2.0))]
    rig.look([make_node("burst1", "MIXED", "POWERING_UP")], jobs)
    rig.reconcile.read_instances()
    Bookkeeping(dataclasses.replace(rig.context, settings=rig.settings)).renew(rig.fleet.listed)
    assert rig.cloud.budget.exposure("day")[1][0] == pytest.approx(4.0, abs=0.2)


@pytest.mark.parametrize(
    ("polled", "told"),
    [({1: 10, 2: 20, 3: 30}, {}), ({1: 30, 2: 20, 3: 10}, {1: 10, 2: 20, 3: 30})],
    ids=["of the queue", "of the resume file"],
)
def test_what_is_left_goes_to_the_highest_priority(
    rig: Rig, polled: dict[int, int], told: dict[int, int]
) -> None:
    ask(rig, dict.fromkeys((1, 2, 3), ("biology", 1.0)), polled=polled, told=told)
    assert rig.fleet.of("resume")[0][0] == ("burst3", "burst2")


def test_house_2_a_node_that_a_cap_forbids_says_which_and_not_that_ec2_had_none(rig: Rig) -> None:
    ask(rig, {1: ("physics", 1.0), 2: ("physics", 1.0), 3: ("biology", 1.0), 4: ("biology", 1.0)})
    reasons = {call[1][0]: call[2]["reason"] for call in rig.slurm.told if "reason" in call[2]}
    spent = "USD of {} are spent or promised"
    assert reasons == {
        "burst2": f"burst advisor: budget: 2.10 {spent.format('3.00 for account physics today')}",
        "burst4": f"burst advisor: budget: 4.20 {spent.format('5.00 for today')}",
    }


def test_house_2_an_empty_pool_is_still_ec2_s_word(rig: Rig) -> None:
    rig.fleet.refusals = {"burst1": EMPTY_POOL}
    ask(rig, {1: ("physics", 1.0)})
    (reason,) = (call[2]["reason"] for call in rig.slurm.told if "reason" in call[2])
    assert reason == "burst advisor: EC2 gave no instance (InsufficientInstanceCapacity)"


def test_a_node_given_back_makes_room_for_the_next(rig: Rig) -> None:
    ask(rig, {1: ("physics", 1.0)})
    ask(rig, {2: ("physics", 1.0)})
    assert [nodes for nodes, _ in rig.fleet.of("resume")] == [("burst1",), ()]
    rig.hand_over("suspend", "burst1")
    rig.provision.act_on_handovers()
    ask(rig, {2: ("physics", 1.0)})
    assert rig.fleet.of("resume")[-1][0] == ("burst2",)


def test_instances_that_were_taken_back_at_once_have_cost_a_minute(rig: Rig) -> None:
    """EC2 bills a minute of each, and no list of instances shows them alive."""
    rig.fleet.refusals, rig.fleet.taken_back = dict.fromkeys(("burst1", "burst2"), EMPTY_POOL), {"burst1"}
    ask(rig, {1: ("biology", 1.0), 2: ("biology", 1.0)})
    assert rig.cloud.budget.exposure("day")[0][0] == pytest.approx(2.0 / 60.0)
    assert rig.cloud.budget.exposure("day")[1][0] == 0.0


def test_a_node_that_was_taken_back_and_launched_in_another_zone_keeps_its_money(rig: Rig) -> None:
    rig.fleet.taken_back = {"burst1"}
    ask(rig, {1: ("biology", 1.0)})
    (spent, _), (promised, _) = rig.cloud.budget.exposure("day")
    assert spent == pytest.approx(2.0 / 60.0)
    assert promised > 2.0


@pytest.mark.parametrize("operation", ["suspend", "resume_fail"])
def test_a_node_for_which_ec2_never_launched_anything_has_cost_nothing(rig: Rig, operation: str) -> None:
    """EC2 has throttled the launch until ResumeTimeout."""
    rig.fleet.refusals = {"burst1": SERVER_FAULT}
    with pytest.raises(RetryLater):
        ask(rig, {1: ("biology", 1.0)})
    rig.hands.pass_by(600.0)
    rig.look()
    rig.hand_over(operation, "burst1")
    rig.provision.act_on_handovers()
    (spent, _), (promised, _) = rig.cloud.budget.exposure("day")
    assert (spent, promised, rig.cloud.budget.paid()) == (0.0, 0.0, [])


def test_when_all_is_spent_nothing_more_starts_and_what_runs_ends_in_peace(rig: Rig) -> None:
    rig.fleet.listed = [
        make_instance(f"burst{n}", option=Capacity.ON_DEMAND, launch_time=rig.hands.wall) for n in (1, 2)
    ]
    rig.hands.pass_by(1.3 * HOUR)
    nodes = [
        make_node("burst1", "MIXED"),
        make_node("burst2", "IDLE"),
        make_node("burst3", "IDLE", "POWERED_DOWN"),
    ]
    jobs = [
        make_queued(7, "RUNNING", nodes="burst1", queue="burst", requested_time=0.5 * HOUR),
        make_queued(8, queue="burst", admin_comment=comment()),
        make_queued(9, queue="burst"),  # its user's own choice
        make_queued(10),
    ]
    rig.look(nodes, jobs)
    rig.reconcile.read_instances()
    rig.reconcile.count_money()
    rig.provision.keep_budget()
    assert states_told(rig.slurm) == {"burst1": "POWER_DOWN_ASAP", "burst2": "POWER_DOWN_ASAP"}
    assert rig.provision.returning == {8}


def test_a_job_that_begins_on_a_node_that_is_up_is_promised_its_money_at_once(rig: Rig) -> None:
    """Until instances were counted again its money was free, for decisions and for launches."""
    rig.fleet.listed = [make_instance("burst1", option=Capacity.ON_DEMAND, launch_time=rig.hands.wall)]
    rig.look([make_node("burst1", "IDLE")])
    rig.reconcile.read_instances()
    rig.reconcile.count_money()
    assert rig.cloud.budget.exposure("day")[1][0] == 0.0
    long = make_queued(
        7, "RUNNING", nodes="burst1", queue="burst", requested_time=2 * HOUR, account="law",
        start_time=rig.hands.wall, admin_comment=comment(capacity=Capacity.ON_DEMAND),
    )  # fmt: skip
    rig.slurm.show([make_node("burst1", "MIXED")], [long])
    books = Bookkeeping(dataclasses.replace(rig.context, settings=rig.settings))
    poll = PollLoop(
        rig.settings, slurm=rig.slurm, view=rig.view, cloud=rig.cloud, closings=ClosedOptions, status=dict,
        clock=rig.hands.clock, renew=lambda: books.renew(rig.reconcile.last_listed),
    )  # fmt: skip
    poll.poll()
    assert rig.cloud.budget.exposure("day")[1][0] == pytest.approx(4.0, abs=0.1)
    ask(rig, {3: ("biology", 1.0)})
    assert rig.fleet.of("resume")[-1][0] == ()


def test_a_node_whose_jobs_have_ended_is_promised_its_idle_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where hundreds of tasks ended at once, others took the money, and the idle nodes passed the budget."""
    (burst,) = (one for one in rig.slurm.partitions() if one.name == "burst")
    half_an_hour = dataclasses.replace(burst, suspend_seconds=0.5 * HOUR)
    monkeypatch.setattr(rig.slurm, "partitions", lambda: (half_an_hour,))
    up = [make_instance(f"burst{n}", option=Capacity.ON_DEMAND) for n in (1, 2, 3)]
    books = Bookkeeping(dataclasses.replace(rig.context, settings=rig.settings))
    rig.cloud.budget.rebuild((), (), ())
    rig.look([make_node(f"burst{n}", "IDLE") for n in (1, 2, 3)])
    books.renew(up)
    assert rig.cloud.budget.exposure("day")[1][0] == pytest.approx(3.0)
    ask(rig, {4: ("biology", 1.0)})
    assert rig.fleet.of("resume")[-1][0] == ()


def test_what_is_paid_for_is_used_when_all_is_spent(rig: Rig) -> None:
    """Question 3 sends jobs there whatever was spent; the guard sent them back, and ended the nodes."""
    two = Account(reserved=(ReservedInstances(name="ri", instance_type="c5.xlarge", zone="", count=2),))
    context = dataclasses.replace(rig.context, settings=rig.settings, account=lambda: two)
    rig.provision = rig.provision_of(context)
    rig.cloud.budget.rebuild((), (), ())
    rig.cloud.budget.promise([LaunchRequest(node="burst9", account="", usd=6.0, usd_per_hour=1.0)], ())
    rig.fleet.listed = [make_instance("burst1", option=Capacity.ON_DEMAND), make_instance("burst2")]
    paid = {"queue": "burst", "admin_comment": comment(capacity=Capacity.RESERVED)}
    nodes = [make_node("burst1", "MIXED"), make_node("burst2", "MIXED")]
    rig.look(nodes, [make_queued(number, **paid) for number in (8, 9)])
    rig.reconcile.read_instances()
    rig.provision.keep_budget()
    assert states_told(rig.slurm) == {"burst2": "POWER_DOWN_ASAP"}
    assert rig.provision.returning == set()
    rig.hand_over("resume", "burst[3-4]", {8: "burst3", 9: "burst4"})
    rig.provision.act_on_handovers()
    assert rig.fleet.of("resume")[-1][0] == ("burst3",)  # the other place is that of burst1
    closing = rig.settings.model_copy(update={"portfolio": PortfolioSettings(enabled=True)})
    guard = BudgetGuard(dataclasses.replace(context, settings=closing), tuple)
    assert guard.keep() == {8, 9}  # no node is open to them


def test_an_account_that_has_spent_its_share_gets_its_waiting_jobs_back(rig: Rig) -> None:
    rig.fleet.listed = [make_instance("burst1", option=Capacity.ON_DEMAND, launch_time=rig.hands.wall)]
    rig.hands.pass_by(1.6 * HOUR)
    jobs = [
        make_queued(
            7, "RUNNING", nodes="burst1", queue="burst", account="physics", requested_time=0.5 * HOUR
        ),
        make_queued(8, queue="burst", account="physics", admin_comment=comment()),
        make_queued(9, queue="burst", account="biology", requested_time=600.0, admin_comment=comment()),
    ]
    rig.look([make_node("burst1", "MIXED")], jobs)
    rig.reconcile.read_instances()
    rig.reconcile.count_money()
    rig.provision.keep_budget()
    assert states_told(rig.slurm) == {}
    assert rig.provision.returning == {8}


def test_waiting_jobs_that_may_begin_on_nodes_that_are_up_return_where_too_little_is_left(rig: Rig) -> None:
    """No launch asks for their money: they began as soon as others had ended, and passed the budget."""
    rig.cloud.budget.rebuild((), (), ())
    rig.fleet.listed = [make_instance("burst1", option=Capacity.ON_DEMAND, launch_time=rig.hands.wall)]
    moved = {"queue": "burst", "account": "law", "admin_comment": comment(capacity=Capacity.ON_DEMAND)}
    hours = {8: 1.5, 9: 0.9, 10: 0.2}
    waiting = [
        make_queued(number, requested_time=long * HOUR, priority=20 - number, **moved)
        for number, long in hours.items()
    ]
    running = make_queued(7, "RUNNING", nodes="burst1", queue="burst", requested_time=0.5 * HOUR)
    rig.look([make_node("burst1", "MIXED")], [running, *waiting])
    rig.reconcile.read_instances()
    rig.reconcile.count_money()
    rig.provision.keep_budget()
    assert rig.provision.returning == {9}  # 1.2 of 5 dollars are promised, 3.0 and 0.4 are for 8 and 10
    assert states_told(rig.slurm) == {}


def test_a_job_that_slurm_cannot_show_is_waited_for_where_its_account_must_pay(rig: Rig) -> None:
    """After twenty seconds without slurmctld its node was launched, and charged to no account."""
    rig.look()
    rig.hands.pass_by(0.2)
    rig.hand_over("resume", "burst1", {1: "burst1"})
    for _ in range(3):
        rig.provision.act_on_handovers()
        rig.hands.pass_by(30.0)
    assert rig.fleet.of("resume") == []
    ask(rig, {1: ("physics", 24.0)})
    assert [nodes for nodes, _ in rig.fleet.of("resume")] == [(), ()]
    assert {changes["state"] for _, _, changes in rig.slurm.told} == {"POWER_DOWN_FORCE"}


def test_without_caps_nothing_is_kept_back(tmp_path: Path) -> None:
    free = Rig(tmp_path)
    ask(free, dict.fromkeys(range(1, 9), ("physics", 24.0)))
    assert len(free.fleet.of("resume")[0][0]) == 8
    free.provision.keep_budget()
    assert free.provision.returning == set()


def test_a_partition_without_a_suspend_time_has_that_of_slurm_conf(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten idle hours were promised as five minutes, and the budget was passed by the rest."""
    (burst,) = (one for one in rig.slurm.partitions() if one.name == "burst")
    inherits = dataclasses.replace(burst, suspend_seconds=None)
    monkeypatch.setattr(rig.slurm, "partitions", lambda: (inherits,))
    monkeypatch.setattr(rig.slurm, "config", lambda: {"SuspendTime": "36000 sec"})
    ask(rig, {1: ("biology", 1.0)})
    assert rig.fleet.of("resume")[0][0] == ()


@pytest.mark.parametrize(("declared", "spent"), [(0, 0.0), (0, 4.0), (1, 4.0)])
def test_a_node_without_its_place_in_a_reservation_is_promised_its_cost(
    rig: Rig, declared: int, spent: float
) -> None:
    """Another node, or a job that needs two, may get in where the guard counted on one place."""
    reservation = Reservation(reservation_id="cr-1", instance_type="c5.xlarge", zone="us-east-1a", total=1)
    context = dataclasses.replace(
        rig.context,
        settings=rig.settings.model_copy(update={"capacity": CapacitySettings(reserved_nodes=declared)}),
        account=lambda: Account(reservations=(reservation,)),
    )
    guard, budget = BudgetGuard(context, tuple), context.cloud.budget
    budget.rebuild((), (), ())  # nothing was spent
    if spent:
        budget.promise([LaunchRequest(node="burst9", account="", usd=spent, usd_per_hour=1.0)], ())
    jobs = {f"burst{number}": make_queued(number, requested_time=HOUR) for number in (1, 2)}
    asked = {node: jobs[node] for node in ("burst1", "burst2") if declared or node == "burst1"}
    assert guard.put_aside(list(asked), asked, {}, ends=dict.fromkeys(asked, 0.0)) == {}
    refused = guard.put_aside(list(asked), asked, {}, ends=dict.fromkeys(asked, 0.0), listed=None)
    assert refused.keys() == ({"burst1"} if spent else set())  # reserved instances pay for the other
