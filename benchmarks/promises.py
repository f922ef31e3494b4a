"""Promises on a real slurmctld, with the shipped daemons and an EC2 emulator: kept or not, and their cost.

A day squeezed to minutes arrives at a cluster that is too small for it. Every second job asks for the price
list first, as a user would. Where the cloud would be sooner it names one of the list's times, until enough
are promised: in turn the soonest, one half-way to the free one, and the free one. A time that the queue has
overtaken meanwhile is refused, and is no promise. No job moves for its wait alone, so all money is spent for
promises.
"""

from __future__ import annotations

import json
import math
import os
import pwd
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.history.store import HistoryStore
from advisor.model.errors import AdvisorError
from advisor.service.exchange.client import SubmitClient
from advisor.testing.site import PATIENT, Site, SiteOptions
from benchmarks.live_day import SLOWDOWN, LiveDay, draw_live_day, program
from benchmarks.live_fates import LiveJob
from benchmarks.live_site import SCRIPT, lab_options, read_accounting, read_scripts

CONFIDENCE: Final = 0.95
_KINDS: Final = ("soonest", "between", "free")
_NODES: Final = 12
"""Half of what the days before had."""
_LEAD_SECONDS: Final = 5.0
_ENDS_WITHIN: Final = 1200.0
_JUDGED_WITHIN: Final = 60.0
_ASKED: Final = "by=+30d"
"""A time that is far off: the answer has the price list, and nothing is bought."""
_SHOWN: Final = ("advised_after", "deadline_in", "chance_here", "chance_there", "last_start_in", "boot")
_PROMISED: Final = ("is promised", "costs nothing")
"""How sbatch's message about a named time ends."""
_NEXT_TO_NOTHING: Final = 1e-6
_BUDGET_USD: Final = 1000.0


@dataclass(slots=True, kw_only=True)
class Named:
    """A job whose user named a time.

    Attributes:
        kind: The row of the price list that it is of.
        seconds: From the submission to the time.
        limit: Its time limit, seconds.
        is_promised: Whether `advisor serve` said so at the submission.
        last_reason: What was decided about it last.
        numbers: Those of that decision, and how long after the submission it was taken, seconds.
    """

    kind: str
    seconds: float
    limit: float
    job: LiveJob
    is_promised: bool = False
    last_reason: str = ""
    numbers: dict[str, float] = field(default_factory=dict)
    ended: float = math.nan
    late_seconds: float = math.nan
    where: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether it was done by then, to the second of Slurm's own clock."""
        return self.late_seconds <= 1.0


@dataclass(slots=True)
class _Submitted:
    jobs: list[LiveJob] = field(default_factory=list)
    named: list[Named] = field(default_factory=list)
    asked: int = 0
    unanswered: int = 0


def run(
    *,
    promises: int,
    jobs: int,
    seconds: float,
    seed: int,
    boot_seconds: float,
    places: bool,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Submit a day, judge its promises.

    Args:
        promises: Jobs that name a time.
        jobs: All jobs.
        seconds: In which they arrive.
        boot_seconds: Of a cloud node, as the settings expect it.
        places: Whether jobs in the cloud keep their place on-premise.
    """
    day = draw_live_day(seed, jobs=jobs, seconds=seconds, budget_share=1.0, boot_seconds=boot_seconds)
    with tempfile.TemporaryDirectory(prefix="promises-") as name:
        lab = replace(lab_options(), nodes=_NODES)
        options = SiteOptions(lab=lab, settings=_settings(day, places=places), boot_seconds=2.0)
        with Site(Path(name), options) as site:
            begin = _ready(site, day, tell)
            done = _submit(site, day.begun_at(begin), promises, begin, tell)
            site.lab.wait_for_jobs([job.job_id for job in done.jobs], seconds=_ENDS_WITHIN)
            time.sleep(5.0)  # slurmdbd is told of the last ends
            read_scripts(site.lab, done.jobs)
            read_accounting(site.lab, done.jobs, begin)
            _await_judgement(site, done.named)
            site.wait_until(
                "the nodes are gone",
                lambda: all(one["state"] == "terminated" for one in site.ec2.instances()),
            )
            costs = _judge(site, done.named)
            return _report(site, done, costs)


def _settings(day: LiveDay, *, places: bool) -> dict[str, dict[str, Any]]:
    settings = day.settings(slices=places)
    settings["budget"] = {
        "usd": _BUDGET_USD,
        "period": "day",
        "usd_per_hour_saved": _NEXT_TO_NOTHING,  # no job moves for its wait alone
    }
    settings["promise"] = {"enabled": True, "confidence": CONFIDENCE}
    settings["loops"] = {**settings["loops"], "learn_seconds": 2.0}
    return settings | {"submit": dict(PATIENT)}


def _ready(site: Site, day: LiveDay, tell: Callable[[str], None]) -> float:
    """Start the daemons with the days before as their history; returns when the day begins."""
    past = day.begun_at(time.time() + 60.0)
    with HistoryStore(f"sqlite:///{site.state / 'history.db'}") as store:
        store.add(past.past(), source="swf:past")
    past.write_price(site.state)
    site.start_advisor()
    with SubmitClient(site.folder / "run" / "submit.sock") as client:
        site.wait_until("waits and run times are known", lambda: bool(_numbers(client, day, 0)))
    tell("waits and run times are known")
    return time.time() + _LEAD_SECONDS


def _numbers(client: SubmitClient, day: LiveDay, row: int) -> dict[str, float]:
    """What the price list of a job is made from, seconds; empty where there is none."""
    user = pwd.getpwuid(os.getuid())
    try:
        reply = client.advise(
            dry=True,
            user=user.pw_name,
            uid=user.pw_uid,
            gid=user.pw_gid,
            name=_name(day, row),
            comment=_ASKED,
            time_limit=_minutes(day, row),
            num_tasks=int(day.window.processors[row]),
        )
    except AdvisorError:
        return {}
    recorded = parse_admin_comment(reply.admin_comment)
    found = dict(recorded.numbers) if recorded else {}
    return found if math.isfinite(found.get("free_in", math.nan)) else {}


def _named_seconds(kind: str, numbers: dict[str, float]) -> float:
    """The time that a user names who has read the price list."""
    soonest, free = numbers["soonest_in"], numbers["free_in"]
    return {"soonest": soonest, "between": (soonest + free) / 2.0, "free": free}[kind]


def _submit(site: Site, day: LiveDay, promises: int, begin: float, tell: Callable[[str], None]) -> _Submitted:
    done, first = _Submitted(), float(day.window.submit[0])
    with SubmitClient(site.folder / "run" / "submit.sock") as client:
        for row in range(len(day)):
            time.sleep(max(0.0, begin + float(day.window.submit[row]) - first - time.time()))
            asks = row % 2 == 0 and sum(one.is_promised for one in done.named) < promises
            numbers = _numbers(client, day, row) if asks else {}
            done.asked += asks
            done.unanswered += asks and not numbers
            kind = _KINDS[len(done.named) % len(_KINDS)] if _has_choice(numbers) else ""
            seconds = _named_seconds(kind, numbers) if kind else math.nan
            job, is_promised = _sbatch(site, day, row, seconds)
            done.jobs.append(job)
            if kind:
                named = Named(
                    kind=kind,
                    seconds=seconds,
                    limit=60.0 * _minutes(day, row),
                    job=job,
                    is_promised=is_promised,
                )
                done.named.append(named)
            if row % 50 == 49:
                tell(f"{row + 1} of {len(day)} jobs submitted, {len(done.named)} of them with a time")
    return done


def _has_choice(numbers: dict[str, float]) -> bool:
    """Whether the cloud is sooner; a job that starts at once has one row, which is free."""
    return numbers.get("soonest_in", math.inf) < numbers.get("free_in", math.inf)


def _sbatch(site: Site, day: LiveDay, row: int, seconds: float) -> tuple[LiveJob, bool]:
    ran = float(day.window.run[row])
    options = [
        f"--ntasks={int(day.window.processors[row])}",
        f"--time={_minutes(day, row)}",
        f"--job-name={_name(day, row)}",
        "--open-mode=append",
    ]
    if not math.isnan(seconds):
        options.append(f"--comment=by=+{math.ceil(1000.0 * seconds / 60.0 + 0.5) / 1000.0:.3f}min")
    submit = time.time()
    done = site.lab.sbatch(*options, script=SCRIPT.format(here=ran, cloud=SLOWDOWN * ran))
    return LiveJob(job_id=done.job_id, submit=submit), any(words in done.message for words in _PROMISED)


def _name(day: LiveDay, row: int) -> str:
    return program(int(day.window.table.executable[day.window.first + row]))


def _minutes(day: LiveDay, row: int) -> int:
    return int(day.window.limit[row]) // 60


def _status(site: Site) -> dict[str, Any]:
    control: dict[str, Any] = json.loads(site.advisor("status", "--format", "json").stdout)["control"]
    return control


def _await_judgement(site: Site, named: list[Named]) -> None:
    """Wait until `advisor control` has counted all promises; what it has not counted by then is reported."""
    promised, end = sum(one.is_promised for one in named), time.monotonic() + _JUDGED_WITHIN
    while int(_status(site)["promises"]["made"]) < promised and time.monotonic() < end:
        time.sleep(1.0)


def _judge(site: Site, named: list[Named]) -> dict[int, float]:
    """Fill in what became of each; returns the costs of the jobs that were in the cloud, US dollars."""
    with HistoryStore(f"sqlite:///{site.state / 'history.db'}", read_only=True) as store:
        costs = {row.job_id: row.cost_usd for row in store.ledger() if row.cost_usd}
        for one in named:
            record, ended = store.advice_of(one.job.job_id), store.of_job(one.job.job_id)
            if record is not None:
                one.last_reason = record.advice.decisive.reason
                one.numbers = record.advice.values() | {"advised_after": record.advice.time - one.job.submit}
            done = next((ran for ran in one.job.runs if ran.state == "COMPLETED"), None)
            if done is not None and ended is not None:
                one.ended, one.where = done.end, done.partition
                one.late_seconds = done.end - (ended.job.submit_time + one.seconds)
    return costs


def _report(site: Site, done: _Submitted, costs: dict[int, float]) -> dict[str, Any]:
    status = _status(site)
    promised = [one for one in done.named if one.is_promised]
    missed = [one for one in promised if not one.is_kept]
    return {
        "jobs": len(done.jobs),
        "lost": sum(job.is_lost for job in done.jobs),
        "asked_for_a_list": done.asked,
        "without_list": done.unanswered,
        "named_a_time": len(done.named),
        "promised": len(promised),
        "kept": len(promised) - len(missed),
        "missed": len(missed),
        "kept_share": 1.0 - len(missed) / len(promised) if promised else None,
        "confidence": CONFIDENCE,
        "kinds": {kind: _of_kind(kind, promised) for kind in _KINDS},
        "in_the_cloud": sum(one.job.was_in_cloud for one in promised),
        "came_back": sum(one.job.was_in_cloud and one.where != "burst" for one in promised),
        "cost_usd": sum(costs.get(one.job.job_id, 0.0) for one in promised),
        "nodes_usd": float(status["price"]["spent_usd"]),
        "others_moved": sum(job.was_in_cloud for job in done.jobs)
        - sum(one.job.was_in_cloud for one in done.named),
        "counted_by_advisor": status["promises"],
        "not_counted": sorted({one.job.job_id for one in promised} - _counted(site)),
        "median_turnaround_of_others": statistics.median(
            job.turnaround for job in done.jobs if job.job_id not in {one.job.job_id for one in done.named}
        ),
        "misses": [
            {
                "job_id": one.job.job_id,
                "kind": one.kind,
                "named_seconds": one.seconds,
                "late_seconds": one.late_seconds,
                "where": one.where,
                "runs": [
                    (run.partition, run.state, run.start - one.job.submit, run.end - run.start)
                    for run in one.job.runs
                ],
                "limit_seconds": one.limit,
                "decided": {name: one.numbers.get(name) for name in _SHOWN},
                "last_reason": one.last_reason,
            }
            for one in missed
        ],
    }


def _counted(site: Site) -> set[int]:
    """Jobs whose promise `advisor control` says that it has judged."""
    found = set()
    for line in site.control.log.read_text(encoding="utf-8", errors="replace").splitlines():
        if '"event": "promise.' in line:
            found.add(int(json.loads(line)["job"]))
    return found


def _of_kind(kind: str, promised: list[Named]) -> dict[str, Any]:
    mine = [one for one in promised if one.kind == kind]
    return {
        "promised": len(mine),
        "kept": sum(one.is_kept for one in mine),
        "ran_in": dict(Counter(one.where or "nowhere" for one in mine)),
    }
