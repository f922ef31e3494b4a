"""``advisor doctor``: check everything that an administrator sets up."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, loaded_settings
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import working

if TYPE_CHECKING:
    from advisor.model.settings import Settings
    from advisor.service.admin.doctor_lsf import LsfExamination
    from advisor.service.admin.doctor_slurm import SlurmExamination

_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}
_MARKS = {"ok": "ok     ", "warning": "warning", "error": "ERROR  "}


def doctor(config: ConfigOption = None, output: FormatOption = Format.TEXT) -> None:
    """Check settings, Slurm, sockets, database, models and EC2; say how to mend what is wrong.

    Exit code 0: nothing is wrong; 1: there are warnings; 2: something does not work.
    """
    from advisor.decide.submission.policy import in_force
    from advisor.service.admin.doctor import examine_service
    from advisor.service.admin.doctor_cloud import examine_cloud
    from advisor.service.admin.doctor_places import examine_places

    loaded = loaded_settings(config)
    settings = in_force(loaded.settings)
    scheduler = examination(settings)
    with working("asking the scheduler") as now:
        found = list(scheduler.run())
        partitions = set(scheduler.partitions) or None
        now("checking the services")
        found += examine_service(loaded, partitions)
        found += examine_places(settings)
        now("asking EC2")
        found += examine_cloud(settings)
    counts = Counter(diagnosis.level.value for diagnosis in found)

    def draw(console: Console) -> None:
        for diagnosis in found:
            line = Text(f"{_MARKS[diagnosis.level]} ", _STYLES[diagnosis.level])
            line.append(f"{diagnosis.check}: {diagnosis.what}", "default")
            if diagnosis.mend and console.soft_wrap:  # one line per finding, for grep
                line.append(f"; {diagnosis.mend}")
            console.print(line)
            if diagnosis.mend and not console.soft_wrap:
                console.print(Text(f"        {diagnosis.mend}", "dim"))
        words = ((counts["warning"], "warning"), (counts["error"], "error"))
        wrong = ", ".join(f"{number} {word}{'s' if number != 1 else ''}" for number, word in words)
        console.print(f"{counts['ok']} ok, {wrong}")

    result = {"ok": not counts["error"], "counts": dict(counts), "findings": found}
    emit(result, output, draw)
    if counts["error"]:
        raise typer.Exit(2)
    if counts["warning"]:
        raise typer.Exit(1)


def examination(settings: Settings) -> LsfExamination | SlurmExamination:
    """The checks of the site's scheduler."""
    if settings.cluster.scheduler == "lsf":
        from advisor.service.admin.doctor_lsf import LsfExamination

        return LsfExamination(settings)
    from advisor.service.admin.doctor_slurm import SlurmExamination
    from advisor.slurm.cli import CliBackend

    return SlurmExamination(settings, CliBackend.of(settings))
