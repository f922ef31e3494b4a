"""Progress of a command on standard error: bars on a terminal, else a line every few seconds."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from advisor.cli.output import stderr
from advisor.decide.explanation.display import duration

Tick = Callable[[str, int, int], None]
"""``tick(what, done, total)``; a total of 0 is unknown."""

SILENCE_SECONDS: Final = 5.0
"""Time between two lines, or a tenth of the time that the command has taken where that is more."""


def tells_steps() -> bool:
    """Whether the program that started this one reads progress and errors as JSON."""
    return os.environ.get("ADVISOR_PROGRESS") == "json"


def say_too_large(jobs: int, machine: int) -> None:
    """Say on standard error how many jobs of a log are left out, if any are."""
    if jobs and not tells_steps():
        stderr.print(
            f"Jobs left out because they ask for more than the machine's {machine:,} processors: {jobs:,}. "
            "Say the machine's size with --nodes if that is wrong."
        )


@contextmanager
def ticking(beginning: str = "starting") -> Iterator[Tick]:
    """Yield ``tick(what, done, total)``: on a terminal a bar for each step, else a line now and then.

    A thread writes the lines, so that they also appear during a long step without ticks. With
    ``ADVISOR_PROGRESS=json`` in the environment each percent is a line of JSON instead, for the program that
    started this one. `beginning` is the name of the step before the first tick.
    """
    if tells_steps():
        yield _tell_steps()
    elif stderr.is_terminal:
        with _bars(beginning) as tick:
            yield tick
    else:
        with _lines(beginning) as tick:
            yield tick


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show progress of unknown length; yields a function that sets the name of the current step."""
    with ticking(what) as tick:
        yield lambda name: tick(name, 0, 0)


@contextmanager
def _bars(beginning: str) -> Iterator[Tick]:
    from rich.progress import Progress, TaskID

    with Progress(console=stderr, transient=True) as progress:
        bars: dict[str, TaskID] = {beginning: progress.add_task(beginning, total=None)}

        def tick(what: str, done: int, total: int) -> None:
            if beginning in bars and what != beginning:
                progress.remove_task(bars.pop(beginning))
            if what not in bars:
                bars[what] = progress.add_task(what, total=total or None)
            progress.update(bars[what], completed=done, total=total or None)

        yield tick


class _Step:
    """One step of a command; ``first`` was done when it was told of first."""

    def __init__(self, what: str, first: int = 0) -> None:
        self.what, self.first = what, first
        self.begun = time.monotonic()
        self.done = self.total = 0

    def words(self) -> str:
        return f"{self.what}: {self.done:,} of {self.total:,}" if self.total else self.what

    def left(self, now: float) -> str:
        """How long the step takes further, if it goes on as before; empty where that is not known."""
        if not self.first < self.done < self.total:
            return ""
        seconds = (now - self.begun) * (self.total - self.done) / (self.done - self.first)
        return f", about {duration(seconds)} left"


@contextmanager
def _lines(beginning: str) -> Iterator[Tick]:
    step = _Step(beginning)
    begun = step.begun
    over = threading.Event()

    def tick(what: str, done: int, total: int) -> None:
        nonlocal step
        if what != step.what:
            step = _Step(what, done)
        step.done, step.total = done, total

    def tell() -> None:
        now = begun
        while not over.wait(max(SILENCE_SECONDS, (now - begun) / 10)):
            now = time.monotonic()
            stderr.file.write(f"{step.words()} ({now - begun:.0f} s{step.left(now)})\n")
            stderr.file.flush()

    teller = threading.Thread(target=tell, name="progress", daemon=True)
    teller.start()
    try:
        yield tick
    finally:
        over.set()
        teller.join()


def _tell_steps() -> Tick:
    told: dict[str, int] = {}

    def tick(what: str, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        if told.get(what) != percent:
            told[what] = percent
            stderr.file.write(json.dumps({"progress": what, "done": done, "total": total}) + "\n")
            stderr.file.flush()

    return tick
