"""``advisor init``: write a settings file from what the running cluster says."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import working
from advisor.model.errors import BadInput, RetryLater

if TYPE_CHECKING:
    from advisor.service.admin.doctor import Diagnosis
    from advisor.service.admin.found_site import FoundSite, Proposal


def init(
    *,
    file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: /etc/advisor/advisor.toml."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the file; write nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that exists; it stays beside it.")
    ] = False,
    slurm_bin: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of scontrol and squeue; default: found on PATH."),
    ] = None,
    lsf_envdir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of lsf.conf, for a cluster of LSF. Default: LSF_ENVDIR."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Examine the running cluster, and write a commented settings file of at most 30 settings.

    It changes nothing in Slurm or LSF. A file that exists is replaced only with --force.
    """
    from advisor.config import DEFAULT_PATH
    from advisor.config.editing import former_of, write_whole
    from advisor.config.reference import starting_file

    path = file or DEFAULT_PATH
    if not dry_run and not force:
        _refuse_existing(path)
    envdir = lsf_envdir or _lsf_alone(slurm_bin)
    with working("asking the scheduler"):
        found = _proposal_of_slurm(slurm_bin) if envdir is None else _proposal_of_lsf(envdir)
    text = starting_file(found.values, found.notes)
    if dry_run:
        typer.echo(text, nl=False)
        return
    write_whole(path, text)
    left = _open_findings(path)

    def draw(console: Console) -> None:
        kept = f" The former file is {former_of(path)}." if former_of(path).exists() else ""
        console.print(
            Text(f"Written: {path}, with {len(found.values)} settings found on this cluster.{kept}")
        )
        for note in found.notes:
            console.print(Text(f"- {note}"))
        for one in left:
            console.print(Text(f"{one.level}: {one.check}: {one.what}. {one.mend}", "yellow"))
        source = "sacct" if envdir is None else "lsb.acct"
        console.print(Text(f"Next: advisor ingest {source}, start the services, then advisor doctor."))

    values: dict[str, Any] = {key: value for key, (value, _) in found.values.items()}
    emit({"path": path, "settings": values, "notes": found.notes, "findings": left}, output, draw)


def _refuse_existing(path: Path) -> None:
    """Check that no file would be replaced.

    Raises:
        BadInput: The file exists (``init.exists``).
    """
    if path.exists():
        mend = "Name another file with --output, or replace it with --force (see --dry-run)"
        raise BadInput("the file exists already", where=str(path), mend=mend, code="init.exists")


def _open_findings(path: Path) -> list[Diagnosis]:
    """The doctor's findings about the scheduler, under the settings of a file, that are to be mended."""
    from advisor.cli.doctor import examination
    from advisor.config import load

    settings = load(path, {}).settings
    with working("checking the scheduler against the settings"):
        return [one for one in examination(settings).run() if one.mend]


def _lsf_alone(slurm_bin: Path | None) -> Path | None:
    """LSF_ENVDIR, on a host that has no Slurm."""
    named = os.environ.get("LSF_ENVDIR")
    return Path(named) if named and slurm_bin is None and shutil.which("scontrol") is None else None


def _proposal_of_slurm(slurm_bin: Path | None) -> Proposal:
    """Ask Slurm.

    Raises:
        BadInput: Slurm's commands are not there, or do not find slurmctld (``init.no_slurm``).
    """
    from advisor.service.admin.found_site import proposal_for

    try:
        return proposal_for(ask_slurm(slurm_bin))
    except (BadInput, RetryLater) as error:
        raise BadInput(
            f"Slurm does not answer: {error.what if isinstance(error, BadInput) else error}",
            where=error.where if isinstance(error, BadInput) else "Slurm's commands",
            mend="Run it on slurmctld's host, with --slurm-bin and SLURM_CONF if they are not where Slurm's "
            "packages put them; without a cluster `advisor config sample` prints a file to start from",
            code="init.no_slurm",
        ) from error


def _proposal_of_lsf(envdir: Path) -> Proposal:
    """Ask LSF.

    Raises:
        BadInput: lsf.conf does not say where LSF is.
        RetryLater: LSF does not answer.
    """
    from advisor.lsf.backend import LsfBackend
    from advisor.model.settings import Settings
    from advisor.service.admin.found_lsf import FoundLsf, proposal_for_lsf
    from advisor.service.state.state_files import LSF_ADVICE

    settings = Settings.model_validate({"paths": {"lsf_envdir": envdir}, "cluster": {"scheduler": "lsf"}})
    with tempfile.TemporaryDirectory() as folder:
        backend = LsfBackend.of(settings, LSF_ADVICE.at(Path(folder)))
        try:
            queues = backend.partitions()
            found = FoundLsf(
                environment_folder=envdir,
                name=backend.name(),
                queues=queues,
                has_priorities=backend.max_priority is not None,
            )
        finally:
            backend.close()
    return proposal_for_lsf(found)


def ask_slurm(slurm_bin: Path | None) -> FoundSite:
    """Ask Slurm what the site has.

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
