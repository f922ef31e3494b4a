"""Hedged submissions told to `advisor control`: by the submit server, to the socket that takes hand-overs."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.service.exchange.announcing import Announced, Announcer, decode
from advisor.service.exchange.control_socket import ControlSocket
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.exchange.socket_file import SocketFile

PATIENCE = 60.0


class Heard:
    """What a control process was told."""

    def __init__(self) -> None:
        self.messages: list[Sequence[Announced]] = []
        self._news = threading.Condition()

    def __call__(self, jobs: Sequence[Announced]) -> None:
        with self._news:
            self.messages.append(jobs)
            self._news.notify_all()

    def wait_for(self, count: int) -> list[Announced]:
        with self._news:
            assert self._news.wait_for(lambda: sum(map(len, self.messages)) >= count, PATIENCE)
            return [job for jobs in self.messages for job in jobs]


@pytest.fixture
def folder() -> Iterator[Path]:
    # Unix socket paths end at 107 bytes: pytest's own folders are too deep
    with TemporaryDirectory(prefix="hedge-") as name:
        yield Path(name)


@contextmanager
def control(folder: Path, heard: Heard, uids: frozenset[int] | None = None) -> Iterator[None]:
    listening = ControlSocket(
        SocketFile(folder / "control.sock"),
        HandoverFolder(folder / "handover"),
        frozenset({os.geteuid()}) if uids is None else uids,
        lambda: None,
        announced=heard,
    )
    listening.start()
    try:
        yield
    finally:
        listening.stop()


@contextmanager
def announcing(folder: Path, rest: Callable[[float], None] = lambda _: None) -> Iterator[Announcer]:
    announcer = Announcer(folder / "control.sock", rest=rest)
    announcer.start()
    try:
        yield announcer
    finally:
        announcer.stop(PATIENCE)


def wait_until(is_so: Callable[[], bool]) -> None:
    # counters of another thread: nothing to wait on
    waiting = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if is_so():
            return
        waiting.wait(0.01)
    raise AssertionError


def test_control_hears_the_advice_and_the_user(folder: Path) -> None:
    heard = Heard()
    with control(folder, heard), announcing(folder) as announcer:
        announcer.announce("5f-1", 1000)
        assert heard.wait_for(1) == [Announced("5f-1", 1000)]
        announcer.announce("5f-2", None)
        assert heard.wait_for(2)[1] == Announced("5f-2", None)
        wait_until(lambda: announcer.sent == 2)
    assert announcer.not_sent == 0


def test_a_storm_is_few_messages(folder: Path) -> None:
    heard, gathered = Heard(), threading.Event()

    def rest(_: float) -> None:
        assert gathered.wait(PATIENCE)

    with control(folder, heard), announcing(folder, rest) as announcer:
        for number in range(1000):
            announcer.announce(f"{number}", 1000)
        gathered.set()
        assert [job.id for job in heard.wait_for(1000)] == [f"{number}" for number in range(1000)]
        assert len(heard.messages) == 2


def test_nobody_listens_and_nobody_waits_for_that(folder: Path) -> None:
    heard = Heard()
    with announcing(folder) as announcer:
        announcer.announce("lost", 1000)
        wait_until(lambda: announcer.not_sent == 1)
        with control(folder, heard):  # it is back: who comes now is told of
            announcer.announce("told", 1000)
            assert heard.wait_for(1) == [Announced("told", 1000)]
        wait_until(lambda: announcer.sent == 1)
        announcer.announce("lost again", 1000)
        wait_until(lambda: announcer.not_sent == 2)


def test_a_control_that_hangs_holds_up_nobody(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as hangs, announcing(folder) as announcer:
        hangs.bind(str(folder / "control.sock"))
        hangs.listen(1)
        for number in range(5000):
            announcer.announce(f"{number}", 1000)
        wait_until(lambda: announcer.not_sent >= 1)  # given up after a moment
    assert announcer.sent == 0


def test_strangers_tell_nothing(folder: Path) -> None:
    heard = Heard()
    with control(folder, heard, frozenset()), announcing(folder) as announcer:
        announcer.announce("5f-1", 1000)
        wait_until(lambda: announcer.not_sent == 1)
    assert heard.messages == []


def test_one_that_never_was_started_can_be_stopped(folder: Path) -> None:
    announcer = Announcer(folder / "control.sock")
    announcer.announce("5f-1", 1000)
    announcer.stop()


@given(line=st.binary(max_size=300))
def test_junk_is_no_message(line: bytes) -> None:
    assert decode(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"op":"hedged","v":2,"jobs":[{"id":"a","uid":1}]}\n',
        b'{"op":"hedged","v":1,"jobs":[{"id":7}]}\n',
        b'{"op":"turn","v":1,"jobs":[]}\n',
        b'{"op":"hedged","v":1,"jobs":[' + b",".join([b'{"id":"a"}'] * 501) + b"]}\n",
    ],
)
def test_what_is_not_understood_is_left_alone(line: bytes) -> None:
    assert decode(line) is None


def test_ids_and_users_that_cannot_be_are_left_out() -> None:
    line = b'{"op":"hedged","v":1,"jobs":[{"id":"a","uid":-1},{"id":"%s"},{"id":"b"}]}\n' % (b"x" * 81)
    assert decode(line) == (Announced("b"),)
