"""Plays the stream against the site by real sbatch, and shows what happens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from advisor.decide.wording import why_sentence
from advisor.history.store import HistoryStore
from advisor.model import Placement
from advisor.model.errors import RetryLater
from advisor.testing.site import Site
from demo.plan import DemoJob, Plan
from demo.stage import OVERHEAD_PER_PROCESSOR, can_switch_users

_PATIENCE_SECONDS: Final = 240.0
_POLL_SECONDS: Final = 1.0
_ROWS: Final = 14


@dataclass(slots=True)
class Played:
    """What is known of one submitted job.

    Attributes
    ----------
    job : DemoJob
        As planned.
    job_id : int
        Slurm's.
    submitted : float
        When, epoch seconds.
    message : str
        What sbatch told the user.
    state, partition : str
        Slurm's newest words.
    """

    job: DemoJob
    job_id: int
    submitted: float
    message: str
    state: str = "PENDING"
    partition: str = "onprem"


@dataclass(slots=True)
class Stage:
    """Everything the screen shows."""

    plan: Plan
    site: Site
    console: Console
    started: float = field(default_factory=time.time)
    played: dict[int, Played] = field(default_factory=dict)
    nodes: list[tuple[str, str]] = field(default_factory=list)
    reasons: dict[int, tuple[Placement, str]] = field(default_factory=dict)
    seen_instances: dict[str, tuple[float, float, str]] = field(default_factory=dict)

    def play(self) -> None:
        """Submit every job at its time and wait until all have ended.

        Raises
        ------
        RetryLater
            Some did not end in time.
        """
        refresh = 2 if self.console.is_terminal else 0.05
        with Live(self._screen(), console=self.console, refresh_per_second=refresh, transient=True) as live:
            for job in self.plan.stream:
                self._watch_until(self.started + job.submit_seconds, live)
                self._submit(job)
            end = time.time() + _PATIENCE_SECONDS
            while not self.is_over:
                if time.time() > end:
                    left = [played.job_id for played in self.played.values() if not _has_ended(played)]
                    msg = f"{len(left)} jobs did not end in time: {left[:10]}"
                    raise RetryLater(msg, code="demo.late")
                self._watch_until(time.time() + _POLL_SECONDS, live)

    @property
    def is_over(self) -> bool:
        """Whether every job has ended."""
        return all(_has_ended(played) for played in self.played.values())

    def _watch_until(self, moment: float, live: Live) -> None:
        while True:
            left = moment - time.time()
            if left <= 0:
                return
            if left > 0.3:
                self._look()
                live.update(self._screen())
            time.sleep(max(0.0, min(_POLL_SECONDS, moment - time.time())))

    def _submit(self, job: DemoJob) -> None:
        cloud_run = job.run_seconds * (1.0 + OVERHEAD_PER_PROCESSOR * job.processors)
        script = (
            f'if [ "$SLURM_JOB_PARTITION" = burst ]; then sleep {cloud_run:.1f}; '
            f"else sleep {job.run_seconds:.1f}; fi"
        )
        options = [f"--ntasks={job.processors}", f"--time={job.limit_minutes}", f"--job-name={job.name}"]
        options += [f"--uid={job.user}"] if can_switch_users() else []
        options += [] if job.may_requeue else ["--no-requeue"]
        options += ["--comment=no-burst"] if job.opts_out else []
        options += ["--partition=onprem"] if job.explicit else []
        done = self.site.lab.sbatch(*options, script=script)
        self.played[done.job_id] = Played(
            job=job, job_id=done.job_id, submitted=time.time(), message=done.message
        )

    def _look(self) -> None:
        """Read Slurm, the ledger and EC2 once."""
        shown = self.site.lab.run("squeue", "-h", "--states=all", "-o", "%A|%T|%P", check=False)
        for line in shown.stdout.splitlines():
            job_id, state, partition = line.split("|")
            if int(job_id) in self.played:
                played = self.played[int(job_id)]
                played.state, played.partition = state, partition
        shown = self.site.lab.run("sinfo", "-h", "-N", "-p", "burst", "-o", "%N|%T", check=False)
        self.nodes = sorted({(n, s) for n, _, s in (x.partition("|") for x in shown.stdout.splitlines())})
        self._read_ledger()
        now = time.time()
        for instance in self.site.ec2.instances():
            first, _, _ = self.seen_instances.get(instance["id"], (now, now, ""))
            if instance["state"] in ("pending", "running"):
                self.seen_instances[instance["id"]] = (first, now, instance["option"])

    def _read_ledger(self) -> None:
        with HistoryStore(f"sqlite:///{self.site.state / 'history.db'}") as store:
            for decision in store.decisions(self.started - 5.0):
                for job_id in decision.job_ids:
                    advice = decision.record.advice
                    self.reasons[job_id] = (advice.placement, why_sentence(advice))

    # ------------------------------------------------------------------ the screen

    def _screen(self) -> Group:
        return Group(self._head(), self._jobs(), self._cloud())

    def _head(self) -> Panel:
        states = [played.state for played in self.played.values()]
        running = states.count("RUNNING")
        ended = sum(_has_ended(played) for played in self.played.values())
        text = (
            f"[bold]{time.time() - self.started:5.0f} s[/]  {len(self.plan.stream)} jobs planned, "
            f"{len(states)} submitted, {states.count('PENDING')} waiting, {running} running, {ended} ended\n"
            f"on-premise: {self.plan.processors} processors; 1 s here is {self.plan.compression:.0f} s of "
            f"{self.plan.title}"
        )
        return Panel(text, title="Burst Advisor on a real Slurm")

    def _jobs(self) -> Table:
        table = Table(expand=True, title="Newest submissions")
        for name in ("job", "user", "cpus", "state", "where", "why"):
            table.add_column(name, no_wrap=name != "why", overflow="ellipsis")
        mine = [played for played in self.played.values() if not played.job.explicit]
        for played in mine[-_ROWS:]:
            placement, why = self.reasons.get(played.job_id, (None, "…"))
            moved = placement is Placement.BURST
            where = "[bold magenta]cloud[/]" if moved else "here" if placement else ""
            table.add_row(
                str(played.job_id),
                played.job.user,
                str(played.job.processors),
                played.state.lower(),
                where,
                why,
            )
        return table

    def _cloud(self) -> Panel:
        words = "   ".join(f"{node} [bold]{state}[/]" for node, state in self.nodes) or "no cloud nodes yet"
        running = len(self.site.hypervisor.booted) if self.site.hypervisor else 0
        spot = sum(option == "spot" for _, _, option in self.seen_instances.values())
        return Panel(
            f"{words}\n{len(self.seen_instances)} instances so far, {spot} on spot, {running} booted now",
            title="EC2",
        )


def _has_ended(played: Played) -> bool:
    return played.state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL")


def submitted(played: Sequence[Played]) -> tuple[DemoJob, ...]:
    """The stream as it was really submitted: sbatch takes a moment of its own."""
    return tuple(item.job for item in played)
