"""Quantiles of forecast distributions."""

from __future__ import annotations

import numpy as np

from advisor.papers.forests.distribution import EDGES, LEVELS, Distributions, ForestSettings
from advisor.papers.forests.rolling import ForecastOptions
from advisor.papers.placement.forecast_rows import forecast_rows
from advisor.replay.sources import load_table

OPTIONS = ForecastOptions(first=200, retrain_jobs=200, forests=3, forest=ForestSettings(trees=4))


def test_quantiles_against_the_plain_definition() -> None:
    table = load_table("synthetic:900:3")
    mass = forecast_rows(table, np.flatnonzero(table.run > 0), OPTIONS)["wait"].mass[OPTIONS.first :]
    found = Distributions(mean=np.zeros(len(mass)), mass=mass).quantiles(LEVELS)
    for row in range(0, len(mass), 37):
        below = np.concatenate([[0.0], np.cumsum(mass[row])])
        # where the distribution function first comes to each level, linear within a bin
        inner = np.flatnonzero(mass[row] > 0)
        xs, ys = [EDGES[inner[0]]], [0.0]
        for number in inner:
            xs += [EDGES[number], EDGES[number + 1]]
            ys += [below[number], below[number + 1]]
        np.testing.assert_allclose(found[row], np.interp(LEVELS, ys, xs), rtol=1e-6, atol=1e-6)
