"""Finish in the cloud, or start anew here?"""

from __future__ import annotations

import math

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from advisor.decide.hedge.stay_or_go import stays_at_slot, stays_past_stop

SECONDS = st.floats(1.0, 1e6)
# the first call compiles, and the machine may be busy
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def at_slot(elapsed: float, limit: float | None, slowdown: float, *runs: float) -> bool:
    return stays_at_slot(
        processors=4,
        slowdown=slowdown,
        elapsed_seconds=elapsed,
        own_limit_seconds=limit,
        run_quantiles=runs,
    )


@PATIENT
@given(elapsed=SECONDS, run=SECONDS, slowdown=st.floats(0.5, 20.0))
def test_with_one_run_time_it_does_what_ends_sooner(elapsed: float, run: float, slowdown: float) -> None:
    """Staying ends at s*r, starting anew at elapsed + r."""
    assume(slowdown * run > elapsed * 1.001)  # else it would have ended
    assume(not math.isclose(slowdown * run, elapsed + run, rel_tol=1e-6))
    assert at_slot(elapsed, None, slowdown, run) == (slowdown * run < elapsed + run)


@PATIENT
@given(elapsed=SECONDS, limit=SECONDS, slowdown=st.floats(0.5, 20.0), share=st.floats(0.0, 1.0))
def test_without_a_forecast_it_stays_only_where_that_is_certain(
    elapsed: float, limit: float, slowdown: float, share: float
) -> None:
    run = share * limit
    if at_slot(elapsed, limit, slowdown) and slowdown * run > elapsed:
        assert slowdown * run <= elapsed + run + 1e-6 * limit


def test_without_limit_or_forecast_nothing_is_certain() -> None:
    assert not at_slot(1e9, None, 1.0)


def test_a_limit_below_the_forecast_counts() -> None:
    assert at_slot(50.0, 100.0, 1.4, 1000.0, 2000.0)  # at 140 there, at 150 here
    assert not at_slot(50.0, None, 1.4, 1000.0, 2000.0)


@PATIENT
@given(
    elapsed=SECONDS,
    limit=SECONDS,
    slowdown=st.floats(0.5, 20.0),
    wait=st.floats(0.0, 1e6),
    share=st.floats(0.0, 1.0),
)
def test_past_its_stop_it_stays_only_where_its_slot_comes_after_its_end(
    elapsed: float, limit: float, slowdown: float, wait: float, share: float
) -> None:
    stays = stays_past_stop(
        slowdown=slowdown, elapsed_seconds=elapsed, own_limit_seconds=limit, further_wait_seconds=wait
    )
    left = slowdown * share * limit - elapsed
    if stays:
        assert left <= wait + 1e-6 * limit
    elif share > 0.999:
        assert left >= wait - 0.01 * slowdown * limit


def test_past_its_stop_what_is_not_known_is_no_reason_to_stay() -> None:
    known = {"slowdown": 1.0, "elapsed_seconds": 10.0}
    assert not stays_past_stop(**known, own_limit_seconds=None, further_wait_seconds=1e9)
    assert not stays_past_stop(**known, own_limit_seconds=100.0, further_wait_seconds=None)
