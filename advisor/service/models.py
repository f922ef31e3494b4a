"""Models for the submit server, from the store whose hashes are checked."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from advisor.history.models import ModelStore
from advisor.predict.predictor import Predictor
from advisor.service.state_holder import LoadedModel, LoadModel

PREDICTOR_KIND: Final = "predictor"
"""Under this kind `advisor control` and `advisor retrain` save ``Predictor.to_arrays()``."""


def model_loader(folder: Path) -> LoadModel:
    """Make a function that loads the predictor in force when it is another one than the caller has.

    Raises (the function it returns)
    --------------------------------
    TellAdmin
        The model is damaged, or somebody else could have changed it; the caller keeps what it has.
    """
    store = ModelStore(folder=folder)

    def load(version_in_use: str | None) -> LoadedModel | None:
        version = store.current(PREDICTOR_KIND)
        if version is None or version == version_in_use:
            return None
        arrays, meta = store.load(PREDICTOR_KIND, version)
        return LoadedModel(version, Predictor.from_arrays(arrays, meta))

    return load
