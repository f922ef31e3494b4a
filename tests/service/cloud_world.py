"""The real loops, journal, fleet and purse between a Slurm and an EC2 in memory, and what must always hold.

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
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import structlog

from advisor.decide import wording
from advisor.ec2.fleet import Fleet
from advisor.ec2.interruptions import Interruptions
from advisor.ec2.journal import Journal
from advisor.ec2.pools import Breakers
from advisor.ec2.prices import Prices
from advisor.ec2.state_file import StateFile
from advisor.ec2.tags import CLUSTER_TAG, NODE_TAG, node_of
from advisor.model import Advice, Answer, Capacity, Mode, Placement, Quantity, Question, Verdict
from advisor.model.cluster import NodePower
from advisor.model.settings import (
    ClusterSettings,
    Ec2Settings,
    LoopSettings,
    PathSettings,
    Settings,
    WaitingSettings,
)
from advisor.service.cloud_record import CloudRecord
from advisor.service.handover import HandoverFolder, decode
from advisor.service.interrupting import InterruptionLoop
from advisor.service.interruption_record import InterruptionRecord
from advisor.service.listening import NoticeLoop
from advisor.service.looking import LookLoop
from advisor.service.loops import LoopRunner, Step
from advisor.service.provisioning import ProvisionLoop
from advisor.service.reconciling import ReconcileLoop
from advisor.service.view import SharedView
from advisor.testing.manual_clock import ManualClock
from advisor.testing.memory_ec2 import MemoryEc2, MemoryInstance
from advisor.testing.memory_slurm import ENDED, MemoryNode, MemorySlurm

Action = tuple[Any, ...]

CLUSTER: Final = "here"
USD_PER_HOUR: Final = {"spot": 0.07, "on-demand": 0.17}
GRACE_SECONDS: Final = 60.0
BOOT_SECONDS: Final = 40.0
TICK_SECONDS: Final = 15.0
LOOPS: Final = ("look", "notices", "interruptions", "provision", "reconcile")
ONLY_READ: Final = ("look", "notices")
SETTLE_TICKS: Final = 120
_IN_MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a rename costs 2 ms on a disk
MIDNIGHT: Final = 1_800_000_000.0 - 1_800_000_000.0 % 86400.0


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


class LookOnly(LookLoop):
    """The look loop without the files for `advisor serve` and `advisor status`, which nothing here reads."""

    def steps(self) -> tuple[Step, ...]:
        return (Step("look at Slurm", self.look),)


@lru_cache(maxsize=64)
def comment(capacity: Capacity, predicted_seconds: float) -> str:
    """AdminComment of a job that we moved."""
    answer = Answer(
        question=Question.CAPACITY,
        verdict=Verdict.YES,
        reason="capacity.spot",
        numbers=(("predicted_cloud_run", Quantity(predicted_seconds, "s")),),
    )
    advice = Advice(
        advice_id="a-1",
        time=0.0,
        placement=Placement.BURST,
        partition="burst",
        capacity=capacity,
        mode=Mode.ACT,
        answers=(answer,),
    )
    return wording.admin_comment(advice)


@lru_cache(maxsize=64)
def site(cap_usd: float) -> Settings:
    return Settings(
        cluster=ClusterSettings(default_mode=Mode.ACT, name=CLUSTER),
        waiting=WaitingSettings(daily_cap_usd=cap_usd),
        loops=LoopSettings(orphan_grace_seconds=GRACE_SECONDS),
        ec2=Ec2Settings(
            image_id="ami-1",
            interruption_queue_url="memory",
            spot_usd_per_hour=USD_PER_HOUR["spot"],
            on_demand_usd_per_hour=USD_PER_HOUR["on-demand"],
        ),
        paths=PathSettings(state=Path("state"), run=Path("run")),
    )


class CloudWorld:
    """One story.

    Parameters
    ----------
    folder : Path
        Where the service keeps its state.
    cap_usd : float
        Daily cap; 0: none.
    """

    def __init__(self, folder: Path, *, cap_usd: float = 0.0) -> None:
        self.folder = folder
        self.cap_usd = cap_usd
        self.settings = site(cap_usd)
        self.violations: list[str] = []
        self.clock = ManualClock(wall=MIDNIGHT + 3600.0)
        self.ec2 = MemoryEc2(now=lambda: self.clock.wall)
        self.ec2.observe = self._remote_step
        self.ec2.launched = self._launched
        self.ec2.terminating = self._terminating
        self.slurm = MemorySlurm(
            now=lambda: self.clock.wall, program=self._program, answers=self._slurmd_answers
        )
        self.slurm.observe = self._remote_step
        self.slurm.powered_down = self._powered_down
        self._inside: list[str] = []  # loops under way, the outermost first
        self._crash_in = self._torn = 0
        self._aside_in = 0
        self._aside: tuple[str, float] = ("", 0.0)
        self._programs_lost = 0
        self._last_message: dict[str, Any] = {}
        self._messages = 0
        self._predicted: dict[str, float] = {}  # instance: dollars, as predicted at its launch
        self._job_of: dict[str, int | None] = {}  # instance: the job it was launched for
        self._orphan_seconds: dict[str, float] = {}
        self._counted_at = self.clock.wall
        self.crashes = 0
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
        """Put the process together from what is on the disk, as `advisor.service.control` does."""
        settings, clock, slurm = self.settings, self.clock.clock, self.slurm
        self._crash_in = self._aside_in = 0
        self._inside = []
        self.view = SharedView(clock, settings.submit.snapshot_max_age_seconds)
        self.cloud = CloudRecord(self.folder / "cloud.json", clock)
        self.handovers = HandoverFolder(self.folder / "handover")
        self.handovers.prepare()
        self.journal = Journal(self.folder / "launches.jsonl", now=clock.wall)
        self.breakers = Breakers(StateFile(self.folder / "pools.json"), clock.wall)
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
        )
        record = InterruptionRecord(StateFile(self.folder / "interruptions.json"))

        def prices() -> Prices:
            return Prices.of_settings(settings.ec2)

        shared: dict[str, Any] = {"slurm": slurm, "view": self.view, "clock": clock}
        look = LookOnly(
            settings,
            cloud=self.cloud,
            is_open=lambda: (True, True),
            status=dict,
            prices=prices,
            **shared,
        )
        cloud: dict[str, Any] = {"fleet": self.fleet, "cloud": self.cloud, "prices": prices}
        provision = ProvisionLoop(settings, folder=self.handovers, interruptions=record, **cloud, **shared)
        self.reconcile = reconcile = ReconcileLoop(settings, interruptions=record, **cloud, **shared)
        interruptions = InterruptionLoop(
            settings, instances=lambda: reconcile.last_listed, jobs=slurm, record=record, **shared
        )
        notices = NoticeLoop(
            source=Interruptions(settings.ec2, CLUSTER, connect=self.ec2.connect),
            instances=lambda: reconcile.last_listed,
            record=record,
            heard=lambda: None,
            clock=clock,
        )
        loops = (look, notices, interruptions, provision, reconcile)
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

    # ------------------------------------------------------------------ steps of input and output

    def _step(self, file: int | None = None) -> None:
        if not self._inside or not self._crash_in:
            return
        self._crash_in -= 1
        if self._crash_in == 0:
            if file is not None and stat.S_ISREG((status := os.fstat(file)).st_mode):
                os.ftruncate(file, max(0, status.st_size - self._torn))
            raise Crash

    def _remote_step(self, _name: str, stage: str) -> None:
        if self._inside and stage == "before" and self._aside_in:
            self._aside_in -= 1
            if self._aside_in == 0:
                name, seconds = self._aside
                self.advance(seconds)
                if name:
                    self.run(name)
        self._step()

    @contextmanager
    def files_watched(self) -> Iterator[None]:
        """Flushes, renames and removals of files are steps; the disk itself is left in peace."""

        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **more: Any) -> Any:
                self._step()
                answer = original(*arguments, **more)
                self._step()
                return answer

            return call

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", self._step)
            for name in ("replace", "rename", "unlink"):
                patch.setattr(Path, name, around(getattr(Path, name)))
            yield

    # ------------------------------------------------------------------ Slurm's programs and machines

    def _program(self, operation: str, nodes: tuple[str, ...], jobs: Mapping[str, int]) -> None:
        if self._programs_lost:
            self._programs_lost -= 1
            return
        rows = [{"job_id": job, "nodes_resume": node} for node, job in jobs.items()]
        self._last_message = {
            "v": 1,
            "op": operation,
            "time": self.clock.wall,
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

    def _slurmd_answers(self, node: str, address: str) -> bool:
        return any(
            item.private_ip == address
            and self.node_of(item) == node
            and self.clock.wall - item.launched_at >= BOOT_SECONDS
            for item in self.ours()
        )

    @staticmethod
    def node_of(item: MemoryInstance) -> str:
        return node_of(item.tags, item.launch_index) or ""

    def ours(self) -> list[MemoryInstance]:
        """Instances of ours that are alive, in truth."""
        return [item for item in self.ec2.alive() if item.tags.get(CLUSTER_TAG) == CLUSTER]

    # ------------------------------------------------------------------ what must hold

    def _launched(self, item: MemoryInstance) -> None:
        node = self.node_of(item)
        others = [o for o in self.ours() if self.node_of(o) == node and o is not item]
        if others:
            self.violations.append(f"{node} has {others[0].instance_id} and gets {item.instance_id}")
        job = self.slurm.jobs.get(self.slurm.nodes[node].job_id or 0)
        self._job_of[item.instance_id] = job.job_id if job is not None else None
        boot = self.cloud.boot_seconds or self.settings.placement.boot_seconds
        recorded = wording.parse_admin_comment(job.admin_comment) if job is not None else None
        run = recorded.numbers["predicted_cloud_run"] if recorded is not None else 0.0
        self._predicted[item.instance_id] = USD_PER_HOUR[item.market] * (boot + run) / 3600.0
        self._check_cap()

    def _check_cap(self) -> None:
        """What was spent and what is promised stays under the cap; what jobs overrun does not count."""
        if not self.cap_usd:
            return
        now = self.clock.wall
        total = slack = 0.0
        for name, predicted in self._predicted.items():
            item = self.ec2.instances[name]
            ended = item.ended_at()
            is_alive = ended is None or ended > now
            price = USD_PER_HOUR[item.market] / 3600.0
            cost = price * ((now if is_alive else ended or now) - item.launched_at)
            if is_alive or (ended or 0.0) > self._counted_at:
                slack += price * (now - self._counted_at)
            total += (
                min(predicted, cost + self._still_to_come(item, price)) if is_alive else min(predicted, cost)
            )
        if total > self.cap_usd + slack + 1e-9:
            self.violations.append(
                f"{total:.4f} USD are spent and promised, {self.cap_usd:.4f} may be (slack {slack:.4f})"
            )

    def _still_to_come(self, item: MemoryInstance, price: float) -> float:
        node = self.slurm.nodes[self.node_of(item)]
        job = self.slurm.jobs.get(self._job_of[item.instance_id] or 0)
        if node.power is not NodePower.UP:
            return float("inf")
        if job is None or node.job_id != job.job_id or job.start_time is None:
            return 0.0
        recorded = wording.parse_admin_comment(job.admin_comment)
        predicted = recorded.numbers["predicted_cloud_run"] if recorded is not None else 0.0
        return price * max(0.0, predicted - (self.clock.wall - job.start_time))

    def _runs_a_job(self, node: MemoryNode) -> int | None:
        """The job that runs on a node whose machine is well."""
        if node.job_id is None or node.power is not NodePower.UP or node.is_down:
            return None
        is_well = self._slurmd_answers(node.name, node.address)
        return node.job_id if is_well and self.slurm.jobs[node.job_id].state == "RUNNING" else None

    def _terminating(self, item: MemoryInstance) -> None:
        if item in self.strangers:
            self.violations.append(f"{item.instance_id} is somebody else's")
            return
        node = self.slurm.nodes[self.node_of(item)]
        job = self._runs_a_job(node)
        if job is not None and node.address == item.private_ip:
            self.violations.append(f"{item.instance_id} is terminated under job {job}")

    def _powered_down(self, node: MemoryNode) -> None:
        job = self._runs_a_job(node)
        if job is not None:
            self.violations.append(f"{node.name} is powered down under job {job}")

    def _watch_orphans(self, seconds: float, *, is_well: bool) -> None:
        """An instance whose node Slurm has powered down goes within the grace, while all loops do well."""
        orphans = {
            item.instance_id
            for item in self.ours()
            if self.slurm.nodes[self.node_of(item)].power is NodePower.DOWN
        }
        if not is_well:
            orphans = set()
        self._orphan_seconds = {name: self._orphan_seconds.get(name, 0.0) + seconds for name in orphans}
        longest = GRACE_SECONDS + self.ec2.times.lag + 4 * TICK_SECONDS
        for name, age in self._orphan_seconds.items():
            if age > longest:
                self.violations.append(f"{name} has been an orphan for {age:.0f} s")

    def check(self) -> None:
        """Raise what has been found."""
        for job in self.slurm.jobs.values():
            if "COMPLETED" in job.ends[:-1]:
                self.violations.append(f"job {job.job_id} has ended {len(job.ends)} times: {job.ends}")
        if self.violations:
            raise AssertionError("; ".join(self.violations[:5]))

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

    def do_submit(self, seconds: float, predicted: float, nodes: int, capacity: Capacity, end: str) -> None:
        self.slurm.submit(
            seconds, nodes_wanted=nodes, fails=end == "badly", admin_comment=comment(capacity, predicted)
        )
        self.slurm.advance()

    def do_live(self, ticks: int, seconds: float = TICK_SECONDS) -> None:
        """The service does its work, and all loops get their turn."""
        for _ in range(ticks):
            self.advance(seconds)
            crashes = self.crashes
            went_well = [
                self.run(name) for name in LOOPS
            ]  # each has its turn, whatever becomes of the others
            is_well = all(went_well) and self.crashes == crashes
            self._watch_orphans(seconds, is_well=is_well)
            if self.violations:
                return

    def do_stall(self, seconds: float) -> None:
        """Time passes, and no loop has its turn."""
        self.advance(seconds)
        self._orphan_seconds.clear()

    def do_work(self, name: str) -> None:
        """One loop has its turn, out of order."""
        self.run(name)

    def do_crash(self, steps: int, torn: int) -> None:
        """The process will die so many steps on, and with it so many bytes that were not flushed."""
        self._crash_in, self._torn = steps, torn

    def do_restart(self, seconds: float) -> None:
        """The process is stopped, and started so much later."""
        self.do_stall(seconds)
        self.boot()

    def do_ec2_fails(self, action: str, how: str, times: int) -> None:
        self.ec2.fail(action, how, times)

    def do_slurm_fails(self, how: str, times: int) -> None:
        self.slurm.fail(how, times)

    def do_slurmctld_away(self, ticks: int) -> None:
        self.slurm.is_away = True
        self.do_live(ticks)
        self.slurm.is_away = False

    def do_room(self, market: str, instances: int) -> None:
        self.ec2.room[market] = instances

    def do_reclaim(self, which: int, notice_seconds: float, notice: str) -> None:
        spot = [item for item in self.ours() if item.market == "spot"]
        if spot:
            item = spot[which % len(spot)]
            self.ec2.reclaim(item.instance_id, notice_seconds, by_message=notice == "told")

    def do_rebalance(self, which: int) -> None:
        if ours := self.ours():
            self.ec2.recommend_leaving(ours[which % len(ours)].instance_id)

    def do_stop(self, which: int) -> None:
        if ours := self.ours():
            self.ec2.stop(ours[which % len(ours)].instance_id)

    def do_lag(self, seconds: float) -> None:
        self.ec2.times.lag = seconds

    def do_aside(self, calls: int, loop: str, seconds: float) -> None:
        """So many calls on, in the middle of a loop, time passes and another loop has its turn."""
        self._aside_in, self._aside = calls, (loop, seconds)

    def do_repeat(self) -> None:
        """The last hand-over comes once more (F10)."""
        if self._last_message:
            self._hand_over()

    def do_lose_program(self) -> None:
        """The next program that slurmctld calls is lost."""
        self._programs_lost = 1

    def settle(self) -> None:
        """All is well again: after a while every job has ended, once, and nothing is left in the cloud."""
        self.ec2.heal()
        self.slurm.heal()
        self._crash_in = self._aside_in = self._programs_lost = 0
        for _ in range(SETTLE_TICKS):
            self.do_live(1, 2 * TICK_SECONDS)
            self.check()
            if not self.left_over():
                return
        raise AssertionError(f"after {2 * SETTLE_TICKS * TICK_SECONDS:.0f} s: {', '.join(self.left_over())}")

    def left_over(self) -> list[str]:
        """What has not come to its end."""
        left = [f"job {j.job_id} {j.state}" for j in self.slurm.jobs.values() if j.state not in ENDED]
        left += [f"{item.instance_id} alive" for item in self.ours()]
        left += [f"hand-over {path.name}" for path, _ in self.handovers.waiting()]
        left += [f"intent for {intent.nodes}" for intent in self.journal.open_intents()]
        left += [
            f"{node.name} {'+'.join(sorted(node.words))}"
            for node in self.slurm.nodes.values()
            if node.power is not NodePower.DOWN or node.is_down
        ]
        return left


def tell(story: Iterable[Action], *, cap_usd: float = 0.0) -> CloudWorld:
    """Let a story happen in a world of its own, which is handed back.

    Raises
    ------
    AssertionError
        Something that must always hold did not.
    """
    quiet = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        with TemporaryDirectory(dir=_IN_MEMORY) as folder:
            world = CloudWorld(Path(folder), cap_usd=cap_usd)
            world.play(story)
            return world
    finally:
        structlog.configure(**quiet)
