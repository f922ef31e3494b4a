"""Options that are lists of known words."""

from __future__ import annotations

from advisor.model.errors import BadInput


def chosen(text: str | None, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Words of a comma-separated option, in the order given; all that are known by default."""
    if text is None:
        return known
    words = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        raise BadInput(
            f"unknown: {', '.join(unknown) or 'nothing given'}",
            where=option,
            mend=f"Choose among {', '.join(known)}",
            code="option.unknown",
        )
    return words
