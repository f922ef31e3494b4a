"""A site with a queue, a budget and a submit server that says what a test wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.price.price_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
