"""What was kept of the spending is damaged or gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from advisor.model.errors import TellAdmin
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.spent_days import SpentDays
from advisor.service.state.state_files import BUDGET
from tests.service.doubles import Hands
from tests.service.state.spending import CAP, HOUR, NOON, budget_in, hands, running, spent, wish

__all__ = ["hands", "spent"]


def damage(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.write_bytes(path.read_bytes()[:40])


def exposures(budget: SpendingBudget) -> dict[str, float]:
    (spent, mine), (promised, theirs) = budget.exposure("day")
    return {
        "all": spent + promised,
        **{name: mine.get(name, 0.0) + theirs.get(name, 0.0) for name in {*mine, *theirs}},
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"days":{"2027-01-15"',
        b"[]",
        b"{}" * 5,
        b'{"days":{"2027-01-15":{"physics":-1}},"seen":{},"promises":{},"paid":[]}',
        b'{"days":{},"seen":{"i-1":7},"promises":{},"paid":[]}',
        b'{"days":{},"seen":{},"promises":{},"paid":[7]}',
        b'{"days":7,"seen":{},"promises":{},"paid":[]}',
        b'{"days":{},"seen":{},"promises":{"burst1":{"usd":NaN,"time":1,"usd_per_hour":1}},"paid":[]}',
        b"\xff\xfe",
    ],
)
def test_d5_a_damaged_budget_is_said_kept_aside_and_blocks_launches(
    spent: Path, hands: Hands, content: bytes
) -> None:
    (spent / "budget.json").write_bytes(content)
    (spent / "budget.json.old").unlink()
    with capture_logs() as logs:
        budget = budget_in(spent, hands)
    assert [(log["event"], log["log_level"]) for log in logs] == [("state.damaged", "error")]
    assert (spent / "budget.json.bad").read_bytes() == content
    assert (budget.is_damaged, budget.doubt) == (True, "budget.json was damaged")
    for limits in (CAP, ()):
        with pytest.raises(TellAdmin, match="nothing is launched"):
            budget.promise([wish("burst3", 0.01)], limits)
    budget.count([running()])
    assert budget_in(spent, hands).doubt  # half of a day is written nowhere


def test_d5_what_was_written_the_time_before_is_what_is_known(spent: Path, hands: Hands) -> None:
    before = exposures(budget_in(spent, hands))
    damage(spent, "budget.json")
    budget = budget_in(spent, hands)
    assert budget.doubt
    assert not budget.needs_history(NOON)
    budget.rebuild([running(launch_time=NOON, shares={"physics": 1.0}, left_usd=0.5)], [], None)
    assert exposures(budget) == pytest.approx(before, abs=0.01)
    assert (budget.doubt, budget.rebuilt_today) == ("", "budget.json was damaged")
    assert budget.promise([wish("burst3", 2.0)], CAP).keys() == {"burst3"}
    budget.rebuild([], [], [])  # the other loop, which has found it in doubt as well
    assert exposures(budget) == pytest.approx(before, abs=0.01)
    assert budget.rebuilt_today == "budget.json was damaged"
    again = budget_in(spent, hands)
    assert (again.doubt, again.rebuilt_today) == ("", "budget.json was damaged")
    hands.pass_by(86_400.0)
    assert again.rebuilt_today == ""


def test_d5_what_ran_and_was_launched_while_nobody_counted_is_counted(spent: Path, hands: Hands) -> None:
    damage(spent, "budget.json")
    hands.pass_by(HOUR)
    budget = budget_in(spent, hands)
    late = running("burst4", launch_time=hands.wall - HOUR / 2)
    ended = [
        running("burst5", launch_time=hands.wall - HOUR / 4),  # launched and ended meanwhile
        running("burst2", launch_time=NOON),  # ended before: it is in the count
    ]
    budget.rebuild([late], ended, None)
    # burst1 ran when it was counted last and is gone: until now
    assert budget.spent_today()[0] == pytest.approx(3.0 + 1.0 + 0.5 + 0.25, abs=0.01)


def test_d5_without_any_copy_the_history_says_what_was_spent(spent: Path, hands: Hands) -> None:
    paid = budget_in(spent, hands).paid()
    damage(spent, "budget.json", "budget.json.old")
    hands.pass_by(HOUR)
    budget = budget_in(spent, hands)
    assert budget.needs_history(NOON)
    budget.rebuild([running(launch_time=NOON, shares={"physics": 1.0}, left_usd=0.5)], [], paid)
    assert budget.spent_today()[0] == pytest.approx(4.0, abs=0.01)
    # whose the three dollars were is not known: they count for each account's cap
    assert "for account physics" in budget.promise([wish("burst3", 0.1)], CAP)["burst3"]
    assert "physics" in budget.exhausted(CAP)[1]
    assert sorted(path.name for path in spent.glob("*.bad")) == ["budget.json.bad", "budget.json.old.bad"]


def test_d5_without_a_budget_what_runs_is_counted_from_its_launch(tmp_path: Path, hands: Hands) -> None:
    """Somebody has removed it: that is no damage, but the cap must hold."""
    hands.wall = NOON
    budget = SpendingBudget(BUDGET.at(tmp_path), hands.clock)
    with pytest.raises(TellAdmin, match="there was no budget"):
        budget.promise([wish("burst3", 0.01)], CAP)
    assert budget.promise([wish("burst3", 0.01)], ()) == {}  # nothing to guard
    budget.rebuild([running(launch_time=NOON - 4 * HOUR, left_usd=0.5)], [], [])
    assert budget.spent_today()[0] == pytest.approx(4.0)
    assert budget.promise([wish("burst3", 1.0)], CAP).keys() == {"burst3"}
    assert budget.rebuilt_today == ""


def test_d5_tomorrow_no_history_is_needed(spent: Path, hands: Hands) -> None:
    damage(spent, "budget.json", "budget.json.old")
    budget = budget_in(spent, hands)
    hands.pass_by(86_400.0)
    assert budget.doubt
    assert not budget.needs_history(hands.wall)


def test_d5_what_was_counted_while_the_history_could_not_be_read_stays_counted(
    spent: Path, hands: Hands
) -> None:
    paid = budget_in(spent, hands).paid()
    damage(spent, "budget.json", "budget.json.old")
    hands.pass_by(HOUR)
    budget = budget_in(spent, hands)
    first = running(launch_time=NOON, shares={"physics": 1.0}, left_usd=0.5)
    launched = hands.wall
    for minutes in range(0, 120, 10):
        short = [running("burst6", launch_time=launched)] if minutes <= 30 else []
        budget.count([first, *short])
        hands.pass_by(600.0)
    ended = [running("burst6", launch_time=launched)]
    for known in (paid, paid + budget.paid()):  # the learn loop may have written first
        again = budget_in(spent, hands)
        kept = replace(budget._kept, days={}, users={}, seen=dict(budget._kept.seen))
        own = {"_lock": again._lock, "_days": SpentDays(kept.days, kept.users), "_kept": kept}
        again.__dict__.update({**vars(budget), **own})
        again.rebuild([first], ended, known)
        # 3 before, 3 hours of burst1, and 40 minutes of burst6, which was seen to be gone after them
        assert again.spent_today()[0] == pytest.approx(3.0 + 3.0 + 40 / 60, abs=0.01)
        of_first = [piece for piece in again.paid() if piece.instance_id == "i-burst1"]
        assert sum(piece.until - piece.since for piece in of_first) == pytest.approx(5 * HOUR, abs=10)


def test_d5_a_number_no_float_can_hold_is_damage(spent: Path, hands: Hands) -> None:
    (spent / "budget.json").write_text('{"days":{"2027-01-15":{"physics":1' + "0" * 400 + "}}}")
    assert budget_in(spent, hands).is_damaged
