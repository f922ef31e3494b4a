"""A site under LSF: `advisor control` and `advisor serve` beside the stand-in; jobs are advised and moved."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from advisor.history.ledger import Wanted
from advisor.history.store import HistoryStore
from advisor.lsf.kept_advice import AdviceOfLiveJobs
from advisor.model.job import Job, JobOutcome
from advisor.service.state.state_files import LSF_ADVICE
from advisor.testing.ec2.process import Ec2Emulator
from advisor.testing.lsf_connector import StandInConnector
from advisor.testing.lsf_stand_in import LsfStandIn, StandInQueue
from tests.hooks.esub import ATTEMPTS, SCRIPT

pytestmark = pytest.mark.slow

CONNECTOR = SCRIPT.with_name("resource_connector")
QUESTIONS = (
    "getAvailableTemplates",
    "requestMachines",
    "getRequestStatus",
    "requestReturnMachines",
    "getReturnRequests",
)
COMMAND = (sys.executable, "-c", "from advisor.cli.main import run; run()")
LIMIT = ("-W", "30")
QUEUES = (
    StandInQueue(name="normal", hosts=("here1",), is_default=True),
    StandInQueue(name="other", hosts=("here1",), priority=5),
    StandInQueue(name="aws", hosts=()),
)
SETTINGS = """
[cluster]
scheduler = "lsf"
name = "lsf-lab"
on_premise_partitions = ["normal", "other"]
burst_partition = "aws"
default_mode = "act"
[paths]
lsf_envdir = "{folder}/lsf/etc"
state = "{folder}/state"
run = "{folder}/run"
[budget]
usd = 200000.0
usd_per_hour_saved = 500.0
[submit]
every_user = true
[placement]
boot_seconds = 5.0
[loops]
metrics_port = 0
snapshot_seconds = 1.0
learn_seconds = 1.0
reconcile_seconds = 2.0
[ec2]
image_id = "ami-12c6146b"
[ec2.classes.spot4]
nodes = "cloud[1-4]"
instance_types = ["c5.xlarge"]
cores = 4
memory_mb = 7000
on_demand_usd_per_hour = 0.17
[ec2.classes.steady4]
nodes = "steady[1-4]"
instance_types = ["c5.xlarge"]
cores = 4
memory_mb = 7000
on_demand_usd_per_hour = 0.17
features = ["on-demand"]
"""


class Live:
    """The site, its cluster and its two daemons."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        for name in ("run", "state"):
            (folder / name).mkdir()
        config = folder / "advisor.toml"
        config.write_text(SETTINGS.format(folder=folder))
        self._environment = {**os.environ, **environment, "ADVISOR_CONFIG": str(config)}
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

    def scripts(self) -> Path:
        """The provider's scripts, as a site puts them beside LSF's own."""
        folder = self.folder / "provider"
        folder.mkdir()
        (folder / "advisor_connector.conf").write_text(
            f"control_socket = {self.folder / 'run' / 'control.sock'}\n"
        )
        program = folder / "resource_connector"
        program.write_text(
            CONNECTOR.read_text().replace("#!/usr/bin/python3 -IS", f"#!{sys.executable} -IS", 1)
        )
        program.chmod(0o755)
        for name in QUESTIONS:
            (folder / f"{name}.sh").symlink_to(program)
        return folder

    @contextmanager
    def connector(self, lsf: LsfStandIn) -> Iterator[StandInConnector]:
        """LSF's resource connector, at work."""
        connector, stop = StandInConnector(lsf, self.scripts(), "aws"), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(connector.run, stop)
            try:
                yield connector
            finally:
                stop.set()
                running.result()

    def install_esub(self) -> None:
        """From now on bsub asks `advisor serve`."""
        folder = self.folder / "lsf" / "sbin"
        (folder / "advisor_esub.conf").write_text(
            f"socket = {self.folder / 'run' / 'submit.sock'}\nbudget_ms = 500\n"
        )
        install(SCRIPT, folder)

    def submit_to_the_cloud(self, *words: str) -> int:
        """A job that its esub has sent there; a machine under load may miss half a second now and then."""
        for _ in range(ATTEMPTS):
            said = self.run("bsub", *words)
            job_id = said.partition("<")[2].partition(">")[0]
            if "queue <aws>" in said:
                return int(job_id)
            self.run("bkill", job_id)  # control would move it later, and it would hold a host
        raise AssertionError(self.logs())

    def run(self, name: str, *words: str) -> str:
        command = str(self.folder / "lsf" / "bin" / name)
        return subprocess.run([command, *words], capture_output=True, text=True, check=True).stdout

    def queues(self) -> dict[int, str]:
        rows = json.loads(self.run("bjobs"))["RECORDS"]
        return {int(row["JOBID"]): row["QUEUE"] for row in rows}

    def host_of(self, job_id: int) -> str:
        """Where `advisor control` sees a job in the cloud."""
        rows = self.control()["cloud_report"]["nodes"]
        return next((row["node"] for row in rows if job_id in row["jobs"]), "")

    def advice(self) -> AdviceOfLiveJobs:
        return LSF_ADVICE.at(self.folder / "state").read()

    def until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 240.0  # numba may compile first
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: {self.logs()}"
            time.sleep(0.2)  # two processes work on their own

    def logs(self) -> str:
        parts = [path.read_text()[-2000:] for path in self.folder.glob("*.log")]
        return "\n".join(
            [*parts, str(self.queues()), str(self.advice()), str(self.control().get("advising"))]
        )


def install(script: Path, folder: Path) -> Path:
    """Copy a script, run by this Python."""
    copy = folder / script.name
    copy.write_text(script.read_text().replace("#!/usr/bin/python3 -IS", f"#!{sys.executable} -IS", 1))
    copy.chmod(0o755)
    return copy


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


@pytest.mark.timeout(900)
def test_a_site_under_lsf() -> None:
    """Jobs are advised in the queue and at submission; the cloud's hosts come and go by the connector."""
    with tempfile.TemporaryDirectory(prefix="live-") as name, ExitStack() as stack:
        folder = Path(name)
        ec2 = stack.enter_context(Ec2Emulator())
        live = Live(folder, ec2.environment)
        lsf = stack.enter_context(LsfStandIn(folder / "lsf", hosts={"here1": 4}, queues=QUEUES))
        live.bsub("-n", "4", *LIMIT, "sleep", "900")
        live.until("it runs", lambda: '"RUN"' in live.run("bjobs"))
        for daemon in ("control", "serve"):
            stack.enter_context(live.daemon(daemon))
        live.until("there is a price", live.has_price)
        live.until("run times are forecast", live.forecasts)
        found = live.advisor("doctor")["findings"]
        assert {one["check"] for one in found if one["level"] == "error"} <= {"cloud", "ec2", "models"}
        assert any("hosts" in one["what"] for one in found if one["check"] == "lsf")
        assert any("ingest lsb.acct" in one["mend"] for one in found if one["check"] == "history")
        proposed = live.advisor(
            "init", "--lsf-envdir", str(lsf.environment_folder), "--output", str(folder / "new")
        )
        assert proposed["settings"]["cluster.on_premise_partitions"] == ["normal", "other"]
        assert proposed["settings"]["cluster.burst_partition"] == "aws"
        connector = stack.enter_context(live.connector(lsf))
        advised_in_the_queue(live)
        advised_at_submission(live)
        hosts_are_given_back(live, connector, ec2)


def advised_in_the_queue(live: Live) -> None:
    # one of these may not be requeued, and goes to a host that is never spot
    options = [("-J", f"relax{n}", *(("-r",) if n else ())) for n in range(3)]
    moving = [live.bsub("-n", "2", *LIMIT, *words, "sleep", "2") for words in options]
    array = live.bsub("-J", "scan[1-3]", *LIMIT, "-r", "sleep", "2")
    kept = {
        live.bsub("-n", "2", *LIMIT, "-Jd", "no-burst", "sleep", "900"): "rule.opt_out_comment",
        live.bsub("-n", "2", *LIMIT, "-q", "other", "sleep", "900"): "rule.explicit_partition",
    }
    live.until("all are advised", lambda: kept.keys() <= live.advice().jobs.keys())
    reasons = {job_id: json.loads(live.advice().jobs[job_id].comment)["why"] for job_id in kept}
    assert reasons == kept
    queues = live.queues()
    assert {queues[job_id] for job_id in kept} == {"normal", "other"}
    with HistoryStore(live.history) as store:
        for job_id in moving:
            live.until("it has ended", lambda job_id=job_id: ended(store, job_id))
            outcome = store.of_job(job_id, source="slurm")
            assert outcome is not None
            assert outcome.partition == "aws"
            hosts = ("steady",) if job_id == moving[0] else ("cloud", "steady")
            assert (outcome.nodes or "").startswith(hosts)
            assert store.advice_of(job_id, source="slurm") is not None
    live.until("the array has run", lambda: array not in live.queues())
    assert "burst" in json.dumps(live.advisor("why", str(moving[0])))
    live.until("all moves are counted", lambda: live.control()["advising"]["moved"] == len(moving) + 1)
    assert live.control()["advising"]["left_alone"] == 0


def advised_at_submission(live: Live) -> None:
    live.install_esub()
    for words in (("-J", "told"), ("-J", "alike", "-Jd", "mine")):
        job_id = live.submit_to_the_cloud("-n", "2", *LIMIT, "-r", *words, "sleep", "1")
        with HistoryStore(live.history) as store:
            live.until("it is joined", lambda job_id=job_id: is_joined(store, job_id))
            live.until("it has ended", lambda job_id=job_id: ended(store, job_id))
            decisions = store.newest_decisions(Wanted(since=0.0, job_id=job_id), 10)
            assert len(decisions) == 1, "it was advised once"
            assert decisions[0].job_ids == (job_id,)
            rows = store.outcomes_of(decisions[0].record.advice.advice_id)
            assert [row.job_id for row in rows] == [job_id]
        assert "burst" in json.dumps(live.advisor("why", str(job_id)))


def hosts_are_given_back(live: Live, connector: StandInConnector, ec2: Ec2Emulator) -> None:
    live.until("idle hosts are ended", lambda: not connector.machines and not alive(ec2))
    job_id = live.submit_to_the_cloud("-n", "2", *LIMIT, "-r", "sleep", "900")
    live.until("it runs on a spot host", lambda: live.host_of(job_id).startswith("cloud"))
    instance = connector.machines[live.host_of(job_id)]
    ec2.reclaim(instance, notice_s=600.0)
    live.until("its host is given up", lambda: instance not in connector.machines.values())
    # its new host may have the name of the lost one, which is free once that instance has ended
    live.until("it runs again", lambda: connector.machines.get(live.host_of(job_id), instance) != instance)
    live.run("bkill", str(job_id))
    live.until("hosts are ended", lambda: not connector.machines and not alive(ec2))
    live.until("money is counted", lambda: live.control()["cloud_report"]["spend"]["spent_usd"] > 0.0)


def alive(ec2: Ec2Emulator) -> list[str]:
    return [one["id"] for one in ec2.instances() if one["state"] in {"pending", "running"}]


def ended(store: HistoryStore, job_id: int) -> bool:
    return store.of_job(job_id, source="slurm") is not None


def is_joined(store: HistoryStore, job_id: int) -> bool:
    return store.advice_of(job_id, source="slurm") is not None
