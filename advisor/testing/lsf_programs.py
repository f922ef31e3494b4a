"""The programs of the stand-in for LSF: each asks its daemon; bsub runs an esub first, as its user."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_PYTHON: Final = "/usr/bin/python3"
"""Other users than the one who runs the stand-in may not reach a virtual environment's."""
_PROGRAM: Final = """
import json, os, socket, subprocess, sys, tempfile
daemon, esub, name, *words = sys.argv[1:]
def ask(*question):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(daemon)
        line.sendall((json.dumps([os.getuid(), *question]) + "\\n").encode())
        return json.loads(line.makefile().readline())
if name == "bsub" and os.path.exists(esub):
    with tempfile.TemporaryDirectory() as folder:
        asked, changed = folder + "/asked", folder + "/changed"
        with open(asked, "w") as file:
            file.write(ask("esub", *words)[0])
        open(changed, "w").close()
        names = {"LSB_SUB_PARM_FILE": asked, "LSB_SUB_MODIFY_FILE": changed, "LSB_SUB_ABORT_VALUE": "97"}
        commands = os.path.dirname(os.path.abspath(__file__)) + "/bin"
        names["PATH"] = commands + ":" + os.environ.get("PATH", "")
        subprocess.run([esub], env={**os.environ, **names}, stdout=subprocess.DEVNULL, check=True)
        with open(changed) as file:
            words = ["-esub", file.read(), *words]
out, err, code = ask(name, *words)
sys.stdout.write(out); sys.stderr.write(err); sys.exit(code)
"""
_PARAMETERS: Final = {
    "q": "QUEUE", "n": "NUM_PROCESSORS", "J": "JOB_NAME", "Jd": "JOB_DESCRIPTION", "R": "RES_REQ",
    "P": "PROJECT_NAME", "m": "HOSTS", "w": "DEPEND_COND", "sp": "JOB_PRIORITY", "H": "HOLD",
    "r": "RERUNNABLE",
}  # fmt: skip
CHANGED: Final = {
    "Jd": "description", "W": "minutes", "R": "resource_request", "sp": "priority", "Rn": "no_resources",
    "Wn": "no_minutes", "rn": "not_rerunnable",
}  # fmt: skip
"""Options of bmod, and what they change."""
_OF_PARAMETER: Final = {name: letter for letter, name in _PARAMETERS.items()}
_NUMBERS: Final = frozenset({"NUM_PROCESSORS", "JOB_PRIORITY"})


def write_programs(folder: Path, daemon: Path, names: tuple[str, ...]) -> None:
    """Write the programs into a folder's `bin`; an esub is `sbin/esub.advisor` beside it."""
    program = folder / "ask.py"
    program.write_text(_PROGRAM)
    python = _PYTHON if Path(_PYTHON).exists() else sys.executable
    esub = folder / "sbin" / "esub.advisor"
    for name in names:
        words = shlex.join([python, "-I", str(program), str(daemon), str(esub), name])
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        path.chmod(0o755)


def parameters_of(given: Mapping[str, str]) -> str:
    """What bsub writes for an esub about its options."""
    lines = [f"LSB_SUB_RLIMIT_RUN={60 * int(given['W'])}\n"] if "W" in given else []
    for letter, name in _PARAMETERS.items():
        if letter in given:
            value = given[letter] or "Y"
            quoted = value if name in _NUMBERS or value == "Y" else '"' + value.replace('"', '\\"') + '"'
            lines.append(f"LSB_SUB_{name}={quoted}\n")
    return "".join(lines)


def bad_option(given: Mapping[str, str], most: int | None) -> str:
    """Why ``-W`` or ``-sp`` is refused; empty: neither is. `most` is MAX_USER_PRIORITY."""
    if not given.get("W", "0").isdigit():
        return "Bad RUNLIMIT specification"
    if "sp" not in given:
        return ""
    if most is None:
        return "Job priority control undefined"
    return "" if 0 < int(given["sp"]) <= most else "Bad user priority"


def changes_of(given: Mapping[str, str]) -> dict[str, object]:
    """Fields of a job that options of bmod set."""
    changes: dict[str, object] = {CHANGED[word]: given[word] for word in ("Jd", "R") if word in given}
    changes |= {CHANGED[word]: int(given[word]) for word in ("W", "sp") if word in given}
    return (
        changes
        | ({"minutes": None} if "Wn" in given else {})
        | ({"resource_request": ""} if "Rn" in given else {})
        | ({"rerunnable": False} if "rn" in given else {})
    )


def modified(given: Mapping[str, str], changes: str) -> dict[str, str]:
    """The options with what an esub has changed; volclava calls the priority LSB_SUB2_JOB_PRIORITY."""
    found = dict(given)
    for line in changes.splitlines():
        name, _, value = line.partition("=")
        word = name.removeprefix("LSB_SUB2_").removeprefix("LSB_SUB_")
        if word == "RLIMIT_RUN":
            found["W"] = str(int(value) // 60)
        else:
            found[_OF_PARAMETER[word]] = value.strip('"')
    return found


def options_of(words: Sequence[str], valued: str, *, flags: str) -> tuple[dict[str, str], list[str]]:
    """Options up to the first other word, and the rest.

    Raises:
        ValueError: There is an option that is not known.
    """
    rest, given = list(words), dict[str, str]()
    while rest and rest[0].startswith("-"):
        letter = rest.pop(0)[1:]
        if letter not in {*valued.split(), *flags.split()}:
            message = f"the stand-in does not know -{letter}"
            raise ValueError(message)
        given[letter] = rest.pop(0) if letter in valued.split() else ""
    return given, rest


def begin_time(text: str | None, now: float) -> int:
    """The next time at which it is so late: ``23:50``."""
    if text is None:
        return 0
    hours, minutes = map(int, text.split(":"))
    today = time.localtime(now)
    then = time.mktime((*today[:3], hours, minutes, 0, 0, 0, -1))
    return int(then if then > now else then + 86_400)
