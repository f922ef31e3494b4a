"""The snapshot file: the old one or the new one, or none at all."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np
import pytest

from advisor.model.errors import UseFallback
from advisor.model.machine import Machine, Subset
from advisor.service.exchange import snapshot
from advisor.service.exchange.seen_queue import SeenQueue
from tests.service.site import NOW, make_snapshot


def test_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.msgpack"
    written = make_snapshot(
        spent_usd=3.5, spent_by_account=MappingProxyType({"physics": 3.5}), protected="why"
    )
    snapshot.write(path, written)
    assert snapshot.read(path) == written
    assert [file.name for file in tmp_path.iterdir()] == ["snapshot.msgpack"]


def test_a_queue_of_many_thousand_jobs_is_read(tmp_path: Path) -> None:
    """40,000 jobs that run and 60,000 that wait, of a machine of 12 resources."""
    path = tmp_path / "snapshot.msgpack"
    machine = Machine(("cpu",), 500_000, 5_000, 1, 1, (), tuple(Subset((), 64, 1) for _ in range(8)))
    running, waiting = np.ones((40_000, 3 + len(machine.sizes))), np.ones((60_000, 2 + len(machine.sizes)))
    written = replace(make_snapshot(), queues=(SeenQueue.of(machine, running, waiting),))
    snapshot.write(path, written)
    assert len(snapshot.read(path).queues[0].closed().waiting) == 60_000


def test_no_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UseFallback) as caught:
        snapshot.read(tmp_path / "none")
    assert caught.value.code == "snapshot.missing"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00",
        b"no msgpack",
        msgspec.msgpack.encode({"format": 1}),
        msgspec.msgpack.encode({"format": 1, "state": {"time": "x", "cluster": None}}),
        msgspec.msgpack.encode({"format": 1, "state": {"time": 1.0, "cluster": None}}),  # other columns
        msgspec.msgpack.encode({"format": 99, "state": {"time": 1.0, "cluster": None}}),
        b"\x91" * 100_000,
        b"x" * 5_000_000,
    ],
)
def test_a_damaged_file_is_a_fallback(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "snapshot"
    path.write_bytes(content)
    with pytest.raises(UseFallback) as caught:
        snapshot.read(path)
    assert caught.value.code == "snapshot.unreadable"


def test_a_folder_in_its_place_is_a_fallback(tmp_path: Path) -> None:
    with pytest.raises(UseFallback) as caught:
        snapshot.read(tmp_path)
    assert caught.value.code == "snapshot.unreadable"


def test_a_reader_never_sees_half(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    snapshot.write(path, make_snapshot())
    done = threading.Event()

    def rewrite() -> None:
        for turn in range(300):
            snapshot.write(path, make_snapshot(now=NOW + turn))
        done.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    while not done.is_set():
        assert snapshot.read(path).state.cluster is not None
    writer.join()
