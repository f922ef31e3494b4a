"""What EC2 charges, added up by the test itself, and what must hold of it in every story of `money_world`.

Nothing here reads the record of spending but the comparison at the end: a charge is an instance's own time at
the price of its market, and whose it is follows from the jobs that Slurm has had on its node meanwhile.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.ec2.tags import node_of
from advisor.model.advice import ENDING_SECONDS
from advisor.model.bill import day_of, midnight
from advisor.model.cluster import NodePower
from advisor.model.periods import any_of, period_span, user_payer
from advisor.model.settings_price import BudgetSettings
from advisor.testing.memory_ec2 import MemoryEc2, MemoryInstance
from advisor.testing.memory_slurm import ENDED, MemoryJob, MemorySlurm

USD_PER_SECOND: Final = {"spot": 0.0004, "on-demand": 0.001}
MIN_SECONDS: Final = 60.0
TICK_SECONDS: Final = 5.0
LATE_SECONDS: Final = 15.0
"""From the end of what an instance is needed for to its termination, and from a launch to its count."""
SITE: Final = ""


@dataclass(slots=True)
class Stretch:
    """Seconds of an instance's life in which the same payers had it."""

    since: float
    until: float
    usd_per_second: float
    shares: dict[str, float]


@dataclass(slots=True)
class Charges:
    """What each instance was charged, by whom it was used."""

    by_instance: dict[str, list[Stretch]] = field(default_factory=lambda: defaultdict(list))

    def usd(self, payer: str, begin: float, end: float) -> float:
        """US dollars of a payer, ``""`` being the site, between two moments (epoch seconds)."""
        found = 0.0
        for stretches in self.by_instance.values():
            for one in stretches:
                share = 1.0 if payer == SITE else one.shares.get(payer, 0.0)
                if share:
                    seconds = max(0.0, min(end, one.until) - max(begin, one.since))
                    found += seconds * one.usd_per_second * share
        return found


class MoneyRules:
    """The accounts of the test, and its rules."""

    ec2: MemoryEc2
    slurm: MemorySlurm
    budget: BudgetSettings

    def __init__(self, began: float) -> None:
        self.violations: list[str] = []
        self.began = began
        self.charges = Charges()
        self.jobs: list[MemoryJob] = []
        self.never_again: set[int] = set()
        self.idle_seconds = 0.0
        self.is_strict = False
        self.sent_at: dict[int, float] = {}
        self.resumed_for: dict[str, set[int]] = {}  # node: jobs for which it was resumed last
        self._waiting_seconds = 0.0
        self._begun: set[tuple[int, int]] = set()
        self.given_before: dict[tuple[str, float], float] = {}  # payer, begin of a period: its last budget
        self.committed: dict[tuple[str, float], float] = {}  # payer, begin of a period: see `excuse`
        self._payers_of: dict[str, dict[str, float]] = {}  # instance: whose boot it is
        self._orphan_seconds: dict[str, float] = {}

    # ------------------------------------------------------------------ what EC2 charges

    def node_of(self, item: MemoryInstance) -> str:
        return node_of(item.tags, item.launch_index) or ""

    def charge(self, since: float, now: float) -> None:
        """Charge the time since the last call to those who have the nodes now."""
        for item in self.ec2.instances.values():
            ended = item.ended_at()
            end = now if ended is None else min(now, ended)
            known = self.charges.by_instance[item.instance_id]
            begin = max(since, item.launched_at) if known else item.launched_at
            if not known:  # EC2 charges a minute at least
                end = max(end, item.launched_at + MIN_SECONDS)
            else:
                begin = max(begin, known[-1].until)
            if end > begin:
                known.append(Stretch(begin, end, USD_PER_SECOND[item.market], self._shares(item)))

    def _shares(self, item: MemoryInstance) -> dict[str, float]:
        node = self.slurm.nodes[self.node_of(item)]
        there = [self.slurm.jobs[job_id] for job_id in node.jobs if job_id in self.slurm.jobs]
        shares = shares_of(there, node.jobs)
        if node.power is NodePower.POWERING_UP or not self._payers_of.get(item.instance_id):
            boot = self._payers_of.setdefault(item.instance_id, {})
            if there and not boot:  # a boot is of the account and the user that it is for
                boot |= dict.fromkeys(payers_of(there[0]), 1.0)
            if node.power is NodePower.POWERING_UP:
                shares = dict(boot)
        return shares

    # ------------------------------------------------------------------ budgets

    def limits(self) -> Iterator[tuple[str, str]]:
        """Each payer that has a budget, and its period."""
        budget = self.budget
        if budget.usd:
            yield SITE, budget.period
        if self.slurm.is_shared and not self.is_strict:
            return
        payers = {payer for job in self.jobs for payer in payers_of(job)}
        named = {*budget.accounts, *map(user_payer, budget.users)}
        for payer in sorted(payers | named):
            if budget.of(payer) is not None:
                own = budget.user_period if payer.startswith("user ") else budget.account_period
                yield payer, own or budget.period

    def may_spend(self, payer: str, period: str, now: float) -> float:
        """The budget of the present period, and what the one before has left."""
        begin, _ = period_span(now, period)
        most = self.budget.of(payer) or 0.0
        if self.budget.carry_over and self.began < begin:
            before, _ = period_span(begin - 1.0, period)
            gave = self.given_before.get((self._key(payer), before), 0.0)
            # of the period in which it began a budget has the share that was left
            own = gave * (begin - max(before, self.began)) / (begin - before)
            most += max(0.0, own - self.charges.usd(payer, before, begin))
        return most

    def _key(self, payer: str) -> str:
        named = self.budget.accounts.keys() | {user_payer(name) for name in self.budget.users}
        return payer if payer in named or payer == SITE else any_of(payer)

    def note_budgets(self, now: float) -> None:
        """Remember what the budgets give to the present periods."""
        for payer, period in self.limits():
            begin, _ = period_span(now, period)
            self.given_before[self._key(payer), begin] = self.budget.of(payer) or 0.0

    def excuse(self, now: float) -> None:
        """Allow what is spent and what runs may still cost at worst.

        What runs ends in peace (docs/designs/0008): where an admin has lowered a budget, or raised the limit
        of a job that runs. And nobody can ask for jobs that begin at once on nodes that are up.
        """
        for payer, period in self.limits():
            begin, end = period_span(now, period)
            future = self._to_come(payer, now)
            spent = self.charges.usd(payer, begin, math.inf)
            for key, usd in (((payer, begin), spent + future), ((payer, end), future)):
                self.committed[key] = max(usd, self.committed.get(key, 0.0))

    def _to_come(self, payer: str, now: float) -> float:
        found = 0.0
        for item in self.ec2.alive():
            node = self.slurm.nodes[self.node_of(item)]
            there = [self.slurm.jobs[job_id] for job_id in node.jobs]
            own = [job for job in there if payer == SITE or payer in payers_of(job)]
            left = max((self._left(job, now) for job in own), default=0.0)
            left += self.idle_seconds if payer == SITE else 0.0
            found += left * USD_PER_SECOND[item.market]
        return found

    @staticmethod
    def _left(job: MemoryJob, now: float) -> float:
        """How long a job may still run at worst, seconds, with the boot before."""
        told = parse_admin_comment(job.admin_comment)
        longest = job.limit_seconds
        if told is not None and told.time_limit is not None:
            longest = max(longest, told.time_limit.given_seconds)
        if told is not None and told.hedge is not None:
            longest = min(longest, told.hedge.stop_seconds + ENDING_SECONDS)
        began = now + MIN_SECONDS if job.state != "RUNNING" or job.start_time is None else job.start_time
        return max(0.0, began + longest - now)

    def note_starts(self, now: float) -> None:
        """Excuse jobs that have begun on nodes that nobody was asked for, before any poll has shown them."""
        launched = {self.node_of(item) for item in self.ec2.alive()}
        for job in self.jobs:
            key = job.job_id, job.restarts
            if job.state not in ("CONFIGURING", "RUNNING") or key in self._begun:
                continue
            self._begun.add(key)
            up = sum(self.slurm.nodes[name].power is NodePower.UP for name in job.nodes)
            # nodes that are up cost money until the job's other nodes have booted: nobody counts that yet
            self._waiting_seconds += up * MIN_SECONDS if up < len(job.nodes) else 0.0
            is_asked = all(
                job.job_id in self.resumed_for.get(name, ()) or name not in launched for name in job.nodes
            )
            if job.nodes and not is_asked and now - self.sent_at.get(job.job_id, 0.0) <= 2 * TICK_SECONDS:
                self.excuse(now)

    def check_launch(self, now: float) -> None:
        """A launch is refused where all that was spent, and what may come at worst, is more than there is."""
        if not self.budget.usd:
            return
        begin, _ = period_span(now, self.budget.period)
        usd = self.charges.usd(SITE, begin, now) + self._to_come(SITE, now)
        most = max(self.may_spend(SITE, self.budget.period, now), self.committed.get((SITE, begin), 0.0))
        # at the launch of each node it has counted a boot, and what was spent until the last count
        seconds = (len(self.ec2.alive()) + 2) * LATE_SECONDS + self._waiting_seconds
        slack = seconds * USD_PER_SECOND["on-demand"]
        if usd > most + slack:
            self.violations.append(
                f"at a launch {usd:.3f} USD are spent or may come, of {most:.3f} (slack {slack:.3f})"
            )

    def check_budgets(self, now: float) -> None:
        for payer, period in self.limits():
            begin, _ = period_span(now, period)
            spent = self.charges.usd(payer, begin, now)
            most = max(self.may_spend(payer, period, now), self.committed.get((payer, begin), 0.0))
            seconds = len(self.charges.by_instance) * LATE_SECONDS + self._waiting_seconds
            slack = seconds * USD_PER_SECOND["on-demand"]
            if spent > most + slack:
                self.violations.append(
                    f"EC2 has charged {spent:.3f} USD of {payer or 'the site'} in this {period}; "
                    f"{most:.3f} may be spent (slack {slack:.3f})"
                )

    # ------------------------------------------------------------------ jobs and instances

    def check_jobs(self) -> None:
        for job in self.jobs:
            if "COMPLETED" in job.ends[:-1] or (job.ends and job.state not in ENDED):
                self.violations.append(f"job {job.job_id} is {job.state} after {job.ends}")
            if job.job_id not in self.never_again:
                continue
            told = parse_admin_comment(job.admin_comment)
            if job.runs > 1:
                self.violations.append(f"job {job.job_id} may not be requeued, and has begun again")
            if told is not None and told.hedge is not None:
                self.violations.append(f"job {job.job_id} may not be requeued, and has a slice")
            for item in self.ec2.alive():
                if item.market == "spot" and self.node_of(item) in job.nodes:
                    self.violations.append(f"job {job.job_id} may not be requeued, and is on spot")

    def check_orphans(self, seconds: float, *, is_well: bool, grace: float) -> None:
        """An instance whose node Slurm has powered down goes within the grace and two reconciles."""
        orphans = {
            item.instance_id
            for item in self.ec2.alive()
            if self.slurm.nodes[self.node_of(item)].power is NodePower.DOWN
        }
        if not is_well:
            orphans = set()
        self._orphan_seconds = {name: self._orphan_seconds.get(name, 0.0) + seconds for name in orphans}
        for name, age in self._orphan_seconds.items():
            if age > grace + 45.0:
                self.violations.append(f"{name} has been an orphan for {age:.0f} s")

    def compare(self, by_day: dict[str, float], late_seconds: float, crashes: int) -> None:
        """What the record says was spent is what EC2 has charged, but for the time until an end was seen."""
        for day, (begin, end) in self._days().items():
            charged, said = self.charges.usd(SITE, begin, end), by_day.get(day, 0.0)
            count = len(self.charges.by_instance)
            # after a crash it is not known whether a node was launched: a minute of it is counted
            seconds = count * late_seconds + crashes * len(self.slurm.nodes) * MIN_SECONDS
            slack = seconds * USD_PER_SECOND["on-demand"]
            if not -0.001 <= said - charged <= slack + 0.001:
                self.violations.append(
                    f"EC2's charge of {day} is {charged:.4f} USD, the record's {said:.4f} (slack {slack:.4f})"
                )

    def _days(self) -> dict[str, tuple[float, float]]:
        found = {}
        for stretches in self.charges.by_instance.values():
            for one in stretches:
                for time in (one.since, one.until - 1e-6):
                    found[day_of(time)] = (midnight(time), midnight(time) + 86_400.0)
        return found

    def raise_found(self) -> None:
        if self.violations:
            raise AssertionError("; ".join(self.violations[:5]))


def payers_of(job: MemoryJob) -> tuple[str, ...]:
    """The account and the user of a job."""
    said = job.described
    account = job.account or (said.account if said else None)
    user = said.user if said else None
    return (*((account,) if account else ()), *((user_payer(user),) if user else ()))


def shares_of(jobs: list[MemoryJob], cores: dict[int, int]) -> dict[str, float]:
    """Jobs on a node share its whole price by the cores they hold there."""
    held = sum(cores[job.job_id] for job in jobs)
    found: dict[str, float] = {}
    for job in jobs:
        for payer in payers_of(job):
            found[payer] = found.get(payer, 0.0) + cores[job.job_id] / held
    return found
