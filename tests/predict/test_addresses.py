"""Calls with an address: the same numbers at the same places, compiled and as Python."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from advisor.predict._addresses import (
    WORD_BYTES,
    Placed,
    address_of,
    block,
    by_address,
    doubles_at,
    entry,
    integers_at,
    keys_at,
    singles_at,
    words_at,
)

_SUM, _PLACE, _COUNT, _BLOCK = range(4)
KINDS = {
    doubles_at: np.float64,
    singles_at: np.float32,
    words_at: np.int64,
    keys_at: np.uint64,
    integers_at: np.int32,
}


@by_address
def add_up(address: int) -> float:
    """Add up what is at a place named in the block; note the sum in it."""
    words = words_at(address, _BLOCK)
    total = 0.0
    for number in doubles_at(words[_PLACE], words[_COUNT]):
        total += number
    doubles_at(address + WORD_BYTES * _SUM, 1)[0] = total
    return total


def test_a_call_by_address_compiled_and_as_python() -> None:
    words, numbers = block(_BLOCK)
    array = np.arange(10.0) + 0.125
    words[_PLACE], words[_COUNT] = address_of(array), len(array)
    plain = add_up.py_func
    for call in (entry(add_up), add_up, entry(plain)):
        numbers[_SUM] = 0.0
        assert call(address_of(words)) == numbers[_SUM] == array.sum()


@pytest.mark.parametrize(("at", "number"), KINDS.items())
def test_what_is_at_an_address_is_the_array(at, number) -> None:
    array = np.arange(7).astype(number)
    found = at(address_of(array), 5)
    assert found.dtype == number
    found[2] = 42
    assert array.tolist() == [0, 1, 42, 3, 4, 5, 6]


def test_a_block_begins_a_cache_line_and_is_the_same_memory_twice() -> None:
    for size in (1, 3, 8, 100):
        words, numbers = block(size)
        assert address_of(words) % 64 == 0
        assert len(words) == len(numbers) == size
        numbers[-1] = 2.5
        assert words[-1] == np.array([2.5]).view(np.int64)[0]


def test_an_array_with_gaps_has_no_address() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        address_of(np.arange(10)[::2])


def test_who_holds_addresses_is_not_copied() -> None:
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="stays where it is"):
            duplicate(Placed())
