"""The forests and the base of the queue they go with, in the model store: control writes, serve reads."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.history.models import ModelStore
from advisor.model.errors import BadInput
from advisor.model.table import JobTable
from advisor.predict.forecast.placement_features import PlacementFeatures
from advisor.predict.forecast.placement_replay import retrace
from advisor.predict.forecast.rolling import ForecastOptions, RollingForests
from advisor.predict.forecast.submission_features import CODED, Codes
from advisor.service.exchange.queue_stream import Cut, Seen

PLACEMENT_KIND: Final = "placement"
"""Under this kind `advisor control` saves the forests of the advisor's own rule and the queue's base."""

FORMAT: Final = 1
_COLUMNS: Final = ("submit", "wait", "run", "processors", "requested_time", *CODED)
_REQUEUED: Final = ("requeued_seconds", "is_whole")
"""Columns that a base of an earlier release does not have: it knew of no requeue."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Base:
    """The queue and every user's last jobs at one moment.

    Attributes:
        name: What the stream of events that follows it is known by.
        table: Jobs on the stream's clock (``start_of_log``: the origin). A job that waits has an infinite
            wait and run time, one that runs an infinite run time. ``job_id``: the key of a job under way,
            else below 0.
        codes: Names behind the numbers.
    """

    name: str
    table: JobTable
    codes: Codes

    def observer(self) -> PlacementFeatures:
        """Somebody who has seen it all."""
        return retrace(self.table, self.table.job_id.tolist())


def new_name() -> str:
    """Of a base."""
    return uuid.uuid4().hex


def with_jobs_under_way(finished: JobTable, cut: Cut) -> JobTable:
    """Finished jobs and those in the queue, in submission order, keyed as :class:`Base` says.

    Jobs that left and whose end nobody knows yet count as running; their end is still to be told.
    """
    under_way = [(key, seen) for key, seen in [*cut.live.items(), *cut.gone.items()]]
    ended = _recently_ended(finished, {key for key, _ in under_way})
    under_way = [(key, seen) for key, seen in under_way if key not in ended]
    added = _table_of(under_way, finished, cut.started_before)
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(finished, name), getattr(added, name)])
        for name in (*_COLUMNS, *_REQUEUED, "status")
    }
    job_id = np.concatenate([-1 - np.arange(len(finished)), added.job_id])
    order = np.lexsort((job_id, columns["submit"]))
    whole = replace(finished, job_id=job_id, total_processors=cut.total_processors, **columns)
    return whole.select(order)


def _recently_ended(finished: JobTable, keys: set[int]) -> set[int]:
    """Which of some jobs are among the finished ones; ids of years ago are other jobs' ids."""
    if not len(finished):
        return set()
    recent = finished.end > finished.end.max() - 30 * 86_400.0
    return keys & set(finished.job_id[recent].tolist())


def _table_of(jobs: list[tuple[int, Seen]], like: JobTable, started_before: Container[int]) -> JobTable:
    submit = np.array([seen.submission.time for _, seen in jobs], np.float64)
    start = np.array([np.inf if seen.start is None else seen.start for _, seen in jobs], np.float64)

    def whole(name: str) -> NDArray[np.int64]:
        return np.array([getattr(seen.submission, name) for _, seen in jobs], np.int64)

    coded: dict[str, Any] = {name: whole(name) for name in CODED}
    return replace(
        like,
        job_id=np.array([key for key, _ in jobs], np.int64),
        submit=submit,
        wait=np.maximum(start - submit, 0.0),
        run=np.full(len(jobs), np.inf),
        processors=whole("processors"),
        requested_time=np.array([seen.submission.request for _, seen in jobs], np.float64),
        status=np.full(len(jobs), -1, np.int64),
        requeued_seconds=np.array([math.nan if key in started_before else 0.0 for key, _ in jobs]),
        is_whole=np.ones(len(jobs), np.bool_),
        **coded,
    )


def save(store: ModelStore, base: Base, forests: RollingForests, meta: Mapping[str, Any]) -> str:
    """Save both as one version, which is put in force; see :meth:`ModelStore.save`."""
    arrays: dict[str, NDArray[Any]] = {
        f"base.{name}": getattr(base.table, name) for name in (*_COLUMNS, *_REQUEUED, "job_id")
    }
    arrays["codes"] = np.frombuffer(json.dumps(base.codes.as_plain()).encode(), np.uint8)
    arrays |= {f"forest.{name}": array for name, array in forests.to_arrays().items()}
    known: dict[str, Any] = {
        "format": FORMAT,
        "base": base.name,
        "origin": base.table.start_of_log,
        "utc_offset_seconds": base.table.utc_offset_seconds,
        "total_processors": base.table.total_processors,
        "forests": forests.options.forests,
    }
    return store.save(PLACEMENT_KIND, arrays, {**meta, **known})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loaded:
    """What :func:`save` has written."""

    base: Base
    forests: RollingForests
    meta: Mapping[str, Any]


def load(store: ModelStore, options: ForecastOptions, version: str | None = None) -> Loaded:
    """Load the version in force, or another.

    Raises:
        UseFallback: There is none.
        TellAdmin, BadInput: Damaged, or not ours; the caller goes on without.
    """
    arrays, meta = store.load(PLACEMENT_KIND, version)
    try:
        return _rebuilt(arrays, meta, options)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(
            f"damaged: {error!r}",
            where="placement model",
            mend="Take the folder `placement` out of the models; `advisor control` makes a new one",
            code="placement.arrays",
        ) from None


def _rebuilt(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], options: ForecastOptions) -> Loaded:
    if meta["format"] != FORMAT:
        msg = f"format {meta['format']}, not {FORMAT}"
        raise ValueError(msg)
    columns: dict[str, Any] = {name: arrays[f"base.{name}"] for name in (*_COLUMNS, "job_id")}
    columns |= {name: arrays[f"base.{name}"] for name in _REQUEUED if f"base.{name}" in arrays}
    if len({len(column) for column in columns.values()}) != 1:
        msg = "columns of different lengths"
        raise ValueError(msg)
    table = JobTable(
        **columns,
        status=np.full(len(columns["submit"]), -1, np.int64),
        start_of_log=float(meta["origin"]),
        utc_offset_seconds=float(meta["utc_offset_seconds"]),
        total_processors=int(meta["total_processors"]),
        name="base",
    )
    prefix = "forest."
    trees = {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}
    return Loaded(
        base=Base(name=str(meta["base"]), table=table, codes=Codes(**json.loads(arrays["codes"].tobytes()))),
        forests=RollingForests.from_arrays(trees, replace(options, forests=int(meta["forests"]))),
        meta=meta,
    )
