"""Kept estimates are those that would be worked out anew, and are kept for no longer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.model import Job
from advisor.model.cluster import ClusterState
from advisor.model.estimate import Estimates, SizeEstimate
from advisor.predict.forecast.forecast_rows import forecast_rows
from advisor.predict.forecast.rolling import RollingForests
from advisor.predict.size.size_features import LiveFeatures
from advisor.predict.size.size_history import hashes_of
from advisor.service.submit.kept_estimates import KEPT_SECONDS, KeptEstimates
from advisor.service.submit.state_holder import LoadedModel
from tests.service.placement_world import OPTIONS, Site, job_of, make_log
from tests.service.watched_record import Watched


@dataclass
class SizeBySaid:
    """A size for all that the size model looks at of a job, and of whom it was asked."""

    seen: list[Job] = field(default_factory=list)

    def size_of(self, job: Job) -> SizeEstimate:
        self.seen.append(job)
        said = (*hashes_of(job), job.requested_time or 0.0, job.processors)
        return SizeEstimate(is_small=False, probability_small=hash(said) / 2**64, divider_seconds=300.0)

    def estimate(self, job: Job, state: ClusterState) -> Estimates:
        raise NotImplementedError("wait and run time are the forests' to tell")


@pytest.fixture(scope="module")
def forests() -> RollingForests:
    table, rolling = make_log(), RollingForests(OPTIONS)
    forecast_rows(table, np.arange(len(table)), OPTIONS, rolling=rolling)
    return rolling


@pytest.fixture
def site(forests: RollingForests) -> Site:
    site = Site(make_log(), forests)
    site.look(float(site.table.submit[300]))
    site.follow()
    return site


def test_they_are_those_worked_out_anew(site: Site) -> None:
    """Of jobs of a few words each: some say the same, some differ in one word, some by a name never met."""
    known = [job_of(site.table, row) for row in range(250, 300)]
    now = site.live.time
    draw, estimator = random.Random(8), SizeBySaid()
    kept, model, found = KeptEstimates(), LoadedModel("1", estimator), set[Estimates]()
    for number in range(1_500):
        job = Job(
            job_id=0,
            submit_time=now,
            processors=draw.choice((1, 64)),
            requested_time=draw.choice((None, 600.0)),
            user=draw.choice((None, "somebody new", known[0].user, known[1].user)),
            group=draw.choice((None, known[0].group)),
            queue=draw.choice(("onprem", "long", "long,onprem")),
            name=draw.choice((None, f"run_{number}", "wrap", known[2].name, known[3].name)),
        )
        forecast = site.live.forecast(job)
        anew = Estimates(wait=forecast["wait"], run=forecast["run"], size=SizeBySaid().size_of(job))
        assert kept.of(job, site.live, model) == anew
        found.add(anew)
    assert len(found) > 100
    assert len(estimator.seen) < 500, "most were kept"


def a_look(site: Site) -> None:
    site.look(float(site.table.submit[301]))
    site.follow()


def a_submission(site: Site) -> None:
    site.live.advised(job_of(site.table, 320), 1)


def a_refusal(site: Site) -> None:
    assert site.live.withdraw_seen(1)


@pytest.mark.parametrize("happens", [a_look, a_submission, a_refusal])
def test_they_end_with_what_they_rest_on(site: Site, happens: Callable[[Site], None]) -> None:
    site.live.advised(replace(job_of(site.table, 320), submit_time=site.live.time), 1)
    model, kept = LoadedModel("1", SizeBySaid()), KeptEstimates()
    job = replace(job_of(site.table, 330), submit_time=site.live.time)
    before = kept.of(job, site.live, model)
    assert kept.of(job, site.live, model) is before
    happens(site)
    after = kept.of(job, site.live, model)
    assert after is not before
    assert after.wait == site.live.forecast(job)["wait"]


@pytest.mark.parametrize(
    ("later", "is_kept"), [(0.9 * KEPT_SECONDS, True), (KEPT_SECONDS, False), (-0.1, False)]
)
def test_they_end_with_the_second(site: Site, later: float, *, is_kept: bool) -> None:
    model, kept = LoadedModel("1", SizeBySaid()), KeptEstimates()
    job = replace(job_of(site.table, 330), submit_time=site.live.time)
    before = kept.of(job, site.live, model)
    later_job = replace(job, submit_time=job.submit_time + later)
    assert (kept.of(later_job, site.live, model) is before) is is_kept


def test_they_end_with_the_model_and_with_the_forests(site: Site, forests: RollingForests) -> None:
    model, kept = LoadedModel("1", SizeBySaid()), KeptEstimates()
    job = replace(job_of(site.table, 330), submit_time=site.live.time)
    before = kept.of(job, site.live, model)
    assert kept.of(job, site.live, None).size.probability_small == 0.0
    assert kept.of(job, site.live, model) is not before
    other = Site(site.table, forests).live  # knows of nothing yet
    assert kept.of(job, other, model).wait == other.forecast(job)["wait"]


def test_what_fails_is_not_kept(site: Site) -> None:
    class Fails(SizeBySaid):
        def size_of(self, job: Job) -> SizeEstimate:
            super().size_of(job)
            raise RuntimeError

    estimator, kept = Fails(), KeptEstimates()
    job = replace(job_of(site.table, 330), submit_time=site.live.time)
    for times in (1, 2):
        with pytest.raises(RuntimeError):
            kept.of(job, site.live, LoadedModel("1", estimator))
        assert len(estimator.seen) == times


def test_nothing_the_models_look_at_is_left_out_of_what_jobs_say(site: Site) -> None:
    """Who teaches the models another field must add it to the words jobs are told apart by."""
    job = replace(job_of(site.table, 330), submit_time=site.live.time)
    kept, model = KeptEstimates(), LoadedModel("1", SizeBySaid())
    kept.of(job, site.live, model)
    told_apart, models = Watched(job), Watched(job)
    kept.of(told_apart, site.live, model)  # kept already: nothing but the words is looked at
    site.live.forecast(models)
    LiveFeatures().row(models, 300.0)
    assert models.seen >= {"user", "name", "processors", "requested_time"}
    assert models.seen <= told_apart.seen
