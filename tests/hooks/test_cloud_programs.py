"""resume, suspend, resume_fail as slurmctld runs them: no environment, no descriptors, signals blocked."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from advisor.service.admin.doctor_hook import told_by
from advisor.service.exchange.handover import HandoverFolder, decode
from tests.full_disk import room_for
from tests.hooks.cloud_programs import as_slurmctld, installed_programs


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Installed programs with their settings beside them."""
    (tmp_path / "handover").mkdir()
    return installed_programs(tmp_path)


def left_files(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((tmp_path / "handover").glob("*.json"))]


class OneAnswer:
    """A control process that answers one hand-over, in pieces; None: it says nothing and hangs."""

    def __init__(self, path: Path, *pieces: bytes | None, pause: float = 0.0) -> None:
        self.received = b""
        self.hangs = threading.Event()
        self._pieces = pieces
        self._pause = pause
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(10)
        self._listener.close()

    def _run(self) -> None:
        connection, _ = self._listener.accept()
        with connection, suppress(BrokenPipeError):
            while not self.received.endswith(b"\n"):
                self.received += connection.recv(65536)
            for piece in self._pieces:
                if piece is None:
                    self.hangs.set()
                    self._done.wait(300)
                else:
                    connection.sendall(piece)
                    self._done.wait(self._pause)


@pytest.mark.parametrize("verb", ["resume", "suspend", "resume_fail"])
def test_handed_over_by_the_socket(programs: Path, tmp_path: Path, verb: str) -> None:
    with (programs / "advisor_programs.conf").open("a") as settings:
        settings.write("answer_seconds = 20\n")  # this process may be slow to answer
    with OneAnswer(tmp_path / "control.sock", b'{"v":1,"ok":true}\n') as control:
        assert as_slurmctld(programs / verb, "burst[1-3]") == 0
    hand_over = decode(control.received)
    assert hand_over.operation == verb
    assert hand_over.nodes == ("burst1", "burst2", "burst3")
    assert left_files(tmp_path) == []


@pytest.mark.parametrize("answer", [b"", b"nonsense\n", b'{"ok":false}\n', b"[]\n", b"\xff\xfe\n"])
def test_f13_without_a_good_answer_a_file_is_left(programs: Path, tmp_path: Path, answer: bytes) -> None:
    with OneAnswer(tmp_path / "control.sock", answer):
        assert as_slurmctld(programs / "resume", "burst1") == 0
    assert [message["nodes"] for message in left_files(tmp_path)] == ["burst1"]


def test_f13_control_hangs_and_the_program_returns_all_the_same(programs: Path, tmp_path: Path) -> None:
    """It would have to be waited for five minutes; `as_slurmctld` gives the program thirty seconds."""
    with OneAnswer(tmp_path / "control.sock", None) as control:
        assert as_slurmctld(programs / "resume", "burst1") == 0
        assert control.hangs.is_set()  # still: nobody has answered
    assert [message["nodes"] for message in left_files(tmp_path)] == ["burst1"]


def test_f13_the_time_is_for_the_whole_answer(programs: Path, tmp_path: Path) -> None:
    """A byte now and then: each comes in time, all of them would take ten minutes."""
    drips = [b" "] * 3000
    with OneAnswer(tmp_path / "control.sock", *drips, pause=0.2):
        assert as_slurmctld(programs / "resume", "burst1") == 0
    assert [message["nodes"] for message in left_files(tmp_path)] == ["burst1"]


def test_f13_a_control_that_takes_no_connection_is_not_waited_for(programs: Path, tmp_path: Path) -> None:
    """Stopped, and others have filled its queue: connecting itself would wait."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen(0)
        with suppress(BlockingIOError):
            while True:
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(tmp_path / "control.sock"))
        assert as_slurmctld(programs / "resume", "burst1") == 0
    assert [message["nodes"] for message in left_files(tmp_path)] == ["burst1"]


def test_f14_nobody_there_and_what_is_left_can_be_read(programs: Path, tmp_path: Path) -> None:
    resume_file = tmp_path / "resume.json"
    resume_file.write_text('{"jobs":[{"job_id":7,"nodes":"burst[1-2]"}],"all_nodes":"burst[1-2]"}')
    assert as_slurmctld(programs / "resume", "burst[1-2]", env={"SLURM_RESUME_FILE": str(resume_file)}) == 0
    assert as_slurmctld(programs / "suspend", "burst3") == 0
    (_, first), (_, second) = HandoverFolder(tmp_path / "handover").waiting()
    assert (first.operation, first.nodes) == ("resume", ("burst1", "burst2"))
    assert first.jobs == {"burst1": 7, "burst2": 7}
    assert (second.operation, second.nodes, second.jobs) == ("suspend", ("burst3",), {})
    assert "left as a file" in (tmp_path / "programs.log").read_text()


def test_f32_a_file_is_newer_than_those_that_wait_whatever_the_clock_says(
    programs: Path, tmp_path: Path
) -> None:
    identity = f"{2 * time.time_ns()}-1-00ff00ff"  # the clock was far ahead when slurmctld asked for this
    waits = {"v": 1, "op": "suspend", "id": identity, "time": 5.0, "nodes": "burst1"}
    (tmp_path / "handover" / f"{identity}.json").write_text(json.dumps(waits))
    (tmp_path / "handover" / "no-number.json").write_text("{}")
    assert as_slurmctld(programs / "resume", "burst1") == 0
    waiting = [found.operation for _, found in HandoverFolder(tmp_path / "handover").waiting()]
    assert waiting == ["suspend", "resume"]


def test_neither_way_is_said_and_told_by_the_exit_code(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "handover").rmdir()
    assert as_slurmctld(programs / "resume", "burst1") == 1
    assert "NOT handed over" in (tmp_path / "programs.log").read_text()


def test_a_full_disk_leaves_no_piece_of_a_hand_over(programs: Path, tmp_path: Path) -> None:
    with room_for(20):
        assert as_slurmctld(programs / "resume", "burst1") == 1
    assert list((tmp_path / "handover").iterdir()) == []


def test_a_log_that_cannot_be_written_stops_nothing(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "programs.log").mkdir()
    assert as_slurmctld(programs / "resume", "burst1") == 0
    assert len(left_files(tmp_path)) == 1


def test_settings_beside_slurm_conf(programs: Path, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (programs / "advisor_programs.conf").rename(etc / "advisor_programs.conf")
    assert as_slurmctld(programs / "resume", "burst1", env={"SLURM_CONF": str(etc / "slurm.conf")}) == 0
    assert len(left_files(tmp_path)) == 1


def test_settings_that_are_not_utf8_lose_nothing(programs: Path, tmp_path: Path) -> None:
    settings = programs / "advisor_programs.conf"
    settings.write_bytes(b"# f\xfcr alle\n" + settings.read_bytes() + b"answer_seconds = 10m\n")
    assert as_slurmctld(programs / "resume", "burst1") == 0
    assert len(left_files(tmp_path)) == 1


def test_a_comment_behind_a_setting_is_no_part_of_it(programs: Path, tmp_path: Path) -> None:
    settings = programs / "advisor_programs.conf"
    settings.write_text(settings.read_text().replace("handover\n", "handover   # on the shared disk\n"))
    assert as_slurmctld(programs / "resume", "burst1") == 0
    assert len(left_files(tmp_path)) == 1
    assert told_by(settings)["handover_folder"] == f"{tmp_path}/handover"


@pytest.mark.parametrize("nodes", ["--help", "-rf", "burst1;id", "@all", "", "burst 1"])
@pytest.mark.parametrize("verb", ["resume", "suspend"])
def test_d8_what_is_no_node_list_is_not_handed_over(
    programs: Path, tmp_path: Path, verb: str, nodes: str
) -> None:
    assert as_slurmctld(programs / verb, nodes) == 2
    assert left_files(tmp_path) == []
    assert "with a node list" in (tmp_path / "programs.log").read_text()


def test_called_wrongly(programs: Path) -> None:
    assert as_slurmctld(programs / "resume") == 2
    (programs / "resume").rename(programs / "other")
    assert as_slurmctld(programs / "other", "burst1") == 2


@pytest.mark.parametrize(("then", "looks"), [("mix", 2), ("drng!", 2), ("idle~", 2), ("drng%", 3)])
def test_a_job_starts_once_its_nodes_are_up_or_are_not_its_any_more(
    programs: Path, tmp_path: Path, then: str, looks: int
) -> None:
    """A node that is to be powered down when its jobs have ended (``!``) is up until then."""
    looked, sinfo = tmp_path / "looked", tmp_path / "sinfo"
    looked.touch()
    sinfo.write_text(
        f"#!/bin/sh\nset -- alloc# {then} idle\nwhile read -r _; do shift; done < {looked}\n"
        f"echo >> {looked}\necho $1\n"
    )
    sinfo.chmod(0o755)
    env = {"SLURM_JOB_NODELIST": "burst1", "SLURM_JOB_PARTITION": "burst"}
    assert as_slurmctld(programs / "prolog_slurmctld", env=env) == 0
    assert len(looked.read_text()) == looks
