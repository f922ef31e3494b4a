"""`advisor status` says how many places are kept."""

from __future__ import annotations

from advisor.service.admin.status_words import places_in_words


def test_what_has_happened_is_said() -> None:
    counts = {"places_kept": 1200, "brought_back": 3, "stayed": 2}
    content = {"now": {"open": 4, "placing": 1}, "counts": counts, "small_requeued": 1, "small_left": 0}
    assert places_in_words(content) == (
        "5 now, 1,200 so far, 3 brought back, 2 stayed in the cloud, not small after all: 1 requeued, 0 left"
    )


def test_nothing_is_said_of_nothing() -> None:
    assert not places_in_words({})
    assert not places_in_words({"now": {}, "counts": {}, "small_requeued": 0, "small_left": 0})
