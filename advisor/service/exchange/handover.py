"""Hand-overs of `resume`, `suspend` and `resume_fail`: on disk before slurmctld gets a success.

Each is one file in one folder, written by this process (when the program reached its socket) or by the
program itself (when it did not). It is deleted when it has been acted upon, so that a crash on either
side loses nothing; acting twice must therefore be harmless.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from advisor.files.whole_file import read_plain_file, replace_file, set_aside
from advisor.model.errors import AdvisorError, BadInput, RetryLater, TellAdmin
from advisor.model.node_sets import expand
from advisor.service.exchange import announcing, staged
from advisor.service.exchange.announcing import Announced
from advisor.service.exchange.socket_file import SocketFile, peer_uid
from advisor.service.exchange.staged import Staged

log = structlog.get_logger(__name__)

MAX_BYTES: Final = 8 * 1024 * 1024
TURN: Final = b'{"v":1,"op":"turn"}\n'
"""The message of `prolog_slurmctld` when a placeholder starts."""
_OPERATIONS: Final = frozenset({"resume", "suspend", "resume_fail"})
_IDENTITY: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,10}-[0-9a-f]{8}")
_READ_SECONDS: Final = 2.0
_MAX_SET_ASIDE: Final = 200
"""The newest files set aside are kept for an admin; a program called for wrong nodes makes one a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """A request of slurmctld about nodes.

    Attributes:
        identity: A unique id, which sorts by time.
        operation: ``resume``, ``suspend`` or ``resume_fail``.
        time: When slurmctld asked, epoch seconds.
        jobs: Node to the job for which it is resumed, if Slurm names one.
        priorities: Node to that job's priority, if Slurm names it (from 26.05 on).
        allocated: Job to all its nodes, including those that are up, if Slurm names them.
    """

    identity: str
    operation: str
    nodes: tuple[str, ...]
    time: float
    jobs: dict[str, int]
    priorities: dict[str, int] = field(default_factory=dict)
    allocated: dict[int, tuple[str, ...]] = field(default_factory=dict)


def decode(line: bytes) -> HandOver:
    """Read one message.

    Raises:
        BadInput: It is not a hand-over.
    """
    try:
        message = json.loads(line)
        identity, operation = str(message["id"]), str(message["op"])
        time = float(message["time"])
        nodes = expand(str(message["nodes"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _refused(f"{type(error).__name__}: {error}") from None
    if not math.isfinite(time):
        raise _refused("its time is not a number")
    if operation not in _OPERATIONS or not _IDENTITY.fullmatch(identity) or message.get("v") != 1:
        raise _refused(f"operation {operation[:20]!a}, id {identity[:40]!a}")
    if not nodes:
        raise _refused("it names no node")
    if any(name.startswith("-") for name in nodes):
        raise _refused("a name of a node begins with -: that is an option of some program")
    resume_file = message.get("resume_file")
    return HandOver(
        identity=identity,
        operation=operation,
        nodes=nodes,
        time=time,
        jobs=by_node(resume_file, "job_id"),
        priorities=by_node(resume_file, "priority"),
        allocated=by_job(resume_file),
    )


def by_node(resume_file: Any, key: str) -> dict[str, int]:
    """Node to a number of the job that needs it, from Slurm's resume file; empty if it cannot be read.

    22.05 writes ``nodes``, later releases ``nodes_alloc`` and ``nodes_resume``; 26.05 writes ``priority``.
    A job without this number is left out.
    """
    found: dict[str, int] = {}
    with _readable():
        for job in json.loads(resume_file)["jobs"] if resume_file else []:
            nodes = job.get("nodes_resume") or job.get("nodes_alloc") or job.get("nodes") or ""
            if key in job:
                found.update(dict.fromkeys(expand(str(nodes)), int(job[key])))
    return found


def by_job(resume_file: Any) -> dict[int, tuple[str, ...]]:
    """All nodes of each job, from Slurm's resume file: those to resume and those that are up."""
    found: dict[int, tuple[str, ...]] = {}
    with _readable():
        for job in json.loads(resume_file)["jobs"] if resume_file else []:
            number = int(job["job_id"])
            named = (expand(str(job.get(key) or "")) for key in ("nodes_alloc", "nodes_resume", "nodes"))
            found[number] = tuple(
                dict.fromkeys(node for nodes in (found.get(number, ()), *named) for node in nodes)
            )
    return found


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Parse a resume file; empty if it is malformed."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BadInput) as error:
        log.warning("handover.resume_file_unreadable", error=str(error)[:200])


class HandoverFolder:
    """The hand-overs not yet acted upon.

    Args:
        folder: The folder. Only the service's user and slurmctld's may write there; its files are not trusted
            all the same.

    Attributes:
        set_aside_since_start: Number of entries that this process could not use.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stuck: set[str] = set()
        self._acted_upon: set[str] = set()
        self.set_aside_since_start = 0

    def prepare(self, group_id: int = -1) -> None:
        """Make the folder; a group may be given the right to write (slurmctld's user is in it).

        Raises:
            BadInput: It cannot be made.
        """
        try:
            is_new = not self._folder.exists()
            self._folder.mkdir(mode=0o770, parents=True, exist_ok=True)
            if group_id >= 0:
                os.chown(self._folder, -1, group_id)
            if is_new or group_id >= 0:
                # whatever the unit's umask says: slurmctld's user leaves files here while we are away
                self._folder.chmod(0o2770)
        except OSError as error:
            raise BadInput(
                f"the hand-over folder cannot be made ({error.strerror})",
                where=str(self._folder),
                mend="Set paths.state to a folder the advisor's user owns",
                code="handover.folder",
            ) from None

    def put(self, hand_over: HandOver, line: bytes) -> None:
        """Store one hand-over; it is on disk when this returns."""
        replace_file(self._folder / f"{hand_over.identity}.json", line, durable=True)

    def waiting(self) -> Iterator[tuple[Path, HandOver]]:
        """The hand-overs not yet acted upon, the oldest first.

        An entry that is not a plain file, cannot be read or is not a hand-over is set aside (`set_aside`),
        and the others are returned all the same.

        Raises:
            TellAdmin: The folder itself cannot be read (``handover.folder``).
            RetryLater: After all others: an entry cannot be opened for the moment.
        """
        later: RetryLater | None = None
        for path in self._entries():
            try:
                if path.name in self._acted_upon:
                    self.done(path)
                    continue
                found = decode(read_plain_file(path, MAX_BYTES))
            except FileNotFoundError:
                continue
            except RetryLater as error:
                later = error
                continue
            except BadInput as error:
                self.set_aside(path, str(error))
                continue
            self._stuck.discard(path.name)
            yield path, found
        if later is not None:
            raise later

    def _entries(self) -> list[Path]:
        try:
            paths = sorted(path for path in self._folder.iterdir() if path.name.endswith(".json"))
        except OSError as error:
            text = f"the hand-over folder {self._folder} cannot be read ({error.strerror}). "
            text += "Give it to the service's user again, as systemd's RuntimeDirectory made it"
            raise TellAdmin(text, code="handover.folder") from error
        names = {path.name for path in paths}
        self._stuck &= names
        self._acted_upon &= names
        return [path for path in paths if not path.name.startswith(".")]

    def done(self, path: Path) -> None:
        """Remove what has been acted upon; where that fails it is not acted upon again by this process."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._acted_upon.add(path.name)
            self._say_stuck(path, "it has been acted upon", error)
        else:
            self._stuck.discard(path.name)

    def set_aside(self, path: Path, why: str) -> None:
        """Rename an entry that cannot be used, log that once, and keep it for an admin."""
        try:
            kept = set_aside(path)
        except FileNotFoundError:
            return
        except OSError as error:
            self._say_stuck(path, why, error)
            return
        self._stuck.discard(path.name)
        self.set_aside_since_start += 1
        log.warning("handover.set_aside", file=str(kept), why=why[:300])
        for old in sorted(self._folder.glob("*.bad"))[:-_MAX_SET_ASIDE]:
            with contextlib.suppress(OSError):  # for example a folder, which stays
                old.unlink()

    def _say_stuck(self, path: Path, why: str, error: OSError) -> None:
        if path.name not in self._stuck:
            self._stuck.add(path.name)
            mend = "it is skipped: remove it by hand"
            log.error("handover.stuck", file=str(path), why=why[:300], error=error.strerror, mend=mend)

    @property
    def stuck(self) -> tuple[str, ...]:
        """Names of entries that can neither be acted upon nor renamed nor removed."""
        return tuple(sorted(self._stuck))


AskConnector = Callable[[str, object], dict[str, Any]]
"""Answers a question of LSF's resource connector: its name and its input."""


class ControlSocket:
    """The socket that receives the hand-overs of `resume` and the other programs.

    Args:
        arrived: Called after each hand-over was written, to wake the loop that acts.
        slot_came: Called when a placeholder has started; the message is only a hint that Slurm should be
            polled.
        announced: Called with submissions that start hedged; this is a hint as well.
        stage_in_ended: Called when a job's stage-in has ended; says whether that is settled.
        asked: Answers the calls of LSF's resource connector; None: there is none.
    """

    def __init__(
        self,
        socket_file: SocketFile,
        folder: HandoverFolder,
        allowed_uids: frozenset[int],
        arrived: Callable[[], None],
        slot_came: Callable[[], None] = lambda: None,
        announced: Callable[[Sequence[Announced]], None] = lambda _: None,
        stage_in_ended: Callable[[Staged], bool] = lambda _: False,
        asked: AskConnector | None = None,
    ) -> None:
        self._file = socket_file
        self._folder = folder
        self._allowed = allowed_uids
        self._arrived = arrived
        self._slot_came = slot_came
        self._announced = announced
        self._stage_in_ended = stage_in_ended
        self._asked = asked
        self._stopping = threading.Event()
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._accept, name="control-socket", daemon=True)

    def start(self) -> None:
        """Bind and listen.

        Raises:
            BadInput: The socket cannot be made.
        """
        self._file.claim()
        self._listener = self._file.listen()
        self._listener.settimeout(0.5)
        self._thread.start()

    def stop(self) -> None:
        """Close the socket; the programs leave files from now on."""
        self._stopping.set()
        self._file.remove()
        if self._thread.is_alive():
            self._thread.join(5.0)
        if self._listener is not None:
            self._listener.close()

    def _accept(self) -> None:
        while not self._stopping.is_set() and self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if not self._stopping.wait(0.1):  # e.g. no file descriptor left: try again
                    log.warning("handover.accept_failed", error=error.strerror)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="handover", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(_READ_SECONDS)
                reply = self._answer(connection)
                connection.sendall(json.dumps(reply).encode() + b"\n")
            except OSError as error:
                # the program leaves a file then
                log.warning("handover.not_taken", error=str(error))

    def _answer(self, connection: socket.socket) -> dict[str, Any]:
        uid = peer_uid(connection)
        if uid not in self._allowed:
            log.warning("handover.refused", uid=uid)
            return {"v": 1, "ok": False, "error": "handover.uid"}
        line = bytearray()
        while not line.endswith(b"\n"):
            chunk = connection.recv(65536)
            if not chunk or len(line) + len(chunk) > MAX_BYTES:
                return {"v": 1, "ok": False, "error": "handover.malformed"}
            line += chunk
        if bytes(line) == TURN:
            self._slot_came()
            return {"v": 1, "ok": True}
        if (announced := announcing.decode(bytes(line))) is not None:
            self._announced(announced)
            return {"v": 1, "ok": True}
        if (ended := staged.decode(bytes(line))) is not None:
            return {"v": 1, "ok": self._stage_in_ended(ended)}
        if self._asked is not None and (question := _question(bytes(line))) is not None:
            return self._asked(*question)
        try:
            hand_over = decode(bytes(line))
        except AdvisorError as error:
            return {"v": 1, "ok": False, "error": error.code}
        self._folder.put(hand_over, bytes(line))
        log.info("handover.taken", operation=hand_over.operation, nodes=len(hand_over.nodes))
        self._arrived()
        return {"v": 1, "ok": True}


def _question(line: bytes) -> tuple[str, object] | None:
    """The name and the input of a question of LSF's resource connector; None for another message."""
    try:
        message = json.loads(line)
        is_one = message["v"] == 1 and message["op"] == "connector"
        return (str(message["call"]), message["input"]) if is_one else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _refused(why: str) -> BadInput:
    return BadInput(
        why,
        where="hand-over",
        mend="Install slurm_hooks/resume and slurm_hooks/suspend of this release, which write the hand-overs",
        code="handover.malformed",
    )
