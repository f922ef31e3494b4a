"""Rows of `advisor decisions` and `advisor ledger`, and of the pages that show the same: plain data."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any

from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.wording import sentence, why_answer, why_sentence
from advisor.history.ledger import Decision, Wanted
from advisor.history.ledger_rows import LedgerRow
from advisor.history.store import HistoryStore
from advisor.model.advice import Advice, HedgeKind
from advisor.service.admin.money import money_view

_PAGE = 1000


def decisions_view(
    store: HistoryStore, since: float, limit: int, job_id: int | None = None
) -> dict[str, Any]:
    """All advice since then (of one job) counted, the newest ``limit`` of it listed, newest last."""
    wanted, newest, before = Wanted(since=since, job_id=job_id), list[Decision](), None
    counted = Counter[str]()
    for (place, _mode, _reason), number in store.decision_counts(wanted).items():
        counted[place.value] += number
    while page := store.newest_decisions(wanted, min(limit - len(newest), _PAGE), before=before):
        newest += page
        advice = page[-1].record.advice
        before = advice.time, advice.advice_id
    return {
        "since": since,
        "total": counted.total(),
        "placements": dict(counted),
        "decisions": [decision_row(decision) for decision in reversed(newest)],
    }


def _hedge_of(advice: Advice) -> str | None:
    """Why a job keeps, or in act mode would keep, its place on-premise; its decisive reason is another."""
    if advice.hedge is not None:
        return advice.hedge.kind.value
    if advice.placement != "burst":
        return None
    if advice.number("slice") is not None:
        return HedgeKind.SLICE.value
    is_trial = any(answer.reason == Reason.SPECULATED for answer in advice.answers)
    return HedgeKind.SPECULATION.value if is_trial else None


def decision_row(decision: Decision) -> dict[str, Any]:
    """One advice as a row."""
    advice, job, estimates = decision.record.advice, decision.record.job, decision.record.estimates
    return {
        "advice_id": advice.advice_id,
        "time": advice.time,
        "job_ids": decision.job_ids,
        "user": job.user,
        "partition": advice.partition or job.queue,
        "processors": job.processors,
        "placement": advice.placement,
        "capacity": advice.capacity,
        "mode": advice.mode,
        "hedge": _hedge_of(advice),
        "size": advice.size,
        "reason": advice.decisive.reason,
        "sentence": sentence(advice.decisive),
        "why": why_sentence(advice, job.array_tasks),
        "why_reason": why_answer(advice).reason,
        "predicted_wait_seconds": estimates.wait.seconds,
        "predicted_wait_deviation_seconds": estimates.wait.deviation,
        "predicted_run_seconds": estimates.run.seconds,
        "predicted_run_deviation_seconds": estimates.run.deviation,
    }


def ledger_view(store: HistoryStore, since: float, limit: int, job_id: int | None = None) -> dict[str, Any]:
    """Predicted against actual since then: a summary, and the newest ``limit`` rows, newest last.

    Of one job, all jobs that share its advice: the tasks of an array.
    """
    newest: deque[LedgerRow] = deque(maxlen=limit)
    sums = LedgerSums()
    record = None if job_id is None else store.advice_of(job_id)
    of_job = [] if record is None else store.outcomes_of(record.advice.advice_id)
    for row in store.ledger(since) if job_id is None else of_job:
        newest.append(row)
        sums.add(row)
    money = money_view(store, since)
    return {"since": since, "summary": sums.summary(), "money": money, "rows": list(newest)}


class LedgerSums:
    """Totals over a ledger that may not fit into memory."""

    def __init__(self) -> None:
        self._jobs = 0
        self._moved = 0
        self._saved = 0.0
        self._cost: float | None = None
        self._by_users = 0
        self._users_cost: float | None = None
        self._wait: list[float] = [0, 0.0]
        self._run: list[float] = [0, 0.0]
        self._start: list[float] = [0, 0.0]
        self._late = 0.0

    def add(self, row: LedgerRow) -> None:
        """Count one job; those that users placed apart. Waits are judged where it did wait on-premise."""
        if row.is_users_choice:
            self._by_users += 1
            self._users_cost = _plus(self._users_cost, row.cost_usd)
            return
        self._jobs += 1
        if row.saved_seconds_estimate is not None:
            self._moved += 1
            self._saved += row.saved_seconds_estimate
            if row.predicted_start_seconds is not None and row.actual_start_seconds is not None:
                _add_error(self._start, row.predicted_start_seconds, row.actual_start_seconds)
                self._late += row.actual_start_seconds - row.predicted_start_seconds
        else:
            _add_error(self._wait, row.predicted_wait_seconds, row.judged_wait_seconds)
            _add_error(self._run, row.predicted_run_seconds, row.judged_run_seconds)
        self._cost = _plus(self._cost, row.cost_usd)

    def summary(self) -> dict[str, float | int | None]:
        """Totals and mean absolute errors; None where there is nothing to say."""
        return {
            "jobs": self._jobs,
            "moved": self._moved,
            "saved_seconds_estimate": self._saved,
            "cost_usd": self._cost,
            "placed_by_users": self._by_users,
            "users_cost_usd": self._users_cost,
            "wait_mae_seconds": self._wait[1] / self._wait[0] if self._wait[0] else None,
            "run_mae_seconds": self._run[1] / self._run[0] if self._run[0] else None,
            "cloud_starts": int(self._start[0]),
            "cloud_start_mae_seconds": self._start[1] / self._start[0] if self._start[0] else None,
            "cloud_start_late_seconds": self._late / self._start[0] if self._start[0] else None,
        }


def _plus(total: float | None, more: float | None) -> float | None:
    """Sum where something was noted; None where nothing ever was."""
    return total if more is None else (total or 0.0) + more


def _add_error(sums: list[float], predicted: float, actual: float) -> None:
    if math.isfinite(predicted) and math.isfinite(actual):
        sums[0] += 1
        sums[1] += abs(predicted - actual)
