"""A site's own jobs, or a log's, made ready to be decided again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.decide.submission.table_row import job_of
from advisor.history.columns import on_premise
from advisor.history.store import HistoryStore
from advisor.model.errors import BadInput
from advisor.model.estimate import Estimates
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.table import JobTable
from advisor.predict.forecast.forecast_rows import ForecastOptions, estimates_at, forecast_rows
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.fitness import Target
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tracker import states_of
from advisor.replay.estimates import estimate_rows
from advisor.replay.whatif import EstimatesAt, History, JobAt, Rows, window_rows

Tick = Callable[[str, int, int], None]
"""Called with a phase, how much of it is done, and its size."""

RECORD_JOBS: Final = 20_000
"""Number of jobs before the window from which the record is built."""
_LEAD_JOBS: Final = 2_000
"""Number of jobs before these, which fill the queue and train the forests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJobs:
    """The jobs of a site or a log.

    Attributes:
        table: Jobs that ran on-premise, in submission order.
        job_at: A row's submission.
        in_cloud: Number of jobs of the window that ran in the cloud. They are left out, because the wait they
            would have had is unknown.
    """

    table: JobTable
    job_at: JobAt
    in_cloud: int = 0


def jobs_of_store(store: HistoryStore, settings: Settings, since: float, *, processors: int = 0) -> OwnJobs:
    """Jobs of the site's history, with what each said at its submission.

    Args:
        settings: They name the burst partition.
        since: Epoch seconds; earlier jobs are only learned from.
        processors: Size of the on-premise machine; 0 when unknown: then the most that were ever busy at once.
    """
    whole = store.table(utc_offset_seconds=settings.cluster.utc_offset_seconds)
    here = on_premise(whole, settings.cluster.burst_partition)
    here = replace(here, total_processors=processors or busiest(here))
    said: dict[tuple[int, float], Job] = {
        (outcome.job.job_id, outcome.job.submit_time): outcome.job for outcome in store.outcomes(since)
    }
    since_then = int(np.count_nonzero(whole.submit + whole.start_of_log >= since))
    in_cloud = since_then - int(np.count_nonzero(here.submit + here.start_of_log >= since))

    def job_at(row: int) -> Job:
        key = (int(here.job_id[row]), float(here.submit[row]) + here.start_of_log)
        return said.get(key) or job_of(here, row, with_queue=True)

    return OwnJobs(table=here, job_at=job_at, in_cloud=in_cloud)


def jobs_of_log(table: JobTable) -> OwnJobs:
    """Jobs of a log; all may move, because a log does not know our partitions."""
    if not table.total_processors:
        table = replace(table, total_processors=busiest(table))
    return OwnJobs(table=table, job_at=lambda row: job_of(table, row))


def window_begin(table: JobTable, since: float) -> float:
    """When a window may begin (epoch seconds): at `since`, or later where too few jobs came before it.

    Args:
        table: In submission order.
        since: Epoch seconds.

    Raises:
        BadInput: The whole history is too short (``whatif.short``).
    """
    first = ForecastOptions().first
    after = (
        int(np.searchsorted(table.submit, table.submit[first - 1], side="right")) if len(table) > first else 0
    )
    if not 0 < after < len(table):
        raise BadInput(
            f"{len(table):,} finished jobs are known, and forecasts begin after the first {first:,}",
            where="history",
            mend="Wait until more have ended, or add older ones: `advisor ingest sacct`",
            code="whatif.short",
        )
    return max(since, float(table.submit[after]) + table.start_of_log)


def busiest(table: JobTable) -> int:
    """The largest number of processors that were busy at one moment."""
    ran = table.run > 0
    start = (table.submit + np.maximum(table.wait, 0.0))[ran]
    times = np.concatenate([start, start + table.run[ran]])
    change = np.concatenate([table.processors[ran], -table.processors[ran]])
    order = np.lexsort((change, times))  # at one moment ends come first
    return int(np.cumsum(change[order]).max(initial=0))


def history_of(
    jobs: OwnJobs,
    since: float,
    *,
    rules: frozenset[str],
    parameters: Mapping[Target, KnnParameters],
    tick: Tick,
) -> dict[str, History]:
    """Histories of a window by rule, with forecasts from what was known at each submission.

    Args:
        since: Epoch seconds at which the window begins.
        rules: ``"advisor"`` (distribution forests), ``"published"`` (k-NN).
        parameters: mapping of {"wait", "run"} to KnnParameters: Parameters of the k-NN estimators.

    Raises:
        BadInput: The window is empty, or too few jobs came before it.
    """
    options = ForecastOptions()
    rows, judged = window_rows(jobs.table, since, before=RECORD_JOBS)
    begin = max(0, int(rows[0]) - options.forest.most_jobs - _LEAD_JOBS)
    table = jobs.table.select(np.arange(begin, len(jobs.table)))
    rows = rows - begin
    _refuse_too_few(int(rows[judged]), options.first)
    shared = History(
        table=table,
        rows=rows,
        first_judged=judged,
        states=states_of(table),
        job_at=lambda row: jobs.job_at(row + begin),
        estimates_at=lambda _position: Estimates(),
    )
    return {
        rule: replace(
            shared,
            estimates_at=_published(table, rows, parameters, tick)
            if rule == "published"
            else _forecast(table, rows, options, tick),
        )
        for rule in sorted(rules)
    }


def _refuse_too_few(jobs: int, needed: int) -> None:
    if jobs < needed:
        raise BadInput(
            f"{jobs} finished jobs before the window are too few to forecast from",
            where="--since",
            mend=f"Begin after the first {needed:,} jobs, or `advisor ingest` older ones",
            code="whatif.short",
        )


def _forecast(table: JobTable, rows: Rows, options: ForecastOptions, tick: Tick) -> EstimatesAt:
    columns = forecast_rows(table, rows, options, tick=counted("forecasting", len(rows), tick))
    return lambda position: estimates_at(columns, position) or Estimates()


def _published(
    table: JobTable, rows: Rows, parameters: Mapping[Target, KnnParameters], tick: Tick
) -> EstimatesAt:
    encoder = Encoder(start_of_log=table.start_of_log, utc_offset_seconds=table.utc_offset_seconds)
    features = encoder.encode_table(table, states_of(table))
    told = counted("estimating", 2 * len(rows), tick)
    wait, run = (
        estimate_rows(table, features, rows, parameters[target], target, encoder=encoder, tick=told)
        for target in ("wait", "run")
    )
    return lambda position: Estimates(wait=wait.estimate(position), run=run.estimate(position))


def counted(phase: str, size: int, tick: Tick) -> Callable[[int], None]:
    """A function that adds what was done since its last call, and reports the phase's progress."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        tick(phase, min(done, size), size)

    return add
