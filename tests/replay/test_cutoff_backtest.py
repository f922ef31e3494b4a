"""The published rule's cutoff, chosen weekly on a site's own jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.history.parameters import untuned_of
from advisor.model.settings_decision import PlacementSettings
from advisor.model.settings_learning import EstimatorSettings
from advisor.model.site import Cutoff
from advisor.predict.knn.features import CUNHA_TABLE_I, Encoder
from advisor.predict.knn.tracker import states_of
from advisor.replay.cutoff_backtest import JudgedCutoff, backtest_cutoff
from advisor.replay.sources import load_table

ENTRIES = 300
PLACEMENT = PlacementSettings(overhead_per_processor=0.05, boot_seconds=60.0)


def judged(table, current: Cutoff) -> JudgedCutoff:
    encoder = Encoder(start_of_log=table.start_of_log, utc_offset_seconds=table.utc_offset_seconds)
    own = untuned_of(EstimatorSettings(), CUNHA_TABLE_I)
    found = backtest_cutoff(
        table,
        states_of(table),
        encoder,
        {"wait": own, "run": own},
        PLACEMENT,
        current,
        entries=ENTRIES,
    )
    assert found is not None
    return found


@pytest.fixture(scope="module")
def table():
    return load_table("synthetic:1600:3")


def test_g17_14_a_cutoff_that_lets_nothing_pass_is_replaced(table):
    found = judged(table, Cutoff(scale=1e-9, decay=0.0))
    assert found.current_saved_seconds == 0.0
    assert 0.0 < found.candidate_saved_seconds <= found.optimum_saved_seconds
    assert found.is_promoted
    again = judged(table, found.candidate)
    assert again.candidate == found.candidate
    assert again.is_promoted, "as good as itself"


def test_g17_14_the_judged_jobs_are_not_what_it_was_chosen_on(table):
    """Other waits of the newest jobs make another judgement of the same cutoff."""
    first = judged(table, Cutoff(scale=1e9, decay=1.0))
    wait = table.wait.copy()
    wait[-ENTRIES:] = np.maximum(0.0, wait[-ENTRIES:] - 50.0)
    second = judged(replace(table, wait=wait), Cutoff(scale=1e9, decay=1.0))
    assert second.candidate == first.candidate
    assert second.optimum_saved_seconds < first.optimum_saved_seconds


def test_g17_14_it_is_not_chosen_on_a_requeued_job_that_ran_on(table):
    """Its first start was early, and its end came after the judged jobs had been submitted."""
    current = Cutoff(scale=1e9, decay=1.0)
    late = float(np.ptp(table.submit)) + float(table.run.max())
    earlier = np.arange(len(table)) == len(table) - 2 * ENTRIES
    again = replace(
        table,
        wait=table.wait + late * earlier,
        requeued_seconds=table.requeued_seconds + late * earlier,
    )
    assert judged(again, current).chosen_on_jobs == judged(table, current).chosen_on_jobs - 1


def test_g17_14_what_is_worse_is_not_promoted():
    common = {"candidate": Cutoff(scale=1.0, decay=0.0), "current": Cutoff(scale=2.0, decay=0.0)}
    counts = {"chosen_on_jobs": 1, "judged_on_jobs": 1, "optimum_saved_seconds": 3.0}
    worse = JudgedCutoff(**common, **counts, candidate_saved_seconds=1.0, current_saved_seconds=2.0)
    assert not worse.is_promoted


def test_too_few_jobs_choose_nothing(table):
    encoder = Encoder(start_of_log=0.0, utc_offset_seconds=0.0)
    own = dict.fromkeys(("wait", "run"), untuned_of(EstimatorSettings(), CUNHA_TABLE_I))
    current = Cutoff(scale=1.0, decay=0.0)
    assert (
        backtest_cutoff(table, states_of(table), encoder, own, PLACEMENT, current, entries=len(table)) is None
    )
