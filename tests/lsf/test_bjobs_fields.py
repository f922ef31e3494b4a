"""Jobs of IBM's releases: JOB_NEW after a record of 9.13, and what bjobs adds."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.files.state_file import StateFile
from advisor.lsf.backend import LsfBackend
from advisor.lsf.bjobs_fields import BjobsOfWaiting, BjobsRow, read_waiting, with_bjobs
from advisor.lsf.commands import LsfCommands
from advisor.lsf.events import EventsReader
from advisor.lsf.installation import Installation, read_installation
from advisor.lsf.kept_advice import AdviceOfLiveJobs
from advisor.lsf.live_job import LiveJob
from advisor.lsf.queued_jobs import queued_jobs, rows_of
from advisor.lsf.site import LsfSite
from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.model.snapshot import QueuedJob
from advisor.service.waiting.unadvised import is_unadvised
from advisor.testing.lsf_stand_in import LsfStandIn, StandInQueue
from tests.lsf.test_contract import COMMENT, MOVE

JOB_NEW = (
    '"JOB_NEW" "9.13" 1495678422 101 506 {options} 4 1495678422 0 0 -65535 0 0 "ann"'
    ' -1 -1 -1 -1 -1 -1 -1 -1 -1 3600 -1 "" 116.10 18 "normal" "rusage[mem=100]" "login1" "/home/ann"'
    ' "" "" "" "" "/home/ann" "1495678422.101" 0 "{dependency}"{event} "" "flow" "solve; sleep 30" 0 ""'
    ' "physics" {port}4 "X86_64" "" "" "" "" {options2} 0 "" "" "" 70 -1 -1 64 "" "" -1 "" 0 -1 "" 0 0 0 ""'
    ' -1 "" -1 "" "/home/ann" "" "" "" 0 -1 0 "" "" 0 ""\n'
)


def look(folder: Path, *lines: str) -> tuple[LiveJob, ...]:
    path = folder / "lsb.events"
    path.write_text("".join(lines))
    reader = EventsReader(path)
    try:
        found = reader.look()
    finally:
        reader.close()
    assert not found.malformed, found.problems
    return found.jobs


def line(options: int = 0x2000001, *, options2: int = 5136, **changes: str) -> str:
    words = {"dependency": "", "event": "", "port": ""} | changes
    return JOB_NEW.format(options=options, options2=options2, **words)


def test_a_job_as_it_was_submitted(tmp_path: Path) -> None:
    (job,) = look(tmp_path, line())
    assert (job.job_id, job.user, job.queue, job.processors) == (101, "ann", "normal", 4)
    assert (job.name, job.project, job.run_limit_seconds) == ("flow", "physics", 3600)
    assert (job.priority, job.resource_request, job.state) == (70, "rusage[mem=100]", "PEND")
    assert job.is_ibm_lsf
    assert (job.rerunnable, job.interactive) == (False, False)


def test_fields_that_only_some_jobs_have(tmp_path: Path) -> None:
    (waits,) = look(tmp_path, line(dependency="done(7)", event=" 0"))
    assert (waits.dependency, waits.priority) == ("done(7)", 70)
    (interactive,) = look(tmp_path, line(options=0x6000001, port="40000 "))
    assert (interactive.interactive, interactive.priority) == (True, 70)
    (plain,) = look(tmp_path, line(options=0x42000001))  # volclava's bit of a command after the job
    assert plain.priority == 70


def test_gpus_and_a_reservation_keep_a_job_here(tmp_path: Path) -> None:
    """Neither is in what its user asked for with ``-R``."""
    shown = {(101, 0): BjobsRow("normal", "", "ngpus_physical=1.00")}
    jobs = with_bjobs(look(tmp_path, line(options2=5136 | 0x8000)), shown)
    (one,) = queued_jobs(
        rows_of(jobs), site=LsfSite(), burst="aws", comments={}, now=1495678500.0, memory_unit="MB"
    )
    assert (one.job.gres, one.job.reservation) == ("ngpus_physical=1.00", "of bsub -U")


def test_a_start_with_a_short_list_of_hosts(tmp_path: Path) -> None:
    start = '"JOB_START" "9.13" 1495678430 101 4 0 0 116.1 2 "3*node1" "node2" "" "" 0 "" 0 "" -1 0 0 0\n'
    (job,) = look(tmp_path, line(), start)
    assert (job.state, job.hosts) == ("RUN", ("node1", "node1", "node1", "node2"))


def test_what_is_not_understood_is_left_alone(tmp_path: Path) -> None:
    modified = '"JOB_MODIFY2" "9.13" 1495678431 "101" 2 0 0 0 506 "ann" 1 2 3\n'
    (job,) = look(tmp_path, line(), modified)
    assert job.is_changed
    shown = {(101, 0): BjobsRow("long", "mine")}
    (asked,) = with_bjobs([job], shown)
    assert (asked.queue, asked.description, asked.is_changed) == ("long", "mine", True)
    (fresh,) = with_bjobs(look(tmp_path, line()), shown)
    assert (fresh.queue, fresh.is_changed) == ("long", False)
    (unknown,) = with_bjobs(look(tmp_path, line()), {})
    assert unknown.is_changed


def test_rows_of_bjobs() -> None:
    text = (
        '{"COMMAND":"bjobs","JOBS":3,"RECORDS":[{"JOBID":"7","JOBINDEX":"2","QUEUE":"normal",'
        '"JOB_DESCRIPTION":"-"},{"JOBID":"8","JOBINDEX":"","QUEUE":"long","JOB_DESCRIPTION":"no-burst"},'
        '{"JOBID":"9","QUEUE":"long"},{"JOBID":"x"},7]}'
    )
    assert read_waiting(text) == {(7, 2): BjobsRow("normal", ""), (8, 0): BjobsRow("long", "no-burst")}
    resources = "select[(ngpus>0) && (type == any)] order[gpu_maxfactor] rusage[ngpus_physical=1.00]"
    row = {"JOBID": "7", "QUEUE": "gpu", "JOB_DESCRIPTION": "-", "COMBINED_RESREQ": resources}
    assert read_waiting(json.dumps({"RECORDS": [row]})) == {
        (7, 0): BjobsRow("gpu", "", "ngpus_physical=1.00")
    }
    assert read_waiting("No unfinished job found") == read_waiting('{"RECORDS": 1}') == {}


class Site:
    """A cluster whose records are IBM's."""

    def __init__(self, folder: Path, stand_in: LsfStandIn) -> None:
        self.stand_in = stand_in
        cluster = {"scheduler": "lsf", "on_premise_partitions": ("normal",), "burst_partition": "aws"}
        self.lsf = LsfBackend(
            Settings.model_validate({"cluster": cluster}),
            read_installation(stand_in.environment_folder, "any"),
            StateFile(folder / "lsf_advice.json", AdviceOfLiveJobs),
        )

    def run(self, name: str, *words: str) -> str:
        line = [str(self.stand_in.folder / "bin" / name), *words]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout

    def submit(self, *words: str) -> int:
        said = self.run("bsub", *words)
        return int(said.partition("<")[2].partition(">")[0])

    def rows(self) -> dict[int, QueuedJob]:
        return {queued.job.job_id: queued for queued in self.lsf.snapshot(time.time()).jobs}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    queues = (
        StandInQueue(name="normal", hosts=("here1",), is_default=True),
        StandInQueue(name="aws", hosts=("cloud1",)),
    )
    hosts = {"here1": 0, "cloud1": 0}
    with LsfStandIn(tmp_path / "lsf", hosts=hosts, queues=queues, version="10.1") as stand_in:
        made = Site(tmp_path, stand_in)
        yield made
        made.lsf.close()


def test_jobs_are_advised_and_moved(site: Site) -> None:
    plain, own = site.submit("sleep", "5"), site.submit("-Jd", "no-burst", "sleep", "5")
    array, changed = site.submit("-J", "many[1-3]", "sleep", "1"), site.submit("sleep", "5")
    site.run("bmod", "-W", "5", str(changed))
    rows = site.rows()
    assert (rows[plain].job.comment, rows[own].job.comment) == (None, "no-burst")
    assert rows[array].job.array_tasks == 3
    assert [job_id for job_id in (plain, own, array, changed) if is_unadvised(rows[job_id])] == [
        plain, own, array,
    ]  # fmt: skip
    site.lsf.update_jobs({plain: {**MOVE, "timelimit": "60"}, array: MOVE, own: {"admincomment": COMMENT}})
    rows = site.rows()
    assert {rows[job_id].partitions for job_id in (plain, array)} == {("aws",)}
    assert {rows[job_id].admin_comment for job_id in (plain, array, own)} == {COMMENT}
    assert rows[own].partitions == rows[changed].partitions == ("normal",)


def test_what_a_user_changed_since_the_last_look_is_not_overwritten(site: Site) -> None:
    """The record of bmod does not say what; `bmod -R` would set what the user asked for before."""
    job_id = site.submit("-R", "rusage[mem=100]", "sleep", "5")
    assert is_unadvised(site.rows()[job_id])
    site.run("bmod", "-R", "rusage[mem=900]", str(job_id))
    with pytest.raises(RetryLater, match="changed meanwhile"):
        site.lsf.update_jobs({job_id: {**MOVE, "features": "on-demand"}})
    assert site.rows()[job_id].partitions == ("normal",)


def test_a_moved_job_may_return_although_its_record_says_that_it_was_changed(site: Site) -> None:
    job_id = site.submit("sleep", "5")
    site.lsf.update_jobs({job_id: {**MOVE, "features": "on-demand"}})
    site.lsf.update_jobs({job_id: {"partition": "normal", "features": "", "admincomment": COMMENT}})
    assert site.rows()[job_id].partitions == ("normal",)


def test_the_stand_in_refuses_what_it_does_not_know_and_goes_on(site: Site) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        site.run("bsub", "-nosuch", "sleep", "5")
    assert site.submit("sleep", "5")


def test_hosts_of_a_condensed_group_are_shown_one_by_one(site: Site) -> None:
    """``CONDENSE = Y`` in lsb.hosts: IBM's bhosts then shows the group as if it were one host."""
    bhosts = site.stand_in.folder / "bin" / "bhosts"
    asked = bhosts.rename(bhosts.with_name("each"))
    head = "HOST_NAME STATUS JL/U MAX NJOBS RUN SSUSP USUSP RSV"
    bhosts.write_text(
        f'#!/bin/sh\ncase " $* " in *" -X "*) exec {asked};; esac\n'
        f'echo "{head}"; echo "all_here ok - 0 0 0 0 0 0"\n'
    )
    bhosts.chmod(0o755)
    site.submit("sleep", "5")
    assert [node.name for node in site.lsf.snapshot(time.time()).nodes] == ["here1", "cloud1"]


class Bjobs(LsfCommands):
    """Commands that are counted; bjobs shows what it last did where the test says so."""

    def __init__(self, installation: Installation) -> None:
        super().__init__(installation)
        self.calls = 0
        self.is_behind = False
        self.last = '{"RECORDS": []}'

    def text(self, name: str, *arguments: str) -> str:
        self.calls += name == "bjobs"
        if name != "bjobs":
            return super().text(name, *arguments)
        if not self.is_behind:
            self.last = super().text(name, *arguments)
        return self.last


@pytest.fixture
def bjobs(site: Site, monkeypatch: pytest.MonkeyPatch) -> Bjobs:
    made = Bjobs(read_installation(site.stand_in.environment_folder, "any"))
    monkeypatch.setattr(site.lsf, "_bjobs", BjobsOfWaiting(made, time.monotonic))
    return made


def test_bjobs_is_not_asked_each_second(site: Site, bjobs: Bjobs) -> None:
    """It shows all jobs that wait: thousands."""
    first = site.submit("sleep", "5")
    found = [site.lsf.waiting(()) for _ in range(3)]
    assert (bjobs.calls, [list(one) for one in found]) == (1, [[first]] * 3)
    site.submit("sleep", "5")
    site.lsf.waiting(())
    assert bjobs.calls == 2, "a new job is asked about at once"
    site.run("bswitch", "aws", str(first))
    site.lsf.update_jobs({first: {"admincomment": COMMENT}})
    assert bjobs.calls == 3, "nothing is changed by an old answer"


def test_a_job_that_bjobs_is_still_to_show_is_not_given_up(site: Site, bjobs: Bjobs) -> None:
    """On large sites bjobs is answered by a process that knows the jobs of some seconds ago."""
    bjobs.is_behind = True
    job_id = site.submit("sleep", "5")
    assert not site.lsf.waiting(())
    bjobs.is_behind = False
    site.submit("sleep", "5")
    one = site.lsf.waiting(())[job_id]
    assert one is not None
    assert is_unadvised(one.queued)


def test_a_move_that_bjobs_is_still_to_show_is_one(site: Site, bjobs: Bjobs) -> None:
    job_id = site.submit("sleep", "5")
    assert site.rows()[job_id].partitions == ("normal",)
    bjobs.is_behind = True
    site.lsf.update_jobs({job_id: MOVE})  # raises where it takes the job to have stayed
    row = site.rows()[job_id]
    assert (row.partitions, row.admin_comment) == (("aws",), COMMENT)
