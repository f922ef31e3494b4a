"""Comma-separated options."""

from __future__ import annotations

import pytest

from advisor.model.errors import BadInput
from advisor.papers.commands.choices import chosen

KNOWN = ("capacity", "matched", "oracle")


def test_all_that_are_known_by_default():
    assert chosen(None, KNOWN, "--rows") == KNOWN


def test_words_keep_their_order_and_come_once():
    assert chosen(" Oracle,capacity,,oracle ", KNOWN, "--rows") == ("oracle", "capacity")


@pytest.mark.parametrize("text", ["matched,best", "", ","])
def test_unknown_words_are_refused_with_the_known_ones(text):
    with pytest.raises(BadInput) as refused:
        chosen(text, KNOWN, "--rows")
    assert "oracle" in refused.value.mend
    assert refused.value.where == "--rows"
