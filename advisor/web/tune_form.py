"""The form of the page Tune: its fields, and the changes of settings that it asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from advisor.config.loading import LoadedSettings, Source, changed
from advisor.model.errors import BadInput
from advisor.model.settings import Settings
from advisor.service.admin.curves import limits_of
from advisor.web.answers import RefusedError

PERIODS: Final = ("day", "week", "month")
MODE: Final = "mode."
"""Beginning of a field's name that sets the mode of a partition."""
_MODES: Final = "cluster.modes"
_USD: Final = ("budget.usd", "budget.usd_per_hour_saved")
_PERIOD: Final = "budget.period"
_LIMIT: Final = "price.uncertainty_limit_minutes"
_MAX_USD: Final = 1e9


@dataclass(frozen=True, slots=True)
class TuneForm:
    """A filled form of the page Tune.

    Attributes:
        changes: ``section.name`` to its new value, of what would change.
        settings: The settings with these changes.
        fields: The form's fields, filled.
    """

    changes: dict[str, Any]
    settings: Settings
    fields: dict[str, str]


def fields_of(settings: Settings) -> dict[str, str]:
    """The form's fields for settings."""
    budget, cluster = settings.budget, settings.cluster
    modes = {f"{MODE}{name}": str(cluster.mode_of(name)) for name in cluster.on_premise_partitions}
    return {
        "budget.usd": f"{budget.usd:.12g}",
        "budget.usd_per_hour_saved": f"{budget.usd_per_hour_saved:.12g}",
        _PERIOD: budget.period,
        _LIMIT: f"{settings.price.uncertainty_limit_minutes:.12g}",
        **modes,
    }


def limit_choices(settings: Settings) -> list[tuple[str, str]]:
    """Values and words of the uncertainty limits that can be chosen."""
    return [
        (f"{limit:.12g}", "no limit" if math.isinf(limit) else f"{limit:g} min")
        for limit in limits_of(settings)
    ]


def form_of(asked: Mapping[str, str], loaded: LoadedSettings) -> TuneForm:
    """The changes that a form asks for; settings that it does not name stay.

    Raises:
        RefusedError: A value is wrong, or the environment has the last word on a setting.
    """
    now = loaded.settings
    before = fields_of(now)
    fields = {name: (asked.get(name) or "").strip() or text for name, text in before.items()}
    changes: dict[str, Any] = {}
    for name in (*_USD, _LIMIT):
        if fields[name] != before[name]:
            changes[name] = _number(name, fields[name])
    if fields[_LIMIT] not in dict(limit_choices(now)):
        raise RefusedError(400, f"{_LIMIT}: no curve is computed for this limit; choose one of the list")
    if fields[_PERIOD] != before[_PERIOD]:
        changes[_PERIOD] = fields[_PERIOD]
    if modes := _modes(fields, now):
        changes[_MODES] = modes
    for key in changes:
        origin = loaded.origins[key]
        if origin.source is Source.ENVIRONMENT:
            raise RefusedError(
                409, f"{key} is set by {origin} in the environment, which the file cannot change"
            )
    try:
        return TuneForm(changes, changed(loaded, changes).settings, fields)
    except BadInput as error:
        raise RefusedError(400, f"{error.what}. {error.mend}") from None


def _modes(fields: Mapping[str, str], now: Settings) -> dict[str, str]:
    """The table of modes, where one changes; empty where none does."""
    cluster = now.cluster
    wanted = {name: fields[f"{MODE}{name}"] for name in cluster.on_premise_partitions}
    if all(mode == cluster.mode_of(name) for name, mode in wanted.items()):
        return {}
    kept = {name: str(mode) for name, mode in cluster.modes.items()}
    return kept | {
        name: mode for name, mode in wanted.items() if mode != cluster.default_mode or name in kept
    }


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number) or number < 0.0 or (name in _USD and number > _MAX_USD):
        raise RefusedError(400, f"{name} must be a number of at least 0, such as 1500")
    return number
