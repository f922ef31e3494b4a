"""LSF's esub against files as bsub writes them, and real servers, good and bad. There is no LSF here."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.service.exchange import snapshot
from advisor.service.exchange.protocol import (
    AdviseReply,
    encode_hook_reply,
    refusal,
)
from advisor.service.exchange.spool import complete_files
from tests.hooks.answers import framed
from tests.hooks.esub import ATTEMPTS, SCRIPT, USUAL, parameters
from tests.service.processes import ServeProcess
from tests.service.site import make_settings, make_snapshot
from tests.service.submit.test_server import Running

TOKEN = re.compile('LSB_SUB_JOB_DESCRIPTION="Burst Advisor: advice [0-9a-f-]+"')


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
        self.queues("normal", "burst", "aws", "aws_spot")

    def queues(self, *names: str, status: str = "Open:Active", limits: str = "") -> None:
        """What bqueues shows: it ends with 255 for a queue that is not there, as the real one does."""
        program = self.folder / "bqueues"
        rows = "|".join(names) or "-"
        program.write_text(
            '#!/bin/sh\n[ "$1 $2" = "-l -u" ] || exit 1\n'
            f'case "$4" in {rows}) ;; *) echo "$4: No such queue" >&2; exit 255;; esac\n'
            "cat <<end\n\nQUEUE: $4\n  -- A queue.\n\nPARAMETERS/STATISTICS\n"
            f"PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS\n 20    0  {status}       -    -    -\n"
            f"Interval for a host to accept two jobs is 0 seconds\n\n{limits}\n"
            "SCHEDULING PARAMETERS\n           r15s   r1m\n loadSched   -     -\n\nUSERS:  all\nend\n"
        )
        program.chmod(0o755)

    def submit(self, text: str | None = None, **environment: str) -> Submission:
        asked, changed = self.folder / "parameters", self.folder / "modifications"
        asked.write_text(parameters(**USUAL) if text is None else text)
        changed.write_text("")
        begin = time.monotonic()
        done = subprocess.run(
            [self.script],
            env={
                "PATH": f"{self.folder}:/usr/bin:/bin",
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
        assert moved.said.startswith("Burst Advisor: starts in the cloud, queue burst")
        assert "To stay: -Jd no-burst" in moved.said
        assert moved.output == "", "standard output goes to eexec"
        assert TOKEN.fullmatch(moved.changes.splitlines()[1]), "by which control joins advice and job"
        stays = esub.submit_until_answered(parameters(**USUAL, RERUNNABLE="Y", QUEUE="normal"))
        assert stays.code == 0
        assert TOKEN.fullmatch(stays.changes.rstrip("\n")), "-q is the user's own word"
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
            for submission in (esub.submit(text), esub.submit(text)):
                assert submission.code == 0
                assert "LSB_SUB_QUEUE" not in submission.changes
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


# -------------------------------------------------------------------------------------- the queue it names
def test_only_a_queue_that_is_there_and_open(tmp_path: Path, esub: Esub) -> None:
    """Bsub refuses a job for another queue, so the job would not be submitted at all."""
    with answering(tmp_path / "s", says(partition="burst", message="moved")):
        assert esub.submit_until_answered().changes == 'LSB_SUB_QUEUE="burst"\n'
        esub.queues("normal")
        gone = esub.submit_until_answered()
        esub.queues("burst", status="Closed:Active")
        closed = esub.submit_until_answered()
        (esub.folder / "bqueues").unlink()
        unknown = esub.submit_until_answered()
    for kept in (gone, closed, unknown):
        assert (kept.code, kept.changes, kept.output) == (0, "", "")
        assert "job left alone" in kept.said


LIMITS = """\
DEFAULT LIMITS:
 RUNLIMIT
 10.0 min

MAXIMUM LIMITS:
 RUNLIMIT                 PROCLIMIT
 120.0 min                2 3 32

 MEMLIMIT
 512000000 K
"""
"""As volclava shows `RUNLIMIT = 10 120`, `PROCLIMIT = 2 3 32` and a MEMLIMIT."""


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, "7200"),  # the advice is 180 minutes
        ({"RLIMIT_RUN": "7200"}, None),
        ({"RLIMIT_RUN": "7260"}, "refused"),
        ({"NUM_PROCESSORS": "64"}, "refused"),
        ({"NUM_PROCESSORS": "1"}, "refused"),
        ({"RLIMIT_RSS": "1000"}, "refused"),
        ({"HOST_SPEC": '"fast"'}, "refused"),
    ],
)
def test_a_job_that_the_queue_would_not_take_stays(
    tmp_path: Path, esub: Esub, options: dict[str, str], limit: str | None
) -> None:
    """On volclava bsub refuses it: "RUNLIMIT: Cannot exceed queue's hard limit(s). Job not submitted."."""
    esub.queues("burst", limits=LIMITS)
    asked = {"NUM_PROCESSORS": "16", "RLIMIT_RUN": "5400", **options}
    text = "".join(f"LSB_SUB_{name}={value}\n" for name, value in asked.items())
    with answering(tmp_path / "s", says(partition="burst", time_limit=180)):
        found = esub.submit_until_answered(text)
    if limit == "refused":
        assert (found.changes, "the queue burst has" in found.said) == ("", True)
    else:
        raised = f"LSB_SUB_RLIMIT_RUN={limit}\n" if limit else ""
        assert found.changes == f'LSB_SUB_QUEUE="burst"\n{raised}'


def test_a_queue_with_a_long_name_is_known(tmp_path: Path, esub: Esub) -> None:
    long = "cloud_on_demand_gpu"
    esub.queues(long)
    with answering(tmp_path / "s", says(partition=long)):
        assert esub.submit_until_answered().changes == f'LSB_SUB_QUEUE="{long}"\n'


def test_a_bqueues_that_hangs_is_not_waited_for(tmp_path: Path, esub: Esub) -> None:
    (esub.folder / "bqueues").write_text("#!/bin/sh\nexec sleep 20\n")
    with answering(tmp_path / "s", says(partition="burst")):
        submission = esub.submit()
    assert (submission.code, submission.changes) == (0, "")


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
    assert f"job left alone: advisor serve does not answer at {path}: " in submission.said


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


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "Burst Advisor: stays here. It would wait. To go there: -p burst",
            "stays here. It would wait. To go there: -q burst",
        ),
        ("Burst Advisor: the comment's by= is no time: write X", "the description's by= is no time: write X"),
        ("Burst Advisor: A. The comment's by= is no time", "A. The description's by= is no time"),
        ("Burst Advisor: stays here. What its comment says of", "stays here. What its description says of"),
        (
            "Burst Advisor: nothing is promised. Its comment says no-burst",
            "nothing is promised. Its description says no-burst",
        ),
    ],
)
def test_the_user_of_a_job_that_stays_is_told_as_well(
    tmp_path: Path, esub: Esub, said: str, shown: str
) -> None:
    """In mode advise, and of a promise: what sbatch says."""
    with answering(tmp_path / "s", says(message=said)):
        found = esub.submit_until_answered()
    assert (found.code, found.changes, found.said) == (0, "", f"Burst Advisor: {shown}\n")


def test_a_limit_is_only_ever_raised(tmp_path: Path, esub: Esub) -> None:
    for minutes, asked, line in (
        (180, "7200", "LSB_SUB_RLIMIT_RUN=10800\n"),
        (60, "7200", ""),
    ):
        options = {**USUAL, "RLIMIT_RUN": asked}
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
        ({"RES_REQ": "rusage[mem=500G/job]"}, {}, "memory of all hosts together"),
        ({"RLIMIT_RUN": ""}, {}, "no time limit"),
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


@pytest.mark.parametrize(
    ("advice_id", "own", "left"),
    [
        ("5f-ab-1", "", 'LSB_SUB_JOB_DESCRIPTION="Burst Advisor: advice 5f-ab-1"\n'),
        ("5f-ab-1", "mine", ""),
        ('x" y', "", ""),
        ("", "", ""),
    ],
)
def test_the_id_of_the_advice_is_left_where_the_user_says_nothing(
    tmp_path: Path, esub: Esub, advice_id: str, own: str, left: str
) -> None:
    comment = json.dumps({"burst_advisor": 1, "id": advice_id}, separators=(",", ":"))
    text = parameters(**USUAL, **({"JOB_DESCRIPTION": own} if own else {}))
    with answering(tmp_path / "s", says(admin_comment=comment)):
        for _ in range(ATTEMPTS):
            submission = esub.submit(text)
            if "in time" not in submission.said and (submission.changes or not left):
                break
    assert submission.code == 0
    assert submission.changes == left
