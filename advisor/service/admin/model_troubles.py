"""Problems with models and weekly trainings, for `advisor notify` and the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from advisor.history.models import ModelStore
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.settings import Settings
from advisor.service.state.state_files import TRAININGS
from advisor.service.submit.models import PREDICTOR_KIND, SIZE_KIND
from advisor.service.submit.run_times import RUN_TIMES_KIND

_TRAINING_SECONDS: Final = 4 * 3600.0
"""systemd ends a training that takes longer."""


def last_trainings(settings: Settings) -> dict[str, Any]:
    """The record of the last weekly trainings, by command."""
    last = TRAININGS.at(settings.paths.state).read(sets_aside=False).last
    found: dict[str, Any] = msgspec.to_builtins(last)
    return found


def training_failure(run: Mapping[str, Any], now: float) -> str:
    """Why the last weekly training of a kind has failed; empty where it has not, or still runs."""
    did_not_end = run["ended"] is None and now - run["began"] > _TRAINING_SECONDS
    why: str = run["failed"]
    return why or ("it did not end, so it was killed or the host went down" if did_not_end else "")


def seen_of_models(settings: Settings) -> dict[str, Any]:
    """Why models in force are refused, by kind, and the last trainings, by command."""
    store = ModelStore(folder=settings.paths.models)
    forecasts = RUN_TIMES_KIND if settings.cluster.policy == "price" else PREDICTOR_KIND
    refused = {}
    for kind in (forecasts, SIZE_KIND):
        try:
            store.load(kind)
        except UseFallback:
            continue  # there is none yet
        except AdvisorError as error:
            refused[kind] = str(error)
    return {"models_refused": refused, "trainings": last_trainings(settings)}
