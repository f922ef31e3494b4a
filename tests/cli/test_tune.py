"""``advisor tune`` and ``advisor bench`` as a user types them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from msgspec.structs import asdict
from typer.testing import CliRunner

from advisor.history.models import ModelStore
from advisor.history.parameters import load_cutoff, load_parameters
from advisor.history.store import HistoryStore
from advisor.model.errors import BadInput, UseFallback
from advisor.model.job import Job, JobOutcome
from advisor.predict.knn import tuning
from advisor.predict.knn.features import CUNHA_TABLE_I, FeatureSchema
from advisor.predict.knn.parameters import KnnParameters
from tests.commands import app
from tests.history.swf_writer import write

runner = CliRunner()
UNTUNED = KnnParameters.untuned(CUNHA_TABLE_I)
SMALL = ("--population", "6", "--generations", "3", "--entries", "40")


def jobs(count=300):
    """Users with habits: the run time follows the user, the wait the time of day."""
    generator = np.random.default_rng(9)
    time = 1e9
    for number in range(1, count + 1):
        time += float(generator.integers(0, 900))
        user = int(generator.integers(0, 6))
        wait = float(generator.integers(0, 60)) + 20.0 * ((time % 86400) // 3600)
        run = 60.0 + 300.0 * user + float(generator.integers(0, 30))
        yield JobOutcome(
            job=Job(
                job_id=number,
                submit_time=time,
                processors=1 + user % 4,
                user=str(user),
                requested_time=3600.0,
            ),
            start_time=time + wait,
            end_time=time + wait + run,
        )


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "log.swf"
    write(path, jobs())
    return path


def call(*arguments):
    result = runner.invoke(app, ["tune", *SMALL, *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def as_json(*arguments):
    return json.loads(call(*arguments, "--format", "json").stdout)


def test_tunes_on_a_log_and_puts_the_parameters_in_force(trace, models):
    found = as_json("--trace", trace, "--models", models)
    assert found["version"] == "00000001"
    assert found["jobs"] == 300
    stored = load_parameters(ModelStore(folder=models), CUNHA_TABLE_I, UNTUNED)
    for target in ("wait", "run"):
        told = found["targets"][target]
        assert told["rmse_after"] <= told["rmse_before"]
        assert len(told["history"]) == 4
        assert told["k"] == stored[target].k
        assert list(told["weights"].values()) == list(stored[target].weights)
    assert found["targets"]["run"]["rmse_after"] < 0.8 * found["targets"]["run"]["rmse_before"]


def test_a_log_is_tuned_on_in_the_order_of_submission_whatever_the_order_of_its_lines(trace, tmp_path):
    shuffled = tmp_path / "shuffled" / trace.name
    shuffled.parent.mkdir()
    write(shuffled, sorted(jobs(), key=lambda job: job.job.submit_time % 7))  # stable for equal times
    wanted = as_json("--trace", trace, "--dry-run")["targets"]
    assert as_json("--trace", shuffled, "--dry-run")["targets"] == wanted


def test_weekly_promotes_what_is_better_on_jobs_it_was_not_tuned_on(trace, models, monkeypatch):
    monkeypatch.setenv("ADVISOR_ESTIMATOR__MIN_FINISHED_JOBS", "200")
    first = as_json("--trace", trace, "--models", models, "--weekly")
    assert first["version"] == "00000001"
    for one in first["backtest"].values():
        assert one["candidate_rmse"] > 0
    stored = load_parameters(ModelStore(folder=models), CUNHA_TABLE_I, UNTUNED)
    run = first["backtest"]["run"]
    assert run["candidate_rmse"] < 0.8 * run["current_rmse"]
    assert stored["run"].k == first["targets"]["run"]["k"]
    # the same search again gives the same parameters, which are not better than themselves
    second = as_json("--trace", trace, "--models", models, "--weekly")
    assert second["version"] is None
    assert second["backtest"]["run"]["candidate_rmse"] == second["backtest"]["run"]["current_rmse"]
    assert ModelStore(folder=models).current("parameters") == "00000001"
    assert "not better, not used" in call("--trace", trace, "--models", models, "--weekly").stdout


def test_g17_14_weekly_backtests_the_published_rules_cutoff(trace, models, monkeypatch):
    monkeypatch.setenv("ADVISOR_ESTIMATOR__MIN_FINISHED_JOBS", "200")
    found = as_json("--trace", trace, "--models", models, "--weekly")["cutoff"]
    assert found["is_promoted"] == (found["candidate_saved_seconds"] >= found["current_saved_seconds"])
    stored = load_cutoff(ModelStore(folder=models))
    assert (stored is not None) == found["is_promoted"]
    if stored is not None:
        assert asdict(stored) == found["candidate"]
    monkeypatch.setenv("ADVISOR_PLACEMENT__CUTOFF_MINUTES", "60")
    assert as_json("--trace", trace, "--models", models, "--weekly")["cutoff"] is None, (
        "set by hand: it holds"
    )


@pytest.mark.parametrize("kind", ["cutoff", "parameters"])
def test_weekly_replaces_what_is_damaged(trace, models, monkeypatch, kind):
    monkeypatch.setenv("ADVISOR_ESTIMATOR__MIN_FINISHED_JOBS", "200")
    as_json("--trace", trace, "--models", models, "--weekly")
    as_json("--trace", trace, "--models", models)
    with (models / kind / "current" / "arrays.npz").open("ab") as file:
        file.write(b"rotten")
    as_json("--trace", trace, "--models", models, "--weekly")
    try:
        ModelStore(folder=models).load(kind)
    except UseFallback as error:  # nothing better was found
        assert error.code == "models.none"  # noqa: PT017 -- it is there, or there is none: never damaged


def test_weekly_says_what_it_has_written(trace, models, monkeypatch):
    monkeypatch.setenv("ADVISOR_ESTIMATOR__MIN_FINISHED_JOBS", "200")
    as_json("--trace", trace, "--models", models, "--weekly")  # the next parameters are no better
    dry = call("--trace", trace, "--models", models, "--weekly", "--dry-run").stdout
    assert ("now in force" in dry, "Nothing was written." in dry) == (False, True)
    told = call("--trace", trace, "--models", models, "--weekly").stdout
    assert ("now in force" in told, "Nothing was written." in told) == (True, False)


def test_damaged_cutoff_is_said(models):
    store = ModelStore(folder=models)
    store.save("cutoff", {"cutoff": np.array([-1.0, 0.0])}, {})
    with pytest.raises(BadInput, match="cutoff"):
        load_cutoff(store)


def test_weekly_on_a_young_site_is_no_error(tmp_path, models):
    path = tmp_path / "young.swf"
    write(path, jobs(60))
    found = as_json("--trace", path, "--models", models, "--weekly")
    assert (found["version"], found["reason"]) == (None, "too-few-jobs")
    assert "Not tuned: 60 of" in call("--trace", path, "--models", models, "--weekly").stdout


def test_tunes_on_the_history_of_the_settings(tmp_path, models):
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as store:
        store.add(jobs(), source="slurm")
    config = tmp_path / "advisor.toml"
    config.write_text(f'[paths]\nstate = "{tmp_path}"\n')
    found = as_json("--config", config)
    assert found["jobs"] == 300
    assert found["targets"]["run"]["rmse_after"] < found["targets"]["run"]["rmse_before"]
    assert load_parameters(ModelStore(folder=models), CUNHA_TABLE_I, UNTUNED)["run"].k >= 1


def test_of_a_long_history_the_newest_jobs_are_read(tmp_path, models, monkeypatch):
    monkeypatch.setattr("advisor.cli.own_jobs.NEWEST_JOBS", 200)
    with HistoryStore(f"sqlite:///{tmp_path / 'history.db'}") as store:
        store.add(jobs(), source="slurm")
    config = tmp_path / "advisor.toml"
    config.write_text(f'[paths]\nstate = "{tmp_path}"\n')
    assert 200 <= as_json("--config", config, "--dry-run")["jobs"] < 250


def test_text_for_people(trace):
    shown = call("--trace", trace, "--dry-run").stdout
    assert "RMSE after, s" in shown
    assert "weight of requested_time" in shown
    assert "Nothing was written." in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--trace", "missing.swf", "--dry-run"), "missing.swf"),
        (("--entries", "100000", "--dry-run"), "advisor ingest"),
        (("--at", "20", "--dry-run"), "advisor ingest"),
    ],
)
def test_bad_input_is_said(trace, arguments, message):
    given = arguments if "--trace" in arguments else ("--trace", str(trace), *arguments)
    result = runner.invoke(app, ["tune", *SMALL, *given])
    assert isinstance(result.exception, BadInput)
    assert message in str(result.exception)


def test_folder_that_cannot_be_written_is_said_before_the_work(trace, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    generations = []
    search = tuning.tune

    def counted(problem, *, progress, **options):
        def count(state):
            generations.append(state.generation)
            progress(state)

        return search(problem, progress=count, **options)

    monkeypatch.setattr(tuning, "tune", counted)
    models = tmp_path / "file" / "models"
    result = runner.invoke(app, ["tune", *SMALL, "--trace", str(trace), "--models", str(models)])
    assert isinstance(result.exception, BadInput)
    assert generations == []


def test_parameters_of_another_schema_or_none_leave_the_untuned(trace, models):
    store = ModelStore(folder=models)
    assert load_parameters(store, CUNHA_TABLE_I, UNTUNED) == {"wait": UNTUNED, "run": UNTUNED}
    as_json("--trace", trace, "--models", models)
    more = FeatureSchema("more", (*CUNHA_TABLE_I.features, "processors"))
    other = KnnParameters.untuned(more)
    assert load_parameters(store, more, other)["run"] is other


@pytest.mark.parametrize("arrays", [{}, {"wait": np.zeros(2), "run": np.zeros(2)}, {"wait": np.ones(14)}])
def test_damaged_parameters_are_said(models, arrays):
    store = ModelStore(folder=models)
    store.save("parameters", arrays, {"features": list(CUNHA_TABLE_I.features)})
    with pytest.raises(BadInput):
        load_parameters(store, CUNHA_TABLE_I, UNTUNED)


def test_bench_knn_has_the_contract_s_fields():
    arguments = ["bench", "knn", "--knowledge-base", "500", "--queries", "100", "--format", "json"]
    result = runner.invoke(app, arguments, catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["knowledge_base"] == 500
    assert found["features"] == 11
    for name in ("query_us", "sklearn_brute_query_us"):
        assert 0 < found[name]["p50"] <= found[name]["p99"]
    assert found["speedup"] == found["sklearn_brute_query_us"]["p50"] / found["query_us"]["p50"]
    # the peer solves the same problem: it differs about unknown values only
    assert found["same_neighbours"] > 0.85


def test_bench_tune_has_the_contract_s_fields():
    arguments = ["bench", "tune", "--trace", "synthetic:2500:1", "--at", "1500", "--population", "6"]
    result = runner.invoke(
        app, [*arguments, "--generations", "2", "--format", "json"], catch_exceptions=False
    )
    found = json.loads(result.stdout)
    assert (found["population"], found["generations"]) == (6, 2)
    assert found["seconds"] > 0
    assert found["rmse_after"] <= found["rmse_before"]
    assert found["control"]["evaluations"] == 18
    text = runner.invoke(
        app, [*arguments, "--generations", "1", "--run-times", "--no-control"], catch_exceptions=False
    )
    assert "holdout.rmse_after" in text.stdout


def test_the_clouds_jobs_are_no_examples_of_the_queue(tmp_path):
    from advisor.cli.tune import _table
    from advisor.history.store import HistoryStore
    from advisor.model.job import Job, JobOutcome
    from advisor.model.settings import PathSettings, Settings

    settings = Settings(paths=PathSettings(state=tmp_path))
    with HistoryStore(settings.history_url) as store:
        for job_id, partition in enumerate(("onprem", "burst", "onprem"), 1):
            job = Job(job_id=job_id, submit_time=1e9 + job_id, processors=1, queue=partition)
            store.add([JobOutcome(job=job, start_time=2e9, end_time=2e9 + job_id, partition=partition)])
    assert _table(None, settings).job_id.tolist() == [1, 3]
