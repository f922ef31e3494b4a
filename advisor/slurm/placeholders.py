"""A placeholder keeps a job's place in the on-premise queue while the job runs in the cloud.

It is a job of the same shape that only sleeps. slurmctld gives it age and fair share as it would have given
the job, backfill plans it, and limits apply to it. When it starts, the job could have started, and its nodes
are held for the job. The watch loop submits and follows them, by way of the place helper where the service is
not root. docs/designs/0013-hedged-start.md compares the other ways.
"""

from __future__ import annotations

import math
import os
import pwd
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.model.advice import CAPACITY_FEATURES
from advisor.model.errors import RetryLater, TellAdmin
from advisor.model.job import PLACEHOLDER_COMMENT, PLACEHOLDER_PREFIX
from advisor.model.job_words import mebibytes
from advisor.model.snapshot import JobView, QueuedJob
from advisor.model.submit_limits import SubmitKey
from advisor.slurm import parsing, records
from advisor.slurm.commands import Commands, SlurmConf
from advisor.slurm.protocol import state_of
from advisor.slurm.records import Layout, Unread
from advisor.slurm.steering import Ageing
from advisor.slurm.submit_room import shares_left

_VIEW_COLUMNS: Final = (
    "JobID",
    "State",
    "Reason",
    "Partition",
    "PriorityLong",
    "StartTime",
    "SubmitTime",
    "AccrueTime",
    "RestartCnt",
    "TimeLimit",
    "NumTasks",
    "cpus-per-task",
    "NumCPUs",
    "NumNodes",
    "Name",
    "admin_comment",
    "UserID",  # last: a number
)
_SHAPE_COLUMNS: Final = (
    "JobID",
    "UserID",
    "NumTasks",
    "NumCPUs",
    "NumNodes",
    "cpus-per-task",
    "NTPerNode",
    "NTPerCore",
    "Threads",
    "MinCpus",
    "ReqSwitch",
    "Wait4Switch",
    "MinMemory",
    "tres-alloc",
    "OverSubscribe",
    "Contiguous",
    "Feature",
    "Account",
    "QOS",
    "Nice",
    "admin_comment",
    "TimeLimit",  # last: a time
)
_END_COLUMNS: Final = ("exit_code", "EndTime")
_USERS_A_CALL: Final = 50
_ENFORCED: Final = ("limits", "safe")
_NOT_LAUNCHED: Final = (1, 0)  # the exit code that slurmctld gives a batch job whose node refuses it
_KILLED_BY: Final = frozenset({9, 15})  # what slurmd sends


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderRequest:
    """The placeholder that a job is to get.

    Attributes:
        limit_seconds: Time limit that the user gave; None: the job's present one.
        held_seconds: Longest time for which the placeholder holds its nodes.
        features: The user's own constraint; None: the job's present one, without what the advisor has added.
        advice_id: The advice with which the job was submitted: another one belongs to another job. Empty: not
            compared.
    """

    job_id: int
    partition: str
    limit_seconds: float | None
    held_seconds: float
    features: tuple[str, ...] | None = None
    advice_id: str = ""


class Placeholders:
    """Submits and watches placeholders, and the jobs they belong to.

    Every method raises RetryLater when Slurm does not answer or refuses.
    """

    def __init__(self, commands: Commands, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.commands = commands
        self._conf = SlurmConf(commands, monotonic=monotonic)

    def prepare(self) -> None:
        """Prepare the next `reserve`: nothing to do here."""

    def close(self) -> None:
        """Close what is kept open for the next `reserve`: nothing here."""

    def view(self, job_id: int) -> JobView | None:
        """A job as it is now; None when slurmctld has forgotten it."""
        row = self._row(job_id, _VIEW_COLUMNS)
        return None if row is None else _view_of(job_id, row)

    def killed(self, job_id: int) -> JobView | None:
        """A job that SIGTERM or SIGKILL has ended, or that never began, as long as slurmctld knows it.

        When slurmctld dies between a requeue and its next state file, it has forgotten the requeue after its
        restart: the job that it killed in order to requeue it is then shown as failed. If it has forgotten
        the job's start as well, it launches the job again; the node refuses, because the job's credential is
        revoked, and the job is shown as failed with exit code 1 and without any run time.
        """
        row = self._row(job_id, (*_VIEW_COLUMNS[:-1], *_END_COLUMNS, _VIEW_COLUMNS[-1]), states="FAILED")
        if row is None:
            return None
        ended = _exit_code(row["exit_code"])
        never_began = ended == _NOT_LAUNCHED and row["StartTime"].strip() == row["EndTime"].strip()
        return _view_of(job_id, row) if never_began or ended[1] in _KILLED_BY else None

    def submitted_by(self, users: Collection[int], partition: str) -> tuple[QueuedJob, ...]:
        """Jobs in a partition of some users (by id); of all users if none or more than 50 are named.

        With users named, slurmctld sends only their jobs.
        """
        columns = parsing.columns_of(parsing.JOB_COLUMNS, self.commands.release())
        layout, report = Layout.of(columns), Unread()
        chosen = [f"--user={','.join(f'{uid:d}' for uid in sorted(users))}"]
        answer = self.commands.text(
            "squeue",
            "--noheader",
            "--all",
            *(chosen if 0 < len(users) <= _USERS_A_CALL else ()),
            f"--partition={partition}",
            f"--Format={layout.argument}",
        )
        return parsing.queued_jobs(layout.records(answer, report), report)

    def place(self, placeholder: int, job_id: int) -> JobView | None:
        """A job's placeholder as it is now; None when it is gone.

        The name is compared because a slurmctld that died before it saved the placeholder gives its id to
        another job.
        """
        view = self.view(placeholder)
        return view if view is not None and view.name == f"{PLACEHOLDER_PREFIX}{job_id:d}" else None

    def reserve(self, request: PlaceholderRequest) -> int:
        """Submit a placeholder as the job's own user; return its id.

        Raises:
            TellAdmin: Only root may submit for others (``hedge.not_root``).
            RetryLater: The job is gone (``hedge.job_gone``), or Slurm refuses.
        """
        shape = self._row(request.job_id, parsing.columns_of(_SHAPE_COLUMNS, self.commands.release()))
        uid = None if shape is None else records.user_id(shape["UserID"])
        if shape is None or uid is None or (request.advice_id and _advice_id(shape) != request.advice_id):
            raise RetryLater(f"Slurm no longer has job {request.job_id}", code="hedge.job_gone")
        options = [*_resources(shape, request), *self._excluded(request.job_id), *_as_user(uid)]
        # the submit hook leaves a job with an explicit partition alone
        answer = self.commands.text(
            "sbatch",
            "--parsable",
            f"--job-name={PLACEHOLDER_PREFIX}{request.job_id:d}",
            f"--partition={request.partition}",
            "--output=/dev/null",
            "--chdir=/",
            "--export=NONE",
            f"--comment={PLACEHOLDER_COMMENT}",
            *options,
            f"--wrap=exec sleep {math.ceil(request.held_seconds):d}",
        )
        placeholder = records.whole(answer.partition(";")[0])
        if placeholder is None:
            raise RetryLater(
                "sbatch printed neither a job id nor an error: it is tried again",
                code="slurm.unreadable",
            )
        return placeholder

    def _excluded(self, job_id: int) -> list[str]:
        """The option that keeps a placeholder off the nodes that its job excludes."""
        found = self.commands.text("squeue", "--noheader", "--all", f"--jobs={job_id:d}", "--format=%x")
        nodes = records.text(found.strip(), 65536)
        return [f"--exclude={nodes}"] if nodes else []

    def cancel(self, placeholder: int, job_id: int) -> None:
        """End a job's placeholder; no error if it is gone."""
        try:
            self.commands.text(
                "scancel", "--quiet", f"--name={PLACEHOLDER_PREFIX}{job_id:d}", f"{placeholder:d}"
            )
        except RetryLater:  # scancel also fails where there is nothing to end, and --quiet hides which it is
            if self.place(placeholder, job_id) is not None:
                raise

    def submits_left(
        self, users: Collection[str] = (), qos: Collection[str] = ()
    ) -> Mapping[SubmitKey, float]:
        """What is left of each limit of jobs in the queue (`shares_left`), in one question.

        With users and QOS named, slurmctld sends no others.
        """
        enforced = self._conf.values().get("AccountingStorageEnforce", "")
        if not any(word in enforced for word in _ENFORCED):
            return {}
        named = (("users", users), ("qos", qos))
        chosen = [f"{option}={','.join(sorted(names))}" for option, names in named if names]
        return shares_left(self.commands.text("scontrol", "show", "assoc_mgr", *chosen, "flags=assoc,qos"))

    def raise_priority(self, job_id: int, *, by: int, to: int | None) -> None:
        """Set a waiting job's site factor to `by`; without ``priority/multifactor``, its priority to `to`.

        With `to` None the priority stays: Slurm cannot change that of a running job.
        """
        if to is None and not self.knows_site_factors:
            return
        change = f"sitefactor={by:d}" if self.knows_site_factors else f"priority={to:d}"
        self.commands.text("scontrol", "update", f"jobid={job_id:d}", change)

    @property
    def knows_site_factors(self) -> bool:
        """Whether priorities have a site factor; ``priority/basic`` only numbers jobs in their order."""
        return self._conf.values().get("PriorityType") == "priority/multifactor"

    @property
    def recalculation_seconds(self) -> float:
        """PriorityCalcPeriod, how often slurmctld computes priorities anew; 0: never."""
        if not self.knows_site_factors:
            return 0.0
        period = records.seconds(self._conf.values().get("PriorityCalcPeriod", ""))
        return 300.0 if period is None else period

    @property
    def may_requeue_booting(self) -> bool:
        """Whether a job whose cloud node still boots can be requeued without harm: with PrologSlurmctld only.

        Otherwise slurmctld 22.05 asks the node to end the job. Where the node's name cannot be resolved yet,
        that holds a lock of slurmctld for ten seconds, and nothing else is served.
        """
        return records.text(self._conf.values().get("PrologSlurmctld", "")) is not None

    def age_points(self, seconds: float) -> int:
        """Priority that a job gains by waiting so long, rounded to whole points; none without slurmdbd."""
        ageing = Ageing.of(self._conf.values())
        return 0 if ageing is None else round(ageing.of_a_job(seconds))

    def _row(self, job_id: int, columns: tuple[str, ...], *, states: str = "") -> dict[str, str] | None:
        layout = Layout.of(columns)
        chosen = [f"--states={states}"] if states else []  # by default those that have not ended
        try:
            answer = self.commands.text(
                "squeue", "--noheader", "--all", *chosen, f"--jobs={job_id:d}", f"--Format={layout.argument}"
            )
        except RetryLater as error:
            if "Invalid job id" in str(error):
                return None
            raise
        rows = [row for row in layout.records(answer, Unread()) if records.whole(row["JobID"]) == job_id]
        return rows[0] if rows else None


def _view_of(job_id: int, row: dict[str, str]) -> JobView:
    start, submit = records.whole(row["StartTime"]), float(records.whole(row["SubmitTime"]) or 0)
    return JobView(
        job_id=job_id,
        state=state_of(row["State"]),
        reason=row["Reason"].strip(),
        partition=row["Partition"].strip(),
        priority=records.whole(row["PriorityLong"]) or 0,
        start_time=None if start is None else float(start),
        submit_time=submit,
        ages_since=float(records.whole(row["AccrueTime"]) or submit),
        restarts=records.whole(row["RestartCnt"]) or 0,
        limit_seconds=records.seconds(row["TimeLimit"]),
        processors=records.leading(row["NumCPUs"]) or 0,
        nodes=records.leading(row["NumNodes"]) or 0,
        processors_asked=max(1, records.whole(row["NumTasks"]) or 1)
        * max(1, records.whole(row["cpus-per-task"]) or 1),
        name=row["Name"],
        advice_id=_advice_id(row),
    )


def _advice_id(row: dict[str, str]) -> str | None:
    advice = parse_admin_comment(records.text(row["admin_comment"], 4096))
    return None if advice is None else advice.advice_id


def _resources(shape: dict[str, str], request: PlaceholderRequest) -> list[str]:
    """Options of sbatch that ask for the resources that the job has."""
    nodes = max(1, records.leading(shape["NumNodes"]) or 1)
    limit = (
        request.limit_seconds if request.limit_seconds is not None else records.seconds(shape["TimeLimit"])
    )
    features = request.features
    if features is None:  # slurmctld shows a preference as the constraint once it has chosen the nodes
        features = tuple(
            word for word in shape["Feature"].strip().split("&") if word not in CAPACITY_FEATURES
        )
    counts = {
        "ntasks": max(1, records.whole(shape["NumTasks"]) or 1),
        "nodes": nodes if nodes > 1 else 0,
        "cpus-per-task": records.whole(shape["cpus-per-task"]) or 0,
        "ntasks-per-node": records.whole(shape["NTPerNode"]) or 0,
        "ntasks-per-core": records.whole(shape["NTPerCore"]) or 0,
        "threads-per-core": records.whole(shape["Threads"]) or 0,
        "mincpus": least if (least := records.whole(shape["MinCpus"]) or 0) > 1 else 0,
        "time": 0 if limit is None else math.ceil(limit / 60.0),
        "nice": records.whole(shape["Nice"]) or 0,
    }
    texts = {"constraint": "&".join(features), "account": shape["Account"], "qos": shape["QOS"]}
    options = [f"--{option}={count:d}" for option, count in counts.items() if count > 0]
    options += [
        f"--{option}={known.strip()}" for option, value in texts.items() if (known := records.text(value))
    ]
    options += _memory(shape)
    if parsing.asks_whole_nodes(shape):
        options.append("--exclusive")
    elif (shared := (shape.get("Exclusive") or shape["OverSubscribe"]).strip()) in {"USER", "MCS"}:
        options.append(f"--exclusive={shared.lower()}")
    if shape["Contiguous"].strip() == "1":
        options.append("--contiguous")
    if switches := records.whole(shape["ReqSwitch"]):
        options.append(f"--switches={switches:d}@{shape['Wait4Switch'].strip()}")
    return options


def _memory(shape: dict[str, str]) -> list[str]:
    """The memory that the job asks for: of each node (0: all), else of each processor.

    What it has in the cloud is no measure: with ``--mem=0``, or whole nodes, it has what is there.
    """
    tres, least = parsing.tres_of(shape), mebibytes(shape["MinMemory"])
    of_all = mebibytes(tres.get("mem", ""))
    if least is None or of_all is None:  # memory does not count here
        return []
    nodes = records.leading(tres.get("node", "")) or 1
    return [f"--mem={least:d}" if least * nodes in {0, of_all} else f"--mem-per-cpu={least:d}"]


def _exit_code(shown: str) -> tuple[int, int]:
    """Exit code and signal of ``1:0`` or, before 23.02, of a wait status."""
    code, colon, signal = shown.partition(":")
    number = records.whole(code) or 0
    return (number, records.whole(signal) or 0) if colon else (number >> 8, number & 0x7F)


def _as_user(uid: int) -> list[str]:
    if uid == os.geteuid():
        return []
    if os.geteuid() != 0:
        raise TellAdmin(
            "only root may submit the placeholder of another user's job. "
            "Enable advisor-places.socket (docs/options.md)",
            code="hedge.not_root",
        )
    try:
        group = pwd.getpwuid(uid).pw_gid
    except KeyError:
        raise RetryLater(
            f"user id {uid} is not known here: no place is kept. "
            f"`getent passwd {uid}` must find it on this host",
            code="hedge.no_user",
        ) from None
    return [f"--uid={uid:d}", f"--gid={group:d}"]
