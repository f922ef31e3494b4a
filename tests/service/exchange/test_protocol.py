"""One bounded line each way."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.service.exchange import protocol
from advisor.service.exchange.protocol import AdviseReply, AdviseRequest, PingRequest, ProtocolError


def test_a_request_and_its_reply_are_lines() -> None:
    line = protocol.encode_line(AdviseRequest(v=1, seq=3, name='a "b"\n'))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    request = protocol.decode_request(line)
    assert isinstance(request, AdviseRequest)
    assert (request.seq, request.name) == (3, 'a "b"\n')


def test_a_reply_names_only_what_is_to_be_set() -> None:
    line = protocol.encode_line(AdviseReply(v=1, seq=3, ok=True, partition="burst"))
    assert json.loads(line) == {"v": 1, "seq": 3, "ok": True, "partition": "burst"}


def test_a_newer_hook_may_send_more() -> None:
    assert isinstance(protocol.decode_request(b'{"v":1,"op":"ping","new":[1,{}]}\n'), PingRequest)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"", "protocol.malformed"),
        (b"\n", "protocol.malformed"),
        (b"[]\n", "protocol.malformed"),
        (b'{"v":1}\n', "protocol.malformed"),
        (b'{"v":1,"op":"stop"}\n', "protocol.malformed"),
        (b'{"op":"advise"}\n', "protocol.malformed"),
        (b'{"v":1,"op":"advise","uid":"0"}\n', "protocol.malformed"),
        (b'{"v":1,"op":"advise","min_cpus":1.5}\n', "protocol.malformed"),
        (b'{"v":1,"op":"advise","seq":-1}\n', "protocol.malformed"),
        (b'{"v":1,"op":"advise","name":"a', "protocol.malformed"),
        (b"[" * 50_000, "protocol.malformed"),
        (b'{"v":2,"op":"advise"}\n', "protocol.version"),
    ],
)
def test_anything_else_is_refused_with_a_code(line: bytes, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        protocol.decode_request(line)
    assert caught.value.code == code


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    request = protocol.decode_request(b'{"v":1,"op":"advise","name":"caf\xe9"}\n')
    assert isinstance(request, AdviseRequest)
    assert request.name == "caf�"


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_an_error(raw: bytes) -> None:
    try:
        request = protocol.decode_request(raw)
    except ProtocolError:
        return
    assert isinstance(request, msgspec.Struct)


def test_a_compact_reply_has_its_fields_by_place() -> None:
    reply = AdviseReply(v=1, seq=3, ok=True, id="x", partition="burst", nice=0, admin_comment='{"a":"\\""}')
    assert protocol.encode_reply(reply, compact=True) == b'1\t3\tburst\t\t\t\t0\t\t\t{"a":"\\""}\n'
    assert protocol.encode_reply(reply, compact=False) == protocol.encode_line(reply)


@pytest.mark.parametrize("text", ["a\tb", "a\nb"])
def test_a_text_that_would_break_the_compact_form_goes_as_json(text: str) -> None:
    reply = AdviseReply(v=1, seq=3, ok=True, message=text)
    assert json.loads(protocol.encode_reply(reply, compact=True))["message"] == text
