"""The journal of launches: each intent is on disk before EC2 is called (docs/designs/0001, rule 3).

It is an append-only file of JSON lines, synced before each launch. After a crash the open intents name the
tokens to ask EC2 about; an incomplete last line is ignored.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import structlog

from advisor.ec2.pools import Target
from advisor.files import fence
from advisor.files.whole_file import read_plain_file, replace_file, set_aside
from advisor.model.advice import Capacity
from advisor.model.errors import AdvisorError, TellAdmin

_COMPACT_AFTER_LINES: Final = 5000
_MAX_BYTES: Final = 256 * 1024 * 1024

Node: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.][A-Za-z0-9_.-]{0,254}\Z")]
Instances: TypeAlias = Mapping[Node, Annotated[str, msgspec.Meta(pattern=r"\Ai-")]]
"""Node to instance id."""

_log = structlog.get_logger("advisor.ec2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One launch call that is about to be made.

    Attributes:
        token: Client token of the call, at most 64 ASCII characters.
        nodes: Node i is the instance with launch index i.
        option: Purchase option of the pool.
        requested: Purchase option of the advice.
        time: When it was written, epoch seconds.
        instances: The launched instances; empty while unknown.
        pools: Instance types and subnets of a fleet; the first is also in ``instance_type`` and
            ``subnet_id``. Empty: RunInstances.
        least: The smallest number of instances that EC2 may launch; with fewer the launch is refused.
        target: The capacity reservation to launch in; None: none is named.
        group: The placement group of its instances; empty: none.
        efa: Whether they get an Elastic Fabric Adapter.
        done: Whether the outcome is known.
    """

    token: str
    nodes: tuple[Node, ...]
    option: Capacity
    instance_type: str
    subnet_id: str | None
    requested: Capacity
    time: float
    instances: Instances
    pools: tuple[tuple[str, str | None], ...] = ()
    least: int = 1
    target: Target | None = None
    group: str = ""
    efa: bool = False
    done: bool = False


class Journal:
    """All intents in their latest state.

    Args:
        path: The file; its folder must exist. A file that cannot be read counts as empty.
        now: Wall clock, epoch seconds.
    """

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._now = now
        self._lock = threading.Lock()
        self._intents: dict[str, Intent] = {}
        self._lines = 0
        self._generation = 0
        self._load()
        if fence.in_force() is not None:
            # a new file: a process that has lost the lease and opened the old one writes there
            self._compact()

    def next_generation(self) -> int:
        """A number that was never returned before, for the token of a new launch.

        It grows across crashes, because it is on disk, and across a loss of the file, because it is at least
        the time. Raises TellAdmin when it cannot be written.
        """
        with self._lock:
            self._generation = max(self._generation + 1, int(self._now()))
            self._append({"event": "generation", "number": self._generation})
            return self._generation

    def intend(self, intent: Intent) -> None:
        """Write an intent to disk; when that raises TellAdmin, nothing may be launched."""
        with self._lock:
            self._append({"event": "intent", **asdict(intent)})
            self._intents[intent.token] = intent

    def launched(self, token: str, instances: Mapping[str, str]) -> None:
        """Record each node's instance; the intent is done."""
        with self._lock:
            intent = self._intents.get(token)
            if intent is None:
                return
            self._append({"event": "launched", "token": token, "instances": dict(instances)})
            self._intents[token] = replace(intent, instances=dict(instances), done=True)
            if not instances:
                del self._intents[token]

    def refused(self, token: str, code: str) -> None:
        """Record that an intent launched nothing, and forget it."""
        with self._lock:
            if self._intents.pop(token, None) is not None:
                self._append({"event": "refused", "token": token, "code": code})

    def forget(self, instance_ids: frozenset[str]) -> None:
        """Forget terminated instances."""
        with self._lock:
            for token, intent in list(self._intents.items()):
                left = {node: i for node, i in intent.instances.items() if i not in instance_ids}
                if len(left) == len(intent.instances):
                    continue
                self._append({"event": "forgot", "token": token, "instances": left})
                if left:
                    self._intents[token] = replace(intent, instances=left)
                else:
                    del self._intents[token]
            if self._lines > _COMPACT_AFTER_LINES:
                self._compact()

    def open_intents(self) -> list[Intent]:
        """Intents whose outcome is unknown, oldest first."""
        with self._lock:
            return [intent for intent in self._intents.values() if not intent.done]

    def instances(self) -> dict[str, tuple[str, Intent]]:
        """Instances that are not forgotten: instance id to node and launch."""
        with self._lock:
            return {
                instance: (node, intent)
                for intent in self._intents.values()
                for node, instance in intent.instances.items()
            }

    def _append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":")) + "\n"
        try:
            # do not follow a link or wait for a FIFO in the file's place
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, 0o666)
            try:
                fence.check()
                _write_whole(descriptor, line.encode())
            finally:
                os.close(descriptor)
            fence.check()  # again: a process that has taken over meanwhile may not have read this line
        except OSError as error:
            text = f"{self.path} cannot be written ({error.strerror}): nothing is launched until it can. "
            text += "Make room on its disk, or give its folder to the service's user"
            raise TellAdmin(text, code="ec2.journal") from error
        self._lines += 1

    def _load(self) -> None:
        content = self._content()
        unreadable = 0
        for line in content.splitlines():
            try:
                self._replay(msgspec.json.decode(line))
            except (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                unreadable += 1  # a line cut short by a crash, or one of a newer release
            self._lines += 1
        if unreadable:
            then = "instances of these launches are found by their tags"
            _log.warning("journal.lines_ignored", file=str(self.path), lines=unreadable, then=then)
        if content and not content.endswith(b"\n"):
            with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as file:
                file.write("\n")  # so that the next line does not join the incomplete one

    def _content(self) -> bytes:
        """The file's content; a file that cannot be read is set aside.

        Instances are found again by their tags. At worst, a node whose instance EC2 does not list yet gets a
        second one, which the reconciler terminates.
        """
        try:
            return read_plain_file(self.path, _MAX_BYTES)
        except FileNotFoundError:
            return b""
        except AdvisorError as error:
            kept = ""
            with contextlib.suppress(OSError):
                kept = str(set_aside(self.path))
            _log.error(
                "journal.unreadable", why=str(error), set_aside=kept or "not possible: remove it by hand"
            )
            return b""

    def _replay(self, record: Mapping[str, Any]) -> None:
        event = record["event"]
        if event == "generation":
            self._generation = max(self._generation, int(record["number"]))
            return
        token = record["token"]
        if event == "intent":
            self._intents[token] = msgspec.convert(record, Intent)
        elif token in self._intents:
            instances = msgspec.convert(record.get("instances", {}), Instances)
            if instances:
                self._intents[token] = replace(self._intents[token], instances=instances, done=True)
            else:
                del self._intents[token]

    def _compact(self) -> None:
        """Rewrite the file with the remembered intents only; the old file stays if that fails."""
        records = [
            {"event": "generation", "number": self._generation},
            *({"event": "intent", **asdict(intent)} for intent in self._intents.values()),
        ]
        try:
            content = "".join(json.dumps(record) + "\n" for record in records)
            replace_file(self.path, content.encode(), durable=True, check=fence.check)
        except OSError as error:
            _log.warning("journal.not_compacted", file=str(self.path), error=error.strerror)
            return
        self._lines = len(records)


def _write_whole(descriptor: int, line: bytes) -> None:
    """Append a line, in full or not at all: the next one must not join what a full disk has left of it.

    Raises:
        OSError: It is not on the disk.
    """
    length = os.fstat(descriptor).st_size
    try:
        written = 0
        while written < len(line):
            written += os.write(descriptor, line[written:])
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, length)
        raise
