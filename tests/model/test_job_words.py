"""Constraints, index expressions of arrays and generic resources, as the hook and squeue write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.job_words import (
    MAX_ARRAY_TASKS,
    array_at_once,
    besides_processors,
    count_array_tasks,
    feature_words,
)


@pytest.mark.parametrize(
    ("expression", "tasks"),
    [
        (None, 1), ("", 1), ("5", 1), ("0-9", 10), ("1-7%2", 7), ("1-7:2", 4), ("1,3,9", 3),
        ("1-3,10-12:2%5", 5), ("[1-4]", 4), ("0-999999999", MAX_ARRAY_TASKS), ("9-1", 1), ("1-5:0", 1),
        ("N/A", 1), ("1,5-9:2", 4), ("x", 1), ("1-", 1), ("%5", 1), ("9" * 5000, 1),
    ],
)  # fmt: skip
def test_array_tasks_are_counted(expression: str | None, tasks: int) -> None:
    assert count_array_tasks(expression) == tasks


@pytest.mark.parametrize(
    ("expression", "tasks"),
    [(None, None), ("1-7", None), ("1-7%2", 2), ("[3-2000%50]", 50), ("1,2%0", None), ("%x", None)],
)
def test_tasks_that_may_run_at_a_time(expression: str | None, tasks: int | None) -> None:
    assert array_at_once(expression) == tasks


@given(st.text(max_size=50))
def test_any_array_expression_is_a_number_of_tasks(expression: str) -> None:
    assert 1 <= count_array_tasks(expression) <= MAX_ARRAY_TASKS


def test_feature_words_of_any_expression() -> None:
    assert feature_words("x86&fast") == ("x86", "fast")
    assert feature_words("[rack1*2&rack2*4]|onprem") == ("rack1", "rack2", "onprem")
    assert feature_words(None) == ()


@pytest.mark.parametrize(
    ("tres", "found"),
    [
        (None, None),
        ("", None),
        ("cpu=4", None),
        ("cpu:4,mem=3", None),
        ("gres:gpu:2", "gres:gpu:2"),
        ("cpu=4,gres/gpu=1", "cpu=4,gres/gpu=1"),
    ],
)
def test_processors_and_memory_are_no_generic_resources(tres: str | None, found: str | None) -> None:
    assert besides_processors(tres) == found
