"""The modules whose functions run between a request's bytes and the bytes of its reply, printed as JSON.

Compiled functions count as well: this runs in a process of its own, in which numba compiles nothing.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from msgspec import structs

import advisor
from advisor.decide.price import slices
from advisor.decide.submission import priced
from advisor.model.job import Job, JobOutcome
from advisor.model.machine import Machine
from advisor.model.settings_price import BudgetSettings
from advisor.model.site import PerformanceRatios, Price, Room
from advisor.predict.run_times.run_times import RunTimesOfJobs
from advisor.predict.size.size_features import FEATURE_NAMES
from advisor.predict.size.size_model import SizeModel
from advisor.predict.trees.forest import LEAF, TreeEnsemble
from advisor.service.exchange.protocol import encode_line
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.running.metrics import ServeMetrics
from advisor.service.submit.answering import Answerer
from advisor.service.submit.recent import QueueLevel, QueueLevels
from advisor.service.submit.server import SubmitServer
from advisor.service.submit.state_holder import LoadedModel, StateHolder
from advisor.simulate.pool.start_profile import QueueProfiles, StartProfile
from tests.service.site import NOW, Clock, ask, make_settings, make_snapshot

PACKAGE = Path(advisor.__file__).parent
NO_JOBS = np.empty((0, 3))


class Connection:
    """Asks one question; what runs from its bytes to those of the reply is noted."""

    def __init__(self, line: bytes) -> None:
        self._lines = [line]
        self.reply = b""
        self.modules: set[str] = set()

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            self.modules.add(path.relative_to(PACKAGE.parent).as_posix())

    def recv(self, _size: int) -> bytes:
        sys.setprofile(self._note)
        return self._lines.pop() if self._lines else b""

    def sendall(self, data: bytes) -> None:
        sys.setprofile(None)
        self.reply += data

    def setsockopt(self, *_option: object) -> None:
        """Without a socket there is no time limit."""


class Sink:
    """Takes what the server writes after its reply."""

    waiting = dropped = written = sent = not_sent = 0

    def append(self, _record: object) -> None:
        """Drop an advice."""

    def announce(self, *_advice: object) -> None:
        """Drop the announcement of an advice."""


def queue(wait: float) -> QueueProfiles:
    """All of the machine is free after a wait."""
    times, free = np.array([NOW - 1.0, NOW + wait]), np.array([64.0 if not wait else 0.0, 64.0])
    profile = StartProfile(np.array([times, np.full(2, np.inf), free, free]))
    return QueueProfiles(profile, profile)


def run_times() -> RunTimesOfJobs:
    known = RunTimesOfJobs()
    job = Job(job_id=1, submit_time=0.0, processors=2, user="alice", queue="onprem", requested_time=3600.0)
    for _ in range(9):
        known.learn(JobOutcome(job=job, start_time=0.0, end_time=600.0))
    return known


def size_model() -> SizeModel:
    """Of one leaf: every job is small."""
    trees = TreeEnsemble(
        roots=np.zeros(1, np.int32),
        feature=np.full(1, LEAF, np.int32),
        threshold=np.zeros(1),
        children=np.zeros((1, 3), np.int32),
        value=np.ones(1),
        baseline=0.0,
        scale=1.0,
        link="logistic",
        features=len(FEATURE_NAMES),
        single_precision=True,
    )
    return SizeModel(trees=trees, divider_seconds=300.0)


def modules_of(folder: Path, wait: float, size: SizeModel | None, **asked: Any) -> tuple[str, set[str]]:
    """The reply to one question, and the modules that ran."""
    settings = make_settings(folder, policy="price", hedge={"enabled": True})
    settings = settings.model_copy(update={"budget": BudgetSettings(usd=1000.0)})
    snapshot = make_snapshot()
    rooms = {"": (Room(processors=4, free=50, up=1, total=100),)}
    state = structs.replace(
        snapshot.state,
        cloud=structs.replace(snapshot.state.cloud, rooms=rooms),
        ratios=PerformanceRatios(overhead=0.01, baseline=1.0, deviation=0.1, jobs=90),
        price=Price(seconds_per_usd=36.0, tokens_usd=1000.0),
    )
    snapshot = replace(
        snapshot, state=state, queues=(SeenQueue.of(Machine(("onprem",), 64), NO_JOBS, NO_JOBS[:, :3]),)
    )
    holder = StateHolder(settings, load_model=lambda _version: None)
    holder.run_times.current = run_times()
    model = LoadedModel("1", None, size)
    holder.current = replace(
        holder.current, snapshot=snapshot, starts=(QueueLevels((QueueLevel(0, queue(wait)),)),), model=model
    )
    sink: Any = Sink()
    server = SubmitServer(
        sink,
        answerer=Answerer(holder, clock=Clock()),
        holder=holder,
        spool=sink,
        metrics=ServeMetrics(),
        announcer=sink,
        allowed_uids=frozenset(),
    )
    priced.warm()  # as `advisor serve` does: the policy's module is imported before the first question
    connection: Any = Connection(encode_line(ask(user="alice", **asked)))
    server._answer_lines(connection)
    sys.setprofile(None)
    return connection.reply.decode(), connection.modules


def with_numbers_of_python() -> None:
    """Let the one kernel whose results are written as JSON return the numbers that it returns compiled."""
    kernel = slices.best_of_stops

    def stops(*arguments: Any) -> Any:
        return tuple(float(number) for number in kernel(*arguments))

    setattr(slices, "best_of_stops", stops)  # noqa: B010 - its type is that of the kernel


def main() -> None:
    with_numbers_of_python()
    warnings.simplefilter("ignore")  # hashes overflow, as they are meant to; compiled code says nothing
    cases: dict[str, tuple[float, SizeModel | None, dict[str, Any]]] = {
        "stays": (0.0, None, {}),
        "moves whole": (7200.0, None, {"requeue": False}),
        "moves in a slice": (7200.0, None, {}),
        "is bound by a rule": (7200.0, None, {"comment": "no-burst"}),
        "is small": (7200.0, size_model(), {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        found = {name: modules_of(Path(folder), *case[:2], **case[2]) for name, case in cases.items()}
    sys.stdout.write(json.dumps({name: (reply, sorted(modules)) for name, (reply, modules) in found.items()}))


if __name__ == "__main__":
    main()
