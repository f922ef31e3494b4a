"""The control service's word about itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.model.errors import UseFallback
from advisor.service.exchange import status_file


def test_a_cloud_of_ten_thousand_nodes_is_read_back(tmp_path: Path) -> None:
    nodes = [{"node": f"burst{number}", "reason": "x" * 200} for number in range(10_000)]
    status_file.write(tmp_path, {"nodes": nodes})
    assert (tmp_path / status_file.NAME).stat().st_size > 2 * 1024 * 1024
    assert status_file.read(tmp_path)["nodes"] == nodes


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[]"], ids=["deep", "cut", "list"])
def test_a_damaged_file_is_not_used(tmp_path: Path, text: str) -> None:
    (tmp_path / status_file.NAME).write_text(text)
    with pytest.raises(UseFallback) as caught:
        status_file.read(tmp_path)
    assert caught.value.code == "status.unreadable"
