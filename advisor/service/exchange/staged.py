"""`prolog_slurmctld` tells `advisor control` how the stage-in of a job's data has ended."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec


class Staged(msgspec.Struct, frozen=True, tag_field="op", tag="staged", gc=False):
    """The message.

    Attributes:
        seconds: How long the command was at work.
        ok: Whether it has succeeded; if not, the job is about to be requeued.
    """

    v: int
    job: Annotated[int, msgspec.Meta(gt=0, lt=2**32)]
    seconds: Annotated[float, msgspec.Meta(ge=0.0, le=1e7)]
    ok: bool


_decoder: Final = msgspec.json.Decoder(Staged)


def decode(line: bytes) -> Staged | None:
    """Read a message; None for any other line."""
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.v == 1 else None
