"""Numbers have their unit, text from outside is clean."""

from __future__ import annotations

import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.decide.explanation.display import clean, duration, quantity, significant
from advisor.model.advice import Quantity


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (45.4, "45 s"),
        (99.4, "99 s"),
        (99.6, "2 min"),
        (3540.0, "59 min"),
        (3599.0, "1 h 00 min"),
        (7500.0, "2 h 05 min"),
        (273_600.0, "3 d 04 h"),
        (-7500.0, "-2 h 05 min"),
        (math.nan, "unknown"),
        (math.inf, "unlimited"),
        (-math.inf, "-unlimited"),
    ],
)
def test_durations(value, text):
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Quantity(60.0), "60 s"),
        (Quantity(1.239, "USD"), "1.24 USD"),
        (Quantity(0.0, "USD"), "0.00 USD"),
        (Quantity(0.0152, "USD"), "0.015 USD"),
        (Quantity(0.00364, "USD"), "0.0036 USD"),
        (Quantity(0.0999, "USD"), "0.10 USD"),
        (Quantity(0.0213, "USD/core-h"), "0.0213 USD per core hour"),
        (Quantity(12.0, "cores"), "12 cores"),
        (Quantity(1.0, "nodes"), "1 node"),
        (Quantity(1.0, "MiB"), "1 MiB"),
        (Quantity(2e6, "GB"), "2,000,000 GB"),
        (Quantity(1.5, ""), "1.5"),
        (Quantity(1.23456e9, "s^2"), "9 h 46 min"),
        (Quantity(math.nan, "USD"), "an unknown sum"),  # "it would cost about an unknown sum"
        (Quantity(math.inf, "USD"), "any sum"),  # "it could cost any sum": a job without a time limit
        (Quantity(math.inf, "s^2"), "unlimited"),
    ],
)
def test_every_number_has_its_unit(value, text):
    assert quantity(value) == text


@given(st.text(max_size=300), st.integers(1, 50))
def test_clean_text_is_short_printable_and_one_line(text, limit):
    shown = clean(text, limit)
    assert len(shown) <= limit
    assert "\n" not in shown
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for c in shown)


def test_clean_keeps_what_is_harmless():
    assert clean("  naïve  ≤ text ") == "naïve ≤ text"
    assert clean("x" * 81) == "x" * 79 + "…"
    assert clean("x" * 80) == "x" * 80


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [(0.0421, 2, "0.042"), (99.4, 2, "99"), (123.4, 2, "123"), (1500.0, 3, "1,500"), (9999.7, 4, "10,000")],
)
def test_a_large_number_is_no_power_of_ten(number, digits, text):
    assert significant(number, digits) == text
