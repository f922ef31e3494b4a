"""Finish in the cloud, or start anew here?"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.decide.hedge.stay_or_go import ends_sooner_there, stays_past_stop

SECONDS = st.floats(1.0, 1e6)
# the first call compiles, and the machine may be busy
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def at_slot(elapsed: float, limit: float | None, slowdown: float) -> bool:
    return ends_sooner_there(slowdown=slowdown, elapsed_seconds=elapsed, own_limit_seconds=limit)


@PATIENT
@given(elapsed=SECONDS, limit=SECONDS, slowdown=st.floats(0.5, 20.0), share=st.floats(0.0, 1.0))
def test_it_stays_only_where_that_is_certain(
    elapsed: float, limit: float, slowdown: float, share: float
) -> None:
    run = share * limit
    if at_slot(elapsed, limit, slowdown) and slowdown * run > elapsed:
        assert slowdown * run <= elapsed + run + 1e-6 * limit


def test_without_a_limit_nothing_is_certain() -> None:
    assert not at_slot(1e9, None, 1.0)


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
