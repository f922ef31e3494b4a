"""Tables at 80 columns and in pipes: by rule, and for every command that prints one."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from advisor.cli.tables import print_facts, print_table, wrapped

HEADINGS = ("job", "a long heading", "number", "why")
ROWS = [
    ("1", "word", "10.00", "It would wait 37 s here; done 33 s sooner there."),
    ("2345", "two words", "7.5", "Nothing the user said and no rule of the site keeps it on-premise."),
]


def printed(width: int | None, rows=ROWS, headings=HEADINGS, **options) -> list[str]:
    """Lines on a terminal of that width, or where there is none."""
    file = StringIO()
    console = Console(file=file, soft_wrap=True) if width is None else Console(file=file, width=width)
    print_table(console, headings, rows, **options)
    return file.getvalue().splitlines()


def test_day_one_14_a_row_is_a_line_where_nobody_looks():
    lines = printed(None, numbers=("number",), text="why")
    assert len(lines) == 1 + len(ROWS)
    assert lines[0] == "job   a long heading  number  why"
    assert lines[1] == f"1     word             10.00  {ROWS[0][3]}"


def test_day_one_14_sentences_are_wrapped_at_blanks_and_nothing_else_is():
    lines = printed(60, numbers=("number",), text="why")
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("job   a long")
    assert " ".join(" ".join(lines[2:4]).split()) == f"1 word 10.00 {ROWS[0][3]}"
    assert sum("10.00" in line for line in lines) == 1


@pytest.mark.parametrize("width", [20, 30, 40])
def test_day_one_14_columns_that_do_not_fit_follow_below_with_the_first_one_again(width):
    headings = ("policy", *(f"figure {number}" for number in range(8)))
    rows = [("published", *("1,234.5 %",) * 8), ("advisor", *("x 0.123",) * 8)]
    lines = printed(width, rows=rows, headings=headings, numbers=headings[1:])
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert text.count("1,234.5 %") == 8
    assert text.count("x 0.123") == 8
    assert text.count("published") == text.count("advisor") > 1
    assert "…" not in text


def test_wide_characters_are_counted_by_the_room_they_take():
    lines = printed(None, rows=[("日本", "a"), ("x", "b")], headings=("name", "other"))
    assert lines[1:] == ["日本  a", "x     b"]


def test_facts_go_on_below_their_beginning():
    file = StringIO()
    print_facts(Console(file=file, width=40), [("modes", "onprem: act, " * 6), ("short", "x")])
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("       ") for line in lines[1:-1])
    assert lines[-1] == "short  x"


@pytest.mark.parametrize("width", [1, 2, 5, 80])
def test_wrapping_loses_nothing(width):
    text = "a bb ccc dddd eeeee ffffffffff"
    lines = wrapped(text, width)
    assert max(map(len, lines)) <= width
    assert "".join(lines).replace(" ", "") == re.sub(" ", "", text)
