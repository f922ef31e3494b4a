"""Conversion of text from outside, and of numbers, to text for people."""

from __future__ import annotations

import math
import unicodedata
from typing import Final

from advisor.model.advice import Quantity

DETAIL_LIMIT: Final = 80
"""Longest text from outside in a sentence, characters."""
_NO_SUM: Final = ("an unknown sum", "any sum")
_UNPRINTABLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, limit: int = DETAIL_LIMIT) -> str:
    """Text from outside, made safe to print on one line.

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


def duration(seconds: float) -> str:
    """A time for people: ``45 s``, ``12 min``, ``2 h 05 min``, ``3 d 04 h``; NaN is ``unknown``."""
    if not math.isfinite(seconds):
        if math.isnan(seconds):
            return "unknown"
        return "unlimited" if seconds > 0 else "-unlimited"
    sign, whole = ("-" if seconds <= -0.5 else ""), abs(seconds)
    if whole < 99.5:
        return f"{sign}{whole:.0f} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{sign}{minutes} min"
    if minutes < 48 * 60:
        return f"{sign}{minutes // 60} h {minutes % 60:02d} min"
    hours = round(whole / 3600)
    return f"{sign}{hours // 24} d {hours % 24:02d} h"


def short_duration(seconds: float) -> str:
    """A time for the cell of a table: ``45s``, ``12min``, ``2h05min``, ``3d04h``."""
    return duration(seconds).replace(" ", "")


def usd(amount: float | None, digits: int = 2) -> str:
    """Money for people: ``1,234.50 USD``; ``-`` where there is no figure."""
    figure = money(amount, digits)
    return figure if figure == "-" else f"{figure} USD"


def money(amount: float | None, digits: int = 2) -> str:
    """The same for a cell of a table whose heading has the unit."""
    return "-" if amount is None or math.isnan(amount) else f"{amount:,.{digits}f}"


def significant(number: float, digits: int) -> str:
    """A number for people with so many significant digits; a larger one is whole, not a power of ten."""
    return f"{number:,.{digits}g}" if abs(number) < 10.0**digits - 0.5 else f"{number:,.0f}"


def _digits(amount: float) -> int:
    """Cents, and two figures of amounts below ten cents, such as the price of a short run."""
    return 2 if amount == 0.0 or abs(amount) >= 0.0995 else min(6, 1 - math.floor(math.log10(abs(amount))))


def quantity(value: Quantity) -> str:
    """A number with its unit, for people."""
    number = value.value
    if value.unit == "s":
        return duration(number)
    if value.unit == "s^2":  # of earlier releases: its root is a time, which people understand
        return duration(math.sqrt(number)) if number >= 0.0 else "unknown"
    if not math.isfinite(number):
        unknown, any_number = _NO_SUM if value.unit == "USD" else ("unknown", "unlimited")
        return unknown if math.isnan(number) else any_number
    if value.unit == "USD":
        return usd(number, _digits(number))
    if value.unit == "chance":
        return f"{100.0 * number:.3g} %"
    if value.unit == "USD/core-h":
        return f"{number:.4f} USD per core hour"
    if value.unit in {"cores", "nodes", "jobs", "MiB"}:
        return f"{number:.0f} {value.unit if round(number) != 1 else value.unit.removesuffix('s')}"
    return f"{significant(number, 4)} {value.unit}".rstrip()
