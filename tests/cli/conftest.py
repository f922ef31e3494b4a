"""What the tests of all commands share."""

from __future__ import annotations

import os
from typing import Any

import pytest

from advisor.predict.knn.parameters import KnnParameters
from advisor.replay.closed_loop.neighbours import Neighbours


@pytest.fixture(autouse=True)
def _one_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The genetic algorithm of the published policies takes 15 s, and no test here is about its result."""
    tuned = Neighbours._tuned

    def quickly(self: Neighbours, states: Any, target: Any, generations: int) -> KnnParameters:
        return tuned(self, states, target, min(generations, 1))

    monkeypatch.setattr(Neighbours, "_tuned", quickly)


@pytest.fixture(autouse=True)
def _not_nice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weekly commands give way to others, which this process should not do for the rest of its tests."""
    monkeypatch.setattr(os, "nice", lambda _: 0)
