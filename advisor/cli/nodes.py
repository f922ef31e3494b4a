"""``advisor nodes``: cloud nodes and their instances, as `advisor control` saw them last."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_table


def nodes(config: ConfigOption = None, output: FormatOption = Format.TEXT) -> None:
    """Show cloud nodes: power, instance, capacity, age, price, jobs, chance to survive, notices from EC2.

    Reads what `advisor control` wrote last, without asking Slurm or EC2.
    """
    from advisor.service.admin.cloud_written import known_so_far, nodes_written

    settings = settings_of(config)
    result = known_so_far(lambda: nodes_written(settings, time.time()), nodes=[])
    emit(result, output, lambda console: _draw(console, result))


def _draw(console: Console, result: dict[str, Any]) -> None:
    rows = result["nodes"]
    seen = result.get("note") or f"seen {result['age_seconds']:.0f} s ago"
    if horizon := next((row["survival_horizon_seconds"] for row in rows if row.get("tier")), None):
        seen += f"; survival: the chance to last another {horizon / 3600.0:g} h"
    headings = ("node", "power", "instance", "capacity", "zone", "age", "USD/h", "jobs", "survival")
    if rows:
        cells = [_cells(row) for row in rows]
        print_table(console, headings, cells, numbers=("age", "USD/h"), text="survival")
    else:
        console.print(
            "no cloud node is up" if result["age_seconds"] is not None else "no cloud node is known"
        )
    console.print(Text(seen, "dim"))


def _expected(row: dict[str, Any]) -> str:
    """Tier and probability of survival; a report of an older release has neither."""
    if row.get("retiring"):
        return "retired"
    if not row.get("tier"):
        return ""
    survives = row.get("survival_probability")
    if survives is None:
        return str(row["tier"])
    return f"{row['tier']} {survives:.0%}"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    age, price = row["age_seconds"], row["usd_per_hour"]
    jobs = ",".join(map(str, row["jobs"][:4])) + (" ..." if len(row["jobs"]) > 4 else "")
    return (
        row["node"] or "none",
        (row["power"] or "unknown").replace("_", " "),
        f"{row['instance_id']} {row['instance_state']}" if row["instance_id"] else "none",
        row["capacity"] or "-",
        row["zone"] or "-",
        "-" if age is None else f"{age / 60.0:.0f} min",
        "-" if price is None else f"{price:.3f}",
        jobs or "-",
        "; ".join(filter(None, (_expected(row), *row["notices"]))) or "-",
    )
