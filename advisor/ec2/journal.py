"""What was about to be done, written before it is done (DESIGN.md, rule 3).

An append-only file of JSON lines, flushed to disk before each call that changes the world. After a crash at
any point the open intents say which token to ask EC2 about; a half-written last line is ignored.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from advisor.model.advice import Capacity

_COMPACT_AFTER_LINES: Final = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One launch that is wanted.

    Attributes
    ----------
    token : str
        Client token of the call, at most 64 ASCII characters.
    nodes : tuple of str
        Node i is the instance with launch index i.
    option : Capacity
        Purchase option of the pool.
    instance_type : str
        Type asked for.
    subnet_id : str or None
        Subnet asked for.
    wish : Capacity
        What the advice was, from which fall-backs go on.
    time : float
        When it was written, seconds since the epoch.
    instances : mapping of node to instance id
        What came of it; empty while unknown.
    done : bool
        True when nothing is left to find out.
    """

    token: str
    nodes: tuple[str, ...]
    option: Capacity
    instance_type: str
    subnet_id: str | None
    wish: Capacity
    time: float
    instances: Mapping[str, str]
    done: bool = False


class Journal:
    """All intents, newest state of each.

    Parameters
    ----------
    path : Path
        The file; its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._intents: dict[str, Intent] = {}
        self._lines = 0
        self._generation = 0
        self._load()

    def next_generation(self) -> int:
        """Give a number never given before, also after a crash: it makes tokens of new attempts new."""
        with self._lock:
            self._generation += 1
            self._append({"event": "generation", "number": self._generation})
            return self._generation

    def intend(self, intent: Intent) -> None:
        """Write an intent; returns when it is on the disk."""
        with self._lock:
            self._intents[intent.token] = intent
            self._append({"event": "intent", **asdict(intent)})

    def launched(self, token: str, instances: Mapping[str, str]) -> None:
        """Record which instance each node got; the intent is done."""
        with self._lock:
            intent = self._intents.get(token)
            if intent is None:
                return
            self._intents[token] = replace(intent, instances=dict(instances), done=True)
            self._append({"event": "launched", "token": token, "instances": dict(instances)})

    def refused(self, token: str, code: str) -> None:
        """Record that nothing came of an intent; the intent is done."""
        with self._lock:
            intent = self._intents.get(token)
            if intent is None:
                return
            self._intents[token] = replace(intent, done=True)
            self._append({"event": "refused", "token": token, "code": code})

    def forget(self, instance_ids: frozenset[str]) -> None:
        """Drop instances that are gone for good from what the journal remembers."""
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
        """Intents of which the outcome is unknown, oldest first."""
        with self._lock:
            return [intent for intent in self._intents.values() if not intent.done]

    def node_of(self, instance_id: str) -> str | None:
        """Node an instance was launched for."""
        with self._lock:
            for intent in self._intents.values():
                for node, known in intent.instances.items():
                    if known == instance_id:
                        return node
        return None

    def instances(self) -> dict[str, str]:
        """Every instance remembered: instance id to node."""
        with self._lock:
            return {
                instance: node
                for intent in self._intents.values()
                for node, instance in intent.instances.items()
            }

    def intent(self, token: str) -> Intent | None:
        """One intent by its token."""
        with self._lock:
            return self._intents.get(token)

    def _append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":")) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._lines += 1

    def _load(self) -> None:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return
        for line in lines:
            try:
                record = json.loads(line)
                self._replay(record)
            except (ValueError, KeyError, TypeError):
                continue  # a line cut short by a crash, or one of a newer release
            self._lines += 1
        if lines and self.path.stat().st_size and not self.path.read_bytes().endswith(b"\n"):
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n")  # so that the next line does not join the torn one

    def _replay(self, record: Mapping[str, Any]) -> None:
        event = record["event"]
        if event == "generation":
            self._generation = max(self._generation, int(record["number"]))
            return
        token = record["token"]
        if event == "intent":
            self._intents[token] = Intent(
                token=token,
                nodes=tuple(record["nodes"]),
                option=Capacity(record["option"]),
                instance_type=record["instance_type"],
                subnet_id=record["subnet_id"],
                wish=Capacity(record["wish"]),
                time=float(record["time"]),
                instances=dict(record["instances"]),
                done=bool(record["done"]),
            )
        elif token in self._intents:
            instances = dict(record.get("instances", {}))
            self._intents[token] = replace(self._intents[token], instances=instances, done=True)
            if event in ("refused", "forgot") and not instances:
                del self._intents[token]

    def _compact(self) -> None:
        """Rewrite the file with what still matters."""
        temporary = self.path.with_name(self.path.name + ".new")
        kept = {t: i for t, i in self._intents.items() if i.instances or not i.done}
        with temporary.open("w", encoding="utf-8") as file:
            file.write(json.dumps({"event": "generation", "number": self._generation}) + "\n")
            for intent in kept.values():
                file.write(json.dumps({"event": "intent", **asdict(intent)}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        self._intents = kept
        self._lines = len(kept) + 1
