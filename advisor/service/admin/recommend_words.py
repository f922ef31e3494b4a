"""The budget of `advisor recommend` in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from advisor.decide.explanation.display import duration, significant
from advisor.service.admin.rehearsal_words import fidelity_words
from advisor.service.admin.since import moment_text

if TYPE_CHECKING:
    from advisor.replay.closed_loop.recommendation import Pick

_HOUR = 3600.0
_MAX_REASONS = 2


def recommend_table(result: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings, and a line of cells for each budget."""
    points = result["points"]
    columns = {
        "USD a month": [significant(one["usd"], 6) for one in points],
        "of core-hours": [f"{100 * one['budget_share']:.2g} %" for one in points],
        "spent": [f"{one['cost_usd']:,.0f}" for one in points],
        "hours saved": [f"{one['saved_hours']:,.0f}" for one in points],
        "90 % interval": [
            f"{one['saved_hours_low']:,.0f} to {one['saved_hours_high']:,.0f}" for one in points
        ],
        "USD an hour": [
            f"{one['cost_usd'] / one['saved_hours']:,.2f}" if one["saved_hours"] > 0.0 else "-"
            for one in points
        ],
        "mean wait h": [f"{one['mean_wait_seconds'] / _HOUR:,.2f}" for one in points],
        "later jobs": [f"{100 * one['later_share']:.1f} %" for one in points],
    }
    return tuple(columns), list(zip(*columns.values(), strict=True))


def reason_words(pick: Pick, *, is_asked: bool, is_set: bool) -> str:
    """Why this budget, in a sentence or two.

    Args:
        is_set: Whether the worth of an hour was said; else it is the mean job's cost in the cloud.
    """
    if is_asked:
        return "It is the budget that was asked for."
    origin = "as was said" if is_set else "what an hour of the mean job costs in the cloud (--usd-per-hour)"
    worth = f"An hour saved counts as worth {_usd(pick.worth_usd)} USD, {origin}."
    if pick.next_usd is None:
        return (
            f"{worth} It is the largest budget shown: every step up to it costs less for an hour, so a "
            "larger one may pay, too (--usd shows it)."
        )
    more = (
        f"to {significant(pick.next_usd, 6)} USD costs {_usd(pick.next_step_usd)} USD for an hour, "
        f"{_usd(pick.next_step_usd_high)} in the worse weeks"
    )
    if not pick.usd:
        return f"No budget is recommended. {worth} Already the step {more}."
    return (
        f"{worth} Every step up to this budget surely costs less: the last one {_usd(pick.step_usd)} USD "
        f"for an hour, {_usd(pick.step_usd_high)} in the worse weeks. The next step, {more}."
    )


def _usd(usd: float | None) -> str:
    return "no bounded number of" if usd is None else significant(usd, 2)


def _requeue_words(requeueable_share: float, *, keeps_places: bool) -> str:
    """Which jobs are bought in slices, in a sentence or two."""
    if not keeps_places:
        return (
            "Every start is bought whole, because `hedge.enabled` is off. Where jobs keep their places in "
            "the queue, they are bought in slices, which saves more."
        )
    return (
        f"{requeueable_share:.0%} of the jobs may be stopped and started again: they are bought in slices "
        "and keep their places in the queue, the others are bought whole."
    )


def recommend_words(result: Mapping[str, Any]) -> Iterator[str]:
    """The text above the table; then that below it: the pick, its reason, and how far to trust it."""
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
            f"{significant(usd, 6)} USD a month: {one['saved_hours']:,.0f} hours saved, the mean wait falls "
            f"from {duration(result['mean_wait_seconds'])} to {duration(one['mean_wait_seconds'])}. "
            f"{one['moved_jobs']:,.0f} jobs a month move."
        )
    yield result["reason"]
    yield _requeue_words(result["requeueable_share"], keeps_places=result["keeps_places"])
    yield from fidelity_words(result["fidelity"], most=_MAX_REASONS)
