"""The decorator that compiles inner loops with numba, typed so that callers stay strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

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
    return cast("Callable[P, R]", njit(cache=cache, nogil=True, error_model="numpy")(function))
