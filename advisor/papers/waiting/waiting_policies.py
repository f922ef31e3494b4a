"""Waiting policies (Ambati et al. 2021, sections 2.1 and 3), as data.

Two thresholds and two sources make them all. Long jobs wait (LJW): a job that runs at most ``t`` is short and
never waits. Short waits wait (SWW): a job that would wait longer than ``b`` does not wait at all. With t = 0
nobody is short and SWW stands alone; with b infinite every wait is worth it and LJW stands alone; with both,
all jobs wait (AJW); with t infinite no job waits (NJW). The length of a job is its run time, as a trial is
limited by it; section 2.3 of the paper measures lengths in core-time.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from advisor.decide.submission.waiting_policy import SKIP_TRIAL_BELOW
from advisor.papers.waiting.world.world import Wait


class LengthFrom(enum.StrEnum):
    """How a policy knows whether a job is short."""

    ORACLE = "oracle"
    RUNTIME_MODEL = "runtime-model"
    SPECULATION = "speculation"
    """By running it for t on rented cores (section 3.1)."""


class WaitFrom(enum.StrEnum):
    """How a policy knows whether a job would wait longer than b."""

    ORACLE = "oracle"
    RUNTIME_MODEL = "runtime-model"
    """By the work before it, forecast job by job."""
    WAIT_MODEL = "wait-model"
    """From the state of the cluster (section 3.2)."""
    NOBODY = "naive"
    """It does not: jobs leave when they have waited b. Costs the same as the oracle, waits longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPolicy:
    """One policy.

    Attributes:
        name: Row of a table.
        length, wait: What it knows from where.
        short_seconds: t.
        longest_wait_seconds: b.
        skip_trial_below: See `advisor.decide.submission.waiting_policy`; 0 tries every job out, as in the
            paper.
    """

    name: str
    length: LengthFrom
    wait: WaitFrom
    short_seconds: float
    longest_wait_seconds: float
    skip_trial_below: float = 0.0

    @property
    def wait_in_world(self) -> Wait:
        """The same for the simulated cluster; an oracle is a naive world whose leavers are known."""
        return {
            WaitFrom.ORACLE: Wait.PATIENCE,
            WaitFrom.RUNTIME_MODEL: Wait.FLUID,
            WaitFrom.WAIT_MODEL: Wait.MODEL,
            WaitFrom.NOBODY: Wait.PATIENCE,
        }[self.wait]


def policies(short_seconds: float, longest_wait_seconds: float) -> dict[str, WaitingPolicy]:
    """All policies at these thresholds, by name.

    Args:
        short_seconds: t.
        longest_wait_seconds: b.
    """
    t, b, never = short_seconds, longest_wait_seconds, math.inf
    length, wait = LengthFrom, WaitFrom
    made = (
        _policy("oracle", length.ORACLE, wait.ORACLE, t, b),
        _policy("speculation+wait-model", length.SPECULATION, wait.WAIT_MODEL, t, b, SKIP_TRIAL_BELOW),
        _policy("speculation", length.SPECULATION, wait.NOBODY, t, b),
        _policy("speculation+oracle-wait", length.SPECULATION, wait.ORACLE, t, b),
        _policy("runtime-model", length.RUNTIME_MODEL, wait.RUNTIME_MODEL, t, b),
        _policy("long-jobs-wait+oracle", length.ORACLE, wait.ORACLE, t, never),
        _policy("long-jobs-wait+runtime-model", length.RUNTIME_MODEL, wait.NOBODY, t, never),
        _policy("long-jobs-wait+speculation", length.SPECULATION, wait.NOBODY, t, never),
        _policy("short-waits-wait+oracle", length.ORACLE, wait.ORACLE, 0.0, b),
        _policy("short-waits-wait+runtime-model", length.ORACLE, wait.RUNTIME_MODEL, 0.0, b),
        _policy("short-waits-wait+naive", length.ORACLE, wait.NOBODY, 0.0, b),
        _policy("all-wait", length.ORACLE, wait.NOBODY, 0.0, never),
        _policy("none-wait", length.ORACLE, wait.NOBODY, never, 0.0),
    )
    return {policy.name: policy for policy in made}


def _policy(
    name: str, length: LengthFrom, wait: WaitFrom, short: float, longest_wait: float, skip: float = 0.0
) -> WaitingPolicy:
    return WaitingPolicy(
        name=name,
        length=length,
        wait=wait,
        short_seconds=short,
        longest_wait_seconds=longest_wait,
        skip_trial_below=skip,
    )
