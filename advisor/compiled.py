"""The decorator that compiles inner loops with numba, typed so that callers stay strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit
from numba.core.caching import IndexDataCacheFile

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with numba: cached on disk, without the interpreter lock, IEEE semantics.

    Fast-math stays off: it may assume that no NaN exists, and here NaN means unknown. A division by zero
    gives an infinity or NaN, as in numpy. Where there is no folder for the cache (a service user without a
    home), the function is compiled at every start.
    """
    return _cached(function, allocates=True)


def compiled_in_place(function: Callable[P, R]) -> Callable[P, R]:
    """The same for a function that only reads and writes arrays that it is given, and makes none.

    numba then counts no references to them, which takes half of the time of short functions with many arrays.
    A function that does make one fails to compile.
    """
    return _cached(function, allocates=False)


def _cached(function: Callable[P, R], *, allocates: bool) -> Callable[P, R]:
    try:
        return _compiled(function, cache=True, allocates=allocates)
    except RuntimeError:  # numba's "no locator available for file"
        return _compiled(function, cache=False, allocates=allocates)


def _compiled(function: Callable[P, R], *, cache: bool, allocates: bool) -> Callable[P, R]:
    # `_nrt` is stated for all: a function that is first compiled for a caller takes the caller's option else
    options: dict[str, Any] = {"cache": cache, "nogil": True, "error_model": "numpy", "_nrt": allocates}
    dispatcher = njit(**options)(function)
    index = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if isinstance(index, IndexDataCacheFile):
        index.__class__ = _Index
    return cast("Callable[P, R]", dispatcher)


class _Index(IndexDataCacheFile):
    """A cache index that is empty where it cannot be read.

    numba unpickles an index before it compares the source's stamp: after an upgrade that renames a class of
    an argument the old index would raise at the function's first call.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            found: dict[Any, str] = super()._load_index()  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - a damaged pickle may raise anything
            return {}
        return found
