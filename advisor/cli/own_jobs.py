"""The jobs that `whatif`, `plan` and `recommend` simulate: the site's own, or a log's."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace as changed
from numpy.typing import NDArray

from advisor.cli.progress import Tick
from advisor.decide.submission.table_row import job_of
from advisor.model.errors import BadInput, UseFallback
from advisor.model.job import Job
from advisor.model.machine import Asked, Machine, machine_index_by_partition
from advisor.model.site import SiteState
from advisor.model.table import JobTable
from advisor.service.admin.since import parse_since

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.history.store import HistoryStore
    from advisor.model.settings import Settings
    from advisor.replay.closed_loop.own_jobs import AtHome, OwnJobs
    from advisor.service.exchange.snapshot import Snapshot

Begin = Callable[["JobTable"], float]
"""Function from the jobs that ran and fit to the beginning of the window, epoch seconds."""

NEWEST_JOBS: Final = 700_000
"""So many jobs of a longer history are read, and more only for a window that needs more: five million take 7
GB and as many minutes, and `advisor web`, where people ask what if, has 4 GB."""


def lasting_state(settings: Settings) -> SiteState:
    """The site's last snapshot; of the cloud only what lasts: sizes, prices, the boot time.

    Availability of capacity and the number of free reserved nodes differed at each submission.
    """
    seen = _last_snapshot(settings).state
    lasting = changed(
        seen.cloud,
        reserved_free_nodes=0,
        spot_open=True,
        on_demand_open=True,
        protected="",
        steady_free_nodes=0,
        rooms={},
    )
    return changed(seen, cloud=lasting)


def _last_snapshot(settings: Settings) -> Snapshot:
    """What `advisor control` has last seen; an empty one where that is not known."""
    from advisor.service.exchange import snapshot

    try:
        return snapshot.read(settings.paths.snapshot)
    except UseFallback:
        return snapshot.Snapshot(state=SiteState(time=0.0, cluster=None))


def jobs_since(
    settings: Settings, since: str, trace: Path | None, processors: int, tick: Tick
) -> tuple[SiteState, OwnJobs]:
    """The site as last seen, and the jobs of the window that was asked for.

    Args:
        since: The value of ``--since``; for a log it counts back from the log's end.
        trace: A log, whose site is unknown; None: the site's history.
        processors: Those on-premise (``--nodes``); 0: as known.
    """
    if trace is None:
        seen = lasting_state(settings)
        return seen, jobs_of_site(settings, seen, processors, lambda _: parse_since(since, time.time()))

    def begin(table: JobTable) -> float:
        ends = table.submit + table.wait.clip(0.0) + table.run
        return parse_since(since, float(ends.max()) if len(table) else time.time())

    return SiteState(time=0.0, cluster=None), _jobs_of_log(trace, processors, begin, tick)


def jobs_of_site(settings: Settings, seen: SiteState, processors: int, begin: Begin) -> OwnJobs:
    """The jobs of the site's history, with what each said at its submission.

    Args:
        settings: The settings in force, which name the burst partition.
        seen: The site as last seen: its size, and the learned performance ratios.
        processors: Those on-premise, as one machine; 0: as Slurm says, each machine with its own queue, else
            the most that were ever busy at once.

    Raises:
        BadInput: The window is empty.
    """
    from advisor.history.store import HistoryStore
    from advisor.replay.closed_loop import own_jobs as own

    newest, since = NEWEST_JOBS, None
    with HistoryStore(settings.history_url, read_only=True) as store:
        while since is None:
            ended_since = store.end_of_newest(newest)
            table, in_cloud, machine, machines = _fitting(store, settings, seen, processors, ended_since)
            since, newest = _begin_of_window(begin, table, ended_since), 4 * newest
        jobs = own.window(table, since=since, machine=machine, machines=machines)
        said = own.with_array_tasks(one.job for one in store.outcomes(since))
    here = own.window(table.select(~in_cloud), since=since, machine=machine, machines=machines)
    burst = settings.cluster.burst_partition

    def job_at(row: int) -> Job:
        key = (int(table.job_id[row]), float(table.submit[row] - table.ineligible_seconds[row]))
        in_table = job_of(table, row, with_queue=True)
        job = said.get(key, in_table)
        if not in_cloud[row]:
            return job
        # a job that we have moved came from one of our partitions: the default one where none is known
        home = None if in_table.queue == burst else in_table.queue
        return changed(job, queue=home, explicit_partition=False)

    return own.OwnJobs(since=since, jobs=jobs, here=here, job_at=job_at)


def _fitting(
    store: HistoryStore, settings: Settings, seen: SiteState, processors: int, ended_since: float
) -> tuple[JobTable, NDArray[np.bool_], int, tuple[Machine, ...]]:
    """The jobs that fit, as on-premise; which of them ran in the cloud; processors, and the machines.

    A job is submitted when it might start.
    """
    from advisor.history.columns import in_burst
    from advisor.replay.closed_loop import own_jobs as own

    offset = settings.cluster.utc_offset_seconds
    whole = own.in_epoch_seconds(store.table(ended_since, utc_offset_seconds=offset))
    in_cloud = in_burst(whole, settings.cluster.burst_partition)
    machine = processors or (0 if seen.cluster is None else seen.cluster.total_processors)
    machines = () if processors else _machines_seen(settings)
    machine = machine or sum(one.processors for one in machines) or own.busiest(whole.select(~in_cloud))
    table = own.as_on_premise(whole, _on_premise(store, settings, seen, whole, in_cloud, machines))
    in_cloud, table = in_cloud[own.by_eligibility(table)], own.from_eligibility(table)
    fits = own.which_fit(table, machine, machines)
    return table.select(fits), in_cloud[fits], machine, machines


def _begin_of_window(begin: Begin, table: JobTable, ended_since: float) -> float | None:
    """Where the window begins; None where jobs of it, or those that teach before it, may have ended earlier.

    Args:
        ended_since: The table has all jobs that have ended since then, epoch seconds.
    """
    from advisor.replay.closed_loop.learned_runs import MAX_HISTORY

    if ended_since == -math.inf:
        return begin(table)
    try:
        since = begin(table)
    except BadInput:  # so few jobs
        return None
    is_enough = ended_since <= since and table.submit.searchsorted(since) >= MAX_HISTORY
    return since if is_enough else None


def _machines_seen(settings: Settings) -> tuple[Machine, ...]:
    """What the on-premise partitions consist of, as last seen; empty where that is not known."""
    return tuple(queue.machine for queue in _last_snapshot(settings).queues)


def _on_premise(
    store: HistoryStore,
    settings: Settings,
    seen: SiteState,
    whole: JobTable,
    in_cloud: NDArray[np.bool_],
    machines: Sequence[Machine],
) -> dict[int, AtHome]:
    """Row of a job that ran in the cloud to what it would have been on-premise, as learned live.

    Args:
        seen: The site as last seen: the learned performance ratios.
        whole: All jobs, times in epoch seconds.
        in_cloud: Whether a job ran in the cloud.
        machines: What the on-premise partitions consist of.
    """
    from advisor.decide.submission.cloud_terms import likely_slowdown_of, ratio_of
    from advisor.replay.closed_loop.own_jobs import AtHome
    from advisor.service.learn.on_premise_equivalents import on_premise_outcome

    place_of = machine_index_by_partition(machines)

    def ratio(job: Job) -> float:
        return likely_slowdown_of(job, ratio_of(job, seen.ratios), settings.placement)

    def at_home(row: int, run: float, job: Job) -> AtHome:
        machine = machines[place_of.get(job.queue or "", 0)] if machines else Machine((), 0)
        _, memory, gpus = whole.held[row].tolist()
        asked = Asked(job.processors, job.nodes or 1, memory, gpus, job.queue or "", job.whole_nodes)
        return AtHome(run, job.queue, machine.taken_by(asked))

    row_of: dict[tuple[int, float], int] = {}
    found: dict[int, AtHome] = {}
    for row in in_cloud.nonzero()[0].tolist():
        job = job_of(whole, row, with_queue=True)
        row_of[job.job_id, job.submit_time] = row
        found[row] = at_home(row, float(whole.run[row]) / ratio(job), job)
    for outcome in store.recent(len(row_of), partition=settings.cluster.burst_partition):
        at = row_of.get((outcome.job.job_id, outcome.job.submit_time))
        if at is not None:
            here = on_premise_outcome(outcome, settings, store, ratio)
            found[at] = at_home(at, here.run_seconds, here.job)
    return found


def _jobs_of_log(trace: Path, processors: int, begin: Begin, tick: Tick) -> OwnJobs:
    """The jobs of a log; all may move, because a log does not know our partitions.

    Args:
        processors: Those on-premise; 0: as its header says, else the most that were ever busy at once.
    """
    from advisor.replay.closed_loop import own_jobs as own
    from advisor.replay.sources import load_table

    whole = own.in_epoch_seconds(load_table(trace, progress=lambda done, all_: tick("reading", done, all_)))
    machine = processors or whole.total_processors or own.busiest(whole)
    table = own.that_fit(replace(whole, total_processors=machine), machine)
    since = begin(table)
    jobs = own.window(table, since=since, machine=machine)
    return own.OwnJobs(since=since, jobs=jobs, here=jobs, job_at=lambda row: job_of(table, row))
