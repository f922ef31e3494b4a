"""The record of boots: how long they take in each pool, how often they fail, and which jobs wait for one.

The loops of the cloud write it; decisions get boot times and failures from it at each poll.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import structs

from advisor.model.errors import BadInput
from advisor.model.node_classes import ClosedCapacity
from advisor.service.running.clock import Clock
from advisor.service.state.budget import SpendingBudget
from advisor.service.state.records import BootsSeen
from advisor.service.state.state_files import BOOTS, BUDGET

_BOOTS: Final = 50
_BOOTS_NEEDED: Final = 3
_BOOT_QUANTILE: Final = 0.8
"""Decisions expect a boot time that 8 of 10 boots keep; every second boot would exceed the median."""
_FAILURES_UNTIL_PROTECTED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BootTimes:
    """Boots of one pool: their number, and quantiles of their length in seconds."""

    boots: int
    median_seconds: float
    p90_seconds: float


class CloudRecord:
    """The record of boots, in a small file, replaced atomically; the `budget` is stored beside it.

    If the file cannot be read it is set aside. Then one more failed boot protects the cloud.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = BOOTS.at(folder)
        self._lock = threading.Lock()
        self._content = self._read()
        self._failed_before = 0  # the last good boots
        self.budget = SpendingBudget(BUDGET.at(folder), clock)

    @property
    def boot_seconds(self) -> float | None:
        """Boot time to expect over all pools, seconds; None until three boots were seen."""
        return self.boot_seconds_of("")

    def boot_seconds_of(self, option: str, types: Collection[str] = ()) -> float | None:
        """Boot time to expect of some instance types as one purchase option, seconds; no type: of any.

        It is taken from the closest pools with three boots: of these types as this option, of these types, of
        this option, of all. None until three were seen.
        """
        with self._lock:
            pools = [(key.split("|"), boots) for key, boots in self._content.boots.items()]
        of_types = [(key, boots) for key, boots in pools if types and key[1:2] and key[1] in types]
        for some, named in ((of_types, option), (of_types, None), (pools, option), (pools, None)):
            seen = [s for key, boots in some if named in (None, key[0]) for s in boots]
            if len(seen) >= _BOOTS_NEEDED:
                return quantile(seen, _BOOT_QUANTILE)
        return None

    def boot_times(self) -> dict[str, BootTimes]:
        """Boot times of each pool that has booted a node."""
        with self._lock:
            pools = {key: list(boots) for key, boots in self._content.boots.items() if boots}
        return {
            key: BootTimes(
                boots=len(boots), median_seconds=quantile(boots, 0.5), p90_seconds=quantile(boots, 0.9)
            )
            for key, boots in pools.items()
        }

    @property
    def protected(self) -> str:
        """Why no node is started in the cloud; empty if nodes may start.

        While nothing can be written, slurmctld's requests cannot be taken and no launch can be noted: a job
        would wait for its nodes until ResumeTimeout, again and again.
        """
        with self._lock:
            failures = self._content.failures_in_a_row
        if failures < _FAILURES_UNTIL_PROTECTED:
            return self.budget.file.unwritten
        return f"{failures} cloud nodes in a row did not boot, or could not start their jobs"

    @property
    def boot_failures(self) -> int:
        """Boots that failed since the last one that succeeded."""
        with self._lock:
            return self._content.failures_in_a_row

    @property
    def boots_seen(self) -> tuple[int, int]:
        """Boots that succeeded and boots that failed, since the record began."""
        with self._lock:
            return self._content.boots_seen, self._content.failures_seen

    def booted(self, seconds: float, pool: str = "") -> None:
        """Note that a node came up so many seconds after it was asked for; this ends protection."""
        with self._lock:
            known = self._content.boots.get(pool, [])
            self._content.boots[pool] = [*known, max(0.0, seconds)][-_BOOTS:]
            self._failed_before = self._content.failures_in_a_row or max(0, self._failed_before - 1)
            self._content.failures_in_a_row = 0
            self._content.boots_seen += 1
            self._save()

    @property
    def staging_mb_per_second(self) -> float | None:
        """How fast data gets to the cloud at least in 8 of 10 cases; None until three stage-ins were seen."""
        with self._lock:
            seen = self._content.staged
            return quantile(seen, 1.0 - _BOOT_QUANTILE) if len(seen) >= _BOOTS_NEEDED else None

    def staged(self, mb_per_second: float) -> None:
        """Note how fast a job's data came."""
        with self._lock:
            self._content.staged = [*self._content.staged, mb_per_second][-_BOOTS:]
            self._save()

    def boot_failed(self, nodes: int) -> None:
        """Note that so many nodes did not come up."""
        with self._lock:
            self._content.failures_in_a_row += nodes
            self._content.failures_seen += nodes
            self._save()

    def launch_failed(self) -> None:
        """Note that slurmctld could not start jobs on a node that had booted: it was no good boot."""
        with self._lock:
            self._content.failures_in_a_row += 1 + self._failed_before
            self._content.failures_seen += 1
            self._failed_before = 0
            self._save()

    def try_one_boot(self) -> None:
        """End protection for one boot; another failure brings it back."""
        with self._lock:
            self._content.failures_in_a_row = min(
                self._content.failures_in_a_row, _FAILURES_UNTIL_PROTECTED - 1
            )
            self._save()

    def requeueable(self) -> dict[int, float]:
        """Jobs that may be requeued until they run, and since when, epoch seconds."""
        with self._lock:
            return dict(self._content.requeueable)

    def set_requeueable(self, job_id: int, since: float) -> None:
        """Note that a job may be requeued until it runs; it is called before Slurm is told.

        Raises:
            OSError: That cannot be written, so that it could not be taken back after a restart.
        """
        with self._lock:
            self._content.requeueable[job_id] = since
            try:
                self._file.write(self._content)
            except OSError:
                del self._content.requeueable[job_id]
                raise

    def end_requeueable(self, job_id: int) -> None:
        """Note that a job may again not be requeued, or has left."""
        with self._lock:
            if self._content.requeueable.pop(job_id, None) is not None:
                self._save()

    def failed_boots(self) -> dict[int, int]:
        """Jobs whose nodes did not come, and how often in a row."""
        with self._lock:
            return dict(self._content.failed_boots)

    def job_not_booted(self, job_id: int) -> int:
        """Note that nodes of a job did not come; return how often in a row."""
        with self._lock:
            count = self._content.failed_boots[job_id] = self._content.failed_boots.get(job_id, 0) + 1
            self._save()
        return count

    def end_failed_boots(self, job_ids: Collection[int]) -> None:
        """Note jobs whose nodes have come, or that wait for none in the cloud any more."""
        with self._lock:
            if gone := self._content.failed_boots.keys() & set(job_ids):
                for job_id in gone:
                    del self._content.failed_boots[job_id]
                self._save()

    def instances_run(self, cluster: str, region: str) -> None:
        """Note under which ``cluster.name`` and in which ``ec2.region`` instances run."""
        with self._lock:
            if (self._content.cluster, self._content.region) != (cluster, region):
                self._content.cluster, self._content.region = cluster, region
                self._save()

    def _save(self) -> None:
        self._file.keep(self._content, "cloud_record.not_saved")

    def _read(self) -> BootsSeen:
        first = BootsSeen({}, failures_in_a_row=0, boots_seen=0, failures_seen=0)
        try:
            return self._file.load() or first
        except BadInput as error:
            self._file.set_aside(str(error))
            # how many boots had failed is not known: one may fail, and no more
            return structs.replace(first, failures_in_a_row=_FAILURES_UNTIL_PROTECTED - 1)


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class ClosedOptions(NamedTuple):
    """Until when nothing is launched on spot and on-demand, and why; None where something is."""

    spot: ClosedCapacity | None = None
    on_demand: ClosedCapacity | None = None


AskClosedOptions = Callable[..., ClosedOptions]
"""What cannot be launched now, by the breakers of all pools.

With a list of instance types: the closings of these types.
"""
