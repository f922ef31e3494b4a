"""`advisor retrain`, as the weekly timer runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from advisor.history.models import ModelStore
from advisor.history.store import HistoryStore
from advisor.model.job import Job, JobOutcome
from advisor.predict.size.size_model import SizeModel
from advisor.predict.size.size_training import constant

pytestmark = pytest.mark.slow

WEEK = 7 * 86400.0
EPOCH = 1_700_000_000.0


def retrain(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from advisor.cli.main import run; run()", "retrain", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "300", "ADVISOR_PATHS__STATE": str(folder)},
    )


def outcomes_of(count: int) -> list[JobOutcome]:
    """Ann's jobs need a tenth of what they ask for."""
    generator = np.random.default_rng(count)
    outcomes = []
    for i, submit in enumerate(np.sort(generator.random(count)) * 3 * WEEK):
        request = float(generator.choice([600, 36000], p=[0.45, 0.55]))
        job = Job(job_id=i + 1, submit_time=EPOCH + submit, processors=4, user="ann", requested_time=request)
        outcomes.append(
            JobOutcome(job=job, start_time=EPOCH + submit, end_time=EPOCH + submit + request / 10)
        )
    return outcomes


def stranger(number: int) -> JobOutcome:
    """Nobody like it was seen before: another user and another request each time."""
    submit = EPOCH + 2 * WEEK + 2000.0 * number
    job = Job(
        job_id=10_000 + number,
        submit_time=submit,
        processors=4,
        user=f"user{number}",
        requested_time=601.0 + number,
    )
    return JobOutcome(job=job, start_time=submit, end_time=submit + 90_000)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with HistoryStore(f"sqlite:///{folder}/history.db") as store:
        store.add(outcomes_of(900))
    return folder


def test_a_model_is_trained_promoted_and_answers(state):
    done = retrain(state, "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"jobs", "seconds", "peak_rss_mb", "promoted", "version"} <= result.keys()
    assert result["promoted"]
    assert result["jobs"] == 900
    assert 20 < result["peak_rss_mb"] < 2000
    assert result["backtest"]["candidate_accuracy"] > 0.95
    assert result["backtest"]["current_accuracy"] is None
    model = SizeModel.from_arrays(*ModelStore(folder=state / "models").load("size"))
    assert model.divider_seconds == result["divider_seconds"] == 3600.0
    probe = Job(job_id=0, submit_time=model.trained_at, processors=4, user="ann", requested_time=600.0)
    assert model.classify(probe, 0.5).is_small


def test_a_worse_model_is_not_promoted_unless_forced(state):
    """Last week strangers asked for little and ran long: a model that calls them all large is right."""
    shifted = state.parent / "shifted"
    shifted.mkdir(mode=0o700)
    with HistoryStore(f"sqlite:///{shifted}/history.db") as store:
        store.add(one for one in outcomes_of(900) if one.job.submit_time < EPOCH + 2 * WEEK)
        store.add(stranger(i) for i in range(250))
    always_large = SizeModel()
    always_large.trees = constant(0.0, len(always_large.to_arrays()[1]["schema"]))
    always_large.divider_seconds = 3600.0
    always_large.trained_at = EPOCH
    store = ModelStore(folder=shifted / "models")
    version = store.save("size", *always_large.to_arrays())
    done = retrain(shifted)
    assert done.returncode == 0, done.stderr
    assert "Not promoted: the new model classes the last week worse" in done.stdout
    assert store.current("size") == version
    forced = json.loads(retrain(shifted, "--force", "--format", "json").stdout)
    assert forced["promoted"]
    assert forced["backtest"]["is_worse"]
    assert store.current("size") == forced["version"] != version


def test_an_end_of_a_clock_that_was_ahead_leaves_a_week_to_judge_by(tmp_path):
    """The week before that end has no jobs, and every new model would be promoted unseen."""
    folder, shift = tmp_path / "ahead", time.time() - EPOCH - 3 * WEEK - 4000.0
    folder.mkdir(mode=0o700)
    with HistoryStore(f"sqlite:///{folder}/history.db") as store:
        for one in outcomes_of(900):
            submit, end = one.job.submit_time + shift, one.end_time + shift
            is_last = one.job.job_id == 900
            job = structs.replace(one.job, submit_time=submit)
            end += 52 * WEEK * is_last
            store.add([structs.replace(one, job=job, start_time=submit, end_time=end)])
    result = json.loads(retrain(folder, "--format", "json").stdout)
    assert result["promoted"]
    assert result["backtest"]["jobs"] >= 200


def test_too_little_history_leaves_everything_as_it_is(tmp_path):
    folder = tmp_path / "young"
    folder.mkdir(mode=0o700)
    with HistoryStore(f"sqlite:///{folder}/history.db") as store:
        store.add(outcomes_of(40))
    done = retrain(folder, "--format", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert not result["promoted"]
    assert result["reason"] == "too-few-jobs"
    assert result["jobs"] == 40


def test_a_damaged_model_is_replaced(state):
    assert retrain(state).returncode == 0
    with (state / "models" / "size" / "current" / "arrays.npz").open("ab") as file:
        file.write(b"rotten")
    done = retrain(state, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["promoted"]
    ModelStore(folder=state / "models").load("size")


def test_a_models_folder_others_can_write_is_refused(state):
    models = state / "models"
    models.mkdir()
    models.chmod(0o777)
    done = retrain(state)
    assert done.returncode != 0
    assert "models" in done.stderr
    assert "Traceback" not in done.stderr
