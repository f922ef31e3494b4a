"""What a rented node is charged for the time it was had."""

from __future__ import annotations

import enum

import numpy as np

from advisor.simulate.demand import Floats
from advisor.simulate.engine import Cloud, Schedule

HOUR = 3600.0
LEAST_SECONDS = 60.0  # EC2 bills Linux on-demand and spot by the second, a minute at least


class Billing(enum.StrEnum):
    """How rented time is rounded."""

    SECOND = "second"
    """Per second, a minute at least."""
    HOUR = "hour"
    """Every begun hour in full."""


def charged_seconds(held_seconds: Floats, billing: Billing) -> Floats:
    """Seconds charged for nodes that were held so long; 0 for a node that was never had.

    Examples
    --------
    >>> charged_seconds(np.array([0.0, 5.0, 3601.0]), Billing.HOUR).tolist()
    [0.0, 3600.0, 7200.0]
    """
    if billing is Billing.HOUR:
        rounded = np.ceil(held_seconds / HOUR) * HOUR
    else:
        rounded = np.maximum(np.ceil(held_seconds), LEAST_SECONDS)
    charged: Floats = np.where(held_seconds > 0, rounded, 0.0)
    return charged


def cloud_core_seconds(
    schedule: Schedule, processors: Floats, billing: Billing, cloud: Cloud | None = None
) -> Floats:
    """Core-seconds charged for each job of a schedule; 0 for those that ran on the cluster.

    A node is paid for from the moment it is asked for: booting is charged as running is.

    Parameters
    ----------
    schedule : Schedule
        As simulated.
    processors : ndarray, shape (n,)
        Processors of each job's node.
    billing : Billing
        How time is rounded.
    cloud : Cloud, optional
        The cloud the schedule was simulated with.
    """
    boot = (cloud or Cloud()).boot_seconds
    held = np.where(schedule.in_cloud, schedule.end - schedule.start + boot, 0.0)
    return charged_seconds(held, billing) * processors
