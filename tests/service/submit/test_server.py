"""The server on a real socket: bad clients hurt themselves only."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from advisor.model.advice import Mode
from advisor.model.errors import RetryLater, TellAdmin, UseFallback
from advisor.model.job import Job
from advisor.model.settings import Policy
from advisor.service.exchange.announcing import Announcer
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.protocol import (
    AdviseRequest,
    AgainRequest,
    ExplainRequest,
    MetricsRequest,
    PingRequest,
    encode_line,
    fields_of,
)
from advisor.service.exchange.socket_file import SocketFile
from advisor.service.exchange.spool import SpoolWriter, complete_files
from advisor.service.running.metrics import ServeMetrics
from advisor.service.running.notify import Notifier
from advisor.service.submit import server as server_module
from advisor.service.submit.serve import Service
from advisor.service.submit.server import SubmitServer
from tests.service.site import FixedEstimator, ask, make_answerer, make_settings, make_snapshot


class Running:
    """A submit server in this process."""

    def __init__(
        self,
        folder: Path,
        *,
        allowed: frozenset[int] | None = None,
        policy: Policy = "cunha2017",
        mode: Mode = Mode.ACT,
        every_user: bool = False,
        **submit: Any,
    ) -> None:
        settings = make_settings(folder, mode=mode, policy=policy, submit=submit)
        self.path = settings.paths.submit_socket
        self.estimator = FixedEstimator()
        self.answerer, self.holder = make_answerer(settings, make_snapshot(now=time.time()), self.estimator)
        self.spool = SpoolWriter(settings.paths.spool)
        self.spool_folder = settings.paths.spool
        self.metrics = ServeMetrics()
        self.announcer = Announcer(folder / "nobody.sock")
        self.file = SocketFile(self.path)
        self.file.claim()
        self.server = SubmitServer(
            self.file.listen(),
            answerer=self.answerer,
            holder=self.holder,
            spool=self.spool,
            metrics=self.metrics,
            announcer=self.announcer,
            allowed_uids=frozenset({os.geteuid()}) if allowed is None else allowed,
            every_user=every_user,
        )
        self.spool.start()
        self.server.start()

    def stop(self) -> None:
        self.file.remove()
        self.server.stop()
        self.spool.stop()

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(10)
        client.connect(str(self.path))
        return client

    def client(self) -> SubmitClient:
        return SubmitClient(self.path, timeout=10)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(**options: Any) -> Running:
        started.append(Running(tmp_path, **options))
        return started[-1]

    yield start
    for running in started:
        running.stop()


def read_reply(source: socket.socket | Any) -> list[str]:
    """Fields of the next reply to a hook: version, number of the question, code of a refusal and so on."""
    reader = source.makefile("rb") if isinstance(source, socket.socket) else source
    fields = fields_of(reader.readline())
    assert fields is not None
    return fields


def test_the_version_shown_is_that_of_the_forecasts_that_decide(serve: Callable[..., Running]) -> None:
    running = serve()
    current = running.holder.current
    cluster = structs.replace(current.settings.cluster, policy="price")
    priced = structs.replace(current.settings, cluster=cluster)
    running.holder.current = replace(current, settings=priced)
    running.holder.run_times.version = "7"
    with running.client() as client:
        assert client.ping().model_version == "7"


def test_answers_and_writes_down(serve: Callable[..., Running]) -> None:
    running = serve()
    with running.client() as client:
        moved = client.advise(user="alice", min_cpus=2, time_limit=60)
        assert moved.partition == "burst"
        dry = client.advise(user="alice", min_cpus=2, dry=True)
        assert dry.placement == "burst"
        pong = client.ping()
    assert (pong.advice_given, pong.model_version, pong.snapshot_usable) == (2, "1", True)
    running.stop()
    written = [r.advice.advice_id for file in complete_files(running.spool_folder) for r in file.records]
    assert written == [moved.id]


class Told:
    """Stands for the announcer."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, int | None]] = []
        self.sent, self.not_sent = 3, 5

    def announce(self, advice_id: str, uid: int | None) -> None:
        self.jobs.append((advice_id, uid))


@pytest.mark.parametrize("mode", [Mode.ACT, Mode.SHADOW])
def test_what_starts_hedged_is_announced_and_nothing_else(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    running, told = serve(policy="ambati2021", mode=mode), Told()
    monkeypatch.setattr(running.server, "_announcer", told)
    with running.client() as client:
        client.advise(user="alice", uid=7, min_cpus=2, comment="hedge")  # likely short: it is tried out
        running.estimator.fails = True  # how long a job runs is unknown now
        hedged = client.advise(user="alice", uid=8, min_cpus=2, comment="hedge")
        client.advise(user="alice", uid=9, min_cpus=2, comment="no-hedge")
        client.advise(user="alice", uid=10, min_cpus=2, comment="hedge", dry=True)
        running.stop()  # what is done after an answer is done
        pong_text = running.metrics.text()
    expected = [7, 8] if mode is Mode.ACT else []
    assert [uid for _, uid in told.jobs] == expected
    assert (hedged.partition == "burst") == (mode is Mode.ACT)
    if mode is Mode.ACT:
        assert told.jobs[-1] == (hedged.id, 8)
    assert "advisor_serve_hedges_announced_total 3.0" in pong_text
    assert "advisor_serve_hedges_not_announced_total 5.0" in pong_text


def test_questions_may_come_in_pieces_and_in_bundles(serve: Callable[..., Running]) -> None:
    running = serve()
    line = encode_line(ask(seq=1))
    with running.connect() as client:
        for byte in line:
            client.sendall(bytes([byte]))
        reader = client.makefile("rb")
        assert int(read_reply(reader)[1]) == 1
        client.sendall(encode_line(ask(seq=2)) + encode_line(ask(seq=3)) + line[:10])
        assert [int(read_reply(reader)[1]) for _ in range(2)] == [2, 3]
        client.sendall(line[10:])
        assert int(read_reply(reader)[1]) == 1


def test_nonsense_is_refused_on_its_own_connection_only(serve: Callable[..., Running]) -> None:
    running = serve()
    with running.client() as good, running.connect() as bad:
        assert good.advise().id
        bad.sendall(b"\x00\xff nonsense\n")
        reader = bad.makefile("rb")
        assert read_reply(reader)[2] == "protocol.malformed"
        bad.sendall(encode_line(ask(seq=9)))
        assert int(read_reply(reader)[1]) == 9, "and the next question is answered"
        assert good.advise().id
    assert 'code="protocol.malformed"} 1.0' in running.metrics.text()


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_too_long_closes_the_connection(
    serve: Callable[..., Running], end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_MAX_LINE_BYTES", 2048)
    running = serve()
    with running.connect() as client:
        client.sendall(b"x" * 3000 + end)
        assert read_reply(client)[2] == "protocol.too_long"
        assert client.recv(10) == b""
    with running.client() as good:
        assert good.advise(name="n" * 1000).id  # the fields' own names take another 700


def test_a_client_that_hangs_holds_up_nobody(serve: Callable[..., Running]) -> None:
    running = serve()
    with running.connect() as half, running.connect() as silent, running.client() as good:
        half.sendall(b'{"v":1,"op"')
        assert good.advise().id
        silent.sendall(b"x\n")  # it is served as well, once it speaks
        assert read_reply(silent)[2] == "protocol.malformed"


def test_an_idle_connection_is_closed_and_the_client_comes_again(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_IDLE_SECONDS", 0.05)
    running = serve()
    with running.connect() as client:
        assert client.recv(10) == b""
    with running.client() as good:
        assert good.advise().id


def test_no_more_connections_than_allowed(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_MAX_CONNECTIONS", 2)
    running = serve()
    with running.client() as first, running.client() as second:
        assert first.ping().pid
        assert second.ping().pid
        with running.connect() as third:
            assert read_reply(third)[2] == "server.busy"
        assert first.advise().id
        second.close()
        pause = threading.Event()
        while len(running.server._asked_at) > 1:
            pause.wait(0.005)
        with running.client() as next_one:
            assert next_one.ping().pid


def test_a_client_for_whom_there_is_no_thread_is_refused_and_the_next_one_answered(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = serve()
    start, failures = threading.Thread.start, [RuntimeError("can't start new thread")]

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name == "connection" and failures:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    with running.connect() as unlucky:
        assert read_reply(unlucky)[2] == "server.busy"
    with running.client() as client:
        assert client.advise(user="alice", min_cpus=2).placement


def test_d12_connections_that_ask_nothing_make_room(
    serve: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty-four of them kept slurmctld out for ten minutes."""
    monkeypatch.setattr(server_module, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(server_module, "_MAX_CONNECTIONS", 3)
    running = serve()
    with ExitStack() as open_ones:
        silent = [open_ones.enter_context(running.connect()) for _ in range(20)]
        asking = open_ones.enter_context(running.client())
        assert asking.advise().id
        assert silent[0].recv(10) == b"", "the one that is silent longest has made room"
        assert len(running.server._asked_at) <= 4


@pytest.mark.parametrize("field", ["seq", "gid", "time_limit", "begin_time", "min_cpus", "v"])
@pytest.mark.parametrize("digits", ["9" * 400, "-" + "9" * 400, "9" * 5000, "9" * 19])
def test_d12_a_number_of_400_digits_is_answered_with_a_refusal(
    serve: Callable[..., Running], field: str, digits: str
) -> None:
    running = serve()
    question = {"op": "advise", "v": 1, "seq": 1} | {field: "number"}
    with running.connect() as client:
        client.sendall(json.dumps(question).replace('"number"', digits).encode() + b"\n")
        assert read_reply(client)[2].startswith("protocol.")
        client.sendall(b'{"op":"ping","v":1,"seq":2}\n')
        assert json.loads(client.makefile("rb").readline())["seq"] == 2


def test_a_stranger_is_refused(serve: Callable[..., Running]) -> None:
    running = serve(allowed=frozenset())
    with running.connect() as client:
        assert read_reply(client)[2] == "peer.not_allowed"
    assert running.estimator.seen == []


def own(**fields: Any) -> dict[str, Any]:
    me = pwd.getpwuid(os.geteuid())
    return {"uid": me.pw_uid, "user": me.pw_name, "min_cpus": 2, **fields}


def test_users_who_may_ask_are_taken_up_with_new_settings(
    serve: Callable[..., Running], tmp_path: Path
) -> None:
    running = serve(allowed=frozenset())
    settings = make_settings(tmp_path)
    service = Service(settings, load_model=lambda _: None, notifier=Notifier(None))
    service._server = running.server  # as after its start
    with running.connect() as stranger:
        assert read_reply(stranger)[2] == "peer.not_allowed"
    service.use_settings(settings, lambda _: None)
    with running.client() as client:
        assert client.ping().pid == os.getpid()


def test_every_user_may_ask_about_an_own_job(serve: Callable[..., Running]) -> None:
    """Who asks is the kernel's word; a group, and what only a hook knows, are not the user's to say."""
    running = serve(allowed=frozenset(), every_user=True)
    with running.connect() as client:
        client.sendall(encode_line(AdviseRequest(v=1, seq=1, **own(gid=0, hook_failed=7))))
        reply = read_reply(client)
    assert (reply[2], reply[3]) == ("", "burst")
    assert [(job.user, job.group) for job, _ in running.estimator.seen] == [(own()["user"], None)]
    running.stop()
    assert "advisor_serve_hook_failed_total 7" not in running.metrics.text()


@pytest.mark.parametrize(
    "question",
    [
        AdviseRequest(v=1, **own(uid=4711)),
        AdviseRequest(v=1, **own(uid=None)),
        AdviseRequest(v=1, **own(user="somebody-else")),
        ExplainRequest(v=1, **own(user=None)),
        AgainRequest(v=1, job=Job(job_id=1, submit_time=1.0, processors=1)),
        PingRequest(v=1),
        MetricsRequest(v=1),
    ],
    ids=lambda question: f"{type(question).__name__}-{getattr(question, 'uid', '')}",
)
def test_a_user_may_ask_nothing_else(serve: Callable[..., Running], question: Any) -> None:
    running = serve(allowed=frozenset(), every_user=True)
    with running.connect() as client:
        client.sendall(encode_line(question))
        assert read_reply(client)[2] == "peer.not_own_job"
    assert running.estimator.seen == []


def test_a_user_is_told_whose_jobs_they_may_ask_about(serve: Callable[..., Running]) -> None:
    running = serve(allowed=frozenset(), every_user=True)
    with SubmitClient(running.path) as client, pytest.raises(TellAdmin, match="its own jobs only") as caught:
        client.advise(**own(user="somebody-else"))
    assert caught.value.code == "access.denied"


def test_one_user_does_not_take_all_connections(serve: Callable[..., Running]) -> None:
    running = serve(allowed=frozenset(), every_user=True)
    held = [running.connect() for _ in range(8)]
    try:
        with running.connect() as one_more:
            assert read_reply(one_more)[2] == "server.busy"
    finally:
        for client in held:
            client.close()


def test_a_mistake_of_ours_is_a_refusal(serve: Callable[..., Running], monkeypatch: Any) -> None:
    running = serve()
    with running.client() as client:
        with monkeypatch.context() as broken:
            broken.setattr(running.answerer, "answer", lambda _request: 1 / 0)
            with pytest.raises(UseFallback) as caught:
                client.advise()
            assert caught.value.code == "server.failed"
        assert client.advise().id, "the connection lives on"


def test_many_at_once_get_their_own_answers(serve: Callable[..., Running]) -> None:
    running = serve()
    wrong: list[Any] = []

    def submit(number: int) -> None:
        with running.connect() as client:
            reader = client.makefile("rb")
            for turn in range(50):
                seq = number * 1000 + turn
                client.sendall(encode_line(ask(seq=seq, user=f"u{number}")))
                reply = read_reply(reader)
                if reply[1:3] != [str(seq), ""]:
                    wrong.append(reply)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(running.estimator.seen) == 400


def test_a_stop_answers_what_is_under_way(serve: Callable[..., Running], monkeypatch: Any) -> None:
    running = serve()
    answer, asked, go_on = running.answerer.answer, threading.Event(), threading.Event()

    def slow(request: Any) -> Any:
        asked.set()
        go_on.wait(10)
        return answer(request)

    monkeypatch.setattr(running.answerer, "answer", slow)
    with running.connect() as client:
        client.sendall(encode_line(ask(seq=5)))
        assert asked.wait(10)
        stopper = threading.Thread(target=running.stop)
        stopper.start()
        while running.path.exists():
            threading.Event().wait(0.005)
        go_on.set()
        assert read_reply(client)[1] == "5"
        stopper.join()
    with pytest.raises(RetryLater):
        running.client().ping()


def test_metrics_over_the_socket(serve: Callable[..., Running]) -> None:
    running = serve()
    with running.client() as client:
        client.advise(hook_failed=3, hook_skipped=4)
        text = client.metrics()
    for line in (
        r'advisor_serve_advice_total\{mode="act",placement="burst",reason="[a-z_.]+"\} 1.0',
        r"advisor_serve_advice_seconds_count 1.0",
        r"advisor_serve_hook_failed_total 3.0",
        r"advisor_serve_hook_skipped_total 4.0",
        r"advisor_serve_snapshot_believed 1.0",
        r'advisor_serve_model_version\{kind="predictor"\} 1.0',
        r"advisor_serve_spool_dropped_total 0.0",
    ):
        assert re.search(f"^{line}$", text, re.MULTILINE), line


def test_the_client_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(RetryLater) as caught:
        SubmitClient(tmp_path / "none").ping()
    assert caught.value.code == "submit.unreachable"


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", RetryLater), (b"half", RetryLater), (b"nonsense\n", UseFallback), (b"{}\n", UseFallback),
        (b'{"ok":true}\n', UseFallback), (b"x" * 20_000, RetryLater),
    ],
)  # fmt: skip
def test_the_client_survives_a_wrong_server(tmp_path: Path, answer: bytes, error: type[Exception]) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer_one() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_one)
        thread.start()
        with SubmitClient(path, timeout=10) as client, pytest.raises(error):
            client.ping()
        thread.join()
