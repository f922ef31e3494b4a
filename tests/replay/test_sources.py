"""Logs as a replay reads them."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from advisor.replay.sources import load_table
from tests.history.swf_lines import LINE, log


def test_lines_that_are_no_job_are_skipped_and_told(tmp_path: Path) -> None:
    with capture_logs() as logs:
        table = load_table(log(tmp_path, LINE, LINE.replace("100", "nan"), "seven words are no job at all"))
    assert len(table) == 1
    (told,) = logs
    assert (told["event"], told["lines"], told["first_line"]) == ("trace.lines_skipped", 2, 2)
    assert told["reason"] == "run time is not a number"


def test_nothing_is_told_of_a_log_without_such_lines(tmp_path: Path) -> None:
    with capture_logs() as logs:
        load_table(log(tmp_path, "; MaxProcs: 64", LINE))
    assert logs == []
