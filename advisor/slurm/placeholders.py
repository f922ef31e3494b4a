"""Keeping a job's place in the on-premise queue while it runs elsewhere: a placeholder job of the same shape.

slurmctld itself then does what nobody could imitate: the placeholder gains age and fair share as the job
would have, backfill plans it, limits hold for it, and when it starts the job's turn has come, and its slot is
held. It sleeps; nothing of the user's runs in it. docs/designs/0013-hedged-start.md compares the other ways.
"""

from __future__ import annotations

import math
import os
import pwd
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.model.errors import RetryLater, TellAdmin
from advisor.model.job import PLACEHOLDER_COMMENT, PLACEHOLDER_PREFIX
from advisor.slurm import parsing, records
from advisor.slurm.commands import Commands
from advisor.slurm.protocol import JobView, QueuedJob
from advisor.slurm.records import Layout, Unread

_SIGHT: Final = (
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
_SHAPE: Final = (
    "JobID",
    "UserID",
    "NumTasks",
    "NumCPUs",
    "NumNodes",
    "cpus-per-task",
    "NTPerNode",
    "tres-alloc",
    "MinTmpDisk",
    "OverSubscribe",
    "Contiguous",
    "Feature",
    "Account",
    "QOS",
    "Nice",
    "admin_comment",
    "TimeLimit",  # last: a time
)
_USERS_A_CALL: Final = 50
_SIGNAL_BITS: Final = 0x7F  # of a wait status
_KILLED_BY: Final = frozenset({9, 15})  # what slurmd sends
_UNITS: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceholderRequest:
    """What a placeholder is to be.

    Attributes
    ----------
    job_id : int
        The job whose place it keeps.
    partition : str
        Where.
    limit_seconds : float or None
        The time limit its user gave; None: the job's present one.
    held_seconds : float
        How long it holds the slot, should nobody end it.
    features : tuple of str or None
        The user's own constraint; None: the job's present one.
    advice_id : str
        The advice the job was submitted under; a job with another one is another job. Empty: not asked for.
    """

    job_id: int
    partition: str
    limit_seconds: float | None
    held_seconds: float
    features: tuple[str, ...] | None = None
    advice_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Config:
    is_multifactor: bool
    age_weight: int
    max_age_seconds: float
    calc_seconds: float
    has_prolog: bool


class Placeholders:
    """Submits and looks at placeholders, and at the jobs they belong to.

    Every method raises RetryLater when Slurm does not answer or refuses.

    Parameters
    ----------
    commands : Commands
        How Slurm's commands are run.
    """

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self._known: _Config | None = None

    def prepare(self) -> None:
        """Have whatever `reserve` needs ready: here there is nothing to wait for."""

    def close(self) -> None:
        """Let go of whatever is kept open for the next question: nothing here."""

    def view(self, job_id: int) -> JobView | None:
        """A job as it is now; None when slurmctld has forgotten it."""
        row = self._row(job_id, _SIGHT)
        return None if row is None else _view_of(job_id, row)

    def killed(self, job_id: int) -> JobView | None:
        """A job that SIGTERM or SIGKILL has ended, as long as slurmctld knows it.

        A slurmctld that dies between a requeue and its next state file comes back knowing of no requeue: the
        job that it had killed has failed, then, though it was to start anew.
        """
        row = self._row(job_id, (*_SIGHT[:-1], "exit_code", _SIGHT[-1]), states="FAILED")
        signal = 0 if row is None else (records.whole(row["exit_code"]) or 0) & _SIGNAL_BITS
        return _view_of(job_id, row) if row is not None and signal in _KILLED_BY else None

    def submitted_by(self, users: Collection[int], partition: str) -> tuple[QueuedJob, ...]:
        """Jobs of some users, by their ids, in a partition; of all users where none or many are named.

        For one user slurmctld looks for his jobs only, where it would else send everybody's.
        """
        layout, report = Layout.of(parsing.JOB_COLUMNS), Unread()
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

        Only what bears its name counts: a slurmctld that died before it wrote the placeholder down gives
        its id to somebody else's job.
        """
        view = self.view(placeholder)
        return view if view is not None and view.name == f"{PLACEHOLDER_PREFIX}{job_id:d}" else None

    def reserve(self, wish: PlaceholderRequest) -> int:
        """Submit a placeholder as the job's own user; its id.

        Raises
        ------
        TellAdmin
            Only root may submit for others (``hedge.not_root``).
        RetryLater
            The job is gone (``hedge.job_gone``), or Slurm refuses.
        """
        shape = self._row(wish.job_id, _SHAPE)
        if shape is None or (wish.advice_id and _advice_id(shape) != wish.advice_id):
            raise RetryLater(f"job {wish.job_id} is gone", code="hedge.job_gone")
        options = [*_resources(shape, wish), *_as_user(int(shape["UserID"]))]
        # the hook sees an explicit partition, and leaves it where it is
        answer = self.commands.text(
            "sbatch",
            "--parsable",
            f"--job-name={PLACEHOLDER_PREFIX}{wish.job_id:d}",
            f"--partition={wish.partition}",
            "--output=/dev/null",
            "--chdir=/",
            "--export=NONE",
            f"--comment={PLACEHOLDER_COMMENT}",
            *options,
            f"--wrap=exec sleep {math.ceil(wish.held_seconds):d}",
        )
        placeholder = records.whole(answer.partition(";")[0])
        if placeholder is None:
            raise RetryLater("sbatch named no job", code="slurm.unreadable")
        return placeholder

    def cancel(self, placeholder: int, job_id: int) -> None:
        """End a job's placeholder; one that is gone is as good."""
        try:
            self.commands.text("scancel", "--quiet", f"--name={PLACEHOLDER_PREFIX}{job_id:d}", f"{placeholder:d}")
        except RetryLater:  # scancel fails, and with --quiet says nothing, where there is nothing to end
            if self.place(placeholder, job_id) is not None:
                raise

    def raise_priority(self, job_id: int, *, by: int, to: int | None) -> None:
        """Set a waiting job's place.

        Parameters
        ----------
        job_id : int
            The job.
        by : int
            Its site factor from now on, where the site's priorities have one.
        to : int
            Else its priority; None leaves it: that of a job that runs can't be changed.
        """
        if to is None and not self.knows_site_factors:
            return
        change = f"sitefactor={by:d}" if self.knows_site_factors else f"priority={to:d}"
        self.commands.text("scontrol", "update", f"jobid={job_id:d}", change)

    @property
    def knows_site_factors(self) -> bool:
        """Whether priorities are made of factors; ``priority/basic`` numbers jobs as they come."""
        return self._config().is_multifactor

    @property
    def recalculation_seconds(self) -> float:
        """How often slurmctld reckons priorities anew; 0: never."""
        return self._config().calc_seconds

    @property
    def may_requeue_booting(self) -> bool:
        """Whether a job whose cloud node still boots can be requeued without harm.

        slurmctld 22.05 then asks the node to end the job; where its name cannot be resolved yet, that keeps
        a lock for ten seconds and slurmctld from everything else. Not so while PrologSlurmctld runs for it.
        """
        return self._config().has_prolog

    def age_points(self, seconds: float) -> int:
        """Priority that a job gains by waiting so long, to the nearest point."""
        found = self._config()
        return round(found.age_weight * min(max(seconds, 0.0) / found.max_age_seconds, 1.0))

    def _config(self) -> _Config:
        if self._known is None:
            values = parsing.config(self.commands.text("scontrol", "show", "config"))
            is_multifactor = values.get("PriorityType") == "priority/multifactor"
            weight = records.whole(values.get("PriorityWeightAge", "")) or 0
            if "slurmdbd" not in values.get("AccountingStorageType", ""):
                weight = 0  # slurmctld ignores it then
            calc = records.seconds(values.get("PriorityCalcPeriod", ""))
            self._known = _Config(
                is_multifactor=is_multifactor,
                age_weight=weight if is_multifactor else 0,
                max_age_seconds=records.seconds(values.get("PriorityMaxAge", "")) or math.inf,
                calc_seconds=(300.0 if calc is None else calc) if is_multifactor else 0.0,
                has_prolog=records.text(values.get("PrologSlurmctld", "")) is not None,
            )
        return self._known

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
        state=row["State"].strip(),
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


def _resources(shape: dict[str, str], wish: PlaceholderRequest) -> list[str]:
    """Options of sbatch that ask for what the job has."""
    nodes = max(1, records.leading(shape["NumNodes"]) or 1)
    limit = wish.limit_seconds if wish.limit_seconds is not None else records.seconds(shape["TimeLimit"])
    memory = _memory_mb(shape["tres-alloc"])
    features = "&".join(wish.features) if wish.features is not None else shape["Feature"]
    counts = {
        "ntasks": max(1, records.whole(shape["NumTasks"]) or 1),
        "nodes": nodes if nodes > 1 else 0,
        "cpus-per-task": records.whole(shape["cpus-per-task"]) or 0,
        "ntasks-per-node": records.whole(shape["NTPerNode"]) or 0,
        "time": 0 if limit is None else math.ceil(limit / 60.0),
        "mem": math.ceil(memory / nodes),  # MiB
        "tmp": records.whole(shape["MinTmpDisk"]) or 0,
        "nice": records.whole(shape["Nice"]) or 0,
    }
    texts = {"constraint": features, "account": shape["Account"], "qos": shape["QOS"]}
    options = [f"--{option}={count:d}" for option, count in counts.items() if count > 0]
    options += [
        f"--{option}={known.strip()}" for option, value in texts.items() if (known := records.text(value))
    ]
    if shape["OverSubscribe"].strip() == "NO":
        options.append("--exclusive")
    if shape["Contiguous"].strip() == "1":
        options.append("--contiguous")
    return options


def _memory_mb(tres: str) -> float:
    for part in tres.split(","):
        name, _, value = part.strip().partition("=")
        if name == "mem" and value[:-1].replace(".", "", 1).isdigit() and value[-1] in _UNITS:
            return float(value[:-1]) * _UNITS[value[-1]]
    return 0.0


def _as_user(uid: int) -> list[str]:
    if uid == os.geteuid():
        return []
    if os.geteuid() != 0:
        raise TellAdmin(
            "only root may keep the place of another user's job (docs/operate.md)",
            code="hedge.not_root",
        )
    try:
        group = pwd.getpwuid(uid).pw_gid
    except KeyError:
        raise RetryLater(f"user id {uid} is not known here", code="hedge.no_user") from None
    return [f"--uid={uid:d}", f"--gid={group:d}"]
