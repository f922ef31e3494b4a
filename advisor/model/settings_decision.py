"""Settings of the decision: what may move, where it is faster, what it may cost, who is small."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final, Literal

from advisor.model.settings_section import Dollars, Fraction, Section, setting
from advisor.model.site import Cutoff

_UNTUNED_SCALE: Final = 1.0e9
"""The a of the published rule's cutoff until a backtest has chosen one, in seconds squared."""


class RuleSettings(Section):
    """Question 1: may the job move at all?"""

    opt_out_comment: str = setting("no-burst", "A job whose comment has this word is never moved.")
    opt_out_feature: str = setting("onprem", "A job that asks for this node feature is never moved.")
    allow_users: tuple[str, ...] = setting((), "If not empty, only these users' jobs may move.")
    deny_users: tuple[str, ...] = setting((), "Jobs of these users never move.")
    allow_accounts: tuple[str, ...] = setting((), "If not empty, only these accounts' jobs may move.")
    deny_accounts: tuple[str, ...] = setting((), "Jobs of these accounts never move.")
    deny_qos: tuple[str, ...] = setting((), "Jobs of these QOS never move.")
    move_explicit_partition: bool = setting(
        False, "What a user said explicitly wins: a named partition is not changed."
    )
    move_interactive: bool = setting(False, "srun and salloc stay: somebody waits at a terminal.")
    move_dependent: bool = setting(False, "A job that depends on others stays: its data is on-premise.")
    move_deferred: bool = setting(
        False,
        "A job submitted with `--hold` or `--begin` stays: what is predicted now does not hold then.",
    )
    max_processors: int = setting(0, "Largest job that may move; 0 means no limit.", unit="cores", ge=0)


class PlacementSettings(Section):
    """Question 2: is the cloud faster, and are we sure? (Cunha et al. 2017)."""

    rule: Literal["published", "advisor"] = setting(
        "advisor", "`published`: Eq. 1-4 with the cutoff; `advisor`: our own rule, see docs/designs."
    )
    overhead_per_processor: float = setting(
        0.01, "o of s(c) = o*c + i: what each further processor costs on the cloud network.", ge=0.0
    )
    baseline: float = setting(1.0, "i of s(c) = o*c + i: speed of one cloud core.", gt=0.0)
    stay_where_room: bool = setting(
        True,
        "A job stays where nobody waits and as many processors are free as it asks for, on nodes it may use; "
        "whatever a forecast says.",
    )
    learn_performance_ratio: bool = setting(
        True,
        "Learn s(c) from jobs that ran on both sides, per partition and application once there are enough; "
        "o and i are where it starts from. Off: o and i as set, for all jobs.",
    )
    boot_seconds: float = setting(
        120.0, "Boot time until enough boots have been seen to learn it.", unit="s", ge=0.0
    )
    boot_quantile: Fraction = setting(
        0.8, "Share of the boots seen that the boot time reckoned with covers; 0.5 is the median."
    )
    uncertainty_limit_minutes: float = setting(
        math.inf,
        "A job stays where its forecast saving is more uncertain than give or take so many minutes (the "
        "standard deviation of the saving). Holds for either rule. `inf`: the rule alone decides.",
        unit="min",
        ge=0.0,
    )
    cutoff_minutes: float = setting(
        0.0,
        "Published rule: standard deviation of the wait that is tolerated where the cloud costs nothing, the "
        "root of a of C = a*exp(-b*o*c). 0: a and b are chosen weekly by what they would have saved here, "
        "and 527 minutes hold until then.",
        unit="min",
        ge=0.0,
    )
    cutoff_decay: float = setting(
        1.0, "b of the published rule's cutoff, with `cutoff_minutes`; 0 makes it flat.", ge=0.0
    )
    use_cutoff: bool = setting(True, "Published rule: off, every usable estimate is believed.")
    margin: float = setting(
        1.0, "Advisor's rule: the expected wait must be so many times what the cloud costs.", ge=0.0
    )
    win_probability: Fraction = setting(
        0.4,
        "Advisor's rule: from this probability of being faster on, likelier jobs vouch for a job; less "
        "likely ones must have paid here by themselves.",
    )
    record_deviations: float = setting(
        2.0, "Advisor's rule: standard errors taken off the record before it counts.", ge=0.0
    )
    record_discount: Fraction = setting(
        0.05, "Advisor's rule: share of every gain and loss taken off the record before it counts."
    )
    stake_share: Fraction = setting(
        0.05, "Advisor's rule: most of the record that one job may lose at worst."
    )
    exposure_share: float = setting(
        1.0, "Advisor's rule: most of the record that all jobs in the cloud may lose at worst.", ge=0.0
    )
    loss_share: Fraction = setting(
        0.01,
        "Advisor's rule: most that all moved jobs together may lose, as a share of what a clairvoyant would "
        "have saved so far; beyond it only time that moves were seen to win is staked.",
    )

    stretch_time_limit: bool = setting(
        True, "A moved job runs s(c) times longer: its time limit is raised by as much, if its user gave one."
    )
    longest_stretch: float = setting(4.0, "Most times the user's limit that a raised limit may be.", ge=1.0)
    longest_time_limit_seconds: float = setting(
        math.inf,
        "No limit is raised beyond this. Give the least MaxWall of your QOS and associations where slurmdbd "
        "enforces limits: the hook sees the partition's MaxTime only.",
        unit="s",
        gt=0.0,
    )

    def performance_ratio(self, processors: int) -> float:
        """s(c): cloud run time over on-premise run time (Cunha et al., section V-C)."""
        return self.overhead_per_processor * processors + self.baseline

    def cutoff_in_force(self, learned: Cutoff | None = None) -> Cutoff:
        """Return a and b of the published rule: as set, else as backtested (``learned``), else a guess."""
        if self.cutoff_minutes:
            return Cutoff(scale=(60.0 * self.cutoff_minutes) ** 2, decay=self.cutoff_decay)
        return learned or Cutoff(scale=_UNTUNED_SCALE, decay=self.cutoff_decay)

    def cutoff(self, processors: int, learned: Cutoff | None = None) -> float:
        """C(o, job) of the published rule in seconds squared; infinite when the cutoff is off."""
        if not self.use_cutoff:
            return math.inf
        cutoff = self.cutoff_in_force(learned)
        return cutoff.scale * math.exp(-cutoff.decay * self.overhead_per_processor * processors)


class WaitingSettings(Section):
    """Question 3: is it worth paying for? Long jobs wait (t), nobody longer than b (Ambati et al. 2021)."""

    short_wait_seconds: float = setting(
        0.0,
        "b: nobody waits longer than this; a job that likely would goes at once, one that would not waits, "
        "unless it is short (`long_job_seconds`). 0 switches this half off: long jobs then wait without a "
        "bound.",
        unit="s",
        ge=0.0,
    )
    long_job_seconds: float = setting(
        math.inf,
        "t: a job that likely runs longer than this waits, a shorter one never does. inf switches this half "
        "off.",
        unit="s",
        gt=0.0,
    )
    second_of_waiting: float = setting(
        0.065,
        "What a second of a job's waiting is worth under b, as a share of the site's mean job rented for a "
        "second: a job leaves sooner where that is more than its cores. 0: only b counts, as published.",
        ge=0.0,
        le=10.0,
    )
    speculate: bool = setting(
        False,
        "A job that is not all but surely short runs in the cloud for `long_job_seconds`, then comes back to "
        "its place on-premise. Needs what `hedge.enabled` needs.",
    )
    daily_cap_usd: Dollars = setting(
        0.0,
        "Money the burst partition may spend per day of UTC, spent and promised together; 0 means no cap.",
        unit="USD",
    )
    account_daily_cap_usd: dict[str, Dollars] = setting({}, "The same per account.", unit="USD")
    ask_again_seconds: float = setting(
        600.0,
        "Waiting jobs are asked again this often, and when the queue has changed much; those that should go "
        "are moved while they wait. 0: every job is asked once, when it is submitted.",
        unit="s",
        ge=0.0,
        le=86_400.0,
    )

    def price_of_waiting(self, mean_processors: float) -> float:
        """Core-seconds worth paying to save a job one second of waiting, from the site's mean job."""
        return self.second_of_waiting * mean_processors


class HedgeSettings(Section):
    """The hedged start: start in the cloud, keep the place on-premise (docs/designs/0013)."""

    enabled: bool = setting(
        False,
        "Whether any job may start hedged. Users' places are kept with the help of `advisor-places.socket`.",
    )
    by_default: bool = setting(False, "Hedge every requeueable job that does not refuse.")
    partitions: tuple[str, ...] = setting((), "Partitions whose requeueable jobs are hedged by default.")
    opt_in_comment: str = setting("hedge", "A job whose comment has this word asks to be hedged.")
    opt_out_comment: str = setting("no-hedge", "A job whose comment has this word is never hedged.")
    stop_loss_core_hours: float = setting(
        64.0, "Most a hedge may use in the cloud before its local slot comes.", unit="core-h", gt=0.0
    )
    stop_loss_usd: Dollars = setting(0.0, "The same in money; 0 leaves it to the core hours.", unit="USD")
    budget_core_hours: float = setting(
        0.0,
        "Most that hedges may use in the cloud in a day or month; never exceeded. The price of time learned "
        "from ended jobs spreads it. 0: no such budget; without any the stop-loss alone decides.",
        unit="core-h",
        ge=0.0,
    )
    budget_usd: Dollars = setting(
        0.0,
        "The same in money, at the on-demand price of whole nodes; 0 leaves it to the core hours.",
        unit="USD",
    )
    budget_period: Literal["day", "month"] = setting("month", "What the budget is for, by UTC's calendar.")
    slot_held_seconds: float = setting(
        180.0,
        "Longest a local slot that has come is held while the job is brought back; then it is given up.",
        unit="s",
        ge=10.0,
        le=3600.0,
    )
    helper_socket: Path = setting(
        Path("/run/advisor-places.sock"), "Where root is asked to submit placeholders for users."
    )

    @property
    def has_budget(self) -> bool:
        """Whether what hedges use is limited in all."""
        return self.budget_core_hours > 0.0 or self.budget_usd > 0.0

    def budget_core_seconds(self, usd_per_core_hour: float) -> float:
        """The budget of a period, at a price."""
        hours = self.budget_core_hours or math.inf
        if self.budget_usd and usd_per_core_hour > 0.0:
            hours = min(hours, self.budget_usd / usd_per_core_hour)
        return 3600.0 * hours


class SizeSettings(Section):
    """Small jobs first (Zrigui et al. 2022)."""

    enabled: bool = setting(True, "Class jobs small or large at all.")
    probability_cut: Fraction = setting(0.5, "A job is small when the forest's vote is at least this.")
    small_priority_offset: int = setting(
        1000,
        "Added to the priority of small jobs, as Slurm's site factor; 0 changes nothing. They go first "
        "where it is more than all PriorityWeight settings together: `advisor doctor` compares them.",
        ge=0,
        le=2_000_000_000,
    )
    safeguard: bool = setting(
        False,
        "A job put first as small that still runs at the divider is requeued as large, once, if it may be.",
    )
    trees: int = setting(
        80, "Trees (rounds of boosting) of the size model; more cost time and gained nothing.", ge=1, le=2000
    )


class EstimatorSettings(Section):
    """The two k-NN estimators (Cunha et al., section IV-A); `advisor tune` writes better ones."""

    neighbours: int = setting(16, "k until tuned.", ge=1, le=1000)
    kernel_width: float = setting(
        1.0,
        "Gaussian kernel's omega until tuned. Under about 0.8 the kernels of 16 typical neighbours sum to "
        "less than 1: the variance has no value and the cutoff lets nothing pass.",
        gt=0.0,
    )
    knowledge_base_jobs: int = setting(
        10_000, "s: first in, first out. More is not always better.", unit="jobs", ge=10, le=1_000_000
    )
    weekly_jobs_minimum: int = setting(500, "Fewer finished jobs: nothing is retrained.", unit="jobs", ge=1)
