"""Budgets hold whatever is asked for, in whatever order, however often the advisor is restarted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from advisor.model.bill import PaidTime
from advisor.model.errors import TellAdmin
from advisor.model.periods import period_span
from advisor.model.settings import Settings
from advisor.model.settings_price import BudgetSettings
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.budget_records import LaunchRequest, RunningNode, SpendingLimit, limits_of
from advisor.service.state.state_files import BUDGET
from tests.service.doubles import Hands
from tests.service.state.spending import HOUR, NOON, budget_in, day_limits, hands, running, wish

__all__ = ["hands"]

CENT = 0.01


@dataclass
class Node:
    """A node as it really is: when it was launched and how long its job really takes."""

    number: int
    account: str
    usd_per_hour: float
    launched: float
    ends: float
    predicted_usd: float
    boots_until: float
    user: str

    @property
    def name(self) -> str:
        return f"burst{self.number}"

    def cost(self, until: float) -> float:
        return max(0.0, min(until, self.ends) - self.launched) / HOUR * self.usd_per_hour

    def seen(self, now: float) -> RunningNode:
        left = max(0.0, self.predicted_usd - self.cost(now))
        return RunningNode(
            instance_id=f"i-{self.number}",
            node=self.name,
            usd_per_hour=self.usd_per_hour,
            launch_time=self.launched,
            shares={self.account: 1.0, f"user {self.user}": 1.0} if now >= self.boots_until else {},
            left_usd=left if now >= self.boots_until else None,
        )


class Spending(RuleBasedStateMachine):
    """Bursts of launches, jobs that run shorter or longer than predicted, crashes at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.hands = Hands(wall=1_800_000_000.0 - 1_800_000_000.0 % 86400.0 + 60.0)
        self.nodes: list[Node] = []
        self.number = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    @initialize(
        cap=st.floats(0.5, 20.0),
        share=st.floats(0.1, 1.0),
        users=st.floats(0.1, 1.0),
        period=st.sampled_from(["day", "14d"]),
    )
    def begin(self, cap: float, share: float, users: float, period: str) -> None:
        self.limits = BudgetSettings(
            usd=cap,
            accounts={"physics": share * cap},
            account_period=period,
            users={"*": users * cap},
            user_period=period,
            period="day",
        )
        self.restart()

    @rule()
    def restart(self) -> None:
        self.budget = budget_in(Path(self.folder.name), self.hands)

    @rule(
        wanted=st.integers(1, 30),
        account=st.sampled_from(["physics", "biology", ""]),
        user=st.sampled_from(["ann", "bob"]),
        predicted=st.floats(60.0, 4 * HOUR),
        really=st.floats(0.2, 3.0),
        crashes=st.integers(0, 1),
    )
    def burst(
        self, wanted: int, account: str, user: str, predicted: float, really: float, crashes: int
    ) -> None:
        now, usd = self.hands.wall, predicted / HOUR * 0.17
        numbers = range(self.number + 1, self.number + 1 + wanted)
        self.number += wanted
        wishes = [
            LaunchRequest(node=f"burst{number}", account=account, user=user, usd=usd, usd_per_hour=0.17)
            for number in numbers
        ]
        refused = self.budget.promise(wishes, limits_of(Settings(budget=self.limits)))
        if crashes:
            self.restart()  # after the promises were written, before anything else is known
        for number in numbers:
            if f"burst{number}" in refused:
                continue
            node = Node(
                number=number,
                account=account,
                usd_per_hour=0.17,
                launched=now,
                ends=now + really * predicted,
                predicted_usd=usd,
                boots_until=now + 50.0,
                user=user,
            )
            self.nodes.append(node)

    @rule(seconds=st.floats(1.0, 1200.0))
    def time_goes_by(self, seconds: float) -> None:
        self.hands.pass_by(seconds)
        self.look()

    @rule(seconds=st.floats(600.0, 3 * HOUR))
    def the_advisor_is_away(self, seconds: float) -> None:
        self.look()
        self.hands.pass_by(seconds)
        self.restart()
        self.look()

    def look(self) -> None:
        now = self.hands.wall
        alive = [node for node in self.nodes if node.ends > now]
        self.budget.release([node.name for node in self.nodes if node.ends <= now], launched=True)
        self.budget.count([node.seen(now) for node in alive])

    def stays_under(self, most: float, since: float, payer: str = "") -> None:
        """What was spent since then is no more than may be, and what jobs cost beyond what was predicted."""
        now = self.hands.wall
        mine = [node for node in self.nodes if payer in ("", node.account, f"user {node.user}")]
        overrun = sum(max(0.0, node.cost(now) - node.predicted_usd) for node in mine)
        assert sum(node.cost(now) - node.cost(since) for node in mine) <= most + overrun + CENT, payer

    @invariant()
    def spending_stays_under_the_cap_and_what_running_jobs_overrun(self) -> None:
        if not hasattr(self, "limits"):
            return
        begins = [period_span(self.hands.wall, self.limits.period)[0]]
        begins.append(period_span(self.hands.wall, self.limits.account_period or "")[0])
        self.stays_under(self.limits.usd, begins[0])
        self.stays_under(self.limits.accounts["physics"], begins[1], "physics")
        for user in ("ann", "bob"):
            self.stays_under(self.limits.users["*"], begins[1], f"user {user}")


Spending.TestCase.settings = hypothesis_settings(max_examples=100, stateful_step_count=25, deadline=None)

TestSpending = Spending.TestCase


def test_a_shared_node_is_paid_for_by_its_jobs_processors(tmp_path: Path, hands: Hands) -> None:
    budget = budget_in(tmp_path, hands)
    hands.pass_by(HOUR)
    budget.count([running(shares={"physics": 0.75, "": 0.25})])
    total, by_account = budget.spent_today()
    assert total == pytest.approx(1.0)
    assert dict(by_account) == {"physics": pytest.approx(0.75)}


def test_what_a_shared_node_may_still_cost_is_promised_to_all_who_are_on_it(
    tmp_path: Path, hands: Hands
) -> None:
    """It was the largest one's alone, and the other's budget was passed by its part."""
    budget = budget_in(tmp_path, hands)
    shares = {"bio": 0.6, "physics": 0.4, "user ann": 0.6, "user bob": 0.4}
    budget.count([running(shares=shares, left_usd=5.0, launch_time=hands.wall)])
    again = budget_in(tmp_path, hands)
    _, (promised, by_payer) = again.exposure("day")
    assert promised == 5.0
    assert by_payer == {payer: pytest.approx(5.0 * share) for payer, share in shares.items()}
    refused = again.promise([wish("burst2", 1.1)], day_limits(50.0, physics=3.0))
    assert "2.01 USD of 3.00 for account physics" in refused["burst2"]


def test_hours_the_advisor_was_away_are_counted(tmp_path: Path, hands: Hands) -> None:
    budget_in(tmp_path, hands).count([running()])
    hands.pass_by(5 * HOUR)
    again = budget_in(tmp_path, hands)
    again.count([running()])
    assert again.spent_today()[0] == pytest.approx(5.0)


def test_f32_a_clock_that_jumps_costs_nothing(tmp_path: Path, hands: Hands) -> None:
    budget = budget_in(tmp_path, hands)
    budget.count([running()])
    assert budget.spent_today()[0] == pytest.approx(1 / 60), "EC2 bills a minute at least"
    hands.wall += HOUR
    budget.count([running()])
    assert budget.spent_today()[0] == pytest.approx(1 / 60)
    hands.wall -= 2 * HOUR
    budget.count([running()])
    hands.pass_by(HOUR)
    budget.count([running()])
    assert budget.spent_today()[0] == pytest.approx(1.0), "the minute is counted once"


@pytest.mark.parametrize(
    ("jump", "is_restarted"),
    [(600.0, False), *((jump, restarted) for jump in (-600.0, -61.0, -30.0) for restarted in (False, True))],
)
def test_f32_a_minute_that_is_paid_is_not_counted_again_when_the_clock_is_set(
    tmp_path: Path, hands: Hands, jump: float, *, is_restarted: bool
) -> None:
    budget = budget_in(tmp_path, hands)
    first = running(launch_time=hands.wall)
    budget.count([first])
    hands.wall += jump
    if is_restarted:
        budget = budget_in(tmp_path, hands)
    for _ in range(6):
        hands.pass_by(10.0)
        budget.count([first])
    assert budget.spent_today()[0] == pytest.approx(1 / 60)
    hands.pass_by(30.0)
    budget.count([first])
    assert budget.spent_today()[0] == pytest.approx(1.5 / 60)


def test_f32_two_clocks_are_never_read_at_the_same_moment(tmp_path: Path, hands: Hands) -> None:
    """What a node costs at one price stays one stretch, to its end: else the history gets one each round."""
    budget = budget_in(tmp_path, hands)
    launched = hands.wall
    for later in (0.0, 1e-5, 0.0, 2e-3, 1e-6):
        hands.pass_by(600.0)
        hands.monotonic -= later
        budget.count([running(launch_time=launched)])
    hands.pass_by(15.0)
    hands.monotonic -= 1e-4
    budget.release(["burst1"], launched=True)
    budget.count([])
    assert [(piece.since, piece.until) for piece in budget.paid()] == [(launched, hands.wall)]
    assert budget.spent_today()[0] == pytest.approx(3015 / HOUR)


def test_a_promise_is_kept_over_a_restart_and_given_up_when_no_node_comes(
    tmp_path: Path, hands: Hands
) -> None:
    limits = day_limits(1.0)
    assert budget_in(tmp_path, hands).promise([wish("burst1", 0.8)], limits) == {}
    budget = budget_in(tmp_path, hands)
    assert "0.80 USD of 1.00" in budget.promise([wish("burst2", 0.8)], limits)["burst2"]
    assert budget.promise([wish("burst1", 0.9)], limits) == {}  # the same node, asked for again
    hands.pass_by(1000.0)
    budget.count([])
    assert budget.promise([wish("burst2", 0.8), wish("burst3", 0.8)], limits).keys() == {"burst3"}


@pytest.mark.parametrize("jump", [-1000.0, 1000.0])
def test_f32_a_clock_that_is_set_drops_no_promise(tmp_path: Path, hands: Hands, jump: float) -> None:
    """EC2 did not list the node yet, and the next one was launched with the same money."""
    budget = budget_in(tmp_path, hands)
    assert budget.promise([wish("burst1", 0.8)], day_limits(1.0)) == {}
    hands.wall += jump
    hands.pass_by(30.0)
    budget.count([])
    assert budget.promise([wish("burst2", 0.8)], day_limits(1.0)).keys() == {"burst2"}


def test_a_node_that_lived_between_two_looks_has_cost_what_it_can_have(tmp_path: Path, hands: Hands) -> None:
    budget = budget_in(tmp_path, hands)
    limits = day_limits(1.0)
    budget.promise([wish("burst1", 0.5), wish("burst2", 0.1), wish("burst3", 0.2)], limits)
    hands.pass_by(HOUR / 4)
    budget.release(["burst1", "burst2"], launched=True)
    budget.release(["burst3"], launched=False)  # EC2 gave no instance
    assert budget.spent_today()[0] == pytest.approx(0.25 + 0.1)
    assert budget.exposure("day")[1][0] == 0.0


def test_with_a_cap_a_promise_that_cannot_be_written_launches_nothing(tmp_path: Path, hands: Hands) -> None:
    budget = SpendingBudget(BUDGET.at(tmp_path / "missing"), hands.clock)
    with pytest.raises(TellAdmin, match="nothing is launched"):
        budget.promise([wish("burst1", 0.1)], day_limits(1.0))
    assert budget.promise([wish("burst1", 0.1)], ()) == {}


def test_a_new_day_begins_at_nothing_and_the_old_one_is_kept(tmp_path: Path, hands: Hands) -> None:
    budget = budget_in(tmp_path, hands)
    hands.pass_by(HOUR)
    budget.count([running()])
    hands.pass_by(86400.0)
    assert budget.spent_today()[0] == 0.0
    assert sum(sum(day.values()) for day in budget.days().values()) == pytest.approx(1.0)


def test_hours_away_over_midnight_go_to_their_own_days(tmp_path: Path, hands: Hands) -> None:
    """Yesterday's money must not use up today's cap."""
    hands.pass_by(-1_800_000_000.0 % 86_400.0 - HOUR)  # an hour before midnight
    budget_in(tmp_path, hands).count([running(launch_time=hands.wall)])
    hands.pass_by(51 * HOUR)
    again = budget_in(tmp_path, hands)
    again.count([running(launch_time=hands.wall - 51 * HOUR)])
    assert [sum(day.values()) for _, day in sorted(again.days().items())] == pytest.approx(
        [1.0, 24.0, 24.0, 2.0]
    )
    assert again.spent_today()[0] == pytest.approx(2.0)


# ---------------------------------------------------------------------- a budget of a longer period
MONTH = (SpendingLimit(usd=10.0, payers={"physics": 4.0}, period="month"),)


def test_a_months_budget_counts_what_was_spent_on_its_earlier_days(tmp_path: Path, hands: Hands) -> None:
    hands.wall = NOON
    budget = budget_in(tmp_path, hands)
    node = running(launch_time=NOON, usd_per_hour=1.0, shares={"physics": 1.0}, left_usd=0.0)
    budget.count([node])
    hands.pass_by(HOUR * 3)
    budget.count([node])
    budget.count([])
    hands.pass_by(24 * HOUR)
    assert budget.spent_today()[0] == 0.0
    assert "this month" in budget.promise([wish("burst1", 7.5, "bio")], MONTH)["burst1"]
    assert budget.promise([wish("burst1", 5.0, "bio")], MONTH) == {}
    assert budget.promise([wish("burst2", 0.4)], MONTH) == {}
    assert "physics" in budget.promise([wish("burst3", 0.05), wish("burst4", 1.0)], MONTH)["burst4"]
    assert budget.exhausted(MONTH) == (False, frozenset())
    hands.pass_by(31 * 24 * HOUR)
    budget.release(["burst1", "burst2", "burst3"], launched=False)
    assert budget.promise([wish("burst1", 9.5, "bio")], MONTH) == {}


def test_a_lost_record_is_rebuilt_for_the_whole_period(tmp_path: Path, hands: Hands) -> None:
    hands.wall = NOON + 48 * HOUR
    (tmp_path / "budget.json").write_bytes(b"{")
    budget = SpendingBudget(BUDGET.at(tmp_path), hands.clock)
    since = NOON - 12 * HOUR
    assert budget.needs_history(since)
    two_days_ago = PaidTime(
        instance_id="i-1", node="burst1", since=NOON, until=NOON + 6 * HOUR, usd_per_hour=1.0
    )
    last = PaidTime(
        instance_id="i-2", node="burst2", since=hands.wall - 360.0, until=hands.wall, usd_per_hour=1.0
    )
    budget.rebuild([], [], [two_days_ago, last], since)
    assert budget.spent_today()[0] == pytest.approx(0.1)
    assert "6.10 USD of 10.00 for this month" in budget.promise([wish("burst1", 4.5, "bio")], MONTH)["burst1"]
    assert "for account physics" in budget.promise([wish("burst1", 0.1)], MONTH)["burst1"]


def test_what_a_month_has_left_is_carried_over_to_the_next_one_only(tmp_path: Path, hands: Hands) -> None:
    hands.wall = datetime(2026, 10, 31, 12, tzinfo=UTC).timestamp()
    budget = budget_in(tmp_path, hands)
    limit = SpendingLimit(usd=10.0, payers={"physics": 4.0}, period="month", carries_over=True)
    node = running(launch_time=hands.wall, usd_per_hour=1.0, shares={"bio": 1.0}, left_usd=0.0)
    budget.count([node])
    hands.pass_by(HOUR)
    budget.count([node])
    budget.count([])
    hands.pass_by(24 * HOUR)
    # one day of October had a budget, 10 / 31 USD; more than that was spent
    assert "10.00 for this month" in budget.promise([wish("burst1", 10.1, "bio")], (limit,))["burst1"]
    assert budget.promise([wish("burst1", 4.06)], (limit,)) == {}, "an account that has spent nothing"
    hands.pass_by(30 * 24 * HOUR)
    budget.release(["burst1"], launched=False)
    assert budget.promise([wish("burst1", 19.9, "bio")], (limit,)) == {}
    assert budget.exhausted((limit,)) == (False, frozenset())
    assert "20.00 for this month" in budget.promise([wish("burst1", 20.1, "bio")], (limit,))["burst1"]


@pytest.mark.parametrize(
    ("before", "now", "most"), [(10.0, 30.0, 31.0), (30.0, 10.0, 11.0), (0.0, 10.0, 10.0)]
)
def test_a_budget_that_is_changed_carries_over_what_it_had_left(
    tmp_path: Path, hands: Hands, before: float, now: float, most: float
) -> None:
    """The new budget counted for the month before as well; so did one that there was not."""
    hands.wall = datetime(2026, 9, 30, tzinfo=UTC).timestamp()
    budget = budget_in(tmp_path, hands)
    old, new = (SpendingLimit(usd=usd, period="month", carries_over=True) for usd in (before, now))
    hands.wall = datetime(2026, 10, 30, tzinfo=UTC).timestamp()
    budget.exhausted((old,) if before else ())
    hours = max(0.0, before - 1.0) + 0.001
    node = running(launch_time=hands.wall, usd_per_hour=1.0, shares={"bio": 1.0}, left_usd=0.0)
    budget.count([node])
    hands.pass_by(hours * HOUR)
    budget.count([node])
    hands.wall = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
    again = budget_in(tmp_path, hands)
    (found,) = again.budgets((new,))
    assert found.most == pytest.approx(most, abs=0.01)
    assert again.books().money(new, "", hands.wall, promised=0.0).carried == pytest.approx(found.carried)


def test_users_have_budgets_of_their_own_and_any_other_user_too(tmp_path: Path, hands: Hands) -> None:
    budget = budget_in(tmp_path, hands)
    limit = SpendingLimit(payers={"user ann": 4.0, "user *": 1.0}, period="week")

    def asked(node: str, usd: float, user: str) -> str:
        request = LaunchRequest(node=node, account="bio", user=user, usd=usd, usd_per_hour=1.0)
        return budget.promise([request], (limit,)).get(node, "")

    assert "of 1.00 for user bob this week" in asked("burst1", 1.5, "bob")
    assert asked("burst1", 0.9, "bob") == ""
    assert "0.90 USD of 1.00 for user bob" in asked("burst2", 0.5, "bob")
    assert asked("burst2", 0.5, "eve") == "", "each of the others has as much"
    assert asked("burst3", 3.0, "ann") == ""
    hands.pass_by(HOUR)
    budget.count([running("burst3", shares={"bio": 1.0, "user ann": 1.0}, left_usd=2.5)])
    again = budget_in(tmp_path, hands)
    found = {one.payer: one for one in again.budgets((limit,))}
    assert (found["user ann"].spent, found["user ann"].promised) == (pytest.approx(1.0), 2.5)
    assert found.keys() == {"user ann"}, "bob's node never came"
    assert again.exhausted((limit,)) == (False, frozenset())
    assert (
        "3.50 USD of 4.00 for user ann"
        in again.promise(
            [LaunchRequest(node="burst4", account="", user="ann", usd=0.6, usd_per_hour=1.0)], (limit,)
        )["burst4"]
    )
    (_, by_payer), _ = again.exposure("week")
    assert by_payer == {"bio": pytest.approx(1.0), "user ann": pytest.approx(1.0)}


def test_what_was_rebuilt_counts_against_each_user_and_nothing_is_carried_over_twice(
    tmp_path: Path, hands: Hands
) -> None:
    hands.wall = datetime(2026, 11, 12, tzinfo=UTC).timestamp()
    budget = SpendingBudget(BUDGET.at(tmp_path), hands.clock)
    since = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    paid = [PaidTime(instance_id="i-1", node="burst1", since=since, until=since + 3 * HOUR, usd_per_hour=1.0)]
    budget.rebuild([], [], paid, since)
    limit = SpendingLimit(payers={"user *": 4.0}, period="month", carries_over=True)
    request = LaunchRequest(node="burst2", account="", user="ann", usd=1.5, usd_per_hour=1.0)
    assert "3.00 USD of 4.00 for user ann" in budget.promise([request], (limit,))["burst2"]
    assert budget.began == since, "the budget had begun before the record was lost"


def test_a_site_limit_of_nothing_is_no_limit_and_an_accounts_is_one(tmp_path: Path, hands: Hands) -> None:
    settings = Settings(budget=BudgetSettings(accounts={"bio": 0.0}, period="day"))
    (limit,) = limits_of(settings)
    budget = budget_in(tmp_path, hands)
    refused = budget.promise([wish("burst1", 0.1, "bio"), wish("burst2", 0.1, "chem")], (limit,))
    assert refused.keys() == {"burst1"}
    assert budget.exhausted((limit,)) == (False, frozenset({"bio"}))


def test_a_name_that_is_used_again_at_once_is_another_instance(tmp_path: Path, hands: Hands) -> None:
    """No list of instances has come since the first one was ended."""
    budget, limits = budget_in(tmp_path, hands), day_limits(100.0)
    budget.promise([wish("burst1", 1.0)], limits)
    budget.count([running(launch_time=hands.wall)])
    budget.release(["burst1"], launched=True)
    assert budget.launched_at("burst1") is None
    budget.promise([wish("burst1", 1.0)], limits)
    budget.release(["burst1"], launched=True)
    assert budget.spent_today()[0] == pytest.approx(2.0 / 60.0)  # a minute of each
