"""The double of advisor-places.socket: a helper for each connection, ended with the socket."""

from __future__ import annotations

import sys
from pathlib import Path

from advisor.service.hedge.place_helper import Helper
from advisor.testing.place_socket import PlaceSocket

ANSWERS = "import sys\nfor line in sys.stdin: print('{\"placeholder\": 7}', flush=True)"


def test_each_connection_has_a_helper_of_its_own(tmp_path: Path) -> None:
    with PlaceSocket(tmp_path / "s", [sys.executable, "-c", ANSWERS], {}, tmp_path / "log") as places:
        first, second = Helper(places.path), Helper(places.path)
        assert [helper.ask(b"{}").placeholder for helper in (first, second, first)] == [7, 7, 7]
        assert places.connections == 2
        first.close()
        second.close()
    assert not places.path.exists()
