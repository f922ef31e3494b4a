"""The outcome of the last weekly training: the timer's process writes it, `advisor notify` reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from advisor.service.state.records import Training
from advisor.service.state.state_files import TRAININGS

_MAX_WORDS: Final = 300


@contextmanager
def noting(state: Path, command: str) -> Iterator[Training]:
    """Note that a training begins, and how it ends; the caller says where its result is refused.

    Args:
        state: ``paths.state``; a folder that is missing, or cannot be written, costs the note only.
        command: Such as ``retrain``.
    """
    training = Training(began=time.time())
    _note(state, command, training)
    try:
        yield training
    except BaseException as error:
        training.failed = f"{type(error).__name__}: {error}"[:_MAX_WORDS]
        raise
    finally:
        training.ended = time.time()
        _note(state, command, training)


def _note(state: Path, command: str, training: Training) -> None:
    file = TRAININGS.at(state)
    try:
        known = file.read()
        known.last[command] = training
        file.write(known)
    except OSError:
        return
