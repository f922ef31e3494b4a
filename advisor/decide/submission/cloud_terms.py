"""The terms at which a job would run in the cloud: when it starts, how long it runs, what it costs.

A moved job joins the queue of the burst partition. While a node of its kind is free (powered-down nodes are;
the boot time is counted elsewhere) the job does not wait; else it waits for the first nodes to become free
after the jobs that already wait. `advisor control` computes these times at each poll
(`advisor.service.observation.cloud_rooms`); here they are looked up. Then its nodes boot, and its data is
copied. Its nodes are paid for from their boot on.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from advisor.model.advice import Capacity, Quantity, TimeLimit
from advisor.model.data_words import DataNeed, data_of, size_gb
from advisor.model.job import Job, family
from advisor.model.settings import Settings
from advisor.model.settings_decision import PlacementSettings
from advisor.model.site import CloudState, PerformanceRatios, Price, Ratio, Room

ANY: Final = ""
"""Any kind of node."""
_MINUTE: Final = 60.0
_ROUNDING: Final = 1e-6
_MB_PER_GB: Final = 1000.0
_MAX_LIMIT_FACTOR: Final = 4.0
"""A job that runs longer there by more than this hardly ever ends sooner: its estimate is likely wrong."""
_RESERVED: Final = Capacity.RESERVED
_SPOT: Final = Capacity.SPOT
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


def needs_boot(kind: str, job: Job, wait_seconds: float, cloud: CloudState) -> bool:
    """Whether a job with a given wait for nodes of a kind (:func:`cloud_wait`) starts on nodes that boot.

    Slurm prefers nodes that are up, and a node that has just become free is up. Where nothing is known of the
    queue, nodes boot.
    """
    if wait_seconds > 0.0:
        return False
    rooms = cloud.rooms.get(kind) or cloud.rooms.get(ANY)
    if not rooms:
        return True
    room, needed = _needed(rooms, job, cloud)
    return needed > room.up


def _needed(rooms: tuple[Room, ...], job: Job, cloud: CloudState) -> tuple[Room, int]:
    """The places of a job's size, and how many of them are needed.

    That is by the median task of this job, and by the jobs that were moved since the last poll.
    """
    nodes = cloud.nodes_at_most(job)
    room = rooms[-1]
    if nodes == 1:
        for one in rooms:
            if one.processors >= job.processors:
                room = one
                break
    needed = nodes * ((job.array_tasks + 1) // 2)
    if cloud.taken_processors:
        needed += -(-cloud.taken_processors // room.processors)
    return room, needed


def cloud_wait(kind: str, job: Job, cloud_run_seconds: float, cloud: CloudState, now: float) -> float:
    """Time the job would wait in the cloud for nodes of one kind, without the boot time.

    Args:
        kind: A key of ``cloud.rooms``; a missing kind counts as `ANY`.
        job: The job; for an array the wait of its median task is returned.
        cloud_run_seconds: Predicted run time there; more tasks than nodes run one after another.
        cloud: Without rooms the queue is unknown and counts as empty.
        now: Seconds, on the clock of the rooms.

    Returns:
        Seconds; 0 where there is room now, infinite where no usable node can hold the job.
    """
    rooms = cloud.rooms.get(kind) or cloud.rooms.get(ANY)
    if not rooms:
        return 0.0
    room, needed = _needed(rooms, job, cloud)
    if needed <= room.free:
        return 0.0
    return _wait(room, cloud.nodes_at_most(job), needed, cloud_run_seconds, now)


def _wait(room: Room, nodes: int, needed: int, cloud_run_seconds: float, now: float) -> float:
    """Seconds until the `needed`-th place is free: when running jobs end, or one after another."""
    if room.total < nodes:
        return math.inf
    run = cloud_run_seconds if cloud_run_seconds > 0.0 else math.inf
    # one after another on the free places
    again = run * -(-(needed - room.free) // room.free) if room.free >= nodes else math.inf
    turns, place = divmod(needed - 1, room.total)
    # `room.later` holds the first places only, so this is a lower bound where there are very many
    freed = 0.0
    if place >= room.free:
        if not room.later:
            return again
        freed = max(0.0, room.later[min(place - room.free, len(room.later) - 1)] - now)
    return min(again, freed + (turns * run if turns else 0.0))


def ratio_of(job: Job, ratios: PerformanceRatios | None) -> Ratio | None:
    """The learned performance ratio of a job; None: nothing was learned, and the settings' s(c) holds."""
    if ratios is None:
        return None
    return ratios.of(job.processors, job.queue, family(job.name) if ratios.applications else None)


def configured_slowdown(processors: int, settings: PlacementSettings) -> float:
    """s(c) by the settings: cloud run time over on-premise run time (Cunha et al. 2017, section V-C)."""
    return settings.overhead_per_processor * processors + settings.baseline


def likely_slowdown_of(job: Job, ratio: Ratio | None, settings: PlacementSettings) -> float:
    """s(c): how many times longer a job runs in the cloud, learned (:func:`ratio_of`) or by settings."""
    return configured_slowdown(job.processors, settings) if ratio is None else ratio.factor


def slowdown_of(job: Job, ratio: Ratio | None, settings: PlacementSettings) -> float:
    """s(c) as a decision counts with it.

    A learned ratio below that of the settings counts with one standard deviation more: a cloud that is taken
    for faster than it is draws jobs that would not wait.
    """
    configured = configured_slowdown(job.processors, settings)
    if ratio is None:
        return configured
    return max(ratio.factor, min(configured, ratio.factor * math.exp(ratio.deviation)))


def stretched(job: Job, settings: PlacementSettings, ratio: Ratio | None = None) -> TimeLimit | None:
    """The limit of a moved job; None keeps the user's, or the partition's where the user set none.

    In the cloud a job runs s(c) = o*c + i times as long (Cunha et al. 2017, section V-C). With the user's
    limit, which is meant for on-premise processors, it would be killed shortly before its end.

    The limit is in whole minutes, rounded up, as Slurm counts, and never below the user's. A learned
    performance ratio counts with one standard deviation more.
    """
    asked = job.requested_time
    if (
        not settings.stretch_time_limit
        or not job.explicit_time_limit
        or not asked
        or not math.isfinite(asked)
    ):
        return None
    if ratio is None:
        slower = configured_slowdown(job.processors, settings)
    else:
        slower = ratio.factor * math.exp(ratio.deviation)
    factor = min(slower, _MAX_LIMIT_FACTOR)
    minutes = math.ceil(asked * factor / _MINUTE - _ROUNDING)
    given = min(minutes * _MINUTE, settings.max_time_limit_seconds)
    return TimeLimit(asked_seconds=asked, given_seconds=given) if given > asked else None


def boot_seconds(cloud: CloudState, settings: Settings) -> float:
    """The learned boot time, else the setting."""
    return settings.placement.boot_seconds if cloud.boot_seconds is None else cloud.boot_seconds


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


def usd_per_core_hour(capacity: Capacity, cloud: CloudState, settings: Settings) -> float:
    """Price of a core-hour, US dollars; 0 on reserved nodes.

    Without a known price, the setting's price of an instance is divided by its processors; while their
    number is unknown, one core pays for the whole instance, an upper bound.
    """
    if capacity is _RESERVED:
        return 0.0
    on_spot = capacity is _SPOT
    seen = cloud.spot_usd_per_core_hour if on_spot else cloud.on_demand_usd_per_core_hour
    if seen is not None:
        return seen
    instance = settings.ec2.spot_usd_per_hour if on_spot else settings.ec2.on_demand_usd_per_hour
    return instance / max(1, cloud.processors_per_node)


def cores_billed(job: Job, cloud: CloudState) -> int:
    """Cores charged for one task: all cores of its nodes, or its own while the node size is unknown."""
    return cloud.nodes_at_most(job) * cloud.processors_per_node or job.processors


def usd_per_second(job: Job, capacity: Capacity, cloud: CloudState, settings: Settings) -> float:
    """The cost of one task of a job in the cloud, US dollars per second."""
    return usd_per_core_hour(capacity, cloud, settings) / 3600.0 * cores_billed(job, cloud)


def most_usd_per_second(
    usd: float, job: Job, capacity: Capacity, cloud: CloudState, settings: Settings
) -> float:
    """``usd``, a price of :func:`usd_per_second`, at worst: spot without room is launched as on-demand."""
    if capacity is not _SPOT:
        return usd
    return max(usd, usd_per_second(job, Capacity.ON_DEMAND, cloud, settings))


def cost_usd(
    job: Job, cloud_run_seconds: float, capacity: Capacity, cloud: CloudState, settings: Settings
) -> float:
    """Predicted cost of all tasks with their boots and data, US dollars; NaN when the run time is unknown."""
    price, start = usd_per_core_hour(capacity, cloud, settings), start_of(job, cloud, settings)
    if price == 0.0:
        return job.array_tasks * start.usd
    hours = (start.seconds + cloud_run_seconds) / 3600.0
    return job.array_tasks * (cores_billed(job, cloud) * hours * price + start.usd)


def money_short(price: Price, job: Job, worst: float, budget: float, now: float) -> _Numbers:
    """What is left in the budget that a job's highest cost exceeds, and when the site's has enough, if ever.

    Args:
        worst: US dollars.
        budget: The site's for a whole period, US dollars.
        now: Seconds, on the clock of the price.
    """
    tokens, payer = price.tokens_of(job.payers)
    free = ("budget_left", Quantity(max(0.0, tokens), "USD"))
    enough = None if payer else price.enough_in(worst, now)
    if enough is not None:
        return free, ("enough_in", Quantity(enough))
    return (free, ("budget", Quantity(budget, "USD"))) if not payer and worst > budget else (free,)
