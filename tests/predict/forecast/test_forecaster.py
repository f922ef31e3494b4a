"""Single forecasts are the replay's, to the last bit that rounding allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from advisor.predict.forecast import forecaster as forecaster_module
from advisor.predict.forecast.calibration import GRACE_SECONDS, IntervalCalibration
from advisor.predict.forecast.distribution import LEVELS, ForestSettings
from advisor.predict.forecast.forecast_rows import ForecastColumns, forecast_rows
from advisor.predict.forecast.forecaster import Forecaster
from advisor.predict.forecast.placement_features import Submission
from advisor.predict.forecast.placement_look import FEATURES
from advisor.predict.forecast.placement_replay import features_of, observer_of
from advisor.predict.forecast.rolling import TARGETS, ForecastOptions, Known, RollingForests
from advisor.replay.sources import load_table

START = IntervalCalibration().cut
OPTIONS = ForecastOptions(first=200, retrain_jobs=200, forests=3, forest=ForestSettings(trees=4))
TABLE = load_table("synthetic:900:3")
ROWS = np.flatnonzero(TABLE.run > 0)


@pytest.fixture(scope="module")
def replayed() -> tuple[RollingForests, dict[str, ForecastColumns]]:
    rolling = RollingForests(OPTIONS)
    return rolling, forecast_rows(TABLE, ROWS, OPTIONS, rolling=rolling)


def test_one_by_one_as_in_columns(replayed: tuple[RollingForests, dict[str, ForecastColumns]]) -> None:
    rolling, columns = replayed
    forecaster, features = Forecaster(rolling), features_of(TABLE)
    last = len(ROWS) - (len(ROWS) - OPTIONS.first) % OPTIONS.retrain_jobs
    assert len(ROWS) - last > 20, "the last forests' own rows"
    for index in range(last, len(ROWS)):
        row = ROWS[index]
        found = forecaster.forecast(
            features[row],
            float(TABLE.requested_time[row]),
            {target: columns[target].calibration.cut for target in TARGETS},
        )
        for target in TARGETS:
            expected = columns[target].estimate(index)
            assert found[target].seconds == pytest.approx(expected.seconds, rel=1e-9)
            assert found[target].quantiles == pytest.approx(expected.quantiles, rel=1e-9, abs=1e-9)
            assert found[target].variance == pytest.approx(expected.variance, rel=1e-7, abs=1e-6)


def test_compiled_and_as_python(
    replayed: tuple[RollingForests, dict[str, ForecastColumns]], interpreted: Callable[[ModuleType], None]
) -> None:
    features = features_of(TABLE)
    bounds = dict.fromkeys(TARGETS, START)

    def forecasts() -> list[float]:
        forecaster = Forecaster(replayed[0])
        found = [forecaster.forecast(features[row], 900.0, bounds) for row in ROWS[-5:]]
        return [
            number
            for one in found
            for target in TARGETS
            for number in (one[target].seconds, one[target].variance, *one[target].quantiles)
        ]

    compiled = forecasts()
    interpreted(forecaster_module)
    assert forecasts() == pytest.approx(compiled, rel=1e-6)  # sums of single precision


def test_asked_in_one_call_as_from_features(
    replayed: tuple[RollingForests, dict[str, ForecastColumns]],
) -> None:
    forecaster, bounds = Forecaster(replayed[0]), dict.fromkeys(TARGETS, START)
    site = observer_of(TABLE)
    for number, row in enumerate(ROWS[-60:]):
        job = Submission(
            float(TABLE.submit[row]),
            int(TABLE.processors[row]),
            900.0 + number,
            int(TABLE.user[row]),
            0,
            0,
            -1,
        )
        features = site.features(job)
        site.ask(job._replace(processors=3))  # another question in between
        site.ask(job)
        asked = forecaster.forecast_asked(site, 900.0, bounds)
        assert asked == forecaster.forecast(features, 900.0, bounds)
        np.testing.assert_array_equal(site.submit(number, job), features)
        if number % 2:
            site.start(number, job.time)
    narrow = dict.fromkeys(TARGETS, (2.0, 0.0))
    assert forecaster.forecast_asked(site, 900.0, narrow)["wait"].upper < asked["wait"].upper


def test_no_run_is_longer_than_it_may(replayed: tuple[RollingForests, dict[str, ForecastColumns]]) -> None:
    forecaster = Forecaster(replayed[0])
    row = features_of(TABLE)[ROWS[-1]]
    bounds = dict.fromkeys(TARGETS, (-9.0, math.log(2.0)))
    short = forecaster.forecast(row, 5.0, bounds)
    assert max(short["run"].quantiles) <= 5.0
    assert short["run"].upper == pytest.approx(2.0 * 5.0 + GRACE_SECONDS)
    assert short["wait"] == forecaster.forecast(row, None, bounds)["wait"]
    assert forecaster.forecast(row, math.nan, bounds) == forecaster.forecast(row, None, bounds)


def test_the_same_after_storage(replayed: tuple[RollingForests, dict[str, ForecastColumns]]) -> None:
    rolling, _ = replayed
    again = RollingForests.from_arrays(rolling.to_arrays(), OPTIONS)
    row, bounds = features_of(TABLE)[ROWS[-1]], dict.fromkeys(TARGETS, START)
    assert len(again) == len(rolling) == OPTIONS.forests
    assert Forecaster(again).forecast(row, 600.0, bounds) == Forecaster(rolling).forecast(row, 600.0, bounds)


def test_quantiles_against_the_plain_definition(
    replayed: tuple[RollingForests, dict[str, ForecastColumns]],
) -> None:
    from advisor.predict.forecast.distribution import EDGES, Distributions

    mass = replayed[1]["wait"].mass[OPTIONS.first :]
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


def test_nothing_is_learned_from_what_is_still_to_come() -> None:
    from dataclasses import replace

    wait, run = TABLE.wait.copy(), TABLE.run.copy()
    wait[ROWS[5]], run[ROWS[5]], run[ROWS[6]] = np.inf, np.inf, np.inf
    under_way = replace(TABLE, wait=wait, run=run)
    assert ROWS[5] not in Known.of(under_way, "wait").rows
    assert ROWS[6] in Known.of(under_way, "wait").rows
    assert ROWS[6] not in Known.of(under_way, "run").rows


def test_trees_of_other_features_are_refused(
    replayed: tuple[RollingForests, dict[str, ForecastColumns]],
) -> None:
    from advisor.model.errors import BadInput

    arrays = replayed[0].to_arrays()
    feature = arrays["wait.0.feature"].copy()
    feature[np.argmax(feature >= 0)] = len(FEATURES)
    with pytest.raises(BadInput) as caught:
        RollingForests.from_arrays({**arrays, "wait.0.feature": feature}, OPTIONS)
    assert caught.value.code == "distribution.features"
