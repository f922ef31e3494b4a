"""The back end for LSF: jobs from lsb.events, hosts and queues from LSF's commands, changes by its commands.

LSF keeps no AdminComment, so the advice of each live job is kept in a state file, written before anything is
changed in LSF: a move that is only intended names the queue it goes to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from advisor.files.state_file import StateFile
from advisor.history.ingest import IngestReport
from advisor.history.store import HistoryStore
from advisor.lsf import answers
from advisor.lsf.commands import LsfCommands
from advisor.lsf.events import EventsReader, JobsInEvents
from advisor.lsf.ingest import ingest_lsb_acct
from advisor.lsf.installation import EVENTS, Installation, read_installation
from advisor.lsf.kept_advice import AdviceBook, AdviceOfLiveJobs
from advisor.lsf.live_job import LiveJob
from advisor.lsf.queued_jobs import OUR_WORDS, full_id, name_of, queued_jobs, rows_of
from advisor.model.errors import RetryLater
from advisor.model.settings import Settings
from advisor.model.snapshot import PENDING, ClusterSnapshot, Partition, QueuedJob, SubmittedJob

log = structlog.get_logger(__name__)

_QUEUES_SECONDS: Final = 30.0
"""For so long the queues, their hosts and the hosts' hardware are taken as known."""
_JOBS_A_CALL: Final = 200
_CHANGES: Final = frozenset({"admincomment", "features", "partition", "prefer", "timelimit"})


@dataclass(slots=True)
class _Site:
    """Queues, hosts of each, hardware, and when they were read (monotonic seconds)."""

    queues: Mapping[str, answers.Queue] = field(default_factory=dict)
    hosts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    hardware: Mapping[str, answers.Hardware] = field(default_factory=dict)
    read_at: float = -1e18


class LsfBackend:
    """Asks and tells one LSF. Thread-safe.

    Args:
        settings: Name the on-premise queues and the burst queue.
        installation: Where LSF is.
        kept: The advice of live jobs.
        monotonic: A clock in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        installation: Installation,
        kept: StateFile[AdviceOfLiveJobs],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._installation = installation
        self._commands = LsfCommands(installation)
        self._events = EventsReader(installation.log_folder / EVENTS)
        self._book = AdviceBook(kept)
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._site = _Site()

    @classmethod
    def of(cls, settings: Settings, kept: StateFile[AdviceOfLiveJobs]) -> LsfBackend:
        """The back end for a site's settings.

        Raises:
            BadInput: lsf.conf does not say where LSF is.
        """
        found = read_installation(settings.paths.lsf_envdir, settings.cluster.name)
        return cls(settings, found, kept)

    def close(self) -> None:
        """Close lsb.events."""
        with self._lock:
            self._events.close()

    # ----------------------------------------------------------------------------------------- reading

    def snapshot(self, now: float) -> ClusterSnapshot:
        """See :class:`~advisor.model.scheduler.Scheduler`."""
        began = self._monotonic()
        unread = answers.Unread()
        with self._lock:
            hosts = answers.read_hosts(self._commands.text("bhosts", "-w"), unread)
            if not hosts:
                raise RetryLater(
                    "bhosts shows no host that can be read. Run `bhosts -w` as the user of this service",
                    code="lsf.unreadable",
                )
            site = self._read_site(hosts)
            looked = self._look()
            cluster = self._settings.cluster
            nodes = (
                answers.node_of(
                    host,
                    site.hardware.get(host.name, answers.Hardware()),
                    site.hosts,
                    burst=cluster.burst_partition,
                    others=cluster.on_premise_partitions,
                )
                for host in hosts
            )
            return ClusterSnapshot(
                time=now,
                jobs=tuple(self._rows(looked.jobs, now)),
                nodes=tuple(node for node in nodes if node is not None),
                seconds=self._monotonic() - began,
                malformed=looked.malformed + len(unread.rows),
            )

    def waiting(self, known: Container[int]) -> Mapping[int, SubmittedJob | None]:
        """See :class:`~advisor.model.scheduler.Scheduler`; no command is run for it."""
        with self._lock:
            jobs = self._look().jobs
            waiting = [job for job in jobs if job.state in {"PEND", "PSUSP"}]
            begins = {job_id: job.begin_time for job_id, (job, _) in rows_of(waiting).items()}
            rows = list(self._rows(waiting, time.time()))
        return {
            row.job.job_id: None
            if row.job.job_id in known
            else SubmittedJob(queued=row, eligible_time=None if row.is_held else begins[row.job.job_id])
            for row in rows
            if row.state == PENDING
        }

    def partitions(self) -> tuple[Partition, ...]:
        """See :class:`~advisor.model.scheduler.Scheduler`."""
        with self._lock:
            hosts = answers.read_hosts(self._commands.text("bhosts", "-w"), answers.Unread())
            site = self._read_site(hosts)
        slots = {
            host.name: site.hardware.get(host.name, answers.Hardware()).processors
            if host.slots is None
            else host.slots
            for host in hosts
        }
        return tuple(
            answers.partition_of(queue, site.hosts[name], slots) for name, queue in site.queues.items()
        )

    def config(self) -> Mapping[str, str]:
        """See :class:`~advisor.model.scheduler.Scheduler`: a job is rerunnable where its user says so."""
        return {"ClusterName": self._settings.cluster.name, "JobRequeue": "0"}

    def ping(self) -> bool:
        """See :class:`~advisor.model.scheduler.Scheduler`."""
        try:
            return "QUEUE_NAME" in self._commands.text("bqueues", "-w")
        except RetryLater:
            return False

    def ingest(self, store: HistoryStore, *, source: str) -> IngestReport:
        """Add the jobs that have ended since the last time, from lsb.acct."""
        folder, unit = self._installation.log_folder, self._installation.memory_unit
        with self._lock:
            self._look()
        # the first time this may take minutes, in which the other loops go on
        advice = self._book.advice_id
        return ingest_lsb_acct(store, [folder], source=source, memory_unit=unit, advice_of=advice)

    def _read_site(self, hosts: Iterable[answers.Host]) -> _Site:
        now = self._monotonic()
        if now - self._site.read_at >= _QUEUES_SECONDS:
            queues = answers.read_queues(self._commands.text("bqueues", "-l"))
            has_groups = any(word.endswith("/") for queue in queues for word in queue.hosts)
            groups = answers.read_groups(self._commands.text("bmgroup", "-r", "-w")) if has_groups else {}
            names = {host.name for host in hosts}
            self._site = _Site(
                queues={queue.name: queue for queue in queues},
                hosts={queue.name: answers.hosts_of(queue, groups, names) for queue in queues},
                hardware=answers.read_hardware(self._commands.text("lshosts", "-w")),
                read_at=now,
            )
        return self._site

    def _look(self) -> JobsInEvents:
        """The live jobs; what is kept of their advice is settled by them."""
        looked = self._events.look()
        queues = {job_id: job.queue for job_id, (job, _) in rows_of(looked.jobs).items()}
        self._book.settle({*queues, *(job.job_id for job in looked.jobs)}, queues, time.time())
        return looked

    def _rows(self, jobs: Iterable[LiveJob], now: float) -> Iterator[QueuedJob]:
        unit, queues = self._installation.memory_unit, self._site.queues
        return queued_jobs(jobs, queues=queues, comments=self._book.comments, now=now, memory_unit=unit)

    # ---------------------------------------------------------------------------------------- changing

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        """See :class:`~advisor.model.scheduler.Scheduler`."""
        self.update_jobs(dict.fromkeys(job_ids, changes))

    def update_jobs(self, changes: Mapping[int, Mapping[str, str]]) -> None:
        """See :class:`~advisor.model.scheduler.Scheduler`.

        The words are those of ``scontrol update job``: partition, admincomment, timelimit (minutes),
        features. A preference is left out, as LSF has none. bswitch also takes jobs that run; one that has
        begun meanwhile is put back.
        """
        with self._lock:
            before = {job_id: job for job_id, (job, _) in rows_of(self._look().jobs).items()}
            refusals = [
                RefusedByLsf(job_id, why)
                for job_id, said in changes.items()
                if (why := _obstacle(said, before.get(job_id)))
            ]
            due = {job_id: said for job_id, said in changes.items() if job_id not in _ids(refusals)}
            queues = _of(due, "partition")
            self._book.keep(_of(due, "admincomment"), queues)
            refusals += self._modify(due, before)
            queues = {job_id: queue for job_id, queue in queues.items() if job_id not in _ids(refusals)}
            refusals += self._move(queues, before)
        if refusals:
            raise refusals[-1]

    def _modify(
        self, changes: Mapping[int, Mapping[str, str]], before: Mapping[int, LiveJob]
    ) -> list[RefusedByLsf]:
        """Set limits and resources, before the move: a job may begin as soon as it is moved."""
        refusals: list[RefusedByLsf] = []
        for job_id, said in changes.items():
            options = [*(("-W", said["timelimit"]) if "timelimit" in said else ())]
            if said.get("features"):
                wanted = " && ".join(said["features"].replace("-", "_").split("&"))
                options += ["-R", f"{before[job_id].resource_request} select[{wanted}]".strip()]
            if options:
                refusals += self._told(job_id, "bmod", *options, name_of(job_id))
        return refusals

    def _move(self, queues: Mapping[int, str], before: Mapping[int, LiveJob]) -> list[RefusedByLsf]:
        """Switch waiting jobs; lsb.events says which are where they were to go."""
        said: dict[str, str] = {}
        for queue in sorted(set(queues.values())):
            ids = [job_id for job_id, goes in queues.items() if goes == queue]
            for begin in range(0, len(ids), _JOBS_A_CALL):
                try:
                    self._commands.text("bswitch", queue, *map(name_of, ids[begin : begin + _JOBS_A_CALL]))
                except RetryLater as error:
                    said[queue] = str(error)
        looked = self._look().jobs if queues else ()
        begun = {one for job in looked if job.switched_running for one in (full_id(job), job.job_id)}
        after = {job_id: job for job_id, (job, _) in rows_of(looked).items()}
        refusals: list[RefusedByLsf] = []
        for job_id, queue in queues.items():
            job = after.get(job_id)
            if job_id in begun:
                refusals += self._put_back(job_id, before[job_id].queue)
            elif job is None or job.queue != queue:
                self._book.forget(job_id)
                refusals.append(RefusedByLsf(job_id, said.get(queue, "it has begun, or has ended")))
            else:
                self._tell_user(job_id, job, before[job_id].queue)
        return refusals

    def _put_back(self, job_id: int, queue: str) -> list[RefusedByLsf]:
        self._book.forget(job_id)
        log.info("lsf.put_back", job=job_id, queue=queue)
        refusals = self._told(job_id, "bswitch", queue, name_of(job_id))
        return [*refusals, RefusedByLsf(job_id, "it has begun meanwhile, and is in its own queue again")]

    def _tell_user(self, job_id: int, job: LiveJob, was: str) -> None:
        """By bpost where there is one, else in the job's description, where its user has written none."""
        text = f"{OUR_WORDS}starts in the cloud, was in queue {was}. `advisor why {name_of(job_id)}` says why"
        if not self._settings.submit.tell_user:
            return
        if self._commands.has("bpost"):
            refusals = self._told(job_id, "bpost", "-d", text, name_of(job_id))
        elif not job.description or job.description.startswith(OUR_WORDS):
            refusals = self._told(job_id, "bmod", "-Jd", text, name_of(job_id))
        else:
            return
        for refusal in refusals:
            log.info("lsf.user_not_told", job=job_id, why=str(refusal))

    def requeue(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.model.scheduler.Scheduler`. Of an array, name each element by its own id."""
        self._commands.text("brequeue", *map(name_of, job_ids))

    def release(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.model.scheduler.Scheduler`."""
        self._commands.text("bresume", *map(name_of, job_ids))

    def _told(self, job_id: int, *words: str) -> list[RefusedByLsf]:
        """Run a command about one job; what it refused."""
        try:
            self._commands.text(*words)
        except RetryLater as error:
            return [RefusedByLsf(job_id, str(error))]
        return []


class RefusedByLsf(RetryLater):
    """LSF has refused to change a job, or the job is not as it was."""

    code = "lsf.refused"

    def __init__(self, job_id: int, why: str) -> None:
        super().__init__(f"job {name_of(job_id)}: {why}")
        self.job_id = job_id


def _ids(refusals: Iterable[RefusedByLsf]) -> set[int]:
    return {refusal.job_id for refusal in refusals}


def _of(changes: Mapping[int, Mapping[str, str]], word: str) -> dict[int, str]:
    return {job_id: said[word] for job_id, said in changes.items() if word in said}


def _obstacle(changes: Mapping[str, str], job: LiveJob | None) -> str:
    """Why a job cannot be changed so; empty: it can."""
    if job is None:
        return "it has ended"
    unknown = changes.keys() - _CHANGES
    return f"LSF has no {', '.join(sorted(unknown))}" if unknown else ""
