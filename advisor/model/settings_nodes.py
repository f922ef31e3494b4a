"""Settings of the optional parts that run the burst partition: matching, kept nodes, the portfolio."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from advisor.model.settings_section import Fraction, Section, setting


class MatchingSettings(Section):
    """Long jobs on the cloud nodes that are likely to last (Agarwal et al. 2023)."""

    enabled: bool = setting(
        False,
        "Rank the cloud nodes by their expected life and steer long jobs to those that are likely to last. "
        "Running jobs are never touched. If false, `advisor nodes` still shows the forecasts. The policy "
        "fixes this setting, except under `price`: true under `agarwal2023`, false under the others.",
        why="It changes which node Slurm fills first; an admin should look at the forecasts before.",
        expert=True,
    )
    long_lived_feature: str = setting(
        "steady",
        "The node feature that marks a cloud node as likely to last. If slurm.conf gives it to the burst "
        "nodes, the advisor removes it from the others and long jobs prefer it; if not, only node weights "
        "are set.",
        why="The word is none of the features that sites commonly use.",
        form="at most 64 letters, digits and _ -",
        pattern=r"[A-Za-z0-9_-]{0,64}",
        expert=True,
    )
    long_job_seconds: float = setting(
        1800.0,
        "Jobs that are forecast to run at least this long prefer the nodes that are likely to last, if "
        "`matching.enabled` is true.",
        why="A job of less than half an hour loses little when it is interrupted.",
        unit="s",
        gt=0.0,
        expert=True,
    )
    max_delay_seconds: float = setting(
        600.0,
        "The longest time for which a long job is kept off the nodes that are likely to be interrupted, if "
        "it is expected to end sooner on a better one that is busy now. 0 never delays a job.",
        why="It is short against the runs of half an hour and more that are steered.",
        unit="s",
        ge=0.0,
        le=86400.0,
        expert=True,
    )


class AcquirerSettings(Section):
    """Cloud nodes that are kept up, and exchanged for longer-lived ones (Agarwal et al., section 3.2)."""

    kept_nodes: int = setting(
        0,
        "The number of cloud nodes that are kept up without jobs. 0 keeps none: nodes come and go with the "
        "jobs. If you keep nodes, set the burst partition's SuspendTime to hours, or slurmctld powers them "
        "down. Only the policies `price` and `agarwal2023` keep nodes.",
        why="A kept node costs money around the clock.",
        unit="nodes",
        ge=0,
        expert=True,
    )
    max_nodes: int = setting(
        0,
        "While most of the kept nodes have jobs, their number grows from `kept_nodes` up to this one; 0 "
        "means up to the whole partition.",
        why="`budget.usd` bounds the money already.",
        unit="nodes",
        ge=0,
        expert=True,
    )

    @model_validator(mode="after")
    def _in_order(self) -> AcquirerSettings:
        if 0 < self.max_nodes < self.kept_nodes:
            msg = f"max_nodes ({self.max_nodes}) is less than kept_nodes ({self.kept_nodes})"
            raise ValueError(msg)
        return self


class PortfolioSettings(Section):
    """The burst partition run by the best of many simulated policies (Deng et al., SC13)."""

    enabled: bool = setting(
        False,
        "Let the leading policy decide how many cloud nodes may be up, which job is next, and which idle "
        "node is kept or given back. If false, Slurm decides this. The policy fixes this setting, except "
        "under `price`: true under `deng2013`, false under the others.",
        why="It replaces Slurm's order and fair share within the burst partition.",
        expert=True,
    )
    leader: str = setting(
        "auto",
        "Which policy leads. `champion` is the one that would have done best on the site's own burst jobs "
        "in simulations; `selection` simulates all policies on the present queue every few seconds and "
        "takes the best; `auto` is the champion, or the selection where it has saved more on the site's own "
        "jobs. The name of a policy fixes that one: when nodes are launched, the order of jobs and the "
        "choice of a node, such as `ODX-UNICEF-FirstFit` (docs/designs/0011).",
        why="It follows the selection only on sites where that has done better than the champion.",
        form="auto, champion, selection, or the name of a policy",
        pattern=r"auto|champion|selection|OD[ABEMX]-(FCFS|LXF|WFP3|UNICEF|WSPT)-(First|Best|Worst)Fit"
        r"(\+h[1-9][0-9]{0,3})?(\+bf)?",
        expert=True,
    )
    billing: Literal["second", "hour", "hour-kept"] = setting(
        "second",
        "How instances are paid, by which policies are compared and idle nodes given back. `second`: by the "
        "second, a minute at least; `hour`: by whole hours, and an idle node is given back when no job "
        "waits; `hour-kept`: by whole hours, and an idle node is kept to the end of its paid hour.",
        why="EC2 bills Linux instances by the second.",
        expert=True,
    )
    policies: Literal["paper", "beyond"] = setting(
        "beyond",
        "The policies that are simulated: `paper` has the sixty published ones, `beyond` adds policies with "
        "warm nodes, backfilling, and an order by cost and run time (Smith).",
        why="The champion is the best of them on the site's own jobs, so more policies can only help there.",
        expert=True,
    )
    max_warm_nodes: int = setting(
        4,
        "The largest number of idle nodes that a policy may keep warm for jobs to come; 0 keeps none.",
        why="Four c5.xlarge cost about 16 USD a day on-demand, which is the most that warm nodes can add.",
        unit="nodes",
        ge=0,
        le=1024,
        expert=True,
    )
    alpha: float = setting(
        1.0,
        "The weight, an exponent, of utilisation (the share of the paid node time in which jobs run), and so "
        "of money, in the score of a policy. What counts is its ratio to `beta`.",
        why="It is the weight of Deng et al. 2013; with `beta = 1` money and waiting count alike.",
        ge=0.0,
        le=10.0,
        expert=True,
    )
    beta: float = setting(
        1.0,
        "The weight, an exponent, of the bounded slowdown, and so of waiting, in the score of a policy.",
        why="It is the weight of Deng et al. 2013; money and waiting count alike.",
        ge=0.0,
        le=10.0,
        expert=True,
    )
    margin: Fraction = setting(
        0.05,
        '`portfolio.leader = "selection"` only: the share of the loss that another policy must save before '
        "it replaces the champion.",
        why="With forecast run times smaller differences are noise (docs/designs/0011).",
        expert=True,
    )
    period_seconds: float = setting(
        20.0,
        "The period in which the queue and the nodes are examined and the policy is applied.",
        why="It is the period of Deng et al. 2013, and short against a boot.",
        unit="s",
        gt=0.0,
        le=300.0,
        expert=True,
    )
    lease_seconds: float = setting(
        180.0,
        "The time after which closed nodes open again if `advisor control` stops renewing their "
        "reservation. It must be at least twice `period_seconds`.",
        why="A restart takes less, and after a crash jobs miss those nodes for three minutes at most.",
        unit="s",
        ge=5.0,
        le=3600.0,
        expert=True,
    )
    limit_nodes: bool = setting(
        True,
        "Whether powered-down nodes that the policy does not rent are closed, by a Slurm reservation that "
        "ends by itself.",
        why="Without it slurmctld starts a node for every waiting job.",
        expert=True,
    )
    order_jobs: bool = setting(
        True,
        "Whether the first 50 waiting burst jobs are put in the policy's order by Slurm's site factor. It "
        "needs PriorityType=priority/multifactor.",
        why="Without it the jobs start in Slurm's order, which is not the one that was simulated.",
        expert=True,
    )
    steer_nodes: bool = setting(
        True,
        "Whether idle nodes are given back, kept or warmed up as the policy says. If false, SuspendTime "
        "decides. It has no effect where `acquirer.kept_nodes` keeps nodes.",
        why="SuspendTime knows neither the queue nor the paid hour.",
        expert=True,
    )

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> PortfolioSettings:
        if self.lease_seconds < 2.0 * self.period_seconds:
            msg = (
                f"lease_seconds ({self.lease_seconds:g}) must be at least twice period_seconds "
                f"({self.period_seconds:g})"
            )
            raise ValueError(msg)
        warm = int(self.leader.partition("+h")[2].partition("+")[0] or 0)
        if warm > self.max_warm_nodes:
            msg = f"leader keeps {warm} nodes warm, max_warm_nodes allows {self.max_warm_nodes}"
            raise ValueError(msg)
        return self
