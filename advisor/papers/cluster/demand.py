"""The input of the simulated cluster: jobs as columns."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from advisor.arrays import Floats, Ints
from advisor.model.errors import BadInput
from advisor.model.table import JobTable

STARVED, SMALL, DOUBTFUL, PROBED, LARGE = 0, 1, 2, 3, 4
"""Classes in the order they are served; no job is submitted as starved. ``DOUBTFUL``: perhaps small."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Demand:
    """Jobs in submission order, one array per column, all of length n; times in seconds.

    Attributes:
        submit, run: Submission (ascending) and true run time (above 0).
        processors: At least 1.
        requested: Requested time, by which SPF, SAF and WFP sort, and planned for a second attempt; above 0.
        planned: Time planned for the first attempt.
        limit: The first attempt is killed after this run time (the divider, or a probe's length) and queued
            once more as large, without limit; infinite: never.
        job_class: SMALL, DOUBTFUL, PROBED or LARGE.
        user: 0 or more; only EASY++ uses it.
    """

    submit: Floats
    run: Floats
    processors: Ints
    requested: Floats
    planned: Floats
    limit: Floats
    job_class: Ints
    user: Ints

    def __len__(self) -> int:
        return len(self.submit)


def demand_of(
    table: JobTable,
    *,
    planned: Floats | None = None,
    requested: Floats | None = None,
    limit: Floats | None = None,
    job_class: Ints | None = None,
) -> Demand:
    """The jobs of a table that ran, planned by default with what their users requested.

    A job without a requested time counts as having requested its run time, as in the independent simulator
    that the figures are compared with. No scheduler knows that: `limits_of` is the honest number, and where
    many jobs are without, orders by request look better than they are. Raises BadInput as :func:`check` does.
    """
    count = len(table)
    if requested is None:
        requested = np.where(np.isnan(table.requested_time), table.run, table.requested_time)
    users = np.unique(table.user, return_inverse=True)[1]
    demand = Demand(
        submit=table.submit,
        run=table.run,
        processors=table.processors,
        requested=requested,
        planned=requested if planned is None else planned,
        limit=np.full(count, np.inf) if limit is None else limit,
        job_class=np.full(count, LARGE) if job_class is None else job_class,
        user=users.astype(np.int64),
    )
    check(demand)
    return demand


def check(demand: Demand) -> None:
    """Raise BadInput for columns of different length, jobs out of order, or values out of range."""
    troubles = {
        "columns differ in length": len({len(getattr(demand, column.name)) for column in fields(demand)}) > 1,
        "jobs are not in submission order": bool(np.any(np.diff(demand.submit) < 0)),
        "a job has no run time": not np.all((demand.run > 0) & np.isfinite(demand.run)),
        "a job has no processors": bool(np.any(demand.processors < 1)),
        "a planned or requested time is not above 0": not (
            np.all(demand.requested > 0) and np.all(demand.planned > 0)
        ),
        "a limit is not above 0": not np.all(demand.limit > 0),
        "a class is unknown": not np.all((demand.job_class >= SMALL) & (demand.job_class <= LARGE)),
        "a user is below 0": bool(np.any(demand.user < 0)),
    }
    for trouble, found in troubles.items():
        if found:
            raise BadInput(
                trouble, where="simulated workload", mend="Correct the jobs", code="simulate.demand"
            )
