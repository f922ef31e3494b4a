"""The demo's cluster: a `Site` shaped like the plan, taught with its history."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any, Final

from advisor.history.store import HistoryStore
from advisor.testing.lab import LabOptions
from advisor.testing.site import Site, SiteOptions
from demo.plan import Plan

NODES: Final = 4
BURST_NODES: Final = 6
BOOT_SECONDS: Final = 3.0
IDLE_SECONDS: Final = 8
ON_DEMAND_USD_PER_HOUR: Final = 2.72  # c6i.16xlarge, Linux, us-east-1
SPOT_USD_PER_HOUR: Final = 1.09
BUDGET_USD_PER_DAY: Final = 1000.0  # it accrues 1.2 US cents a second
OVERHEAD_PER_PROCESSOR: Final = 0.01
NEIGHBOURS: Final = 16
KERNEL_WIDTH: Final = 2.0  # wide: a demo's history is short, and near neighbours are few
KNOWN_JOBS: Final = 4000

_TOOLS: Final = ("slurmctld", "slurmd", "slurmdbd", "sbatch", "munged", "mariadbd")


def missing_tools() -> list[str]:
    """Programs a real one-machine Slurm needs and this machine has not."""
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    return [tool for tool in _TOOLS if shutil.which(tool, path=path) is None]


def make_site(plan: Plan, folder: Path) -> Site:
    """Shape a site after a plan: its processors on four nodes, and six cloud nodes of the same size."""
    per_node = math.ceil(plan.processors / NODES)
    lab = LabOptions(
        cluster="demo",
        nodes=NODES,
        processors=per_node,
        memory_mb=100 * per_node + 1000,
        burst_nodes=BURST_NODES,
        burst_processors=per_node,
        burst_memory_mb=100 * per_node + 1000,
        burst_features=("cloud", "x86", "spot"),
        last_burst_features=("cloud", "x86", "on-demand"),  # for jobs that may not be requeued
        database=True,
        suspend_seconds=IDLE_SECONDS,
        default_minutes=10,
    )
    return Site(folder, SiteOptions(lab=lab, boot_seconds=BOOT_SECONDS - 1.0, settings=_settings()))


def _settings() -> dict[str, dict[str, Any]]:
    return {
        "cluster": {"policy": "price"},
        "budget": {"usd": BUDGET_USD_PER_DAY, "period": "day"},
        "placement": {
            "overhead_per_processor": OVERHEAD_PER_PROCESSOR,
            "boot_seconds": BOOT_SECONDS,
        },
        "estimator": {
            "neighbours": NEIGHBOURS,
            "kernel_width": KERNEL_WIDTH,
            "knowledge_base_jobs": KNOWN_JOBS,
            "min_finished_jobs": 200,
        },
        "ec2": {
            "instance_type": "c6i.16xlarge",
            "on_demand_usd_per_hour": ON_DEMAND_USD_PER_HOUR,
            "spot_usd_per_hour": SPOT_USD_PER_HOUR,
        },
    }


def teach(site: Site, plan: Plan, now: float) -> int:
    """Put the history into the site's store; how many jobs."""
    with HistoryStore(f"sqlite:///{site.state / 'history.db'}") as store:
        return store.add(plan.history(now), source="history")


def can_switch_users() -> bool:
    """Whether jobs of several users can be submitted."""
    return os.geteuid() == 0
