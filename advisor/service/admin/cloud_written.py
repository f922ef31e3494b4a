"""Reports that `advisor control` wrote last, for `advisor nodes`, `pools`, `spend` and `portfolio show`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from advisor.model.advice import Placement
from advisor.model.errors import BadInput, UseFallback
from advisor.model.settings import Settings
from advisor.service.exchange import status_file

if TYPE_CHECKING:
    from advisor.history.store import HistoryStore

_NOTHING_YET: Final = "status.nothing_yet"


def nodes_written(settings: Settings, now: float) -> dict[str, Any]:
    """Cloud nodes and their instances; errors as :func:`_written`."""
    report, written = _written(settings)
    return {"time": written, "age_seconds": now - written, "nodes": report.get("nodes", [])}


def pools_written(settings: Settings, now: float) -> dict[str, Any]:
    """Capacity pools and refused launches; errors as :func:`_written`."""
    report, written = _written(settings)
    return {
        "time": written,
        "age_seconds": now - written,
        "protected": report.get("protected", ""),
        "pools": report.get("pools", []),
        "paid": report.get("paid", []),
        "quotas": report.get("quotas", []),
        "counters": report.get("counters", {}),
    }


def spend_written(settings: Settings, now: float) -> dict[str, Any]:
    """Today's money and budgets, and the last days; errors as :func:`_written`."""
    report, written = _written(settings)
    paid = {"paid": report.get("paid", [])}
    return {"time": written, "age_seconds": now - written, **paid, **report.get("spend", {})}


def portfolio_written(settings: Settings, now: float) -> dict[str, Any]:
    """The policy that leads the burst partition; ``enabled`` is False where none does.

    Raises:
        UseFallback: There is no status (``status.missing``, ``status.nothing_yet``), or it cannot be read
            (``status.unreadable``).
    """
    content = status_file.read(settings.paths.published)
    report, written = content.get("portfolio"), content.get("time")
    if not isinstance(written, int | float):
        raise UseFallback(
            f"advisor control has written no report yet. {status_file.HOW_TO_START}", code=_NOTHING_YET
        )
    if not isinstance(report, dict) or not report:
        report = {"enabled": False}
    return {"time": written, "age_seconds": now - written, **report}


def known_so_far(read: Callable[[], dict[str, Any]], **empty: Any) -> dict[str, Any]:
    """The report; on a site that has none yet, ``empty`` and a ``note`` that says so."""
    try:
        return read()
    except UseFallback as error:
        if error.code not in {status_file.MISSING, _NOTHING_YET}:
            raise
        return {"time": None, "age_seconds": None, "note": str(error), **empty}


def predicted_against_billed(store: HistoryStore, since: float) -> dict[str, float | int]:
    """Predicted and actual cost of jobs that were moved since then and have ended.

    Both sums are over the jobs whose predicted and actual costs are known. A task of an array has its share
    of what was predicted for the whole.
    """
    predicted: dict[str, float] = {}
    for decision in store.decisions(since, placement=Placement.BURST):
        advice = decision.record.advice
        cost = advice.number("predicted_cost")
        if cost is not None and math.isfinite(cost):
            predicted[advice.advice_id] = cost / decision.record.job.array_tasks
    jobs, told, billed = 0, 0.0, 0.0
    for row in store.ledger(since, placement=Placement.BURST):
        if row.cost_usd is not None and row.advice_id in predicted and not row.is_users_choice:
            jobs += 1
            told += predicted[row.advice_id]
            billed += row.cost_usd
    return {"jobs": jobs, "predicted_usd": told, "billed_usd": billed}


def _written(settings: Settings) -> tuple[dict[str, Any], float]:
    """The report, and the epoch seconds at which it was written.

    Raises:
        BadInput: No cloud is configured.
        UseFallback: `advisor control` has not written a report yet.
    """
    content = status_file.read(settings.paths.published)
    report, written = content.get("cloud_report"), content.get("time")
    if content.get("cloud_configured") is False:
        raise BadInput(
            "no cloud is configured, so that nothing is spent",
            where="ec2.image_id",
            mend="Set it to the image of your nodes and restart advisor control; `advisor config show` has "
            "the budgets that are set",
            code="cloud.not_configured",
        )
    if not isinstance(report, dict) or not isinstance(written, int | float):
        raise UseFallback(
            f"advisor control has written no report about the cloud yet. {status_file.HOW_TO_START}",
            code=_NOTHING_YET,
        )
    return report, float(written)
