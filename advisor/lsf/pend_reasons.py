"""Why jobs wait, as ``bjobs -p`` shows it at a poll, as reasons that `advisor.model.limits` knows. Pure.

The sentences are those of volclava and, for limits of lsb.resources, of IBM's releases. A sentence that is
not known counts as no reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

Reasons: TypeAlias = Mapping[tuple[int, int], str]
"""Job id and array index to why the job waits; empty: for what jobs usually wait for."""

REASONS_ARGUMENTS: Final = ("-u", "all", "-p")
_ROW: Final = re.compile(
    r"([0-9]{1,15})\s+\S+\s+P(?:END|SUSP)\s.*?(?:\[([0-9]{1,9})\]\s+\w{3}\s+[0-9]{1,2}\s+[0-9:]{5})?\s*"
)
_RESOURCE: Final = r"resource (?:\((\w+)\) )?limit defined on {}"
_LIMITS: Final = (
    ("QueueUser", re.compile("per-user job slot")),
    ("Queue", re.compile("queue has (?:reached its|not enough) job slot|" + _RESOURCE.format("queue"))),
    (
        "User",
        re.compile("(?:user|groups?) has (?:reached .{,8}|not enough )job slot|" + _RESOURCE.format("user")),
    ),
    ("Project", re.compile(_RESOURCE.format("project"))),
)
_OTHERS: Final = (
    ("DependencyNeverSatisfied", re.compile("dependency condition invalid")),
    ("Dependency", re.compile("dependency condition not satisfied")),
    ("JobArrayTaskLimit", re.compile("job array has reached its")),
)
_UNITS: Final = {"": "Slot", "slot": "Slot", "slots": "Slot", "jobs": "Job", "mem": "Mem"}
_NOT_YET: Final = re.compile("waiting|not ready|postponed")
"""In what is said of a job that LSF has not looked at yet."""


def read_reasons(text: str) -> Reasons:
    """Parse the answer of ``bjobs -p``: a row for each job, then its reasons, each behind a blank."""
    found: dict[tuple[int, int], str] = {}
    for key, said in _said(text.splitlines()):
        word = _word_of(said)
        if word or not _NOT_YET.search(said):
            found[key] = word
    return found


def _said(lines: Iterable[str]) -> Iterable[tuple[tuple[int, int], str]]:
    key, reasons = None, list[str]()
    for line in lines:
        if line.startswith(" "):
            reasons.append(line)
            continue
        if key is not None and reasons:
            yield key, " ".join(reasons).casefold()
        row = _ROW.fullmatch(line)
        key, reasons = None if row is None else (int(row[1]), int(row[2] or 0)), []
    if key is not None and reasons:
        yield key, " ".join(reasons).casefold()


def _word_of(said: str) -> str:
    for word, sentence in _OTHERS:
        if sentence.search(said):
            return word
    for whose, sentence in _LIMITS:
        if (match := sentence.search(said)) is not None:
            resource = (match.groups() or ("",))[0] or ""
            return f"{whose}{_UNITS[resource]}Limit" if resource in _UNITS else ""
    return ""
