"""Times as ``sbatch --begin`` takes them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from advisor.slurm.begin_time import begin_time

NOW = 1_795_356_000.0  # 2026-11-22T14:00:00 UTC, a Sunday


@pytest.fixture(autouse=True)
def greenwich(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2026-11-22T14:00:00"),
        ("now+1hour", "2026-11-22T15:00:00"),
        ("now + 90", "2026-11-22T14:01:30"),
        ("now+30min", "2026-11-22T14:30:00"),
        ("now+2days", "2026-11-24T14:00:00"),
        ("now+1week", "2026-11-29T14:00:00"),
        ("16:00", "2026-11-22T16:00:00"),
        ("13:59:59", "2026-11-23T13:59:59"),
        ("2:30pm", "2026-11-22T14:30:00"),
        ("12:15 AM", "2026-11-23T00:15:00"),
        ("midnight", "2026-11-23T00:00:00"),
        ("teatime", "2026-11-22T16:00:00"),
        ("noon", "2026-11-23T12:00:00"),
        ("tomorrow", "2026-11-23T00:00:00"),
        ("2026-11-30", "2026-11-30T00:00:00"),
        ("2026-11-30T08:05", "2026-11-30T08:05:00"),
        ("11/30/26-08:05:06", "2026-11-30T08:05:06"),
        ("01/05", "2027-01-05T00:00:00"),
        ("11.30.26", "2026-11-30T00:00:00"),
        ("113026", "2026-11-30T00:00:00"),
        ("2020-01-01", "2020-01-01T00:00:00"),
    ],
)
def test_day_one_7_times_as_sbatch_takes_them(text: str, moment: str) -> None:
    found = begin_time(text, NOW)
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found)) == moment


@pytest.mark.parametrize(
    "text", ["", "later", "now+", "now+1fortnight", "25:00", "13:00pm", "2026-13-01", "1/2/3/4", "now-1hour"]
)
def test_other_words_are_none(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whoever calls says what is wrong
        begin_time(text, NOW)


def test_a_time_of_day_is_one_of_the_clock_also_where_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Berlin's clocks go back an hour at 3:00 of 25 October."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    evening = begin_time("2026-10-24T20:00", NOW)
    assert begin_time("08:00", evening) == evening + 13 * 3600 == begin_time("2026-10-25T08:00", evening)
