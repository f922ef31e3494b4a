"""A rehearsal in words: the command and its page show the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.decide.explanation.display import duration

_HOUR = 3600.0


def money_words(result: Mapping[str, Any]) -> str:
    """The jobs, the budget and the cloud, in a sentence."""
    boot = "paid" if result["bills_boot"] else "not paid"
    return (
        f"{result['jobs']:,} jobs of {result['days']:,.0f} days on {result['processors']:,} processors. "
        f"Budget {result['budget_usd']:,.0f} USD: {100 * result['budget_share']:.3g} % of "
        f"{result['core_hours']:,.0f} core-hours at {result['usd_per_core_hour']:.3g} USD. In the cloud a "
        f"job runs {result['slowdown']:g} times as long, after a boot of {result['boot_seconds']:g} s, "
        f"which is {boot}."
    )


def rehearsal_table(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings, and a line of cells for each policy."""
    columns = {
        "policy": [row["policy"] for row in rows],
        "mean wait h": [f"{row['mean_wait_seconds'] / _HOUR:,.2f}" for row in rows],
        "mean turnaround h": [f"{row['mean_turnaround_seconds'] / _HOUR:,.2f}" for row in rows],
        "mean bounded slowdown": [f"{row['mean_bounded_slowdown']:,.2f}" for row in rows],
        "95 % wait up to h": [f"{row['p95_wait_seconds'] / _HOUR:,.1f}" for row in rows],
        "saved hours": [f"{row['saved_hours']:,.0f}" for row in rows],
        "cost USD": [f"{row['cost_usd']:,.0f}" for row in rows],
        "of budget": [f"{100 * row['budget_share_spent']:.0f} %" for row in rows],
        "moved jobs": [f"{row['moved_jobs']:,}" for row in rows],
        "later jobs": [f"{100 * row['later_share']:.1f} %" for row in rows],
    }
    return tuple(columns), list(zip(*columns.values(), strict=True))


def shipped_words(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The outcome of the nodes, for rows of the shipped loops."""
    for row in rows:
        if "interruptions" not in row:
            continue
        refused = ", ".join(f"{code} {count:,} times" for code, count in row["refused_launches"].items())
        yield (
            f"{row['policy']}: instances cost {row['machine_usd']:,.2f} USD with boots and idle time, "
            f"{row['spot_share']:.0%} of their time on spot; {row['interruptions']:,} runs lost their node, "
            f"and with it {row['lost_hours']:,.1f} h"
            + (f"; EC2 refused launches with {refused}." if refused else ".")
        )


def _explained(share: float | None) -> str:
    if share is None:
        return ""
    if share <= 0.0:
        return "; the simulated waits explain nothing of the differences between the logged ones"
    return f"; the simulated waits explain {share:.0%} of the variance of the logged ones"


def fidelity_words(fidelity: Mapping[str, Any], *, most: int | None = None) -> Iterator[str]:
    """How near the simulation comes to what happened, and why not nearer, with so many reasons at most."""
    if fidelity["jobs"]:
        ratio = fidelity["mean_wait_ratio"]
        order, waits = fidelity["start_rank_correlation"], fidelity["wait_rank_correlation"]
        yield (
            f"All on-premise, the mean wait is {duration(fidelity['mean_wait_seconds'])} in the simulation "
            f"and was {duration(fidelity['logged_mean_wait_seconds'])}"
            + ("" if ratio is None else f" ({ratio:.2f} times)")
            + ("" if order is None else f"; rank correlation of the starts {order:.3f}")
            + ("" if waits is None else f", of the waits {waits:.2f}")
            + _explained(fidelity["explained_share"])
            + "; half of the waits differ by less than "
            f"{duration(fidelity['median_absolute_deviation_seconds'])}."
        )
    if fidelity["deviates"]:
        yield (
            "Warning: the simulation deviates from what happened: compare the rows with each other, and do "
            "not expect these hours and dollars. What may explain it:"
        )
        yield from (f"- {reason}" for reason in fidelity["reasons"][:most])
