"""The place helper, which runs as root, submits placeholders for valid requests and does nothing else."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.errors import RetryLater, TellAdmin
from advisor.service.hedge.place_helper import HelpedPlaceholders, answer, serve, serve_one
from advisor.slurm.commands import Commands
from advisor.slurm.placeholders import PlaceholderRequest, Placeholders

GOOD = {
    "job_id": 7,
    "partition": "onprem",
    "limit_seconds": 60.0,
    "held_seconds": 180.0,
    "features": ["x86"],
}


def asked(**changes: Any) -> tuple[list[PlaceholderRequest], int, str]:
    requests: list[PlaceholderRequest] = []

    def reserve(request: PlaceholderRequest) -> int:
        requests.append(request)
        return 8

    found = answer(json.dumps(GOOD | changes).encode(), reserve)
    return requests, found.placeholder, found.code


def test_a_valid_request_submits_a_placeholder() -> None:
    requests, placeholder, _ = asked()
    assert placeholder == 8
    assert requests == [
        PlaceholderRequest(
            job_id=7, partition="onprem", limit_seconds=60.0, held_seconds=180.0, features=("x86",)
        )
    ]


def test_a_home_may_be_several_partitions() -> None:
    requests, placeholder, _ = asked(partition="short,long")
    assert (requests[0].partition, placeholder) == ("short,long", 8)
    assert asked(partition="short,") == ([], 0, "hedge.bad_request")


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
def test_a_value_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    assert asked(**changes) == ([], 0, "hedge.bad_request")


@given(line=st.binary(max_size=200))
def test_a_malformed_request_gets_an_error(line: bytes) -> None:
    def reserve(_: PlaceholderRequest) -> int:
        raise AssertionError

    said = io.BytesIO()
    serve_one(io.BytesIO(line + b"\n"), said, reserve)
    assert json.loads(said.getvalue())["code"] == "hedge.bad_request"


@contextmanager
def helped(folder: Path, reserve: Callable[[PlaceholderRequest], int] | None) -> Iterator[HelpedPlaceholders]:
    """Placeholders with a helper, started for one connection as systemd would; None: nobody listens."""
    path = folder / "places.sock"
    if reserve is not None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen(1)

        def accept() -> None:
            with (
                listener,
                listener.accept()[0] as connection,
                connection.makefile("rb") as asked,
                connection.makefile("wb") as said,
            ):
                serve(asked, said, reserve)

        threading.Thread(target=accept, daemon=True).start()
    places = HelpedPlaceholders(Placeholders(Commands(folder, None)), path)
    yield places
    places.close()


WISH = PlaceholderRequest(job_id=7, partition="onprem", limit_seconds=None, held_seconds=60.0)


def test_the_placeholders_id_is_returned(tmp_path: Path) -> None:
    with helped(tmp_path, lambda request: request.job_id + 1) as places:
        assert places.reserve(WISH) == 8


@pytest.mark.parametrize("kind", [RetryLater, TellAdmin])
def test_the_helpers_error_is_raised(tmp_path: Path, kind: type[RetryLater | TellAdmin]) -> None:
    def reserve(_: PlaceholderRequest) -> int:
        raise kind("no", code="hedge.no_user")

    with helped(tmp_path, reserve) as places, pytest.raises(kind) as caught:
        places.reserve(WISH)
    assert caught.value.code == "hedge.no_user"


def test_a_missing_helper_is_an_error_for_the_admin(tmp_path: Path) -> None:
    with helped(tmp_path, None) as places, pytest.raises(TellAdmin) as caught:
        places.reserve(WISH)
    assert caught.value.code == "hedge.no_helper"
    assert "advisor-places.socket" in str(caught.value)


def test_one_connection_serves_many_questions(tmp_path: Path) -> None:
    """The second would find nobody else: this helper takes one connection."""
    with helped(tmp_path, lambda request: request.job_id + 1) as places:
        assert [places.reserve(WISH) for _ in range(3)] == [8, 8, 8]


class Impatient:
    """A helper that ends after some questions, or before it answers one."""

    def __init__(self, folder: Path, *, answers: int) -> None:
        self.asked = 0
        self.connections = 0
        self._answers = answers
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(folder / "places.sock"))
        self._listener.listen(4)
        self.hung_up = threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    def _reserve(self, request: PlaceholderRequest) -> int:
        return request.job_id + 1

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            self.connections += 1
            with connection, connection.makefile("rwb") as stream:
                for _ in range(self._answers):
                    serve_one(stream, stream, self._reserve)
                    self.asked += 1
                if not self._answers:
                    stream.readline()
                    self.asked += 1
            self.hung_up.release()


def test_a_helper_that_has_ended_is_started_anew(tmp_path: Path) -> None:
    impatient = Impatient(tmp_path, answers=1)
    places = HelpedPlaceholders(Placeholders(Commands(tmp_path, None)), tmp_path / "places.sock")
    for _ in range(3):
        assert places.reserve(WISH) == 8
        assert impatient.hung_up.acquire(timeout=20)
    places.close()
    assert impatient.connections == 3


def test_a_helper_is_ready_before_it_is_asked(tmp_path: Path) -> None:
    impatient = Impatient(tmp_path, answers=1)
    places = HelpedPlaceholders(Placeholders(Commands(tmp_path, None)), tmp_path / "places.sock")
    for _ in range(3):
        places.prepare()
    assert places.reserve(WISH) == 8
    assert impatient.hung_up.acquire(timeout=20)
    assert impatient.connections == 1
    places.prepare()  # that one has ended
    assert places.reserve(WISH) == 8
    assert impatient.connections == 2
    places.close()


def test_where_there_is_no_helper_nothing_is_prepared(tmp_path: Path) -> None:
    with helped(tmp_path, None) as places:
        places.prepare()


def test_a_question_that_may_have_been_heard_is_not_repeated(tmp_path: Path) -> None:
    impatient = Impatient(tmp_path, answers=0)
    places = HelpedPlaceholders(Placeholders(Commands(tmp_path, None)), tmp_path / "places.sock")
    with pytest.raises(RetryLater) as caught:
        places.reserve(WISH)
    assert caught.value.code == "hedge.helper"
    assert impatient.hung_up.acquire(timeout=20)
    assert impatient.asked == 1


def test_a_line_without_end_ends_the_connection() -> None:
    said = io.BytesIO()
    assert not serve_one(io.BytesIO(b"x" * 10_000), said, lambda _: 8)
    assert json.loads(said.getvalue())["code"] == "hedge.bad_request"
    assert not serve_one(io.BytesIO(b""), said, lambda _: 8)
