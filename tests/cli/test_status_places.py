"""`advisor status` says how many places are kept."""

from __future__ import annotations

from advisor.service.admin.status_words import (
    _learned_rows,
    advised_in_words,
    asked_again_in_words,
    places_in_words,
)


def test_what_has_happened_is_said() -> None:
    counts = {"places_kept": 1200, "brought_back": 3, "moved_again": 1, "stayed": 2}
    content = {"now": {"open": 4, "placing": 1}, "counts": counts, "small_requeued": 1, "small_left": 0}
    assert places_in_words(content) == (
        "5 now, 1,200 so far, 3 brought back, 1 went there again, 2 stayed in the cloud, "
        "ran longer than small jobs may: 1 requeued, 0 left running"
    )


def test_nothing_is_said_of_nothing() -> None:
    assert not places_in_words({})
    assert not places_in_words({"now": {}, "counts": {}, "small_requeued": 0, "small_left": 0})


def test_jobs_asked_again_in_words() -> None:
    counts = {"on": True, "moving": 0, "would_move": 0, "asked": 1200, "moved": 3, "given_up": 1}
    assert asked_again_in_words(counts) == "3 moved while they waited; 1,200 decisions repeated"
    shadow = asked_again_in_words(counts | {"moved": 0, "would_move": 2})
    assert shadow == "0 moved while they waited, 2 would have been (shadow mode); 1,200 decisions repeated"
    assert asked_again_in_words(counts | {"on": False}) == asked_again_in_words({}) == ""


def test_jobs_advised_without_a_hook_in_words() -> None:
    counts = {"advised": 1200, "moved": 30, "left_alone": 0, "slowest_seconds": 1.6}
    assert advised_in_words(counts) == "1,200 advised, the slowest 2 s after its submission; 30 moved"
    none = {"advised": 0, "moved": 0, "left_alone": 2, "slowest_seconds": 0.0}
    assert advised_in_words(none) == "0 advised; 0 moved; 2 left alone"


def test_kept_promises_are_counted() -> None:
    """As docs/expect.md and the changelog say."""
    found = [dict(_learned_rows({"promises": {"made": made, "kept": 950, "open": {}}})) for made in (1000, 0)]
    assert found == [{"promises": "950 of 1,000 that are over were kept"}, {}]
