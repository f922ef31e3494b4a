"""`cluster.hook = false` on a real slurmctld: how soon jobs are advised, and whether as the hook does it.

Two labs, one after the other. In the first a hook that sends its questions here, and moves nothing,
describes a job of each shape, and squeue describes the same jobs; two answerers on one snapshot are asked
about both, in the order in which the second lab then gets its jobs. That one is a whole site without a hook.
"""

from __future__ import annotations

import itertools
import json
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from advisor.config import load
from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.model.errors import TellAdmin
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.service.exchange.protocol import (
    VERSION,
    AdviseReply,
    AdviseRequest,
    AgainRequest,
    decode_request,
    refusal,
)
from advisor.service.submit.answering import Answered, Answerer
from advisor.service.submit.models import model_loader
from advisor.service.submit.state_holder import StateHolder
from advisor.service.waiting.unadvised import as_submitted
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.slurm.parsing import default_memory
from advisor.testing.lab import Lab, LabOptions
from advisor.testing.site import HOOKS, Site, SiteOptions
from benchmarks.timing import percentiles

Tell = Callable[[str], None]

SHAPES: Final[tuple[tuple[str, ...], ...]] = (
    ("--time=2",),
    ("--time=30", "-n4"),
    ("--time=240", "-n16"),
    ("-n8",),
    ("--time=50", "-n2", "--no-requeue"),
    ("--time=50", "--comment=no-burst"),
    ("--time=50", "--constraint=x86"),
    ("--time=20", "--array=1-5%2"),
    ("--time=50", "--dependency=singleton"),
    ("--time=50", "-n2", "-c2", "--mem-per-cpu=300"),
    ("--time=50", "--mem=900"),
    ("--time=50", "-N2", "--ntasks-per-node=2"),
    ("--time=50", "--partition=other"),
    ("--time=50", "--hold"),
    ("--time=50", "--begin=now+2hours"),
    ("--time=50", "--nice=20"),
    ("--time=600", "-n1"),
)
"""Options of the jobs; the same number of each is submitted.

None asks for just what is the default: squeue does not tell that from a job that asks for nothing.
"""
_PROCESSORS: Final = 64
_OTHER: Final = "PartitionName=other Nodes=onprem1 State=UP MaxTime=INFINITE DefaultTime=60"
_LAB: Final = LabOptions(nodes=2, processors=_PROCESSORS, burst_nodes=8, extra=(_OTHER,), suspend_seconds=600)
_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.5
_LATE_SECONDS: Final = 30.0


def run(*, jobs: int = 1_000, clients: int = 2, tell: Tell = lambda _: None) -> dict[str, Any]:
    """Measure.

    Args:
        jobs: Submitted, in turn of each shape.
        clients: sbatch processes at a time.
        tell: Told what is being done.
    """
    with tempfile.TemporaryDirectory(prefix="no-hook-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # munged asks for it
        tell("describing jobs as the hook and as squeue does")
        described = _described(folder)
        settings: dict[str, dict[str, Any]] = {
            "cluster": {"hook": False, "policy": "price"},
            "budget": {"usd": 500_000.0, "period": "day"},
            "placement": {"boot_seconds": 5.0},
            "rules": {"move_deferred": False},
            "submit": {"snapshot_max_age_seconds": 3600.0},
            "loops": {"snapshot_seconds": 5.0},
        }
        lab = replace(_LAB, database=True, database_template=folder / "database")
        with Site(folder / "site", SiteOptions(lab=lab, settings=settings, boot_seconds=1.2)) as site:
            site.start_advisor()
            site.wait_until("there is a price", lambda: bool(_price(site).get("seconds_per_usd")))
            tell(f"submitting {jobs} jobs")
            seen = _Seen(site.lab)
            result = _measured(site, seen, jobs, clients)
            tell("comparing decisions with the hook's")
            result |= _compared(load(site.config, {}).settings, described, jobs)
            site.lab.run("scancel", "--user=root", check=False)
        return result


def _price(site: Site) -> Mapping[str, Any]:
    said = json.loads(site.advisor("status", "--format", "json").stdout)
    found: Mapping[str, Any] = said["control"].get("price") or {}
    return found


# ------------------------------------------------------------------------------------------ the first lab


@dataclass(frozen=True, slots=True)
class Described:
    """One shape: the hook's question, and the job as squeue shows it."""

    options: tuple[str, ...]
    inside: AdviseRequest
    waiting: Job


def _described(folder: Path) -> list[Described]:
    with _listening(folder / "ask.sock") as asked:
        options = replace(
            _LAB,
            hook=HOOKS / "job_submit.lua",
            hook_settings={"socket": str(folder / "ask.sock"), "budget_ms": "500"},
        )
        with Lab.temporary(options) as lab:
            lab.run("scontrol", "update", "partitionname=onprem", "state=down")
            lab.run("scontrol", "update", "partitionname=other", "state=down")
            ids = [lab.sbatch(*shape).job_id for shape in SHAPES]
            slurm = CliBackend(Commands(Path("/usr/bin"), lab.conf))
            partitions = {partition.name: partition for partition in slurm.partitions()}
            up = {name: replace(partition, is_up=True) for name, partition in partitions.items()}
            memory = default_memory(slurm.config())
            rows = slurm.waiting(())
            jobs = []
            for job_id in ids:
                row = rows[job_id]
                if row is None:
                    raise TellAdmin(f"squeue does not show job {job_id}", code="bench.job")
                jobs.append(as_submitted(row, up, default_memory=memory, now=time.time()))
    if len(asked) != len(SHAPES):
        raise TellAdmin(f"the hook asked {len(asked)} times", code="bench.hook")
    return [Described(*each) for each in zip(SHAPES, asked, jobs, strict=True)]


@contextmanager
def _listening(path: Path) -> Iterator[list[AdviseRequest]]:
    """A submit server that has no advice and keeps the questions."""
    asked: list[AdviseRequest] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as lines:
                    for line in lines:
                        request = decode_request(line)
                        if isinstance(request, AdviseRequest):
                            asked.append(request)
                        connection.sendall(refusal("bench.no_advice", request.seq))

        threading.Thread(target=answer, daemon=True).start()
        yield asked


# ------------------------------------------------------------------------------------------ the site


@dataclass(slots=True)
class _Seen:
    """What squeue shows of the jobs while they are submitted."""

    lab: Lab
    advised: dict[int, float] = field(default_factory=dict)
    rows: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def look(self) -> None:
        """Note when jobs have their advice, seconds since the epoch."""
        began = time.perf_counter()
        columns = "JobID:12,ArrayJobID:12,State:14,Partition:20,NodeList:40,admin_comment:1100"
        shown = self.lab.run("squeue", "--noheader", "--all", "--states=all", f"--Format={columns}").stdout
        now = time.time()
        for line in shown.splitlines():
            array, state = int(line[12:24]), line[24:38].strip()
            if array not in self.advised and parse_admin_comment(line[98:].strip()) is not None:
                self.advised[array] = now
            self.rows[int(line[:12])] = (state, line[38:58].strip(), line[58:98].strip())
        self.seconds.append(time.perf_counter() - began)


def _measured(site: Site, seen: _Seen, jobs: int, clients: int) -> dict[str, Any]:
    for node in range(2):  # what comes next has to wait
        site.lab.sbatch(f"-n{_PROCESSORS}", "--time=600", "--comment=no-burst", script=f"sleep {1200 + node}")
    time.sleep(8.0)
    submitted: dict[int, float] = {}
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(_POLL_SECONDS):
            seen.look()

    def submit(number: int) -> None:
        job = site.lab.sbatch(*SHAPES[number % len(SHAPES)], script="sleep 900").job_id
        submitted[job] = time.time()

    with ThreadPoolExecutor(1) as watcher:
        looking = watcher.submit(look)
        try:
            began = time.perf_counter()
            with ThreadPoolExecutor(clients) as pool:
                list(pool.map(submit, range(jobs)))
            seconds = time.perf_counter() - began
            end = time.time() + _LATE_SECONDS
            while time.time() < end and not submitted.keys() <= seen.advised.keys():
                time.sleep(_POLL_SECONDS)
        finally:
            stop.set()
        looking.result()  # where it failed, too little was seen
    waits = sorted(max(0.0, seen.advised[job] - at) for job, at in submitted.items() if job in seen.advised)
    queue = site.lab.run("squeue", "--noheader", "--states=all", "--Format=ArrayJobID:12").stdout
    present = {int(line) for line in queue.split()}
    control = json.loads(site.advisor("status", "--format", "json").stdout)["control"]
    return {
        "jobs": len(submitted),
        "submissions_per_second": len(submitted) / seconds,
        "advised": len(waits),
        "advised_within_5_s": sum(wait <= _SECONDS for wait in waits),
        "seconds_to_advice": percentiles(waits),
        "not_advised": dict(Counter(seen.rows[job][0] for job in submitted if job not in seen.advised)),
        "lost": len(submitted.keys() - present),
        "moved": sum("burst" in row[1] for row in seen.rows.values()),
        "moved_after_they_began": sum(_is_elsewhere(*row) for row in seen.rows.values()),
        "restarted": _restarted(site.lab),
        "squeue_seconds": percentiles(seen.seconds),
        "status": control["advising"],
        "loop_seconds": {name: round(loop["seconds"], 3) for name, loop in control["loops"].items()},
    }


def _is_elsewhere(state: str, partition: str, nodes: str) -> bool:
    """Whether a job runs on nodes of another partition than it is in."""
    return state != "PENDING" and bool(nodes) and nodes.startswith("burst") != (partition == "burst")


def _restarted(lab: Lab) -> int:
    shown = lab.run("squeue", "--noheader", "--states=all", "--Format=RestartCnt:8").stdout
    return sum(int(count) > 0 for count in shown.split())


# ------------------------------------------------------------------------------------------ decisions


def _compared(settings: Settings, described: Sequence[Described], jobs: int) -> dict[str, Any]:
    """Ask two answerers, in one state, about the same jobs as both paths describe them."""
    hook, queue = _answerers(settings)
    differing: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for one in itertools.islice(itertools.cycle(described), jobs):
        inside = hook.answer(structs.replace(one.inside, configured_at=None))
        waiting = queue.again(AgainRequest(v=VERSION, job=one.waiting, is_new=True))
        reasons[str(inside.reply.reason)] += 1
        if _decision(inside) != _decision(waiting):
            differing[" ".join(one.options)] += 1
    return {
        "decisions": jobs,
        "decisions_that_differ": sum(differing.values()),
        "differing": dict(differing),
        "reasons": dict(reasons),
    }


def _answerers(settings: Settings) -> list[Answerer]:
    """Two that know the same; each counts what was submitted to it."""
    holders = [StateHolder(settings, load_model=model_loader(settings)) for _ in range(2)]
    holders[0].refresh()
    known, run_times = holders[0].current, holders[0].run_times.current
    if known.snapshot is None:
        raise TellAdmin("the site has published no snapshot", code="bench.snapshot")
    now = known.snapshot.state.time + 1.0
    holders[1].current = known
    holders[1].run_times.current = run_times
    return [Answerer(holder, clock=lambda: now) for holder in holders]


def _decision(answered: Answered) -> tuple[AdviseReply, Any]:
    """What is set, and the advice with all its numbers, without what names them."""
    advice = structs.replace(answered.record.advice, advice_id="")
    return structs.replace(answered.reply, seq=0, id="", admin_comment=None), advice
