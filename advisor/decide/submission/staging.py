"""What a start in the cloud costs: boot and copies of its data; with its run, the whole price. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from advisor.decide.submission.capacity import boot_seconds, cores_billed, usd_per_core_hour
from advisor.model.advice import Capacity, Quantity
from advisor.model.data_words import DataNeed, data_of, size_gb
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.site import CloudState

_MB_PER_GB: Final = 1000.0
_Numbers = tuple[tuple[str, Quantity], ...]


class Start(NamedTuple):
    """The time and money between the start of one task on its nodes and the beginning of its work.

    Attributes:
        seconds: Time without work, all of it paid: the boot, and the copies of its data and of its results.
        usd: Price of the transfers.
        staging_seconds: The time that its data adds to the boot.
        gb: Size of all data that is copied, GB of 1e9 bytes.
    """

    seconds: float
    usd: float = 0.0
    staging_seconds: float = 0.0
    gb: float = 0.0

    @property
    def numbers(self) -> _Numbers:
        """The numbers of an answer about the time; empty for a job without data."""
        if not self.gb:
            return ()
        return (("data", Quantity(self.gb, "GB")), ("staging", Quantity(self.staging_seconds)))

    def prices(self, tasks: int) -> _Numbers:
        """The numbers of an answer about the price, for all tasks; empty if transfers cost nothing."""
        return (("transfer_cost", Quantity(tasks * self.usd, "USD")),) if self.usd else ()


def needed_data(job: Job, settings: Settings) -> DataNeed | None:
    """The data that the job's user says it brings, else that of its account's jobs; None: no data."""
    said = data_of(job.comment) if job.comment else None
    if said is not None or not settings.data.accounts:
        return said
    size = settings.data.accounts.get(job.account or "")
    return None if size is None else DataNeed(size_gb(size), 0.0)


def start_of(job: Job, cloud: CloudState, settings: Settings, *, boots: bool = True) -> Start:
    """The time that one task is on its nodes before it works, and the cost of its data's transfer.

    A stage-in command runs while the nodes boot; a job without one copies its data after the boot. Every task
    of an array brings its own. ``boots``: False where it starts on nodes that are up.
    """
    boot = boot_seconds(cloud, settings) if boots else 0.0
    need = needed_data(job, settings)
    if need is None or not need.is_known:
        return Start(boot)
    data = settings.data
    declared = data.bandwidth_mb_per_second
    inward = _MB_PER_GB * need.gb_in / (cloud.staging_mb_per_second or declared)
    outward = _MB_PER_GB * need.gb_out / declared
    total = (boot + inward if data.stage_in is None else max(boot, inward)) + outward
    usd = need.gb_in * data.usd_per_gb_in + need.gb_out * data.usd_per_gb_out
    return Start(total, usd, total - boot, need.gb_in + need.gb_out)


def cost_usd(
    job: Job, cloud_run_seconds: float, capacity: Capacity, cloud: CloudState, settings: Settings
) -> float:
    """Predicted cost of all tasks with their boots and data, US dollars; NaN when the run time is unknown."""
    price, start = usd_per_core_hour(capacity, cloud, settings), start_of(job, cloud, settings)
    if price == 0.0:
        return job.array_tasks * start.usd
    hours = (start.seconds + cloud_run_seconds) / 3600.0
    return job.array_tasks * (cores_billed(job, cloud) * hours * price + start.usd)
