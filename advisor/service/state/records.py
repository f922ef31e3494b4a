"""The records of the state files that one loop writes and reads; `state_files` says whose each is."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from advisor.files.field_types import Amount, Count, EpochSeconds, JobId
from advisor.model.drift import DayMeasured, FallenBack

MAX_REQUEUED: int = 100_000

OwnWeights: TypeAlias = dict[str, Count]
"""Node to the weight that slurm.conf gives it, while ours is in force."""


class MarkedNodes(msgspec.Struct):
    """Features that some nodes lack because of us, though slurm.conf gives them."""

    features: list[Annotated[str, Meta(min_length=1)]] = []


class HeldJob(msgspec.Struct):
    """A waiting job that is held off nodes for a while.

    Attributes:
        since: Epoch seconds.
        own, given: The nodes that its user excludes, and those that it excludes now.
        is_over: It was held once; no job is held twice.
    """

    since: float
    own: str
    given: str = ""
    is_over: bool = False


class SteeredJobs(msgspec.Struct):
    """Waiting jobs whose preferences or exclusions we have changed.

    Attributes:
        preferring: Jobs that prefer the marked nodes because of us.
        giving: Jobs about to be given that preference; slurmctld may not have taken it.
        holds: Jobs held off nodes.
    """

    preferring: list[JobId] = []
    giving: list[JobId] = []
    holds: dict[JobId, HeldJob] = {}


class AcquirerState(msgspec.Struct):
    """The plan of the acquirer.

    Attributes:
        planned: Epoch seconds of the last plan.
        target: How many nodes it wants.
        asked, not_before: Nodes asked for, and since when; nodes that did not come up, and when they may be
            asked for again.
        misses: Nodes in a row that did not come up.
    """

    planned: float | None = None
    target: Count | None = None
    asked: dict[str, float] = {}
    not_before: dict[str, float] = {}
    misses: Count = 0


class Move(msgspec.Struct):
    """A waiting job about to be moved to the cloud.

    Attributes:
        words: The user's options of the job, by which a change is noticed.
        time: Epoch seconds.
    """

    advice_id: str
    was: list[str]
    words: str
    changes: dict[str, str]
    time: float

    def __post_init__(self) -> None:
        """Refuse a move without a partition."""
        if "partition" not in self.changes:
            raise ValueError("a move without a partition")


class MovesUnderWay(msgspec.Struct):
    """Waiting jobs about to be moved, by job id."""

    moving: dict[JobId, Move] = {}


class RequeuedSmallJobs(msgspec.Struct):
    """Jobs that the safeguard has requeued as large, and when each was submitted (epoch seconds)."""

    requeued: Annotated[dict[JobId, float], Meta(max_length=MAX_REQUEUED)] = {}


class SiteFactors(msgspec.Struct):
    """Jobs whose site factor the portfolio has set: the factor before, then those it may have now."""

    claims: dict[JobId, Annotated[list[int], Meta(min_length=1)]] = {}


class PortfolioState(msgspec.Struct):
    """The memory of the portfolio loop.

    Attributes:
        acts: It has set something in Slurm and not taken it back.
        in_force: Policy that leads, since when (epoch seconds), and why.
        smart, stale, poor: The selector's sets of policies, by index (Deng et al. 2013).
        simulated, chosen, behind: The selector's counts and sums of each policy.
    """

    acts: bool = False
    in_force: tuple[str, float, str] | None = None
    smart: list[Count] = []
    stale: list[Count] = []
    poor: list[Count] = []
    simulated: list[float] = []
    chosen: list[float] = []
    behind: list[float] = []


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of judging the policies.

    Attributes:
        champion: The policy of the best score; another order of jobs needs the better days as well.
        leader: Margin of the selection that would lead; None: the champion does.
        scores: Utility of each policy, prior included.
        charged_seconds, slowdown_sum: What the champion made of the jobs: what money and waiting are weighed
            by.
        jobs: Finished jobs it was judged by.
        time: Epoch seconds.
    """

    champion: str
    leader: float | None
    scores: dict[str, float]
    charged_seconds: float
    slowdown_sum: float
    jobs: int
    time: float

    def __post_init__(self) -> None:
        """Refuse a champion that was not scored."""
        if self.champion not in self.scores:
            raise ValueError("the champion has no score")


class JudgedPolicies(msgspec.Struct):
    """The judge's last verdict, the settings it holds for, and the scores of the synthetic workloads."""

    key: str = ""
    prior: list[tuple[float, float, float, float]] = []
    verdict: Verdict | None = None


class OpenLife(msgspec.Struct):
    """A spot instance that runs: its pool, its launch, and when it was last seen (epoch seconds)."""

    pool: str
    start: EpochSeconds
    seen: EpochSeconds


class EndedLife(msgspec.Struct, array_like=True):
    """A spot instance that has ended; ``was_taken``: EC2 ended it."""

    pool: str
    start: EpochSeconds
    end: EpochSeconds
    was_taken: bool


class Lives(msgspec.Struct):
    """Lives of spot instances: running ones by instance, ended ones, and instances whose end was noted."""

    open: dict[str, OpenLife] = {}
    ended: list[EndedLife] = []
    over: set[str] = set()


class Interruptions(msgspec.Struct):
    """EC2's notices about instances, and the interruptions of jobs.

    Attributes:
        notices: Instance to kind of notice to epoch seconds.
        jobs: Job to how often EC2 took its node.
        warned, counted: ``instance/job`` that was warned, and whose interruption was counted.
        to_place: Jobs that lost their node, or gave it up, and have not got another one yet.
        own_exclusions: Job that is kept off nodes to the nodes that its user excludes.
    """

    notices: dict[str, dict[str, float]] = {}
    jobs: dict[JobId, Count] = {}
    warned: set[str] = set()
    counted: set[str] = set()
    to_place: set[JobId] = set()
    own_exclusions: dict[JobId, str] = {}
    totals: dict[str, Count] = {}


class BootsSeen(msgspec.Struct):
    """The record of boots. A damaged file must not look like a first start: all fields are required.

    Attributes:
        boots: Pool to the seconds its last boots took.
        failures_in_a_row, boots_seen, failures_seen: Boots that failed since the last good one; good ones and
            failed ones ever.
        staged: MB/s of the last stage-ins; earlier releases did not measure them.
        requeueable: Jobs that may be requeued until they run, and since when.
        failed_boots: Jobs whose nodes did not come, and how often in a row.
        cluster, region: The ``cluster.name`` and ``ec2.region`` of the last instances that ran.
    """

    boots: dict[str, list[Amount]]
    failures_in_a_row: Count
    boots_seen: Count
    failures_seen: Count
    staged: list[Amount] = []
    requeueable: dict[JobId, EpochSeconds] = {}
    failed_boots: dict[JobId, Count] = {}
    cluster: str = ""
    region: str = ""


class PriceRecord(msgspec.Struct):
    """The state of the price. All fields are required, as in `BootsSeen`.

    Attributes:
        observed_since: When the observation of demand began, epoch seconds.
        price: Seconds of turnaround that a dollar must save.
        next_reading: When the price is read again, epoch seconds.
        seen: Slices of the last weeks by job: when each was considered, epoch seconds, the seconds that it
            saves per US dollar, and its expected cost, US dollars.
    """

    observed_since: EpochSeconds
    price: Amount
    next_reading: EpochSeconds
    seen: dict[str, tuple[EpochSeconds, Amount, Amount]]


class Drift(msgspec.Struct):
    """The measures of each partition's forecasts, and the partitions that have fallen back.

    Attributes:
        days: Partition to its entries, one for each of the last days.
        fallen_back: Those whose jobs stay on-premise.
    """

    days: dict[str, list[DayMeasured]] = {}
    fallen_back: dict[str, FallenBack] = {}


class Training(msgspec.Struct):
    """The last weekly training of one kind.

    Attributes:
        began, ended: Epoch seconds; ``ended`` is None while it runs, and where it was killed.
        failed: Why it failed; empty where it did not.
        refused: Why what it made is not used; empty where it is, or there was nothing to make it from.
    """

    began: EpochSeconds
    ended: EpochSeconds | None = None
    failed: str = ""
    refused: str = ""


class Trainings(msgspec.Struct):
    """The last trainings, by command."""

    last: dict[str, Training] = {}


class ToldNotice(msgspec.Struct):
    """The record of a condition that an admin should know.

    Attributes:
        since: Seen since then, epoch seconds.
        told_at: When the notice was last sent, epoch seconds; None: not yet.
        text: The last text of the condition.
        is_event: It has no end.
    """

    since: EpochSeconds
    told_at: EpochSeconds | None = None
    text: str = ""
    is_event: bool = False


class ToldNotices(msgspec.Struct):
    """The conditions that `advisor notify` has found, with the notices sent, by key."""

    notices: dict[str, ToldNotice] = {}


WEB_FOLDER: Final = "web"
"""The folder in ``paths.state`` that belongs to the pages."""
APPLIED_NAME: Final = f"{WEB_FOLDER}/applied.json"
"""Where :class:`AppliedChanges` are in ``paths.state``; the daemons watch that file."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as TOML, as the file had it before and has it after; None where the file does not name it.

    JSON knows no infinity, which is what some settings are.
    """

    key: str
    before: str | None = None
    after: str | None = None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the settings.

    Attributes:
        number: The change's number; the first one is 1.
        time: Epoch seconds.
        undoes: Number of the change that this one takes back.
    """

    number: int
    time: float
    author: str
    reason: str
    changes: tuple[Change, ...]
    undoes: int | None = None


class AppliedChanges(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, oldest first."""

    entries: tuple[Applied, ...] = ()
