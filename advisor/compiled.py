"""The decorator that compiles inner loops with numba, typed so that callers stay strict."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

from numba import njit
from numba.core.caching import IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_WAIT_SECONDS: Final = 120.0
_LOOKS_AGAIN_SECONDS: Final = 0.05


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with numba: cached on disk, without the interpreter lock, IEEE semantics.

    Fast-math stays off: it may assume that no NaN exists, and here NaN means unknown. A division by zero
    gives an infinity or NaN, as in numpy. Where there is no folder for the cache (a service user without a
    home), the function is compiled at every start. Of processes that need a function at the same time one
    compiles it; the others wait, and take what it leaves in the cache.
    """
    try:
        return _compiled(function, cache=True)
    except RuntimeError:  # numba's "no locator available for file"
        return _compiled(function, cache=False)


def _compiled(function: Callable[P, R], *, cache: bool) -> Callable[P, R]:
    dispatcher: Any = njit(cache=cache, nogil=True, error_model="numpy")(function)
    index = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if isinstance(index, IndexDataCacheFile):
        index.__class__ = _Index
        dispatcher.compile = _by_one_process(dispatcher.compile, cast("_Index", index).lock)
    return cast("Callable[P, R]", dispatcher)


class _Index(IndexDataCacheFile):
    """A cache index that is empty where it cannot be read.

    numba unpickles an index before it compares the source's stamp: after an upgrade that renames a class of
    an argument the old index would raise at the function's first call.
    """

    @property
    def lock(self) -> Path:
        """Beside the index; locked by the process that compiles the function."""
        return Path(self._index_path).with_suffix(".lock")

    def _load_index(self) -> dict[Any, str]:
        try:
            found: dict[Any, str] = super()._load_index()  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - a damaged pickle may raise anything
            return {}
        return found


def _by_one_process(compile_for: Callable[[Any], Any], path: Path) -> Callable[[Any], Any]:
    """Compile for a signature, or load, while no other process compiles the function.

    A function is locked before those that it calls, in every process: so none waits for one that waits for
    it. numba's own lock, which is taken first, does the same for threads.
    """
    depth = 0

    def compile_alone(signature: Any) -> Any:
        nonlocal depth
        with global_compiler_lock:
            depth += 1
            try:
                if depth > 1:  # it calls itself
                    return compile_for(signature)
                with _locked(path):
                    return compile_for(signature)
            finally:
                depth -= 1

    return compile_alone


_slow_to_compile: list[Path] = []
"""What a process that has stopped, it seems, keeps locked; after the first nothing is waited for any more."""


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, if it can be had in time: a process that has stopped keeps no other from its work."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:  # a cache that we may only read
        yield
        return
    try:
        end = time.monotonic() + _LONGEST_WAIT_SECONDS
        while not (_is_taken(file) or _slow_to_compile):
            time.sleep(_LOOKS_AGAIN_SECONDS)
            if time.monotonic() > end:
                _slow_to_compile.append(path)
        yield
    finally:
        os.close(file)


def _is_taken(file: int) -> bool:
    """Take the lock, unless another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
