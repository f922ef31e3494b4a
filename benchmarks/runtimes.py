"""Forecasts of run times on a log, beside one histogram for each class of jobs.

Jobs are forecast at their submission, from those that had ended by then, as the log says when. The peer's
class is the mean of the user's last two run times (Tsafrir et al., TPDS 2007) and the request, both by
factors of two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.arrays import Floats
from advisor.decide.price.slices import forget_below
from advisor.model.table import JobTable
from advisor.predict.run_times.events import submissions_and_ends
from advisor.predict.run_times.grid import BINS, GRID, bin_of, mean, quantile, survival
from advisor.predict.run_times.job_numbers import JobNumbers
from advisor.predict.run_times.run_times import RunTimes
from advisor.replay.sources import load_table
from benchmarks.timing import percentiles

Tell = Callable[[str], None]

_LEVELS: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
_ELAPSED: Final = 600.0  # seconds
_PRICED: Final = (60.0, 300.0, 1800.0, 7200.0, 28800.0)  # seconds of run time that an ended job is worth
_UNIFORM: Final = 0.002  # share of the peer's forecasts that is spread evenly
_BIN_BITS: Final = math.log2(GRID[1] / GRID[0])


class _Model(Protocol):
    def forecast(self, job: JobNumbers) -> Floats: ...

    def look_up(self, job: JobNumbers) -> Any: ...

    def learn(self, job: JobNumbers, run_seconds: float, *, place: Any) -> None: ...


def run(
    *,
    trace: str = "synthetic:20000",
    skip: int = 11_000,
    jobs: int = 10_000,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Measure on ``jobs`` rows after the first ``skip``, which only teach."""
    tell("reading")
    table = load_table(trace)
    table = table.select(slice(0, skip + jobs))
    skip = min(skip, len(table) // 2)
    result: dict[str, Any] = {"trace": table.name, "jobs": len(table) - skip}
    models: dict[str, Any] = {"ours": RunTimes(), "peer": _ClassTimes()}
    for name, model in models.items():
        tell(name)
        forecasts, spent = _forecasts(table, model, warm=name == "ours")
        result[name] = _scores(table, forecasts, skip) | {
            f"{call}_us": percentiles(spent[call][skip:]) for call in spent
        }
    return result


def _forecasts(table: JobTable, model: _Model, *, warm: bool) -> tuple[Floats, dict[str, list[float]]]:
    """Forecasts of all jobs, shape (jobs, BINS), and microseconds of processor time of each call."""
    columns = (table.user, table.group, table.executable, table.queue, table.processors, table.requested_time)
    described = [JobNumbers(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    if warm:
        compiling: Any = RunTimes()
        compiling.forecast(described[0])
        compiling.learn(described[0], 1.0)
    runs = _runs(table)
    ended = table.submit + np.maximum(0.0, table.wait) + runs
    result = np.empty((len(table), BINS))
    places: dict[int, Any] = {}
    spent: dict[str, list[float]] = {"forecast": [], "learn": []}
    for row, ends in submissions_and_ends(table.submit, ended):
        began = time.thread_time_ns()
        if not ends:
            result[row] = model.forecast(described[row])
            spent["forecast"].append((time.thread_time_ns() - began) / 1e3)
            places[row] = model.look_up(described[row])
        else:
            model.learn(described[row], float(runs[row]), place=places.pop(row))
            spent["learn"].append((time.thread_time_ns() - began) / 1e3)
    return result, spent


def _runs(table: JobTable) -> Floats:
    """Run times cut at the requested time, where a site kills, seconds."""
    runs: Floats = np.fmin(table.run, table.requested_time)
    return np.maximum(runs, 1e-3)


def _scores(table: JobTable, forecasts: Floats, skip: int) -> dict[str, Any]:
    runs, limits = _runs(table)[skip:], np.nan_to_num(table.requested_time[skip:], nan=np.inf)
    given = forecasts[skip:]
    tops = [bin_of(limit) for limit in limits.tolist()]
    bins = np.minimum(tops, [bin_of(seconds) for seconds in runs.tolist()])
    rows = np.arange(len(runs))
    below = np.cumsum(given, axis=1)
    step = np.arange(BINS) >= bins[:, np.newaxis]
    means = np.array([mean(p, limit) for p, limit in zip(given, limits, strict=True)])
    on = np.flatnonzero(runs > _ELAPSED)
    left = given[on]
    for chances in left:
        forget_below(chances, GRID, _ELAPSED)
    later = -np.log2(np.maximum(left[np.arange(len(on)), bins[on]], 1e-9))
    return {
        "bits": float(np.mean(-np.log2(given[rows, bins]))),
        "uniform_bits": float(np.mean(np.log2(np.add(tops, 1)))),
        "crps_octaves": float(np.sum((below - step) ** 2) * _BIN_BITS / len(runs)),
        "bits_after_600_s": float(np.mean(later)) if len(on) else None,
        "brier_600_s": float(
            np.mean([(survival(p, _ELAPSED) - (r > _ELAPSED)) ** 2 for p, r in zip(given, runs, strict=True)])
        ),
        "median_factor_off_by_mean": float(np.median(np.exp(np.abs(np.log(means / np.maximum(runs, 1.0)))))),
        "share_below_quantile": {
            str(level): float(np.mean([runs[i] <= quantile(given[i], level) for i in rows.tolist()]))
            for level in _LEVELS
        },
        **_decisions(given, runs, limits, table.processors[skip:]),
    }


def _decisions(
    given: Floats, runs: Floats, limits: Floats, processors: NDArray[np.int64]
) -> dict[str, float]:
    """What two choices of a slice bring.

    ``paid_share_of_ended_jobs`` is the share of core-seconds that went to jobs that ended within their slice,
    where the slice T has the highest P(run <= T) / E[min(run, T)]; ``value_share`` is the value of ended jobs
    less their run times against a clairvoyant's, where the slice has the highest expectation of that.
    """
    low = np.concatenate([[GRID[0] ** 2 / GRID[1]], GRID[:-1]])
    middles = np.minimum(np.sqrt(low * GRID), limits[:, np.newaxis])
    stops = np.minimum(GRID, limits[:, np.newaxis])
    chance = np.cumsum(given, axis=1)
    cost = np.cumsum(given * middles, axis=1) + (1.0 - chance) * stops
    rows = np.arange(len(runs))
    slices = stops[rows, np.argmax(chance / cost, axis=1)]
    paid = np.minimum(runs, slices) * processors
    shares = []
    for worth in _PRICED:
        expected = worth * chance - cost
        best = np.argmax(expected, axis=1)
        slice_ = np.where(expected[rows, best] > 0.0, stops[rows, best], 0.0)
        gained = np.where(runs <= slice_, worth, 0.0) - np.minimum(runs, slice_)
        shares.append(np.sum(gained) / np.sum(np.maximum(worth - runs, 0.0)))
    return {
        "paid_share_of_ended_jobs": float(np.sum(paid[runs <= slices]) / np.sum(paid)),
        "value_share": float(np.mean(shares)),
    }


class _ClassTimes:
    """The peer: a histogram of each class, mixed with that of the request and that of all jobs."""

    def __init__(self) -> None:
        self._of_class: dict[tuple[int, int], Floats] = {}
        self._of_request: dict[int, Floats] = {}
        self._of_all = np.full(BINS, 0.02)
        self._last: dict[int, list[float]] = {}

    def forecast(self, job: JobNumbers) -> Floats:
        of_user, of_request = self._class(job.user, job.requested_seconds)
        result: Floats = 2.0 * self._of_all / self._of_all.sum()
        if of_request in self._of_request:
            shared = self._of_request[of_request]
            result = 4.0 * (result + shared) / (2.0 + shared.sum())
        result += self._of_class.get((of_user, of_request), 0.0)
        result /= result.sum()
        top = _top(job.requested_seconds)
        result[top] += result[top + 1 :].sum()
        result[top + 1 :] = 0.0
        result[: top + 1] = (1.0 - _UNIFORM) * result[: top + 1] + _UNIFORM / (top + 1)
        return result

    def look_up(self, job: JobNumbers) -> tuple[int, int]:
        return self._class(job.user, job.requested_seconds)

    def learn(self, job: JobNumbers, run_seconds: float, *, place: tuple[int, int]) -> None:
        end = min(_top(job.requested_seconds), bin_of(run_seconds))
        self._of_class.setdefault(place, np.zeros(BINS))[end] += 1.0
        self._of_request.setdefault(place[1], np.zeros(BINS))[end] += 1.0
        self._of_all[end] += 1.0
        self._last[job.user] = [*self._last.get(job.user, [])[-1:], run_seconds]

    def _class(self, user: int, requested: float) -> tuple[int, int]:
        last = self._last.get(user)
        of_user = int(math.log2(max(1.0, float(np.mean(last))))) if last else -1
        return of_user, -1 if math.isnan(requested) else int(math.log2(max(1.0, requested)))


def _top(requested: float) -> int:
    return BINS - 1 if math.isnan(requested) else bin_of(requested)
