"""The doctor's look at the helper that keeps places, with the helper's own code behind real sockets."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advisor.model.settings import Settings
from advisor.service.admin import doctor_places
from advisor.service.admin.doctor import Level
from advisor.service.admin.doctor_places import examine_places
from advisor.service.hedge.place_helper import serve_one
from advisor.slurm.placeholders import PlaceholderRequest
from tests.commands import app


@pytest.fixture
def folder() -> Iterator[Path]:
    # Unix socket paths end at 107 bytes: pytest's own folders are too deep
    with tempfile.TemporaryDirectory(prefix="places-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def _control_is_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as root, whose control needs no helper."""
    real = doctor_places._owner

    def owner(path: Path) -> int | None:
        return 12345 if path.name == "control.sock" else real(path)

    monkeypatch.setattr(doctor_places, "_owner", owner)


def settings(folder: Path, **sections: dict[str, Any]) -> Settings:
    paths = {"state": str(folder), "run": str(folder)}
    hedge = {"enabled": True, "helper_socket": str(folder / "places.sock")}
    return Settings.model_validate({"paths": paths, "hedge": hedge} | sections)


def never(_: PlaceholderRequest) -> int:
    raise AssertionError


def helper(folder: Path, *, mode: int = 0o600, says: Callable[[Any], None] | None = None) -> None:
    """Listen for one question, answered by the helper's own code or by another."""
    path = folder / "places.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    path.chmod(mode)

    def serve() -> None:
        with listener, listener.accept()[0] as connection, connection.makefile("rwb") as stream:
            if says is None:
                serve_one(stream, stream, never)
            else:
                says(stream)

    threading.Thread(target=serve, daemon=True).start()


def levels(found: Settings) -> list[Level]:
    return [diagnosis.level for diagnosis in examine_places(found)]


def test_a_helper_that_works_is_asked_for_nothing(folder: Path) -> None:
    helper(folder)
    assert levels(settings(folder)) == [Level.OK]


@pytest.mark.parametrize("speculates", [True, False])
def test_nobody_listens(folder: Path, *, speculates: bool) -> None:
    chosen = settings(
        folder,
        hedge={"enabled": not speculates, "helper_socket": str(folder / "places.sock")},
        cluster={"policy": "ambati2021" if speculates else "price"},
    )
    (found,) = examine_places(chosen)
    assert found.level is Level.ERROR
    assert "advisor-places.socket" in found.mend


def test_a_policy_that_switches_hedging_off_needs_no_helper(folder: Path) -> None:
    """The doctor looks at what holds, as the daemons do, not at what the file says."""
    config = folder / "advisor.toml"
    config.write_text(
        f'[cluster]\npolicy = "cunha2017"\n[hedge]\nenabled = true\nhelper_socket = "{folder}/places.sock"\n'
        f'[paths]\nstate = "{folder}"\nrun = "{folder}"\nslurm_bin = "{folder}"\n'
    )
    done = CliRunner().invoke(app, ["doctor", "--config", str(config), "--format", "json"])
    found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["place helper"]["level"] == "ok"


def test_who_keeps_no_places_needs_no_helper(folder: Path) -> None:
    (found,) = examine_places(settings(folder, hedge={"enabled": False}))
    assert found.level is Level.OK


def test_a_control_that_is_root_needs_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_places, "_owner", lambda _: 0)
    assert levels(settings(folder)) == [Level.OK]


def test_a_door_that_is_open_to_others(folder: Path) -> None:
    helper(folder, mode=0o660)
    found = list(examine_places(settings(folder)))
    assert [diagnosis.level for diagnosis in found] == [Level.ERROR, Level.OK]
    assert "0600" in found[0].mend


def test_a_door_that_belongs_to_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(folder)
    monkeypatch.setattr(doctor_places, "_owner", lambda path: os.getuid() + 1 if path == folder else 12345)
    found = list(examine_places(settings(folder)))
    assert [diagnosis.level for diagnosis in found] == [Level.ERROR, Level.OK]
    assert "SocketUser" in found[0].mend


@pytest.mark.parametrize("answer", [b"", b"hello\n", b"{}\n"])
def test_somebody_else_listens(folder: Path, answer: bytes) -> None:
    def says(stream: Any) -> None:
        stream.readline()
        stream.write(answer)
        stream.flush()

    helper(folder, says=says)
    assert levels(settings(folder)) == [Level.ERROR]


def test_a_dead_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(folder / "places.sock"))
    (folder / "places.sock").chmod(0o600)
    assert levels(settings(folder)) == [Level.ERROR]


def test_who_may_not_ask_is_told_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(folder)
    monkeypatch.setattr(os, "access", lambda *_: False)
    (found,) = examine_places(settings(folder))
    assert found.level is Level.WARNING
