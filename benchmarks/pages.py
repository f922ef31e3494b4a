"""The pages over a history of 200,000 finished jobs: each page's first and later views, the redrawn curve.

Seconds are those of the server, in this process, from the request to the last byte; a browser's own drawing
comes on top (`tests/web/test_browser.py` looks at that).
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from msgspec.structs import replace as changed
from starlette.testclient import TestClient

from advisor.config import load
from advisor.decide.submission.advise import advise
from advisor.decide.submission.policy import in_force
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.cluster import ClusterState
from advisor.model.estimate import Estimate, Estimates
from advisor.model.job import Job, JobOutcome
from advisor.model.settings import Settings
from advisor.model.site import CloudState, Cutoff, SiteState
from advisor.replay.closed_loop.recommendation import BudgetPoint
from advisor.service.admin.curves import LIMITS, KeptCurves, LimitCurve, keep
from advisor.web.app import create_app
from advisor.web.gate import COOKIE
from advisor.web.persons import Person, Role
from advisor.web.site import Site
from advisor.web.whatif_runs import WhatIfRuns

Tell = Callable[[str], None]

PAGES: Final = tuple(
    f"/{name}"
    for name in (
        *("", "tune", "accuracy", "decisions", "jobs/100", "ledger", "money", "nodes", "portfolio", "whatif"),
    )
)
_WEEKS: Final = 12
_WEEK: Final = 7 * 86_400.0
_MOVED_SHARE: Final = 0.1
_ADDRESS: Final = "http://127.0.0.1:9420"


def run(*, jobs: int = 200_000, seed: int = 1, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Seconds of each page by the clock, and the size of the history, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        tell("making the history")
        config = make_site(Path(folder), jobs=jobs, seed=seed)
        site = Site(load(config, {}).settings, lambda: load(config, {}), WhatIfRuns(("false",)))
        with TestClient(create_app(site), base_url=_ADDRESS, follow_redirects=False) as client:
            client.cookies.set(COOKIE, site.gate.open(Person("bench", Role.ADMIN)))
            rows = []
            for path in PAGES:
                tell(path)
                seconds = [_seconds(client, path) for _ in range(4)]
                rows.append((path, seconds[0], min(seconds[1:])))
            tell("the curve")
            redrawn = [_seconds(client, f"/tune?budget.usd={usd}") for usd in range(500, 1500, 50)]
        return {
            "jobs": jobs,
            "weeks": _WEEKS,
            "history_mb": (Path(folder) / "state" / "history.db").stat().st_size / 1e6,
            "rows": [{"page": page, "first": first, "later": later} for page, first, later in rows],
            "slowest_first": max(first for _, first, _ in rows),
            "redraw": {"median": float(np.median(redrawn)), "max": max(redrawn)},
        }


def _seconds(client: TestClient, path: str) -> float:
    begun = time.perf_counter()
    answer = client.get(path)
    seconds = time.perf_counter() - begun
    if answer.status_code != 200:
        msg = f"{path}: {answer.status_code}"
        raise RuntimeError(msg)
    return seconds


def make_site(folder: Path, *, jobs: int, seed: int) -> Path:
    """Settings of a site with a history and curves; returns the settings file."""
    config = folder / "advisor.toml"
    for name in ("run", "state"):
        (folder / name).mkdir()
    config.write_text(
        '[cluster]\nname = "bench"\non_premise_partitions = ["main", "long"]\ndefault_mode = "act"\n'
        "[budget]\nusd = 1000.0\n"
        f'[paths]\nstate = "{folder}/state"\nrun = "{folder}/run"\n'
    )
    settings = load(config, {}).settings
    _fill(settings, jobs, seed)
    keep(settings.paths.state, _curves())
    return config


def _fill(settings: Settings, jobs: int, seed: int) -> None:
    """Jobs over twelve weeks, a tenth of them moved, each with advice whose forecast is about right."""
    random = np.random.default_rng(seed)
    now = time.time()
    begin = now - _WEEKS * _WEEK
    submits = np.sort(random.uniform(begin, now - 7200.0, jobs))
    waits, runs = random.lognormal(7.5, 1.0, jobs), random.lognormal(7.0, 1.2, jobs)
    moved = random.random(jobs) < _MOVED_SHARE
    stays, goes = (_template(settings, moved=one) for one in (False, True))
    users = [f"user{number}" for number in range(80)]

    def records() -> Iterator[AdviceRecord]:
        for number in range(jobs):
            wait, at = float(waits[number]), float(submits[number])
            estimates = Estimates(
                wait=_estimate(wait * random.lognormal(0.0, 0.4)),
                run=_estimate(float(runs[number]) * random.lognormal(0.0, 0.4)),
            )
            template = goes if moved[number] else stays
            job = changed(
                template.job, user=users[number % 80], submit_time=at, account=f"group{number % 12}"
            )
            advice = changed(template.advice, advice_id=f"a{number + 1}", time=at)
            yield AdviceRecord(advice=advice, job=job, estimates=estimates)

    def outcomes() -> Iterator[JobOutcome]:
        for number in range(jobs):
            wait = 120.0 if moved[number] else float(waits[number])
            start = float(submits[number]) + wait
            where = settings.cluster.burst_partition if moved[number] else "main"
            job = changed(
                stays.job, job_id=number + 1, submit_time=float(submits[number]), user=users[number % 80]
            )
            ran = JobOutcome(
                job=job,
                start_time=start,
                end_time=start + float(runs[number]),
                partition=where,
                advice_id=f"a{number + 1}",
            )
            yield ran

    with HistoryStore(settings.history_url) as store:
        store.add_advice(records())
        store.add(outcomes())
        store.set_costs({int(number) + 1: 0.05 for number in np.flatnonzero(moved)})


def _template(settings: Settings, *, moved: bool) -> AdviceRecord:
    """An advice as the published rule gives it; the price would need a price."""
    job = Job(job_id=0, submit_time=0.0, processors=4, user="user", queue="main", requested_time=7200.0)
    asked = changed(job, name="relax", comment=None if moved else settings.rules.opt_out_comment)
    estimates = Estimates(wait=_estimate(9000.0), run=_estimate(1800.0))
    cluster = ClusterState(
        time=0.0,
        queue_size=3,
        queued_work_core_seconds=5e5,
        remaining_work_core_seconds=1e5,
        free_processors=0,
        total_processors=64,
        running_jobs=4,
    )
    cloud = CloudState(nodes_with=MappingProxyType({"spot": 20, "on-demand": 20}))
    state = SiteState(time=0.0, cluster=cluster, cloud=cloud, cutoff=Cutoff(scale=math.inf, decay=0.0))
    by_rule = settings.cluster.model_copy(update={"policy": "cunha2017"})
    published = in_force(settings.model_copy(update={"cluster": by_rule}))
    given = advise(asked, state, estimates, published, advice_id="a")
    return AdviceRecord(advice=given, job=asked, estimates=estimates)


def _estimate(seconds: float) -> Estimate:
    return Estimate(seconds=seconds, variance=(0.4 * seconds) ** 2, lower=0.5 * seconds, upper=2.0 * seconds)


def _curves() -> KeptCurves:
    def point(usd: float, share: float) -> BudgetPoint:
        saved = share * 60.0 * math.sqrt(usd)
        return BudgetPoint(
            budget_share=usd / 40_000.0,
            usd=usd,
            cost_usd=0.93 * usd,
            saved_hours=saved,
            saved_hours_low=0.8 * saved,
            saved_hours_high=1.2 * saved,
            saved_hours_by_week=tuple(saved / 4.0 for _ in range(_WEEKS)),
            mean_wait_seconds=9000.0 - 0.5 * usd,
            moved_jobs=usd,
            later_share=0.02,
        )

    budgets = (200.0, 400.0, 800.0, 2000.0, 4000.0, 8000.0)
    now = time.time()
    return KeptCurves(
        time=now,
        begin=now - _WEEKS * _WEEK,
        end=now,
        jobs=200_000,
        weeks=_WEEKS,
        usd_per_core_hour=0.04,
        mean_wait_seconds=9000.0,
        worth_usd=0.3,
        curves=tuple(
            LimitCurve(
                limit_minutes=None if math.isinf(limit) else limit,
                points=tuple(point(usd, 1.0 - 0.12 * number) for usd in budgets),
            )
            for number, limit in enumerate(LIMITS)
        ),
    )
