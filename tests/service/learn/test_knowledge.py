"""The knowledge base: built from the history, taught once by each job, taken up again after a restart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.decide.submission.cloud_terms import configured_slowdown
from advisor.history.ingest import ingest_sacct
from advisor.history.models import ModelStore
from advisor.history.parameters import save_cutoff, save_parameters
from advisor.history.sacct import choose_fields
from advisor.history.store import HistoryStore
from advisor.model.cluster import ClusterState
from advisor.model.estimate import Estimate
from advisor.model.job import Job, JobOutcome
from advisor.model.settings import PathSettings, Settings
from advisor.model.settings_learning import EstimatorSettings
from advisor.model.site import Cutoff
from advisor.predict.knn.features import CUNHA_TABLE_I
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.size.size_model import SizeModel
from advisor.service.learn.knowledge import Knowledge
from advisor.service.learn.size_knowledge import SizeKnowledge
from advisor.service.running.clock import Clock
from advisor.service.submit.models import PREDICTOR_KIND, SIZE_KIND
from tests.service.doubles import make_queued
from tests.service.site import make_cluster

NOW = 1_800_000_000.0
DATA = Path(__file__).parents[2] / "history" / "data"


def outcome(job_id: int, *, wait: float = 60.0, run: float = 600.0, partition: str = "onprem") -> JobOutcome:
    submit = NOW - 100_000.0 + 1000.0 * job_id
    job = Job(
        job_id=job_id, submit_time=submit, processors=2, user="mia", queue=partition, requested_time=1200.0
    )
    return JobOutcome(job=job, start_time=submit + wait, end_time=submit + wait + run, partition=partition)


def state_at(time: float) -> ClusterState:
    return make_cluster(time=time)


class Desk:
    def __init__(self, folder: Path) -> None:
        (folder / "models").mkdir(mode=0o700)
        self.settings = Settings(
            paths=PathSettings(state=folder), estimator=EstimatorSettings(neighbours=3, kernel_width=5.0)
        )
        self.store = HistoryStore(f"sqlite:///{folder / 'history.db'}")
        self.models = ModelStore(folder=folder / "models")

    def knowledge(self) -> Knowledge:
        return Knowledge(self.settings, self.store, self.models)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.store.close()


def test_built_from_the_history_and_handed_over(desk: Desk) -> None:
    desk.store.add([outcome(number) for number in range(1, 21)], source="slurm")
    knowledge = desk.knowledge()
    knowledge.prepare()
    assert knowledge.cases == 20
    _, meta = desk.models.load(PREDICTOR_KIND)
    assert meta["cases"] == {"wait": 20, "run": 20}


def test_each_job_teaches_once_also_across_restarts(desk: Desk) -> None:
    desk.store.add([outcome(1)], source="slurm")
    knowledge = desk.knowledge()
    knowledge.prepare()
    desk.store.add([outcome(1), outcome(2)], source="slurm")
    assert [found.job.job_id for found in knowledge.learn_ends(state_at)] == [2]
    assert knowledge.learn_ends(state_at) == []
    assert knowledge.save()
    assert not knowledge.save()
    again = desk.knowledge()
    again.prepare()
    assert again.cases == 2
    assert again.learn_ends(state_at) == []


def test_g17_19_the_first_jobs_intervals_follow_how_often_they_held(desk: Desk) -> None:
    """Three neighbours that all waited a minute say 60 to 60 s, and hardly any job waits for 60 s."""
    desk.store.add([outcome(number) for number in range(10)], source="slurm")
    knowledge, held = desk.knowledge(), list[bool]()
    asked = outcome(99).job
    waits = np.exp(np.random.default_rng(1).normal(math.log(60.0), 1.0, 400))
    for wait in waits.tolist():
        found = knowledge.predictor.estimate(asked, state_at(asked.submit_time)).wait
        held.append(found.lower <= wait <= found.upper)
        knowledge.judge("wait", found, wait)
    assert np.mean(held[100:]) == pytest.approx(0.9, abs=0.03)
    assert knowledge.save()
    again = desk.knowledge().predictor
    assert again.estimate(asked, state_at(asked.submit_time)) == knowledge.predictor.estimate(
        asked, state_at(asked.submit_time)
    )
    assert (again.wait.widening > 1.0, again.run.widening) == (True, 0.0)
    before = knowledge.predictor.wait.widening
    knowledge.judge("wait", Estimate(seconds=60.0, variance=1.0, lower=59.0, upper=61.0), 500.0)
    assert knowledge.predictor.wait.widening == before, "another estimator's"


def test_a_wait_is_learned_at_the_start_and_not_again_at_the_end(desk: Desk) -> None:
    knowledge = desk.knowledge()
    knowledge.prepare()
    ended = outcome(7)
    running = make_queued(7, "RUNNING", start_time=ended.start_time, submit_time=ended.job.submit_time)
    assert knowledge.learn_starts([running], state_at) == 1
    assert knowledge.learn_starts([running], state_at) == 0
    knowledge.save()
    knowledge = desk.knowledge()  # a restart in between changes nothing
    desk.store.add([ended], source="slurm")
    knowledge.learn_ends(state_at)
    assert len(knowledge.predictor.wait) == 1
    assert len(knowledge.predictor.run) == 1


def test_requeued_and_cloud_jobs_teach_no_wait_at_their_start(desk: Desk) -> None:
    knowledge = desk.knowledge()
    jobs = [
        make_queued(1, "RUNNING", start_time=NOW, restarts=1),
        make_queued(2, "RUNNING", start_time=NOW, queue="burst"),
        make_queued(3, "PENDING"),
    ]
    assert knowledge.learn_starts(jobs, state_at) == 0


def test_a_cloud_job_teaches_the_run_time_it_would_have_had_here(desk: Desk) -> None:
    knowledge = desk.knowledge()
    knowledge.prepare()
    ratio = configured_slowdown(2, desk.settings.placement)
    desk.store.add([outcome(1, wait=0.0, run=600.0 * ratio, partition="burst")], source="slurm")
    desk.store.add(
        [outcome(n, wait=0.0, run=600.0 * ratio, partition="burst") for n in (2, 3)], source="slurm"
    )
    knowledge.learn_ends(state_at)
    assert len(knowledge.predictor.wait) == 0
    asked = replace(outcome(4).job, queue="burst")
    assert knowledge.predictor.estimate(asked, state_at(NOW)).run.seconds == pytest.approx(600.0)


@pytest.mark.parametrize(
    ("section", "changed"),
    [
        ("estimator", {"neighbours": 5}),
        ("estimator", {"kernel_width": 2.0}),
        ("estimator", {"knowledge_base_jobs": 10}),
        ("cluster", {"time_zone": "Asia/Tokyo"}),
    ],
)
def test_other_settings_build_it_anew(desk: Desk, section: str, changed: dict[str, float]) -> None:
    """They would never arrive: what was built once is taken up at each start."""
    desk.store.add([outcome(number) for number in range(1, 21)], source="slurm")
    desk.knowledge().prepare()
    before = desk.models.current(PREDICTOR_KIND)
    desk.knowledge().prepare()
    assert desk.models.current(PREDICTOR_KIND) == before, "the same settings"
    part = getattr(desk.settings, section).model_copy(update=changed)
    desk.settings = desk.settings.model_copy(update={section: part})
    knowledge = desk.knowledge()
    knowledge.prepare()
    parameters, own = knowledge.predictor.run.parameters, desk.settings.estimator
    assert (parameters.k, parameters.omega, parameters.s) == (
        own.neighbours,
        own.kernel_width,
        own.knowledge_base_jobs,
    )
    assert knowledge.predictor.encoder.utc_offset_seconds == desk.settings.cluster.utc_offset_seconds
    assert desk.models.current(PREDICTOR_KIND) != before, "handed over"


def test_new_parameters_build_it_anew(desk: Desk) -> None:
    desk.store.add([outcome(number) for number in range(1, 6)], source="slurm")
    knowledge = desk.knowledge()
    knowledge.prepare()
    tuned = KnnParameters.untuned(CUNHA_TABLE_I, k=2, omega=9.0, s=4)
    save_parameters(desk.models, {"wait": tuned, "run": tuned}, CUNHA_TABLE_I, {})
    knowledge.refresh()
    assert knowledge.predictor.run.parameters.chromosome.tolist() == tuned.chromosome.tolist()
    assert knowledge.cases == 4
    assert knowledge.save()


def test_a_log_added_while_it_runs_is_learned_as_a_whole(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    knowledge = desk.knowledge()
    knowledge.prepare()
    monkeypatch.setattr("advisor.service.learn.knowledge._REBUILD_JOBS", 10)
    desk.store.add([outcome(number) for number in range(1, 31)], source="swf:log")
    assert knowledge.learn_ends(state_at) == []
    assert knowledge.cases == 30
    assert knowledge.learn_ends(state_at) == []


def test_a_damaged_model_is_built_anew(desk: Desk, tmp_path: Path) -> None:
    desk.store.add([outcome(1)], source="slurm")
    desk.knowledge().prepare()
    version = desk.models.current(PREDICTOR_KIND)
    (tmp_path / "models" / PREDICTOR_KIND / str(version) / "arrays.npz").write_bytes(b"nonsense")
    knowledge = desk.knowledge()
    knowledge.prepare()
    assert knowledge.cases == 1


@pytest.mark.parametrize("in_one_call", [False, True])
@pytest.mark.parametrize("first_end", ["NODE_FAIL", "PREEMPTED"])
def test_a_job_that_ends_twice_teaches_its_first_wait_and_its_whole_run(
    desk: Desk, first_end: str, *, in_one_call: bool
) -> None:
    """As `sacct --duplicates` tells it; the run that was cut short says nothing about how long it takes."""
    knowledge = desk.knowledge()
    knowledge.prepare()
    records = [(first_end, 1000, 1060, 1100), ("COMPLETED", 1100, 1400, 2000)]
    for part in [records] if in_one_call else [[record] for record in records]:
        for _ in range(2):  # what sacct has told is told again
            ingest_sacct(desk.store, map(sacct_record, part), fields=FIELDS, delimited_by="|")
        knowledge.learn_ends(state_at)
        knowledge.save()
        knowledge = desk.knowledge()  # a restart in between changes nothing
        knowledge.prepare()
    asked = Job(job_id=0, submit_time=5000.0, processors=2, user="mia", queue="onprem", requested_time=1200.0)
    told, built = knowledge.predictor, desk.knowledge()._built()
    for predictor in (told, built):
        assert (len(predictor.wait), len(predictor.run)) == (1, 1)
        assert predictor.wait.estimate(predictor.encoder.encode(asked, None)).seconds == pytest.approx(60.0)
        assert predictor.run.estimate(predictor.encoder.encode(asked, None)).seconds == pytest.approx(600.0)


def test_a_job_that_came_back_teaches_the_wait_for_the_place_that_was_kept(desk: Desk) -> None:
    knowledge = desk.knowledge()
    knowledge.prepare()
    runs = [("REQUEUED", 1000, 1001, 1300), ("COMPLETED", 1300, 1302, 1902)]
    lines = [sacct_record(run, partition) for run, partition in zip(runs, ("burst", "onprem"), strict=True)]
    ingest_sacct(desk.store, lines, fields=FIELDS, delimited_by="|")
    back = make_queued(7, "RUNNING", submit_time=1300.0, start_time=1302.0, restarts=1)
    assert knowledge.learn_starts([back], state_at) == 0, "two seconds are not what it has waited"
    knowledge.learn_ends(state_at)
    asked = knowledge.predictor.encoder.encode(
        Job(job_id=0, submit_time=5e3, processors=2, user="mia", queue="onprem"), None
    )
    assert knowledge.predictor.wait.estimate(asked).seconds == pytest.approx(302.0)
    assert knowledge.predictor.run.estimate(asked).seconds == pytest.approx(600.0)


def test_a_job_cut_short_before_the_history_was_read_teaches_its_wait_once(desk: Desk) -> None:
    ingest_sacct(desk.store, [sacct_record(("NODE_FAIL", 1000, 1060, 1100))], fields=FIELDS, delimited_by="|")
    knowledge = desk.knowledge()
    knowledge.prepare()
    assert (len(knowledge.predictor.wait), len(knowledge.predictor.run)) == (1, 0)
    ingest_sacct(desk.store, [sacct_record(("COMPLETED", 1100, 1400, 2000))], fields=FIELDS, delimited_by="|")
    assert len(knowledge.learn_ends(state_at)) == 1
    assert (len(knowledge.predictor.wait), len(knowledge.predictor.run)) == (1, 1)


FIELDS = choose_fields((DATA / "sacct-helpformat-22.05.txt").read_text())


def sacct_record(run: tuple[str, int, int, int], partition: str = "onprem") -> str:
    state, submit, start, end = run
    values = dict.fromkeys(FIELDS, "") | {
        "JobIDRaw": "7",
        "JobID": "7",
        "State": state,
        "Submit": str(submit),
        "Start": str(start),
        "End": str(end),
        "TimelimitRaw": "20",
        "ReqCPUS": "2",
        "AllocCPUS": "2",
        "Partition": partition,
        "User": "mia",
        "DBIndex": "1",
    }
    return "|".join(values[name] for name in FIELDS)


def test_g17_14_the_cutoff_of_the_weekly_backtest_is_taken_up(desk: Desk) -> None:
    knowledge = desk.knowledge()
    knowledge.prepare()
    assert knowledge.cutoff is None
    save_cutoff(desk.models, Cutoff(scale=3600.0, decay=0.5), {})
    knowledge.refresh()
    assert knowledge.cutoff == Cutoff(scale=3600.0, decay=0.5)
    again = desk.knowledge()  # of the next process, whose first poll comes before `prepare`
    assert again.cutoff == knowledge.cutoff


def test_a_weekly_training_that_ends_within_a_round_is_not_replaced(desk: Desk) -> None:
    elapsed = [0.0]
    sizes = SizeKnowledge(desk.models, Clock(monotonic=lambda: elapsed[0]))
    arrays, meta = SizeModel().to_arrays()
    desk.models.save(SIZE_KIND, arrays, meta)
    sizes.refresh()
    sizes.learn([outcome(1)])
    trained = desk.models.save(SIZE_KIND, arrays, meta)  # `advisor retrain`, another process
    elapsed[0] += 61.0
    assert not sizes.save()
    assert desk.models.current(SIZE_KIND) == trained
    sizes.refresh()
    sizes.learn([outcome(2)])
    assert sizes.save()
