"""What is known of promises outlives a process."""

from __future__ import annotations

import numpy as np

from advisor.predict.promised.known import PromisesKnown
from advisor.predict.promised.waits import Plans
from advisor.predict.run_times.run_times import RunTimesOfJobs


def test_it_is_kept_with_the_run_times() -> None:
    known = RunTimesOfJobs(promises=PromisesKnown(0.9))
    for size in (1e3, 1e5, 1e7):
        known.promises.levels.learn_size(size)
    known.promises.levels.learn(2, 1, is_kept=False)
    known.promises.waits.learn(Plans(9_000.0, 9_000.0), 500.0, has_started=True)
    again = RunTimesOfJobs.from_arrays(known.to_arrays()).promises
    assert again.chances(Plans(9_000.0, 9_000.0), 1e6, 1e5) == known.promises.chances(
        Plans(9_000.0, 9_000.0), 1e6, 1e5
    )
    assert (again.levels.made, again.levels.kept) == (1, 0)


def test_arrays_of_an_older_release_or_damaged_ones_begin_anew() -> None:
    arrays = RunTimesOfJobs(promises=PromisesKnown(0.9)).to_arrays()
    damaged = arrays | {"promise_waits": np.full(3, np.nan), "promise_levels": np.full(2, np.inf)}
    older = {name: array for name, array in arrays.items() if not name.startswith("promise")}
    for given in (damaged, older):
        found = RunTimesOfJobs.from_arrays(given).promises
        assert found.chances(Plans(60.0, 60.0), 1e6, 1e5) == PromisesKnown().chances(
            Plans(60.0, 60.0), 1e6, 1e5
        )


def test_promises_to_one_user_that_are_open_together_get_levels_of_their_own() -> None:
    known = PromisesKnown()
    levels = {known.chances(Plans(9_000.0, 9_000.0), 1e6, 1e5, alike).levels for alike in range(5)}
    assert len(levels) == 5
    assert known.chances(Plans(9_000.0, 9_000.0), 1e6, 1e5, 0) == known.chances(
        Plans(9_000.0, 9_000.0), 1e6, 1e5
    )


def test_another_confidence_has_levels_of_its_own() -> None:
    known = PromisesKnown(0.9)
    known.levels.learn(0, 0, is_kept=False)
    assert known.of_confidence(0.9).levels.made == 1
    assert known.of_confidence(0.95).levels.made == 0
