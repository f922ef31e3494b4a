"""LSF's esub against files as bsub writes them, and real servers, good and bad. There is no LSF here."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model import Job
from advisor.service.exchange import snapshot
from advisor.service.exchange.protocol import (
    AdviseReply,
    AdviseRequest,
    decode_request,
    encode_hook_reply,
    refusal,
)
from advisor.service.exchange.spool import complete_files
from advisor.service.submit.submission import job_of
from tests.hooks.answers import framed
from tests.service.processes import ServeProcess
from tests.service.site import make_settings, make_snapshot
from tests.service.submit.test_server import Running

SCRIPT = Path(__file__).resolve().parents[2] / "lsf_hooks" / "esub.advisor"
ATTEMPTS = 40
"""A machine under load may miss half a second now and then."""


def parameters(**options: str) -> str:
    """What bsub writes: strings in quotes, quotes in them escaped, numbers and Y bare."""
    lines = []
    for name, value in options.items():
        bare = value in {"Y", "SUB_RESET"} or value.isdigit()
        written = value if bare else '"' + value.replace('"', '\\"') + '"'
        lines.append(f"LSB_SUB_{name}={written}\n")
    return "".join(lines)


USUAL = {"NUM_PROCESSORS": "4", "MAX_NUM_PROCESSORS": "4", "RLIMIT_RUN": "7200", "OUT_FILE": "%J.out"}


@dataclass
class Submission:
    """What became of one."""

    code: int
    changes: str
    said: str
    output: str
    seconds: float


class Esub:
    """The script, installed with its settings beside it."""

    def __init__(self, folder: Path, path: Path, **settings: object) -> None:
        self.folder = folder / "serverdir"
        self.folder.mkdir()
        self.script = self.folder / "esub.advisor"
        text = SCRIPT.read_text()
        first = "#!/usr/bin/python3 -IS"
        assert text.startswith(first)
        self.script.write_text(text.replace(first, f"#!{sys.executable} -IS", 1))
        self.script.chmod(0o755)
        lines = [
            f"{name} = {value}\n" for name, value in {"socket": path, "budget_ms": 500, **settings}.items()
        ]
        (self.folder / "advisor_esub.conf").write_text("".join(lines))

    def submit(self, text: str | None = None, **environment: str) -> Submission:
        asked, changed = self.folder / "parameters", self.folder / "modifications"
        asked.write_text(parameters(**USUAL) if text is None else text)
        changed.write_text("")
        begin = time.monotonic()
        done = subprocess.run(
            [self.script],
            env={
                "LSB_SUB_PARM_FILE": str(asked),
                "LSB_SUB_MODIFY_FILE": str(changed),
                "LSB_SUB_ABORT_VALUE": "97",
                "ADVISOR_ESUB_VERBOSE": "1",
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        seconds = time.monotonic() - begin
        return Submission(done.returncode, changed.read_text(), done.stderr, done.stdout, seconds)

    def submit_until_answered(self, text: str | None = None, **environment: str) -> Submission:
        for _ in range(ATTEMPTS):
            submission = self.submit(text, **environment)
            if "in time" not in submission.said and (submission.changes or submission.said):
                return submission
        raise AssertionError(submission)


@contextmanager
def answering(path: Path, act: Callable[[socket.socket, bytes], Any]) -> Iterator[list[bytes]]:
    """A server that does one thing with every question."""
    received: list[bytes] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    held: list[socket.socket] = []

    def run() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            held.append(connection)
            try:
                received.append(connection.recv(65536))
                act(connection, received[-1])
            except OSError:
                pass

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield received
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for connection in held:
            connection.close()


def says(**reply: Any) -> Callable[[socket.socket, bytes], Any]:
    def act(connection: socket.socket, line: bytes) -> None:
        seq = json.loads(line)["seq"]
        connection.sendall(encode_hook_reply(AdviseReply(v=1, seq=seq, **reply)))

    return act


@pytest.fixture
def esub(tmp_path: Path) -> Esub:
    return Esub(tmp_path, tmp_path / "s")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script's functions."""
    loader = importlib.machinery.SourceFileLoader("esub_advisor", str(SCRIPT))
    spec = importlib.util.spec_from_loader("esub_advisor", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


# ------------------------------------------------------------------------------------------ real servers


def test_the_submit_server_moves_a_job_and_its_user_is_told(tmp_path: Path) -> None:
    """Long waits, a cloud: the queue changes, and a line goes to standard error."""
    running = Running(tmp_path)
    try:
        esub = Esub(tmp_path, running.path)
        kept = esub.submit_until_answered()
        assert kept.changes == "", "spot is no place for a job that may not be run again"
        assert "there is no queue for on-demand" in kept.said
        moved = esub.submit_until_answered(parameters(**USUAL, RERUNNABLE="Y"))
        assert moved.changes.startswith('LSB_SUB_QUEUE="burst"\n')
        assert moved.code == 0
        assert moved.said.startswith("Burst Advisor: starts in the cloud, partition burst")
        assert moved.output == "", "standard output goes to eexec"
        stays = esub.submit(parameters(**USUAL, RERUNNABLE="Y", QUEUE="normal"))
        assert (stays.code, stays.changes) == (0, ""), "-q is the user's own word"
        stays = esub.submit(parameters(**USUAL, RERUNNABLE="Y", JOB_DESCRIPTION="no-burst"))
        assert (stays.code, stays.changes) == (0, "")
    finally:
        running.stop()


def test_advise_serve_gets_what_the_user_asked_for(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    snapshot.write(settings.paths.snapshot, make_snapshot(now=time.time()))
    esub = Esub(tmp_path, settings.paths.submit_socket, default_queue="normal")
    with ServeProcess(settings) as advisor:
        advisor.start()
        text = parameters(
            NUM_PROCESSORS="16",
            JOB_NAME='a "scan" \\ ü[1-30]%5',
            PROJECT_NAME="physics",
            RES_REQ="rusage[mem=4G:matlab=2] span[ptile=4]",
            RLIMIT_RUN="5400",
            RERUNNABLE="Y",
        )
        records: list[Any] = []
        for _ in range(ATTEMPTS):
            assert (esub.submit(text).code, esub.submit(text).changes) == (0, "")
            if advisor_given(advisor):
                break
        assert advisor.stop() == 0
    for file in complete_files(settings.paths.spool):
        records += file.records
    job = records[0].job
    assert job.user == pwd.getpwuid(os.getuid()).pw_name
    assert (job.processors, job.nodes, job.memory_mb_per_node) == (16, 4, 4096)
    assert (job.name, job.array_tasks, job.account) == ('a "scan" \\ ü', 30, "physics")
    assert (job.requested_time, job.explicit_time_limit) == (5400.0, True)
    assert (job.queue, job.explicit_partition) == ("normal", False)
    assert (job.licenses, job.requeue, job.interactive) == ("matlab=2", True, False)


def advisor_given(advisor: ServeProcess) -> int:
    with advisor.client() as client:
        return client.ping().advice_given


# -------------------------------------------------------------------------------- whatever the server does


SILLY: dict[str, Callable[[socket.socket, bytes], Any]] = {
    "never answers": lambda _c, _line: None,
    "hangs up": lambda c, _line: c.close(),
    "half a line and hangs up": lambda c, _line: (c.sendall(b"=000301\t1\t\tburst\t"), c.close()),
    "half a line": lambda c, _line: c.sendall(b"=000301\t1\t\tburst\t"),
    "nonsense": lambda c, _line: c.sendall(b"\x00\xff{]\n"),
    "1 MB": lambda c, _line: c.sendall(b"x" * 1_000_000 + b"\n"),
    "someone else's answer": lambda c, _line: c.sendall(framed(b"1\t7\t\tburst\t\t\t\t\t\t\t\n")),
    "another version": lambda c, _line: c.sendall(framed(b"2\t1\t\tburst\t\t\t\t\t\t\t\n")),
    "a refusal": lambda c, _line: c.sendall(refusal("server.busy", 1)),
    "a queue with a quote": lambda c, _line: c.sendall(framed(b'1\t1\t\tb"\\u\t\t\t\t\t\t\t\n')),
    "a feature nobody has": lambda c, _line: c.sendall(framed(b"1\t1\t\tburst\ton-demand\t\t\t\t\t\t\n")),
}


@pytest.mark.parametrize("kind", SILLY)
def test_a_silly_server_changes_nothing(tmp_path: Path, esub: Esub, kind: str) -> None:
    with answering(tmp_path / "s", SILLY[kind]):
        submission = esub.submit()
    assert (submission.code, submission.changes, submission.output) == (0, "", "")


@pytest.mark.parametrize("kind", ["missing", "nobody listens", "a file"])
def test_no_server(tmp_path: Path, esub: Esub, kind: str) -> None:
    path = tmp_path / "s"
    if kind == "a file":
        path.write_text("")
    elif kind == "nobody listens":
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
    submission = esub.submit_until_answered()
    assert (submission.code, submission.changes) == (0, "")
    assert "job left alone" in submission.said


def test_it_ends_in_time_whatever_blocks(tmp_path: Path, esub: Esub) -> None:
    """A parameter file that never ends: nothing but the other thread can end that."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    submission = esub.submit(LSB_SUB_PARM_FILE=str(fifo))  # would wait for a writer for ever
    assert (submission.code, submission.changes) == (0, "")


def test_features_become_queues(tmp_path: Path) -> None:
    esub = Esub(tmp_path, tmp_path / "s", **{"queue_for.spot": "aws_spot", "queue_for.on-demand": "aws"})
    for reply, queue in (
        ({"prefer": "spot"}, "aws_spot"),
        ({"features": "on-demand"}, "aws"),
        ({"prefer": "steady"}, "burst"),
        ({}, "burst"),
    ):
        socket_path = tmp_path / "s"
        with answering(socket_path, says(partition="burst", **reply)):
            changes = esub.submit_until_answered().changes
        socket_path.unlink()
        assert changes == f'LSB_SUB_QUEUE="{queue}"\n'


def test_a_limit_is_only_ever_raised(tmp_path: Path, esub: Esub) -> None:
    for minutes, asked, line in (
        (180, "7200", "LSB_SUB_RLIMIT_RUN=10800\n"),
        (60, "7200", ""),
        (180, "", ""),
    ):
        options = {**USUAL, "RLIMIT_RUN": asked} if asked else {"NUM_PROCESSORS": "1"}
        with answering(tmp_path / "s", says(partition="burst", time_limit=minutes)):
            changes = esub.submit_until_answered(parameters(**options)).changes
        (tmp_path / "s").unlink()
        assert changes == 'LSB_SUB_QUEUE="burst"\n' + line


@pytest.mark.parametrize(
    ("options", "environment", "why"),
    [
        ({"MODIFY": "Y"}, {}, "no submission"),
        ({"QUEUE": "SUB_RESET"}, {}, "not known"),
        ({}, {"LSF_INVOKE_CMD": "bmod"}, "no submission"),
        ({"RESTART": "Y"}, {}, "no submission"),
        ({"GPU_REQ": "num=2"}, {}, "options that are not known: GPU_REQ"),
        ({"EXCLUSIVE": "Y"}, {}, "EXCLUSIVE"),
        ({"RES_REQ": "select[type==any && big]"}, {}, "chooses hosts"),
        ({"RES_REQ": "type==any"}, {}, "chooses hosts"),
        ({"RES_REQ": "rusage[mem=(8 4):duration=(1 2)]"}, {}, "phases"),
        ({"RES_REQ": "rusage[mem=8||swp=4]"}, {}, "alternatives"),
        ({"RES_REQ": "span[block=4]"}, {}, "span"),
        ({"JOB_DESCRIPTION": "x" * 20_000}, {}, "too long"),
        ({}, {"LSB_SUB_PARM_FILE": ""}, "not called by bsub"),
        ({}, {"LSB_SUB_MODIFY_FILE": ""}, "not called by bsub"),
        ({}, {"LSB_SUB_PARM_FILE": "/missing/file"}, "No such file"),
    ],
)
def test_jobs_that_nobody_asks_about(
    tmp_path: Path, esub: Esub, options: dict[str, str], environment: dict[str, str], why: str
) -> None:
    with answering(tmp_path / "s", says(partition="burst")) as received:
        submission = esub.submit_until_answered(parameters(**{**USUAL, **options}), **environment)
    assert (submission.code, submission.changes, submission.output) == (0, "", "")
    assert why in submission.said
    assert received == []


def test_options_may_be_declared_harmless(tmp_path: Path) -> None:
    esub = Esub(tmp_path, tmp_path / "s", harmless_options="APP EXCLUSIVE")
    with answering(tmp_path / "s", says(partition="burst")):
        moved = esub.submit_until_answered(parameters(**USUAL, EXCLUSIVE="Y") + 'LSB_SUB3_APP="fluent"\n')
    assert moved.changes == 'LSB_SUB_QUEUE="burst"\n'


def test_switched_off(tmp_path: Path) -> None:
    esub = Esub(tmp_path, tmp_path / "s", enabled="no")
    with answering(tmp_path / "s", says(partition="burst")) as received:
        assert esub.submit().changes == ""
    assert received == []


def test_without_words_for_admins_it_is_silent(esub: Esub) -> None:
    assert esub.submit(ADVISOR_ESUB_VERBOSE="").said == ""


# -------------------------------------------------------------------------------------------- its parts


SETTINGS = {
    "default_project": "default",
    "default_queue": "normal",
    "memory_unit": "MB",
    "harmless_options": "",
}
LOST_SETTINGS = {**SETTINGS, "queue_for.spot": "aws_spot"}


def request_of(script: ModuleType, **options: str) -> AdviseRequest:
    request = decode_request(script.encode(script.describe(options, SETTINGS)))
    assert isinstance(request, AdviseRequest)
    return request


def job(script: ModuleType, **options: str) -> Job:
    return job_of(request_of(script, **options), now=1.0, default_queue="other", group_names={})


def test_every_option(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LSB_DEFAULTPROJECT", raising=False)
    plain = job(script)
    assert (plain.queue, plain.account, plain.processors, plain.requested_time) == (
        "normal",
        "default",
        1,
        None,
    )
    assert (plain.requeue, plain.interactive, plain.explicit_partition) == (False, False, False)
    assert job(script, QUEUE="long").explicit_partition
    assert job(script, NUM_TASKS="8", NUM_PROCESSORS="4").processors == 8
    assert job(script, PTY="Y").interactive
    assert job(script, HOLD="Y").deferred
    assert job(script, BEGIN_TIME="99").deferred
    assert job(script, HOSTS="node1 node2 ").node_list == "node1 node2 "
    assert job(script, DEPEND_COND="done(7)").dependency == "done(7)"
    assert job(script, ADVRSV_ID="ann#0").reservation == "ann#0"
    assert job(script, SLA="gold").qos == "gold"
    assert job(script, JOB_DESCRIPTION="no-burst").comment == "no-burst"
    assert job(script, RLIMIT_RUN="61").requested_time == 120.0
    monkeypatch.setenv("LSB_DEFAULTPROJECT", "chemistry")
    assert job(script).account == "chemistry"


@pytest.mark.parametrize(
    ("requirement", "nodes", "whole", "per_node", "licenses", "gres"),
    [
        ("", None, None, None, None, None),
        ("rusage[mem=4G]", None, 4096, 4096, None, None),
        ("rusage[mem=4G/task]", None, 32768, None, None, None),
        ("rusage[mem=4G/job]", None, None, None, None, None),
        ("rusage[mem=4G/job] span[hosts=1]", 1, 4096, 4096, None, None),
        ("span[ptile=3] rusage[mem=512]", 3, 1536, 512, None, None),
        ("order[mem] rusage[matlab=1,ngpus_physical=2]", None, None, None, "matlab=1", "ngpus_physical=2"),
        ("rusage[mem=much]", None, None, None, None, None),
        ("span[hosts=-1]", None, None, None, None, None),
    ],
)
def test_resource_requirements(
    script: ModuleType,
    requirement: str,
    nodes: int | None,
    whole: int | None,
    per_node: int | None,
    licenses: str | None,
    gres: str | None,
) -> None:
    asked = job(script, RES_REQ=requirement, NUM_PROCESSORS="8")
    assert asked.nodes == nodes
    assert (asked.memory_mb, asked.memory_mb_per_node) == (whole, per_node)
    assert (asked.licenses, asked.gres, asked.processors) == (licenses, gres, 8 if nodes != 3 else 9)


@pytest.mark.parametrize(
    ("text", "name", "tasks"),
    [
        ("flow", "flow", 1),
        ("scan[1-100]", "scan", 100),
        ("scan[1-10:2,50]%3", "scan", 6),
        ("odd[1", "odd[1", 1),
    ],
)
def test_arrays(script: ModuleType, text: str, name: str, tasks: int) -> None:
    asked = job(script, JOB_NAME=text)
    assert (asked.name, asked.array_tasks) == (name, tasks)


@given(st.dictionaries(st.sampled_from(["JOB_NAME", "COMMAND_LINE", "PROJECT_NAME"]), st.text(max_size=40)))
def test_what_is_written_is_read(script: ModuleType, tmp_path_factory: Any, options: dict[str, str]) -> None:
    written = {name: value.replace("\\", "").replace("\r", "") for name, value in options.items()}
    text = "".join(f'LSB_SUB_{name}="' + value.replace('"', '\\"') + '"\n' for name, value in written.items())
    path = tmp_path_factory.getbasetemp() / "parameters"
    path.write_text(text, newline="")
    assert script.read_options(str(path)) == written


@given(st.binary(max_size=300))
def test_any_parameter_file_is_read_or_left_alone(
    script: ModuleType, tmp_path_factory: Any, text: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "parameters"
    path.write_bytes(b"LSB_SUB_" + text)
    try:
        options = script.read_options(str(path))
        script.look_at(options, SETTINGS)
        line = script.encode(script.describe(options, SETTINGS))
    except script.LeftAlone:
        return
    assert decode_request(line)


@given(st.text(max_size=60))
def test_no_name_hides_another_option(script: ModuleType, tmp_path_factory: Any, name: str) -> None:
    """A job called `x"\\nLSB_SUB_QUEUE="y` is called that, and asks for no queue."""
    path = tmp_path_factory.getbasetemp() / "parameters"
    for text in (name, f'{name}"\nLSB_SUB_QUEUE="y', f"{name}\nLSB_SUB_QUEUE=y"):
        written = text.replace("\\", "/")
        path.write_text('LSB_SUB_JOB_NAME="' + written.replace('"', '\\"') + '"\n', newline="")
        assert "QUEUE" not in script.read_options(str(path))


@given(st.text(max_size=100))
def test_any_answer_is_judged(script: ModuleType, answer: str) -> None:
    for line in (
        answer,
        f"=000991\t1\t\t{answer}\t\t\t\t\t\t\t\n",
        f"=000991\t1\t\tburst\t{answer}\t\t\t\t\t{answer}\t\n",
    ):
        try:
            lines, message = script.changes_for(line, {}, LOST_SETTINGS)
        except script.LeftAlone:
            continue
        assert lines == "" or lines.startswith('LSB_SUB_QUEUE="')
        assert lines.count("\n") <= 2
        assert message == "" or message.isprintable()


def test_the_script_knows_the_protocols_fields(script: ModuleType) -> None:
    known = {field.name for field in msgspec.structs.fields(AdviseRequest)}
    asked = script.describe(
        {"JOB_NAME": "a[1-2]", "RES_REQ": "rusage[mem=1:lic=1:ngpus=1] span[ptile=1]"}, SETTINGS
    )
    assert asked.keys() <= known
