"""Hand-overs: read with suspicion, written down before they are answered, lost by nothing."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model.errors import BadInput
from advisor.service.exchange.handover import ControlSocket, HandoverFolder, decode, jobs_by_node
from advisor.service.exchange.socket_file import SocketFile
from advisor.slurm import hook_files

IDENTITY = "1795000000000000000-4711-00ff00ff"


def line(**changes: object) -> bytes:
    message = {
        "v": 1,
        "op": "resume",
        "id": IDENTITY,
        "time": 5.0,
        "nodes": "burst[1-2]",
        "resume_file": None,
    }
    return json.dumps(message | changes).encode() + b"\n"


def test_a_good_one() -> None:
    hand_over = decode(line())
    assert (hand_over.operation, hand_over.nodes, hand_over.time) == ("resume", ("burst1", "burst2"), 5.0)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]\n",
        b"nonsense\n",
        line(v=2),
        line(op="delete"),
        line(id="../../etc/passwd"),
        line(nodes=""),
        line(nodes="a;b"),
        line(nodes="a[1-99999999]"),
        line(time="soon"),
        b'{"v":1}\n',
    ],
)
def test_bad_ones_are_refused(bad: bytes) -> None:
    with pytest.raises(BadInput):
        decode(bad)


@given(st.binary(max_size=200))
def test_f28_no_bytes_raise_anything_else(content: bytes) -> None:
    try:
        decode(content)
    except BadInput:
        return


@pytest.mark.parametrize(
    ("resume_file", "jobs"),
    [
        ('{"jobs":[{"job_id":7,"nodes":"burst[1-2]"}]}', {"burst1": 7, "burst2": 7}),
        (
            '{"jobs":[{"job_id":7,"nodes_alloc":"burst[1-3]","nodes_resume":"burst1"}]}',
            {"burst1": 7},
        ),
        ("half a {", {}),
        ('{"jobs":7}', {}),
        ('{"jobs":[[]]}', {}),
        (None, {}),
    ],
)
def test_resume_files_of_several_releases(resume_file: str | None, jobs: dict[str, int]) -> None:
    assert jobs_by_node(resume_file) == jobs


def test_what_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    folder = HandoverFolder(tmp_path)
    folder.put(decode(line()), line())
    (tmp_path / "0-bad.json").write_text("nonsense")
    (tmp_path / ".half-written").write_text("{")
    assert [hand_over.identity for _, hand_over in folder.waiting()] == [IDENTITY]
    assert (tmp_path / "0-bad.bad").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="hand-over folder"):
        HandoverFolder(tmp_path / "file" / "handover").prepare()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="ho-") as folder:
        yield Path(folder)


def ask(path: Path, content: bytes) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        with suppress(BrokenPipeError):  # a stranger has been answered and hung up on before he asks
            client.sendall(content)
            client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(4096):
            answer += chunk
    return json.loads(answer)


def test_the_socket_answers_after_it_is_on_disk(short_folder: Path) -> None:
    folder = HandoverFolder(short_folder / "handover")
    folder.prepare()
    arrived: list[int] = []
    path = short_folder / "control.sock"

    def count() -> None:
        arrived.append(len(list((short_folder / "handover").glob("*.json"))))

    control = ControlSocket(SocketFile(path), folder, frozenset({os.getuid()}), count)
    control.start()
    try:
        assert ask(path, line()) == {"v": 1, "ok": True}
        assert arrived == [1]
        assert ask(path, b"nonsense\n")["error"] == "handover.malformed"
        assert ask(path, b"half a li")["error"] == "handover.malformed"
    finally:
        control.stop()
    assert len(list(folder.waiting())) == 1
    assert not path.exists()


@pytest.mark.parametrize(
    ("partition", "name", "is_told"),
    [
        ("onprem", "place-of-7", True),  # a turn has come
        ("burst", "payroll", True),  # a job in the cloud, which may want its place kept
        ("onprem", "payroll", False),
    ],
)
def test_the_prolog_tells_of_a_turn(short_folder: Path, *, partition: str, name: str, is_told: bool) -> None:
    folder, told = HandoverFolder(short_folder / "handover"), threading.Event()
    folder.prepare()
    path = short_folder / "control.sock"
    program = short_folder / hook_files.PROLOG
    program.write_bytes((hook_files.folder() / hook_files.PROLOG).read_bytes())
    sinfo = short_folder / "sinfo"
    sinfo.write_text("#!/bin/sh\necho idle\n")
    sinfo.chmod(0o755)
    (short_folder / "advisor_programs.conf").write_text(f"control_socket = {path}\nsinfo = {sinfo}\n")

    def prolog() -> int:
        environment = {
            "SLURM_JOB_PARTITION": partition,
            "SLURM_JOB_NAME": name,
            "SLURM_JOB_NODELIST": "n1",
        }
        return subprocess.run([sys.executable, "-IS", program], env=environment, check=False).returncode

    control = ControlSocket(SocketFile(path), folder, frozenset({os.getuid()}), lambda: None, told.set)
    control.start()
    try:
        assert prolog() == 0
        assert told.wait(30.0 if is_told else 0.0) == is_told
    finally:
        control.stop()
    assert list(folder.waiting()) == []  # a hint: nothing is written down
    assert prolog() == 0  # nobody listens, and no job is the worse for it


@pytest.mark.parametrize(
    "settings",
    [
        b"# f\xfcr alle\nboot_wait_seconds = 1\n",
        b"boot_wait_seconds = 10m\npoll_seconds =\n",
        b"boot_wait_seconds = nan\npoll_seconds = -1\n",
        b"control_socket = /a\x00b\n",
    ],
)
def test_no_settings_make_the_prolog_fail_a_job(short_folder: Path, settings: bytes) -> None:
    program = short_folder / hook_files.PROLOG
    program.write_bytes((hook_files.folder() / hook_files.PROLOG).read_bytes())
    sinfo = short_folder / "sinfo"
    sinfo.write_text("#!/bin/sh\necho idle\n")
    sinfo.chmod(0o755)
    content = f"control_socket = {short_folder}/none\nsinfo = {sinfo}\n".encode() + settings
    (short_folder / "advisor_programs.conf").write_bytes(content)
    environment = {"SLURM_JOB_PARTITION": "burst", "SLURM_JOB_NODELIST": "n1"}
    ran = subprocess.run(
        [sys.executable, "-IS", program], env=environment, check=False, capture_output=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_the_prolog_asks_less_often_where_slurmctld_is_slow() -> None:
    prolog = runpy.run_path(str(hook_files.folder() / hook_files.PROLOG))
    assert 0.75 <= prolog["rest"](1.0, 0.01) <= 1.25
    assert 7.5 <= prolog["rest"](1.0, 0.5) <= 12.5
    assert prolog["rest"](1.0, 20.0) <= 37.5


def test_strangers_are_refused(short_folder: Path) -> None:
    folder = HandoverFolder(short_folder / "handover")
    folder.prepare()
    path = short_folder / "control.sock"
    control = ControlSocket(SocketFile(path), folder, frozenset(), lambda: None)
    control.start()
    try:
        assert ask(path, b"")["error"] == "handover.uid"
    finally:
        control.stop()
    assert list(folder.waiting()) == []
