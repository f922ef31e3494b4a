"""`advisor serve` and `advisor control` between a Slurm and an EC2 in memory, and what EC2 charges for it.

A story is a list of actions. Here all features run: the price, slices, kept places, raised limits; nodes are
shared. `cloud_world` has the faults of EC2 and of the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import structlog

from advisor.model.job import Job
from advisor.rehearsal.site import SimulatedSite, SiteShape, with_folders
from advisor.rehearsal.virtual_time import VirtualTime
from advisor.service.control.wiring import Control
from advisor.service.submit.answering import Answerer
from advisor.service.submit.models import model_loader
from advisor.service.submit.state_holder import StateHolder
from advisor.testing.memory_ec2 import MemoryInstance
from advisor.testing.memory_slurm import ENDED, ON_PREMISE
from tests.service.money_events import BOOT_SECONDS, GRACE_SECONDS, MoneyEvents, settings_of
from tests.service.money_rules import TICK_SECONDS

Action = tuple[Any, ...]

MIDNIGHT: Final = 1_800_000_000.0 - 1_800_000_000.0 % 86400.0
PROCESSORS: Final = 64
NODE_CORES: Final = 4
LEARN_SECONDS: Final = 300.0
"""The period of the learn loop, which takes most of the time."""
FOR_READERS: Final = frozenset({"write status", "bill of today", "forget old advice"})
SETTLE_SECONDS: Final = 12 * 3600.0
_IN_MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


class MoneyWorld(MoneyEvents):
    """One story.

    Args:
        budget: Of the settings.
        hour: Of the day in which it begins.
        idle_seconds: Slurm's SuspendTime.
        is_shared: Whether jobs share nodes.
        is_strict: Whether accounts and users keep to their budgets on shared nodes, too. They do not yet
            where a neighbour ends before its limit, or a job comes to a node that boots for another's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        budget: Mapping[str, Any],
        hour: float,
        idle_seconds: float,
        is_shared: bool,
        is_strict: bool = False,
    ) -> None:
        super().__init__(MIDNIGHT + 3600.0 * hour)
        self.time = VirtualTime(self.began)
        self.folder = folder
        self.settings = with_folders(settings_of(budget), folder)
        shape = SiteShape(
            processors=PROCESSORS,
            cloud_nodes=12,
            node_processors=NODE_CORES,
            boot_seconds=BOOT_SECONDS,
            idle_seconds=idle_seconds,
        )
        self.site = SimulatedSite(self.settings, shape, self.time)
        self.ec2, self.slurm, self.budget = self.site.ec2, self.site.slurm, self.settings.budget
        self.ec2.forgotten = None
        self.slurm.is_shared = is_shared
        self.slurm.program = self._program
        self._boots, self.ec2.launched = self.ec2.launched, self._launched
        self.idle_seconds, self.is_strict = idle_seconds, is_strict
        for node in tuple(self.slurm.nodes.values())[::2]:  # half of them are never spot
            node.features = node.active = ("cloud", "on-demand")
        self._crash_in = self.crashes = 0
        self._is_working = False
        self.ec2.observe = self.slurm.observe = self._step
        self._last: dict[str, float] = {}
        self._charged_at = self.time.now
        self._broken_at = self.time.now
        self.site.prepare(self.time.now - 1.0)
        filler = self.slurm.submit(
            80_000.0, partition=ON_PREMISE, processors=PROCESSORS, limit_seconds=86_400.0,
            described=Job(job_id=0, submit_time=self.time.now, processors=PROCESSORS, user="zoe"),
        )  # fmt: skip
        self.filler = filler
        self.live(15.0)

    # ------------------------------------------------------------------ time

    def _step(self, _call: str, _stage: str) -> None:
        if self._is_working and self._crash_in:
            self._crash_in -= 1
            if self._crash_in == 0:
                raise Crash

    def live(self, seconds: float) -> None:
        """Time passes, and all loops have their rounds."""
        begin, end = self.time.now, self.time.now + seconds
        while self.time.now < end:
            some = TICK_SECONDS if self.time.now - begin < 40.0 else 3.0 * TICK_SECONDS
            self._pass(min(60.0 if self.is_quiet else some, end - self.time.now))
            self._rounds()
            self._charge()

    @property
    def is_quiet(self) -> bool:
        return not self.slurm.has_cloud_work and not self.ec2.alive()

    def _pass(self, seconds: float) -> None:
        self.time.move_to(self.time.now + seconds)
        self.ec2.advance()
        self.site.machines.advance()
        self._advance_slurm()

    def _program(self, operation: str, nodes: tuple[str, ...], jobs: dict[str, int]) -> None:
        if operation == "resume":
            self.resumed_for |= {name: {jobs[name]} if name in jobs else set() for name in nodes}
        self.site._program(operation, nodes, jobs)

    def _launched(self, item: MemoryInstance) -> None:
        self._boots(item)
        self.check_launch(self.time.now)

    def _advance_slurm(self) -> None:
        self.slurm.advance()
        self.note_starts(self.time.now)

    def _charge(self) -> None:
        now, since = self.time.now, self._charged_at
        self._charged_at = now
        self.charge(since, now)
        self.note_budgets(now)
        self.check_budgets(now)
        self.check_jobs()
        self.check_orphans(now - since, is_well=now - self._broken_at > 60.0, grace=GRACE_SECONDS)
        self.raise_found()

    def _rounds(self) -> None:
        self._is_working = True
        try:
            for name, runner in tuple(self.site.control.runners.items()):
                if runner.urgent_task_due_in <= 0.0:
                    runner.run_urgent_task()
                last = self._last.get(name, -1e9)
                period = LEARN_SECONDS if name == "learn" else runner.loop.period_seconds
                if runner.is_woken or self.time.now - last >= period:
                    runner.take_wake()
                    self._last[name] = self.time.now
                    if name == "learn":
                        self.site.spool.complete()
                    runner.run_once(leave_out=FOR_READERS)
                    for step, failure in runner.health.open_failures.items():
                        if failure.code in ("loop.crashed", "loop.item_failed"):
                            self.violations.append(f"{name}: {step}: {failure.message}")
        except Crash:
            self.crashes += 1
            self.boot()
        self._is_working = False

    def boot(self) -> None:
        """`advisor serve` and `advisor control` begin anew, with what is on the disk."""
        self._crash_in, self._is_working = 0, False
        self._broken_at = self.time.now
        site = self.site
        site.control.store.close()
        site.settings = self.settings
        site.holder = StateHolder(
            self.settings,
            load_model=model_loader(self.settings),
            monotonic=self.time.read,
            models=site.models,
        )
        site.answerer = Answerer(site.holder, clock=self.time.read)
        site.control = Control(self.settings, site._connections(), clock=self.time.clock)
        self._last.clear()
        site.control.prepare()

    # ------------------------------------------------------------------ what happens

    def play(self, story: Iterable[Action]) -> None:
        for name, *arguments in story:
            getattr(self, f"do_{name}")(*arguments)
            self._charge()
        self.settle()

    def do_live(self, seconds: float) -> None:
        self.live(seconds)

    def do_turn(self) -> None:
        """Midnight comes, where nothing runs at once."""
        while not self.is_quiet and self.time.now % 86_400.0 < 86_000.0:
            self.live(300.0)
        left = 86_400.0 - self.time.now % 86_400.0
        if self.is_quiet and left > 200.0:
            self._pass(left - 100.0)
            self._rounds()
            self._charge()
        self.live(200.0)

    def do_crash(self, steps: int) -> None:
        """The process will die so many calls on."""
        self._crash_in = steps

    def do_restart(self) -> None:
        self.boot()

    # ------------------------------------------------------------------ the end

    def settle(self) -> None:
        self._crash_in = 0
        self.slurm.cancel([self.filler.job_id])
        end = self.time.now + SETTLE_SECONDS
        while self.time.now < end and self.left_over():
            self.live(60.0)
        if left := self.left_over():
            raise AssertionError(f"left: {left}")
        self.live(30.0)
        self.compare(self.by_day(), 30.0, self.crashes)
        self.raise_found()

    def by_day(self) -> dict[str, float]:
        return {day: sum(of.values()) for day, of in self.site.control.cloud.budget.days().items()}

    def left_over(self) -> list[str]:
        left = [f"job {j.job_id} {j.state}" for j in self.slurm.jobs.values() if j.state not in ENDED]
        left += [f"job {j.job_id} {j.state}" for j in self.jobs if j.state not in ENDED]
        return left + [f"{item.instance_id} alive" for item in self.ec2.alive()]


def tell_money(story: Iterable[Action], **world: Any) -> MoneyWorld:
    """Let a story happen in a world of its own, which is handed back."""
    quiet = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        with TemporaryDirectory(dir=_IN_MEMORY) as folder:
            found = MoneyWorld(Path(folder), **world)
            try:
                found.play(story)
            finally:
                found.site.close()
            return found
    finally:
        structlog.configure(**quiet)
