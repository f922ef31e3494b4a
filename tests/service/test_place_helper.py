"""The helper that is root does one thing, and nothing that it was not made for."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.errors import RetryLater, TellAdmin
from advisor.service.place_helper import HelpedPlaces, answer, serve_one
from advisor.slurm.commands import Commands
from advisor.slurm.places import Places, Wish

GOOD = {
    "job_id": 7,
    "partition": "onprem",
    "limit_seconds": 60.0,
    "held_seconds": 180.0,
    "features": ["x86"],
}


def asked(**changes: Any) -> tuple[list[Wish], int, str]:
    wishes: list[Wish] = []

    def reserve(wish: Wish) -> int:
        wishes.append(wish)
        return 8

    found = answer(json.dumps(GOOD | changes).encode(), reserve)
    return wishes, found.placeholder, found.code


def test_what_is_in_order_is_done() -> None:
    wishes, placeholder, _ = asked()
    assert placeholder == 8
    assert wishes == [
        Wish(job_id=7, partition="onprem", limit_seconds=60.0, held_seconds=180.0, features=("x86",))
    ]


def test_a_home_may_be_several_partitions() -> None:
    wishes, placeholder, _ = asked(partition="short,long")
    assert (wishes[0].partition, placeholder) == ("short,long", 8)
    assert asked(partition="short,") == ([], 0, "hedge.bad_wish")


@pytest.mark.parametrize(
    "changes",
    [
        {"job_id": 0},
        {"job_id": "7"},
        {"partition": "onprem --wrap=reboot"},
        {"partition": ""},
        {"features": ["a b"]},
        {"features": ["a", "$(id)"]},
        {"held_seconds": 0.0},
        {"held_seconds": 1e9},
        {"limit_seconds": -1.0},
    ],
)
def test_what_is_not_is_not(changes: dict[str, Any]) -> None:
    assert asked(**changes) == ([], 0, "hedge.bad_wish")


@given(line=st.binary(max_size=200))
def test_junk_gets_an_answer(line: bytes) -> None:
    def reserve(_: Wish) -> int:
        raise AssertionError

    said = io.BytesIO()
    serve_one(io.BytesIO(line), said, reserve)
    assert json.loads(said.getvalue())["code"] == "hedge.bad_wish"


def helped(folder: Path, reserve: Callable[[Wish], int] | None) -> HelpedPlaces:
    """Places with a helper, started for one question as systemd would; None: nobody listens."""
    path = folder / "places.sock"
    if reserve is not None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(1)

        def serve() -> None:
            with listener, listener.accept()[0] as connection, connection.makefile("rwb") as stream:
                serve_one(stream, stream, reserve)

        threading.Thread(target=serve, daemon=True).start()
    return HelpedPlaces(Places(Commands(folder, None)), path)


WISH = Wish(job_id=7, partition="onprem", limit_seconds=None, held_seconds=60.0)


def test_an_id_comes_back(tmp_path: Path) -> None:
    assert helped(tmp_path, lambda wish: wish.job_id + 1).reserve(WISH) == 8


@pytest.mark.parametrize("kind", [RetryLater, TellAdmin])
def test_so_does_what_went_wrong(tmp_path: Path, kind: type[RetryLater | TellAdmin]) -> None:
    def reserve(_: Wish) -> int:
        raise kind("no", code="hedge.no_user")

    with pytest.raises(kind) as caught:
        helped(tmp_path, reserve).reserve(WISH)
    assert caught.value.code == "hedge.no_user"


def test_the_admin_is_told_that_nobody_helps(tmp_path: Path) -> None:
    with pytest.raises(TellAdmin) as caught:
        helped(tmp_path, None).reserve(WISH)
    assert caught.value.code == "hedge.no_helper"
    assert "advisor-places.socket" in str(caught.value)
