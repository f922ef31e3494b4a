"""Fixtures of the estimators' tests."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType], None]:
    """Swap a module's compiled functions for the Python they were compiled from.

    A test that passes both ways shows that numba means the same by them; and coverage, which cannot look into
    compiled code, sees the lines run.
    """

    def swap(module: ModuleType) -> None:
        for name, value in list(vars(module).items()):
            plain = getattr(value, "py_func", None)
            if plain is not None:
                monkeypatch.setattr(module, name, plain)

    return swap
