"""The answer as the server writes it: read to its end, judged as a whole."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.service.exchange import protocol
from advisor.service.exchange.protocol import AdviseReply
from tests.hooks.answers import framed
from tests.hooks.slurm_double import (
    LUA_VERSIONS,
    NICE_OFFSET,
    Network,
    SlurmDouble,
    Submitted,
)

GOOD = AdviseReply(
    v=1,
    seq=0,
    partition="burst",
    features="x86&spot",
    prefer="spot",
    site_factor=-10,
    nice=5,
    time_limit=90,
    message='100 % "sooner"',
    admin_comment='{"id":"a\\\\b","n":{"x":1}}',
)
texts = st.none() | st.text(st.characters(codec="utf-8"), max_size=60)
words = st.none() | st.text("ab_.,&|\t é", max_size=8)
numbers = st.none() | st.integers(-3_000_000_000, 5_000_000_000)
replies = st.builds(
    AdviseReply,
    v=st.just(1),
    seq=st.just(0),
    partition=words,
    features=words,
    prefer=words,
    site_factor=numbers,
    nice=numbers,
    time_limit=numbers,
    message=texts,
    admin_comment=texts,
)


def told(lua: str, line_of: Callable[[int], bytes], folder: Path) -> Submitted:
    """What the hook does with an answer."""
    network = Network(lambda line: line_of(json.loads(line)["seq"]))
    slurm = SlurmDouble(lua, network, folder)
    done = slurm.submit({"time_limit": 60.0})
    assert done.code == 0
    assert slurm.violations == []
    return done


@pytest.mark.parametrize("lua", LUA_VERSIONS)
def test_nothing_is_left_of_the_answer_before(lua: str, tmp_path: Path) -> None:
    """All answers are read into one table, and all changes gathered in another."""
    nothing = AdviseReply(v=1, seq=0)
    said = [GOOD, nothing, AdviseReply(v=1, seq=0, nice=7), GOOD]
    left = iter(said)

    def answer(line: bytes) -> bytes:
        seq = json.loads(line)["seq"]
        return answered(seq, next(left))

    slurm = SlurmDouble(lua, Network(answer), tmp_path)
    done = [slurm.submit({"time_limit": 60.0}) for _ in said]
    assert len(done[0].changes) == 6
    assert done[3].changes == done[0].changes
    assert [set(each.changes) for each in done[1:3]] == [set(), {"nice"}]
    assert [len(each.messages) for each in done] == [1, 0, 0, 1]


@given(lua=st.sampled_from(LUA_VERSIONS), reply=replies)
def test_any_answer_is_set_as_a_whole_or_not_at_all(lua: str, reply: AdviseReply) -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = told(lua, lambda seq: answered(seq, reply), Path(folder))
    said = {name: getattr(reply, name) for name in ("partition", "features", "prefer", "admin_comment")}
    said = {name: text.encode().decode("latin-1") for name, text in said.items() if text}
    said |= {"site_factor": reply.site_factor, "nice": None if not reply.nice else NICE_OFFSET + reply.nice}
    if done.changes:
        assert done.changes == {name: value for name, value in said.items() if value is not None}
    assert len(done.messages) <= bool(done.changes and reply.message)


def test_all_of_it_is_set(lua: str, tmp_path: Path) -> None:
    done = told(lua, framed_line, tmp_path)
    assert done.changes == {
        "partition": "burst",
        "features": "x86&spot",
        "prefer": "spot",
        "site_factor": -10,
        "nice": 2147483648 + 5,
        "admin_comment": GOOD.admin_comment,
    }
    assert done.messages == [GOOD.message]


def line_of(seq: int) -> bytes:
    line = answered(seq, GOOD)[6:]
    assert line.count(b"\t") == 10
    return line


def answered(seq: int, reply: AdviseReply) -> bytes:
    return protocol.encode_hook_reply(msgspec.structs.replace(reply, seq=seq))


def test_a_newer_server_may_say_more(lua: str, tmp_path: Path) -> None:
    done = told(lua, lambda seq: framed(line_of(seq)[:-1] + b"\tnew\n"), tmp_path)
    assert done.changes["partition"] == "burst"


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "another version": lambda line: b"2" + line[1:],
    "another job's": lambda line: line.replace(b"1\t1\t", b"1\t2\t", 1),
    "no number of a question": lambda line: line.replace(b"1\t1\t", b"1\t\t", 1),
    "a refusal": lambda line: line.replace(b"1\t1\t\t", b"1\t1\tserver.busy\t", 1),
    "a refusal of another question": lambda line: line.replace(b"1\t1\t\t", b"1\t0\tserver.busy\t", 1),
    "no number": lambda line: line.replace(b"\t-10\t", b"\tten\t"),
    "half a number": lambda line: line.replace(b"\t-10\t", b"\t-\t"),
    "a number too large": lambda line: line.replace(b"\t-10\t", b"\t-2000000001\t"),
    "a control character": lambda line: line.replace(b"sooner", b"soo\x01er"),
    "no such partition name": lambda line: line.replace(b"burst", b"bu st"),
    "a field too few": lambda line: line.replace(b"\t90\t", b"\t"),
    "a message too long": lambda line: line.replace(b"sooner", b"s" * 600),
    "two lines": lambda line: line * 2,
    "cut short": lambda line: line[:40],
}


@pytest.mark.parametrize("kind", WRONG)
def test_one_wrong_field_spoils_all(lua: str, tmp_path: Path, kind: str) -> None:
    done = told(lua, lambda seq: framed(WRONG[kind](line_of(seq))), tmp_path)
    assert (done.changes, done.messages) == ({}, [])


def framed_line(seq: int) -> bytes:
    line = answered(seq, GOOD)
    assert line == framed(line_of(seq))
    return line


def test_a_framed_answer_is_read_to_its_end_and_the_connection_kept(lua: str, tmp_path: Path) -> None:
    network = Network(lambda line: framed_line(json.loads(line)["seq"]))
    slurm = SlurmDouble(lua, network, tmp_path)
    for _ in range(1200):  # the numbers of the questions go round in between
        assert slurm.submit({"time_limit": 60.0}).changes["admin_comment"] == GOOD.admin_comment
    assert network.connects == 1


WRONG_FRAMES: dict[str, Callable[[bytes], bytes]] = {
    "longer than the line": lambda line: b"=%05d" % (len(line) - 5) + line[6:],
    "shorter than the line": lambda line: b"=%05d" % (len(line) - 7) + line[6:],
    "longer than any answer": lambda line: b"=99999" + line[6:] + b"x" * 99_999,
    "no length": lambda line: b"=12a45" + line[6:],
    "nothing but a length": lambda line: line[:6],
    "a length of nothing": lambda line: b"=00000" + line[6:],
    "two lines": lambda line: b"=%05d" % (2 * len(line) - 12) + line[6:] + line[6:],
}


@pytest.mark.parametrize("kind", WRONG_FRAMES)
def test_a_wrong_frame_spoils_the_answer_and_ends_the_connection(lua: str, tmp_path: Path, kind: str) -> None:
    network = Network(lambda line: WRONG_FRAMES[kind](framed_line(json.loads(line)["seq"])))
    slurm = SlurmDouble(lua, network, tmp_path)
    done = slurm.submit({"time_limit": 60.0})
    assert (done.code, done.changes, done.messages) == (0, {}, [])
    assert done.seconds <= 0.05 + 1e-9
    network.answer = lambda line: framed_line(json.loads(line)["seq"])
    assert slurm.submit({"time_limit": 60.0}).changes["partition"] == "burst"


@pytest.mark.parametrize("pauses", [(0.0, 0.02), (0.02, 0.0), (0.0, 0.0495), (0.0495, 0.0)])
def test_an_answer_in_parts_is_waited_for_to_the_end_of_the_budget(
    lua: str, tmp_path: Path, pauses: tuple[float, float]
) -> None:
    def in_parts(line: bytes) -> list[tuple[float, bytes]]:
        answer = framed_line(json.loads(line)["seq"])
        return [(pauses[0], answer[:20]), (pauses[1], answer[20:])]

    slurm = SlurmDouble(lua, Network(in_parts), tmp_path)
    for _ in range(2):  # the second on a connection that is kept
        assert slurm.submit({"time_limit": 60.0}).changes["partition"] == "burst"


@pytest.mark.parametrize("first", [0.0, 0.0005, 0.01, 0.0495])
def test_an_answer_that_never_ends_costs_the_budget_and_no_more(
    lua: str, tmp_path: Path, first: float
) -> None:
    slurm = SlurmDouble(lua, Network(lambda _line: [(first, b"=00500" + b"x" * 20)]), tmp_path)
    for _ in range(2):
        done = slurm.submit({"time_limit": 60.0})
        assert (done.changes, done.seconds) == ({}, pytest.approx(0.05, abs=1e-6))
