"""The answer, and why: the reason is data (docs/designs/0001, idea 2)."""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class Placement(enum.StrEnum):
    """Where the job should start."""

    ON_PREMISE = "on-premise"
    BURST = "burst"


class Capacity(enum.StrEnum):
    """What kind of node to pay for, in the order it is preferred."""

    RESERVED = "reserved"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


class Question(enum.StrEnum):
    """The four questions, in the order they are asked (docs/designs/0001)."""

    MAY_MOVE = "may-move"
    FASTER = "faster"
    WORTH_PAYING = "worth-paying"
    CAPACITY = "capacity"


class Verdict(enum.StrEnum):
    """How one question was answered."""

    YES = "yes"
    NO = "no"
    UNSURE = "unsure"
    SKIPPED = "skipped"


STAYS: Final = (Verdict.NO, Verdict.UNSURE)
"""Verdicts that keep a job on-premise: no later question is asked."""


class Mode(enum.StrEnum):
    """Whether advice changes anything."""

    SHADOW = "shadow"
    ACT = "act"


class Quantity(msgspec.Struct, frozen=True, gc=False):
    """A number with its unit: every number shown has one (docs/designs/0001, rule 8).

    Attributes
    ----------
    value : float
        May be NaN (unknown) or infinite.
    unit : str
        ``"s"``, ``"s^2"``, ``"core-s"``, ``"USD"``, ``"USD/core-h"``, ``"cores"``, ``"nodes"``, ``"MiB"``,
        ``"jobs"`` or ``""`` for a ratio.
    """

    value: float
    unit: str = "s"


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One question's answer.

    Attributes
    ----------
    question : Question
        Which of the four.
    verdict : Verdict
        How it was answered.
    reason : str
        Stable code such as ``"rule.explicit_partition"`` or ``"turnaround.cloud_faster"``. The sentence
        shown to people is made from it by ``advisor.decide.explanation.wording``.
    numbers : tuple of (name, Quantity)
        What the verdict rests on, in the order it is shown.
    detail : str
        A short plain text where the code needs one (a rule's name, a feature); data from outside, escaped
        by whoever prints it.
    """

    question: Question
    verdict: Verdict
    reason: str
    numbers: tuple[tuple[str, Quantity], ...] = ()
    detail: str = ""


class HedgeKind(enum.StrEnum):
    """Why a job that starts in the cloud keeps its place on-premise."""

    HEDGE = "hedge"
    SPECULATION = "speculation"


class Hedge(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A hedged start: in the cloud, with the job's place in the on-premise queue kept.

    Attributes
    ----------
    kind : HedgeKind
        A hedge ends when the local slot comes or its cost is reached; a speculation is a short job's chance.
    stop_seconds : float
        Longest stay in the cloud before the slot comes, seconds from the start there; may be infinite.
    """

    kind: HedgeKind
    stop_seconds: float


class TimeLimit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A moved job's time limit: the cloud is slower, so it is given longer than its user asked for.

    Attributes
    ----------
    asked_seconds : float
        The user's.
    given_seconds : float
        At most this; the hook sets less where the burst partition's MaxTime is less.
    """

    asked_seconds: float
    given_seconds: float


class Advice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What to do with one job, and why.

    Attributes
    ----------
    advice_id : str
        Unique; carried in the job's AdminComment, which is how outcomes find their advice again.
    time : float
        When it was given, seconds.
    placement : Placement
        Where the job should start.
    partition : str or None
        The partition to set; None when nothing is to be changed.
    capacity : Capacity or None
        Answer to question 4 when the placement is the cloud.
    mode : Mode
        In shadow mode everything is decided and logged and nothing changed.
    answers : tuple of Answer
        One per question that was asked, in order.
    size : str
        ``"small"``, ``"large"`` or ``"unknown"``.
    prefer : tuple of str
        Node features to prefer.
    require : tuple of str
        Node features without which the job must not start where it is moved to: a job that may not be
        requeued never starts on spot.
    priority_offset : int
        Added to the job's priority (Slurm's site factor); positive puts it earlier. 0 changes nothing.
    time_limit : TimeLimit or None
        None leaves the job's time limit as it is.
    origin : str or None
        The partition it was moved from, where there are several: should it come back, it comes back there.
    hedge : Hedge or None
        None: the job gives up its place on-premise when it starts in the cloud.
    """

    advice_id: str
    time: float
    placement: Placement
    partition: str | None
    capacity: Capacity | None
    mode: Mode
    answers: tuple[Answer, ...]
    size: str = "unknown"
    prefer: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    priority_offset: int = 0
    time_limit: TimeLimit | None = None
    hedge: Hedge | None = None
    origin: str | None = None

    @property
    def decisive(self) -> Answer:
        """The answer that settled it: the first NO or UNSURE, else the last."""
        for answer in self.answers:
            if answer.verdict in STAYS:
                return answer
        return self.answers[-1]

    def values(self) -> dict[str, float]:
        """Every number the answers rest on, without its unit; where two carry one, the later's."""
        return {name: number.value for answer in self.answers for name, number in answer.numbers}

    def number(self, name: str) -> float | None:
        """A number that an answer rests on, without its unit; where two answers carry one, the later's."""
        for answer in reversed(self.answers):
            for other, quantity in answer.numbers:
                if other == name:
                    return quantity.value
        return None
