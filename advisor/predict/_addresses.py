"""Compiled functions that are told one number: the address of a block that says where everything else is.

Inside sbatch all caches are cold, and what an array costs as an argument is not its numbers but Python's and
numba's objects around them: after another program has run on the core a call with fifteen arrays took 18
microseconds, with four 13, with an address through numba's dispatcher 7 and without it 4. What an address
points to is kept alive by whoever owns the block.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np.numpy_support import carray
from numpy.typing import NDArray

R = TypeVar("R")
WORD_BYTES: Final = 8
_LINE_BYTES: Final = 64


def by_address(function: Callable[[int], R]) -> Callable[[int], R]:
    """Compile a function of one address; to be called through :func:`entry`.

    It keeps the interpreter's lock: it takes microseconds, and to give the lock away and to get it back
    touches more memory than it does.
    """
    try:
        return cast("Callable[[int], R]", njit(cache=True, error_model="numpy")(function))
    except RuntimeError:  # as in `compiled`
        return cast("Callable[[int], R]", njit(error_model="numpy")(function))


def entry(function: Callable[[int], R]) -> Callable[[int], R]:
    """The compiled code itself: numba need not look at the argument's type at each call."""
    compiled: Any = function
    if not hasattr(compiled, "overloads"):  # as Python, in tests
        return function
    signature = (types.int64,)
    compiled.compile(signature)
    return cast("Callable[[int], R]", compiled.overloads[signature].entry_point)


class Placed:
    """What holds addresses of its own arrays: a copy would hold those of the original, so there is none."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        msg = f"a {type(self).__name__} stays where it is"
        raise TypeError(msg)


def address_of(array: NDArray[Any]) -> int:
    """Where an array's first number is.

    Raises
    ------
    ValueError
        Its numbers do not follow each other.
    """
    if not array.flags.c_contiguous:
        msg = "the array is not contiguous"
        raise ValueError(msg)
    return int(array.ctypes.data)


def aligned(count: int, number: np.dtype[Any]) -> NDArray[Any]:
    """Room for so many zeros, from a cache line's beginning."""
    room = np.zeros(count * number.itemsize + _LINE_BYTES, np.uint8)
    first = -address_of(room) % _LINE_BYTES
    return room[first : first + count * number.itemsize].view(number)


def block(words: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Room for so many integers or doubles: the same memory as both, from a cache line's beginning."""
    integers = aligned(words, np.dtype(np.int64))
    return integers, integers.view(np.float64)


@intrinsic
def _pointer(_typing: Any, address: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


def _at(kind: type[Any], address: int, count: int) -> NDArray[Any]:
    return np.ctypeslib.as_array((kind * int(count)).from_address(int(address)))


def doubles_at(address: int, count: int) -> NDArray[np.float64]:
    """So many doubles at an address."""
    return _at(ctypes.c_double, address, count)


def singles_at(address: int, count: int) -> NDArray[np.float32]:
    """The same of single precision."""
    return _at(ctypes.c_float, address, count)


def words_at(address: int, count: int) -> NDArray[np.int64]:
    """The same of 64-bit integers."""
    return _at(ctypes.c_int64, address, count)


def keys_at(address: int, count: int) -> NDArray[np.uint64]:
    """The same without a sign."""
    return _at(ctypes.c_uint64, address, count)


def integers_at(address: int, count: int) -> NDArray[np.int32]:
    """The same of 32-bit integers."""
    return _at(ctypes.c_int32, address, count)


def bytes_at(address: int, count: int) -> NDArray[np.uint8]:
    """The same of single bytes."""
    return _at(ctypes.c_uint8, address, count)


def _compiled_as(function: Callable[[int, int], NDArray[Any]], number: type[np.generic]) -> None:
    pointer: Any = _pointer
    array: Any = carray
    overload(function)(
        # numba wants a function that gives a function of the same arguments
        lambda address, count: lambda address, count: array(pointer(address), (count,), number)  # noqa: ARG005
    )


_compiled_as(doubles_at, np.float64)
_compiled_as(singles_at, np.float32)
_compiled_as(words_at, np.int64)
_compiled_as(keys_at, np.uint64)
_compiled_as(integers_at, np.int32)
_compiled_as(bytes_at, np.uint8)
