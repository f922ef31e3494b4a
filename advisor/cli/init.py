"""``advisor init``: write a settings file from what the running cluster says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import working

if TYPE_CHECKING:
    from advisor.service.admin.found_site import FoundSite


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


def init(
    *,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: /etc/advisor/advisor.toml."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file; write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    slurm_bin: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of scontrol and squeue; default: from PATH.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Look at the running cluster, and write a commented settings file of at most 30 settings.

    It changes nothing in Slurm. A file that exists is replaced only with --force.
    """
    from advisor.config import DEFAULT_PATH, load
    from advisor.config.reference import starting_file
    from advisor.model.errors import BadInput
    from advisor.service.admin.doctor_slurm import SlurmExamination
    from advisor.service.admin.found_site import proposal_for
    from advisor.slurm.cli import CliBackend

    path = file or DEFAULT_PATH
    if not dry_run and not force and path.exists():
        mend = "Name another file with --output, see what would be written with --dry-run, or --force"
        raise BadInput("it exists already", where=str(path), mend=mend, code="init.exists")
    with working("asking Slurm"):
        found = proposal_for(look(slurm_bin))
    text = starting_file(found.values, found.notes)
    if dry_run:
        typer.echo(text, nl=False)
        return
    write(path, text)
    settings = load(path, {}).settings
    with working("checking Slurm against the settings"):
        said = list(SlurmExamination(settings, CliBackend.of(settings)).run())
    left = [one for one in said if one.mend]

    def draw(console: Console) -> None:
        console.print(Text(f"Written: {path}, with {len(found.values)} settings found on this cluster."))
        for note in found.notes:
            console.print(Text(f"- {note}"))
        for one in left:
            console.print(Text(f"{one.level}: {one.check}: {one.what}. {one.mend}", "yellow"))
        console.print(Text("Next: advisor ingest sacct, start the services, then advisor doctor."))

    values: dict[str, Any] = {key: value for key, (value, _) in found.values.items()}
    emit({"path": path, "settings": values, "notes": found.notes, "findings": left}, output, draw)


def look(slurm_bin: Path | None) -> FoundSite:
    """Ask the cluster.

    Raises:
        BadInput: Slurm's commands are not there.
        RetryLater: slurmctld does not answer.
    """
    from advisor.model.settings import Settings
    from advisor.service.admin.doctor_hook import loads_module
    from advisor.service.admin.found_site import FoundSite
    from advisor.slurm import hook_files
    from advisor.slurm.cli import CliBackend
    from advisor.slurm.commands import Commands

    on_path = shutil.which("scontrol")
    folder = slurm_bin or (Path(on_path).parent if on_path else Settings().paths.slurm_bin)
    told = os.environ.get("SLURM_CONF")
    slurm = CliBackend(Commands(folder, Path(told) if told else None))
    config = slurm.config()
    conf = Path(config.get("SLURM_CONF") or Settings().paths.slurm_conf)
    return FoundSite(
        config=config,
        partitions=slurm.partitions(),
        nodes=slurm.snapshot(0.0).nodes,
        slurm_bin=folder,
        loads_hook="lua" in config.get("JobSubmitPlugins", "")
        and loads_module(conf.parent / hook_files.HOOK),
    )


def write(path: Path, text: str) -> None:
    """Write the file whole, readable by all users, once it is known to be good.

    Raises:
        BadInput: It cannot be written.
    """
    from advisor.files.whole_file import replacing
    from advisor.model.errors import BadInput

    try:
        with replacing(path, durable=True, mode=0o644) as file:
            file.write(text.encode())
    except OSError as error:
        raise BadInput(
            f"it cannot be written ({error.strerror})",
            where=str(path),
            mend="Make its folder, or run the command as root",
            code="init.unwritable",
        ) from None
