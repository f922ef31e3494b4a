"""A small job goes before all others, and its wait is forecast so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from advisor.model.estimate import SizeEstimate
from advisor.model.job import Job
from advisor.model.machine import Machine
from advisor.predict.run_times.run_times import RunTimesOfJobs
from advisor.service.exchange.seen_queue import SeenQueue
from advisor.service.submit.answering import Answerer
from advisor.service.submit.models import LoadedModel
from tests.service.site import NOW, ask
from tests.service.submit.test_priced_answers import BUSY_SECONDS, MACHINE, learned, serving, site_of

SMALL = [MACHINE, 600.0, 300.0]
LARGE = [MACHINE, 36_000.0, 3600.0]


@pytest.fixture(scope="module")
def run_times() -> RunTimesOfJobs:
    return learned()


class Sizes:
    """The jobs of the user `small` are small."""

    def classify(self, job: Job, _cut: float) -> SizeEstimate:
        return SizeEstimate(is_small=job.user == "small", probability_small=0.5, divider_seconds=300.0)


def answering(folder: Path, run_times: RunTimesOfJobs, before_small: int | None, **sections: Any) -> Answerer:
    """One small job and four large ones wait behind a machine that is busy."""
    running = np.array([[MACHINE, NOW, BUSY_SECONDS, BUSY_SECONDS]])
    queue = SeenQueue.of(Machine(("onprem",), MACHINE), running, np.array([SMALL, *[LARGE] * 4]))
    queue = structs.replace(queue, before_small=before_small)
    answerer, holder = serving(folder, site_of(queue), run_times, **sections)
    sizes: Any = Sizes()
    holder.current = replace(holder.current, model=LoadedModel("1", None, sizes))
    return answerer


def waits(answerer: Answerer, user: str) -> tuple[float, float | None]:
    found = answerer.answer(ask(user=user, min_cpus=MACHINE, dry=True)).record.estimates
    return found.wait.seconds, found.planned_wait


def test_a_small_job_waits_for_small_jobs_alone(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    answerer = answering(tmp_path, run_times, before_small=1)
    assert waits(answerer, "small") == (BUSY_SECONDS + 300.0, BUSY_SECONDS + 600.0)
    all_of_them = BUSY_SECONDS + 300.0 + 4 * 3600.0, BUSY_SECONDS + 600.0 + 4 * 36_000.0
    assert waits(answerer, "large") == all_of_them


def test_where_none_is_overtaken_it_waits_for_all(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    answerer = answering(tmp_path, run_times, before_small=None)
    assert waits(answerer, "small") == waits(answerer, "large")


def test_in_shadow_mode_no_job_is_put_first(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    answerer = answering(tmp_path, run_times, before_small=1, mode="shadow")
    assert waits(answerer, "small") == waits(answerer, "large")


def test_small_jobs_since_the_poll_are_before_the_next_one(tmp_path: Path, run_times: RunTimesOfJobs) -> None:
    answerer = answering(tmp_path, run_times, before_small=1)
    stays = {"min_cpus": MACHINE, "time_limit": 60, "comment": "no-burst"}
    answerer.answer(ask(user="large", **stays))
    assert waits(answerer, "small")[1] == BUSY_SECONDS + 600.0
    answerer.answer(ask(user="small", **stays))
    assert waits(answerer, "small")[1] == BUSY_SECONDS + 600.0 + 3600.0
