"""Data that a job brings, as its user writes it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.data_words import DataNeed, data_of, size_gb


@pytest.mark.parametrize(
    ("comment", "need"),
    [
        ("data=20GB", DataNeed(20.0, 0.0)),
        ("by=18:00, DATA=1.5t;data-out=500MB burst", DataNeed(1500.0, 0.5)),
        ("no-burst data-out=2G", DataNeed(0.0, 2.0)),
        ("data=1GB data=3GB", DataNeed(3.0, 0.0)),
        ("data=1GiB", DataNeed(1.073741824, 0.0)),
        ("metadata=20GB", None),
        ("my data", None),
        ("", None),
        (None, None),
    ],
)
def test_words(comment: str | None, need: DataNeed | None) -> None:
    assert data_of(comment) == need


@pytest.mark.parametrize("size", ["lots", "20", "-5GB", "1e9GB", "GB", "", "nan", "20GBs", "20\u212a"])
def test_what_is_no_size_is_said_and_unknown(size: str) -> None:
    need = data_of(f"data={size}")
    assert need is not None
    assert not need.is_known
    assert math.isnan(size_gb(size))


@given(st.text(max_size=80))
def test_any_comment_can_be_read(comment: str) -> None:
    need = data_of(comment)
    assert need is None or not need.is_known or (need.gb_in >= 0.0 and need.gb_out >= 0.0)
