"""The two texts of a reply: the line that ``sbatch`` prints for a moved job, and every job's AdminComment.

They are made inside ``sbatch``. The longer sentences, of pages and of ``advisor why``, are those of
`advisor.decide.explanation.wording`; an AdminComment is read back by
`advisor.decide.explanation.admin_comment`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from math import isfinite
from typing import Final

import msgspec

from advisor.decide.explanation.display import DETAIL_LIMIT, clean, duration, quantity
from advisor.decide.explanation.phrases import NAMES
from advisor.model.advice import Advice, Hedge, HedgeKind, Quantity
from advisor.model.estimate import NO_ESTIMATE, Estimate

MESSAGE_LIMIT: Final = 400
"""Longest line that ``sbatch`` prints, characters."""
ADMIN_COMMENT_LIMIT: Final = 1000
"""Longest AdminComment in bytes: it is stored with every job."""
COMMENT_VERSION: Final = 1
_encoder: Final = msgspec.json.Encoder()


def message(
    advice: Advice, *, opt_out_comment: str = "", values: Mapping[str, float] | None = None, tasks: int = 1
) -> str | None:
    """The one line that ``sbatch`` prints; None unless the advice has moved the job.

    Args:
        opt_out_comment: The site's opt-out word, to tell the user how to stay; empty: not told.
        values: The advice's ``values()``, where the caller has them.
        tasks: Of a job array: its cost is that of all of them.
    """
    if advice.partition is None:
        return None
    values = advice.values() if values is None else values
    node = f" ({advice.capacity} node)" if advice.capacity else ""
    line = f"Burst Advisor: starts in the cloud, partition {clean(advice.partition)}{node}"
    wait, saving = values.get("predicted_wait"), values.get("predicted_saving")
    is_priced = "start_there" in values
    if is_priced:
        line += f". {price_sentence(values, tasks).removesuffix('.')}"
    elif wait is not None:
        line += f": expected wait here {duration(wait)}"
    if there := values.get("cloud_wait"):
        line += f", for a cloud node {duration(there)}"
    if saving is not None and isfinite(saving) and not is_priced:
        line += f", done about {duration(saving)} sooner"
    if advice.hedge:
        line += f". {hedge_sentence(advice.hedge)}"
    if opt_out_comment:
        line += f". To stay: --comment={clean(opt_out_comment)}"
    # of parts that are clean it only has to be short enough
    return line if len(line) <= MESSAGE_LIMIT else clean(line, MESSAGE_LIMIT)


def price_sentence(values: Mapping[str, float], tasks: int = 1) -> str:
    """The time that a job moved by the price saves, and the money that it costs: all tasks of an array."""
    wait, saving = values.get("predicted_wait", math.nan), values.get("predicted_saving", math.nan)
    said = f"It would wait about {duration(wait)} here; in the cloud it saves about {duration(saving)}"
    cost, may_cost = values.get("predicted_cost", math.nan), values.get("hour_may_cost", math.inf)
    if tasks > 1:
        said += f" for each of its {tasks:,} tasks"
    if cost == 0.0:
        return f"{said} on nodes that are paid for already."
    usd = quantity(Quantity(cost, "USD"))
    said += f", for {usd} in all" if tasks > 1 else f" for {usd}"
    if math.isinf(may_cost):
        return f"{said}."
    return f"{said}, and an hour may cost {quantity(Quantity(may_cost, 'USD'))} now."


def hedge_sentence(hedge: Hedge) -> str:
    """The sentence about what may happen to a job with a hedged start."""
    is_bounded = isfinite(hedge.stop_seconds)
    if hedge.kind is HedgeKind.SLICE:
        first = f"after {duration(hedge.stop_seconds)}, and " if is_bounded else ""
        return (
            f"It keeps its place in the queue here: {first}when its slot is free, it is decided whether it "
            "goes on in the cloud or restarts here"
        )
    if hedge.kind is HedgeKind.PROMISE:
        return (
            "It keeps its place in the queue here: when its slot is free, and the time is kept here as well, "
            "it is stopped and restarted here, once"
        )
    stop = f" or after {duration(hedge.stop_seconds)}" if is_bounded else ""
    return (
        f"It keeps its place in the queue here: when its slot is free{stop} it may be stopped and restarted "
        "here, once"
    )


def admin_comment(
    advice: Advice, *, values: Mapping[str, float] | None = None, wait: Estimate = NO_ESTIMATE
) -> str:
    """The advice as compact ASCII JSON of less than ``ADMIN_COMMENT_LIMIT`` bytes.

    An ``advice_id`` is never cut: it is how an outcome finds its advice. Numbers, from the last one, and then
    the detail are dropped should they not fit; unknown and infinite numbers are left out. `values` are the
    advice's ``values()``, where the caller has them. `wait` is the forecast wait here: ``burst-when`` shows
    it with its interval, also of a job with a promise, whose answers do not have it.
    """
    decisive = advice.decisive
    words = {
        "burst_advisor": COMMENT_VERSION,
        "id": advice.advice_id,
        "to": advice.placement,
        "mode": advice.mode,
        "why": clean(decisive.reason),
        "size": clean(advice.size),
    }
    if advice.capacity:
        words["on"] = advice.capacity
    # its times count from then: a job may be advised long after its submission, and a requeue sets that anew
    text = f'{_ascii_json(words)[:-1]},"t":{advice.time:.0f}'
    if limit := advice.time_limit:
        # never cut either: without it a wrong user's limit would be learned from the accounting
        text += f',"limit":[{round(limit.asked_seconds)},{round(limit.given_seconds)}]'
    if advice.hedge:
        stop = advice.hedge.stop_seconds
        kept = [advice.hedge.kind, round(stop, 1) if isfinite(stop) else None]
        text += f',"hedge":{_ascii_json(kept)}'
    if advice.origin:
        text += f',"from":{_ascii_json(advice.origin)}'
    if isfinite(wait.seconds) and len(advice.answers) > 1:  # else it may wait for something else
        bounds = (wait.seconds, wait.lower, wait.upper)
        text += f',"wait":[{",".join(_number(one) for one in bounds if isfinite(one))}]'
    detail = ""
    if decisive.detail and (cleaned := clean(decisive.detail)):
        detail = f',"d":{_ascii_json(cleaned)}'
    numbers = _written(advice.values() if values is None else values)
    while len(whole := f'{text}{detail},"n":{{{numbers}}}}}') >= ADMIN_COMMENT_LIMIT:
        if numbers:
            numbers = numbers.rpartition(",")[0]
        elif detail:
            detail = ""
        else:
            break
    return whole


def _written(values: Mapping[str, float]) -> str:
    """Names and numbers, without infinite numbers and NaN, which JSON cannot express."""
    return ",".join(
        [
            f'"{name}":{_number(value)}'
            for name, value in values.items()
            if isfinite(value) and _is_plain(name)
        ]
    )


def _number(value: float) -> str:
    """Four digits, and whole seconds of a time that is further off, which is shown to the minute."""
    return f"{value:.4g}" if abs(value) < 10_000.0 else f"{value:.0f}"


def _is_plain(name: str) -> bool:
    """Whether a name needs no escaping: those of a newer release's answers are not known here."""
    return name in NAMES or (name.isidentifier() and name.isascii() and len(name) <= DETAIL_LIMIT)


def _ascii_json(value: object) -> str:
    text = _encoder.encode(value).decode()
    return text if text.isascii() else json.dumps(value, separators=(",", ":"))
