"""Settings of the decision: what may move, where it ends sooner, and what it may cost."""

from __future__ import annotations

import math
from typing import Final

from advisor.model.settings_section import Section, setting
from advisor.model.site import Cutoff

_UNTUNED_SCALE: Final = 1.0e9
"""The a of the published rule's cutoff until a backtest has chosen one, in seconds squared (527 min squared).

It lets waits through that are uncertain by half a day's work, so that the rule decides at all on a site that
has not been backtested; the weekly backtest replaces it.
"""


class RuleSettings(Section):
    """Question 1: may the job move? What a user says about a job comes before these rules."""

    allow_users: tuple[str, ...] = setting(
        (),
        "If this list is not empty, only jobs of these users may move. Where `allow_accounts` has names "
        "as well, a job must meet both. For a pilot see `cluster.pilot_users`.",
        why="The list is empty because a site that moves jobs at all usually moves those of all users.",
    )
    allow_accounts: tuple[str, ...] = setting(
        (),
        "If this list is not empty, only jobs of these Slurm accounts may move; see `allow_users`.",
        why="The list is empty because a site that moves jobs at all usually moves those of all accounts.",
    )
    deny_accounts: tuple[str, ...] = setting(
        (),
        "Jobs of these Slurm accounts never move, for example because their data must stay on the site.",
        why="The list is empty because only the site knows such projects.",
    )
    max_processors: int = setting(
        0,
        "The largest number of cores of a job that may move; 0 means no limit.",
        why="A job that is larger than the burst partition stays on-premise even if this is 0.",
        unit="cores",
        ge=0,
    )
    deny_users: tuple[str, ...] = setting(
        (),
        "Jobs of these users never move.",
        why="The list is empty because users can exclude their own jobs by `opt_out_comment`.",
        expert=True,
    )
    deny_qos: tuple[str, ...] = setting(
        (),
        "Jobs of these QOS never move.",
        why="The list is empty because only the site knows what its QOS mean.",
        expert=True,
    )
    opt_out_comment: str = setting(
        "no-burst",
        "A job whose `--comment` contains this word never moves; empty: no word says so.",
        why="The word says what it does, and docs/users.md tells users about it.",
        expert=True,
    )
    opt_out_feature: str = setting(
        "onprem",
        "A job whose `--constraint` names this node feature never moves, whatever else it names. Empty: no "
        "feature keeps a job here. sbatch accepts only features that nodes of slurm.conf have.",
        why="On-premise nodes often have such a feature, and cloud nodes do not.",
        expert=True,
    )
    move_explicit_partition: bool = setting(
        False,
        "Whether a job may move although its user named a partition.",
        why="A user who names a partition has decided.",
        expert=True,
    )
    move_interactive: bool = setting(
        False,
        "Whether jobs of srun and salloc may move.",
        why="A user waits at the terminal, and the boot of a node would be added to that wait.",
        expert=True,
    )
    move_gpu: bool = setting(
        False,
        "Whether a job that asks for GPUs (`--gres=gpu`, `--gpus`) may move to a class of nodes that has "
        "them (`ec2.classes`). A job stays in any case if it asks for other generic resources, for GPUs by "
        "task or socket, or for processors or memory by GPU.",
        why="An hour of such a node costs several times as much as others.",
        expert=True,
    )
    move_dependent: bool = setting(
        False,
        "Whether a job with a dependency may move.",
        why="Its input is usually written on-premise by the job that it depends on.",
        expert=True,
    )
    move_deferred: bool = setting(
        False,
        "Whether a job submitted with `--hold` or `--begin` may move.",
        why="The queue that is known at its submission is not the one that it will meet.",
        expert=True,
    )


class PlacementSettings(Section):
    """What the cloud costs in time: boot and slower cores; and the cutoff of Cunha et al. (2017)."""

    baseline: float = setting(
        1.0,
        "The run time of a job in the cloud divided by its run time on-premise, without what "
        "`overhead_per_processor` adds for each core; below 1 the cloud's cores are faster. The advisor "
        "starts from this number and corrects it by the jobs that ran on both sides.",
        why="Equal cores are the neutral assumption until a site has measured its own programs.",
        gt=0.0,
    )
    overhead_per_processor: float = setting(
        0.01,
        "What each core adds to `baseline` because of the cloud's slower network. A job of c cores is "
        "expected to run `baseline + overhead_per_processor * c` times as long as on-premise, which other "
        "texts call s(c).",
        why="It is the smallest overhead that Cunha et al. 2017 evaluate; MPI programs need more, "
        "independent tasks none.",
        ge=0.0,
    )
    boot_seconds: float = setting(
        120.0,
        "The time from the launch of an instance until its node accepts a job. It holds until the advisor "
        "has measured three boots.",
        why="EC2 instances with a prepared image usually need one to three minutes. A value that is too "
        "small moves jobs that would have started sooner here, one that is too large keeps jobs that would "
        "gain.",
        unit="s",
        ge=0.0,
    )
    max_time_limit_seconds: float = setting(
        math.inf,
        "The advisor never raises a moved job's time limit above this, nor above the MaxTime of the burst "
        "partition; `inf` leaves it to MaxTime.",
        why="Most sites limit the run time by the partition alone.",
        unit="s",
        gt=0.0,
    )
    stretch_time_limit: bool = setting(
        True,
        "Raise the time limit of a moved job by the factor s(c) by which it runs longer there, if its user "
        "gave a limit: under Slurm once the job runs in the cloud, under LSF when it is moved.",
        why="A job that fits its limit on-premise would otherwise be killed on slower cores.",
        expert=True,
    )
    learn_performance_ratio: bool = setting(
        True,
        "Whether the advisor learns how many times longer jobs run in the cloud, from jobs that ran on both "
        "sides, for each partition and application with enough of them. If false, `baseline` and "
        "`overhead_per_processor` hold for all jobs.",
        why="One ratio for all programs is wrong for most; learning starts from the configured one.",
        expert=True,
    )
    use_cutoff: bool = setting(
        True,
        "`cunha2017`: whether the cutoff on the variance of the wait is applied.",
        why="Without it the rule loses time on all three logs of Cunha et al. 2017.",
        expert=True,
    )
    cutoff_minutes: float = setting(
        0.0,
        "`cunha2017`: the standard deviation of the wait that is tolerated for a job without overhead "
        "(o*c = 0), the square root of a in C = a*exp(-b*o*c). 0 lets the weekly backtest choose a and b; "
        "until the first backtest it is 527 minutes.",
        why="Cunha et al. 2017 give no number, and the best one differs from site to site.",
        unit="min",
        ge=0.0,
        expert=True,
    )
    cutoff_decay: float = setting(
        1.0,
        "`cunha2017`: b of C = a*exp(-b*o*c), used with `cutoff_minutes`; o is `overhead_per_processor`, c "
        "the job's processors. A larger value demands more certainty for jobs with a large overhead; 0 "
        "demands the same for all.",
        why="At 1 the tolerated variance falls to a third (1/e) where the overhead doubles the run time.",
        ge=0.0,
        expert=True,
    )

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
    """Question 3 under `cluster.policy = "ambati2021"`: the waiting policy of Ambati et al. (2021)."""

    short_wait_seconds: float = setting(
        0.0,
        "`ambati2021`: b, the longest time that a job is kept waiting. A job that is forecast to wait longer "
        "moves at once, one that is forecast to wait less stays unless it is shorter than "
        "`long_job_seconds`. 0 sets no bound. If `long_job_seconds` is not set either, b is 86,400 s and "
        "t is 900 s.",
        why="A site that sets neither b nor t gets those of `advisor replay waiting`.",
        unit="s",
        ge=0.0,
        expert=True,
    )
    long_job_seconds: float = setting(
        math.inf,
        "`ambati2021`: t: a job that is forecast to run longer than this waits on-premise, a shorter one "
        "does not. With `inf` run times decide nothing. If `short_wait_seconds` is not set either, t is "
        "900 s and b is 86,400 s.",
        why="A site that sets neither b nor t gets those of `advisor replay waiting`.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    ask_again_seconds: float = setting(
        600.0,
        "`ambati2021`: the period in which waiting jobs are decided again; they are also decided again when "
        "a quarter more processors wait, or a fifth fewer. 0 decides every job once, at its submission. "
        "`price` values waiting jobs every ten minutes in any case.",
        why="Forecasts change little within ten minutes, and each round decides at most 200 jobs.",
        unit="s",
        ge=0.0,
        le=86_400.0,
        expert=True,
    )
