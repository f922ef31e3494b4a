"""Problems with models and weekly trainings, which `advisor notify` checks beside `advisor status`."""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.history.models import ModelStore
from advisor.model.errors import AdvisorError, UseFallback
from advisor.model.settings import Settings
from advisor.service.state.state_files import TRAININGS
from advisor.service.submit.models import PREDICTOR_KIND, SIZE_KIND
from advisor.service.submit.run_times import RUN_TIMES_KIND


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
    trainings = TRAININGS.at(settings.paths.state).read(sets_aside=False).last
    return {"models_refused": refused, "trainings": msgspec.to_builtins(trainings)}
