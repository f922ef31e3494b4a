"""Sentences for people, made from an advice: ``sbatch``'s line, ``advisor why``, the AdminComment.

Everything a user typed is stripped of control characters and cut before it is shown; every number has its
unit.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

from advisor.decide.phrases import HEADINGS, NAMES, PHRASES, UNITS, UNKNOWN_PHRASE
from advisor.decide.placement import PUBLISHED_INSTEAD
from advisor.decide.reasons import Reason
from advisor.model.advice import Advice, Answer, Hedge, HedgeKind, Mode, Placement, Quantity, TimeLimit

ADMIN_COMMENT_LIMIT: Final = 1000
"""Longest AdminComment in bytes: it is stored with every job."""
MESSAGE_LIMIT: Final = 400
_DETAIL_LIMIT: Final = 80
_COMMENT_VERSION: Final = 1
_encoder: Final = msgspec.json.Encoder()
_LEFT_IN_BURST: Final = "Left in the burst partition, as the user asked."
_LONGEST_LIMIT: Final = 60 * 2**32
_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, limit: int = _DETAIL_LIMIT) -> str:
    """Text from outside made fit to print on one line.

    Control characters, line breaks, invisible and direction-changing characters become spaces; runs of
    blanks become one; what is longer than `limit` characters is cut and ends in an ellipsis.
    """
    if len(text) <= limit and text.isascii() and text.isprintable() and " " not in text:
        return text  # codes and numbers' names: this runs inside sbatch, six times an advice
    window = shown = text[: 4 * limit]
    if not (window.isascii() and window.isprintable()):
        shown = "".join(" " if unicodedata.category(c) in _UNPRINTABLE else c for c in window)
    shown = " ".join(shown.split())
    return shown if len(shown) <= limit and len(window) == len(text) else shown[: limit - 1].rstrip() + "…"


@lru_cache(maxsize=256)
def duration(seconds: float) -> str:
    """A time for people: ``45 s``, ``12 min``, ``2 h 05 min``, ``3 d 04 h``; NaN is ``unknown``."""
    if not math.isfinite(seconds):
        if math.isnan(seconds):
            return "unknown"
        return "unlimited" if seconds > 0 else "-unlimited"
    sign, whole = ("-" if seconds < 0 else ""), abs(seconds)
    if whole < 99.5:
        return f"{sign}{whole:.0f} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{sign}{minutes} min"
    if minutes < 48 * 60:
        return f"{sign}{minutes // 60} h {minutes % 60:02d} min"
    hours = round(whole / 3600)
    return f"{sign}{hours // 24} d {hours % 24:02d} h"


def quantity(value: Quantity) -> str:
    """A number with its unit, for people."""
    number = value.value
    if value.unit == "s":
        return duration(number)
    if math.isnan(number):
        return "unknown"
    if math.isinf(number):
        return "unlimited"
    if value.unit == "USD":
        return f"{number:.2f} USD"
    if value.unit == "USD/core-h":
        return f"{number:.4f} USD per core hour"
    if value.unit in {"cores", "nodes", "jobs", "MiB"}:
        return f"{number:.0f} {value.unit}"
    return f"{number:.4g} {value.unit}".rstrip()


_PUBLISHED_INSTEAD: Final = (
    "(By the published rule: the advisor's own has too short a history, or nothing fresh, to go by.)"
)


def sentence(answer: Answer) -> str:
    """One answer as one sentence; a reason of a newer release is shown as its code."""
    numbers = {name: quantity(value) for name, value in answer.numbers}
    return _in_words(answer.reason, numbers, answer.detail)


def _in_words(reason: str, numbers: Mapping[str, str], detail: str) -> str:
    phrase = PHRASES.get(reason, UNKNOWN_PHRASE)
    said = phrase.format_map(_Words(numbers, reason=clean(reason), detail=clean(detail) or "not named"))
    return f"{said} {_PUBLISHED_INSTEAD}" if detail == PUBLISHED_INSTEAD else said


class _Words(dict[str, str]):
    """Words for a phrase; a number the answer does not carry is ``unknown``."""

    def __init__(self, numbers: Mapping[str, str], **words: str) -> None:
        super().__init__(numbers, **words)

    def __missing__(self, key: str) -> str:
        return "unknown"


def message(
    advice: Advice, *, opt_out_comment: str = "", values: Mapping[str, float] | None = None
) -> str | None:
    """The one line ``sbatch`` prints; None unless the advice moved the job.

    Parameters
    ----------
    advice : Advice
        What was decided.
    opt_out_comment : str
        The site's opt-out word, to tell the user how to stay; empty: not told.
    values : mapping, optional
        The advice's ``values()``, where the caller has them.
    """
    if advice.partition is None:
        return None
    values = advice.values() if values is None else values
    line = _start_of_message(advice.partition, advice.capacity)
    wait, saving = values.get("predicted_wait"), values.get("predicted_saving")
    if wait is not None:
        line += f": expected wait here {duration(wait)}"
    if saving is not None and math.isfinite(saving):
        line += f", done about {duration(saving)} sooner"
    if advice.hedge:
        line += f". {hedge_sentence(advice.hedge)}"
    if opt_out_comment:
        line += _end_of_message(opt_out_comment)
    # of parts that are clean it only has to be short enough
    return line if len(line) <= MESSAGE_LIMIT else clean(line, MESSAGE_LIMIT)


@lru_cache(maxsize=64)
def _start_of_message(partition: str, capacity: str | None) -> str:
    node = f" ({capacity} node)" if capacity else ""
    return f"Burst Advisor: starts in the cloud, partition {clean(partition)}{node}"


@lru_cache(maxsize=64)
def _end_of_message(opt_out_comment: str) -> str:
    return f". To stay: --comment={clean(opt_out_comment)}"


def explanation(advice: Advice) -> str:
    """Everything about an advice, one line an answer and one a number: what ``advisor why`` prints."""
    lines = [headline(advice)]
    for answer in advice.answers:
        verdict = answer.verdict.value.upper()
        lines += [
            "",
            f"{HEADINGS[answer.question]} {verdict}",
            f"  {sentence(answer)} [{clean(answer.reason)}]",
        ]
        width = max((len(NAMES.get(name, name)) for name, _ in answer.numbers), default=0)
        for name, value in answer.numbers:
            lines.append(f"    {clean(NAMES.get(name, name)):<{width}}  {quantity(value)}")
    if limit := advice.time_limit:
        lines += ["", time_limit_sentence(limit)]
    if advice.hedge:
        lines += ["", f"{hedge_sentence(advice.hedge)}."]
    lines += ["", f"Size class: {clean(advice.size)}. Advice {clean(advice.advice_id)}."]
    return "\n".join(lines)


def time_limit_sentence(limit: TimeLimit) -> str:
    """Say what a moved job's time limit became."""
    return (
        f"Time limit raised from {duration(limit.asked_seconds)} to {duration(limit.given_seconds)} (at most "
        "the partition's MaxTime): the cloud is slower."
    )


def hedge_sentence(hedge: Hedge) -> str:
    """Say what may happen to a job that keeps its place."""
    stop = f" or after {duration(hedge.stop_seconds)}" if math.isfinite(hedge.stop_seconds) else ""
    return f"It keeps its place here: when its turn comes{stop} it may be stopped and started anew here, once"


def headline(advice: Advice) -> str:
    """What was decided, in one sentence."""
    if any(answer.reason == Reason.EXPLICIT_BURST for answer in advice.answers):
        return _LEFT_IN_BURST
    return _headline(advice.placement, advice.capacity, advice.mode)


def _headline(placement: str, capacity: str | None, mode: str) -> str:
    where = "the cloud" if placement == Placement.BURST else "the on-premise cluster"
    on = f" on {capacity} capacity" if capacity else ""
    if mode == Mode.SHADOW:
        return f"Would start in {where}{on} (shadow mode: nothing was changed)."
    return f"Starts in {where}{on}."


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAdvice:
    """What an AdminComment says about a job's advice.

    Attributes
    ----------
    advice_id : str
        Finds the whole advice in the ledger.
    placement, mode, reason, size : str
        As in :class:`~advisor.model.advice.Advice`; the reason is that of the decisive answer.
    capacity : str or None
        What was to be paid for.
    detail : str
        Of the decisive answer.
    time_limit : TimeLimit or None
        What the user's limit was, and what it was raised to.
    hedge : Hedge or None
        Its hedged start, if it has one.
    origin : str or None
        The partition it was moved from, unless it was the first on-premise one.
    numbers : dict of str to float
        In the units of the advice (``advisor.decide.phrases.UNITS``, else seconds), four digits.
    """

    advice_id: str
    placement: str
    mode: str
    reason: str
    size: str
    capacity: str | None = None
    detail: str = ""
    time_limit: TimeLimit | None = None
    hedge: Hedge | None = None
    origin: str | None = None
    numbers: dict[str, float] = field(default_factory=dict)

    def users_limit(self, limit_seconds: float | None) -> float | None:
        """What the user asked for, given what Slurm has now; a limit somebody changed since is his."""
        raised = self.time_limit
        if raised is None or limit_seconds is None:
            return limit_seconds
        is_ours = raised.asked_seconds < limit_seconds <= raised.given_seconds
        return raised.asked_seconds if is_ours else limit_seconds


def admin_comment(advice: Advice, *, values: Mapping[str, float] | None = None) -> str:
    """The advice as compact ASCII JSON of less than ``ADMIN_COMMENT_LIMIT`` bytes.

    An ``advice_id`` is never cut: it is how an outcome finds its advice. Numbers, from the last one, and then
    the detail are dropped should they not fit; unknown and infinite numbers are left out. `values` are the
    advice's ``values()``, where the caller has them.
    """
    decisive = advice.decisive
    words = _decided(advice.placement, advice.mode, decisive.reason, advice.size, advice.capacity)
    text = f'{{"burst_advisor":{_COMMENT_VERSION},"id":{_ascii_json(advice.advice_id)},{words}'
    if limit := advice.time_limit:
        # never cut either: without it a user's limit would be learned wrong from the accounting
        text += f',"limit":[{round(limit.asked_seconds)},{round(limit.given_seconds)}]'
    if advice.hedge:
        stop = advice.hedge.stop_seconds
        kept = [advice.hedge.kind, round(stop, 1) if math.isfinite(stop) else None]
        text += f',"hedge":{_ascii_json(kept)}'
    if advice.origin:
        text += f',"from":{_ascii_json(advice.origin)}'
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


@lru_cache(maxsize=256)
def _decided(placement: str, mode: str, reason: str, size: str, capacity: str | None) -> str:
    """The words of an AdminComment of which there are few: kept, and not put together inside sbatch."""
    words = {"to": placement, "mode": mode, "why": clean(reason), "size": clean(size)}
    return _ascii_json(words | {"on": capacity} if capacity else words)[1:-1]


def _written(values: Mapping[str, float]) -> str:
    """Names and numbers, to four digits, without those that JSON has no words for."""
    numbers = tuple(values.values())
    # one unknown or infinite number makes the sum so: all are looked at, and written, in one step
    text = _written_plainly(tuple(values), numbers) if math.isfinite(sum(numbers)) else None
    if text is not None:
        return text
    return ",".join(
        f'"{name}":{value:.4g}' for name, value in values.items() if math.isfinite(value) and _is_plain(name)
    )


def _is_plain(name: str) -> bool:
    """Whether a name needs no escaping: those of a newer release's answers are not known here."""
    return name in NAMES or (name.isidentifier() and name.isascii() and len(name) <= _DETAIL_LIMIT)


@lru_cache(maxsize=256)
def _written_plainly(names: tuple[str, ...], numbers: tuple[float, ...]) -> str | None:
    """Finite numbers; None where not all names are plain. Kept: who submits in a loop is told the same."""
    layout = _layout(names)
    return None if layout is None else layout % numbers


@lru_cache(maxsize=256)
def _layout(names: tuple[str, ...]) -> str | None:
    """How numbers of those names are written; None where not all are plain."""
    return ",".join(f'"{name}":%.4g' for name in names) if all(map(_is_plain, names)) else None


def _ascii_json(value: object) -> str:
    text = _encoder.encode(value).decode()
    return text if text.isascii() else json.dumps(value, separators=(",", ":"))


def parse_admin_comment(text: str | None) -> RecordedAdvice | None:
    """Read an AdminComment back; None for anything that is not one of ours (data from outside)."""
    if not text or len(text) > 4 * ADMIN_COMMENT_LIMIT:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("burst_advisor") != _COMMENT_VERSION:
        return None
    if not isinstance(found.get("id"), str) or not found["id"]:
        return None
    words = {key: found[name] for key, name in _KEYS.items() if isinstance(found.get(name), str)}
    capacity, origin = found.get("on"), found.get("from")
    return RecordedAdvice(
        advice_id=found["id"],
        placement=words.get("placement", ""),
        mode=words.get("mode", ""),
        reason=words.get("reason", ""),
        size=words.get("size", "unknown"),
        capacity=capacity if isinstance(capacity, str) else None,
        detail=words.get("detail", ""),
        time_limit=_parsed_limit(found.get("limit")),
        hedge=_parsed_hedge(found.get("hedge")),
        origin=origin if isinstance(origin, str) else None,
        numbers=_parsed_numbers(found.get("n")),
    )


_KEYS: Final = {"placement": "to", "mode": "mode", "reason": "why", "size": "size", "detail": "d"}


def _parsed_limit(found: object) -> TimeLimit | None:
    match found:
        case [int() as asked, int() as given] if 0 < asked < given < _LONGEST_LIMIT:
            return TimeLimit(asked_seconds=float(asked), given_seconds=float(given))
    return None


def _parsed_hedge(found: object) -> Hedge | None:
    match found:
        case [str() as kind, float() | int() | None as stop] if kind in set(HedgeKind):
            seconds = math.inf if stop is None else float(stop)
            return Hedge(kind=HedgeKind(kind), stop_seconds=seconds) if seconds > 0.0 else None
    return None


def _parsed_numbers(found: object) -> dict[str, float]:
    if not isinstance(found, dict):
        return {}
    return {
        str(name): float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    }


def recorded_sentence(recorded: RecordedAdvice) -> str:
    """The decisive reason of an AdminComment as one sentence, for people."""
    numbers = {
        name: quantity(Quantity(value, UNITS.get(name, "s"))) for name, value in recorded.numbers.items()
    }
    return _in_words(recorded.reason, numbers, recorded.detail)


def recorded_headline(recorded: RecordedAdvice) -> str:
    """What an AdminComment says was decided, in one sentence."""
    if recorded.reason == Reason.EXPLICIT_BURST:
        return _LEFT_IN_BURST
    capacity = clean(recorded.capacity) if recorded.capacity else None
    return _headline(recorded.placement, capacity, recorded.mode)


def recorded_explanation(recorded: RecordedAdvice) -> str:
    """Everything an AdminComment says: what ``advisor why`` prints where the ledger has nothing."""
    lines = [recorded_headline(recorded), "", f"  {recorded_sentence(recorded)} [{clean(recorded.reason)}]"]
    shown = [
        (clean(NAMES.get(name, name)), quantity(Quantity(value, UNITS.get(name, "s"))))
        for name, value in recorded.numbers.items()
    ]
    width = max((len(name) for name, _ in shown), default=0)
    lines += [f"    {name:<{width}}  {value}" for name, value in shown]
    if recorded.time_limit:
        lines += ["", time_limit_sentence(recorded.time_limit)]
    if recorded.hedge:
        lines += ["", f"{hedge_sentence(recorded.hedge)}."]
    lines += ["", f"Size class: {clean(recorded.size)}. Advice {clean(recorded.advice_id)}."]
    return "\n".join(lines)
