"""Question 2: is the cloud faster, and are we sure? (Cunha et al. 2017, section IV).

The paper prints its decision as ``w_p + r_p < (o*c + i)*r_p``, which would send exactly those jobs to the
cloud that finish *later* there; its own prose, its definition of saved time (section V-B) and its tables
need the opposite. Here, with boot time and wait in the cloud's queue, which the paper leaves out::

    w + r > wait there + boot + s(c)*r   and   variance of w < C(o, job)

written as ``w > wait there + boot + (s(c) - 1)*r``, so that with s = 1 no run time is needed and none can
round the answer (docs/designs/0004-decision.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from advisor.decide.explanation.reasons import Reason
from advisor.decide.submission.cloud_terms import configured_slowdown
from advisor.model.advice import Answer, Quantity, Question, Verdict
from advisor.model.estimate import Estimate, Estimates
from advisor.model.settings_decision import PlacementSettings
from advisor.model.site import Cutoff, Ratio

_FASTER: Final = Question.FASTER


class PlacementCase(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The input of the rule: one job's predictions, and its start and run time in the cloud.

    Attributes:
        processors: c, requested processors.
        wait, run: Predicted on-premise wait and run time.
        boot_seconds: Time until a cloud node is up.
        performance_ratio: s(c) = o*c + i: run time in the cloud over run time on-premise.
        cutoff: The published rule's cutoff, where a backtest has chosen it.
        cloud_wait_seconds: Expected wait for a node in the cloud, before the boot.
        ratio: The learned performance ratio; None: the one of the settings.
        staging_seconds: The time that copying its data and its results adds to the boot.
    """

    processors: int
    wait: Estimate
    run: Estimate
    boot_seconds: float
    performance_ratio: float
    settings: PlacementSettings
    cutoff: Cutoff | None = None
    cloud_wait_seconds: float = 0.0
    ratio: Ratio | None = None
    staging_seconds: float = 0.0

    @property
    def starts_after_seconds(self) -> float:
        """Expected time until the job would run in the cloud: its wait there, the boot, and its data."""
        return self.cloud_wait_seconds + self.boot_seconds + self.staging_seconds

    def penalty_seconds(self, run_seconds: float) -> float:
        """How much longer a run takes in the cloud, with its start, seconds."""
        slowdown = self.performance_ratio - 1.0
        return self.starts_after_seconds + (slowdown * run_seconds if slowdown else 0.0)


def published(case: PlacementCase) -> Answer:
    """Decide as Cunha et al. do: expected turnarounds, and a cutoff on the variance of the wait.

    Doubt means on-premise: no estimate, or, where there is a cutoff, a variance that is infinite or NaN.
    """
    wait, run = case.wait, case.run
    if not wait.is_usable:
        return answer(case, Verdict.UNSURE, Reason.WAIT_UNKNOWN)
    penalty = case.penalty_seconds(run.seconds)
    if not math.isfinite(penalty):
        return answer(case, Verdict.UNSURE, Reason.RUN_UNKNOWN)
    if not wait.seconds > penalty:
        return answer(case, Verdict.NO, Reason.CLOUD_NOT_FASTER)
    cutoff, numbers = case.settings.cutoff(case.processors, case.cutoff), list[tuple[str, Quantity]]()
    if cutoff < math.inf:
        numbers.append(("tolerated_deviation", Quantity(math.sqrt(cutoff))))
        if not wait.variance < cutoff:
            return answer(case, Verdict.UNSURE, Reason.TOO_UNCERTAIN, numbers)
    return answer(case, Verdict.YES, Reason.CLOUD_FASTER, numbers)


def answer(
    case: PlacementCase,
    verdict: Verdict,
    reason: Reason,
    more: Sequence[tuple[str, Quantity]] = (),
) -> Answer:
    """Answer question 2 with the numbers that took part in it, and those that a rule adds."""
    wait, run = case.wait, case.run
    numbers = (
        ("predicted_wait", Quantity(wait.seconds)),
        ("wait_deviation", Quantity(wait.deviation)),
        ("predicted_run", Quantity(run.seconds)),
        ("run_deviation", Quantity(run.deviation)),
        ("performance_ratio", Quantity(case.performance_ratio, "")),
        ("boot", Quantity(case.boot_seconds)),
        ("predicted_saving", Quantity(wait.seconds - case.penalty_seconds(run.seconds))),
    )
    if case.ratio is not None:
        more = (
            ("ratio_deviation", Quantity(case.ratio.deviation * case.performance_ratio, "")),
            ("ratio_jobs", Quantity(float(case.ratio.jobs), "jobs")),
            *more,
        )
    if case.staging_seconds:
        more = (("staging", Quantity(case.staging_seconds)), *more)
    if case.cloud_wait_seconds:
        more = (("cloud_wait", Quantity(case.cloud_wait_seconds)), *more)
    return Answer(question=_FASTER, verdict=verdict, reason=reason, numbers=(*numbers, *more))


def no_room_there(case: PlacementCase) -> Answer:
    """The answer if it is not known when the cloud would have room: no, with the finite numbers only."""
    found = answer(case, Verdict.NO, Reason.NO_ROOM_THERE)
    finite = tuple((name, number) for name, number in found.numbers if not math.isinf(number.value))
    return replace(found, numbers=finite)


def state_unknown() -> Answer:
    """The answer without a usable snapshot of the cluster: in doubt the job stays on-premise."""
    return Answer(question=Question.FASTER, verdict=Verdict.UNSURE, reason=Reason.STATE_UNKNOWN)


def as_case(
    *,
    processors: int,
    estimates: Estimates,
    boot: float,
    settings: PlacementSettings,
    cutoff: Cutoff | None = None,
    cloud_wait: float = 0.0,
    ratio: Ratio | None = None,
    staging: float = 0.0,
) -> PlacementCase:
    """Collect the input of the rule."""
    return PlacementCase(
        processors=processors,
        wait=estimates.wait,
        run=estimates.run,
        boot_seconds=boot,
        performance_ratio=configured_slowdown(processors, settings) if ratio is None else ratio.factor,
        settings=settings,
        cutoff=cutoff,
        cloud_wait_seconds=cloud_wait,
        ratio=ratio,
        staging_seconds=staging,
    )
