"""A recommended budget in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from advisor.service.admin.rehearsal_words import fidelity_words
from advisor.service.admin.since import moment_text

if TYPE_CHECKING:
    from advisor.replay.closed_loop.recommendation import Curve, Pick

_HOUR = 3600.0
_MAX_REASONS = 2


def recommend_table(result: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Headings, and a line of cells for each budget."""
    headings = [
        "USD a month",
        "of core-hours",
        "spent",
        "hours saved",
        "90 % interval",
        "USD an hour",
        "mean wait h",
        "later jobs",
    ]
    cells = [
        [
            f"{one['usd']:,.6g}",
            f"{100 * one['budget_share']:.2g} %",
            f"{one['cost_usd']:,.0f}",
            f"{one['saved_hours']:,.0f}",
            f"{one['saved_hours_low']:,.0f} to {one['saved_hours_high']:,.0f}",
            f"{one['cost_usd'] / one['saved_hours']:,.2f}" if one["saved_hours"] > 0.0 else "-",
            f"{one['mean_wait_seconds'] / _HOUR:,.2f}",
            f"{100 * one['later_share']:.1f} %",
        ]
        for one in result["points"]
    ]
    return headings, cells


def reason_words(curve: Curve, pick: Pick, *, is_asked: bool) -> str:
    """Why this budget, in a sentence."""
    if is_asked:
        return "It is the budget that was asked for."
    if not pick.usd:
        return (
            "No budget is recommended: the smallest one saves no time that stands out from the difference "
            "between the weeks."
        )
    largest = f"{curve.points[-1].usd:,.6g} USD"
    mean = f"the mean dollar of {largest} saves {pick.mean_saves:,.2g} h"
    if pick.next_saves is None:
        return f"Up to the largest budget shown no dollar saves less than the mean one: {mean}."
    more = next(one.usd for one in curve.points if one.usd > pick.usd)
    return f"Beyond it, up to {more:,.6g} USD, a dollar saves {pick.next_saves:,.2g} h, while {mean}."


def recommend_words(result: Mapping[str, Any]) -> Iterator[str]:
    """What was rehearsed; then, below the table, the pick, its reason, and how far to trust it."""
    begin, end = (moment_text(result[name])[:10] for name in ("begin", "end"))
    boot = f"after a boot of {result['boot_seconds']:.0f} s, which is paid"
    yield (
        f"{result['jobs']:,} jobs from {begin} to {end}, rehearsed on {result['processors']:,} processors. "
        f"A core-hour in the cloud costs {result['usd_per_core_hour']:.3g} USD; a job runs "
        f"{result['slowdown']:.3g} times as long there, {boot}."
    )
    usd = result["pick"]["usd"]
    if usd:
        one = next(point for point in result["points"] if point["usd"] == usd)
        yield (
            f"{usd:,.6g} USD a month: {one['saved_hours']:,.0f} hours saved, the mean wait falls from "
            f"{result['mean_wait_seconds'] / _HOUR:,.2f} h to {one['mean_wait_seconds'] / _HOUR:,.2f} h. "
            f"{one['moved_jobs']:,.0f} jobs a month move."
        )
    yield result["reason"]
    first, *reasons = fidelity_words(result["fidelity"])
    yield first
    if reasons:
        why = " ".join(reason.removeprefix("- ") for reason in reasons[1 : 1 + _MAX_REASONS])
        yield (
            "Warning: the simulation deviates from what happened, and so will these hours and dollars. Trust "
            f"the order of the budgets more. {why}"
        )
    yield (
        'The hours hold with `cluster.policy = "price"` and `hedge.enabled = true`, by which a job keeps its '
        "place in the queue while it runs in the cloud."
    )
