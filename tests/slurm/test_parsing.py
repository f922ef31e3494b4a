"""Recorded answers of Slurm, and answers that no Slurm should give."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.model import node_sets
from advisor.model.cluster import NodePower
from advisor.model.errors import BadInput, RetryLater
from advisor.model.periods import USER
from advisor.model.snapshot import PENDING
from advisor.slurm import parsing, records
from advisor.slurm.commands import release_in
from advisor.slurm.records import Layout, Unread
from advisor.slurm.reservations import read_reservations

FIXTURES = Path(__file__).parent / "fixtures"
OLDEST = "22.05"
RELEASES = {"22.05": (22, 5, 8), "24.11": (24, 11, 5), "26.05": (26, 5, 5)}
of_each_release = pytest.mark.parametrize("release", RELEASES)
WORD = "0123456789abcdef"


def layout(columns: tuple[str, ...]) -> Layout:
    return Layout(columns, f"\x1e{WORD}\x1f", f"\x1d{WORD}\x1f")


def recorded(name: str, release: str = OLDEST) -> str:
    return (FIXTURES / release / name).read_text(encoding="utf-8")


def columns_of(release: str) -> tuple[str, ...]:
    return parsing.columns_of(parsing.JOB_COLUMNS, RELEASES[release])


def recorded_jobs(text: str | None = None, release: str = OLDEST):
    report = Unread()
    shown = recorded("squeue.txt", release) if text is None else text
    columns = parsing.JOB_COLUMNS if text is not None else columns_of(release)
    rows = layout(columns).records(shown, report)
    return {job.job.job_id: job for job in parsing.queued_jobs(rows, report)}, report


def recorded_nodes(text: str | None = None, release: str = OLDEST):
    report = Unread()
    shown = recorded("sinfo.txt", release) if text is None else text
    rows = layout(parsing.NODE_COLUMNS).records(shown, report)
    return {node.name: node for node in parsing.nodes(rows, report)}, report


def one_job(**columns: str) -> str:
    row = dict.fromkeys(parsing.JOB_COLUMNS, "N/A") | {
        "JobID": "7", "UserID": "0", "State": "RUNNING", "SubmitTime": "100", "StartTime": "200",
        "Partition": "onprem", "NumCPUs": "4", "TimeLimit": "1:00", "BatchFlag": "1",
    }  # fmt: skip
    row |= columns
    return layout(()).between.join(row[name] for name in parsing.JOB_COLUMNS) + layout(()).after + "\n"


def one_node(**columns: str) -> str:
    row = dict.fromkeys(parsing.NODE_COLUMNS, "N/A") | {
        "NodeList": "burst1", "StateComplete": "idle+cloud", "CPUs": "4", "Memory": "4000",
        "PartitionName": "burst", "NodeAddr": "10.0.0.7",
    }  # fmt: skip
    row |= columns
    return layout(()).between.join(row[name] for name in parsing.NODE_COLUMNS) + layout(()).after + "\n"


@of_each_release
def test_recorded_queue_is_read_in_full(release: str) -> None:
    jobs, report = recorded_jobs(release=release)
    assert report.malformed == 0
    assert sorted(jobs) == [1, 2, 3, 8, 9, 10, 11, 12]
    hostile = jobs[1]
    assert hostile.job.name == 'evil\nname %i "q" = x'
    assert hostile.job.comment == "a=b\n|c"
    assert hostile.admin_comment == '{"advice":"abc","x":1}'
    assert hostile.holds_processors
    assert hostile.start_time is not None
    assert (hostile.memory_mb, jobs[12].memory_mb, hostile.gpus) == (200, 600, 0)
    assert [job_id for job_id, job in jobs.items() if job.job.whole_nodes] == [12]
    waiting = [job.priority for job in jobs.values() if not job.is_held]  # a held job may show 0
    assert min(waiting) > 4_000_000_000


@pytest.mark.parametrize(
    ("constraint", "is_plain"),
    [("", True), ("a&b-1", True), ("a|b", False), ("[a*2&b]", False), ("(null)", True)],
)
def test_a_constraint_is_plain_when_its_words_are_joined_by_and(constraint: str, *, is_plain: bool) -> None:
    jobs, _ = recorded_jobs(one_job(Feature=constraint))
    assert jobs[7].job.plain_constraint is is_plain


@pytest.mark.parametrize(
    ("columns", "nodes", "memory", "of_node"),
    [  # what squeue 22.05 shows of waiting jobs, and what they got when they started
        ({"NumNodes": "2", "NumTasks": "4", "MinMemory": "1000M", "mem": "1000M"}, 2, 2000, 1000),
        ({"NumNodes": "2", "NumTasks": "4", "MinMemory": "500M", "mem": "2000M"}, 2, 2000, 0),
        ({"NumNodes": "1", "NumTasks": "4", "MinMemory": "1000M", "mem": "1000M"}, None, 1000, 1000),
        # -n1 -c4 where a core has two threads
        ({"NumNodes": "2", "NumTasks": "1", "MinMemory": "1000M", "mem": "1000M"}, None, 1000, 1000),
        ({"NumNodes": "1", "NumTasks": "1", "MinMemory": "0", "mem": "8000M"}, None, 8000, 0),
        ({"NumNodes": "1", "NumTasks": "1", "MinMemory": "0", "mem": "1000M"}, None, 1000, 0),
    ],
)
def test_a_waiting_job_takes_what_it_will_get(
    columns: dict[str, str], nodes: int | None, memory: int, of_node: int
) -> None:
    tres = f"cpu=4,mem={columns.pop('mem')},node=1,billing=4"
    jobs, _ = recorded_jobs(one_job(State="PENDING", **columns, **{"tres-alloc": tres}))
    assert (jobs[7].job.nodes, jobs[7].memory_mb, jobs[7].node_memory_mb) == (nodes, memory, of_node)
    assert jobs[7].asked.node_memory_mb == of_node
    has, _ = recorded_jobs(one_job(State="RUNNING", **columns, **{"tres-alloc": tres}))
    assert has[7].memory_mb == int(tres.partition("mem=")[2].partition("M")[0])


@pytest.mark.parametrize(
    ("columns", "tres", "processors"),
    [  # what squeue 22.05 shows of waiting jobs, and the processors that they got on idle nodes, at least
        ({"cpus-per-tres": "gres:gpu:3"}, "cpu=1,mem=100M,node=1,billing=1,gres/gpu=2", 6),
        ({"cpus-per-tres": "gres/gpu:2", "NumNodes": "2"}, "cpu=2,mem=200M,node=2,gres/gpu=6", 12),
        ({"cpus-per-tres": "gres:gpu:2", "tres-per-node": "gres:gpu:2"}, "cpu=1,mem=100M,node=1", 4),
        ({"NumNodes": "2", "NumTasks": "2"}, "cpu=1,mem=2000M,node=2,billing=1", 2),  # -N2-4
        ({"NumTasks": "1"}, "cpu=1,mem=1000M,node=1,billing=1", 1),  # -N1-3, of which one is free
    ],
)
def test_a_waiting_job_takes_more_processors_than_slurm_shows(
    columns: dict[str, str], tres: str, processors: int
) -> None:
    shown = {"NumCPUs": "1", "NumNodes": "1", "tres-alloc": tres} | columns
    waiting, _ = recorded_jobs(one_job(State="PENDING", **shown))
    assert waiting[7].asked.processors == processors
    running, _ = recorded_jobs(one_job(State="RUNNING", **shown))
    assert running[7].asked.processors == 1


@pytest.mark.parametrize(
    ("processors", "shown", "threads"),
    [
        ("16", "2:4:2", 2),
        ("8", "2:4:2", 1),
        ("8", "2:4:1", 1),
        ("4", "4:1:1", 1),
        ("4", "N/A", 1),
        ("4", "0:1:1", 1),
    ],
)
def test_how_many_processors_a_core_has(processors: str, shown: str, threads: int) -> None:
    """With CPUs= of the cores alone Slurm gives each as one processor."""
    nodes, _ = recorded_nodes(one_node(CPUs=processors, SocketCoreThread=shown))
    assert nodes["burst1"].threads == threads


@pytest.mark.parametrize(("shown", "whole"), [("1", True), ("2", False), ("*", False), ("N/A", False)])
def test_a_job_without_multithreading_has_whole_cores(shown: str, *, whole: bool) -> None:
    jobs, _ = recorded_jobs(one_job(Threads=shown))
    assert jobs[7].job.whole_cores is whole


def submitted(**columns: str):
    shown = {"tres-alloc": "cpu=4,mem=400M,node=1,billing=4", "MinMemory": "100M", "EligibleTime": "150"}
    row = dict.fromkeys(parsing.SUBMITTED_COLUMNS, "N/A") | {
        "JobID": "7", "UserID": "0", "State": "PENDING", "SubmitTime": "100", "Nice": "0",
        "Partition": "onprem", "NumCPUs": "4", "NumNodes": "2", "TimeLimit": "1:00", "BatchFlag": "1",
    } | shown | columns  # fmt: skip
    found = parsing.submitted_job(row)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("columns", "name", "value"),
    [
        ({"NumCPUs": "8", "MinCpus": "6"}, "node_processors", 6),
        ({"NumCPUs": "8", "MinCpus": "1"}, "node_processors", None),
        ({"cpus-per-task": "3"}, "task_processors", 3),
        ({"cpus-per-task": "N/A"}, "task_processors", 1),
        ({"MinMemory": "0"}, "memory_mb_per_node", 0),
        ({"MinTmpDisk": "100000"}, "tmp_disk", 100_000),
        ({"MinTmpDisk": "0"}, "tmp_disk", None),
        ({"NumNodes": "1", "MaxNodes": "3"}, "most_nodes", 3),  # -N1-3, or --spread-job
        ({"NumNodes": "2", "MaxNodes": "2"}, "most_nodes", None),  # shown of a job that names no number, too
        ({"tres-per-job": "gres:gpu:1"}, "gres", "gres:gpu:1"),
        (
            {"tres-per-job": "gres:gpu:4", "tres-alloc": "cpu=4,mem=400M,node=2"},
            "gres",
            "of all nodes: gres:gpu:4",
        ),
        (
            {"tres-per-job": "gres:gpu:1", "cpus-per-tres": "gres:gpu:8"},
            "gres",
            "not by node alone: gres:gpu:1",
        ),
    ],
)
def test_what_one_node_of_a_new_job_must_have(columns: dict[str, str], name: str, value: object) -> None:
    assert getattr(submitted(**columns).queued.job, name) == value


@pytest.mark.parametrize(
    ("tres", "least", "memory", "of_a_node", "nodes"),
    [
        ("cpu=4,mem=400M,node=1", "100M", 400, None, None),
        ("cpu=2,mem=400M,node=2", "200M", 400, 200, 2),
        ("cpu=1,mem=1G,node=1", "1G", 1024, 1024, None),
        ("cpu=1,mem=4000M,node=1", "0", None, 0, None),
        ("cpu=1,mem=1.50G,node=1", "1.50G", 1536, 1536, None),
        ("cpu=6,node=1", "N/A", None, None, None),
    ],
)
def test_what_a_new_job_asks_for_is_read_from_its_resources(
    tres: str, least: str, memory: int | None, of_a_node: int | None, nodes: int | None
) -> None:
    job = submitted(**{"tres-alloc": tres, "MinMemory": least}).queued.job
    assert (job.memory_mb, job.memory_mb_per_node, job.nodes) == (memory, of_a_node, nodes)


def test_what_else_a_new_jobs_user_said_is_read() -> None:
    one = submitted(Nice="-5", Prefer="fast", EligibleTime="900", Partition="a,b", burstbuffer="#BB x")
    assert (one.nice, one.prefer, one.eligible_time) == (-5, "fast", 900.0)
    assert (one.queued.job.queue, one.queued.job.burst_buffer) == ("a,b", "#BB x")
    gpus = submitted(**{"tres-per-job": "cpu:4", "tres-per-task": "gres:gpu:1"})
    assert gpus.queued.job.gres == "not by node alone: gres:gpu:1"
    assert submitted(EligibleTime="N/A").eligible_time is None


@pytest.mark.parametrize(
    ("columns", "memory", "gpus"),
    [
        ({"tres-alloc": "cpu=4,mem=1.50G,node=1,billing=4"}, 1536, 0),
        ({"tres-alloc": "cpu=4,mem=400M,node=2,gres/gpu=4,gres/gpu:a100=4"}, 400, 4),
        (
            {"tres-alloc": "cpu=4,mem=400M,node=2", "tres-per-node": "gres:gpu:a100:3", "NumNodes": "2"},
            400,
            6,
        ),
        ({"tres-alloc": "cpu=4,node=1", "tres-per-node": "gres:nvme:1"}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_the_memory_and_gpus_of_all_nodes_are_read(columns: dict[str, str], memory: int, gpus: int) -> None:
    jobs, _ = recorded_jobs(one_job(**columns))
    assert (jobs[7].memory_mb, jobs[7].gpus) == (memory, gpus)


@pytest.mark.parametrize(("said", "whole"), [("NO", True), ("OK", False), ("YES", False), ("USER", False)])
def test_a_job_that_shares_with_none_gets_whole_nodes(said: str, *, whole: bool) -> None:
    jobs, _ = recorded_jobs(one_job(OverSubscribe=said))
    assert jobs[7].job.whole_nodes is whole


def test_a_word_at_the_end_of_a_long_comment_is_read() -> None:
    long = f"{'x' * 1015} no-burst"  # slurmctld takes 1,024 bytes, the hook sends them all
    constraint = f"{'a|' * 505}onprem"
    jobs, _ = recorded_jobs(one_job(Comment=long, Feature=constraint))
    assert (jobs[7].job.comment, jobs[7].job.features[-1]) == (long, "onprem")


def test_a_newer_release_says_it_in_a_column_of_its_own() -> None:
    for said, whole in (("NODE", True), ("NO", False), ("USER", False)):
        assert parsing.asks_whole_nodes({"Exclusive": said}) is whole
    assert "Exclusive" in columns_of("26.05")
    assert "Exclusive" not in columns_of("24.11")


@pytest.mark.parametrize(
    ("said", "gpus", "kinds"),
    [
        ("gpu:a100:4(S:0-1),nvme:1", 4, ("a100",)),
        ("gpu:v100:2,gpu:a100:1", 3, ("a100", "v100")),
        ("gpu:2,gpu:v100:1", 3, ("v100",)),
        ("gpu:2080ti:4,gpu:1g.5gb:7", 11, ()),
        ("(null)", 0, ()),
        ("lic:8", 0, ()),
    ],
)
def test_the_gpus_of_a_node_are_counted(said: str, gpus: int, kinds: tuple[str, ...]) -> None:
    nodes, _ = recorded_nodes(one_node(Gres=said))
    assert (nodes["burst1"].gpus, nodes["burst1"].gpu_types) == (gpus, kinds)


@of_each_release
def test_recorded_array_stands_for_its_waiting_tasks(release: str) -> None:
    jobs, _ = recorded_jobs(release=release)
    assert jobs[2].job.array_tasks == 14
    assert jobs[8].array_job_id == 2
    assert jobs[8].job.array_tasks == 1
    assert {job_id for job_id, job in jobs.items() if job.is_of_array} >= {2, 8}
    assert not all(job.is_of_array for job in jobs.values())


@of_each_release
def test_recorded_held_and_dependent_jobs_do_not_queue(release: str) -> None:
    jobs, _ = recorded_jobs(release=release)
    assert jobs[3].is_held
    assert not jobs[3].is_queued
    assert jobs[2].is_queued
    assert not jobs[12].is_queued
    assert not jobs[11].is_queued
    assert jobs[12].job.dependency is not None
    assert jobs[12].job.requeue is False
    assert jobs[12].job.nodes == 2
    assert jobs[11].partitions == ("onprem", "burst")
    assert jobs[11].job.features == ("onprem", "x86")
    assert jobs[11].start_time is None


@of_each_release
def test_recorded_nodes(release: str) -> None:
    nodes, report = recorded_nodes(release=release)
    assert report.malformed == 0
    assert sorted(nodes) == ["burst1", "burst2", "burst3", "onprem1", "onprem2"]
    assert nodes["burst2"].is_cloud
    assert nodes["burst2"].power is NodePower.DOWN
    assert nodes["burst3"].reason == 'bad = disk, "really'  # scontrol eats the last quote
    assert nodes["burst3"].is_draining
    assert nodes["onprem1"].power is NodePower.UP
    assert nodes["onprem1"].memory_mb == 4000


@of_each_release
def test_recorded_partitions_configuration_and_version(release: str) -> None:
    partitions = {
        partition.name: partition for partition in parsing.partitions(recorded("partitions.txt", release))
    }
    assert partitions["burst"].total_processors == 12
    assert partitions["burst"].max_minutes is None
    assert partitions["burst"].suspend_seconds == 60.0
    assert [partition.name for partition in partitions.values() if partition.is_default] == ["onprem"]
    assert (partitions["burst"].total_nodes, partitions["burst"].max_nodes) == (3, None)
    config = parsing.config(recorded("config.txt", release))
    assert config["ClusterName"] == "lab"
    assert config["AuthInfo"].endswith("cred_expire=5")
    assert config["PrologSlurmctld"] == "/var/lab/cloud/prolog"
    assert release_in(recorded("version.txt", release)) == RELEASES[release]


@pytest.mark.parametrize("shown", ["3000000000", "-1294967296"])  # up to 26.05.2 the latter
def test_a_user_with_a_number_above_31_bits_is_known(shown: str) -> None:
    jobs, report = recorded_jobs(one_job(UserID=shown))
    assert (jobs[7].job.user, report.malformed) == ("3000000000", 0)


@given(st.text(max_size=300))
def test_f28_whatever_a_user_types_stays_in_its_column(typed: str) -> None:
    jobs, report = recorded_jobs(one_job(Name=typed, Comment=typed, Account=typed) + one_job(JobID="8"))
    assert report.malformed == 0
    assert sorted(jobs) == [7, 8]
    assert jobs[7].job.queue == "onprem"


def test_f28_a_name_of_ten_kilobytes_with_other_delimiters_and_records() -> None:
    name = ("x=y\nJobId=9 \x1e0000\x1f" * 1000)[:10_000]
    jobs, report = recorded_jobs(one_job(Name=name))
    assert report.malformed == 0
    assert jobs[7].job.name == name[:1000]


@given(st.dictionaries(st.sampled_from(parsing.JOB_COLUMNS), st.text(max_size=40)))
def test_f28_no_content_of_any_column_raises(columns: dict[str, str]) -> None:
    jobs, report = recorded_jobs(one_job(**columns) + one_job(JobID="8"))
    assert 8 in jobs or report.malformed == 0
    assert len(jobs) + report.malformed >= 1
    for job in jobs.values():
        assert job.job.processors >= 1
        assert job.job.array_tasks >= 1
        assert job.job.requested_time is None or math.isfinite(job.job.requested_time)


@given(st.dictionaries(st.sampled_from(parsing.NODE_COLUMNS), st.text(max_size=40)))
def test_f28_no_content_of_any_node_column_raises(columns: dict[str, str]) -> None:
    nodes, _ = recorded_nodes(one_node(**columns) + one_node(NodeList="burst2"))
    assert "burst2" in nodes


@given(st.text(max_size=400))
def test_f28_text_that_is_no_answer_is_refused_or_empty(text: str) -> None:
    try:
        jobs, _ = recorded_jobs(text)
    except RetryLater:
        return  # refused as a whole
    assert not jobs


def test_an_answer_cut_short_is_refused_as_a_whole() -> None:
    whole = recorded("squeue.txt")
    with pytest.raises(RetryLater) as caught:
        recorded_jobs(whole[: len(whole) // 2])
    assert caught.value.code == "slurm.unreadable"


def test_f16_an_unknown_node_state_is_kept_and_means_do_nothing() -> None:
    nodes, report = recorded_nodes(one_node(StateComplete="levitating+cloud"))
    assert report.malformed == 0
    assert nodes["burst1"].states == {"LEVITATING", "CLOUD"}
    assert nodes["burst1"].power is NodePower.UNKNOWN


def test_f16_an_unknown_job_state_is_kept_and_holds_nothing() -> None:
    jobs, report = recorded_jobs(one_job(State="LEVITATING"))
    assert report.malformed == 0
    assert not jobs[7].holds_processors
    assert not jobs[7].is_queued


def test_a_job_whose_requeue_is_expedited_waits() -> None:
    jobs, _ = recorded_jobs(one_job(State="EXPEDITING"))
    assert jobs[7].state == PENDING
    assert jobs[7].is_queued


@pytest.mark.parametrize("reason", ["JobHeldUser", "job requeued in special exit state"])
def test_a_job_that_is_held_after_its_exit_code_waits_and_is_held(reason: str) -> None:
    jobs, _ = recorded_jobs(one_job(State="SPECIAL_EXIT", Reason=reason))
    assert jobs[7].state == PENDING
    assert jobs[7].is_held
    assert not jobs[7].is_queued


def test_reservations_of_nodes_and_of_cores() -> None:
    """As 22.05 shows them with ``SLURM_TIME_FORMAT=%s``."""
    text = (
        "ReservationName=maint StartTime=1795915277 EndTime=1795915337 Duration=00:01:00 Nodes=onprem[1-2] "
        "NodeCnt=2 CoreCnt=8 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES "
        "TRES=cpu=8 Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE\n"
        "ReservationName=cores StartTime=1795915457 EndTime=1795916057 Duration=00:10:00 Nodes=onprem3 "
        "NodeCnt=1 CoreCnt=2 Features=(null) PartitionName=onprem Flags=SPEC_NODES   NodeName=onprem3 "
        "CoreIDs=0-1 TRES=cpu=2 Users=root Groups=(null)\n"
        "ReservationName=licences StartTime=1795915457 EndTime=1795916057 Nodes=(null) TRES=(null)\n"
        "ReservationName=any StartTime=1795915457 EndTime=1795916057 Nodes=n[1-9] Flags=LICENSE_ONLY,DAILY\n"
        "ReservationName=course StartTime=1795915457 EndTime=1795916057 Nodes=n[2-3] Flags=MAGNETIC "
        "TRES=cpu=8 Users=alice,-bob Groups=(null) Accounts=physics Licenses=(null) State=ACTIVE\n"
        "ReservationName=float StartTime=1795915457 EndTime=1795916057 Nodes=n1 Flags=TIME_FLOAT TRES=cpu=1\n"
        "ReservationName=broken StartTime=1795915457 EndTime=1795916057 Nodes=n[1-\n"
        "ReservationName=open StartTime=Unknown EndTime=1795916057 Nodes=n1\n"
        "No reservations in the system\n"
    )
    maintenance, cores, licences, anywhere, course, floating = read_reservations(text)
    assert floating.end > floating.begin + 300 * 86_400.0
    assert maintenance.nodes == {"onprem1", "onprem2"}
    assert (maintenance.name, maintenance.begin, maintenance.end) == ("maint", 1795915277.0, 1795915337.0)
    assert (maintenance.processors, cores.processors, licences.processors) == (8, 2, None)
    assert (cores.nodes, licences.nodes, anywhere.nodes) == ({"onprem3"}, frozenset(), frozenset())
    # a magnetic reservation is closed to all others, and only its own jobs need not name it
    assert (course.nodes, course.draws) == ({"n2", "n3"}, {"physics", f"{USER}alice"})
    assert maintenance.draws == frozenset()


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("5:00", 300),
        ("1:00:00", 3600),
        ("2-03:00:00", 183600),
        ("UNLIMITED", None),
        ("", None),
        ("x:y", None),
    ],
)
def test_time_limits(typed: str, seconds: float | None) -> None:
    assert records.seconds(typed) == seconds


def test_node_sets() -> None:
    assert node_sets.expand("burst[1-3,7],onprem2") == ("burst1", "burst2", "burst3", "burst7", "onprem2")
    assert node_sets.fold(["burst3", "burst1", "burst2"]) == "burst[1-3]"
    assert node_sets.expand("") == ()


@pytest.mark.parametrize("hostile", ["@all", "a[1-9999999999]", "a;rm", "a[1-", "a b", "ä1", "a\nb"])
def test_hostile_node_sets_are_refused(hostile: str) -> None:
    with pytest.raises(BadInput):
        node_sets.expand(hostile)
