"""A budget and nodes that spend it."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.service.state.budget import SpendingBudget
from advisor.service.state.budget_records import LaunchRequest, RunningNode, SpendingLimit
from advisor.service.state.state_files import BUDGET
from tests.service.doubles import Hands

HOUR = 3600.0


def day_limits(usd: float, **accounts: float) -> tuple[SpendingLimit, ...]:
    return (SpendingLimit(usd=usd, payers=accounts, period="day"),)


@pytest.fixture
def hands() -> Hands:
    return Hands()


def budget_in(folder: Path, hands: Hands) -> SpendingBudget:
    """A budget; at the first start nothing has been spent."""
    budget = SpendingBudget(BUDGET.at(folder), hands.clock)
    if not list(folder.glob("budget.json*")):
        budget.rebuild([], [], [])
    return budget


def running(node: str = "burst1", **changes: object) -> RunningNode:
    values = {"instance_id": f"i-{node}", "node": node, "usd_per_hour": 1.0, "launch_time": 1_800_000_000.0}
    return RunningNode(**(values | changes))  # type: ignore[arg-type]


def wish(node: str, usd: float, account: str = "physics") -> LaunchRequest:
    return LaunchRequest(node=node, account=account, usd=usd, usd_per_hour=1.0)


CAP = day_limits(5.0, physics=3.0)

NOON = 1_800_000_000.0 - 1_800_000_000.0 % 86_400.0 + 43_200.0


@pytest.fixture
def spent(tmp_path: Path, hands: Hands) -> Path:
    """2 dollars were spent by physics for a node that runs, 1 by biology for one that has ended."""
    hands.wall = NOON
    budget = budget_in(tmp_path, hands)
    first = running(launch_time=NOON, shares={"physics": 1.0}, left_usd=0.5)
    hands.pass_by(HOUR)
    budget.count([first, running("burst2", launch_time=NOON, shares={"biology": 1.0}, left_usd=0.0)])
    budget.release(["burst2"], launched=True)
    for hours in (1.0, 0.001):
        hands.pass_by(hours * HOUR)
        budget.count([first])
    assert budget.spent_today()[0] == pytest.approx(3.0, abs=0.01)
    return tmp_path
