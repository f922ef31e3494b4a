"""A site under LSF: `advisor control` and `advisor serve` beside the stand-in; jobs are advised and moved."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from advisor.history.store import HistoryStore
from advisor.lsf.kept_advice import AdviceOfLiveJobs
from advisor.model.job import Job, JobOutcome
from advisor.service.state.state_files import LSF_ADVICE
from advisor.testing.lsf_stand_in import LsfStandIn, StandInQueue

COMMAND = (sys.executable, "-c", "from advisor.cli.main import run; run()")
QUEUES = (
    StandInQueue(name="normal", hosts=("here1",), is_default=True),
    StandInQueue(name="other", hosts=("here1",), priority=5),
    StandInQueue(name="aws", hosts=("cloud1", "cloud2")),
)
SETTINGS = """
[cluster]
scheduler = "lsf"
on_premise_partitions = ["normal", "other"]
burst_partition = "aws"
default_mode = "act"
[paths]
lsf_envdir = "{folder}/lsf/etc"
state = "{folder}/state"
run = "{folder}/run"
[budget]
usd_per_hour_saved = 500.0
[placement]
boot_seconds = 5.0
[loops]
metrics_port = 0
snapshot_seconds = 1.0
learn_seconds = 1.0
"""


class Live:
    """The site, its cluster and its two daemons."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("run", "state"):
            (folder / name).mkdir()
        config = folder / "advisor.toml"
        config.write_text(SETTINGS.format(folder=folder))
        self._environment = {**os.environ, "ADVISOR_CONFIG": str(config)}
        with HistoryStore(self.history) as store:
            store.add(past_jobs(), source="slurm")

    @property
    def history(self) -> str:
        return f"sqlite:///{self.folder / 'state' / 'history.db'}"

    @contextmanager
    def daemon(self, name: str) -> Iterator[None]:
        with (self.folder / f"{name}.log").open("w") as file:
            process = subprocess.Popen(
                [*COMMAND, name], env=self._environment, stdout=file, stderr=subprocess.STDOUT
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait(60.0)

    def advisor(self, *words: str) -> Any:
        done = subprocess.run(
            [*COMMAND, *words, "--format", "json"], env=self._environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr  # 1: doctor has warnings
        return json.loads(done.stdout)

    def control(self) -> dict[str, Any]:
        said: dict[str, Any] | None = self.advisor("status")["control"]
        return said or {}

    def has_price(self) -> bool:
        return bool((self.control().get("price") or {}).get("seconds_per_usd"))

    def forecasts(self) -> bool:
        serve = self.advisor("status")["serve"] or {}  # while it starts, it only says why it does not answer
        return serve.get("model_version") is not None

    def bsub(self, *words: str) -> int:
        said = self.run("bsub", *words)
        return int(said.partition("<")[2].partition(">")[0])

    def run(self, name: str, *words: str) -> str:
        command = str(self.folder / "lsf" / "bin" / name)
        return subprocess.run([command, *words], capture_output=True, text=True, check=True).stdout

    def queues(self) -> dict[int, str]:
        rows = json.loads(self.run("bjobs"))["RECORDS"]
        return {int(row["JOBID"]): row["QUEUE"] for row in rows}

    def advice(self) -> AdviceOfLiveJobs:
        return LSF_ADVICE.at(self.folder / "state").read()

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240.0  # numba may compile first
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: {self.logs()}"
            time.sleep(0.2)  # two processes work on their own

    def logs(self) -> str:
        return "".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))


def past_jobs() -> list[JobOutcome]:
    """Jobs of a quarter of an hour that waited ten minutes."""
    now, found = time.time(), []
    for number in range(300):
        submitted = now - 86_400.0 - 60.0 * number
        job = Job(
            job_id=1_000_000 + number, submit_time=submitted, processors=1 + number % 4,
            user=getpass.getuser(), queue="normal", requested_time=1800.0, explicit_time_limit=True,
        )  # fmt: skip
        start = submitted + 600.0
        found.append(
            JobOutcome(job=job, start_time=start, end_time=start + 900.0 + number, partition="normal")
        )
    return found


def test_jobs_of_lsf_are_advised_in_the_queue_and_moved_while_they_wait() -> None:
    with tempfile.TemporaryDirectory(prefix="live-") as name, ExitStack() as stack:
        folder = Path(name)
        live = Live(folder)
        hosts = {"here1": 4, "cloud1": 4, "cloud2": 4}
        stack.enter_context(
            LsfStandIn(folder / "lsf", hosts=hosts, queues=QUEUES, resources={"cloud1": "on_demand"})
        )
        limit = ("-W", "30")
        begun = live.bsub("-n", "4", *limit, "sleep", "900")
        live.until("it runs", lambda: '"RUN"' in live.run("bjobs"))
        for daemon in ("control", "serve"):
            stack.enter_context(live.daemon(daemon))
        live.until(
            "there is a price", lambda: bool((live.control().get("price") or {}).get("seconds_per_usd"))
        )
        live.until("run times are forecast", live.forecasts)
        # cloud1 alone is known to be no spot host, and one of these may not be requeued
        options = [("-J", f"relax{n}", *(("-r",) if n else ())) for n in range(3)]
        found = live.advisor("doctor")["findings"]
        assert {one["check"] for one in found if one["level"] == "error"} <= {"cloud", "ec2", "models"}
        assert any("hosts" in one["what"] for one in found if one["check"] == "lsf")
        moving = [live.bsub("-n", "2", *limit, *words, "sleep", "2") for words in options]
        array = live.bsub("-J", "scan[1-3]", *limit, "-r", "sleep", "2")
        kept = {
            live.bsub("-n", "2", *limit, "-Jd", "no-burst", "sleep", "900"): "rule.opt_out_comment",
            live.bsub("-n", "2", *limit, "-q", "other", "sleep", "900"): "rule.explicit_partition",
        }
        live.until("all are advised", lambda: kept.keys() <= live.advice().jobs.keys())
        reasons = {job_id: json.loads(live.advice().jobs[job_id].comment)["why"] for job_id in kept}
        assert reasons == kept
        queues = live.queues()
        assert {queues[job_id] for job_id in kept} | {queues[begun]} == {"normal", "other"}
        with HistoryStore(live.history) as store:
            for job_id in moving:
                live.until("it has ended", lambda job_id=job_id: ended(store, job_id))
                outcome = store.of_job(job_id, source="slurm")
                assert outcome is not None
                assert outcome.partition == "aws"
                assert job_id != moving[0] or outcome.nodes == "cloud1"
                assert store.advice_of(job_id, source="slurm") is not None
        live.until("the array has run", lambda: array not in live.queues())
        why = live.advisor("why", str(moving[0]))
        assert "burst" in json.dumps(why)
        live.until("all moves are counted", lambda: live.control()["advising"]["moved"] == len(moving) + 1)
        assert live.control()["advising"]["left_alone"] == 0


def ended(store: HistoryStore, job_id: int) -> bool:
    return store.of_job(job_id, source="slurm") is not None
