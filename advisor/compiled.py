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
    try:
        return _compiled(function, cache=True)
    except RuntimeError:  # numba's "no locator available for file"
        return _compiled(function, cache=False)


def _compiled(function: Callable[P, R], *, cache: bool) -> Callable[P, R]:
    dispatcher = njit(cache=cache, nogil=True, error_model="numpy")(function)
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
