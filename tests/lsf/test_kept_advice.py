"""The advice of live jobs of LSF, on disk."""

from __future__ import annotations

from pathlib import Path

from advisor.files.state_file import StateFile
from advisor.lsf.kept_advice import AdviceBook, AdviceOfLiveJobs

COMMENT = '{"burst_advisor":1,"id":"a-1"}'


def id_of(book: AdviceBook, job_id: int) -> str | None:
    found = book.advice_of(job_id)
    return None if found is None else found.advice_id


def test_a_move_is_done_where_the_job_is_seen_in_its_queue(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "kept.json", AdviceOfLiveJobs)
    book = AdviceBook(file)
    book.keep({7: COMMENT, 8: COMMENT}, {7: "aws", 8: "aws"})
    assert book.comments == {}
    after_a_crash = AdviceBook(file)
    after_a_crash.settle({7, 8}, {7: "aws", 8: "normal"}, 1000.0)
    assert AdviceBook(file).comments == {7: COMMENT}  # 8 was not moved: it is asked about again


def test_advice_outlives_its_job_for_an_hour(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "kept.json", AdviceOfLiveJobs)
    book = AdviceBook(file)
    book.keep({7: COMMENT, 9: COMMENT}, {})
    book.settle({7}, {7: "normal"}, 1000.0)
    assert id_of(book, 9) == id_of(book, 3 << 32 | 9) == "a-1"
    book.settle({7, 9}, {7: "normal", 9: "normal"}, 1010.0)  # it was requeued
    book.settle({7}, {7: "normal"}, 4605.0)
    assert id_of(book, 9) == "a-1"
    book.settle({7}, {7: "normal"}, 8206.0)
    assert (id_of(book, 9), id_of(book, 7)) == (None, "a-1")
    assert file.read().jobs.keys() == {7}
