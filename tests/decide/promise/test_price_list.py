"""A job's price list: what it offers, and when a job has to start in the cloud for it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.decide.promise.chances import ended_of, kept_there, run_at
from advisor.decide.promise.price_list import (
    Levels,
    Outlook,
    SpotLives,
    comes_back,
    goes,
    last_start,
    last_start_on_spot,
    late_on_spot,
    price_list,
    start_for,
)
from advisor.model.advice import Capacity
from advisor.predict.promised.levels import Kind
from advisor.predict.run_times.grid import BINS, GRID

LEVELS = Levels(0.95, 0.95, 0.9)


def outlook(planned: float = 36_000.0, start: float = 120.0) -> Outlook:
    """A job of about an hour that waits up to its plan."""
    runs = np.zeros(BINS)
    runs[32:36] = 0.25
    return Outlook(
        planned=planned,
        waits=np.linspace(0.1, 1.0, 10) * planned,
        shares=np.full(10, 0.1),
        ended=ended_of(runs),
        limit=7200.0,
        start=start,
        slowdown=1.1,
        price=0.01,
    )


def test_sooner_costs_more() -> None:
    soonest, between, free = price_list(outlook(), LEVELS)
    assert (soonest.kind, between.kind, free.kind) == (Kind.SOONEST, Kind.BETWEEN, Kind.FREE)
    assert soonest.ready < between.ready < free.ready
    assert soonest.cost > between.cost > free.cost == 0.0
    assert soonest.last_start == 0.0 < between.last_start < free.last_start == math.inf


def test_the_soonest_row_is_kept_as_often_as_it_says() -> None:
    seen = outlook()
    soonest = price_list(seen, LEVELS)[0]
    kept = kept_there(seen.ended, soonest.ready, seen.start, seen.slowdown, seen.limit)
    assert kept == pytest.approx(0.95, abs=1e-3)


@pytest.mark.parametrize("seen", [outlook(planned=0.0), outlook(planned=60.0, start=3600.0)])
def test_a_job_that_is_not_sooner_there_has_one_row_and_it_is_free(seen: Outlook) -> None:
    (only,) = price_list(seen, LEVELS)
    assert (only.kind, only.cost) == (Kind.FREE, 0.0)


def test_a_row_whose_start_would_be_in_vain_is_not_offered() -> None:
    """A long plan that is rarely true: most jobs would be done here by then, without any cost."""
    waits, shares = np.linspace(0.0, 36_000.0, 10), np.array([0.91, *[0.01] * 9])
    between, free = price_list(outlook()._replace(waits=waits, shares=shares), Levels(0.99, 0.95, 0.9))
    assert (between.kind, free.kind) == (Kind.BETWEEN, Kind.FREE)
    assert 0.0 < between.last_start < free.ready


@pytest.mark.parametrize(
    ("planned", "kinds"), [(14_400.0, [Kind.FREE]), (360_000.0, [Kind.BETWEEN, Kind.FREE])]
)
def test_a_row_between_is_listed_where_its_start_would_be_needed(planned: float, kinds: list[Kind]) -> None:
    """Few runs are long, but the last start allows for them: if waits end soon after it, it is in vain."""
    runs = np.zeros(BINS)
    runs[[24, 40]] = 0.97, 0.03
    seen = outlook(planned=planned)._replace(ended=ended_of(runs), limit=90_000.0)
    rows = price_list(seen, Levels(0.95, 0.95, 0.99))
    assert [row.kind for row in rows if row.kind != Kind.SOONEST] == kinds


def test_the_last_start_leaves_time_for_the_boot_and_a_long_run() -> None:
    seen = outlook()
    left = 30_000.0
    last = last_start(seen, left, 0.9)
    kept = kept_there(seen.ended, left - last, seen.start, seen.slowdown, seen.limit)
    assert kept == pytest.approx(0.9, abs=1e-3)
    assert last_start(seen, 100.0, 0.9) == 0.0


def test_a_job_starts_where_it_would_be_late_on_premise() -> None:
    assert goes(outlook(planned=90_000.0), 9_000.0, strain=0.1, kind=Kind.BETWEEN)
    assert not goes(outlook(planned=2.0), 20_000.0, strain=0.9, kind=Kind.BETWEEN)  # in time anyhow
    assert not goes(outlook(), 10.0, strain=0.99, kind=Kind.BETWEEN)  # too late


def test_a_start_that_would_be_in_vain_is_cheaper_where_the_job_may_come_back() -> None:
    seen = outlook(planned=5_000.0)
    lefts = np.linspace(4_000.0, 9_000.0, 200)
    gives_up = [goes(seen, left, strain=0.5, kind=Kind.BETWEEN) for left in lefts]
    comes = [goes(seen._replace(keeps_place=True), left, strain=0.5, kind=Kind.BETWEEN) for left in lefts]
    assert sum(comes) > sum(gives_up) > 0
    assert all(kept or not lost for kept, lost in zip(comes, gives_up, strict=True))


def test_a_job_comes_back_where_that_is_in_time() -> None:
    seen = outlook()

    def is_back(left: float, elapsed: float) -> bool:
        """Whether a job comes back that has run there as far as here in `elapsed` seconds."""
        return comes_back(
            seen.ended,
            limit=seen.limit,
            slowdown=seen.slowdown,
            left=left,
            elapsed=seen.slowdown * elapsed,
            boot_left=0.0,
            strain=0.0,
            kind=Kind.BETWEEN,
        )

    assert is_back(9000.0, elapsed=60.0)
    # it would begin anew with too little time left, and has nearly ended in the cloud
    assert not is_back(1500.0, elapsed=float(GRID[33]))


def test_less_is_enough_where_promises_were_broken() -> None:
    seen = outlook()
    left = next(
        left
        for left in np.linspace(9000.0, 60_000.0, 200)
        if not goes(seen, left, strain=0.5, kind=Kind.BETWEEN)
    )
    assert goes(seen, left, strain=0.9, kind=Kind.BETWEEN)


def test_a_row_between_is_later_where_long_runs_came_too_late() -> None:
    seen = outlook(planned=360_000.0)
    rows = [{row.kind: row for row in price_list(seen, Levels(0.8, 0.8, level))} for level in (0.9, 0.995)]
    usual, later = (one[Kind.BETWEEN] for one in rows)
    longer = run_at(seen.ended, 0.995, seen.limit) - run_at(seen.ended, 0.9, seen.limit)
    assert later.ready == pytest.approx(usual.ready + 0.5 * seen.slowdown * longer)
    assert usual.ready < later.ready < rows[0][Kind.FREE].ready


def test_of_a_dear_start_less_may_be_in_vain() -> None:
    """One of five jobs starts at once, so a fifth of the cost is in vain."""
    waits, shares = np.linspace(0.0, 36_000.0, 10), np.array([0.2, *np.full(9, 0.8 / 9)])
    seen = outlook()._replace(waits=waits, shares=shares)
    soonest = price_list(seen, LEVELS)[0]
    assert soonest.kind == Kind.SOONEST
    dear = seen._replace(thrift=0.5)
    assert [row.kind for row in price_list(dear, LEVELS)] == [Kind.BETWEEN, Kind.FREE]
    lefts = np.linspace(9_000.0, 60_000.0, 200)
    starts, dear_starts = (
        [goes(one, left, strain=0.9, kind=Kind.BETWEEN) for left in lefts] for one in (seen, dear)
    )
    assert sum(starts) > sum(dear_starts) > 0
    assert all(start or not dear_start for start, dear_start in zip(starts, dear_starts, strict=True))


def lives(mean_hours: float) -> SpotLives:
    return SpotLives(np.exp(-GRID / 3600.0 / mean_hours), 0.02)


@pytest.mark.parametrize("mean_hours", [4.0, 8.0, 15.0])
def test_the_last_start_on_spot_leaves_time_for_a_loss(mean_hours: float) -> None:
    left, spot = 30_000.0, lives(mean_hours)
    seen = outlook()._replace(spot=spot)
    latest = last_start(seen, left, 0.9)
    on_spot = last_start_on_spot(seen, left, latest)
    assert on_spot is not None
    assert 0.0 < on_spot < latest
    assert late_on_spot(seen, spot, left - on_spot) <= 0.02
    assert late_on_spot(seen, spot, left - on_spot - 60.0) > 0.02
    assert last_start_on_spot(seen, left - latest, 0.0) is None  # it has passed
    assert last_start_on_spot(outlook(), left, latest) is None


def test_where_instances_last_spot_is_used_to_the_last_moment() -> None:
    seen = outlook()._replace(spot=lives(10_000.0))
    latest = last_start(seen, 30_000.0, 0.9)
    assert last_start_on_spot(seen, 30_000.0, latest) == latest


def test_a_start_is_on_spot_while_that_keeps_the_time() -> None:
    seen, left = outlook(planned=90_000.0), 20_000.0
    given = {"strain": 0.1, "kind": Kind.BETWEEN}
    latest = last_start(seen, left, 0.9)
    spot = seen._replace(spot=lives(15.0))
    until = last_start_on_spot(spot, left, latest)
    assert until is not None
    assert start_for(seen, left, latest, **given) == (None, latest)
    assert start_for(spot, left, latest, **given) == (None, until)
    assert start_for(spot, left - until, latest - until, **given) == (Capacity.SPOT, 0.0)
    # a poll that comes late has the start on-demand left
    assert start_for(spot, left - until - 600.0, latest - until - 600.0, **given) == (
        None,
        latest - until - 600.0,
    )
    assert start_for(spot, left - latest, 0.0, **given) == (Capacity.ON_DEMAND, 0.0)
    # its turn here comes sooner: no start is worth its money yet
    near = spot._replace(waits=seen.waits / 50.0)
    assert start_for(near, left - until, latest - until, **given) == (None, latest - until)
    assert start_for(near, left - latest, 0.0, **given) == (None, 0.0)
