"""The same cases against the stand-in for LSF, and against a real cluster where LSF_ENVDIR names one.

The real one needs queues `normal` and `aws` on the same hosts, and these tests need an administrator's
rights: `ADVISOR_LSF_USER` names the user who submits, if it is not the one who runs the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import structs

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.submission.policy import moves_nothing
from advisor.files.state_file import StateFile
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.lsf import backend
from advisor.lsf.answers import read_max_priority
from advisor.lsf.backend import LsfBackend
from advisor.lsf.changing import limit
from advisor.lsf.commands import LATE, LsfCommands
from advisor.lsf.events import EventsReader
from advisor.lsf.installation import EVENTS, Installation, read_installation
from advisor.lsf.kept_advice import AdviceOfLiveJobs
from advisor.lsf.live_job import LiveJob
from advisor.lsf.pend_reasons import REASONS_ARGUMENTS, Reasons, read_reasons
from advisor.lsf.queued_jobs import queued_jobs
from advisor.model.advice import Advice, Mode, Placement
from advisor.model.cluster import NodePower
from advisor.model.errors import RetryLater
from advisor.model.job import Job
from advisor.model.job_id import job_name
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, RUNNING, QueuedJob
from advisor.service.observation.sharing import sharing_of
from advisor.service.price.queue_view import forecast_waits, on_premise_queue
from advisor.service.waiting.unadvised import is_unadvised
from advisor.testing.lsf_stand_in import LsfStandIn, StandInQueue

HERE, CLOUD = "normal", "aws"
REAL: Final = os.environ.get("LSF_ENVDIR")
COMMENT: Final = json.dumps({"burst_advisor": 1, "id": "a-1", "to": "burst", "mode": "act", "why": "x"})
MOVE: Final = {"partition": CLOUD, "admincomment": COMMENT}
SLOTS = 16


class Site:
    """A cluster, and what a case does to it beside asking and telling it."""

    def __init__(self, installation: Installation, folder: Path, stand_in: LsfStandIn | None) -> None:
        self.stand_in = stand_in
        self.backends: list[LsfBackend] = []
        self.installation = installation
        self.file = StateFile(folder / "lsf_advice.json", AdviceOfLiveJobs)
        self.lsf = self.another()
        self.submitted: list[int] = []
        self.slots = sum(node.processors for node in self.lsf.snapshot(time.time()).nodes)

    def another(self) -> LsfBackend:
        """The back end of a process that starts now."""
        if self.backends:
            self.backends[-1].close()
        cluster = {"scheduler": "lsf", "on_premise_partitions": (HERE,), "burst_partition": CLOUD}
        self.settings = Settings.model_validate({"cluster": cluster})
        self.backends.append(LsfBackend(self.settings, self.installation, self.file))
        return self.backends[-1]

    def run(self, *words: str, user: str | None = None) -> str:
        line = [str(self.installation.commands / words[0]), *words[1:]]
        environment = {**os.environ, "LSF_ENVDIR": str(self.installation.environment_folder)}
        done = subprocess.run(
            line, env=environment, user=user, cwd="/tmp", capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def submit(self, *words: str) -> int:
        user = None if self.stand_in else os.environ.get("ADVISOR_LSF_USER")
        said = self.run("bsub", *words, user=user)
        job_id = int(said.partition("Job <")[2].partition(">")[0])
        self.submitted.append(job_id)
        return job_id

    def priority(self) -> int | None:
        """The highest that a user's job may have."""
        return read_max_priority(self.run("bparams", "-l"))

    def reasons(self) -> Reasons:
        """Why jobs wait, once LSF has looked at them."""
        return read_reasons(self.run("bjobs", *REASONS_ARGUMENTS))

    def live(self, job_id: int) -> LiveJob:
        """A job as lsb.events has it."""
        reader = EventsReader(self.installation.log_folder / EVENTS)
        found = reader.look()
        reader.close()
        return next(job for job in found.jobs if job.job_id == job_id)

    def fill(self) -> int:
        """Have a job that takes all slots."""
        job_id = self.submit("-n", str(self.slots), "sleep", "600")
        self.until(lambda: self.rows()[job_id].state == RUNNING)
        return job_id

    def rows(self) -> dict[int, QueuedJob]:
        return {queued.job.job_id: queued for queued in self.lsf.snapshot(time.time()).jobs}

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60.0
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.05)  # of a cluster that works on its own

    def shown(self) -> dict[str, tuple[str, str]]:
        """State and queue by bjobs, by job id or, of an array's elements, by name."""
        said = self.run("bjobs", "-u", "all", "-json", "-o", "jobid stat queue job_name")
        rows = json.loads(said)["RECORDS"]
        return {
            row["JOB_NAME"] if "[" in row["JOB_NAME"] else row["JOBID"]: (row["STAT"], row["QUEUE"])
            for row in rows
        }

    def leave(self) -> None:
        for job_id in self.submitted:
            self.run("bkill", str(job_id))
        self.until(lambda: not {row.array_job_id for row in self.rows().values()} & set(self.submitted))
        for lsf in self.backends:
            lsf.close()


@pytest.fixture(params=["stand-in", *(["real"] if REAL else [])])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if request.param == "real":
        assert REAL
        real = Site(read_installation(Path(REAL), "lab"), tmp_path, None)
        yield real
        real.leave()
        return
    with stood_in(tmp_path) as made:
        yield made


@contextmanager
def stood_in(
    tmp_path: Path,
    *,
    here: tuple[int, int] | None = None,
    there: tuple[int, int] | None = None,
    users: tuple[str, ...] = (),
    reruns: bool = False,
) -> Iterator[Site]:
    """The stand-in, with run limits of the two queues, and the users of the cloud's; `reruns`: RERUNNABLE."""
    queues = (
        StandInQueue(name=HERE, hosts=("vm",), is_default=True, minutes=here),
        StandInQueue(
            name=CLOUD, hosts=("vm",), priority=20, minutes=there, users=users, is_rerunnable=reruns
        ),
    )
    with LsfStandIn(tmp_path / "lsf", hosts={"vm": SLOTS}, queues=queues, max_priority=90) as stand_in:
        installation = read_installation(stand_in.environment_folder, "any")
        made = Site(installation, tmp_path, stand_in)
        try:
            yield made
        finally:
            made.leave()


def test_hosts_and_queues(site: Site) -> None:
    snapshot = site.lsf.snapshot(time.time())
    assert snapshot.malformed == 0
    partitions = {partition.name: partition for partition in site.lsf.partitions()}
    assert partitions[HERE].is_up
    assert partitions[CLOUD].is_up
    assert (partitions[HERE].is_default, partitions[CLOUD].is_default) == (True, False)
    for node in snapshot.nodes_of(HERE):
        assert node.processors > 0
        assert node.memory_mb > 0
        assert node.power is NodePower.UP
        assert not node.is_cloud  # it is in an on-premise queue as well
    assert partitions[HERE].total_processors == sum(n.processors for n in snapshot.nodes_of(HERE))
    assert site.lsf.ping()


def test_a_job_as_its_user_submitted_it(site: Site) -> None:
    site.fill()
    words = ("-J", "a job", "-n", "3", "-W", "90", "-Jd", "no-burst, please", "-P", "one", "-r")
    job_id = site.submit(*words, "-R", "rusage[mem=100] span[hosts=1]", "sleep", "5")
    plain = site.submit("sleep", "5")
    rows = site.rows()
    job = rows[job_id].job
    assert (job.name, job.processors, job.requested_time) == ("a job", 3, 5400.0)
    assert (job.comment, job.account, job.requeue) == ("no-burst, please", "one", True)
    assert (job.memory_mb_per_node, job.nodes, job.queue) == (100, 1, HERE)
    assert rows[job_id].is_queued
    assert rows[job_id].array_job_id == job_id
    assert (rows[plain].job.comment, rows[plain].job.requeue, rows[plain].job.node_list) == (
        None,
        False,
        None,
    )
    assert abs(job.submit_time - time.time()) < 60.0
    assert set(site.lsf.waiting({plain})) >= {job_id, plain}
    assert site.lsf.waiting({plain})[plain] is None


def test_every_job_is_shown_as_bjobs_shows_it(site: Site) -> None:
    running = site.fill()
    held, array = site.submit("-H", "sleep", "1"), site.submit("-J", "few[1-3]", "sleep", "1")
    later = site.submit("-b", time.strftime("%H:%M", time.localtime(time.time() + 7200)), "sleep", "1")
    shown, rows = site.shown(), site.rows()
    assert shown[str(running)] == ("RUN", HERE)
    assert rows[running].state == RUNNING
    assert shown[str(held)] == ("PSUSP", HERE)
    assert rows[held].is_held
    assert shown[str(later)] == ("PEND", HERE)
    assert rows[later].reason == "BeginTime"
    assert shown["few[2]"] == ("PEND", HERE)
    assert rows[array].job.array_tasks == 3
    assert rows[array].is_queued
    assert rows[running].job.processors == site.slots
    site.lsf.release([held])
    site.until(lambda: site.rows()[held].is_queued)


def test_a_waiting_job_is_moved_and_keeps_its_advice(site: Site) -> None:
    site.fill()
    job_id, own = site.submit("sleep", "5"), site.submit("-Jd", "mine", "sleep", "5")
    before = site.rows()[job_id]
    chosen = site.submit("-R", "rusage[mem=100]", "sleep", "5")
    site.lsf.update_jobs({job_id: {**MOVE, "timelimit": "75"}, own: MOVE, chosen: {**MOVE, "features": "fs"}})
    for lsf in (site.lsf, site.another()):
        rows = {queued.job.job_id: queued for queued in lsf.snapshot(time.time()).jobs}
        assert rows[job_id].partitions == rows[own].partitions == (CLOUD,)
        assert rows[job_id].admin_comment == rows[own].admin_comment == COMMENT
        assert rows[job_id].job.submit_time == before.job.submit_time
        assert rows[job_id].job.requested_time == 75 * 60.0
        assert rows[chosen].partitions == (CLOUD,)
        assert rows[chosen].job.node_list == "rusage[mem=100] select[fs]"
        assert (rows[job_id].job.comment, rows[own].job.comment) == (None, "mine")
    assert site.shown()[str(job_id)] == ("PEND", CLOUD)
    assert "Burst Advisor: " in (site.installation.log_folder / "lsb.events").read_text(errors="replace")


def test_the_advice_of_a_job_that_stays(site: Site) -> None:
    site.fill()
    job_id = site.submit("sleep", "5")
    site.lsf.update_job([job_id], {"admincomment": COMMENT})
    assert site.rows()[job_id].admin_comment == COMMENT
    assert site.rows()[job_id].partitions == (HERE,)
    site.run("bkill", str(job_id))
    site.until(lambda: job_id not in site.rows())
    assert abs(site.file.read().jobs[job_id].ended - time.time()) < 60.0


def test_a_job_without_a_limit_keeps_that_of_its_own_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On volclava a job that was switched to a queue with `RUNLIMIT = 1 30` was killed after a minute."""
    with stood_in(tmp_path, here=(60, 600), there=(10, 600)) as site:
        site.fill()
        job_id, own, fails = site.submit("x"), site.submit("-W", "20", "x"), site.submit("x")
        array = site.submit("-J", "a[1-3]", "x")
        site.lsf.update_jobs({job_id: MOVE, own: MOVE, array: MOVE})
        run = LsfCommands.text

        def text(commands: LsfCommands, name: str, *words: str) -> str:
            if name == "bswitch":
                raise RetryLater("the queue is closed")
            return run(commands, name, *words)

        monkeypatch.setattr(LsfCommands, "text", text)
        with pytest.raises(RetryLater, match="closed"):
            site.lsf.update_jobs({fails: MOVE})
        rows = site.rows()
        limits = [rows[one].job.requested_time for one in (job_id, own, array)]
        assert (limits, rows[array].partitions) == ([3600.0, 1200.0, 3600.0], (CLOUD,))
        assert site.live(fails).run_limit_seconds is None


def test_a_queue_that_reruns_jobs_does_not_rerun_those_that_must_not_be(tmp_path: Path) -> None:
    """Rule 1: bswitch makes them rerunnable (seen on volclava): one would run twice when a host is lost."""
    with stood_in(tmp_path, reruns=True) as site:
        site.fill()
        once, own = site.submit("x"), site.submit("-r", "x")
        site.lsf.update_jobs({once: MOVE, own: MOVE})
        assert site.stand_in is not None
        site.stand_in.begin_new_events_file()  # it says what LSF would do
        rows = site.rows()
        assert [rows[one].partitions for one in (once, own)] == [(CLOUD,), (CLOUD,)]
        assert [rows[one].job.requeue for one in (once, own)] == [False, True]


def test_a_users_job_is_not_moved_to_a_queue_that_is_not_for_its_user(tmp_path: Path) -> None:
    """bswitch would obey, for an administrator calls it."""
    with stood_in(tmp_path, users=("somebody",)) as site:
        site.fill()
        job_id = site.submit("x")
        with pytest.raises(RetryLater, match="not for its user"):
            site.lsf.update_jobs({job_id: MOVE})
        assert (site.rows()[job_id].partitions, site.rows()[job_id].admin_comment) == ((HERE,), "")
        assert site.run("bswitch", CLOUD, str(job_id)) == f"Job <{job_id}> is switched to queue <{CLOUD}>\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
def test_nobody_changes_the_jobs_of_others() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with stood_in(Path(folder)) as site:
            site.fill()
            job_id = site.submit("sleep", "5")
            for words in (("bswitch", CLOUD), ("bmod", "-Jd", "mine"), ("bkill",)):
                assert "permission denied" in site.run(*words, str(job_id), user="nobody")
            assert site.shown()[str(job_id)] == ("PEND", HERE)


def test_an_array_is_moved_as_a_whole(site: Site) -> None:
    site.fill()
    array = site.submit("-J", "many[1-4]", "sleep", "1")
    site.lsf.update_jobs({array: MOVE})
    row = site.rows()[array]
    assert (row.partitions, row.job.array_tasks, row.admin_comment) == ((CLOUD,), 4, COMMENT)
    assert {site.shown()[f"many[{n}]"] for n in range(1, 5)} == {("PEND", CLOUD)}
    site.run("bswitch", HERE, f"{array}[2]")
    rows = site.rows()
    second = 2 << 32 | array
    assert job_name(second) == f"{array}[2]"
    assert rows[second].partitions == (HERE,)
    assert array not in rows  # its elements differ: each is a row


def test_of_an_array_the_elements_that_wait_are_moved_and_no_other(site: Site) -> None:
    """An array that runs in part is the usual one, and bswitch takes its running elements along."""
    most = site.submit("-n", str(site.slots - 1), "sleep", "600")
    site.until(lambda: site.rows()[most].state == RUNNING)
    array = site.submit("-J", "many[1-4]", "sleep", "600")
    site.until(lambda: site.shown()["many[1]"] == ("RUN", HERE))
    site.lsf.update_jobs({array: MOVE})
    assert site.shown()["many[1]"] == ("RUN", HERE)
    assert {site.shown()[f"many[{n}]"] for n in range(2, 5)} == {("PEND", CLOUD)}
    rows = site.rows()
    assert (rows[array].partitions, rows[array].job.array_tasks) == ((CLOUD,), 3)
    assert rows[1 << 32 | array].partitions == (HERE,)


def test_a_job_that_has_begun_stays_where_it_is(site: Site) -> None:
    running = site.fill()
    with pytest.raises(RetryLater, match="begun"):
        site.lsf.update_jobs({running: MOVE})
    row = site.rows()[running]
    assert (row.partitions, row.state, row.admin_comment) == ((HERE,), RUNNING, "")
    assert site.shown()[str(running)] == ("RUN", HERE)


def test_a_job_that_is_known_to_run_is_not_switched_at_all(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bswitch would take it to the cloud's queue, and a crash would leave it there."""
    running, told, run = site.fill(), list[str](), LsfCommands.text

    def text(commands: LsfCommands, name: str, *words: str) -> str:
        told.append(name)
        return run(commands, name, *words)

    monkeypatch.setattr(LsfCommands, "text", text)
    with pytest.raises(RetryLater, match="begun"):
        site.lsf.update_jobs({running: {**MOVE, "features": "fs"}})
    assert not {"bmod", "bswitch"}.intersection(told)


def test_a_job_that_begins_as_it_is_switched_is_put_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    filler = site.fill()
    job_id, run = site.submit("sleep", "600"), LsfCommands.text

    def text(commands: LsfCommands, name: str, *words: str) -> str:
        if name == "bswitch" and words[0] == CLOUD:
            site.run("bkill", str(filler))
            site.until(lambda: site.live(job_id).state == "RUN")
        return run(commands, name, *words)

    monkeypatch.setattr(LsfCommands, "text", text)
    with pytest.raises(RetryLater, match="begun meanwhile"):
        site.lsf.update_jobs({job_id: MOVE})
    row = site.rows()[job_id]
    assert (row.partitions, row.state, row.admin_comment) == ((HERE,), RUNNING, "")


def test_what_lsf_refuses_is_said_and_the_rest_is_done(site: Site) -> None:
    site.fill()
    first, second = site.submit("sleep", "5"), site.submit("sleep", "5")
    with pytest.raises(RetryLater, match=f"job {first}"):
        site.lsf.update_jobs({first: {**MOVE, "partition": "nosuch"}, second: MOVE})
    rows = site.rows()
    assert (rows[first].partitions, rows[first].admin_comment) == ((HERE,), "")
    assert (rows[second].partitions, rows[second].admin_comment) == ((CLOUD,), COMMENT)
    for changes in ({"nosuchword": "5"}, {"admincomment": COMMENT}):
        with pytest.raises(RetryLater):
            site.lsf.update_jobs({first if "nosuchword" in changes else 999_999: changes})


def test_a_move_that_lsf_refuses_leaves_the_job_as_it_was(site: Site) -> None:
    """With the request for the cloud's hosts left behind it would start nowhere."""
    site.fill()
    plain, chosen = site.submit("sleep", "5"), site.submit("-W", "10", "-R", "rusage[mem=100]", "sleep", "5")
    before = site.rows()
    refused = {**MOVE, "partition": "nosuch", "features": "fs", "timelimit": "75"}
    with pytest.raises(RetryLater, match=f"job {chosen}"):
        site.lsf.update_jobs({plain: {**refused}, chosen: refused})
    rows = site.rows()
    assert {job_id: rows[job_id].job for job_id in (plain, chosen)} == {
        job_id: before[job_id].job for job_id in (plain, chosen)
    }
    assert is_unadvised(rows[plain])


def test_a_move_that_a_crash_has_cut_short_leaves_the_job_as_it_was(site: Site) -> None:
    if site.stand_in is None:
        pytest.skip("lsf.shared need not declare on_demand")
    site.fill()
    plain, chosen = site.submit("sleep", "5"), site.submit("-R", "rusage[mem=100]", "sleep", "5")
    before = site.rows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LsfBackend, "_move", crash)
        for job_id in (plain, chosen):
            with pytest.raises(KeyboardInterrupt):
                site.lsf.update_jobs({job_id: {**MOVE, "features": "on-demand"}})
    site.another()
    rows = site.rows()
    assert [rows[job_id].job for job_id in (plain, chosen)] == [before[plain].job, before[chosen].job]
    assert is_unadvised(rows[plain])


def test_a_request_without_an_answer_is_taken_back_by_the_next_snapshot(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    if site.stand_in is None:
        pytest.skip("lsf.shared need not declare on_demand")
    site.fill()
    job_id, run = site.submit("sleep", "5"), LsfCommands.text
    before = site.rows()[job_id].job

    def text(commands: LsfCommands, name: str, *words: str) -> str:
        said = run(commands, name, *words)
        if name == "bmod":
            raise RetryLater("bmod: no answer", code=LATE)
        return said

    with monkeypatch.context() as patch:
        patch.setattr(LsfCommands, "text", text)
        with pytest.raises(RetryLater, match="no answer"):
            site.lsf.update_jobs({job_id: {**MOVE, "features": "on-demand"}})
    row = site.rows()[job_id]
    assert (row.job, row.partitions) == (before, (HERE,))


@pytest.mark.parametrize("is_done", [False, True])
def test_a_switch_without_an_answer_is_known_by_the_next_snapshot(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, is_done: bool
) -> None:
    """mbatchd may carry out what it has not answered in time."""
    if site.stand_in is None:
        pytest.skip("lsf.shared need not declare on_demand")
    site.fill()
    job_id, run = site.submit("sleep", "5"), LsfCommands.text
    before = site.rows()[job_id].job

    def text(commands: LsfCommands, name: str, *words: str) -> str:
        if name != "bswitch":
            return run(commands, name, *words)
        if is_done:
            late.append(words)
        raise RetryLater("bswitch: no answer", code=LATE)

    late: list[tuple[str, ...]] = []
    with monkeypatch.context() as patch:
        patch.setattr(LsfCommands, "text", text)
        with pytest.raises(RetryLater, match="no answer"):
            site.lsf.update_jobs({job_id: {**MOVE, "features": "on-demand"}})
    for words in late:
        site.run("bswitch", *words)
    row = site.rows()[job_id]
    if is_done:
        assert (row.partitions, row.admin_comment) == ((CLOUD,), COMMENT)
        assert row.job.node_list == "select[on_demand]"
    else:
        assert row.job == before
        assert is_unadvised(row)


def crash(*_: object) -> None:
    """End between two steps."""
    raise KeyboardInterrupt


def test_a_small_job_goes_before_others(site: Site) -> None:
    most = site.priority()
    if most is None:
        pytest.skip("lsb.params has no MAX_USER_PRIORITY")
    running = site.fill()
    all_slots = ("-n", str(site.slots))
    large, small = (site.submit(*all_slots, "sleep", "600") for _ in range(2))
    own = site.submit(*all_slots, "-sp", "1", "sleep", "600")
    before = site.rows()
    assert before[large].priority == before[small].priority > before[own].priority
    first = {"sitefactor": "1000", "admincomment": COMMENT}
    site.lsf.update_jobs({small: first, own: first})
    rows = site.rows()
    assert rows[small].priority > rows[large].priority > rows[own].priority  # -sp is its user's own word
    site.run("bkill", str(running))
    site.until(lambda: site.rows()[small].state == RUNNING)
    assert site.rows()[large].is_queued


def test_advice_of_a_submission_is_joined_by_what_the_esub_left(site: Site, tmp_path: Path) -> None:
    site.fill()
    left = site.submit("-Jd", "Burst Advisor: advice a-7", "-J", "told", "sleep", "5")
    alike = site.submit("-Jd", "mine", "-J", "alike", "-n", "2", "sleep", "5")
    other = site.submit("-J", "other", "sleep", "5")
    rows = site.rows()
    assert not is_unadvised(rows[left])  # control does not ask about it
    assert rows[left].job.comment is None
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as store:
        store.add_advice([advised("a-7", rows[left].job), advised("a-8", rows[alike].job)])
        assert site.lsf.join(store, source="slurm") == 2
        assert site.lsf.join(store, source="slurm") == 0
        assert all(store.advice_of(job_id, source="slurm") for job_id in (left, alike))
    rows = site.rows()
    ids = {job_id: parse_admin_comment(rows[job_id].admin_comment) for job_id in (left, alike)}
    assert {job_id: one and one.advice_id for job_id, one in ids.items()} == {left: "a-7", alike: "a-8"}
    assert is_unadvised(rows[other])


def advised(advice_id: str, job: Job) -> AdviceRecord:
    """What `advisor serve` wrote down of a submission."""
    given = Advice(
        advice_id=advice_id, time=job.submit_time, mode=Mode.ACT, placement=Placement.ON_PREMISE,
        capacity=None, partition=None, answers=(moves_nothing("price"),),
    )  # fmt: skip
    return AdviceRecord(advice=given, job=structs.replace(job, job_id=0))


def test_a_job_that_cannot_be_changed_is_not_moved(site: Site) -> None:
    site.fill()
    job_id = site.submit("sleep", "5")
    with pytest.raises(RetryLater, match=f"job {job_id}"):
        site.lsf.update_jobs({job_id: {**MOVE, "timelimit": "a while"}})
    assert (site.rows()[job_id].partitions, site.rows()[job_id].admin_comment) == ((HERE,), "")
    assert job_id not in site.file.read().jobs


def test_lsf_keeps_no_slot_free_for_a_wide_job_that_came_first(site: Site) -> None:
    most = site.submit("-n", str(site.slots - 1), "sleep", "600")
    site.until(lambda: site.rows()[most].state == RUNNING)
    wide, narrow = site.submit("-n", str(site.slots), "sleep", "5"), site.submit("sleep", "60")
    site.until(lambda: site.rows()[narrow].state == RUNNING)
    assert site.rows()[wide].is_queued


def test_a_requeued_job_keeps_its_id(site: Site) -> None:
    running = site.fill()
    submitted = site.rows()[running].job.submit_time
    with pytest.raises(RetryLater) as refused:
        site.lsf.requeue([site.submit("-H", "sleep", "1")])
    assert refused.value.code == "lsf.command_failed"
    site.lsf.requeue([running])
    found: list[QueuedJob] = []

    def is_requeued() -> bool:
        found[:] = [row for job_id, row in site.rows().items() if job_id == running and row.restarts == 1]
        return bool(found)

    site.until(is_requeued)
    assert found[0].job.submit_time == submitted
    assert found[0].state in {PENDING, RUNNING}


def test_ended_jobs_become_history(site: Site, tmp_path: Path) -> None:
    job_id = site.submit("-J", "short", "sleep", "1")
    site.lsf.update_job([job_id], {"admincomment": COMMENT})
    site.until(lambda: (job := site.rows().get(job_id)) is not None and job.state == RUNNING)
    site.until(lambda: job_id not in site.rows())
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as store:

        def outcome_is_there() -> bool:
            site.lsf.ingest(store, source="slurm")
            return store.of_job(job_id, source="slurm") is not None

        site.until(outcome_is_there)
        outcome = store.of_job(job_id, source="slurm")
        assert outcome is not None
        assert (outcome.partition, outcome.job.name, outcome.advice_id) == (HERE, "short", "a-1")


def test_a_new_events_file_loses_nothing(site: Site) -> None:
    if site.stand_in is None:
        return  # it begins one when it likes
    running, waiting = site.fill(), site.submit("-n", "2", "sleep", "5")
    before = site.rows()
    site.stand_in.begin_new_events_file()
    assert site.rows() == before
    assert set(before) == {running, waiting}


def test_a_forecast_knows_that_jobs_wait_for_memory(site: Site) -> None:
    site.submit("-n", str(site.slots), "-W", "60", "sleep", "600")
    words = ("-W", "60", "-R", "rusage[mem=15000]", "sleep", "5")  # of the 24,105 MiB of its one host
    first, second = site.submit(*words), site.submit(*words)
    snapshot = site.lsf.snapshot(time.time())
    sharing = sharing_of(site.lsf.config(), site.lsf.partitions())
    settings = Settings.model_validate({"cluster": {"on_premise_partitions": (HERE,)}})
    waits = forecast_waits(on_premise_queue(replace(snapshot, sharing=sharing), settings))
    assert waits[second] - waits[first] == pytest.approx(3600.0, abs=60.0)


def test_a_job_whose_dependency_is_fulfilled_waits_like_any_other(site: Site) -> None:
    running = site.fill()
    waits, free = (site.submit("-w", f"{verb}({running})", "sleep", "5") for verb in ("ended", "started"))
    said = {(waits, 0): "Dependency", (free, 0): ""}
    site.until(lambda: said.items() <= site.reasons().items())
    now = iter(range(0, 10_000, 60))  # two readings, as LSF may say something else of a new job at first
    lsf = LsfBackend(site.settings, site.installation, site.file, monotonic=lambda: float(next(now)))
    site.backends.append(lsf)
    first, second = (
        {queued.job.job_id: queued for queued in lsf.snapshot(time.time()).jobs} for _ in range(2)
    )
    assert (first[waits].reason, first[free].reason) == ("Dependency", "Dependency")
    rows = second
    assert (rows[waits].reason, rows[free].reason) == ("Dependency", "Priority")
    assert (rows[waits].job.dependency, rows[free].job.dependency) == (f"ended({running})", None)
    assert (rows[waits].is_queued, rows[free].is_queued) == (False, True)


def test_of_jobs_that_are_known_nothing_is_read_but_their_ids(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It happens each second, with thousands of jobs."""
    site.fill()
    known, array, new = site.submit("sleep", "5"), site.submit("-J", "a[1-3]", "sleep", "5"), site.submit("x")
    read: list[int] = []

    def queued(rows: Mapping[int, tuple[LiveJob, int]], **more: Any) -> Iterator[QueuedJob]:
        read.extend(rows)
        return queued_jobs(rows, **more)

    monkeypatch.setattr(backend, "queued_jobs", queued)
    found = site.lsf.waiting({known, array})
    assert {job_id: one is None for job_id, one in found.items()} == {known: True, array: True, new: False}
    assert read == [new]


def test_a_raised_limit_is_in_minutes_of_the_same_host(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """bmod on a host with another CPU factor would raise it to something else, or lower it."""
    site.fill()
    job_id = site.submit("-W", "10", "sleep", "5")
    job, run, told = site.live(job_id), LsfCommands.text, list[str]()

    def text(commands: LsfCommands, name: str, *words: str) -> str:
        told.extend(words if name == "bmod" else ())
        return run(commands, name, *words)

    monkeypatch.setattr(LsfCommands, "text", text)
    site.lsf.update_jobs({job_id: {"timelimit": "30"}})
    assert job.limit_host
    assert told == ["-W", f"30/{job.limit_host}", str(job_id)]
    assert site.rows()[job_id].job.requested_time == 1800.0
    assert (
        limit("30", replace(job, limit_host="a; b"))
        == limit("30", replace(job, limit_host=""))
        == ["-W", "30"]
    )
