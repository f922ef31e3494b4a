"""What may happen to a cloud, for hypothesis to choose from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from advisor.model.advice import Capacity
from tests.service.cloud_events import ANY_STEP
from tests.service.cloud_world import FILE_STEP, LOOPS, Action

_CODES = ("RequestLimitExceeded", "InternalError", "answer-lost", "never-arrives", "html")
_REFUSALS = ("InsufficientInstanceCapacity", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded")


def _action(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Action]:
    return st.tuples(st.just(name), *arguments.values())


def _one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


SUBMIT = _action(
    "submit",
    seconds=_one_of(20.0, 100.0, 300.0),
    predicted=_one_of(100.0, 300.0, 600.0),
    nodes=_one_of(1, 1, 2),
    capacity=_one_of(Capacity.SPOT, Capacity.ON_DEMAND),
    end=_one_of("well", "well", "well", "badly"),
    account=_one_of("chem", "chem", "bio", "none"),
    user=_one_of("ann", "bob"),
)
LIVE = _action("live", ticks=st.integers(1, 4))
CRASH = _action(
    "crash",
    steps=st.integers(1, 12),
    at=_one_of(
        ANY_STEP, FILE_STEP, FILE_STEP, "run_instances", "run_instances", "terminate_instances", "update_node"
    ),
    torn=st.integers(0, 40),
)
RESTART = _action("restart", seconds=_one_of(0.0, 20.0, 200.0, 1000.0))
STALL = _action("stall", seconds=_one_of(5.0, 40.0, 100.0, 400.0))
WORK = _action("work", loop=_one_of(*LOOPS))
LAUNCH_FAILS = _action(
    "ec2_fails", action=st.just("run_instances"), how=_one_of(*_CODES, *_REFUSALS), times=st.integers(1, 5)
)
FLEET_FAILS = _action(
    "ec2_fails",
    action=_one_of("create_fleet", "create_fleet", "create_launch_template", "create_tags"),
    how=_one_of(*_CODES, *_REFUSALS),
    times=st.integers(1, 5),
)
FLEET_CRASH = _action(
    "crash",
    steps=st.integers(1, 6),
    at=_one_of(FILE_STEP, "create_fleet", "create_fleet", "create_tags"),
    torn=st.integers(0, 40),
)
FLEET_ROOM = _action(
    "room",
    market=_one_of("spot", "spot|c5.xlarge", "spot|m5.xlarge", "on-demand"),
    instances=st.integers(0, 2),
)
EC2_FAILS = _action(
    "ec2_fails",
    action=_one_of(
        "describe_instances",
        "next_page",
        "terminate_instances",
        "create_tags",
        "describe_spot_instance_requests",
        "receive_message",
        "delete_message_batch",
    ),
    how=_one_of(*_CODES),
    times=st.integers(1, 5),
)
SLURM_FAILS = _action("slurm_fails", how=_one_of("answer-lost", "never-arrives"), times=st.integers(1, 4))
SLURMCTLD_AWAY = _action("slurmctld_away", ticks=st.integers(1, 4))
EC2_AWAY = _action("ec2_away", ticks=st.integers(1, 4), seconds=_one_of(15.0, 60.0, 300.0))
ROOM = _action("room", market=_one_of("spot", "on-demand"), instances=st.integers(0, 2))
RECLAIM = _action(
    "reclaim",
    which=st.integers(0, 3),
    notice_seconds=_one_of(0.0, 30.0, 120.0),
    notice=_one_of("told", "untold"),
)
REBALANCE = _action("rebalance", which=st.integers(0, 3))
STOP = _action("stop", which=st.integers(0, 3))
LAG = _action("lag", seconds=_one_of(0.0, 10.0, 40.0, 120.0))
ASIDE = _action(
    "aside",
    calls=st.integers(1, 12),
    loop=_one_of("", *LOOPS),
    seconds=_one_of(0.0, 0.0, 5.0, 30.0, 100.0),
)
REPEAT = _action("repeat")
LOSE_PROGRAM = _action("lose_program", operation=_one_of("resume", "suspend", "suspend", "resume_fail"))

DAMAGE = st.one_of(
    _action("damage_budget", first=st.just("budget.json")),
    _action("damage_budget", first=st.just("budget.json"), second=st.just("budget.json.old")),
)
ILL_ENTRY = _action("ill_entry", kind=_one_of("directory", "link", "fifo", "option", "other node", ""))

_WEIGHTS = (
    (SUBMIT, 5), (LIVE, 6), (CRASH, 4), (LAUNCH_FAILS, 3), (EC2_FAILS, 3), (RESTART, 1), (STALL, 1),
    (WORK, 1), (SLURM_FAILS, 1), (SLURMCTLD_AWAY, 1), (EC2_AWAY, 1), (ROOM, 1), (RECLAIM, 2),
    (REBALANCE, 1), (STOP, 1), (LAG, 2), (ASIDE, 3), (REPEAT, 1), (LOSE_PROGRAM, 1),
    (DAMAGE, 1), (ILL_ENTRY, 1),
)  # fmt: skip
EVERYTHING = tuple(kind for kind, weight in _WEIGHTS for _ in range(weight))

OF_FLEETS = (*EVERYTHING, *(FLEET_FAILS, FLEET_CRASH, FLEET_ROOM) * 4)
"""Those of a class of several instance types as well."""

OTHERS_TAKE = _action("others_take", places=st.integers(0, 2))
OF_RESERVATIONS = (*EVERYTHING, *(OTHERS_TAKE,) * 8)
"""Those of an account that has a capacity reservation as well."""

SET_CLOCK = _action("set_clock", error=_one_of(-1000.0, -400.0, -20.0, 0.0, 20.0, 400.0, 1000.0))
FORGET_SUSPENDS = _action("forget_suspends")
OF_CLOCKS = (*EVERYTHING, *(SET_CLOCK, SLURMCTLD_AWAY, FORGET_SUSPENDS) * 4)
"""Those of a host whose clock is set, and of slurmctld that is restarted and killed often."""

BUDGETS = _one_of(0.0, 0.05, 0.1)


def stories(*kinds: st.SearchStrategy[Action]) -> st.SearchStrategy[list[Action]]:
    """Lists of actions of some kinds, or of all; two jobs are there from the start."""
    # one_of would count a kind once, however often it is named
    action = st.sampled_from(kinds or EVERYTHING).flatmap(lambda kind: kind)
    rest = st.lists(action, min_size=8, max_size=18)
    return st.builds(lambda first, second, rest: [first, second, *rest], SUBMIT, SUBMIT, rest)
