"""Plays the stream against the site by real sbatch, and shows what happens."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.live import Live

from advisor.decide.explanation.wording import why_sentence
from advisor.history.store import HistoryStore
from advisor.model.advice import Placement
from advisor.model.errors import RetryLater
from advisor.testing.site import Site
from demo.plan import DemoJob, Plan
from demo.screen import Row, View, as_line, screen
from demo.stage import OVERHEAD_PER_PROCESSOR, can_switch_users

_PATIENCE_SECONDS: Final = 240.0
_POLL_SECONDS: Final = 1.0
_LINE_SECONDS: Final = 5.0
"""Where the output is no terminal, a line this often says that the demo is alive."""


@dataclass(slots=True)
class Played:
    """What is known of one submitted job.

    Attributes:
        job: As planned.
        job_id: Slurm's.
        submitted: When, epoch seconds.
        message: What sbatch told the user.
        state, partition: Slurm's newest words.
    """

    job: DemoJob
    job_id: int
    submitted: float
    message: str
    state: str = "PENDING"
    partition: str = "onprem"


@dataclass(slots=True)
class Stage:
    """The stream as it is played, and what has been seen of it."""

    plan: Plan
    site: Site
    console: Console
    started: float = field(default_factory=time.time)
    played: dict[int, Played] = field(default_factory=dict)
    nodes: list[tuple[str, str]] = field(default_factory=list)
    reasons: dict[int, tuple[Placement, str]] = field(default_factory=dict)
    seen_instances: dict[str, str] = field(default_factory=dict)
    booting: int = 0
    waiting: list[int] = field(default_factory=list)
    last_line: float = 0.0

    def play(self) -> None:
        """Submit every job at its time and wait until all have ended.

        Raises:
            RetryLater: Some did not end in time.
        """
        if not self.console.is_terminal:
            self._play(None)
            return
        first = screen(self._view(), self.console.size.height)
        with Live(first, console=self.console, auto_refresh=False, transient=True) as live:
            self._play(live)

    def _play(self, live: Live | None) -> None:
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

    def _watch_until(self, moment: float, live: Live | None) -> None:
        while (left := moment - time.time()) > 0:
            if left > 0.3:
                self._look()
                self._show(live)
            time.sleep(max(0.0, min(_POLL_SECONDS, moment - time.time())))

    def _show(self, live: Live | None) -> None:
        if live is not None:
            live.update(screen(self._view(), self.console.size.height), refresh=True)
        elif time.time() - self.last_line >= _LINE_SECONDS:
            self.last_line = time.time()
            self.console.print(as_line(self._view()), markup=False, highlight=False, soft_wrap=True)

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
        self.waiting.append(sum(played.state == "PENDING" for played in self.played.values()))
        instances = self.site.ec2.instances()
        alive = sum(instance["state"] in ("pending", "running") for instance in instances)
        self.booting = max(0, alive - (len(self.site.hypervisor.booted) if self.site.hypervisor else 0))
        self.seen_instances |= {item["id"]: item["option"] for item in instances}

    def _read_ledger(self) -> None:
        with HistoryStore(f"sqlite:///{self.site.state / 'history.db'}") as store:
            for decision in store.decisions(self.started - 5.0):
                for job_id in decision.job_ids:
                    advice = decision.record.advice
                    self.reasons[job_id] = (advice.placement, why_sentence(advice))

    def _view(self) -> View:
        """What the screen shows now; jobs newest first."""
        played = list(self.played.values())
        states = [item.state for item in played]
        mine = [item for item in reversed(played) if not item.job.explicit]
        return View(
            title=self.plan.title,
            compression=self.plan.compression,
            processors=self.plan.processors,
            seconds=time.time() - self.started,
            planned_seconds=self.plan.stream[-1].submit_seconds if self.plan.stream else 0.0,
            planned=len(self.plan.stream),
            submitted=len(played),
            waiting=states.count("PENDING"),
            running=states.count("RUNNING"),
            ended=sum(_has_ended(item) for item in played),
            queue=tuple(self.waiting),
            nodes=tuple(self.nodes),
            instances=len(self.seen_instances),
            spot_instances=sum(option == "spot" for option in self.seen_instances.values()),
            booting=self.booting,
            rows=tuple(self._row(item) for item in mine),
        )

    def _row(self, item: Played) -> Row:
        placement, why = self.reasons.get(item.job_id, (None, "..."))
        return Row(
            job_id=item.job_id,
            user=item.job.user,
            processors=item.job.processors,
            state=item.state.lower(),
            moved=None if placement is None else placement is Placement.BURST,
            why=why,
        )


def _has_ended(played: Played) -> bool:
    return played.state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL")
