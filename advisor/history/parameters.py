"""Tuned parameters of the estimators in the model store: `advisor tune` saves, the learn loop loads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.history.models import ModelStore
from advisor.model.errors import BadInput, UseFallback
from advisor.model.settings_learning import EstimatorSettings
from advisor.model.site import Cutoff
from advisor.predict.knn.features import FeatureSchema
from advisor.predict.knn.known import TARGETS, Target
from advisor.predict.knn.parameters import KnnParameters

PARAMETERS_KIND: Final = "parameters"
CUTOFF_KIND: Final = "cutoff"


def save_parameters(
    store: ModelStore,
    parameters: Mapping[Target, KnnParameters],
    schema: FeatureSchema,
    meta: Mapping[str, Any],
) -> str:
    """Put tuned parameters in force and return their version; ``meta`` says how they were tuned."""
    arrays: dict[str, NDArray[np.float64]] = {target: parameters[target].chromosome for target in TARGETS}
    return store.save(PARAMETERS_KIND, arrays, {**meta, "features": list(schema.features)})


def untuned_of(estimator: EstimatorSettings, schema: FeatureSchema) -> KnnParameters:
    """The settings' parameters, for an estimator that was not tuned."""
    return KnnParameters.untuned(
        schema, k=estimator.neighbours, omega=estimator.kernel_width, s=estimator.knowledge_base_jobs
    )


def load_parameters(
    store: ModelStore, schema: FeatureSchema, untuned: KnnParameters
) -> dict[Target, KnnParameters]:
    """Tuned parameters in force; the untuned ones where none were tuned for this schema.

    Raises:
        TellAdmin, BadInput: The stored ones are damaged, or other users can write them.
    """
    try:
        arrays, meta = store.load(PARAMETERS_KIND)
    except UseFallback:
        return dict.fromkeys(TARGETS, untuned)
    if meta.get("features") != list(schema.features):
        return dict.fromkeys(TARGETS, untuned)
    try:
        return {target: KnnParameters.from_chromosome(arrays[target]) for target in TARGETS}
    except (KeyError, ValueError) as error:
        raise BadInput(
            f"the parameters are damaged: {error!r}",
            where=str(store.folder / PARAMETERS_KIND),
            mend="Run `advisor tune`",
            code="parameters.damaged",
        ) from None


def save_cutoff(store: ModelStore, cutoff: Cutoff, meta: Mapping[str, Any]) -> str:
    """Put a backtested cutoff of the published rule in force; return its version."""
    return store.save(CUTOFF_KIND, {"cutoff": np.array([cutoff.scale, cutoff.decay])}, meta)


def load_cutoff(store: ModelStore) -> Cutoff | None:
    """The backtested cutoff in force; None where none was chosen. Errors as for `load_parameters`."""
    try:
        arrays, _ = store.load(CUTOFF_KIND)
    except UseFallback:
        return None
    found = arrays.get("cutoff", np.empty(0))
    if found.shape != (2,) or not np.isfinite(found).all() or found[0] <= 0.0 or found[1] < 0.0:
        raise BadInput(
            "the cutoff is damaged",
            where=str(store.folder / CUTOFF_KIND),
            mend="Remove this folder; `advisor tune --weekly` chooses a cutoff anew",
            code="cutoff.damaged",
        )
    return Cutoff(scale=float(found[0]), decay=float(found[1]))
