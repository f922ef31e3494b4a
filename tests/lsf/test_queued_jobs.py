"""Live jobs as rows of the queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from advisor.lsf.answers import Queue, read_queues
from advisor.lsf.events import EventsReader
from advisor.lsf.live_job import LiveJob
from advisor.lsf.queued_jobs import queued_jobs, rows_of
from advisor.lsf.site import LsfSite
from advisor.model.snapshot import QueuedJob

JOB_NEW = (
    '"JOB_NEW" "22" 1795485267 {number} 1002 {options} {processors} 1795485267 0 0 -65535 0 0 "ann"'
    ' -1 -1 -1 -1 -1 -1 -1 -1 -1 {limit} -1 "head" {factor:6.2f} 18 "normal" "{resources}" "head" "/tmp"'
    ' "" "" "" "" "/home/ann" "1795485267.224" 0 "" "" "{name}" "sleep 8" 0 "" "proj" {processors}'
    ' "DEFAULT" "" {options2} 0 "" "" "" -1 "" ""\n'
)
USUAL: dict[str, Any] = {
    "number": 7, "options": 33619971, "processors": 1, "limit": -1, "factor": 1.0, "resources": "",
    "name": "relax", "options2": 6160,
}  # fmt: skip


START = '"JOB_START" "22" 1795485272 7 4 0 0 1.0 4 "a" "a" "b" "b" "" "" 0 0 "select[type == local]"\n'


def row(folder: Path, *after: str, site: LsfSite = LsfSite(), **changes: Any) -> QueuedJob:  # noqa: B008 - frozen
    """The one row of a job, as volclava writes it down."""
    path = folder / "lsb.events"
    path.write_text(JOB_NEW.format(**USUAL | changes) + "".join(after))
    reader = EventsReader(path)
    found = reader.look()
    reader.close()
    assert not found.malformed, found.problems
    rows = rows_of(found.jobs)
    (one,) = queued_jobs(rows, site=site, burst="aws", comments={}, now=1795485300.0, memory_unit="MB")
    return one


@pytest.mark.parametrize(
    ("description", "comment"),
    [(f"{'x' * 4000} no-burst", f"{'x' * 4000} no-burst"), ("Burst Advisor: advice a", None), ("", None)],
    ids=["long", "ours", "none"],
)
def test_a_description_is_read_to_its_end(description: str, comment: str | None) -> None:
    live = LiveJob(
        job_id=7, user="ann", queue="normal", processors=1, submit_time=1795485267, description=description
    )
    (one,) = queued_jobs(
        rows_of([live]), site=LsfSite(), burst="aws", comments={}, now=1795485300.0, memory_unit="MB"
    )
    assert one.job.comment == comment


@pytest.mark.parametrize(
    ("limit", "factor", "is_absolute", "asked"),
    [
        (600, 1.0, False, 600.0),
        (60_000, 100.0, False, 600.0),  # `bsub -W 10` on volclava with a CPU factor of 100
        (827_366_400, 342.0, False, 2_419_200.0),  # of a record of IBM's, whose job ended with 2419200
        (533_736, 12.354, False, 43_200.0),  # the record has the factor 12.35; 43,203 is no whole minute
        (36_000, 100.0, True, 36_000.0),
        (3_600, 116.1, False, 3_600.0),  # 31 s are no limit of bsub's
        (600, 0.0, False, 600.0),
        (-1, 100.0, False, None),
    ],
)
def test_a_run_limit_is_what_its_user_gave(
    tmp_path: Path, *, limit: int, factor: float, is_absolute: bool, asked: float | None
) -> None:
    site = LsfSite(has_absolute_limits=is_absolute)
    assert row(tmp_path, limit=limit, factor=factor, site=site).job.requested_time == asked


def test_a_limit_that_bmod_was_told_is_not_normalised_in_its_record(tmp_path: Path) -> None:
    changed = (  # `bmod -W 50`, as volclava has logged it
        '"JOB_MODIFY2" "22" 1795485270 "7" 8388608 2048 0 1002 "ann" 1795485270 18 2147483646 0 0 0 0'
        ' -1 -1 -1 -1 -1 -1 -1 -1 -1 3000 -1 "/home/ann" "" "head" "" 0 2147483646 "" 0\n'
    )
    assert row(tmp_path, changed, limit=180_000, factor=100.0).job.requested_time == 3_000.0


def test_a_request_that_chooses_hosts_counts_as_a_list_of_them(tmp_path: Path) -> None:
    assert row(tmp_path, resources="bigmem rusage[mem=100]").job.node_list == "bigmem rusage[mem=100]"
    assert row(tmp_path, resources="rusage[mem=100] span[hosts=1]").job.node_list is None


def test_what_its_hosts_must_have(tmp_path: Path) -> None:
    """What the forecasts and the size of the cloud's hosts are compared with."""
    assert row(tmp_path, processors=64, resources="span[hosts=1]").job.node_processors == 64
    assert row(tmp_path, options=33619971 | 0x40).asked.whole_nodes
    assert not row(tmp_path).asked.whole_nodes


def test_how_many_of_an_array_run_at_a_time(tmp_path: Path) -> None:
    changed = (  # `bmod -J %2`, as volclava has logged it
        '"JOB_MODIFY2" "22" 1795485270 "7" 8388609 4096 0 1002 "ann" 1795485270 18 2147483646 0 0 0 0'
        ' "%2" -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 "/home/ann" "" "head" "" 0 2147483646 "" 0\n'
    )
    assert row(tmp_path, name="scan[1-9]%3").job.array_at_once == 3
    fewer = row(tmp_path, changed, name="scan[1-9]%3").job
    assert (fewer.name, fewer.array_at_once) == ("scan", 2)
    assert row(tmp_path, name="scan[1-9]").job.array_at_once is None


def test_the_last_element_that_waits_is_of_an_array(tmp_path: Path) -> None:
    begun = '"JOB_START" "22" 1795485272 7 4 0 0 1.0 1 "a" "" "" 0 {} "select[type == local]"\n'
    text = JOB_NEW.format(**USUAL | {"name": "scan[1-3]"}) + begun.format(1) + begun.format(2)
    (tmp_path / "lsb.events").write_text(text)
    reader = EventsReader(tmp_path / "lsb.events")
    found = rows_of(reader.look().jobs)
    reader.close()
    rows = queued_jobs(found, site=LsfSite(), burst="aws", comments={}, now=1795485300.0, memory_unit="MB")
    assert [one.is_array_or_task for one in rows if one.job.job_id == 7] == [True]
    assert not row(tmp_path).is_array_or_task


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("Open:Active", "Priority"),
        ("Closed:Active", "Priority"),  # it takes no job, and starts those that it has
        ("Open:Inact_Adm", "PartitionInactive"),
        ("Open:Inact_Win", "PartitionInactive"),
    ],
)
def test_what_a_job_in_such_a_queue_waits_for(tmp_path: Path, status: str, reason: str) -> None:
    (queue,) = read_queues(f"QUEUE: normal\n\nPRIO NICE STATUS\n 30    0  {status}  -  -\nHOSTS:  all\n")
    assert row(tmp_path, site=LsfSite(queues={"normal": queue})).reason == reason
    assert queue.is_up is (status == "Open:Active")


def test_the_memory_that_it_waits_for_or_has(tmp_path: Path) -> None:
    asked = {"processors": 4, "resources": "rusage[mem=3000]"}
    assert row(tmp_path, **asked).memory_mb == 3_000  # the number of its hosts is not known yet
    assert row(tmp_path, START, **asked).memory_mb == 6_000
    assert row(tmp_path, site=LsfSite(reserves_per_task=True), **asked).memory_mb == 12_000
    assert row(tmp_path, processors=4).memory_mb == 0
    each = "rusage[mem=20000] span[hosts=1]"  # a host with so much, and not several that have it together
    waits, runs = (row(tmp_path, *after, processors=4, resources=each) for after in ((), (START,)))
    assert (waits.asked.node_memory_mb, runs.asked.node_memory_mb) == (20_000, 0)
    (queue,) = read_queues("QUEUE: normal\nHOSTS:  all\nRES_REQ:  select[bigmem] rusage[mem=100]\n")
    site = LsfSite(queues={"normal": queue})
    assert row(tmp_path, site=site).memory_mb == 100
    assert row(tmp_path, START, site=site, **asked).memory_mb == 6_000


@pytest.mark.parametrize(
    ("said", "by_queue", "burst_is_so", "may"),
    [
        (True, False, False, True),  # bsub -r
        (True, True, True, True),
        (True, True, False, False),  # bswitch would take back what its own queue says, and spot would end it
        (False, False, True, False),
    ],
)
def test_whether_a_job_may_be_rerun_in_the_cloud(
    tmp_path: Path, *, said: bool, by_queue: bool, burst_is_so: bool, may: bool
) -> None:
    queues = {"aws": Queue(name="aws", is_rerunnable=burst_is_so)}
    options = {"options": 33554435 | (0x4000 if said else 0), "options2": 6160 | (0x40 if by_queue else 0)}
    assert row(tmp_path, site=LsfSite(queues=queues), **options).job.requeue is may


def test_what_bmod_says_of_options_without_a_value(tmp_path: Path) -> None:
    changed = (  # `bmod -rn` is 0 and 16384, as volclava has logged it
        '"JOB_MODIFY2" "22" 1795485270 "7" {} 2048 {} 1002 "ann" 1795485270 18 2147483646 0 0 0 0'
        ' -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 "/home/ann" "" "head" "" 0 2147483646 "" 0\n'
    )
    never = row(tmp_path, changed.format(8388608, 0x4000), options=33554435 | 0x4000)
    assert never.job.requeue is False
    both = row(tmp_path, changed.format(8388608 | 0x4040, 0), options=33554435)
    assert (both.job.requeue, both.job.whole_nodes) == (True, True)


def test_a_queue_whose_jobs_may_be_rerun() -> None:
    page = "QUEUE: aws\nHOSTS:  all\nRERUNNABLE :  yes\n\nQUEUE: normal\nHOSTS:  all\nRERUNNABLE :  no\n"
    assert [queue.is_rerunnable for queue in read_queues(page)] == [True, False]
