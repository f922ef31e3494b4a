"""Check Slurm's power saving: whether slurmctld starts and ends cloud nodes, and when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from advisor.model.errors import BadInput
from advisor.model.node_sets import expand, fold
from advisor.model.settings import Settings
from advisor.model.snapshot import Partition
from advisor.service.admin.doctor import Diagnosis, error, warning
from advisor.slurm.records import leading
from advisor.slurm.steering import idle_seconds, never_powered_down


def power_saving(
    settings: Settings, config: Mapping[str, str], partitions: Mapping[str, Partition]
) -> Iterator[Diagnosis]:
    """Check SuspendTime, SuspendExc* and ResumeTimeout of the burst partition, one of ``partitions``."""
    burst = partitions[settings.cluster.burst_partition]
    if kept := _never_powered_down(config, burst):
        by = "SuspendExcNodes, SuspendExcParts or SuspendExcStates"
        yield warning(f"{kept} stay up and are paid for while idle: {by}", "Take them out of it")
    said = idle_seconds(burst, config)
    if said is not None and math.isinf(said):
        others = (idle_seconds(one, config) for one in (None, *partitions.values()))
        yield from _never_suspended(settings, is_off=all(one is None or math.isinf(one) for one in others))
    elif said is not None:
        yield from _too_soon(settings, said)
    timeout = burst.resume_seconds
    if timeout is None:
        timeout = leading(config.get("ResumeTimeout", ""))
    boot = settings.placement.boot_seconds
    if timeout is not None and timeout < boot:
        yield error(
            f"ResumeTimeout={timeout} s of partition {burst.name} is shorter than the expected boot of "
            f"{boot:g} s",
            "Raise it in the partition's line of slurm.conf; 600 s is a good start",
        )


def _never_powered_down(config: Mapping[str, str], burst: Partition) -> str:
    try:
        return fold(never_powered_down(config, burst.name, burst.nodes) & frozenset(expand(burst.nodes)))
    except BadInput:  # text from outside
        return ""


def _never_suspended(settings: Settings, *, is_off: bool) -> Iterator[Diagnosis]:
    """Say what an infinite SuspendTime does: where none is finite, power saving is off."""
    name = settings.cluster.burst_partition
    mend = f"Set SuspendTime=300 in the line of partition {name} of slurm.conf, and restart slurmctld"
    if is_off:
        yield error("SuspendTime is infinite everywhere, so slurmctld starts no cloud node at all", mend)
    elif not _giving_back(settings):
        yield warning(f"SuspendTime of partition {name} is infinite, so idle nodes are paid for ever", mend)


def _too_soon(settings: Settings, said: float) -> Iterator[Diagnosis]:
    """Check that slurmctld does not power idle nodes down before a loop has decided about them."""
    for key, seconds in _giving_back(settings).items():
        if said < seconds:
            yield warning(
                f"SuspendTime of partition {settings.cluster.burst_partition} is {said:.0f} s: slurmctld "
                f"powers idle nodes down before {key} has decided about them",
                f"Set it to {2 * seconds:.0f} in the partition's line of slurm.conf",
            )


def _giving_back(settings: Settings) -> dict[str, float]:
    """The settings by which loops give idle nodes back, and the seconds that their loops need to decide."""
    found = {}
    if settings.acquirer.kept_nodes:
        found["acquirer.kept_nodes"] = settings.loops.acquire_seconds
    if settings.portfolio.enabled and settings.portfolio.steer_nodes:
        found["portfolio.steer_nodes"] = 3.0 * settings.portfolio.period_seconds
    return found
