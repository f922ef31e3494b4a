"""Hand-overs of `resume`, `suspend` and `resume_fail`: on disk before slurmctld gets a success.

Each is one file in one folder, written by this process (when the program reached its socket) or by the
program itself (when it did not). It is deleted when it has been acted upon, so that a crash on either
side loses nothing; acting twice must therefore be harmless. A file's name begins with a number: the time in
nanoseconds, or one more than the newest file's where that is later, because clocks are set back and differ.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from advisor.files.whole_file import read_plain_file, replace_file, set_aside
from advisor.model.errors import BadInput, RetryLater, TellAdmin
from advisor.model.node_sets import expand

log = structlog.get_logger(__name__)

MAX_BYTES: Final = 8 * 1024 * 1024
_OPERATIONS: Final = frozenset({"resume", "suspend", "resume_fail"})
_IDENTITY: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,10}-[0-9a-f]{8}")
_NUMBER: Final = re.compile(r"[0-9]{1,20}(?=-)")
_MAX_SET_ASIDE: Final = 200
"""The newest files set aside are kept for an admin; a program called for wrong nodes makes one a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """A request of slurmctld about nodes.

    Attributes:
        operation: ``resume``, ``suspend`` or ``resume_fail``.
        time: When slurmctld asked, epoch seconds.
        jobs: Node to the job for which it is resumed, if Slurm names one.
        priorities: Node to that job's priority, if Slurm names it (from 26.05 on).
        allocated: All nodes of each job, or of each element of an array under LSF, including those that are
            up, if the scheduler names them.
    """

    identity: str
    operation: str
    nodes: tuple[str, ...]
    time: float
    jobs: dict[str, int]
    priorities: dict[str, int] = field(default_factory=dict)
    allocated: tuple[tuple[str, ...], ...] = ()

    def without(self, nodes: Collection[str]) -> HandOver:
        """The same request about the other nodes."""
        return replace(self, nodes=tuple(node for node in self.nodes if node not in nodes))


def in_turn(waiting: Sequence[tuple[Path, HandOver]]) -> list[tuple[Path, HandOver]]:
    """Suspends and failed boots first: they end instances that cost money. Else the oldest first.

    The hand-overs of a node keep their order: none goes before an older one that names a node of it.
    """
    named: set[str] = set()
    first: list[tuple[Path, HandOver]] = []
    rest: list[tuple[Path, HandOver]] = []
    for item in waiting:
        is_first = item[1].operation != "resume" and named.isdisjoint(item[1].nodes)
        (first if is_first else rest).append(item)
        if not is_first:
            named.update(item[1].nodes)
    return first + rest


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
    jobs: Any = []
    with _readable():
        jobs = json.loads(resume_file)["jobs"] if resume_file else []
    return HandOver(
        identity=identity,
        operation=operation,
        nodes=nodes,
        time=time,
        jobs=_by_node(jobs, "job_id"),
        priorities=_by_node(jobs, "priority"),
        allocated=_by_job(jobs),
    )


def _by_node(jobs: Any, key: str) -> dict[str, int]:
    """Node to a number of the job that needs it.

    22.05 writes ``nodes``, later releases ``nodes_alloc`` and ``nodes_resume``; 26.05 writes ``priority``.
    A job without this number is left out.
    """
    found: dict[str, int] = {}
    with _readable():
        for job in jobs:
            nodes = job.get("nodes_resume") or job.get("nodes_alloc") or job.get("nodes") or ""
            if key in job:
                found.update(dict.fromkeys(expand(str(nodes)), int(job[key])))
    return found


def _by_job(jobs: Any) -> tuple[tuple[str, ...], ...]:
    """All nodes of each job: those to resume and those that are up.

    Our rows for LSF have an ``element`` where one id stands for the elements of an array.
    """
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    with _readable():
        for job in jobs:
            number = int(job["job_id"]), int(job.get("element", 0))
            named = (expand(str(job.get(key) or "")) for key in ("nodes_alloc", "nodes_resume", "nodes"))
            found[number] = tuple(
                dict.fromkeys(node for nodes in (found.get(number, ()), *named) for node in nodes)
            )
    return tuple(found.values())


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Read a resume file as far as it is well-formed."""
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
        self._lock = threading.Lock()  # from the choice of a file's number until the file is there
        self.set_aside_since_start = 0

    def prepare(self) -> None:
        """Make the folder.

        Raises:
            BadInput: It cannot be made.
        """
        try:
            is_new = not self._folder.exists()
            self._folder.mkdir(mode=0o770, parents=True, exist_ok=True)
            if is_new:
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
        """Store one hand-over, as the newest; it is on disk when this returns."""
        number, _, unique = hand_over.identity.partition("-")
        unique += ".json"
        with self._lock:
            # its own program may have left the same hand-over meanwhile: it keeps its number
            others = (path.name for path in self._entries() if not path.name.endswith(f"-{unique}"))
            newest = max(int(number), *(1 + _number_of(name) for name in others), 0)
            replace_file(self._folder / f"{newest}-{unique}", line, durable=True)

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
            found = [path for path in self._folder.iterdir() if path.name.endswith(".json")]
        except OSError as error:
            text = f"the hand-over folder {self._folder} cannot be read ({error.strerror}). "
            text += "Give it to the service's user and slurmctld's group again, with mode 2770"
            raise TellAdmin(text, code="handover.folder") from error
        paths = sorted(found, key=lambda path: (_number_of(path.name), path.name))
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


def _number_of(name: str) -> int:
    """The number with which the name of an entry begins; 0 for an entry that is no hand-over."""
    found = _NUMBER.match(name)
    return int(found[0]) if found else 0


def _refused(why: str) -> BadInput:
    return BadInput(
        why,
        where="hand-over",
        mend="ResumeProgram, SuspendProgram and ResumeFailProgram write hand-overs: install those of this "
        "release (slurm_hooks), and let nobody else write to the folder",
        code="handover.malformed",
    )
