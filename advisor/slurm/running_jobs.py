"""Warn single running jobs by the signal they asked for, and read how and where they may run.

The interruption loop warns them, the match loop asks where they may run.

No command of Slurm shows a job's ``--signal``. It is read from the command line, which the accounting keeps,
and from the batch script; the command line wins, as in sbatch. ``SBATCH_SIGNAL`` in the user's environment
cannot be seen.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from advisor.model.errors import RetryLater
from advisor.model.node_sets import expand, fold
from advisor.slurm.commands import Commands, named

_SIGNAL: Final = re.compile(
    r"(?:(?P<where>[BR]{1,2}):)?(?:SIG)?(?P<name>[A-Z][A-Z0-9]{1,9}|[0-9]{1,2})(?:@\d{1,5})?"
)
_MAX_ACCOUNTING_TRIES: Final = 15  # once a second: slurmdbd knows a job a few seconds after its submission
_DIRECTIVE: Final = re.compile(r"#SBATCH\s+(.*)")
_FIELD: Final = re.compile(r"(?:^|\s)(Deadline|ExcNodeList|JobState|EndTime|Requeue|Features|Prefer)=(\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSignal:
    """The signal that a job asked for before its end.

    Attributes:
        name: The signal's name without ``SIG``, or its number.
        to_batch_shell: Whether it goes to the batch shell (``B:``) and not, as by default, to the job's
            steps.
    """

    name: str
    to_batch_shell: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """State of a job that slurmctld still knows, its end in epoch seconds (0: unknown), and its Requeue."""

    state: str
    end_time: float
    may_requeue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstraints:
    """A job's constraint (features), ``--prefer`` and ``--exclude``, as Slurm writes them; empty for none."""

    features: str = ""
    prefer: str = ""
    excluded: str = ""


def parse_signal(text: str) -> RequestedSignal | None:
    """Read the value of ``--signal``; None when it is not valid.

    Examples:
        >>> parse_signal("B:SIGUSR1@60")
        RequestedSignal(name='USR1', to_batch_shell=True)
    """
    match = _SIGNAL.fullmatch(text.strip().upper())
    if match is None:
        return None
    return RequestedSignal(name=match["name"], to_batch_shell="B" in (match["where"] or ""))


def requested_signal(submit_line: str, script: str) -> RequestedSignal | None:
    """The signal asked for on the command line, else in the script; None when there is none."""
    directives: list[str] = []
    for line in script.splitlines():
        if line.strip() and not line.startswith("#"):
            break  # sbatch reads no directive after the first command
        match = _DIRECTIVE.match(line)
        if match is not None:
            directives += _words(match[1])
    return _last_signal(_options_of(_words(submit_line))) or _last_signal(directives)


class RunningJobs:
    """Reads and signals single jobs. Every method raises RetryLater when Slurm does not answer."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._tries_of_job: dict[int, int] = {}  # how often the accounting did not know the job

    def warn(self, job_id: int) -> str:
        """Send a running job the signal it asked for; return its name, empty when it asked for none.

        Raises:
            RetryLater: Also when the accounting does not know the job yet, as in the first seconds after its
                submission. After 15 calls only the batch script is read.
        """
        asked = requested_signal(self._submit_line(job_id), self._script(job_id))
        if asked is None:
            return ""
        only_shell = ["--batch"] if asked.to_batch_shell else []
        self._commands.text(
            "scancel", f"--signal={asked.name}", *only_shell, named(self._commands, f"{job_id:d}")
        )
        return asked.name

    def node_constraints(self, job_id: int) -> NodeConstraints:
        """Which nodes a job asks for, prefers and excludes, set by its user or by the advisor."""
        shown = self._shown(job_id)
        features, prefer, excluded = (
            "" if (value := shown.get(name, "")) == "(null)" else value
            for name in ("Features", "Prefer", "ExcNodeList")
        )
        return NodeConstraints(features=features, prefer=prefer, excluded=excluded)

    def has_deadline(self, job_id: int) -> bool:
        """Whether its user gave a ``--deadline``."""
        return self._shown(job_id).get("Deadline", "N/A") not in {"N/A", "0"}

    def end_of(self, job_id: int) -> JobEnd | None:
        """A job's state and end; None when slurmctld has forgotten the job."""
        try:
            shown = self._shown(job_id)
        except RetryLater as error:
            if "Invalid job id" in str(error):
                return None
            raise
        end = shown.get("EndTime", "")
        return JobEnd(
            state=shown.get("JobState", ""),
            end_time=float(end) if end.isascii() and end.isdigit() else 0.0,
            may_requeue=shown.get("Requeue") == "1",
        )

    def failed_on(self, nodes: Sequence[str]) -> dict[int, tuple[str, ...]]:
        """Jobs that failed on these nodes and are not older than MinJobAge: job id to all its nodes."""
        where = fold(nodes)
        text = self._commands.text("squeue", "-h", "-t", "FAILED", "-w", where, "-o", "%A %N")
        found = {}
        for line in text.splitlines():
            job_id, _, had = line.strip().partition(" ")
            if job_id.isdigit():
                found[int(job_id)] = expand(had)
        return found

    def _shown(self, job_id: int) -> dict[str, str]:
        text = self._commands.text("scontrol", "--oneliner", "show", "job", f"{job_id:d}")
        which = ("--noheader", "--states=all", f"--jobs={job_id:d}")
        name = self._commands.text("squeue", *which, "--format=%j").removesuffix("\n")
        text = text.replace(f" JobName={name} ", " ", 1)  # else it might forge every field after it
        found: dict[str, str] = {}
        for name, value in _FIELD.findall(text):
            found.setdefault(name, value)  # later fields may be in text that the user typed
        return found

    def _submit_line(self, job_id: int) -> str:
        try:
            line = self._commands.text("sacct", "-n", "-P", "-X", "-o", "SubmitLine", "-j", f"{job_id:d}")
        except RetryLater:  # no accounting, or slurmdbd is down: only the script is read
            return ""
        if line.strip():
            self._tries_of_job.pop(job_id, None)
            return line
        tries = self._tries_of_job.pop(job_id, 0) + 1
        if tries > _MAX_ACCOUNTING_TRIES:
            return ""
        self._tries_of_job[job_id] = tries
        msg = f"the accounting does not know job {job_id} yet: the next round asks again"
        raise RetryLater(msg, code="slurm.not_accounted")

    def _script(self, job_id: int) -> str:
        try:
            return self._commands.text("scontrol", "write", "batch_script", f"{job_id:d}", "-")
        except RetryLater:  # jobs of salloc and srun have no script
            return ""


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=False)
    except ValueError:  # an open quote
        return line.split()


def _options_of(words: list[str]) -> list[str]:
    """Words between the command and the script's name; the script's own arguments follow it."""
    for number, word in enumerate(words[1:], start=1):
        before = words[number - 1]
        may_be_value = number > 1 and before.startswith("-") and "=" not in before
        if not word.startswith("-") and not may_be_value:
            return words[1:number]
    return words[1:]


def _last_signal(words: Iterable[str]) -> RequestedSignal | None:
    found, before = None, ""
    for word in words:
        value = word.removeprefix("--signal=") if word.startswith("--signal=") else None
        if before == "--signal":
            value = word
        if value is not None:
            found = parse_signal(value) or found
        before = word
    return found
