"""The Slurm back end that runs Slurm's own commands; it works with every release."""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Unpack

from advisor.history import sacct
from advisor.model.errors import BadInput, RetryLater
from advisor.model.node_sets import fold
from advisor.model.scheduler import NodeChange
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, ClusterSnapshot, Partition, Reservation, SubmittedJob
from advisor.slurm import account_lists, parsing, records
from advisor.slurm.commands import Commands, named, release_in, reservations_of
from advisor.slurm.protocol import AccountingExport
from advisor.slurm.records import Layout, Unread

_JOBS_A_CALL: Final = 500
PARTITION_ATTEMPTS: Final = 6
"""slurmctld refuses changes of the partition of a job without an association, at random.

It returns an errno that another call has left in its thread (``_update_job`` after ``_retrieve_new_assoc`` in
job_mgr.c, unchanged up to 26.05). It has changed nothing then. 24.11 refuses 2 to 4 of 10, 26.05 9 of 10, so
a job that is still pending is asked to move more often.
"""
_PENDING_ATTEMPTS: Final = 40
_REFUSED: Final = "slurm.command_failed"
_LINES_A_CALL: Final = 200
_JSON_ESCAPES: Final = re.compile(r"""\\["\\]|[' ]""")
_NODES_A_CALL: Final = 2000
_ACCOUNTING_SECONDS: Final = 600.0
_PARENTS_SECONDS: Final = 300.0  # a busy slurmdbd takes long to answer, and accounts seldom change
_FIELD: Final = re.compile(r"[A-Za-z]{1,40}")
_NODE_STATE: Final = re.compile(r"[A-Za-z_]{1,40}")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9_.:-]{1,255}")


class CliBackend:
    """The back end that runs squeue, sinfo, scontrol and sacct; `monotonic` is a clock in seconds."""

    def __init__(self, commands: Commands, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._commands = commands
        self._monotonic = monotonic
        self._accounting_fields: tuple[str, ...] | None = None
        self._account_parents: Mapping[str, str] = {}
        self._parents_again_at = -math.inf

    @classmethod
    def of(cls, settings: Settings) -> CliBackend:
        """The back end for a site's settings."""
        paths: tuple[Path, Path] = (settings.paths.slurm_bin, settings.paths.slurm_conf)
        return cls(Commands(*paths))

    def snapshot(self, now: float) -> ClusterSnapshot:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        began = self._monotonic()
        report = Unread()
        jobs = Layout.of(parsing.columns_of(parsing.JOB_COLUMNS, self._commands.release()))
        answer = self._commands.text("squeue", "--noheader", "--all", f"--Format={jobs.argument}")
        queue = parsing.queued_jobs(jobs.records(answer, report), report)
        columns = Layout.of(parsing.NODE_COLUMNS)
        answer = self._commands.text("sinfo", "--noheader", "--all", "--Node", f"--Format={columns.argument}")
        nodes = parsing.nodes(columns.records(answer, report), report)
        if not nodes:
            # every cluster has nodes, so this answer is wrong
            raise RetryLater(
                "sinfo shows no node that can be read. Run `sinfo -N` as the user of this service: a node "
                "must be shown",
                code="slurm.unreadable",
            )
        seconds = self._monotonic() - began
        return ClusterSnapshot(time=now, jobs=queue, nodes=nodes, seconds=seconds, malformed=report.malformed)

    def waiting(self, known: Container[int]) -> Mapping[int, SubmittedJob | None]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`; splitting 10,000 records takes 50 ms."""
        columns = parsing.columns_of(parsing.SUBMITTED_COLUMNS, self._commands.release())
        layout, report = Layout.of(columns), Unread()
        answer = self._commands.text(
            "squeue", "--noheader", "--all", f"--states={PENDING}", f"--Format={layout.argument}"
        )
        found: dict[int, SubmittedJob | None] = {}
        for row in layout.records(answer, report):
            job_id = records.whole(row["JobID"])
            if job_id is not None:
                found[job_id] = None if job_id in known else parsing.submitted_job(row)
        return found

    @contextmanager
    def accounting(self, since: float, until: float | None = None) -> Iterator[AccountingExport]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        if self._accounting_fields is None:
            self._accounting_fields = sacct.choose_fields(self._commands.text("sacct", "--helpformat"))
        fields = self._accounting_fields
        word = sacct.delimiter(secrets.token_hex(16))
        arguments = sacct.arguments(fields, since=since, until=until, delimited_by=word)
        with self._commands.lines("sacct", *arguments, timeout=_ACCOUNTING_SECONDS) as lines:
            yield AccountingExport(fields=fields, delimited_by=word, lines=lines)

    def update_node(self, nodes: Collection[str], **change: Unpack[NodeChange]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        changes = []
        if "state" in change:
            changes.append(f"state={_checked(change['state'], _NODE_STATE, 'node state')}")
        if "reason" in change:
            changes.append(f"reason={one_line(change['reason'])}")
        if "hostname" in change:
            changes.append(f"nodehostname={_checked(change['hostname'], _ADDRESS, 'host name')}")
        if "weight" in change:
            changes.append(f"weight={change['weight']:d}")
        if "features" in change:
            words = (_checked(word, _ADDRESS, "feature") for word in change["features"])
            changes.append(f"activefeatures={','.join(words)}")
        address = change.get("address")
        if address is not None:
            _checked(address, _ADDRESS, "node address")
        elif not changes:
            return
        names = list(nodes)
        for begin in range(0, len(names), _NODES_A_CALL):
            some = names[begin : begin + _NODES_A_CALL]
            # scontrol wants an address for each node
            own = [] if address is None else [f"nodeaddr={','.join([address] * len(some))}"]
            self._commands.text("scontrol", "update", f"nodename={fold(some)}", *own, *changes)

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        pairs = [
            f"{_checked(name, _FIELD, 'job field')}={one_line(value, 16384)}"
            for name, value in changes.items()
        ]
        attempts = PARTITION_ATTEMPTS if "partition" in changes else 1
        for ids in self._names(job_ids):
            try:
                self._change("update", f"jobid={ids}", *pairs, attempts=attempts)
            except RetryLater as refusal:
                if attempts == 1 or refusal.code != _REFUSED or not self._are_pending(ids):
                    raise
                self._change("update", f"jobid={ids}", *pairs, attempts=_PENDING_ATTEMPTS)

    def _names(self, job_ids: Collection[int]) -> Iterator[str]:
        for ids in _in_lists(job_ids):
            try:
                yield named(self._commands, ids)
            except RetryLater as error:
                if error.code != _REFUSED:  # a last task may be among them: all its array would change
                    raise
                yield ids  # scontrol says why

    def _are_pending(self, ids: str) -> bool:
        try:
            shown = self._commands.text(
                "squeue", "--noheader", f"--jobs={ids}", f"--states={PENDING}", "--format=%A"
            )
        except RetryLater:  # slurmctld knows one of them no more
            return False
        return bool(shown.strip())

    def update_jobs(self, changes: Mapping[int, Mapping[str, str]]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`.

        One scontrol reads up to 200 lines, which takes a quarter of the time of as many calls.
        """
        lines = {job_id: prompt_line(job_id, fields) for job_id, fields in changes.items()}
        readable = {job_id: line for job_id, line in lines.items() if line is not None}
        alone = [job_id for job_id, line in lines.items() if line is None]
        refusal: RetryLater | None = None
        for begin in range(0, len(readable), _LINES_A_CALL):
            batch = list(readable)[begin : begin + _LINES_A_CALL]
            given = "".join(readable[job_id] for job_id in batch)
            try:
                self._change(given=given, attempts=1)
            except RetryLater as error:
                if error.code == _REFUSED and "partition=" in given.lower():
                    # slurmctld 26.05 refused the same job of a call each time; a change that was made is
                    # made again without harm
                    alone += batch
                else:
                    refusal = error
        for job_id in alone:
            try:
                self.update_job([job_id], changes[job_id])
            except RetryLater as error:
                refusal = error
        if refusal is not None:
            raise refusal

    def _change(self, *words: str, attempts: int, given: str = "") -> None:
        while True:
            attempts -= 1
            try:
                self._commands.text("scontrol", *words, given=given)
            except RetryLater as refusal:
                if not attempts or refusal.code != _REFUSED:
                    raise
            else:
                return

    def requeue(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`.

        Without ``Incomplete`` slurmctld also runs a job again that has ended since it was last seen to run.
        """
        for ids in _in_lists(job_ids):
            self._commands.text("scontrol", "requeue", "Incomplete", named(self._commands, ids))

    def requeue_ended(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        for ids in _in_lists(job_ids):
            self._commands.text("scontrol", "requeue", named(self._commands, ids))

    def release(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        for ids in self._names(job_ids):
            self._commands.text("scontrol", "release", ids)

    def ping(self) -> bool:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        try:
            return " is UP" in self._commands.text("scontrol", "ping", timeout=5.0)
        except RetryLater:  # scontrol ping fails when no slurmctld answers
            return False

    def partitions(self) -> tuple[Partition, ...]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        found = parsing.partitions(
            self._commands.text("scontrol", "--oneliner", "--all", "show", "partitions")
        )
        if not account_lists.has_lists(found) or self._commands.release() < account_lists.INHERITED_FROM:
            return found
        if self._monotonic() >= self._parents_again_at:
            self._parents_again_at = self._monotonic() + _PARENTS_SECONDS
            which = ("where", "user=", f"cluster={self.config()['ClusterName']}", "format=account,parentname")
            with suppress(RetryLater):  # without slurmdbd, those of the last time
                told = self._commands.text("sacctmgr", "-nP", "show", "assoc", *which, timeout=5.0)
                self._account_parents = account_lists.parents_of(told)
        return account_lists.with_accounts_below(found, self._account_parents)

    def reservations(self) -> tuple[Reservation, ...]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        return reservations_of(self._commands)

    def config(self) -> Mapping[str, str]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        values = parsing.config(self._commands.text("scontrol", "show", "config"))
        if "ClusterName" not in values:
            raise RetryLater(
                "scontrol show config names no cluster. Set ClusterName in slurm.conf",
                code="slurm.unreadable",
            )
        return values

    def is_administrator(self, user: str) -> bool:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        name = _checked(user, _ADDRESS, "user name")
        said = self._commands.text("sacctmgr", "-nP", "show", "user", f"name={name}", "format=adminlevel")
        return said.strip().lower() == "administrator"

    def version(self) -> tuple[int, ...]:
        """See :class:`~advisor.slurm.protocol.SlurmBackend`."""
        return release_in(self._commands.text("scontrol", "--version"))


def prompt_line(job_id: int, fields: Mapping[str, str]) -> str | None:
    """A change as a line of scontrol's own prompt; None where that would not read it as it is meant.

    The prompt divides a line at blanks that are outside quotes, and keeps the quotes. Inside a JSON object,
    an AdminComment, they are written as escapes.
    """
    words = [f"update jobid={job_id:d}"]
    for name, value in fields.items():
        escaped = _JSON_ESCAPES.sub(lambda found: f"\\u{ord(found[0][-1]):04x}", value)
        if value.startswith("{"):
            try:
                is_same = json.loads(escaped) == json.loads(value)
            except ValueError:
                return None
            if not is_same:
                return None
        elif escaped != value or '"' in value:
            return None
        words.append(f"{_checked(name, _FIELD, 'job field')}={escaped}")
    line = " ".join(words)
    return line + "\n" if line.isascii() and line.isprintable() else None


def _in_lists(job_ids: Collection[int]) -> Iterator[str]:
    """Job ids as comma-separated lists of up to 500: one call changes 300 jobs in 0.2 s."""
    ids = [f"{job_id:d}" for job_id in job_ids]
    for begin in range(0, len(ids), _JOBS_A_CALL):
        yield ",".join(ids[begin : begin + _JOBS_A_CALL])


def _checked(value: str, pattern: re.Pattern[str], what: str) -> str:
    if not pattern.fullmatch(value):
        raise BadInput(
            f"{value[:80]!a} cannot be passed to scontrol",
            where=what,
            mend="Rename it where it is set, in Slurm or in the settings: letters, digits and _ . : - only",
            code="slurm.value",
        )
    return value


def one_line(value: str, limit: int = 1000) -> str:
    """Text as one argument without control characters."""
    return re.sub(r"[\x00-\x1f\x7f]", " ", value)[:limit]
