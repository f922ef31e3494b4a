"""What a story of `tests.service.money_world` can let happen: each `do_NAME` is the action of that name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.model.advice import (
    Advice,
    Answer,
    Capacity,
    Hedge,
    HedgeKind,
    Mode,
    Placement,
    Question,
    TimeLimit,
    Verdict,
)
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.rehearsal.site import SimulatedSite, with_folders
from advisor.rehearsal.virtual_time import VirtualTime
from advisor.service.exchange.announcing import Announced
from advisor.service.exchange.protocol import VERSION, AdviseRequest
from advisor.service.submit.answering import starts_hedged
from advisor.testing.memory_slurm import BURST, ON_PREMISE, MemoryJob
from tests.service.money_rules import USD_PER_SECOND, MoneyRules, payers_of

BOOT_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 60.0


class Asked(NamedTuple):
    """A job, or each task of an array: how long it runs, and what its user says."""

    seconds: float
    limit_seconds: float
    processors: int = 4
    tasks: int = 1
    account: str = "chem"
    user: str = "ann"
    may_requeue: bool = True


def settings_of(budget: Mapping[str, Any]) -> Settings:
    return Settings.model_validate(
        {
            "cluster": {"default_mode": "act", "policy": "price", "name": "here"},
            "budget": {"usd_per_hour_saved": 1000.0} | budget,
            "hedge": {"enabled": True},
            "placement": {"boot_seconds": BOOT_SECONDS},
            "ec2": {
                "image_id": "ami-1",
                "interruption_queue_url": "memory",
                "spot_usd_per_hour": 3600.0 * USD_PER_SECOND["spot"],
                "on_demand_usd_per_hour": 3600.0 * USD_PER_SECOND["on-demand"],
            },
            "loops": {"orphan_grace_seconds": GRACE_SECONDS},
        }
    )


def comment(advice_id: str, capacity: Capacity, hedge: Hedge | None, limit: TimeLimit | None) -> str:
    """AdminComment of a job that we moved."""
    answer = Answer(question=Question.CAPACITY, verdict=Verdict.YES, reason="capacity.spot")
    return admin_comment(
        Advice(
            advice_id=advice_id,
            time=0.0,
            placement=Placement.BURST,
            partition=BURST,
            capacity=capacity,
            mode=Mode.ACT,
            answers=(answer,),
            hedge=hedge,
            time_limit=limit,
        )
    )


class MoneyEvents(MoneyRules):
    """The actions of users, of admins and of EC2."""

    folder: Path
    settings: Settings
    site: SimulatedSite
    time: VirtualTime
    boot: Callable[[], None]
    _advance_slurm: Callable[[], None]

    def do_submit(self, asked: Asked) -> None:
        """The hook asks."""
        site, minutes = self.site, round(asked.limit_seconds / 60.0)
        site.holder.refresh()
        uid = 1000 + sum(map(ord, asked.user))
        answered = site.answerer.answer(
            AdviseRequest(
                v=VERSION,
                uid=uid,
                user=asked.user,
                account=asked.account,
                name="run",
                default_partition=ON_PREMISE,
                array=f"1-{asked.tasks}" if asked.tasks > 1 else None,
                requeue=None if asked.may_requeue else False,
                time_limit=minutes,
                partition_time_limit=minutes,
                num_tasks=asked.processors,
            )
        )
        site.spool.append(answered.record)
        reply = answered.reply
        self._enter(
            asked,
            partition=reply.partition or ON_PREMISE,
            admin_comment=reply.admin_comment or "",
            prefer=reply.prefer or "",
            features=reply.features,
        )
        if starts_hedged(answered.record.advice):
            site.control.hedges_announced([Announced(answered.record.advice.advice_id, uid)])

    def do_send(
        self, asked: Asked, capacity: Capacity, stop_seconds: float = 0.0, given_seconds: float = 0.0
    ) -> None:
        """Jobs that were all told yes at the same moment, whatever money is left."""
        hedge = limit = None
        if stop_seconds and asked.may_requeue and asked.tasks == 1:
            hedge = Hedge(kind=HedgeKind.SLICE, stop_seconds=stop_seconds)
        if given_seconds > asked.limit_seconds:
            limit = TimeLimit(asked_seconds=asked.limit_seconds, given_seconds=given_seconds)
        capacity = capacity if asked.may_requeue else Capacity.ON_DEMAND
        self._enter(
            asked,
            partition=BURST,
            admin_comment=comment(f"a-{len(self.jobs)}", capacity, hedge, limit),
            features=None if asked.may_requeue else "on-demand",
        )

    def _enter(self, asked: Asked, **changes: Any) -> None:
        described = Job(
            job_id=0, submit_time=self.time.now, processors=asked.processors, user=asked.user,
            account=asked.account, name="run", requeue=None if asked.may_requeue else False,
        )  # fmt: skip
        jobs = self.slurm.submit_array(
            asked.tasks,
            asked.seconds,
            processors=asked.processors,
            limit_seconds=asked.limit_seconds,
            account=asked.account,
            may_requeue=asked.may_requeue,
            described=described,
            **changes,
        )
        if asked.tasks == 1:
            jobs[0].array_job_id = 0
        self.jobs += jobs
        self.sent_at |= {job.job_id: self.time.now for job in jobs}
        if not asked.may_requeue:
            self.never_again |= {job.job_id for job in jobs}
        self._advance_slurm()

    def _there(self, *states: str) -> list[MemoryJob]:
        return [job for job in self.jobs if job.partition == BURST and job.state in states]

    def do_raise_limit(self, which: int, seconds: float) -> None:
        """An admin gives a job more time."""
        there = self._there("PENDING", "CONFIGURING", "RUNNING")
        if there:
            job = there[which % len(there)]
            self.slurm.update_job([job.job_id], {"timelimit": f"{(job.limit_seconds + seconds) / 60.0:.0f}"})
            if job.state != "PENDING":
                self.excuse(self.time.now)

    def do_requeue(self, which: int) -> None:
        """A user requeues a job that runs."""
        there = [job for job in self._there("RUNNING") if job.may_requeue]
        if there:
            self.slurm.requeue([there[which % len(there)].job_id])

    def do_cancel(self, which: int) -> None:
        """A user cancels a job."""
        there = self._there("RUNNING", "PENDING", "CONFIGURING")
        if there:
            self.slurm.cancel([there[which % len(there)].job_id])

    def do_reclaim(self, which: int, notice_seconds: float) -> None:
        """EC2 takes a spot instance back that was counted: else it is charged the most it can have cost."""
        known = (item for item in self.ec2.alive() if self.time.now - item.launched_at > 30.0)
        spot = [item for item in known if item.market == "spot"]
        if spot:
            self.ec2.reclaim(spot[which % len(spot)].instance_id, notice_seconds)

    def do_set_budget(self, budget: Mapping[str, Any]) -> None:
        """The admin changes the budgets; what runs then ends in peace."""
        before, now = self.budget, self.time.now
        self.settings = with_folders(settings_of(budget), self.folder)
        self.budget = self.settings.budget
        payers = {"", *(payer for job in self.jobs for payer in payers_of(job))}
        if any((before.of(payer) or math.inf) > (self.budget.of(payer) or math.inf) for payer in payers):
            self.excuse(now)
        self.note_budgets(now)
        self.boot()
