"""Blanks, quotes, doubled quotes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.lsf.fields import Fields, MalformedRecord, layout

one_line = st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=["Cs"]), max_size=30)


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def test_blanks_of_any_number_part_fields() -> None:
    fields = Fields('  "a"   7\t-1.5 ""  "b c"  ')
    assert fields.text("one") == "a"
    assert fields.whole("two") == 7
    assert fields.real("three") == -1.5
    assert (fields.text("four"), fields.text("five")) == ("", "b c")
    assert len(fields) == 0


@given(st.lists(st.one_of(one_line, st.integers(-(10**17), 10**17))))
def test_what_is_written_is_read(values: list[str | int]) -> None:
    fields = Fields(" ".join(quoted(value) if isinstance(value, str) else str(value) for value in values))
    for value in values:
        found = fields.text("text") if isinstance(value, str) else fields.whole("number")
        assert found == value
    assert len(fields) == 0


@pytest.mark.parametrize("line", ['"open', '"a"b', '"JOB_FINISH "10.1" 5', '""" ', '"a" "b'])
def test_stray_quotes(line: str) -> None:
    with pytest.raises(MalformedRecord, match="stray quote"):
        Fields(line)


@given(st.text(max_size=200))
def test_any_line_is_read_or_refused(line: str) -> None:
    try:
        fields = Fields(line)
    except MalformedRecord:
        return
    assert len(fields) <= len(line)


def test_a_line_of_quotes_takes_no_longer_than_others() -> None:
    """Each quote may begin a string: looking for the end of every one of them would take hours."""
    with pytest.raises(MalformedRecord):
        Fields('"' * 1_000_001)  # the test's time limit is the judge


def test_errors_name_the_field() -> None:
    with pytest.raises(MalformedRecord, match=r"field 1 \(job id\) is a string instead of a whole number"):
        Fields('"x"').whole("job_id")
    with pytest.raises(MalformedRecord, match=r"field 1 \(queue\) is '7' instead of a string in quotes"):
        Fields("7").text("queue")
    with pytest.raises(MalformedRecord, match=r"field 1 \(CPU time\) is 'x' instead of a number"):
        Fields("x").real("CPU time")
    with pytest.raises(MalformedRecord, match="ends after 1 fields, before user"):
        Fields("7").all_of(layout("job_id:d user:s"))


@pytest.mark.parametrize("text", ["1_000", "٣", "1.5", "+1", "1e3", "9" * 19, "0x1"])
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(MalformedRecord):
        Fields(text).whole("number")


@pytest.mark.parametrize("text", ["nan", "inf", "1.", ".5", "1_0.0", "0.1abc"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(MalformedRecord):
        Fields(text).real("number")


def test_counted_strings() -> None:
    fields = Fields('2 "a" "b" 0 7')
    assert fields.texts("hosts") == ("a", "b")
    assert fields.texts("hosts") == ()
    with pytest.raises(MalformedRecord, match="7 hosts, but 0 fields are left"):
        fields.texts("hosts")
    with pytest.raises(MalformedRecord, match="-1 hosts"):
        Fields("-1").texts("hosts")
    with pytest.raises(MalformedRecord, match="instead of a string"):
        Fields('2 "a" 64').texts("hosts")


def test_names_stand_with_or_without_quotes() -> None:
    fields = Fields('host1 "host2" 7')
    assert (fields.word("host"), fields.word("host")) == ("host1", "host2")
    with pytest.raises(MalformedRecord):
        fields.word("host")


def test_numbers_up_to_something_else() -> None:
    fields = Fields('1 2 -3 "x" 4')
    assert fields.wholes("numbers") == [1, 2, -3]
    assert fields.wholes("numbers") == []
    assert fields.text("x") == "x"


def test_unwanted_fields_do_not_decide_but_must_be_there() -> None:
    assert Fields('7 "x" 1.5 8').all_of(layout("a:d -:s -:f b:d")) == {"a": 7, "b": 8}
    assert Fields('7 0 "x" 8').all_of(layout("a:d -:s -:f b:d")) == {"a": 7, "b": 8}
    with pytest.raises(MalformedRecord, match="is a string instead of a whole number"):
        Fields('7 0 1.5 "x"').all_of(layout("a:d -:s -:f b:d"))
    with pytest.raises(MalformedRecord, match="the record ends after 2 fields, before an unused field"):
        Fields("7 0").all_of(layout("a:d -:s -:f"))
