"""How long a replay may still take, by a clock set by hand."""

from __future__ import annotations

from advisor.papers.portfolio.replay_progress import CUT, IN_ALL, Steps


def part(seconds: float, of: float) -> tuple[int, int]:
    """What the bar for all of it shows."""
    return round(10_000 * seconds / of), 10_000


class Told:
    """A clock, and what was told last of each thing."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.last: dict[str, tuple[int, int]] = {}
        self.steps = Steps(self, ("first", "second"), lambda: self.now)

    def __call__(self, what: str, done: int, count: int) -> None:
        self.last[what] = (done, count)


def after_policies() -> Told:
    """Sixty policies took two minutes."""
    told = Told()
    told.steps.policies(0, 60)
    assert IN_ALL not in told.last  # nothing is known yet
    told.now += 60.0
    told.steps.policies(30, 60)
    assert told.last["policies"] == (30, 60)
    assert told.last[IN_ALL] == part(60, 120 + 2 * 360)  # a pass with choices: three times all policies
    told.now += 60.0
    told.steps.policies(60, 60)
    return told


def test_a_pass_tells_by_itself_how_long_it_takes() -> None:
    told = after_policies()
    told.now += 10.0
    told.steps.passed(0, 10, 1000)
    assert told.last["first"] == (10, 1000)
    assert told.last[IN_ALL] == part(130, 120 + 2 * 360)  # too early
    told.now += 90.0
    told.steps.passed(0, 500, 1000)
    assert told.last[IN_ALL] == part(220, 120 + 2 * 200)


def test_the_next_pass_takes_as_long_at_the_same_places() -> None:
    """The first half of the log is calm, the second one a burst."""
    told = after_policies()
    told.now += 10.0
    told.steps.passed(0, 500, 1000)
    told.now += 90.0
    told.steps.passed(0, 1000, 1000)
    assert told.last[IN_ALL] == part(220, 320)
    told.now += 12.0
    told.steps.passed(1, 500, 1000)
    assert told.last[IN_ALL] == part(232, 220 + 12 + 90)
    told.now += 100.0
    told.steps.passed(1, 1000, 1000)
    assert told.last[IN_ALL] == part(332, 332)


def test_choices_cut_short_are_told_where_there_are_any() -> None:
    told = Told()
    told.steps.cut(0, 500)
    assert CUT not in told.last
    told.steps.cut(3, 1000)
    assert told.last[CUT] == (3, 1000)
