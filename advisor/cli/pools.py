"""``advisor pools``: capacity pools, whether they are available, and how long boots take."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.text import Text

from advisor.cli.context import ConfigOption, settings_of
from advisor.cli.output import Format, FormatOption, emit
from advisor.cli.tables import print_table


def pools(config: ConfigOption = None, output: FormatOption = Format.TEXT) -> None:
    """Show capacity pools: availability, launches, boot times, price, what is paid for, quotas.

    Reads what `advisor control` wrote last, without asking EC2.
    """
    from advisor.service.admin.cloud_written import known_so_far, pools_written

    settings = settings_of(config)
    nothing = {"protected": "", "pools": [], "paid": [], "quotas": [], "counters": {}}
    result = known_so_far(lambda: pools_written(settings, time.time()), **nothing)
    emit(result, output, lambda console: _draw(console, result))


def _draw(console: Console, result: dict[str, Any]) -> None:
    from advisor.service.admin.money import paid_in_words

    headings = ("pool", "instances", "launches", "boot median / p90 (boots)", "USD/h", "state")
    rows = [_cells(row, result["time"]) for row in result["pools"]]
    if rows:
        print_table(console, headings, rows, numbers=("instances", "launches", "USD/h"), text="state")
    else:
        console.print("no pool has been used yet")
    console.print(Text(result.get("note") or f"seen {result['age_seconds']:.0f} s ago", "dim"))
    if result["protected"]:
        console.print(Text(f"! no job is sent to the cloud: {result['protected']}", "yellow"))
    for row in result["paid"]:
        console.print(Text(f"paid already: {paid_in_words(row)}"))
    for row in result["quotas"]:
        console.print(Text(f"quota {row['code']}: {row['used_vcpus']:,.0f} of {row['vcpus']:,.0f} vCPUs"))
    for code, number in result["counters"].get("refusals", {}).items():
        console.print(Text(f"{number:,} nodes got no instance: {code}"))


def _cells(row: dict[str, Any], now: float) -> tuple[str, ...]:
    until = row["closed_until"]
    left = "" if until is None else f"{max(0.0, until - now):.0f}"
    state = "available" if until is None else f"unavailable for {left} s: {row['closed_by']}"
    median, high = row["boot_median_seconds"], row["boot_p90_seconds"]
    return (
        row["pool"].replace("|", " "),
        f"{row['instances']:,}",
        f"{row['launches']:,}",
        "none yet" if median is None else f"{median:.0f} / {high:.0f} s ({row['boots']})",
        f"{row['usd_per_hour']:.3f}",
        state,
    )
