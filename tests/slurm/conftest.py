"""One database template for all labs of a session: the second lab is up in three seconds."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever the random order: a test that waits for something long goes last in its file."""
    last_place = {item.path: place for place, item in enumerate(items)}

    def place_of(numbered: tuple[int, pytest.Item]) -> float:
        place, item = numbered
        return last_place[item.path] + 0.5 if item.get_closest_marker("comes_last") else place

    items[:] = [item for _, item in sorted(enumerate(items), key=place_of)]


@pytest.fixture(scope="session")
def database_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("template") / "db"
