"""``advisor why``: why a job was sent where it was, from the ledger, else from the job itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.model.errors import AdvisorError, BadInput
from advisor.service.admin.since import clock_text

if TYPE_CHECKING:
    from advisor.decide.admin_comment import RecordedAdvice
    from advisor.history.records import AdviceRecord
    from advisor.model.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("why")(why)


def why(
    job_id: Annotated[int, typer.Argument(min=1, help="The job.", metavar="JOBID")],
    config: ConfigOption = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Say why a job was sent where it was: each question, its answer and its numbers.

    Where the ledger has nothing (the advice is a few seconds old, or this host has no ledger) the job's own
    AdminComment is shown: the decisive answer and its numbers.
    """
    settings = settings_of(config)
    trouble: AdvisorError | None = None
    record: AdviceRecord | None = None
    try:
        record = _in_the_ledger(settings, job_id)
    except AdvisorError as error:
        trouble = error
    if record is not None:
        _emit_record(job_id, record, output)
        return
    recorded = _in_slurm(settings, job_id)
    if recorded is not None:
        _emit_recorded(job_id, recorded, output)
        return
    raise trouble or BadInput(
        f"no advice for job {job_id} is in the ledger, and Slurm shows no AdminComment of ours for it",
        where="advisor why",
        mend=f"`scontrol show job {job_id}` has an AdminComment when the advisor was asked at all",
        code="ledger.no_advice",
    )


def _in_the_ledger(settings: Settings, job_id: int) -> AdviceRecord | None:
    from advisor.history.store import HistoryStore

    with HistoryStore(settings.paths.history_url) as store:
        return store.advice_of(job_id)


def _in_slurm(settings: Settings, job_id: int) -> RecordedAdvice | None:
    from advisor.slurm.admin_comment import recorded_advice
    from advisor.slurm.commands import Commands

    try:
        return recorded_advice(Commands(settings.paths.slurm_bin, settings.paths.slurm_conf), job_id)
    except BadInput:  # a host without Slurm's commands: the ledger was all there is
        return None


def _emit_record(job_id: int, record: AdviceRecord, output: Format) -> None:
    from advisor.decide.display import clean
    from advisor.decide.wording import explanation
    from advisor.service.admin.why_view import ledger_advice

    def draw(console: Console) -> None:
        name = clean(record.job.name or "without a name")
        user = clean(record.job.user or "an unknown user")
        title = f"Job {job_id} ({name}) of {user}, submitted {clock_text(record.advice.time)}"
        console.print(Text(title, "bold"))
        console.print(Text(explanation(record.advice)))

    emit(ledger_advice(job_id, record), output, draw)


def _emit_recorded(job_id: int, recorded: RecordedAdvice, output: Format) -> None:
    from advisor.decide.wording import recorded_explanation
    from advisor.service.admin.why_view import recorded_advice

    def draw(console: Console) -> None:
        console.print(Text(f"Job {job_id}, from its AdminComment", "bold"))
        console.print(Text(recorded_explanation(recorded)))

    emit(recorded_advice(job_id, recorded), output, draw)
