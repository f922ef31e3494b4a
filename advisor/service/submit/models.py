"""Models for the submit server, from the store whose hashes are checked: its watcher thread loads them."""

from __future__ import annotations

from typing import Final

import structlog

from advisor.history.models import ModelStore
from advisor.model.errors import AdvisorError
from advisor.model.settings import Settings
from advisor.predict.knn.predictor import Predictor
from advisor.predict.size.size_model import SizeModel
from advisor.service.submit.state_holder import LoadedModel, LoadModel

PREDICTOR_KIND: Final = "predictor"
"""Under this kind `advisor control` saves ``Predictor.to_arrays()`` as it learns."""

SIZE_KIND: Final = "size"
"""Under this kind `advisor retrain` saves ``SizeModel.to_arrays()``, once a week."""

log = structlog.get_logger(__name__)


def model_loader(settings: Settings) -> LoadModel:
    """Make a function that loads the models in force when they are others than the caller has.

    The function raises TellAdmin when the predictor is damaged or another user could have changed it, and the
    caller keeps what it has. Where the size model cannot be used, the one before stays in force.
    """
    return _Loader(
        ModelStore(folder=settings.paths.models),
        settings.size.probability_cut,
        with_predictor=settings.cluster.policy != "price",  # which asks `submit.run_times` instead
    )


class _Loader:
    def __init__(self, store: ModelStore, probability_cut: float, *, with_predictor: bool) -> None:
        self._store = store
        self._with_predictor = with_predictor
        self._probability_cut = probability_cut
        self._size: SizeModel | None = None
        self._size_version: str | None = None

    def __call__(self, version_in_use: str | None) -> LoadedModel | None:
        version = self._store.current(PREDICTOR_KIND) if self._with_predictor else None
        size_version = self._store.current(SIZE_KIND)
        if version is None and (self._with_predictor or size_version is None):
            return None
        named = f"{version or 'none'}+{size_version or 'none'}"
        if named == version_in_use:
            return None
        if size_version != self._size_version:
            self._size_version = size_version  # also when it fails: it is not tried again every time
            self._size = self._load_size(size_version)
        return LoadedModel(named, None if version is None else self._predictor(version), self._size)

    def _predictor(self, version: str) -> Predictor:
        arrays, meta = self._store.load(PREDICTOR_KIND, version)
        predictor = Predictor.from_arrays(
            arrays, meta, size=self._size, probability_cut=self._probability_cut
        )
        predictor.warm()
        return predictor

    def _load_size(self, version: str | None) -> SizeModel | None:
        if version is None:
            return None
        try:
            size = SizeModel.from_arrays(*self._store.load(SIZE_KIND, version))
        except AdvisorError as error:
            log.warning("size_model.not_used", version=version, code=error.code, message=str(error))
            return self._size
        size.warm()  # here, where no submission waits: once it is in use it is asked under a lock
        return size
