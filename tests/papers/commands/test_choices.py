"""Comma-separated options, and the page with figures."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from advisor.model.errors import BadInput
from advisor.papers.commands.choices import chosen
from advisor.service.admin.plots import refuse_unwritable
from tests.commands import app

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


@pytest.mark.parametrize(
    ("command", "log"),
    [
        *((name, "--trace") for name in ("classify", "placement", "portfolio", "schedule", "waiting")),
        ("stability", "--nodes"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_the_log_is_read(command, log, tmp_path):
    page = tmp_path / "nowhere" / "page.html"
    found = CliRunner().invoke(app, ["replay", command, log, "missing", "--plot", str(page)])
    assert isinstance(found.exception, BadInput)
    assert (found.exception.code, found.exception.where) == ("plot.unwritable", str(page))


def test_a_folder_is_no_page(tmp_path):
    with pytest.raises(BadInput, match="directory"):
        refuse_unwritable(tmp_path)
