"""``advisor why``: why a job was sent where it was, from the ledger, else from the job itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.decide.explanation.admin_comment import RecordedAdvice
from advisor.decide.explanation.display import clean
from advisor.model.errors import AdvisorError, BadInput
from advisor.model.job_id import JobId, parse_job_id
from advisor.service.admin.since import clock_text

if TYPE_CHECKING:
    from advisor.history.records import AdviceRecord
    from advisor.model.settings import Settings
    from advisor.service.admin.why_view import Known
    from advisor.slurm.recorded_advice import JobRecordInSlurm


def why(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOBID", help="The job as Slurm writes it: 95, 95_2, 97+1, 94.0; as LSF does: 95, 95[2]."
        ),
    ],
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Explain where a job was sent: each question, its answer and its numbers.

    If the ledger does not have the job (its advice is a few seconds old, or this host has no ledger), the
    job's AdminComment is shown: the decisive answer and its numbers.
    """
    from advisor.service.admin.why_view import Known

    job_id = parse_job_id(job, where="JOBID")
    settings = settings_of(config)
    trouble: AdvisorError | None = None
    known, seen = Known(None, None), None
    try:
        known = _in_the_ledger(settings, job_id.job)
    except AdvisorError as error:
        trouble = error
    # a new job may have its number, and a moved one may have come back
    if known.record is None or known.ended is not None or known.record.advice.partition is not None:
        seen = _in_slurm(settings, job_id, has_ended=known.record is None)
    if known.record is not None and not _is_newer(seen, known.record):
        _emit_record(job_id, known, known.record, seen, output)
    elif seen is not None and seen.recorded is not None:
        _emit_recorded(job_id, seen.recorded, output)
    elif seen is not None and seen.het_job_id is not None:
        _emit_heterogeneous(job_id, seen.het_job_id, output)
    elif trouble is None and _was_heterogeneous(settings, job_id.job):
        _emit_heterogeneous(job_id, None, output)
    else:
        raise trouble or _nothing_known(job_id, seen, settings.cluster.scheduler, known)


def _nothing_known(job_id: JobId, seen: JobRecordInSlurm | None, scheduler: str, known: Known) -> BadInput:
    from advisor.service.admin.why_view import of_older

    if scheduler == "lsf":
        slurm = "LSF keeps none"
        mend = "A job that began at once has none: `advisor decisions` lists those that have"
    elif seen is None:
        slurm, mend = "Slurm was not asked", "Ask on a host with Slurm's commands (paths.slurm_bin)"
    elif seen.is_known:
        slurm = "Slurm knows the job, but its AdminComment has no advice"
        mend = (
            "No advisor answered when it was submitted, or, without a hook, it began at once: see "
            f"`scontrol show job {job_id.name}`"
        )
    else:
        slurm, mend = "Slurm does not know the job", "`advisor decisions` lists the jobs that have advice"
    older = of_older(job_id, known.of_older_alone())
    return BadInput(
        f"the ledger has no advice for job {job_id.name}; {slurm}{f'. {older}' if older else ''}",
        where="advisor why",
        mend=mend,
        code="ledger.no_advice",
    )


def _in_the_ledger(settings: Settings, job_id: int) -> Known:
    from advisor.history.store import HistoryStore
    from advisor.service.admin.why_view import known_of

    with HistoryStore(settings.history_url) as store:
        return known_of(store, job_id)


def _is_newer(seen: JobRecordInSlurm | None, record: AdviceRecord) -> bool:
    """Whether slurmctld has a job with this number that was submitted after the advice in the ledger."""
    from advisor.history.schema import SAME_MOMENT_SECONDS

    if seen is None or seen.submit_time is None:
        return False
    is_its = seen.recorded is not None and seen.recorded.advice_id == record.advice.advice_id
    return not is_its and seen.submit_time > record.advice.time + SAME_MOMENT_SECONDS


def _was_heterogeneous(settings: Settings, job_id: int) -> bool:
    """Whether the history has the job as a heterogeneous one, also when Slurm has forgotten it."""
    from advisor.history.store import HistoryStore

    with HistoryStore(settings.history_url) as store:
        finished = store.of_job(job_id)
    return finished is not None and finished.job.heterogeneous


def _in_slurm(settings: Settings, job_id: JobId, *, has_ended: bool) -> JobRecordInSlurm | None:
    if settings.cluster.scheduler == "lsf":
        return None
    from advisor.slurm.commands import Commands
    from advisor.slurm.recorded_advice import record_in_slurm

    try:
        commands = Commands(settings.paths.slurm_bin, settings.paths.slurm_conf)
        return record_in_slurm(commands, job_id.name, has_ended=has_ended)
    except BadInput:  # a host without Slurm's commands
        return None


def _emit_record(
    job_id: JobId, known: Known, record: AdviceRecord, seen: JobRecordInSlurm | None, output: Format
) -> None:
    from advisor.decide.explanation.wording import explanation
    from advisor.service.admin.why_view import ledger_advice

    found = ledger_advice(job_id, known, record, now_in=None if seen is None else seen.partition)

    def draw(console: Console) -> None:
        name = clean(record.job.name or "without a name")
        user = clean(record.job.user or "an unknown user")
        title = f"Job {job_id.name} ({name}) of {user}, submitted {clock_text(record.job.submit_time)}"
        if found["advised_later"] is not None:
            title += f", advised anew {clock_text(found['advised_later'])}"
        console.print(Text(title, "bold"))
        for sentence in (found["of_older"], found["of_array"], found["ended_elsewhere"]):
            if sentence:
                console.print(Text(sentence))
        console.print(Text(explanation(record.advice)))
        if found["wait_interval"]:
            console.print(Text(found["wait_interval"]))

    emit(found, output, draw)


def _emit_recorded(job_id: JobId, recorded: RecordedAdvice, output: Format) -> None:
    from advisor.decide.explanation.wording import recorded_explanation
    from advisor.service.admin.why_view import recorded_advice

    def draw(console: Console) -> None:
        console.print(Text(f"Job {job_id.name}, from its AdminComment", "bold"))
        console.print(Text(recorded_explanation(recorded)))

    emit(recorded_advice(job_id, recorded), output, draw)


def _emit_heterogeneous(job_id: JobId, leader: int | None, output: Format) -> None:
    from advisor.service.admin.why_view import heterogeneous_job

    found = heterogeneous_job(job_id, leader)

    def draw(console: Console) -> None:
        whole = "a heterogeneous job" if leader is None else f"the heterogeneous job {leader}"
        console.print(Text(f"Job {job_id.name}, a part of {whole}", "bold"))
        console.print(Text(f"{found['headline']}\n\n  {found['sentence']} [{found['reason']}]"))

    emit(found, output, draw)
