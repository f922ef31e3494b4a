"""The back end for LSF: jobs from lsb.events, hosts and queues from LSF's commands, changes by its commands.

LSF keeps no AdminComment, so the advice of each live job is kept in a state file, written before anything is
changed in LSF: a move that is only intended names the queue it goes to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import replace
from typing import Final, Unpack

import structlog

from advisor.decide.explanation.reply_texts import admin_comment
from advisor.files.state_file import StateFile
from advisor.history.ingest_report import IngestReport
from advisor.history.store import HistoryStore
from advisor.lsf import answers, changing
from advisor.lsf.bjobs_fields import BjobsOfWaiting
from advisor.lsf.changing import RefusedByLsf
from advisor.lsf.cloud_hosts import CloudHosts, HostsAskedFor
from advisor.lsf.commands import LATE, LsfCommands
from advisor.lsf.events import EventsReader, JobsInEvents
from advisor.lsf.ingest import ingest_lsb_acct
from advisor.lsf.installation import EVENTS, Installation, read_installation
from advisor.lsf.joining import OUR_WORDS, joined, raised
from advisor.lsf.kept_advice import AdviceBook, AdviceOfLiveJobs
from advisor.lsf.live_job import WAITING, LiveJob
from advisor.lsf.queued_jobs import full_id, names_of, queued_jobs, rows_of
from advisor.lsf.reservations import read_reservations
from advisor.lsf.site import SiteReader, nodes_of, partitions_of
from advisor.model.errors import RetryLater
from advisor.model.job_id import job_name
from advisor.model.scheduler import NodeChange
from advisor.model.settings import Settings
from advisor.model.snapshot import ClusterSnapshot, Partition, QueuedJob, Reservation, SubmittedJob

log = structlog.get_logger(__name__)

_JOBS_A_CALL: Final = 200
_ESUB_SECONDS: Final = 2.0
"""What an esub was told of a job is in the ledger by then; younger jobs are not asked about."""
_SHOWN_SECONDS: Final = 60.0
_JOIN_SECONDS: Final = 120.0
"""A job that is older gets no advice from its submission any more."""


class LsfBackend:
    """Asks and tells one LSF. Thread-safe.

    Args:
        settings: Name the on-premise queues and the burst queue.
        installation: Folders and file names of the LSF installation.
        kept: The advice of live jobs.
        asked_for: The cloud's hosts that LSF's resource connector has asked us for; None: others launch them.
        monotonic: A clock in seconds.
    """

    def __init__(
        self,
        settings: Settings,
        installation: Installation,
        kept: StateFile[AdviceOfLiveJobs],
        *,
        asked_for: StateFile[HostsAskedFor] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._installation = installation
        self._commands = LsfCommands(installation)
        self._events = EventsReader(installation.log_folder / EVENTS)
        self._book = AdviceBook(kept)
        self._monotonic = monotonic
        self._ended: list[LiveJob] = []
        self._names: dict[int, str] = {}
        self._lock = threading.RLock()
        self._site = SiteReader(self._commands, monotonic)
        self._bjobs = BjobsOfWaiting(self._commands, monotonic)
        self.cloud_hosts = (
            None if asked_for is None else CloudHosts(settings, asked_for, close=self._close_host)
        )

    @classmethod
    def of(
        cls,
        settings: Settings,
        kept: StateFile[AdviceOfLiveJobs],
        asked_for: StateFile[HostsAskedFor] | None = None,
    ) -> LsfBackend:
        """The back end for a site's settings.

        Raises:
            BadInput: lsf.conf does not say where LSF is.
        """
        found = read_installation(settings.paths.lsf_envdir, settings.cluster.name)
        return cls(settings, found, kept, asked_for=asked_for)

    @property
    def max_priority(self) -> int | None:
        """``MAX_USER_PRIORITY`` as of the last snapshot; None: jobs have no priorities of their own."""
        return self._site.last.max_priority

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
            looked = self._look()
            if self._take_back_unmade(looked.jobs):
                looked = self._look()
            hosts = self._hosts(unread)
            if not hosts:
                raise RetryLater(
                    "bhosts shows no host that can be read. Run `bhosts -w` as the user of this service",
                    code="lsf.unreadable",
                )
            site = self._site.read(hosts)
            return ClusterSnapshot(
                time=now,
                jobs=tuple(self._rows(rows_of(looked.jobs), now)),
                nodes=nodes_of(hosts, site, self._settings.cluster, self.cloud_hosts),
                queue_orders=site.orders,
                seconds=self._monotonic() - began,
                malformed=looked.malformed + len(unread.rows),
            )

    def _hosts(self, unread: answers.Unread) -> tuple[answers.Host, ...]:
        """Each host by itself: IBM's bhosts shows a group with CONDENSE as one, unless it is told not to."""
        options = ("-w", "-X") if self._events.is_ibm_lsf else ("-w",)
        return answers.read_hosts(self._commands.text("bhosts", *options), unread)

    def waiting(self, known: Container[int]) -> Mapping[int, SubmittedJob | None]:
        """See :class:`~advisor.model.scheduler.Scheduler`: only bjobs is run, for new jobs of IBM LSF."""
        with self._lock:
            jobs, now = self._look().jobs, time.time()
            waiting = [job for job in jobs if job.state in WAITING and not self._is_too_new(job, now)]
            rows = rows_of(waiting)
            new = {job_id: row for job_id, row in rows.items() if job_id not in known}
            found: dict[int, SubmittedJob | None] = dict.fromkeys(rows)
            for queued in self._rows(new, now):
                begins = None if queued.is_held else new[queued.job.job_id][0].begin_time
                found[queued.job.job_id] = SubmittedJob(queued=queued, eligible_time=begins)
        return found

    def reservations(self) -> tuple[Reservation, ...]:
        """See :class:`~advisor.model.scheduler.Scheduler`; those of brsvadd."""
        return read_reservations(self._commands.optional("brsvs", "-w"), time.time())

    def partitions(self) -> tuple[Partition, ...]:
        """See :class:`~advisor.model.scheduler.Scheduler`."""
        with self._lock:
            hosts = self._hosts(answers.Unread())
            site = self._site.read(hosts)
        return partitions_of(hosts, site, self._settings.cluster, self.cloud_hosts)

    def config(self) -> Mapping[str, str]:
        """Whether jobs are rerunnable is their users' word; they wait for the memory of their ``rusage``."""
        words = {"JobRequeue": "0", "SelectTypeParameters": "CR_Core_Memory"}
        words["SuspendTime"] = str(self._installation.idle_seconds or "INFINITE")
        return {"ClusterName": self._settings.cluster.name, **words}

    def name(self) -> str:
        """LSF's name of the cluster; empty where `lsid` does not say."""
        return answers.read_cluster_name(self._commands.text("lsid")) if self._commands.has("lsid") else ""

    def ping(self) -> bool:
        """See :class:`~advisor.model.scheduler.Scheduler`."""
        try:
            return "QUEUE_NAME" in self._commands.text("bqueues", "-w")
        except RetryLater:
            return False

    def ingest(self, store: HistoryStore, *, source: str) -> IngestReport:
        """Add the jobs that have ended since the last time, from lsb.acct."""
        folder, advice = self._installation.log_folder, self._book.advice_of
        with self._lock:
            self._look()
            terms = self._site.terms(self._hosts(answers.Unread()), self._installation.memory_unit)
        # the first time this may take minutes, in which the other loops go on
        return ingest_lsb_acct(store, [folder], source=source, terms=terms, advice_of=advice)

    def join(self, store: HistoryStore, *, source: str) -> int:
        """Join the advice that esubs asked for to its jobs; return how many were joined.

        The ledger has the link at once, so that a job may end before its advice is found.
        """
        since = time.time() - _JOIN_SECONDS
        with self._lock:
            jobs = [job for job in (*self._look().jobs, *self._ended) if job.submit_time >= since]
            self._ended = [job for job in self._ended if job.submit_time >= since]
            known = self._book.advice_ids
            new = [job for job in jobs if job.job_id not in known and full_id(job) not in known]
            given = store.unlinked(since) if new else ()
            free = [record for record in given if record.advice.advice_id not in set(known.values())]
            found = joined(new, free, burst_queues=self._burst_queues())
            self._book.keep({job_id: admin_comment(one.advice) for job_id, one in found.items()}, {})
            waiting = {job.job_id: job for job in new if job.state in WAITING}
            for refusal in self._modify(raised(found, waiting), waiting):
                log.info("lsf.not_first", job=refusal.job_id, why=str(refusal))
        for job_id, record in found.items():
            store.link(record.advice.advice_id, job_id, source=source)
        return len(found)

    def _burst_queues(self) -> frozenset[str]:
        """The cloud's queue, and those that stand for its features: all that are not on-premise."""
        queues = self._site.last.queues.keys() - set(self._settings.cluster.on_premise_partitions)
        return frozenset({self._settings.cluster.burst_partition, *queues})

    def _is_too_new(self, job: LiveJob, now: float) -> bool:
        """Whether an esub may have asked about it, and its advice is on its way, or bjobs is to show it."""
        age = now - job.submit_time
        is_hidden = job.is_unshown and age < _SHOWN_SECONDS
        return is_hidden or (self._settings.submit.every_user and age < _ESUB_SECONDS)

    def _look(self, *, fresh: bool = False) -> JobsInEvents:
        """The live jobs; what is kept of their advice is settled by them. `fresh`: to change something."""
        looked = self._events.look()
        looked = replace(looked, jobs=self._bjobs.completed(looked.jobs, fresh=fresh))
        self._ended += looked.finished if self._settings.submit.every_user else ()
        queues = {job_id: job.queue for job_id, (job, _) in rows_of(looked.jobs).items()}
        self._book.settle({*queues, *(job.job_id for job in looked.jobs)}, queues, time.time())
        return looked

    def _rows(self, rows: Mapping[int, tuple[LiveJob, int]], now: float) -> Iterator[QueuedJob]:
        return queued_jobs(
            rows,
            site=self._site.last,
            burst=self._settings.cluster.burst_partition,
            comments=self._book.comments,
            now=now,
            memory_unit=self._installation.memory_unit,
        )

    # ---------------------------------------------------------------------------------------- changing

    def update_job(self, job_ids: Collection[int], changes: Mapping[str, str]) -> None:
        """See :class:`~advisor.model.scheduler.Scheduler`."""
        self.update_jobs(dict.fromkeys(job_ids, changes))

    def update_jobs(self, changes: Mapping[int, Mapping[str, str]]) -> None:
        """See :class:`~advisor.model.scheduler.Scheduler`.

        The words are those of ``scontrol update job``: partition, admincomment, timelimit (minutes),
        features, excnodelist (off spot), sitefactor (the highest priority of a user's job, where there are
        such and its user has given none). A preference, a start time and whether a job may be requeued,
        which LSF need not know before it starts, are left out.
        bswitch also takes jobs that run; one that has begun meanwhile is put back.
        """
        with self._lock:
            looked, here = self._look(fresh=True).jobs, self._settings.cluster.on_premise_partitions
            self._names = names_of(looked)
            before = {job_id: job for job_id, (job, _) in rows_of(looked).items()}
            ours = {job_id for job_id in changes if self._book.advice_of(job_id)}
            refusals = changing.refused(changes, before, ours, self._site.lets_in)
            due = {
                job_id: changing.with_limit_of_home(said, before[job_id], self._site.last.queues, here)
                for job_id, said in changing.without(changes, refusals).items()
            }
            queues = changing.values_of(due, "partition")
            comments = changing.values_of(due, "admincomment")
            self._book.keep(comments, queues)
            unmodified = self._modify(due, before)
            for refusal in unmodified:
                if refusal.job_id in queues and not refusal.is_late:  # it is not moved either
                    self._book.forget(refusal.job_id)
            refusals += unmodified
            queues = changing.without(queues, refusals)
            unmoved = self._move(queues, before, comments)
            for job_id in changing.ids_of(unmoved).difference(self._book.moving):
                self._take_back(job_id, before[job_id], due[job_id])
            refusals += unmoved
        if refusals:
            raise refusals[-1]

    def _modify(
        self, changes: Mapping[int, Mapping[str, str]], before: Mapping[int, LiveJob]
    ) -> list[RefusedByLsf]:
        """Set limits and resources, before the move: a job may begin as soon as it is moved."""
        refusals: list[RefusedByLsf] = []
        most = self._site.last.max_priority
        for job_id, said in changes.items():
            options = changing.limit(said["timelimit"], before[job_id]) if "timelimit" in said else []
            options += changing.resources(said, before[job_id], self._settings.cluster.on_premise_partitions)
            if "sitefactor" in said and most is not None and before[job_id].priority is None:
                options += ["-sp", str(most)]
            if options:
                refusals += self._told(job_id, "bmod", *options, self._named(job_id))
        return refusals

    def _move(
        self, queues: Mapping[int, str], before: Mapping[int, LiveJob], comments: Mapping[int, str]
    ) -> list[RefusedByLsf]:
        """Switch waiting jobs; lsb.events says which are where they were to go."""
        said, here = dict[str, RetryLater](), self._settings.cluster.on_premise_partitions
        for queue in sorted(set(queues.values())):
            ids = [job_id for job_id, goes in queues.items() if goes == queue]
            for begin in range(0, len(ids), _JOBS_A_CALL):
                try:
                    self._commands.text(
                        "bswitch", queue, *map(self._named, ids[begin : begin + _JOBS_A_CALL])
                    )
                except RetryLater as error:
                    said[queue] = error
        looked = self._look(fresh=True).jobs if queues else ()
        begun = {
            (one, job.queue) for job in looked if job.switched_running for one in (full_id(job), job.job_id)
        }
        after = {job_id: job for job_id, (job, _) in rows_of(looked).items()}
        refusals: list[RefusedByLsf] = []
        for job_id, queue in queues.items():
            job = after.get(job_id)
            if (job_id, queue) in begun:
                refusals += self._put_back(job_id, before[job_id].queue)
            elif job is None or job.queue != queue:
                why = said.get(queue)
                if why is None or why.code != LATE:  # else LSF may still do it: the next snapshot shows it
                    self._book.forget(job_id)
                refusals.append(RefusedByLsf(job_id, str(why or "it has begun, or has ended")))
            else:
                was = before[job_id]
                options = changing.after_move(was, self._site.last.queues.get(queue), here)
                for refusal in self._told(job_id, "bmod", *options, self._named(job_id)) if options else ():
                    log.warning("lsf.may_run_twice", job=job_id, why=str(refusal))
                self._tell_user(job_id, job, changing.words_for_user(was.queue, comments.get(job_id, "")))
        return refusals

    def _put_back(self, job_id: int, queue: str) -> list[RefusedByLsf]:
        self._book.forget(job_id)
        log.info("lsf.put_back", job=job_id, queue=queue)
        refusals = self._told(job_id, "bswitch", queue, self._named(job_id))
        return [*refusals, RefusedByLsf(job_id, "it has begun meanwhile, and is in its own queue again")]

    def _take_back(self, job_id: int, job: LiveJob, changes: Mapping[str, str]) -> None:
        """What was set for a move that was not made; else no host here fits the job."""
        options = changing.taken_back(changes, job, is_absolute=self._site.last.has_absolute_limits)
        for refusal in self._told(job_id, "bmod", *options, self._named(job_id)) if options else ():
            log.warning("lsf.not_taken_back", job=job_id, why=str(refusal))

    def _take_back_unmade(self, jobs: Collection[LiveJob]) -> bool:
        """Take back what was set for moves that a crash, or an LSF without an answer, has cut short."""
        if not (moving := self._book.moving):
            return False
        rows, self._names = rows_of(jobs), names_of(jobs)
        found = [one for one in moving if one in rows and rows[one][0].state in WAITING]
        for job_id in found:
            self._take_back(job_id, rows[job_id][0], {})
            self._book.forget(job_id)
        return bool(found)

    def _tell_user(self, job_id: int, job: LiveJob, text: str) -> None:
        """By bpost where there is one, else in the job's description, where its user has written none."""
        if not self._settings.submit.tell_user:
            return
        is_free = not job.description or job.description.startswith(OUR_WORDS)
        words = ("bpost", "-d") if self._commands.has("bpost") else ("bmod", "-Jd") if is_free else ()
        for refusal in self._told(job_id, *words, text, self._named(job_id)) if words else ():
            log.info("lsf.user_not_told", job=job_id, why=str(refusal))

    def update_node(self, nodes: Collection[str], **change: Unpack[NodeChange]) -> None:
        """See :class:`~advisor.model.scheduler.CloudScheduler`; LSF has no addresses, weights or features."""
        if self.cloud_hosts is not None and "state" in change:
            self.cloud_hosts.update(nodes, change["state"], change.get("reason") or "burst advisor")

    def _close_host(self, host: str, why: str) -> None:
        self._commands.text("badmin", "hclose", "-C", why, host)

    def requeue(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.model.scheduler.Scheduler`. Of an array, name each element by its own id."""
        self._commands.text("brequeue", *map(job_name, job_ids))

    def requeue_ended(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.model.scheduler.CloudScheduler`. LSF does so by itself (`JobsUnwarned`)."""
        self._commands.text("brequeue", "-e", *map(job_name, job_ids))

    def release(self, job_ids: Collection[int]) -> None:
        """See :class:`~advisor.model.scheduler.Scheduler`."""
        self._commands.text("bresume", *map(job_name, job_ids))

    def _named(self, job_id: int) -> str:
        return self._names.get(job_id) or job_name(job_id)

    def _told(self, job_id: int, *words: str) -> list[RefusedByLsf]:
        """Run a command about one job; what it refused."""
        try:
            self._commands.text(*words)
        except RetryLater as error:
            return [RefusedByLsf(job_id, str(error), is_late=error.code == LATE)]
        return []
