"""`advisor bench slurm_api`: what it compares."""

from __future__ import annotations

from collections import Counter

from benchmarks.slurm_api import in_turn


def test_each_back_end_moves_jobs_either_way_and_is_first_as_often() -> None:
    turns = enumerate(name for number in range(4) for name in in_turn(["commands", "pyslurm"], number))
    ways = Counter((name, turn % 2) for turn, name in turns)
    assert set(ways.values()) == {2}
    assert len(ways) == 4
