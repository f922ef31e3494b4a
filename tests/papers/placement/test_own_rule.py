"""The placement rule of 2026 on a log: nothing is known before it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from advisor.model.settings_decision import PlacementSettings
from advisor.model.table import JobTable
from advisor.papers.forests.distribution import BINS
from advisor.papers.placement.forecast_rows import ForecastColumns
from advisor.papers.placement.own_rule import sent_by_the_advisor
from advisor.papers.placement.record import RuleTerms
from tests.papers.placement.test_forecast_rows import make_log


def perfect(table: JobTable) -> dict[str, ForecastColumns]:
    def columns(times: Any) -> ForecastColumns:
        return ForecastColumns(
            rows=np.arange(len(table)),
            mean=times,
            quantiles=np.repeat(times[:, None], 20, axis=1),
            mass=np.zeros((len(times), BINS)),
            variance=np.zeros(len(times)),
            lower=times,
            upper=times,
        )

    return {"wait": columns(table.wait), "run": columns(table.run)}


def make_placement(**fields: float) -> PlacementSettings:
    return PlacementSettings(boot_seconds=0.0, **fields)


BOLD = RuleTerms(record_deviations=0.0, record_discount=0.0)


def test_with_perfect_forecasts_and_no_stakes_the_rule_is_the_clairvoyant() -> None:
    table = make_log()
    placement = make_placement(overhead_per_processor=0.0, baseline=1.0)
    sent = sent_by_the_advisor(table, perfect(table), placement, terms=BOLD)
    np.testing.assert_array_equal(sent, table.wait > 0)


def test_nothing_is_moved_before_a_record_is_earned_and_most_is_after() -> None:
    table = make_log()
    placement = make_placement(overhead_per_processor=0.05)
    terms = replace(BOLD, stake_share=1.0, exposure_share=10.0)
    sent = sent_by_the_advisor(table, perfect(table), placement, terms=terms)
    gains = table.wait > 0.05 * table.processors * table.run
    first_known = (table.end[gains]).min()
    assert not sent[table.submit <= first_known].any()
    assert not sent[~gains].any()
    late = table.submit > table.submit[250]
    assert sent[gains & late].mean() > 0.95


def test_jobs_without_a_forecast_stay() -> None:
    table = make_log()
    forecasts = perfect(table)
    forecasts["wait"].mean[::2] = np.nan
    placement = make_placement(overhead_per_processor=0.0, baseline=1.0)
    sent = sent_by_the_advisor(table, forecasts, placement, terms=BOLD)
    assert not sent[::2].any()
    assert sent[1::2].any()
