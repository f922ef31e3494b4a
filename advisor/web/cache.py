"""A cache of the pages' expensive values: each is computed once and used for a while by all requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

_MOST: Final = 64
_Value = TypeVar("_Value")


class Cache:
    """Values by key; `most` of them are kept, those used last."""

    def __init__(self, monotonic: Callable[[], float], most: int = _MOST) -> None:
        self._monotonic = monotonic
        self._most = most
        self._values: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        # of each key, as long as a request computes its value or waits for it
        self._turns: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, key: Hashable, seconds: float, make: Callable[[], _Value]) -> _Value:
        """The value of a key, made when there is none younger than ``seconds``.

        One thread at a time makes it. ``make`` may get other keys; exceptions are not cached.
        """
        found = self._young(key, seconds)
        if found is None:
            with self._lock:
                turn = self._turns.setdefault(key, threading.Lock())
            with turn:
                found = self._young(key, seconds)  # another thread may have made it meanwhile
                if found is None:
                    found = (self._monotonic(), make())
                    self._keep(key, found)
        value: _Value = found[1]
        return value

    def forget(self, key: Hashable) -> None:
        """Let the next request compute a value anew."""
        with self._lock:
            self._values.pop(key, None)

    def _young(self, key: Hashable, seconds: float) -> tuple[float, Any] | None:
        with self._lock:
            found = self._values.get(key)
            if found is None or self._monotonic() - found[0] > seconds:
                return None
            self._values.move_to_end(key)
            return found

    def _keep(self, key: Hashable, value: tuple[float, Any]) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
