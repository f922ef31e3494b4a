"""What a story of `tests.service.cloud_world` can let happen: each `do_NAME` is the action of that name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from advisor.model.advice import Capacity
from advisor.model.cluster import NodePower
from advisor.model.job import Job
from advisor.testing.memory_ec2_paid import MemoryReservation
from tests.service.cloud_rules import CloudRules
from tests.service.cloud_site import comment

ANY_STEP: Final = "any"


class CloudEvents(CloudRules):
    """The actions of users, of Slurm, of EC2 and of the machine that the service runs on."""

    folder: Path
    reservation: MemoryReservation
    boot: Callable[[], None]
    run: Callable[[str], bool]
    advance: Callable[[float], None]
    do_live: Callable[..., None]
    _hand_over: Callable[[], None]
    _messages: int
    _last_message: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self._crash_in = self._torn = 0
        self._crash_at = ANY_STEP
        self._aside_in = 0
        self._aside: tuple[str, float] = ("", 0.0)
        self._program_lost = ""
        self.clock_error = 0.0

    def do_submit(
        self,
        seconds: float,
        predicted: float,
        nodes: int,
        capacity: Capacity,
        end: str,
        account: str = "",
        user: str = "",
    ) -> None:
        self.slurm.submit(
            seconds,
            nodes_wanted=nodes,
            fails=end == "badly",
            account=account,
            described=Job(job_id=0, submit_time=0.0, processors=4 * nodes, requeue=True, user=user or None),
            admin_comment=comment(capacity, predicted),
            limit_seconds=max(seconds, predicted),
        )
        self.slurm.advance()

    def do_stall(self, seconds: float) -> None:
        """Time passes, and no loop has its turn."""
        self.advance(seconds)
        self._orphan_seconds.clear()

    def do_work(self, name: str) -> None:
        """One loop has its turn, out of order."""
        self.run(name)

    def do_crash(self, steps: int, at: str, torn: int) -> None:
        """The process will die so many steps (of a kind) on; so many bytes not flushed will be lost."""
        self._crash_in, self._crash_at, self._torn = steps, at, torn

    def do_restart(self, seconds: float) -> None:
        """The process is stopped, and started so much later."""
        self.do_stall(seconds)
        self.boot()

    def do_set_clock(self, error: float) -> None:
        """The host's clock is set, so many seconds wrong (F32)."""
        self.clock_error = error

    def do_damage_budget(self, *names: str) -> None:
        """The process is gone, the disk has lost the end of some files, and it is started again."""
        for path in (self.folder / name for name in names):
            if path.exists():
                path.write_bytes(path.read_bytes()[:40])
        self.boot()

    def do_ill_entry(self, kind: str) -> None:
        """Put a file into the hand-over folder that does not belong there."""
        self._messages += 1
        path = self.folder / "handover" / f"{self._messages:020d}-ill.json"
        match kind:
            case "directory":
                path.mkdir()
            case "link":
                path.symlink_to("/nonexistent")
            case "fifo":
                os.mkfifo(path)
            case _:
                name = {"option": "--help", "other node": "onprem1"}.get(kind, "")
                message = {"v": 1, "op": "resume", "time": self.clock.wall, "nodes": name}
                path.write_text(json.dumps({**message, "id": f"{self._messages:020d}-1-00000000"}))

    def do_ec2_fails(self, action: str, how: str, times: int) -> None:
        self.ec2.fail(action, how, times)

    def do_slurm_fails(self, how: str, times: int) -> None:
        self.slurm.fail(how, times)

    def do_forget_suspends(self) -> None:
        """slurmctld is killed and started again; that it powers nodes down was not saved."""
        for node in self.slurm.nodes.values():
            if node.power is NodePower.POWERING_DOWN:
                node.power, node.since = NodePower.UP, self.clock.wall

    def do_slurmctld_away(self, ticks: int) -> None:
        self.slurm.is_away = True
        self.do_live(ticks)
        self.slurm.is_away = False

    def do_ec2_away(self, ticks: int, seconds: float) -> None:
        """EC2 answers nothing; the loops have fewer turns, for it may be long."""
        self.ec2.is_away = True
        self.do_live(ticks, seconds)
        self.ec2.is_away = False

    def do_room(self, market: str, instances: int) -> None:
        self.ec2.room[market] = instances

    def do_others_take(self, places: int) -> None:
        """Others of the account use so many places of the reservation."""
        self.reservation.others = places

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

    def do_lose_program(self, operation: str) -> None:
        """The next such program that slurmctld calls is lost."""
        self._program_lost = operation
