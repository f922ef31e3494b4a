"""An advice and its reasons, as data (docs/designs/0001, idea 2)."""

from __future__ import annotations

import enum
from typing import Final

import msgspec


class Placement(enum.StrEnum):
    """Where the job should start."""

    ON_PREMISE = "on-premise"
    BURST = "burst"


class Capacity(enum.StrEnum):
    """Kinds of cloud capacity, in order of preference."""

    RESERVED = "reserved"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


CAPACITY_FEATURES: Final = frozenset(capacity.value for capacity in Capacity)
"""Node features that the advisor adds to constraints; all others are the user's."""


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
    """The use of advice in a partition, from the mode that changes least on.

    An advice itself has ``shadow``, only recorded, or ``act``.
    """

    OFF = "off"
    SHADOW = "shadow"
    ADVISE = "advise"
    OPT_IN = "opt-in"
    ACT = "act"


class Quantity(msgspec.Struct, frozen=True, gc=False):
    """A number with its unit: every number shown has one (docs/designs/0001, rule 8).

    Attributes:
        value: NaN means unknown; infinity is allowed.
        unit: ``"s"``, ``"s^2"``, ``"core-s"``, ``"USD"``, ``"USD/core-h"``, ``"cores"``, ``"nodes"``,
            ``"MiB"``, ``"jobs"``, ``"chance"`` (0 to 1) or ``""`` for a ratio.
    """

    value: float
    unit: str = "s"


class Answer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One question's answer.

    Attributes:
        reason: Stable code such as ``"rule.explicit_partition"`` or ``"turnaround.cloud_faster"``. The
            sentence shown to people is made from it by ``advisor.decide.explanation.wording``.
        numbers: The numbers behind the verdict, in display order.
        detail: Short text where the reason needs one (a rule's name, a feature). It comes from outside:
            escape it when printing.
    """

    question: Question
    verdict: Verdict
    reason: str
    numbers: tuple[tuple[str, Quantity], ...] = ()
    detail: str = ""


class HedgeKind(enum.StrEnum):
    """Why a job that starts in the cloud keeps its on-premise queue position."""

    SPECULATION = "speculation"
    SLICE = "slice"
    PROMISE = "promise"


class Hedge(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A hedged start: in the cloud, while a placeholder keeps the job's on-premise queue position.

    Attributes:
        kind: A speculation gives a job that is probably short a bounded time in the cloud; a slice is decided
            anew by the price at its stop and when the on-premise slot comes; a promise lets a job whose user
            named a time come back where that is kept on-premise as well.
        stop_seconds: Longest run in the cloud before the slot comes, seconds; may be infinite.
    """

    kind: HedgeKind
    stop_seconds: float


ENDING_SECONDS: Final = 60.0
"""From a slice's stop to the end of its processes: a poll, a requeue, and slurmctld's KillWait of 30 s."""


class TimeLimit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A moved job's time limit, extended because the cloud is slower.

    Attributes:
        given_seconds: The extended limit; at most the burst partition's MaxTime is set of it.
    """

    asked_seconds: float
    given_seconds: float


class Advice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The decision about one job, with its reasons.

    Attributes:
        advice_id: Unique; kept in the job's AdminComment, by which an outcome is matched with its advice.
        time: Epoch seconds.
        partition: The partition to set; None changes nothing.
        capacity: Answer to question 4 for a job that moves.
        mode: The partition's mode; in shadow mode advice is logged and changes nothing.
        answers: One for each question asked, in order.
        size: ``"small"``, ``"large"`` or ``"unknown"``.
        prefer: Node features to prefer.
        require: Node features the job must have; they keep a job that may not be requeued off spot.
        priority_offset: Added to the job's priority (Slurm's site factor); 0 changes nothing.
        time_limit: None keeps the job's time limit.
        origin: The partition the job was moved from, to which it would return; None where there is only one.
        hedge: None: the job gives up its on-premise queue position.
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
        """The decisive answer: the first NO or UNSURE, else the last."""
        for answer in self.answers:
            if answer.verdict in STAYS:
                return answer
        return self.answers[-1]

    def values(self) -> dict[str, float]:
        """All numbers of the answers by name, without units; later answers win."""
        return {name: number.value for answer in self.answers for name, number in answer.numbers}

    def number(self, name: str) -> float | None:
        """One number of the answers, without its unit; the latest answer wins."""
        for answer in reversed(self.answers):
            for other, quantity in answer.numbers:
                if other == name:
                    return quantity.value
        return None
