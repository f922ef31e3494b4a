"""Which policy should lead: all of them, simulated hourly on the burst jobs that have ended.

A loop beside the portfolio loop, since it takes long. The method is that of `advisor replay portfolio`
(:mod:`advisor.decide.portfolio.portfolio_standing`): scores begin with a prior from synthetic
workloads; the policy with the best score is the champion, if its order of jobs also won more days; a
selection leads only where it would have been clearly better.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np
import structlog

from advisor.arrays import Floats
from advisor.decide.portfolio.portfolio_evidence import DAY_SECONDS
from advisor.decide.portfolio.portfolio_lead import utility_of
from advisor.decide.portfolio.portfolio_options import CHAMPION, Options, usual_evidence, usual_margins
from advisor.decide.portfolio.portfolio_standing import Watcher, standing
from advisor.decide.portfolio.replay_knowledge import prior_of
from advisor.files.state_file import StateFile
from advisor.history.store import HistoryStore
from advisor.model.errors import RetryLater
from advisor.model.job import JobOutcome
from advisor.model.settings import Settings
from advisor.model.table import JobTable
from advisor.service.portfolio.burst_history import JUDGED_JOBS
from advisor.service.portfolio.portfolio_view import nodes_of
from advisor.service.running.clock import Clock
from advisor.service.running.loops import Step
from advisor.service.state.records import JudgedPolicies, Verdict
from advisor.simulate.portfolio.cluster import Cloud, Runtimes
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, Release, RentingPolicy

log = structlog.get_logger(__name__)

_MIN_SPANS: Final = 16
"""The evidence is divided into at least this many spans."""
_PERIOD_SECONDS: Final = 3600.0
_SOON_SECONDS: Final = 5.0
_MAX_SECONDS: Final = 600.0
"""Well below the watchdog's limit for a stuck loop."""
_PRIOR_NODES: Final = 256
"""The paper's cloud; on a few nodes the synthetic workload could only show that they are too few."""
_NICE: Final = 15


def policies_of(settings: Settings) -> tuple[RentingPolicy, ...]:
    """The policies of the site's portfolio."""
    ours = settings.portfolio
    if ours.policies == "paper":
        return PUBLISHED
    return PUBLISHED + tuple(policy for policy in BEYOND if policy.headroom <= ours.max_warm_nodes)


def options_of(settings: Settings, nodes: int, boot_seconds: float) -> Options:
    """How the portfolio is simulated on the site's jobs."""
    ours = settings.portfolio
    options = Options(
        policies=policies_of(settings),
        cloud=Cloud(
            release=Release.of_billing(ours.billing),
            max_nodes=max(nodes, 1),
            boot_seconds=boot_seconds,
            tick_seconds=ours.period_seconds,
        ),
        runtimes=Runtimes.OURS,
        margins=usual_margins(Runtimes.OURS),
        evidence=usual_evidence(Runtimes.OURS),
        alpha=ours.alpha,
        beta=ours.beta,
    )
    return options if ours.leader == "auto" else replace(options, margins=())


class PortfolioJudge:
    """Judges once an hour, in a thread of its own.

    Args:
        burst: Nodes of the burst partition, processors of one node, and boot time in seconds; raises
            RetryLater while they are unknown.
    """

    name = "portfolio judge"

    def __init__(
        self,
        settings: Settings,
        *,
        store: HistoryStore,
        state: StateFile[JudgedPolicies],
        clock: Clock,
        burst: Callable[[], tuple[int, int, float]],
    ) -> None:
        self._settings = settings
        self._store = store
        self._state = state
        self._clock = clock
        self._burst = burst
        self._stopping = threading.Event()
        kept = state.read()
        self._key = _key_of(settings)
        is_ours = kept.key == self._key
        self.verdict = kept.verdict if is_ours else None
        prior = np.array(kept.prior, np.float64)
        self._prior = prior if is_ours and len(prior) == len(policies_of(settings)) else None
        self._is_done = False
        self._began = 0.0  # monotonic seconds

    @property
    def period_seconds(self) -> float:
        """An hour; seconds until it has succeeded once."""
        return (
            _PERIOD_SECONDS if self._is_done else min(_SOON_SECONDS, self._settings.portfolio.period_seconds)
        )

    def steps(self) -> Sequence[Step]:
        """See :class:`~advisor.service.running.loops.Loop`."""
        return (Step("judge the policies", self.judge),)

    def stop(self) -> None:
        """Abort a simulation that runs."""
        self._stopping.set()

    def judge(self) -> None:
        """Simulate all policies on the jobs that have ended, and store the verdict.

        Raises:
            RetryLater: There is no snapshot of the burst partition yet, or the process stops.
        """
        _be_nice()
        self._began = self._clock.monotonic()
        nodes, processors, boot_seconds = self._burst()
        options = options_of(self._settings, nodes, boot_seconds)
        if self._prior is None:
            room = replace(options.cloud, max_nodes=_PRIOR_NODES)
            self._prior = prior_of(options.policies, replace(options, cloud=room), self._tick)
        recent = self._store.recent(JUDGED_JOBS, partition=self._settings.cluster.burst_partition)
        table = table_of(recent, processors_per_node=processors, widest=nodes)
        self.verdict = verdict = _judged(table, options, self._prior, self._tick, self._clock.wall())
        self._is_done = True
        self._state.write(JudgedPolicies(key=self._key, prior=self._prior.tolist(), verdict=verdict))
        log.info("portfolio.judged", champion=verdict.champion, leader=verdict.leader, jobs=verdict.jobs)

    def _tick(self, *_: object) -> None:
        if self._stopping.is_set():
            raise RetryLater(
                "advisor control stops, and the simulation with it: it is made again after the start",
                code="portfolio.stopping",
            )
        if self._clock.monotonic() - self._began > _MAX_SECONDS:
            self._is_done = True  # once an hour is often enough for that
            raise RetryLater(
                f"the simulation took {_MAX_SECONDS:.0f} s and was stopped: "
                "the policy that leads stays, and the simulation is tried again in an hour",
                code="portfolio.too_slow",
            )


def table_of(outcomes: Sequence[JobOutcome], *, processors_per_node: int, widest: int) -> JobTable:
    """Ended jobs as a table, by submission, in whole nodes, without jobs wider than ``widest``."""
    ran = [
        (outcome, nodes)
        for outcome in outcomes
        if outcome.end_time > outcome.start_time
        and outcome.is_whole
        and (nodes := nodes_of(outcome.job, processors_per_node)) <= widest
    ]
    ran.sort(key=lambda pair: (pair[0].job.submit_time, pair[0].job.job_id))
    jobs = [outcome.job for outcome, _ in ran]
    first = jobs[0].submit_time if jobs else 0.0
    codes = {user: code for code, user in enumerate(dict.fromkeys(job.user for job in jobs))}
    whole = np.array([job.job_id for job in jobs], np.int64)
    unknown = np.full(len(jobs), -1, np.int64)
    return JobTable(
        job_id=whole,
        submit=np.array([job.submit_time - first for job in jobs], np.float64),
        wait=np.array([max(0.0, o.start_time - o.job.submit_time) for o, _ in ran], np.float64),
        run=np.array([outcome.end_time - outcome.start_time for outcome, _ in ran], np.float64),
        processors=np.array([nodes for _, nodes in ran], np.int64),
        requested_time=np.array(
            [math.nan if job.requested_time is None else job.requested_time for job in jobs], np.float64
        ),
        user=np.array([codes[job.user] for job in jobs], np.int64),
        group=unknown,
        queue=unknown,
        status=unknown,
        name="burst jobs",
    )


def _judged(
    table: JobTable, options: Options, prior: Floats, tick: Callable[..., None], now: float
) -> Verdict:
    names = [policy.name for policy in options.policies]
    scores = utility_of(prior, options)
    champion, leader, charged, slowdown = int(np.argmax(scores)), CHAMPION, 0.0, 0.0
    if len(table):
        options = replace(options, day_seconds=_telling_span(table, options))
        found = standing(table, options, Watcher(tick), prior)
        champion, leader = int(found.champions[-1]), int(found.leaders[-1])
        scores = found.scores
        charged = found.alone[champion].charged_seconds
        slowdown = found.alone[champion].slowdown_sum
    return Verdict(
        champion=names[champion],
        leader=None if leader == CHAMPION else options.margins[leader],
        scores={name: float(score) for name, score in zip(names, scores, strict=True)},
        charged_seconds=charged,
        slowdown_sum=slowdown,
        jobs=len(table),
        time=now,
    )


def _telling_span(table: JobTable, options: Options) -> float:
    """Seconds that count as one day: a site with a thousand jobs in two days would never have enough days."""
    span = float(table.submit[-1] - table.submit[0])
    return min(DAY_SECONDS, max(span / _MIN_SPANS, options.checkpoint_seconds))


def _key_of(settings: Settings) -> str:
    """A key of the settings; a verdict under other settings is not used."""
    ours = settings.portfolio
    names = ",".join(policy.name for policy in policies_of(settings))
    return f"3 {names} {ours.billing} {ours.alpha} {ours.beta} {ours.leader == 'auto'}"


def _be_nice() -> None:
    """Lower this thread's priority below the submit server and Slurm; never that of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        with suppress(OSError):  # already nicer than that, or not allowed to say so
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
