"""The control socket: what programs of slurmctld hand over to it, and the prolog that asks it."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from advisor.service.exchange.control_socket import ControlSocket
from advisor.service.exchange.handover import HandoverFolder
from advisor.service.exchange.socket_file import SocketFile
from advisor.service.exchange.staged import Staged
from advisor.slurm import hook_files
from tests.service.exchange.test_handover import line


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


def test_a_program_for_which_there_is_no_thread_leaves_a_file_and_the_next_one_is_heard(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = HandoverFolder(short_folder / "handover")
    folder.prepare()
    path = short_folder / "control.sock"
    control = ControlSocket(SocketFile(path), folder, frozenset({os.getuid()}), lambda: None)
    start, failures = threading.Thread.start, [RuntimeError("can't start new thread")]

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name == "handover" and failures:
            raise failures.pop()
        start(thread)

    control.start()
    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    try:
        with pytest.raises((json.JSONDecodeError, ConnectionResetError)):  # no answer
            ask(path, line())
        assert ask(path, line()) == {"v": 1, "ok": True}
    finally:
        control.stop()


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
    assert prolog() == 0  # no process listens, and the job starts all the same


@pytest.mark.parametrize(
    ("script", "agrees", "code", "told"),
    [
        ('echo "$SLURM_JOB_COMMENT" > {folder}/seen', True, 0, [True]),
        ("exit 3", True, 1, [False]),  # slurmctld requeues the job
        ("exit 3", None, 0, []),  # no process could let it be requeued: it starts as it is
        ("exec sleep 600", True, 1, [False]),  # ended when its time is over
    ],
)
def test_the_prolog_brings_a_job_s_data(
    short_folder: Path, script: str, *, agrees: bool | None, code: int, told: list[bool]
) -> None:
    path, heard = short_folder / "control.sock", list[Staged]()
    program, command = short_folder / hook_files.PROLOG, short_folder / "stage"
    text = (hook_files.folder() / hook_files.PROLOG).read_text()
    program.write_text(text.replace("CONFIRM_SECONDS = 30.0", "CONFIRM_SECONDS = 1.0"))
    command.write_text("#!/bin/sh\n" + script.format(folder=short_folder) + "\n")
    sinfo = short_folder / "sinfo"
    sinfo.write_text("#!/bin/sh\necho alloc\n")
    for each in (command, sinfo):
        each.chmod(0o755)
    (short_folder / "advisor_programs.conf").write_text(
        f"control_socket = {path}\nsinfo = {sinfo}\nstage_in = {command}\npoll_seconds = 0.05\n"
        f"stage_in_seconds = {1 if 'sleep' in script else 60}\n"
    )
    environment = {
        "SLURM_JOB_PARTITION": "burst",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_COMMENT": "data=2GB; rm -rf /",
    }

    def settled(ended: Staged) -> bool:
        heard.append(ended)
        return bool(agrees)

    folder = HandoverFolder(short_folder / "handover")
    folder.prepare()
    control = ControlSocket(
        SocketFile(path), folder, frozenset({os.getuid()}), lambda: None, stage_in_ended=settled
    )
    if agrees is not None:
        control.start()
    try:
        ran = subprocess.run([sys.executable, "-IS", program], env=environment, check=False, timeout=60)
    finally:
        if agrees is not None:
            control.stop()
    assert ran.returncode == code
    assert [ended.ok for ended in heard] == told
    assert all(ended.job == 17 and ended.seconds > 0.0 for ended in heard)
    if code == 0 and told:
        assert (short_folder / "seen").read_text() == "data=2GB; rm -rf /\n"


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
