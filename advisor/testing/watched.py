"""A lab whose jobs keep their places: the watch loop on a real Slurm, stepped by the test."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.decide.explanation.reasons import Reason
from advisor.decide.explanation.reply_texts import admin_comment
from advisor.decide.submission.cloud_terms import configured_slowdown
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
from advisor.model.cluster import ClusterState
from advisor.model.settings import Settings
from advisor.service.exchange.announcing import Announcer
from advisor.service.hedge.watch_context import SliceDecider, WatchContext
from advisor.service.hedge.watching import WatchLoop
from advisor.service.observation.poll_view import SharedView
from advisor.service.observation.site_view import cluster_state
from advisor.service.running.clock import Clock
from advisor.service.running.loops import LoopRunner
from advisor.service.state.hedge_entries import HedgeEntry, HedgeRecord
from advisor.service.state.state_files import HEDGE_ENTRIES
from advisor.slurm.cli import CliBackend
from advisor.slurm.commands import Commands
from advisor.slurm.placeholders import Placeholders
from advisor.slurm.protocol import SlurmBackend
from advisor.testing.lab import Lab


class WatchedLab:
    """The watch loop beside a running lab.

    Args:
        lab: Up.
        state: Folder for what the loop writes down; a new object with the same one goes on from there.
        sections: Settings beside the paths: section to key to value.
        wrap: Stands between the loop and Slurm: given both parts, gives both; to break in.
        divider: Of every small job, seconds.
    """

    def __init__(
        self,
        lab: Lab,
        state: Path,
        *,
        sections: dict[str, dict[str, Any]] | None = None,
        wrap: Callable[[SlurmBackend, Placeholders], tuple[SlurmBackend, Placeholders]] | None = None,
        divider: float = 5.0,
    ) -> None:
        self.lab = lab
        paths = {"state": str(state), "run": str(state), "slurm_conf": str(lab.conf)}
        hedge = {"enabled": True}
        tables = {"paths": paths, "cluster": {"default_mode": "act"}, "hedge": hedge} | (sections or {})
        self.settings = Settings.model_validate(tables)
        clock = Clock()
        commands = Commands(self.settings.paths.slurm_bin, lab.conf)
        backend, places = CliBackend(commands), Placeholders(commands)
        slurm: SlurmBackend = backend
        keeper: Placeholders = places
        if wrap is not None:
            slurm, keeper = wrap(backend, places)
        self._backend = backend
        self.view = SharedView(clock, 60.0)
        self.record = open_record(state)
        context = WatchContext(
            settings=self.settings,
            slurm=slurm,
            places=keeper,
            view=self.view,
            record=self.record,
            clock=clock,
            divider=lambda _: divider,
            slowdown=lambda queued: configured_slowdown(queued.job.processors, self.settings.placement),
            slices=lambda: self.slices,
        )
        self.loop = WatchLoop(context)
        self.small_jobs = self.loop.small_jobs
        self.slices: SliceDecider | None = None
        """Decides about slices; None: as without the price."""
        self._runner = LoopRunner(self.loop, clock)
        self.announcer: Announcer | None = None
        """Where `hedged` tells of jobs, as the submit server would; None: it is not told."""

    def look(self) -> ClusterState:
        """Look at Slurm; what the advisor would know of the on-premise queue now."""
        snapshot = self._backend.snapshot(time.time())
        state = cluster_state(snapshot, self.settings)
        self.view.update(snapshot, state)
        return state

    def step(self) -> None:
        """Look at Slurm, then one round; an error ends it, as it would end a step of the real loop."""
        self.look()
        for step in self.loop.steps():
            step.run()

    def round(self) -> None:
        """The same, one step's failure keeping no other from its turn: as the real loop does.

        Raises:
            AdvisorError: Slurm does not answer at all.
        """
        self.look()
        self.go_on()

    def go_on(self) -> None:
        """A round with what was last seen."""
        self._runner.run_once()

    def kept(self, job_id: int) -> HedgeEntry | None:
        """What is written down about a job."""
        return next((kept for kept in self.record.all() if kept.job_id == job_id), None)

    def hedged(
        self,
        *options: str,
        script: str,
        stop_seconds: float,
        kind: HedgeKind = HedgeKind.SLICE,
        limit_minutes: int = 1,
    ) -> int:
        """Submit a job as the hook would have: in the burst partition, its advice in the AdminComment."""
        limit = f"--time={limit_minutes}"
        job = self.lab.sbatch("--partition=burst", "--open-mode=append", limit, *options, script=script)
        comment = hedged_comment(stop_seconds, kind, limit_minutes)
        self.lab.run("scontrol", "update", f"jobid={job.job_id}", f"admincomment={comment}")
        if self.announcer is not None and (advice := parse_admin_comment(comment)) is not None:
            self.announcer.announce(advice.advice_id, os.geteuid())
        return job.job_id


def open_record(state: Path) -> HedgeRecord:
    """What is written down in a folder."""
    return HedgeRecord(HEDGE_ENTRIES.at(state))


def hedged_comment(stop_seconds: float, kind: HedgeKind, limit_minutes: int) -> str:
    """AdminComment of a job that starts hedged."""
    answer = Answer(question=Question.FASTER, verdict=Verdict.YES, reason=Reason.SAVES_TIME)
    limit = 60.0 * limit_minutes
    return admin_comment(
        Advice(
            advice_id=uuid.uuid4().hex,
            time=time.time(),
            placement=Placement.BURST,
            partition="burst",
            capacity=Capacity.ON_DEMAND,
            mode=Mode.ACT,
            answers=(answer,),
            hedge=Hedge(kind=kind, stop_seconds=stop_seconds),
            time_limit=TimeLimit(asked_seconds=limit, given_seconds=4 * limit),
        )
    )


def small_comment() -> str:
    """AdminComment of a job that stays and goes first as small."""
    answer = Answer(question=Question.FASTER, verdict=Verdict.NO, reason=Reason.CLOUD_NOT_FASTER)
    return admin_comment(
        Advice(
            advice_id="test",
            time=time.time(),
            placement=Placement.ON_PREMISE,
            partition=None,
            capacity=None,
            mode=Mode.ACT,
            answers=(answer,),
            size="small",
        )
    )
