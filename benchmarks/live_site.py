"""A live day on a real slurmctld with the shipped daemons and the EC2 emulator, and what became of it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Barrier
from typing import Any, Final

from advisor.ec2.tags import node_of
from advisor.history.store import HistoryStore
from advisor.model.errors import RetryLater
from advisor.model.job import PLACEHOLDER_PREFIX
from advisor.model.node_sets import expand
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.site import PATIENT, Site, SiteOptions
from benchmarks.fidelity import FAST_SCHEDULER
from benchmarks.fidelity_day import first_events
from benchmarks.live_day import (
    CLOUD_NODES,
    NODE_PROCESSORS,
    NODES,
    REQUEUE_SECONDS,
    SLOWDOWN,
    SUSPEND_SECONDS,
    LiveDay,
    program,
)
from benchmarks.live_fates import KeptFolder, LiveJob, Run, amiss_jobs

LEAD_SECONDS: Final = 60.0
"""From the start of `advisor control` to the first submission at least, as in a rehearsal."""
_ENDS_WITHIN: Final = 900.0
_AGEING: Final = ("PriorityWeightAge=1000000", "PriorityMaxAge=0-1", "PriorityCalcPeriod=1")
_FIELDS: Final = "JobIDRaw,JobName,Partition,State,Submit,Start,End,NodeList"
SCRIPT: Final = (
    "echo begin $SLURM_JOB_PARTITION $(date +%s.%N); "
    "if [ $SLURM_JOB_PARTITION = burst ]; then sleep {cloud:.2f}; else sleep {here:.2f}; fi && "
    "echo end $SLURM_JOB_PARTITION $(date +%s.%N)"
)


@dataclass(slots=True, kw_only=True)
class LiveRun:
    """What became of a day.

    Attributes:
        begin: Epoch seconds of the first submission.
        usd: All machines in the cloud, as the advisor's record has it.
        launches: When each node of the cloud was launched, epoch seconds, ascending.
        price: Of ``advisor status``.
        places: Of ``advisor status``: hedge entries and counts.
        helper_connections: Made to the place helper.
        amiss: Jobs that did not end exactly once as completed (`amiss_jobs`).
    """

    begin: float
    jobs: list[LiveJob]
    usd: float = 0.0
    launches: dict[str, list[float]] = field(default_factory=dict)
    price: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Any] = field(default_factory=dict)
    helper_connections: int = 0
    amiss: list[dict[str, Any]] = field(default_factory=list)


def lab_options(template: Path | None = None) -> LabOptions:
    """The cluster of a live day."""
    return LabOptions(
        nodes=NODES, processors=NODE_PROCESSORS, burst_nodes=CLOUD_NODES, burst_processors=NODE_PROCESSORS,
        boot_seconds=2.0, suspend_seconds=SUSPEND_SECONDS, requeue_seconds=REQUEUE_SECONDS,
        min_job_age_seconds=3600, database=True, database_template=template,
        scheduler_parameters=FAST_SCHEDULER, extra=_AGEING,
    )  # fmt: skip


def run_on_premise(day: LiveDay, template: Path, start: Barrier, tell: Callable[[str], None]) -> LiveRun:
    """Run a day without an advisor; both runs of a day begin together."""
    with KeptFolder("day-") as kept, ExitStack() as stack:
        lab = Lab(kept.path / "lab", lab_options(template))
        stack.callback(lab.stop, remove=False)
        lab.start()
        start.wait()
        return _run(lab, day, time.time() + 1.0, tell, kept)


def run_priced(
    day: LiveDay, template: Path, start: Barrier, tell: Callable[[str], None], *, slices: bool
) -> LiveRun:
    """Run a day under the price; both runs of a day begin together."""
    with KeptFolder("day-") as kept:
        soon = day.begun_at(time.time() + LEAD_SECONDS)
        settings = soon.settings(slices=slices) | {"submit": dict(PATIENT)}
        options = SiteOptions(lab=lab_options(template), settings=settings, boot_seconds=2.0)
        with Site(kept.path, options) as site:
            begin = time.time() + LEAD_SECONDS
            day = day.begun_at(begin)
            with HistoryStore(f"sqlite:///{site.state / 'history.db'}") as store:
                store.add(day.past(), source="swf:past")
            day.write_price(site.state, slices=slices)
            site.start_advisor()
            site.wait_until("there is a price", lambda: _has_price(site))
            tell(f"there is a price after {time.time() - begin + LEAD_SECONDS:.0f} s")
            time.sleep(max(0.0, begin - time.time()))
            start.wait()
            return _priced(site, _run(site.lab, day, time.time() + 1.0, tell, kept))


def _has_price(site: Site) -> bool:
    return bool((_status(site)["price"] or {}).get("seconds_per_usd"))


def _status(site: Site) -> dict[str, Any]:
    control: dict[str, Any] = json.loads(site.advisor("status", "--format", "json").stdout)["control"]
    return control


def _run(lab: Lab, day: LiveDay, begin: float, tell: Callable[[str], None], kept: KeptFolder) -> LiveRun:
    window, first = day.window, float(day.window.submit[0])
    jobs = []
    for row in range(len(day)):
        time.sleep(max(0.0, begin + float(window.submit[row]) - first - time.time()))
        run = float(window.run[row])
        options = [
            f"--ntasks={int(window.processors[row])}",
            f"--time={int(window.limit[row]) // 60}",
            f"--job-name={program(int(window.table.executable[window.first + row]))}",
            "--open-mode=append",
        ]
        if not day.may_requeue[row]:
            options.append("--no-requeue")
        submit = time.time()
        script = SCRIPT.format(here=run, cloud=SLOWDOWN * run)
        jobs.append(LiveJob(job_id=lab.sbatch(*options, script=script).job_id, submit=submit))
        if row % 50 == 49:
            tell(f"{row + 1} of {len(day)} jobs submitted")
    try:
        lab.wait_for_jobs([job.job_id for job in jobs], seconds=_ENDS_WITHIN)
    except RetryLater as late:
        tell(str(late))
    time.sleep(5.0)  # slurmdbd is told of the last ends
    read_scripts(lab, jobs)
    read_accounting(lab, jobs, begin)
    seen = first_events(lab)
    for job in jobs:
        job.first_start = min(seen[by].get(job.job_id, math.inf) for by in ("main", "backfill"))
        job.by_backfill = job.job_id not in seen["main"]
        job.first_end = seen["end"].get(job.job_id, math.nan)
    amiss = amiss_jobs(jobs, kept.path)
    if amiss:
        kept.is_kept = True
        lab.run("scancel", *(str(one["job"]) for one in amiss), check=False)  # of those that never ended
    return LiveRun(begin=begin, jobs=jobs, amiss=amiss)


def read_scripts(lab: Lab, jobs: Sequence[LiveJob]) -> None:
    """Fill in when each run began and ended, as its script wrote it down."""
    for job in jobs:
        path = lab.folder / "jobs" / f"{job.job_id}.out"
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            words = line.split()
            if len(words) == 3 and words[0] == "begin":
                job.began.append((words[1], float(words[2])))
                job.ended = None
            elif len(words) == 3 and words[0] == "end":
                job.ended = words[1], float(words[2])
                job.whole_runs += 1


def read_accounting(lab: Lab, jobs: Sequence[LiveJob], begin: float) -> None:
    """Fill in the runs of jobs that were submitted since then, epoch seconds."""
    since = datetime.fromtimestamp(begin - 60.0).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    shown = lab.run(
        "env", "SLURM_TIME_FORMAT=%s", "sacct", "--allusers", "--duplicates", "--allocations", "--noheader",
        "--parsable2", f"--starttime={since}", f"--format={_FIELDS}",
    ).stdout  # fmt: skip
    by_id = {job.job_id: job for job in jobs}
    for line in shown.splitlines():
        number, name, partition, state, _, start, end, nodes = line.split("|")
        started, ended = _time(start), _time(end)
        if name.startswith(PLACEHOLDER_PREFIX):
            owner = by_id.get(int(name.removeprefix(PLACEHOLDER_PREFIX)))
            if owner is not None and ended > started:
                owner.place_start = started
        elif int(number) in by_id:
            run = Run(
                partition=partition,
                state=state.split()[0],
                start=started,
                end=ended,
                nodes=tuple(expand(nodes)) if nodes.startswith("burst") else (),
            )
            by_id[int(number)].runs.append(run)


def _time(text: str) -> float:
    return float(text) if text.isdigit() else math.nan


def _priced(site: Site, found: LiveRun) -> LiveRun:
    site.wait_until(
        "the nodes are gone",
        lambda: all(instance["state"] == "terminated" for instance in site.ec2.instances()),
    )
    time.sleep(3.0)
    status = _status(site)
    found.price, found.places = status["price"], status.get("places", {})
    found.usd = float(found.price["spent_usd"])
    for instance in sorted(site.ec2.instances(), key=lambda each: float(each["launched"])):
        node = node_of(instance["tags"], instance["launch_index"]) or ""
        found.launches.setdefault(node, []).append(float(instance["launched"]))
    found.helper_connections = site.places.connections
    return found
