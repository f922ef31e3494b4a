"""One bounded line each way."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.service.exchange import protocol
from advisor.service.exchange.protocol import (
    AdviseReply,
    AdviseRequest,
    ExplainRequest,
    PingRequest,
    ProtocolError,
)


def test_a_request_and_its_reply_are_lines() -> None:
    line = protocol.encode_line(AdviseRequest(v=1, seq=3, name='a "b"\n'))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    request = protocol.decode_request(line)
    assert isinstance(request, AdviseRequest)
    assert (request.seq, request.name) == (3, 'a "b"\n')


def test_a_reply_names_only_what_is_to_be_set() -> None:
    line = protocol.encode_line(AdviseReply(v=1, seq=3, partition="burst"))
    assert json.loads(line) == {"v": 1, "seq": 3, "partition": "burst"}


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
        (b'{"v":1,"op":"advise","memory_per_cpu":-4096}\n', "protocol.malformed"),  # it would free memory
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


def test_a_hooks_reply_has_its_fields_by_place_and_its_length_before_it() -> None:
    reply = AdviseReply(v=1, seq=3, id="x", partition="burst", nice=0, admin_comment='{"a":"\\""}')
    assert protocol.encode_hook_reply(reply) == b"=00029" + b'1\t3\t\tburst\t\t\t\t0\t\t\t{"a":"\\""}\n'


def test_a_refusal_has_the_same_form() -> None:
    refused = protocol.refusal("server.busy", 7)
    assert refused == b"=00024" + b"1\t7\tserver.busy" + b"\t" * 8 + b"\n"
    fields = protocol.fields_of(refused)
    assert fields is not None
    assert fields[:3] == ["1", "7", "server.busy"]


@pytest.mark.parametrize("line", [b"", b"\n", b'{"v":1}\n', b"=00003a\n", b"=00024" + b"1\t7\n", b"=x\n"])
def test_a_line_of_another_form_is_no_refusal(line: bytes) -> None:
    assert protocol.fields_of(line) is None


@pytest.mark.parametrize("text", ["a\tb", "a\nb"])
def test_a_text_that_has_no_place_in_a_line_is_refused(text: str) -> None:
    reply = AdviseReply(v=1, seq=3, message=text)
    assert protocol.encode_hook_reply(reply) == protocol.refusal("server.unsayable", 3)


def test_who_reads_json_asks_the_same_question_by_another_name() -> None:
    request = protocol.decode_request(b'{"v":1,"op":"explain","min_cpus":2}\n')
    assert isinstance(request, ExplainRequest)
    assert request.min_cpus == 2
