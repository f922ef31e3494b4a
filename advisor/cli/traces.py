"""``advisor traces``: logs of the Parallel Workloads Archive by name."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.progress import ticking
from advisor.cli.tables import print_table
from advisor.replay.traces import ACKNOWLEDGEMENT, ARCHIVE_URL, CATALOGUE, FOLDER, get, is_good, named

group = typer.Typer(no_args_is_help=True, help="List and fetch public workload logs.")


TraceOption = Annotated[
    str,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Log (.swf, .swf.gz), a name of `advisor traces list`, or synthetic[:jobs[:seed]].",
    ),
]
FolderOption = Annotated[Path, typer.Option(help="Folder of the logs.", file_okay=False)]


@group.command("list")
def list_traces(folder: FolderOption = FOLDER, output: FormatOption = Format.TEXT) -> None:
    """List the logs that can be fetched, and which are here already."""
    rows = [
        {**asdict(trace), "is_here": is_good(folder / trace.file_name, trace)} for trace in CATALOGUE.values()
    ]

    def show(console: Console) -> None:
        headings = ("name", "jobs", "processors", "size", "here", "provided by")
        cells = [
            (
                row["name"],
                f"{row['jobs']:,}",
                f"{row['processors']:,}",
                f"{row['size_bytes'] / 1e6:.1f} MB",
                "yes" if row["is_here"] else "",
                row["contributors"],
            )
            for row in rows
        ]
        print_table(console, headings, cells, numbers=headings[1:4], text="provided by")
        console.print(ACKNOWLEDGEMENT)

    emit({"traces": rows, "acknowledgement": ACKNOWLEDGEMENT}, output, show)


@group.command("get")
def get_trace(
    name: Annotated[str, typer.Argument(help="Name of the log, as `advisor traces list` shows it.")],
    folder: FolderOption = FOLDER,
    archive_url: Annotated[
        str | None, typer.Option(help="URL of another copy of the archive.", envvar="ADVISOR_ARCHIVE_URL")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Fetch a log, check it, and print whom to acknowledge. An interrupted transfer is resumed."""
    trace = named(name)
    what = f"fetching {trace.name}, bytes"
    with ticking(what) as tick:
        path = get(
            trace,
            folder,
            archive_url=archive_url or ARCHIVE_URL,
            progress=lambda done, total: tick(what, done, total),
        )
    result: dict[str, Any] = {
        "name": trace.name,
        "path": str(path),
        "sha256": trace.sha256,
        "contributors": trace.contributors,
        "acknowledgement": ACKNOWLEDGEMENT,
    }

    def show(console: Console) -> None:
        console.print(str(path), markup=False)
        console.print(f"Provided by {trace.contributors}. {ACKNOWLEDGEMENT}", markup=False)

    emit(result, output, show)
