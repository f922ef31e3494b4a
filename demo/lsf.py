"""The same stream under LSF: the real daemons beside a stand-in for LSF, whose jobs sleep.

LSF itself is not free, so that its commands and files are those of `advisor.testing.lsf_stand_in`; advising,
moving, learning and the report are what a site under LSF gets. The cloud's hosts are always up, as the
resource connector's side of LSF is no part of this. The price of an hour is fixed, as hosts are not metered.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from advisor.decide.explanation.wording import why_sentence
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import Placement
from advisor.model.errors import AdvisorError, RetryLater
from advisor.service.exchange import snapshot as snapshots
from advisor.service.exchange.client import SubmitClient
from advisor.testing.lsf_stand_in import LsfStandIn, StandInQueue
from demo.plan import DemoJob, Plan
from demo.report import JobResult, show, summarise
from demo.stage import (
    BURST_NODES,
    KNOWN_JOBS,
    NODES,
    ON_DEMAND_USD_PER_HOUR,
    OVERHEAD_PER_PROCESSOR,
    can_switch_users,
)

_READY_SECONDS: Final = 240.0
"""At its first start numba compiles for a minute or more."""
_PATIENCE_SECONDS: Final = 240.0
_LEDGER_SECONDS: Final = 15.0
"""Longest wait after the last job's end for advice that is still on its way to the ledger."""
_USD_PER_HOUR_SAVED: Final = 1000.0
_ADVISOR: Final = (sys.executable, "-c", "from advisor.cli.main import run; run()")
_SETTINGS: Final = """
[cluster]
scheduler = "lsf"
on_premise_partitions = ["onprem", "long"]
burst_partition = "burst"
default_mode = "act"
[paths]
lsf_envdir = "{folder}/lsf/etc"
state = "{folder}/state"
run = "{folder}/run"
[budget]
usd_per_hour_saved = {price}
[placement]
boot_seconds = 1.0
overhead_per_processor = {overhead}
[estimator]
knowledge_base_jobs = {known}
[capacity]
use_spot = false
[ec2]
instance_type = "c6i.16xlarge"
on_demand_usd_per_hour = {on_demand}
[loops]
metrics_port = 0
snapshot_seconds = 1.0
learn_seconds = 2.0
"""


@dataclass(slots=True)
class _Site:
    """The folder with everything, and what the daemons get as their environment."""

    folder: Path

    @property
    def history(self) -> str:
        return f"sqlite:///{self.folder / 'state' / 'history.db'}"

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "ADVISOR_CONFIG": str(self.folder / "advisor.toml")}

    def bsub(self, job: DemoJob) -> int:
        """Submit a job; its id."""
        words = ["-n", str(job.processors), "-W", str(job.limit_minutes), "-J", job.name]
        words += ["-r"] if job.may_requeue else []
        words += ["-Jd", "no-burst"] if job.opts_out else []
        words += ["-q", "long"] if job.explicit else []
        line = [str(self.folder / "lsf" / "bin" / "bsub"), *words, "sleep", f"{job.run_seconds:.1f}"]
        user = job.user if can_switch_users() else None
        done = subprocess.run(  # noqa: S603 - the stand-in's own program
            line, user=user, cwd="/", capture_output=True, text=True, check=True
        )
        return int(done.stdout.partition("<")[2].partition(">")[0])


def play(plan: Plan, console: Console) -> int:
    """Play it; exit code 0 when every job completed exactly once."""
    console.print("[bold yellow]Under a stand-in for LSF: its jobs sleep, and cloud hosts are always up.[/]")
    folder = Path(tempfile.mkdtemp(prefix="burst-demo-"))
    folder.chmod(0o755)
    try:
        with ExitStack() as stack:
            site = _prepare(plan, folder, stack)
            with console.status("starting advisor control and advisor serve; learning from the history"):
                for name in ("control", "serve"):
                    stack.enter_context(_daemon(site, name))
                _wait_for_forecasts(site)
            return _play(plan, site, console)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(plan: Plan, folder: Path, stack: ExitStack) -> _Site:
    """The stand-in in the plan's shape, and the advisor's folder with the plan's history."""
    slots = -(-plan.processors // NODES)
    here = tuple(f"onprem{number + 1}" for number in range(NODES))
    cloud = tuple(f"burst{number + 1}" for number in range(BURST_NODES))
    queues = (
        StandInQueue(name="onprem", hosts=here, is_default=True),
        StandInQueue(name="long", hosts=here),
        StandInQueue(name="burst", hosts=cloud),
    )
    for name in ("run", "state"):
        (folder / name).mkdir()
    (folder / "advisor.toml").write_text(
        _SETTINGS.format(
            folder=folder,
            price=_USD_PER_HOUR_SAVED,
            overhead=OVERHEAD_PER_PROCESSOR,
            known=KNOWN_JOBS,
            on_demand=ON_DEMAND_USD_PER_HOUR,
        )
    )
    site = _Site(folder)
    with HistoryStore(site.history) as store:
        store.add(plan.history(time.time()), source="history")
    stack.enter_context(
        LsfStandIn(folder / "lsf", hosts=dict.fromkeys((*here, *cloud), slots), queues=queues)
    )
    return site


@contextmanager
def _daemon(site: _Site, name: str) -> Iterator[None]:
    with (site.folder / f"{name}.log").open("w") as file:
        process = subprocess.Popen(  # noqa: S603 - the advisor itself
            [*_ADVISOR, name], env=site.environment, stdout=file, stderr=subprocess.STDOUT
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(60.0)


def _wait_for_forecasts(site: _Site) -> None:
    run, end = site.folder / "run", time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        with suppress(AdvisorError, OSError), SubmitClient(run / "submit.sock") as client:
            price = snapshots.read(run / "snapshot.msgpack").state.price
            if client.ping().model_version is not None and price is not None:
                return
        time.sleep(0.5)
    raise RetryLater("the advisor has no price after four minutes", code="demo.not_ready")


def _play(plan: Plan, site: _Site, console: Console) -> int:
    """Submit every job at its time, say what was decided, and wait until all have ended."""
    begin, submitted, said = time.time(), dict[int, DemoJob](), set[int]()
    with HistoryStore(site.history) as store:
        for job in plan.stream:
            time.sleep(max(0.0, begin + job.submit_seconds - time.time()))
            submitted[site.bsub(job)] = job
            _tell(store, submitted, said, console)
        end, left = time.time() + _PATIENCE_SECONDS, set(submitted)
        while left:
            if time.time() > end:
                console.print(f"[red]{len(left)} jobs have not ended in time[/]")
                return 1
            time.sleep(1.0)
            _tell(store, submitted, said, console)
            left = {job_id for job_id in left if store.of_job(job_id, source="slurm") is None}
        end = time.time() + _LEDGER_SECONDS
        while len(said) < len(submitted) and time.time() < end:
            time.sleep(0.5)
            _tell(store, submitted, said, console)
        found = [_result(store, job_id, job) for job_id, job in submitted.items()]
    every = [result for result in found if result is not None]
    paid = [result for result in every if result.placement is Placement.BURST]
    core_hours = sum(result.job.processors * result.run_seconds for result in paid) / 3600.0
    dollars = core_hours * ON_DEMAND_USD_PER_HOUR / -(-plan.processors // NODES)
    summary = summarise(every, processors=plan.processors, cloud_usd=dollars, instances=BURST_NODES)
    show(summary, every, processors=plan.processors, compression=plan.compression, console=console)
    return 0 if summary.completed_once == summary.jobs else 1


def _tell(store: HistoryStore, submitted: Mapping[int, DemoJob], said: set[int], console: Console) -> None:
    """Print each job's advice once it is in the ledger."""
    for job_id in submitted.keys() - said:
        record = store.advice_of(job_id)
        if record is not None:
            said.add(job_id)
            _print(job_id, record, submitted[job_id], console)


def _print(job_id: int, record: AdviceRecord, job: DemoJob, console: Console) -> None:
    where = "cloud" if record.advice.placement is Placement.BURST else "here "
    line = f"{job_id:4d}  {job.user:9} {job.processors:4d} slots  {where}  {why_sentence(record.advice)}"
    console.print(line, markup=False, highlight=False, no_wrap=True, overflow="ellipsis")


def _result(store: HistoryStore, job_id: int, job: DemoJob) -> JobResult | None:
    outcome = store.of_job(job_id, source="slurm")
    if outcome is None:
        return None
    record = store.advice_of(job_id)
    return JobResult(
        job=job,
        state=outcome.state.value,
        placement=Placement.BURST if outcome.partition == "burst" else Placement.ON_PREMISE,
        wait_seconds=outcome.wait_seconds,
        run_seconds=outcome.run_seconds,
        predicted_wait_seconds=record.estimates.wait.seconds if record else float("nan"),
        starts=1 + outcome.restarts,
    )
