"""The line of ``sbatch`` about a promise: the job's price list.

A user may name a time by which a job is to be done (``by=`` in its comment). The price list says what an
earlier time would cost, and from which time on it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Final

from advisor.decide.explanation.display import clean, quantity
from advisor.decide.explanation.reply_texts import MESSAGE_LIMIT
from advisor.decide.explanation.wording import sentence
from advisor.model.advice import Advice, Quantity
from advisor.model.deadline import HOW_TO_WRITE, deadline_of
from advisor.model.job import Job
from advisor.model.settings import Settings

_PREFIX: Final = "Burst Advisor: "
_CLOCK_SECONDS: Final = 72_000.0
"""Times less than 20 hours ahead are written without their date."""


def price_list_words(values: Mapping[str, float], time: float, zone: tzinfo | None) -> str | None:
    """The price list of an advice; None where it has none.

    Args:
        values: The advice's numbers by name. ``deadline_in``, ``free_in`` and ``soonest_in`` are seconds
            after ``time``: the time that the user named, the time by which the job is done without cost, and
            the earliest time by which it can be done, at ``soonest_costs`` US dollars.
        time: When the advice was given, epoch seconds.
        zone: The users' time zone; None: that of the host.
    """
    left, free = values.get("deadline_in", math.nan), values.get("free_in", math.nan)
    if not math.isfinite(left) or not math.isfinite(free):
        return None

    def clock(seconds: float) -> str:
        there = datetime.fromtimestamp(time + seconds, zone)
        form = "%H:%M" if 0.0 <= seconds < _CLOCK_SECONDS else "%Y-%m-%d %H:%M"
        return there.strftime(form)

    def row(seconds: float) -> str:
        """Rounded up to a whole minute, so that a user who names a time of the list gets it promised."""
        moment = time + seconds
        return clock(seconds + math.ceil(moment / 60.0) * 60.0 - moment)

    rows = []
    soonest = values.get("soonest_in", math.inf)
    if math.isfinite(soonest):
        cost = quantity(Quantity(values.get("soonest_costs", math.nan), "USD"))
        may_not_start = soonest <= left < free and not values.get("is_promised")
        rows.append(f"by {row(soonest)} for about {cost}{', if it may start there' if may_not_start else ''}")
    rows.append(f"by {row(free)} free")
    cases = f"{100 * values.get('confidence', math.nan):g} of 100 cases"
    said = f"done {'; '.join(rows)}, in {cases}"
    if left >= free:
        return f"{said}; {clock(left)} costs nothing"
    if values.get("is_promised"):
        return f"{said}; {clock(left)} is promised"
    if left <= 0.0:
        return f"{said}; {clock(left)} has passed"
    why = ": for want of money or of nodes it may not start there" if left >= soonest else ""
    return f"{said}; {clock(left)} cannot be promised{why}"


def promise_message(
    job: Job, advice: Advice, values: Mapping[str, float], settings: Settings, moved: str | None
) -> str | None:
    """The line for a job that names a time; None for all others.

    Args:
        values: The advice's ``values()``.
        moved: The sentence that tells the user that the job was moved, which begins the line; None: the job
            was not moved.
    """
    zone = settings.cluster.zone
    deadline = deadline_of(job.comment, job.submit_time, zone)
    if deadline is None:
        return None
    if not settings.promise.enabled:
        return None if moved else f"{_PREFIX}by= is promised nothing: this site makes no promises"
    if math.isnan(deadline):
        said = f"the comment's by= is no time: write {HOW_TO_WRITE}"
    elif job.array_tasks > 1:
        said = "an array is promised no time; give each job its own by="
    elif (rows := price_list_words(values, advice.time, zone)) is not None:
        said = rows
    else:
        said = "" if moved else f"{_PREFIX}nothing is promised. {sentence(advice.decisive)}"
        return clean(said, MESSAGE_LIMIT) or None
    return clean(f"{moved}. {said[0].upper()}{said[1:]}" if moved else f"{_PREFIX}{said}", MESSAGE_LIMIT)
