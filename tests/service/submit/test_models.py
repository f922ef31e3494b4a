"""The submit server takes up what control and retrain put in force."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.history.models import ModelStore
from advisor.model.errors import AdvisorError
from advisor.model.estimate import NO_SIZE
from advisor.model.job import Job
from advisor.model.settings import ClusterSettings, PathSettings, Policy, Settings
from advisor.predict.knn.features import Encoder
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.predictor import Predictor
from advisor.predict.size.size_model import SizeModel
from advisor.service.submit.models import PREDICTOR_KIND, SIZE_KIND, model_loader
from tests.service.site import make_cluster


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(folder=tmp_path / "models")


def settings_of(store: ModelStore, policy: Policy = "cunha2017") -> Settings:
    return Settings(
        cluster=ClusterSettings(policy=policy),
        paths=PathSettings(state=store.folder.parent, run=store.folder.parent),
    )


def save_predictor(store: ModelStore) -> None:
    encoder = Encoder()
    untuned = KnnParameters.untuned(encoder.schema)
    store.save(PREDICTOR_KIND, *Predictor(untuned, untuned, encoder=encoder).to_arrays())


def test_nothing_before_the_first_model(store: ModelStore) -> None:
    assert model_loader(settings_of(store))(None) is None


def test_a_newer_predictor_or_size_model_is_taken_up_once(store: ModelStore) -> None:
    load = model_loader(settings_of(store))
    save_predictor(store)
    first = load(None)
    assert first is not None
    assert first.version == "00000001+none"
    assert load(first.version) is None
    store.save(SIZE_KIND, *SizeModel(divider_seconds=300.0).to_arrays())
    second = load(first.version)
    assert second is not None
    job = Job(job_id=0, submit_time=0.0, processors=1)
    assert first.estimator is not None
    assert second.estimator is not None
    assert first.estimator.estimate(job, make_cluster()).size == NO_SIZE
    assert second.estimator.estimate(job, make_cluster()).size.divider_seconds == 300.0
    save_predictor(store)
    third = load(second.version)
    assert third is not None
    assert third.version == "00000002+00000001"


def test_under_the_price_sizes_are_loaded_and_no_predictor(store: ModelStore) -> None:
    load = model_loader(settings_of(store, "price"))
    save_predictor(store)
    assert load(None) is None
    store.save(SIZE_KIND, *SizeModel(divider_seconds=300.0).to_arrays())
    loaded = load(None)
    assert loaded is not None
    assert (loaded.version, loaded.estimator) == ("none+00000001", None)
    assert loaded.size is not None
    assert load(loaded.version) is None


def test_a_damaged_size_model_costs_the_sizes_only(store: ModelStore) -> None:
    load = model_loader(settings_of(store))
    save_predictor(store)
    store.save(SIZE_KIND, {"x": np.zeros(3)}, {"format": 99})
    loaded = load(None)
    assert loaded is not None
    assert loaded.estimator is not None
    assert loaded.version == "00000001+00000001"
    assert (
        loaded.estimator.estimate(Job(job_id=0, submit_time=0.0, processors=1), make_cluster()).size
        == NO_SIZE
    )
    assert load(loaded.version) is None, "and is not tried again every time"


def test_a_damaged_predictor_is_an_error(store: ModelStore) -> None:
    store.save(PREDICTOR_KIND, {"x": np.zeros(3)}, {"format": 99})
    with pytest.raises(AdvisorError):
        model_loader(settings_of(store))(None)
