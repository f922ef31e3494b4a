"""Curves of hours saved against dollars, computed once and read often: what the page Tune redraws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from advisor.files.owners import give_to_owner_of
from advisor.files.whole_file import read_plain_file, replace_file
from advisor.model.errors import BadInput
from advisor.model.periods import period_days
from advisor.model.settings import Settings
from advisor.replay.closed_loop.recommendation import BudgetPoint, pick_of
from advisor.service.state.records import WEB_FOLDER

LIMITS: Final = (math.inf, 120.0, 60.0, 30.0, 15.0)
"""Uncertainty limits in minutes for which curves are kept, beside the one in force."""
_FILE: Final = "curves.json"
_MAX_BYTES: Final = 8 * 1024 * 1024


class LimitCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The budgets of one uncertainty limit, ascending; dollars and hours of a mean month.

    Attributes:
        limit_minutes: None: no limit.
    """

    limit_minutes: float | None
    points: tuple[BudgetPoint, ...]


class KeptCurves(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `advisor recommend --keep`.

    Attributes:
        time, begin, end: Epoch seconds: when it was computed, and of the window's submissions.
        mean_wait_seconds: Mean wait of all jobs if all run on-premise.
        worth_usd: What an hour of the mean job costs in the cloud, US dollars.
    """

    time: float
    begin: float
    end: float
    jobs: int
    weeks: int
    usd_per_core_hour: float
    mean_wait_seconds: float
    worth_usd: float
    curves: tuple[LimitCurve, ...]

    def of_limit(self, minutes: float) -> LimitCurve | None:
        """The curve of an uncertainty limit; None where none was computed for it."""
        wanted = None if math.isinf(minutes) else minutes
        return next((one for one in self.curves if one.limit_minutes == wanted), None)


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The results that settings would have had in a mean month of the window.

    Attributes:
        budget_usd: The budget of a month by which the curve was read; infinite beyond all budgets.
        is_beyond: Whether that is more than the largest budget of the curve, whose figures are shown.
    """

    budget_usd: float
    cost_usd: float
    saved_hours: float
    mean_wait_seconds: float
    moved_jobs: float
    is_beyond: bool


def limits_of(settings: Settings) -> tuple[float, ...]:
    """The uncertainty limits of the curves, minutes: the usual ones and the one in force, largest first."""
    return tuple(sorted({*LIMITS, settings.price.uncertainty_limit_minutes}, reverse=True))


def path_of(state: Path) -> Path:
    """Where the curves are in ``paths.state``."""
    return state / WEB_FOLDER / _FILE


def keep(state: Path, curves: KeptCurves) -> Path:
    """Write the curves, for the owner of ``paths.state`` also where root does it.

    Raises:
        BadInput: The folder cannot be written (``curves.unwritable``).
    """
    path = path_of(state)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, msgspec.json.encode(curves))
        give_to_owner_of(state, path.parent, path)
    except OSError as error:
        raise BadInput(
            f"the curves cannot be written ({error.strerror})",
            where=str(path),
            mend="Run the command as the service's user, and check that the disk has room",
            code="curves.unwritable",
        ) from None
    return path


def kept(state: Path) -> KeptCurves | None:
    """The curves; None where there are none that can be read."""
    try:
        return msgspec.json.decode(read_plain_file(path_of(state), _MAX_BYTES), type=KeptCurves)
    except (OSError, BadInput, msgspec.MsgspecError):
        return None


def outlook(curves: KeptCurves, curve: LimitCurve, settings: Settings) -> Outlook:
    """The results of the settings: the curve, read at their budget or at their price of an hour.

    A price of an hour spends what the largest budget does up to which every step costs no more than that for
    an hour. With both the smaller one holds.
    """
    budget = settings.budget
    monthly = math.inf
    if budget.usd > 0.0:
        monthly = budget.usd * period_days("month") / period_days(budget.period)
    if budget.usd_per_hour_saved > 0.0:
        monthly = min(monthly, pick_of(curve.points, budget.usd_per_hour_saved).usd)
    elif math.isinf(monthly):
        monthly = 0.0
    return _read_at(curve.points, monthly, curves.mean_wait_seconds)


def _read_at(points: Sequence[BudgetPoint], usd: float, mean_wait_seconds: float) -> Outlook:
    """The curve at a budget, by straight lines between its points; it begins with no budget."""
    budgets = [0.0, *(point.usd for point in points)]

    def at_budget(name: str, first: float = 0.0) -> float:
        return float(np.interp(usd, budgets, [first, *(getattr(point, name) for point in points)]))

    return Outlook(
        budget_usd=usd,
        cost_usd=at_budget("cost_usd"),
        saved_hours=at_budget("saved_hours"),
        mean_wait_seconds=at_budget("mean_wait_seconds", mean_wait_seconds),
        moved_jobs=at_budget("moved_jobs"),
        is_beyond=usd > budgets[-1],
    )
