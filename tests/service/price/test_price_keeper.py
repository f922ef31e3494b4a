"""The price and the tokens: from demand and the record of spending, and again after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.decide.price.demand_price import DemandKept
from advisor.service.state.budget_records import limits_of
from advisor.service.state.state_files import PRICE
from tests.service.price.price_world import World

HOUR, DAY = 3600.0, 86_400.0


def test_what_was_spent_and_promised_is_gone(world: World) -> None:
    world.hands.pass_by(5 * HOUR)
    world.spend(20.0)
    world.round(0.0, promised_usd=6.0)
    assert world.keeper.current is not None
    # a new site has no demand to read a price off: twice what has accrued may be spent
    assert world.keeper.current.tokens_usd == pytest.approx(2 * 6 * 10.0 - 20.0 - 6.0, abs=0.1)
    assert world.keeper.report()["spent_usd"] == pytest.approx(20.0, rel=0.01)


def test_there_is_enough_when_it_was_said(world: World) -> None:
    world.hands.pass_by(5 * HOUR)
    world.spend(20.0)
    world.round(0.0, promised_usd=6.0)
    price = world.keeper.current
    assert price is not None
    assert price.enough_in(price.tokens_usd + 10.0, world.hands.wall) == pytest.approx(HOUR / 2)
    assert price.enough_in(250.0, world.hands.wall) is None  # no day has so much
    later = price.enough_in(120.0, world.hands.wall)
    assert later is not None
    for seconds, enough in ((later - 60.0, False), (61.0, True)):
        world.hands.pass_by(seconds)
        world.round(0.0, promised_usd=6.0)
        assert world.keeper.current is not None
        assert (world.keeper.current.tokens_usd >= 120.0) == enough
    tomorrow = world.keeper.current.enough_in(230.0, world.hands.wall)
    assert tomorrow == pytest.approx(DAY - world.hands.wall % DAY)
    world.hands.pass_by(tomorrow + 1.0)
    world.round(0.0, promised_usd=6.0)
    assert world.keeper.current.tokens_usd >= 230.0


def test_before_any_demand_an_hour_of_a_core_must_save_an_hour(world: World) -> None:
    world.round()
    assert world.keeper.current is not None
    assert world.keeper.current.seconds_per_usd == pytest.approx(3600.0 / 0.05)


def test_a_fixed_price_needs_no_budget(tmp_path: Path) -> None:
    world = World(tmp_path, budget={"usd_per_hour_saved": 2.0})
    world.round()
    assert world.keeper.current is not None
    assert (world.keeper.current.seconds_per_usd, world.keeper.current.tokens_usd) == (1800.0, float("inf"))


def test_the_price_rises_with_demand(world: World) -> None:
    world.hands.pass_by(HOUR)
    for job in range(50):
        world.keeper.note(f"{job}@0", index=1000.0 + job, usd=20.0, now=world.hands.wall)
    world.round()
    scarce = world.keeper.current
    assert scarce is not None
    planned = 240.0 - world.hands.wall % 86_400.0 / 360.0
    assert 1000.0 < scarce.seconds_per_usd * scarce.tokens_usd / planned <= 1049.0


@pytest.mark.parametrize("fixed", [0.0, 2.0])
def test_the_demand_of_past_months_is_forgotten(tmp_path: Path, fixed: float) -> None:
    """Also where no price is read off it: it would grow with each job for ever."""
    world = World(tmp_path, budget={"usd": 240.0, "period": "day", "usd_per_hour_saved": fixed})
    for number in range(3):
        world.keeper.note(f"{number}@0", index=500.0, usd=1.0, now=world.hands.wall)
        world.round()
        assert world.keeper.report()["slices_seen"] == 1
        world.hands.pass_by(365 * 24 * HOUR)


def test_f32_after_a_clock_that_was_ahead_there_is_money_and_the_price_is_read(world: World) -> None:
    """A host may boot with a wrong clock, and control begins before it is set."""
    for job in range(50):
        world.keeper.note(f"{job}@0", index=1000.0 + job, usd=20.0, now=world.hands.wall)
    world.round()
    world.hands.wall -= 400 * DAY
    for job in range(50):
        world.keeper.note(f"{job}@1", index=9000.0, usd=20.0, now=world.hands.wall)
    world.round()
    for _ in range(2):
        world.hands.pass_by(HOUR)
        world.round()
    price = world.keeper.current
    assert price is not None
    assert price.tokens_usd == pytest.approx(2 * 2 * 10.0, rel=0.05)  # twice what has accrued since
    assert price.seconds_per_usd >= 9000.0


def test_demand_of_before_a_long_absence_is_not_taken_up(world: World) -> None:
    """Such as months under another policy: what is seen since would count as the demand of four weeks."""
    for job in range(50):
        world.keeper.note(f"{job}@0", index=1000.0 + job, usd=20.0, now=world.hands.wall)
    world.round()
    world.keeper.save_now()
    for days, is_new in ((20.0, False), (20.0, True)):
        world.hands.pass_by(days * DAY)
        world.start()
        assert world.keeper.is_new == is_new


def test_the_price_of_an_account_falls_as_its_money_is_left(tmp_path: Path) -> None:
    for number, (said, expected) in enumerate(
        (({}, 0.25), ({"usd_per_hour_saved": 2.0}, 1.0), ({"carry_over": True}, 1.0))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, budget={"usd": 240.0, "period": "day", "accounts": {"chem": 10.0}, **said})
        world.hands.pass_by(86_400.0 - world.hands.wall % 86_400.0)
        world.hands.pass_by(18 * HOUR)
        world.round(0.0)
        price = world.keeper.current
        assert price is not None
        assert price.seconds_of(["chem"]) == pytest.approx(expected * price.seconds_per_usd, rel=1e-3)
        assert price.seconds_of(["bio"]) == price.seconds_per_usd


def test_a_restart_goes_on_with_price_demand_and_tokens(world: World) -> None:
    world.keeper.note("7@0", index=500.0, usd=1.0, now=world.hands.wall)
    world.hands.pass_by(2 * HOUR)
    world.round()
    world.keeper.save_now()
    before = world.keeper.current
    world.start()
    assert not world.keeper.is_new
    world.round(1.0)
    assert world.keeper.current is not None
    assert before is not None
    assert world.keeper.current.seconds_per_usd == pytest.approx(before.seconds_per_usd, rel=1e-3)
    assert world.keeper.current.tokens_usd == pytest.approx(before.tokens_usd, abs=0.1)
    assert world.keeper.report()["slices_seen"] == 1


def test_a_damaged_record_is_set_aside_and_tokens_follow_from_what_was_spent(world: World) -> None:
    world.hands.pass_by(HOUR)
    world.spend(15.0)
    path = PRICE.at(world.folder).path
    path.write_text('{"since": -1}')
    world.start()
    assert world.keeper.is_new
    assert path.with_name(path.name + ".bad").exists()
    world.round(1.0)
    assert world.keeper.current is not None
    assert world.keeper.current.tokens_usd == pytest.approx(-15.0, abs=0.1)  # no demand is known any more
    world.hands.pass_by(6 * HOUR)
    world.round()
    assert world.keeper.current is not None
    assert world.keeper.current.tokens_usd == pytest.approx(2 * 60.0 - 15.0, abs=0.3)


def test_a_rehearsal_of_the_history_sets_the_first_price(world: World) -> None:
    now = world.hands.wall
    seen = {f"rehearsed-{job}": (now - HOUR, 300.0 + job, 50.0) for job in range(100)}
    world.keeper.rehearsed(DemandKept(now - 7 * 86_400.0, 350.0, now, seen))
    world.round()
    assert world.keeper.current is not None
    assert 300.0 < world.keeper.current.seconds_per_usd < 400.0


def test_what_is_left_at_the_end_of_a_day_goes_to_all_that_saves_time(world: World) -> None:
    def factor() -> float:
        world.round()
        assert world.keeper.current is not None
        return world.keeper.current.seconds_per_usd

    world.hands.pass_by(86_400.0 - world.hands.wall % 86_400.0 + HOUR)
    for job in range(50):
        world.keeper.note(f"{job}@0", index=1000.0, usd=20.0, now=world.hands.wall)
    morning = factor()
    world.hands.pass_by(20 * HOUR)
    evening = factor()
    assert evening < 0.2 * morning
    world.spend(235.0)
    assert factor() > evening
    assert world.keeper.current is not None
    assert world.keeper.current.tokens_usd <= 240.0 - world.keeper.report()["spent_usd"]


def test_what_is_left_is_carried_over_where_the_site_says_so(tmp_path: Path) -> None:
    left = {}
    for carries_over in (False, True):
        budget = {"usd": 240.0, "period": "day", "carry_over": carries_over}
        folder = tmp_path / str(carries_over)
        folder.mkdir()
        world = World(folder, budget=budget)
        world.hands.pass_by(3 * 86_400.0)
        world.round()
        assert world.keeper.current is not None
        left[carries_over] = world.keeper.current.tokens_usd
        (guarded,) = world.spending.budgets(limits_of(world.settings))
        assert guarded.most == pytest.approx(left[carries_over])
        assert world.keeper.report()["budget_usd"] == pytest.approx(guarded.most)
    assert left == {False: pytest.approx(240.0), True: pytest.approx(480.0)}
