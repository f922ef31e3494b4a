"""The site of `rehearse --shipped`: slurmctld and EC2 in memory, the shipped server and control between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from advisor.ec2.fleet import Fleet
from advisor.ec2.interruptions import Interruptions
from advisor.ec2.journal import Journal
from advisor.ec2.pools import UnavailablePools
from advisor.ec2.prices import PriceCache
from advisor.ec2.reading_account import AccountCache
from advisor.model.job import Job
from advisor.model.settings import Settings
from advisor.model.snapshot import RUNNING
from advisor.rehearsal.cloud_market import CloudMarket
from advisor.rehearsal.machines import Machines
from advisor.rehearsal.memory_models import MemoryModels
from advisor.rehearsal.virtual_time import VirtualTime
from advisor.service.cloud.interrupting import SpotParts
from advisor.service.control.connections import Connections
from advisor.service.control.wiring import Control
from advisor.service.exchange.announcing import Announced
from advisor.service.exchange.handover import decode
from advisor.service.exchange.protocol import VERSION, AdviseReply, AdviseRequest, AgainRequest
from advisor.service.exchange.spool import SpoolWriter
from advisor.service.observation.accounting import ingest_accounting
from advisor.service.stability.outlook import PoolOrder
from advisor.service.state.state_files import CLOSED_POOLS, PRICES
from advisor.service.submit.answering import Answered, Answerer, starts_hedged
from advisor.service.submit.models import model_loader
from advisor.service.submit.state_holder import StateHolder
from advisor.simulate.pool.rules import Rules
from advisor.testing.memory_ec2 import MemoryEc2
from advisor.testing.memory_places import MemoryPlaces
from advisor.testing.memory_slurm import MemorySlurm, SlurmTimes
from advisor.testing.memory_slurm_records import MemoryJob

_PAGE: Final = 1000
_FORGET_SECONDS: Final = 300.0
_FIRST_PLACEHOLDER: Final = 1_000_000_000  # above the ids of every log's jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteShape:
    """The site that is simulated.

    Attributes:
        cloud_nodes, node_processors: Nodes of the burst partition, and processors of one.
        boot_seconds: Time from the launch of an instance until its node accepts a job.
        resume_seconds, idle_seconds, requeue_seconds: Slurm's ResumeTimeout and SuspendTime, and how long a
            requeued job waits.
        rules: Scheduling rules of slurmctld, each on-premise processor being a node; None: EASY backfilling.
    """

    processors: int
    cloud_nodes: int
    node_processors: int = 1
    boot_seconds: float = 120.0
    resume_seconds: float = 600.0
    idle_seconds: float = 60.0
    requeue_seconds: float = 121.0
    market: CloudMarket = field(default_factory=CloudMarket)
    rules: Rules | None = None


class SimulatedSite:
    """One site, put together as `advisor serve` and `advisor control` are, without sockets and threads.

    Args:
        settings: The settings in force; their paths are folders of this site alone.

    Attributes:
        suspends: Whether a hand-over that ends instances waits.
    """

    def __init__(self, settings: Settings, shape: SiteShape, time: VirtualTime) -> None:
        self.settings, self.shape, self.time = settings, shape, time
        for path in (settings.paths.state, settings.paths.models, settings.paths.run):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        market = shape.market.at(
            time.now,
            nodes=shape.cloud_nodes,
            vcpus=shape.node_processors,
            usd=settings.ec2.on_demand_usd_per_hour,
            spot_usd=settings.ec2.spot_usd_per_hour,
        )
        self.ec2 = MemoryEc2(now=time.read, market=market, page_size=_PAGE)
        self.ec2.times.purge = _FORGET_SECONDS
        self.machines = Machines(self.ec2, shape.boot_seconds)
        self.slurm = MemorySlurm(
            now=time.read,
            program=self._program,
            started=self._started,
            answers=self.machines.answers,
            node_count=shape.cloud_nodes,
            node_processors=shape.node_processors,
            processors=shape.processors,
            rules=shape.rules,
            first_job_id=_FIRST_PLACEHOLDER,
            times=SlurmTimes(
                resume=shape.resume_seconds,
                idle=shape.idle_seconds,
                requeue=shape.requeue_seconds,
                forget=_FORGET_SECONDS,
            ),
        )
        self.models = (
            MemoryModels(folder=settings.paths.models) if settings.cluster.policy == "price" else None
        )
        self._messages = 0
        self.suspends = False
        time.slept = self.slurm.advance
        self.holder = StateHolder(
            settings,
            load_model=model_loader(settings),
            monotonic=time.read,
            models=self.models,
        )
        self.answerer = Answerer(self.holder, clock=time.read)
        self.spool = SpoolWriter(settings.paths.spool)
        self.control = Control(settings, self._connections(), clock=time.clock)
        self.advice_given = 0

    def _connections(self) -> Connections:
        settings, now = self.settings, self.time.read
        breakers = UnavailablePools(CLOSED_POOLS.at(settings.paths.state), now)
        order = PoolOrder()
        account = AccountCache(settings.ec2, settings.cluster.name, connect=self.ec2.connect)
        fleet = Fleet(
            settings.ec2,
            settings.cluster.name,
            Journal(settings.paths.state / "launches.jsonl", now=now),
            breakers,
            now=now,
            monotonic=now,
            sleep=lambda _seconds: None,
            jitter=lambda: 0.5,
            connect=self.ec2.connect,
            order=order,
            account=lambda: account.account,
        )
        jobs: Any = self.slurm
        slurm: Any = self.slurm
        places: Any = MemoryPlaces(self.slurm)
        return Connections(
            slurm=slurm,
            fleet=fleet,
            breakers=breakers,
            prices=PriceCache(settings.ec2, PRICES.at(settings.paths.state), now, connect=self.ec2.connect),
            account=account,
            spot=SpotParts(
                Interruptions(settings.ec2, settings.cluster.name, connect=self.ec2.connect), jobs
            ),
            places=places,
            pool_order=order,
            nodes_asked=jobs,
            ask_again=self._again,
            models=self.models,
        )

    def prepare(self, since: float) -> None:
        """Read what accounting has from ``since`` (epoch seconds); do what daemons do before a round."""
        slurm: Any = self.slurm
        ingest_accounting(self.control.store, slurm, since, self.time.now)
        self.spool.prepare()
        self.control.prepare()
        self.holder.refresh()

    def close(self) -> None:
        """Close the history."""
        self.control.store.close()

    def started_at(self, job_id: int) -> float | None:
        """When a job began to run, epoch seconds; None: it does not run."""
        job = self.slurm.jobs.get(job_id)
        return job.start_time if job is not None and job.state == RUNNING else None

    # ------------------------------------------------------------------ submissions

    def submit(self, request: AdviseRequest, job: MemoryJob) -> Answered:
        """Ask the submit server as the hook does, and enter the job as answered.

        ``job`` has its true run times, and is where its user sent it.
        """
        self.holder.refresh()
        answered = self.answerer.answer(request)
        self.spool.append(answered.record)
        self.advice_given += 1
        reply = answered.reply
        job.partition = reply.partition or job.partition
        job.admin_comment = reply.admin_comment or job.admin_comment
        job.prefer = reply.prefer or job.prefer
        job.priority_offset = (reply.site_factor or 0) - (reply.nice or 0)
        self.slurm.jobs[job.job_id] = job
        self.slurm.advance()
        if starts_hedged(answered.record.advice):
            self.control.hedges_announced([Announced(answered.record.advice.advice_id, request.uid)])
        return answered

    def _started(self, job: MemoryJob) -> None:
        """The start of a placeholder is told to control, as its program does."""
        if job.described is not None and job.described.placeholder_for is not None:
            self.control.placeholder_started()

    def _again(self, job: Job, wait_seconds: float | None, planned_seconds: float | None) -> AdviseReply:
        """Ask about a job that waits, as by the socket."""
        self.holder.refresh()
        answered = self.answerer.again(
            AgainRequest(v=VERSION, job=job, wait_seconds=wait_seconds, planned_wait_seconds=planned_seconds)
        )
        if answered.reply.partition is not None:
            self.spool.append(answered.record)
            self.advice_given += 1
        return answered.reply

    # ------------------------------------------------------------------ Slurm's programs

    def _program(self, operation: str, nodes: tuple[str, ...], jobs: Mapping[str, int]) -> None:
        """Resume-, Suspend- or ResumeFailProgram: what slurm_hooks/resume and its kin hand over."""
        self._messages += 1
        self.suspends |= operation != "resume"
        rows = [{"job_id": job, "nodes_resume": node} for node, job in jobs.items()]
        message = {
            "v": 1,
            "op": operation,
            "time": self.time.now,
            "nodes": ",".join(nodes),
            "resume_file": json.dumps({"jobs": rows}) if rows else None,
            "id": f"{self._messages:020d}-1-00000000",
        }
        line = json.dumps(message).encode() + b"\n"
        self.control.folder.put(decode(line), line)
        self.control.handover_arrived()


def with_folders(settings: Settings, folder: Path) -> Settings:
    """Settings whose state and run folders lie below ``folder``."""
    paths = settings.paths.model_copy(
        update={"state": folder / "state", "run": folder / "run", "database_url": None}
    )
    return settings.model_copy(update={"paths": paths})
