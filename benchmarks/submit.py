"""The submit path: an advice on the bare socket; sbatch in a real slurmctld, with the hook and without.

The server is `advisor serve` in a process of its own, with a knowledge base of 10,000 jobs for both
estimators, run times learned from as many jobs, and a trained size model. The policy in force says which of
them forecast an advice; the k-NN's answer under ``cunha2017`` is timed on the bare socket as well. Beside it
an echo server (a thread a connection, JSON in and
out, no thought) is asked in the same run, turn by turn, so that a busy machine slows both.

The part inside slurmctld is :mod:`benchmarks.submit_slurm`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from advisor.decide.submission.table_row import job_of
from advisor.history.models import ModelStore
from advisor.model.advice import Mode
from advisor.model.cluster import ClusterState
from advisor.model.errors import TellAdmin
from advisor.model.job import JobOutcome
from advisor.model.machine import Machine
from advisor.model.settings import ClusterSettings, PathSettings, Settings
from advisor.model.settings_decision import RuleSettings
from advisor.model.settings_price import BudgetSettings
from advisor.model.settings_service import SubmitSettings
from advisor.model.site import CloudState, PerformanceRatios, Price, Ratio, Room, SiteState
from advisor.model.table import JobTable
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.predictor import Predictor
from advisor.predict.knn.tracker import states_of
from advisor.predict.run_times.run_times import RunTimesOfJobs
from advisor.predict.size.size_history import SizeHistory
from advisor.predict.size.size_model import SizeModel
from advisor.replay.sources import load_table
from advisor.service.exchange import snapshot
from advisor.service.exchange.client import SubmitClient
from advisor.service.exchange.protocol import VERSION, AdviseRequest, encode_line
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.submit.models import PREDICTOR_KIND, SIZE_KIND
from advisor.service.submit.run_times import RUN_TIMES_KIND
from benchmarks import submit_slurm
from benchmarks.timing import microseconds_each, percentiles, processor_seconds

Tell = Callable[[str], None]

_QUESTIONS_A_TURN: Final = 20
_PRIORITY: Final = -5
_PROCESSORS: Final = 256
_BUDGET_USD: Final = 1_000.0
_RUNNING: Final = 40
_START_SECONDS: Final = 180.0
_ECHO: Final = """
import json, socket, sys, threading
listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[1]); listener.listen()
print("ready", flush=True)
def serve(connection):
    for line in connection.makefile("rb"):
        request = json.loads(line)
        connection.sendall(json.dumps({"v": 1, "seq": request["seq"], "ok": True}).encode() + b"\\n")
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def run(
    *,
    knowledge_base: int = 10_000,
    questions: int = 10_000,
    submissions: int = 100,
    clients: int = 4,
    rounds: int = 24,
    policy: str | None = None,
    waiting: int = 25,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Measure.

    Args:
        knowledge_base: Jobs both estimators know.
        questions: Asked of the server and of the echo.
        submissions, clients, rounds: Held jobs a run, submitted by so many sbatch at a time, in so many
            rounds of runs without a hook, with an empty one and with ours, on each of two kinds of slurmctld;
            0 submissions leave it out.
        policy: ``cluster.policy``; None: its default.
        waiting: Jobs in the on-premise queue.
        tell: Told what is being done.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        tell(f"training on {knowledge_base} jobs")
        settings = _prepare(folder, knowledge_base, policy, waiting)
        tell("starting advisor serve")
        pid = stack.enter_context(_serving(settings, folder))
        echo = stack.enter_context(_echoing(folder))
        stack.enter_context(_looking(settings, waiting))
        tell(f"{questions} questions on the bare socket")
        result = _on_the_socket(settings.paths.submit_socket, echo, questions, pid)
        if submissions:
            result |= submit_slurm.measure(
                settings.paths.submit_socket,
                pid,
                folder=folder,
                submissions=submissions,
                clients=clients,
                rounds=rounds,
                tell=tell,
            )
        with SubmitClient(settings.paths.submit_socket) as client:
            pong = client.ping()
    site = {"policy": settings.cluster.policy, "waiting_jobs": waiting}
    result = {"knowledge_base": knowledge_base, **site, "model_version": pong.model_version, **result}
    return result if policy is not None else result | {"cunha2017": _knn(knowledge_base, questions, waiting)}


def _knn(knowledge_base: int, questions: int, waiting: int) -> dict[str, Any]:
    """The bare socket under `cunha2017`, whose estimators are the k-NN."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        settings = _prepare(folder, knowledge_base, "cunha2017", waiting)
        pid = stack.enter_context(_serving(settings, folder))
        echo = stack.enter_context(_echoing(folder))
        stack.enter_context(_looking(settings, waiting))
        return _on_the_socket(settings.paths.submit_socket, echo, questions, pid)


def _prepare(folder: Path, jobs: int, policy: str | None, waiting: int) -> Settings:
    chosen = {} if policy is None else {"policy": policy}
    settings = Settings(
        cluster=ClusterSettings.model_validate({"default_mode": Mode.ACT, **chosen}),
        paths=PathSettings(run=folder / "run", state=folder / "state"),
        submit=SubmitSettings(snapshot_max_age_seconds=3600.0),
        rules=RuleSettings(move_deferred=True),  # the bench's jobs are held
        budget=BudgetSettings(usd=_BUDGET_USD),
    )
    settings.paths.run.mkdir()
    settings.paths.state.mkdir()
    # of a log some jobs never ran: take more than needed, the knowledge base keeps the newest
    table = load_table(f"synthetic:{jobs + jobs // 10}:1")
    # the past ends now, as it does at a site: or else no case is near enough to tell anything
    table = replace(table, start_of_log=time.time() - float(table.end.max()))
    encoder = Encoder()
    parameters = KnnParameters.untuned(encoder.schema, s=jobs)
    predictor = Predictor(parameters, parameters, encoder=encoder)
    predictor.learn_table(table, states_of(table))
    store = ModelStore(folder=settings.paths.models)
    store.save(PREDICTOR_KIND, *predictor.to_arrays())
    store.save(RUN_TIMES_KIND, _run_times(table).to_arrays(), {})
    history = SizeHistory.from_table(table)
    store.save(SIZE_KIND, *SizeModel.retrain(history, now=float(table.end.max()) + 1.0).to_arrays())
    snapshot.write(settings.paths.snapshot, _snapshot(waiting))
    return settings


def _run_times(table: JobTable) -> RunTimesOfJobs:
    known = RunTimesOfJobs()
    for row in np.argsort(table.end, kind="stable"):
        job = job_of(table, int(row))
        known.learn(JobOutcome(job=job, start_time=float(table.start[row]), end_time=float(table.end[row])))
    return known


def _snapshot(waiting: int) -> snapshot.Snapshot:
    now = time.time()
    cluster = ClusterState(
        time=now,
        queue_size=waiting,
        queued_work_core_seconds=3.0e6,
        remaining_work_core_seconds=2.0e6,
        free_processors=8,
        total_processors=_PROCESSORS,
        running_jobs=_RUNNING,
    )
    places = (Room(processors=1, free=200, total=400), Room(processors=4, free=50, total=100))
    rooms: dict[str, tuple[Room, ...]] = dict.fromkeys(("", "spot", "on-demand"), places)
    cloud = CloudState(nodes_total=100, processors_per_node=4, rooms=rooms)
    learned = {f"app{number}_#": Ratio(factor=1.1, deviation=0.1, jobs=9) for number in range(200)}
    ratios = PerformanceRatios(overhead=0.01, baseline=1.0, deviation=0.2, jobs=900, applications=learned)
    price = Price(seconds_per_usd=3_600.0, tokens_usd=100.0)
    state = SiteState(time=now, cluster=cluster, cloud=cloud, ratios=ratios, price=price)
    return snapshot.Snapshot(state=state, queues=(_seen_queue(now, waiting),))


def _seen_queue(now: float, waiting: int) -> SeenQueue:
    """A machine that is nearly full, and jobs of all widths and lengths that wait for it."""
    generator = np.random.default_rng(2)
    limits = generator.uniform(4e3, 9e4, _RUNNING)
    running = np.column_stack(
        (np.full(_RUNNING, 6.0), np.full(_RUNNING, now - 3_000.0), limits, np.maximum(3_600.0, 0.5 * limits))
    )
    widths, limits = 2.0 ** generator.integers(0, 7, waiting), generator.uniform(600, 9e4, waiting)
    behind = np.column_stack((widths, limits, 0.5 * limits))
    return SeenQueue.of(Machine(("onprem",), _PROCESSORS), running, behind)


@contextmanager
def _looking(settings: Settings, waiting: int) -> Iterator[None]:
    """Looks as `advisor control` hands them over: the server's own account begins anew with each."""
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(settings.loops.snapshot_seconds):
            snapshot.write(settings.paths.snapshot, _snapshot(waiting))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _serving(settings: Settings, folder: Path) -> Iterator[int]:
    """`advisor serve` in a process of its own, warm; its process id."""
    address = str(folder / "notify")
    environment = {
        **os.environ,
        "NOTIFY_SOCKET": address,
        "ADVISOR_PATHS__RUN": str(settings.paths.run),
        "ADVISOR_PATHS__STATE": str(settings.paths.state),
        "ADVISOR_CLUSTER__DEFAULT_MODE": settings.cluster.default_mode.value,
        "ADVISOR_CLUSTER__POLICY": settings.cluster.policy,
        "ADVISOR_BUDGET__USD": str(settings.budget.usd),
        "ADVISOR_RULES__MOVE_DEFERRED": str(settings.rules.move_deferred).lower(),
        "ADVISOR_SUBMIT__SNAPSHOT_MAX_AGE_SECONDS": str(settings.submit.snapshot_max_age_seconds),
    }
    command = (sys.executable, "-c", "from advisor.cli.main import run; run()", "serve")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(_START_SECONDS)
        with _process(command, env=environment, stdout=subprocess.DEVNULL) as process:
            if not manager.recv(4096).startswith(b"READY=1"):
                raise TellAdmin("advisor serve did not become ready", code="bench.serve")
            yield process.pid  # nice(1) has become the program


@contextmanager
def _echoing(folder: Path) -> Iterator[Path]:
    path = folder / "echo"
    with _process((sys.executable, "-c", _ECHO, str(path)), stdout=subprocess.PIPE) as process:
        if process.stdout is not None:
            process.stdout.readline()
        yield path


@contextmanager
def _process(command: tuple[str, ...], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    # first in line, as advisor-serve.service says; where that is not allowed, nice tells and goes on
    with subprocess.Popen(("/usr/bin/nice", "-n", str(_PRIORITY), *command), **options) as process:  # noqa: S603
        try:
            yield process
        finally:
            process.terminate()


def _questions(count: int) -> list[bytes]:
    generator = np.random.default_rng(1)
    users = generator.integers(1, 60, count)
    processors = 2 ** generator.integers(0, 7, count)
    minutes = generator.choice([10, 60, 240, 1440], count)
    return [
        encode_line(
            AdviseRequest(
                v=VERSION,
                seq=number,
                uid=1000,
                gid=0,
                user=f"{user}",
                name="simulation",
                default_partition="onprem",
                min_cpus=int(cores),
                time_limit=int(limit),
            )
        )
        for number, (user, cores, limit) in enumerate(zip(users, processors, minutes, strict=True))
    ]


def _on_the_socket(path: Path, echo: Path, count: int, serve_pid: int) -> dict[str, Any]:
    """Questions one after the other, as slurmctld asks them; advice and echo in short turns."""
    lines = _questions(count)
    turns = max(1, count // _QUESTIONS_A_TURN)
    advice: list[float] = []
    echoed: list[float] = []
    with SubmitClient(path) as client, SubmitClient(echo) as peer, _first_in_line():
        microseconds_each(client.exchange, lines[:200])
        microseconds_each(peer.exchange, lines[:200])
        used = processor_seconds(serve_pid)
        for turn in range(turns):
            part = lines[turn::turns]
            advice += microseconds_each(client.exchange, part)
            echoed += microseconds_each(peer.exchange, part)
        used = processor_seconds(serve_pid) - used
        if not client.exchange(lines[0]).startswith(b"1\t0\t\t", 6):
            raise TellAdmin("advisor serve refuses to advise", code="bench.serve")
    advice_ms, echo_ms = (percentiles([value / 1e3 for value in values]) for values in (advice, echoed))
    return {
        "questions": count,
        "advice_ms": advice_ms,
        "echo_ms": echo_ms,
        "ratio_p50_to_echo": advice_ms["p50"] / echo_ms["p50"],
        "ratio_p99_to_echo": advice_ms["p99"] / echo_ms["p99"],
        "serve_processor_us_per_advice": used / count * 1e6,
        "load_average": os.getloadavg()[0],
    }


@contextmanager
def _first_in_line() -> Iterator[None]:
    """The one who asks goes first, as both servers do: else a busy machine's queue is what is measured."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    except PermissionError:  # not root: all three are like everybody else then
        yield
        return
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
