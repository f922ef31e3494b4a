"""Waiting policies as data."""

from __future__ import annotations

import math

from advisor.papers.waiting.waiting_policies import LengthFrom, WaitFrom, policies
from advisor.papers.waiting.world.world import Wait


def test_every_policy_of_the_paper_is_there_by_its_thresholds():
    every = policies(900.0, 86_400.0)
    assert {name: (each.short_seconds, each.longest_wait_seconds) for name, each in every.items()} == {
        "oracle": (900.0, 86_400.0),
        "speculation+wait-model": (900.0, 86_400.0),
        "speculation": (900.0, 86_400.0),
        "speculation+oracle-wait": (900.0, 86_400.0),
        "runtime-model": (900.0, 86_400.0),
        "long-jobs-wait+oracle": (900.0, math.inf),
        "long-jobs-wait+runtime-model": (900.0, math.inf),
        "long-jobs-wait+speculation": (900.0, math.inf),
        "short-waits-wait+oracle": (0.0, 86_400.0),
        "short-waits-wait+runtime-model": (0.0, 86_400.0),
        "short-waits-wait+naive": (0.0, 86_400.0),
        "all-wait": (0.0, math.inf),
        "none-wait": (math.inf, 0.0),
    }


def test_names_say_where_knowledge_comes_from():
    every = policies(900.0, 86_400.0)
    ours = every["speculation+wait-model"]
    assert (ours.length, ours.wait) == (LengthFrom.SPECULATION, WaitFrom.WAIT_MODEL)
    assert ours.wait_in_world is Wait.MODEL
    assert every["oracle"].wait_in_world is Wait.PATIENCE
    assert every["runtime-model"].wait_in_world is Wait.FLUID


def test_plain_speculation_tries_every_job():
    assert policies(900.0, 86_400.0)["speculation"].skip_trial_below == 0.0
