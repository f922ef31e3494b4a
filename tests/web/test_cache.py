"""What is made once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from advisor.web.cache import Cache


def test_a_value_is_kept_for_its_time() -> None:
    now = [0.0]
    cache, made = Cache(lambda: now[0]), iter(range(9))
    assert cache.get("a", 10.0, made.__next__) == 0
    now[0] = 10.0
    assert cache.get("a", 10.0, made.__next__) == 0
    now[0] = 10.1
    assert cache.get("a", 10.0, made.__next__) == 1
    assert cache.get("b", 10.0, made.__next__) == 2


def test_many_who_ask_at_once_have_it_made_once() -> None:
    cache, made, may_end = Cache(lambda: 0.0), [], threading.Event()

    def slow() -> int:
        made.append(1)
        assert may_end.wait(30.0)
        return 5

    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(cache.get, "a", 1.0, slow) for _ in range(8)]
        # who wants something else, or something else for it, does not wait
        assert pool.submit(cache.get, "b", 1.0, lambda: 6).cancelled() is False
        may_end.set()
        assert {one.result(30.0) for one in found} == {5}
    assert made == [1]


def test_one_value_may_need_another() -> None:
    cache = Cache(lambda: 0.0)
    assert cache.get("a", 1.0, lambda: cache.get("b", 1.0, lambda: 2) + 1) == 3


def test_what_fails_is_tried_anew() -> None:
    cache = Cache(lambda: 0.0)
    with pytest.raises(ZeroDivisionError):
        cache.get("a", 1.0, lambda: 1 // 0)
    assert cache.get("a", 1.0, lambda: 7) == 7


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    cache, made = Cache(lambda: 0.0, most=2), iter(range(9))
    for key in ("a", "b", "a", "c"):
        cache.get(key, 1.0, made.__next__)
    assert cache.get("a", 1.0, made.__next__) == 0
    assert cache.get("b", 1.0, made.__next__) == 3
