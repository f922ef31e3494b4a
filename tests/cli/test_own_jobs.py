"""A site's own history is replayed as live decides and learns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from advisor.cli.own_jobs import jobs_of_site
from advisor.decide.submission.cloud_terms import configured_slowdown, ratio_of, slowdown_of
from advisor.history.models import ModelStore
from advisor.history.records import AdviceRecord
from advisor.history.store import HistoryStore
from advisor.model.advice import Advice, Mode, Placement
from advisor.model.errors import BadInput
from advisor.model.job import Job, JobOutcome, JobState
from advisor.model.machine import Machine, Subset
from advisor.model.settings import ClusterSettings, PathSettings, Settings
from advisor.model.settings_hedge import HedgeSettings
from advisor.model.site import PerformanceRatios, Ratio, SiteState
from advisor.model.table import JobTable
from advisor.predict.run_times.job_numbers import JobNumbers
from advisor.predict.run_times.run_times import RunTimes
from advisor.replay.closed_loop.learned_runs import LearnedRuns
from advisor.replay.closed_loop.own_jobs import OwnJobs
from advisor.replay.closed_loop.site_settings import not_shown, requeueable_share, slowdowns, under_rules
from advisor.replay.closed_loop.world import Policy, World, WorldOptions
from advisor.service.exchange import snapshot
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.exchange.snapshot import Snapshot
from advisor.service.learn.run_time_knowledge import RunTimeKnowledge
from advisor.service.running.clock import Clock

NOW: Final = 1.7e9
RATIOS: Final = PerformanceRatios(
    overhead=0.0,
    baseline=2.0,
    deviation=0.1,
    jobs=9,
    partitions={"long": Ratio(factor=1.5, deviation=0.1, jobs=5)},
    applications={"sim_#": Ratio(factor=2.0, deviation=0.1, jobs=4)},
)
SEEN: Final = SiteState(time=NOW, cluster=None, ratios=RATIOS)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        cluster=ClusterSettings(on_premise_partitions=("main", "long")),
        hedge=HedgeSettings(enabled=True),
        paths=PathSettings(state=tmp_path, run=tmp_path, database_url=f"sqlite:///{tmp_path}/history.db"),
    )


def ended(
    number: int, run: float = 600.0, state: JobState = JobState.COMPLETED, **changes: Any
) -> JobOutcome:
    """A job on as many processors as its number, which ends before the next one is submitted."""
    submit = NOW + 10_000.0 * number
    usual = {"job_id": number, "submit_time": submit, "processors": number, "queue": "main", "user": "ann"}
    job = Job(**{**usual, **changes})
    return JobOutcome(job=job, start_time=submit + 60.0, end_time=submit + 60.0 + run, state=state,
                      partition=job.queue)  # fmt: skip


def own_jobs(
    settings: Settings, outcomes: Sequence[JobOutcome], homes: dict[int, str], window: int = 1
) -> OwnJobs:
    """The newest jobs of a history, and of some the partition to which they were submitted."""
    with HistoryStore(settings.history_url) as store:
        store.add(outcomes)
        for number, home in homes.items():
            given = Advice(
                advice_id=f"a-{number}", time=NOW + 10_000.0 * number, placement=Placement.BURST,
                partition="burst", capacity=None, mode=Mode.ACT, answers=(),
            )  # fmt: skip
            asked = Job(job_id=0, submit_time=given.time, processors=number, queue=home)
            store.add_advice([AdviceRecord(advice=given, job=asked)])
            store.link(given.advice_id, number)
    return jobs_of_site(settings, SEEN, 64, lambda table: float(table.submit[-window]))


def test_run_times_in_the_cloud_are_converted_by_the_learned_ratio_of_the_jobs_class(
    settings: Settings,
) -> None:
    names = {1: "sim_17", 2: "other", 3: "sim_18"}
    cloud = [ended(number, queue="burst", name=name) for number, name in names.items()]
    own = own_jobs(settings, [*cloud, ended(4)], {1: "long", 2: "long,main"}, window=4)
    assert own.in_cloud == 3
    assert own.jobs.run == pytest.approx([600.0 / 6.0, 600.0 / 3.0, 600.0 / 4.0, 600.0])
    assert [own.job_at(row).queue for row in range(4)] == ["long", "long", None, "main"]
    assert slowdowns(settings, own, SEEN).tolist() == [6.0, 3.0, 4.0, 2.0]


def test_of_a_long_history_only_the_newest_jobs_are_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window that needs more of them, or whose beginning is not among them, has them all the same."""
    with HistoryStore(settings.history_url) as store:
        store.add([ended(number) for number in range(1, 41)])
    monkeypatch.setattr("advisor.cli.own_jobs.NEWEST_JOBS", 5)
    monkeypatch.setattr("advisor.replay.closed_loop.learned_runs.MAX_HISTORY", 3)

    def of_last(window: int) -> tuple[list[int], int]:
        def begin(table: JobTable) -> float:
            if len(table) < window:
                raise BadInput("too short", where="history", mend="wait")
            return float(table.submit[-window])

        jobs = jobs_of_site(settings, SEEN, 64, begin).jobs
        return jobs.table.job_id[jobs.first :].tolist(), jobs.first

    assert of_last(2) == ([39, 40], 3)
    assert of_last(4) == ([37, 38, 39, 40], 16)  # too few before it among five
    assert of_last(30) == (list(range(11, 41)), 10)
    with pytest.raises(BadInput, match="too short"):
        of_last(41)


def test_a_job_that_depends_on_another_does_not_run_beside_it(settings: Settings) -> None:
    """As Slurm had it: a chain that was submitted at once, on a machine with room for all of it."""
    submit, chain = NOW, []
    for number in range(1, 4):
        start = submit + 600.0 * (number - 1)
        job = Job(job_id=number, submit_time=submit, processors=2, queue="main", requested_time=900.0)
        chain.append(
            JobOutcome(job=job, start_time=start, end_time=start + 600.0, ineligible_seconds=start - submit)
        )
    beside = ended(0, name="beside")
    own = own_jobs(settings, [*chain, beside], {}, window=4)
    done = World(own.jobs, WorldOptions(), Policy()).run()
    ends = [NOW + 600.0, NOW + 600.0, NOW + 1200.0, NOW + 1800.0]
    assert done.end.tolist() == ends
    assert sorted(own.job_at(row).job_id for row in range(4)) == [0, 1, 2, 3]
    assert own.job_at(3).submit_time == NOW
    assert own.jobs.table.wait.tolist() == [60.0 if own.job_at(row).name else 0.0 for row in range(4)]


def test_the_partitions_of_several_machines_have_their_own_queues(settings: Settings) -> None:
    """As `advisor control` has last seen them; one size that is named stands for all of them."""
    outcomes = [ended(n, queue="long" if n % 2 else "main") for n in range(1, 6)]
    cloud = [ended(6, queue="burst"), ended(7, queue="burst"), ended(8, queue="gone")]
    own_jobs(settings, [*outcomes, *cloud], {6: "long"})
    queues = tuple(
        SeenQueue.of(Machine((name,), size), np.empty((0, 4)), np.empty((0, 3)))
        for name, size in (("main", 4), ("long", 32))
    )
    snapshot.write(settings.paths.snapshot, Snapshot(state=SEEN, queues=queues))
    own = jobs_of_site(settings, SEEN, 0, lambda _: 0.0)
    # 7 is of the first partition, as far as is known, and too large for it; 8 is of none
    assert own.jobs.processors.tolist() == [1, 2, 3, 4, 5, 6]
    assert own.jobs.on_premise is not None
    assert own.here.on_premise is not None
    assert own.jobs.on_premise.sizes.tolist() == own.here.on_premise.sizes.tolist() == [[4, 0, 0], [32, 0, 0]]
    assert own.jobs.on_premise.places.tolist() == [1, 0, 1, 0, 1, 1]
    together = own.on_one_machine().jobs.on_premise
    assert together is not None
    assert (together.sizes.tolist(), together.places.tolist()) == ([[36, 0, 0]], [0] * 6)
    pooled = jobs_of_site(settings, SEEN, 64, lambda _: 0.0)
    assert (pooled.jobs.on_premise, len(pooled.jobs)) == (None, 8)


def seen_machines(settings: Settings, *machines: Machine) -> OwnJobs:
    """Five jobs, of which every other one is of another partition, on machines as they were last seen."""
    own_jobs(settings, [ended(n, queue="long" if n % 2 else "main") for n in range(1, 6)], {})
    queues = tuple(SeenQueue.of(each, np.empty((0, 4)), np.empty((0, 3))) for each in machines)
    snapshot.write(settings.paths.snapshot, Snapshot(state=SEEN, queues=queues))
    return jobs_of_site(settings, SEEN, 0, lambda _: 0.0)


def test_a_machine_all_of_whose_nodes_are_down_now_runs_no_job_on_nothing(settings: Settings) -> None:
    own = seen_machines(settings, Machine(("main",), 0), Machine(("long",), 32))
    assert own.jobs.processors.tolist() == [1, 3, 5]
    assert own.jobs.held[:, 0].tolist() == [1, 3, 5]


def test_where_no_node_is_usable_now_the_history_tells_the_size(settings: Settings) -> None:
    own = seen_machines(settings, Machine(("main", "long"), 0))
    assert (own.jobs.on_premise, own.jobs.machine, len(own.jobs)) == (None, 5, 5)


def test_on_one_machine_ran_the_jobs_of_partitions_that_are_gone_or_not_managed(settings: Settings) -> None:
    own = seen_machines(settings, Machine(("main",), 32))
    assert len(own.jobs) == 5


def test_jobs_that_were_larger_than_what_is_usable_of_their_partition_now_are_replayed(
    settings: Settings,
) -> None:
    part = Subset(("long",), size=4, nodes=1)
    own = seen_machines(settings, Machine(("main", "long"), 32, 8, subsets=(part,)))
    assert own.jobs.on_premise is not None
    assert own.jobs.on_premise.held.tolist() == [[n, 0, 0, min(n, 4) * (n % 2)] for n in range(1, 6)]


def test_without_learned_ratios_those_of_the_settings_convert(settings: Settings) -> None:
    own_jobs(settings, [ended(1, queue="burst"), ended(2)], {1: "long"})
    own = jobs_of_site(settings, SiteState(time=0.0, cluster=None), 64, lambda _: 0.0)
    assert own.jobs.run == pytest.approx([600.0 / configured_slowdown(1, settings.placement), 600.0])


def test_the_replay_teaches_what_live_teaches(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accounts, names without counters, the partition of submission, and no run that was cut short."""
    outcomes = [
        ended(1, account="a", group="g", name="sim_17", user="bob"),
        ended(2, account="b", group="g", name="sim_18", requested_time=900.0),
        ended(3, account="a", group="h", name="post", queue="long"),
        ended(4, account="a", name="sim_19", queue="burst", user=None),
        ended(5, name="20", queue="burst"),
        ended(6, name="sim_20", state=JobState.NODE_FAIL),
        ended(7, name="21", state=JobState.PREEMPTED),
        ended(8, name="21", state=JobState.FAILED),
        ended(9),
        ended(10),
    ]
    own = own_jobs(settings, outcomes, {4: "long"})
    taught: list[tuple[JobNumbers, float]] = []
    monkeypatch.setattr(RunTimes, "learn", lambda _, job, run, **_place: taught.append((job, run)))
    learned = LearnedRuns()
    learned.learn_history(own.jobs, np.inf)
    learned.learn(own.jobs, 0)
    replayed, taught = taught, []
    monkeypatch.setattr(RunTimes, "learn", lambda _, job, run, **_place: taught.append((job, run)))
    (settings.paths.state / "models").mkdir(mode=0o700)

    def ratio(job: Job) -> float:
        return slowdown_of(job, ratio_of(job, RATIOS), settings.placement)

    with HistoryStore(settings.history_url) as store:
        models = ModelStore(folder=settings.paths.state / "models")
        RunTimeKnowledge(settings, store, models, Clock(), ratio).learn()
    assert len(taught) == 8
    assert _alike(replayed) == _alike(taught)


def _alike(taught: list[tuple[JobNumbers, float]]) -> list[tuple[object, ...]]:
    """What was taught, with names numbered in the order of the jobs' processors."""
    found: list[tuple[object, ...]] = []
    numbers: dict[tuple[str, int], int] = {}
    for job, run in sorted(taught, key=lambda one: one[0].processors):
        names = [
            -1 if (number := getattr(job, name)) == -1 else numbers.setdefault((name, number), len(numbers))
            for name in ("user", "account", "executable", "queue")
        ]
        found.append((*names, job.processors, f"{job.requested_seconds:g}", run))
    return found


def test_only_jobs_that_keep_places_live_are_stopped_in_the_replay(settings: Settings) -> None:
    """Tasks of an array are moved whole; an array of one task is as any job."""
    outcomes = [
        ended(1),
        ended(2, array_job_id=3, submit_time=NOW + 2.0),
        ended(3, array_job_id=3, submit_time=NOW + 2.0),
        ended(4, array_job_id=4),
        ended(5, comment="no-hedge"),
        ended(6, heterogeneous=True),
        ended(7, dependency="afterok:1"),
        ended(8, requeue=False),
    ]
    own = own_jobs(settings, outcomes, {}, window=8)
    jobs = under_rules(own, settings, SEEN)
    assert jobs.may_be_stopped is not None
    order = [int(number) for number in own.jobs.table.job_id]
    may = dict(zip(order, jobs.may_be_stopped.tolist(), strict=True))
    assert [number for number in sorted(may) if may[number]] == [1, 4]
    assert requeueable_share(own, settings) == 2 / 8
    unhedged = settings.model_copy(update={"hedge": HedgeSettings(enabled=False)})
    assert not np.any(under_rules(own, unhedged, SEEN).may_be_stopped)
    assert [note for note in not_shown(settings, own) if note.startswith("2 jobs are tasks of job arrays")]
    plain = own_jobs(settings, [ended(9)], {}, window=1)
    assert not [note for note in not_shown(settings, plain) if "array" in note]
