"""The estimators' tuned parameters and the search's checkpoint, in the model store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from advisor.history.models import ModelStore
from advisor.model.errors import AdvisorError, BadInput, UseFallback
from advisor.model.settings import EstimatorSettings
from advisor.model.site import Cutoff
from advisor.predict.knn.features import FeatureSchema
from advisor.predict.knn.fitness import Target
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.tuning import TuningState

PARAMETERS_KIND: Final = "parameters"
CUTOFF_KIND: Final = "cutoff"
TARGETS: Final[tuple[Target, ...]] = ("wait", "run")


def save_parameters(
    store: ModelStore,
    parameters: Mapping[Target, KnnParameters],
    schema: FeatureSchema,
    meta: Mapping[str, Any],
) -> str:
    """Put tuned parameters in force; returns their version.

    Parameters
    ----------
    store : ModelStore
        Of the site.
    parameters : mapping of {"wait", "run"} to KnnParameters
        Both.
    schema : FeatureSchema
        The features they were tuned for.
    meta : mapping
        Where they come from and what they gained.
    """
    arrays: dict[str, NDArray[np.float64]] = {target: parameters[target].chromosome for target in TARGETS}
    return store.save(PARAMETERS_KIND, arrays, {**meta, "features": list(schema.features)})


def untuned_of(estimator: EstimatorSettings, schema: FeatureSchema) -> KnnParameters:
    """What the settings say of an estimator that nobody has tuned."""
    return KnnParameters.untuned(
        schema, k=estimator.neighbours, omega=estimator.kernel_width, s=estimator.knowledge_base_jobs
    )


def load_parameters(
    store: ModelStore, schema: FeatureSchema, untuned: KnnParameters
) -> dict[Target, KnnParameters]:
    """Tuned parameters in force; the untuned ones where none were tuned for this schema.

    Raises
    ------
    TellAdmin
        What is stored is damaged or not ours alone.
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
            f"damaged parameters: {error!r}",
            where=str(store.folder / PARAMETERS_KIND),
            mend="Run `advisor tune`.",
            code="parameters.damaged",
        ) from None


def save_cutoff(store: ModelStore, cutoff: Cutoff, meta: Mapping[str, Any]) -> str:
    """Put a backtested cutoff of the published rule in force; returns its version."""
    return store.save(CUTOFF_KIND, {"cutoff": np.array([cutoff.scale, cutoff.decay])}, meta)


def load_cutoff(store: ModelStore) -> Cutoff | None:
    """The backtested cutoff in force; None where none was chosen.

    Raises
    ------
    TellAdmin
        What is stored is damaged or not ours alone.
    """
    try:
        arrays, _ = store.load(CUTOFF_KIND)
    except UseFallback:
        return None
    found = arrays.get("cutoff", np.empty(0))
    if found.shape != (2,) or not np.isfinite(found).all() or found[0] <= 0.0 or found[1] < 0.0:
        raise BadInput(
            "damaged cutoff",
            where=str(store.folder / CUTOFF_KIND),
            mend="Run `advisor tune --weekly`.",
            code="cutoff.damaged",
        )
    return Cutoff(scale=float(found[0]), decay=float(found[1]))


def save_checkpoint(store: ModelStore, target: Target, state: TuningState, task: Mapping[str, Any]) -> None:
    """Keep a search's state; ``task`` says of what (problem, settings, seed)."""
    store.save(f"tuning-{target}", state.to_arrays(), {"task": dict(task)})


def load_checkpoint(store: ModelStore, target: Target, task: Mapping[str, Any]) -> TuningState | None:
    """The state of a search for the very same task; None where there is none that can be used."""
    try:
        arrays, meta = store.load(f"tuning-{target}")
        return TuningState.from_arrays(arrays) if meta.get("task") == dict(task) else None
    except AdvisorError:  # a checkpoint saves time, nothing else: start anew
        return None
