"""Answers to the hook as text, so that a test can say what the server never says."""

from __future__ import annotations

import json
from typing import Any

PLACES = (
    "v", "seq", "error", "partition", "features", "prefer", "site_factor", "nice", "time_limit", "message",
    "admin_comment",
)  # fmt: skip


def seq_of(line: bytes) -> int:
    """The number of a question."""
    return int(json.loads(line.decode("utf-8", "replace"))["seq"])


def framed(line: bytes) -> bytes:
    """A line with its length before it."""
    return b"=%05d" % len(line) + line


def answer_to(question: bytes, **fields: Any) -> bytes:
    """A framed answer with these fields; what is not named is empty."""
    said = {"v": 1, "seq": seq_of(question)} | fields
    return framed("\t".join(str(said.get(name, "")) for name in PLACES).encode() + b"\n")
