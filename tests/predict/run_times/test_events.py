"""The order in which a history teaches run times."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from advisor.predict.run_times.events import submissions_and_ends

few = st.integers(0, 3)  # so that many moments are equal


@given(st.lists(st.tuples(few, few), max_size=12))
def test_by_time_ends_first_and_earlier_jobs_first(jobs: list[tuple[int, int]]) -> None:
    submits, ends = [submit for submit, _ in jobs], [submit + run for submit, run in jobs]
    expected = sorted(
        [(time, False, row) for row, time in enumerate(ends)]
        + [(time, True, row) for row, time in enumerate(submits)]
    )
    found = list(submissions_and_ends(submits, ends))
    assert found == [(row, not is_submission) for _, is_submission, row in expected]
