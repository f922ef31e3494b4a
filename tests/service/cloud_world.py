"""The real loops, journal, fleet and budget between a Slurm and an EC2 in memory, and what must always hold.

A story is a list of actions. Time passes only when an action says so. The process may die at any step of its
input and output: before and after each call of EC2 or Slurm, each flush to the disk (the tail of the file may
be lost), each file that is renamed or removed; it is then put together anew from what is on the disk. Between
two such steps of one loop another one may have its turn, as threads do.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import structlog

from advisor.ec2.fleet import Fleet
from advisor.ec2.interruptions import Interruptions
from advisor.ec2.journal import Journal
from advisor.ec2.pools import UnavailablePools
from advisor.ec2.prices import Prices
from advisor.ec2.reading_account import AccountCache
from advisor.ec2.tags import CLUSTER_TAG, NODE_TAG
from advisor.model.bill import PaidTime
from advisor.service.cloud.cloud_context import CloudContext
from advisor.service.cloud.interrupting import InterruptionLoop
from advisor.service.cloud.listening import NoticeLoop
from advisor.service.cloud.pricing import ReservationLoop
from advisor.service.cloud.provisioning import ProvisionLoop
from advisor.service.cloud.reconciling import ReconcileLoop
from advisor.service.exchange.handover import HandoverFolder, decode
from advisor.service.observation.poll_view import SharedView
from advisor.service.running.loops import LoopRunner
from advisor.service.state.cloud_record import ClosedOptions, CloudRecord
from advisor.service.state.interruption_record import InterruptionRecord
from advisor.service.state.state_files import CLOSED_POOLS, INTERRUPTIONS
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_ec2 import MemoryEc2, MemoryInstance
from advisor.testing.memory_ec2_paid import MemoryReservation
from advisor.testing.memory_slurm import MemorySlurm, SlurmTimes
from tests.service.cloud_events import ANY_STEP, CloudEvents
from tests.service.cloud_rules import CLUSTER, TICK_SECONDS
from tests.service.cloud_site import PollOnly, site

Action = tuple[Any, ...]

LOOPS: Final = ("poll", "notices", "interruptions", "provision", "reconcile")

FILE_STEP: Final = "file"

ONLY_READ: Final = ("poll", "notices")

SETTLE_TICKS: Final = 120
_IN_MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a rename costs 2 ms on a disk

MIDNIGHT: Final = 1_800_000_000.0 - 1_800_000_000.0 % 86400.0


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


class CloudWorld(CloudEvents):
    """One story.

    Args:
        fleets: The nodes are a class of several instance types.
        own_budgets: Accounts and users have budgets, too.
        reserved: Places of a capacity reservation of the account, which others may take as well.
        slurmd_b: Each start of slurmd counts as a boot (``slurmd -b``), so a machine that runs already is
            taken as well.
    """

    def __init__(
        self,
        folder: Path,
        *,
        budget_usd: float = 0.0,
        slurmd_b: bool = False,
        fleets: bool = False,
        own_budgets: bool = False,
        reserved: int = 0,
    ) -> None:
        super().__init__()
        self.folder = folder
        self.slurmd_b = slurmd_b
        self.settings = site(budget_usd, fleets=fleets, own_budgets=own_budgets)
        self.clock = ManualClock(wall=MIDNIGHT + 3600.0)
        self.ec2 = MemoryEc2(now=lambda: self.clock.wall)
        self.ec2.times.purge = 600.0
        self.reservation = MemoryReservation(
            reservation_id="cr-1",
            instance_type=self.settings.ec2.instance_type,
            total=reserved,
            is_open=False,
            tags={CLUSTER_TAG: CLUSTER},
        )
        self.ec2.paid.reservations += [self.reservation] if reserved else []
        self.ec2.observe = self._remote_step
        self.ec2.launched = self._launched
        self.ec2.terminating = self._terminating
        self.slurm = MemorySlurm(
            now=lambda: self.clock.wall, program=self._program, answers=self._slurmd_answers
        )
        self.slurm.times = SlurmTimes(resume=180.0, requeue=61.0, silent=60.0)
        self.slurm.observe = self._remote_step
        self.slurm.powered_down = self._powered_down
        self._inside: list[str] = []  # loops under way, the outermost first
        self._last_message: dict[str, Any] = {}
        self._messages = 0
        self._counted_at = self.clock.wall
        self.crashes = 0
        self.paid: dict[tuple[str, float], PaidTime] = {}  # what the history knows
        self._add_strangers()
        self.boot()

    def _add_strangers(self) -> None:
        """Two instances of other people, one of which names a node as we do."""
        self.strangers = []
        for number, tags in enumerate(({}, {CLUSTER_TAG: "elsewhere", NODE_TAG: "burst1"})):
            stranger = MemoryInstance(
                instance_id=f"i-stranger{number}",
                instance_type="c5.xlarge",
                market="on-demand",
                private_ip=f"10.1.0.{number}",
                token=f"stranger{number}",
                subnet_id=None,
                launch_index=0,
                tags=dict(tags),
                history=[(self.clock.wall - 7200.0, "running")],
            )
            self.ec2.instances[stranger.instance_id] = stranger
            self.strangers.append(stranger)

    # ------------------------------------------------------------------ the service

    def boot(self) -> None:
        """Put the process together from what is on the disk, as `advisor.service.control.wiring` does."""
        settings, slurm = self.settings, self.slurm
        clock = replace(self.clock.clock, wall=self._host_time)
        self._crash_in = self._aside_in = 0
        self._inside = []
        self.view = SharedView(clock, settings.submit.snapshot_max_age_seconds)
        self.cloud = CloudRecord(self.folder, clock)
        self.handovers = HandoverFolder(self.folder / "handover")
        self.handovers.prepare()
        self.journal = Journal(self.folder / "launches.jsonl", now=clock.wall)
        self.breakers = UnavailablePools(CLOSED_POOLS.at(self.folder), clock.wall)
        account = AccountCache(settings.ec2, CLUSTER, connect=self.ec2.connect)
        self.fleet = Fleet(
            settings.ec2,
            CLUSTER,
            self.journal,
            self.breakers,
            now=clock.wall,
            monotonic=clock.monotonic,
            sleep=self.advance,
            jitter=lambda: 0.5,
            connect=self.ec2.connect,
            account=lambda: account.account,
        )
        record = InterruptionRecord(INTERRUPTIONS.at(self.folder))

        def prices() -> Prices:
            return Prices.of_settings(settings.ec2)

        shared: dict[str, Any] = {"slurm": slurm, "view": self.view, "clock": clock}
        poll = PollOnly(
            settings,
            cloud=self.cloud,
            closings=lambda *_: ClosedOptions(),
            status=dict,
            prices=prices,
            **shared,
        )
        cloud: dict[str, Any] = {
            "fleet": self.fleet,
            "cloud": self.cloud,
            "prices": prices,
            "account": lambda: account.account,
            "paid_since": lambda time: [piece for piece in self.paid.values() if piece.until > time],
        }
        context = CloudContext(settings=settings, interruptions=record, **cloud, **shared)
        provision = ProvisionLoop(context, folder=self.handovers, instances=lambda: reconcile.last_listed)
        self.reconcile = reconcile = ReconcileLoop(
            context, resuming=lambda: provision.resuming, boot_ended=provision.boot_ended
        )
        interruptions = InterruptionLoop(context, instances=lambda: reconcile.last_listed, jobs=slurm)
        notices = NoticeLoop(
            source=Interruptions(settings.ec2, CLUSTER, connect=self.ec2.connect),
            has_listed=lambda: reconcile.listed_at is not None,
            instances=lambda: reconcile.last_listed,
            record=record,
            heard=lambda: None,
            clock=clock,
        )
        loops = [poll, notices, interruptions, provision, reconcile]
        loops += [ReservationLoop(account)] if self.reservation.total else []
        self.runners = {loop.name: LoopRunner(loop, clock) for loop in loops}

    def run(self, name: str) -> bool:
        """One round of a loop, unless the process dies in it."""
        if name in self._inside:
            return False  # each loop is one thread
        if self._inside and name not in ONLY_READ and self.fleet._launching.locked():
            return False  # it would wait for the lock
        runner = self.runners[name]
        self._inside.append(name)
        try:
            is_well = runner.run_once()
        except Crash:
            self._inside.pop()
            if self._inside:
                raise  # all threads die together
            self.crashes += 1
            self.boot()
            return False
        self._inside.pop()
        for step, failure in runner.health.open_failures.items():
            if failure.code in ("loop.crashed", "loop.item_failed"):
                self.violations.append(f"{name}: {step}: {failure.message}")
        if name == "reconcile" and is_well:
            self._counted_at = self.clock.wall
        return is_well

    def _host_time(self) -> float:
        return self.clock.wall + self.clock_error

    # ------------------------------------------------------------------ steps of input and output

    def _step(self, what: str, file: int | None = None) -> None:
        if not self._inside or not self._crash_in or self._crash_at not in (ANY_STEP, what):
            return
        self._crash_in -= 1
        if self._crash_in == 0:
            if file is not None and stat.S_ISREG((status := os.fstat(file)).st_mode):
                os.ftruncate(file, max(0, status.st_size - self._torn))
            raise Crash

    def _remote_step(self, call: str, stage: str) -> None:
        if self._inside and stage == "before" and self._aside_in:
            self._aside_in -= 1
            if self._aside_in == 0:
                name, seconds = self._aside
                self.advance(seconds)
                if name:
                    self.run(name)
        self._step(call)

    @contextmanager
    def files_watched(self) -> Iterator[None]:
        """Flushes, renames and removals of files are steps; the disk itself is left in peace."""

        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **more: Any) -> Any:
                self._step(FILE_STEP)
                answer = original(*arguments, **more)
                self._step(FILE_STEP)
                return answer

            return call

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", partial(self._step, FILE_STEP))
            for name in ("replace", "rename", "unlink"):
                patch.setattr(Path, name, around(getattr(Path, name)))
            yield

    # ------------------------------------------------------------------ Slurm's programs and machines

    def _program(self, operation: str, nodes: tuple[str, ...], jobs: Mapping[str, int]) -> None:
        if self._program_lost == operation:
            self._program_lost = ""
            return
        rows = [{"job_id": job, "nodes_resume": node} for node, job in jobs.items()]
        self._last_message = {
            "v": 1,
            "op": operation,
            "time": self._host_time(),
            "nodes": ",".join(nodes),
            "resume_file": json.dumps({"jobs": rows}) if rows else None,
        }
        self._hand_over()

    def _hand_over(self) -> None:
        self._messages += 1
        line = json.dumps({**self._last_message, "id": f"{self._messages:020d}-1-00000000"}).encode() + b"\n"
        inside, self._inside = self._inside, []  # this is slurmctld's doing, not ours
        self.handovers.put(decode(line), line)
        self._inside = inside

    # ------------------------------------------------------------------ what happens

    def advance(self, seconds: float) -> None:
        """Time passes, for EC2 and slurmctld."""
        left = seconds
        while left > 0.0:
            some = min(left, 30.0)
            self.clock.pass_by(some)
            self.ec2.advance()
            self.slurm.advance()
            left -= some

    def play(self, story: Iterable[Action]) -> None:
        """Let a story happen, then let everything come to rest, and look what is left."""
        with self.files_watched():
            for name, *arguments in story:
                getattr(self, f"do_{name}")(*arguments)
                self.check()
            self.settle()

    def do_live(self, ticks: int, seconds: float = TICK_SECONDS) -> None:
        """The service does its work, and all loops get their turn."""
        for _ in range(ticks):
            self.advance(seconds)
            crashes = self.crashes
            went_well = [
                self.run(name) for name in self.runners
            ]  # each has its turn, whatever becomes of the others
            self._note_paid()
            is_well = all(went_well) and self.crashes == crashes
            self._watch_orphans(seconds, is_well=is_well)
            if self.violations:
                return

    def _note_paid(self) -> None:
        """What the learn loop does: the history gets what was paid."""
        paid = self.cloud.budget.paid()
        for piece in paid:
            self.paid = {
                key: known
                for key, known in self.paid.items()
                if known.instance_id != piece.instance_id or not piece.since < known.since < piece.until
            }
            self.paid[piece.instance_id, piece.since] = piece
        self.cloud.budget.noted(paid)

    def settle(self) -> None:
        """All is well again: after a while every job has ended, once, and nothing is left in the cloud."""
        self.ec2.heal()
        self.slurm.heal()
        self.clock_error = 0.0
        self._crash_in = self._aside_in = 0
        self._program_lost = ""
        for _ in range(SETTLE_TICKS):
            self.do_live(1, 2 * TICK_SECONDS)
            self.check()
            if not self.left_over():
                return
        raise AssertionError(f"after {2 * SETTLE_TICKS * TICK_SECONDS:.0f} s: {', '.join(self.left_over())}")


def tell(
    story: Iterable[Action],
    *,
    budget_usd: float = 0.0,
    slurmd_b: bool = False,
    fleets: bool = False,
    own_budgets: bool = False,
    reserved: int = 0,
) -> CloudWorld:
    """Let a story happen in a world of its own, which is handed back."""
    quiet = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        with TemporaryDirectory(dir=_IN_MEMORY) as folder:
            world = CloudWorld(
                Path(folder),
                budget_usd=budget_usd,
                slurmd_b=slurmd_b,
                fleets=fleets,
                own_budgets=own_budgets,
                reserved=reserved,
            )
            world.play(story)
            return world
    finally:
        structlog.configure(**quiet)
