"""EC2's notices about the end of instances, and how often each job lost its node. Kept on disk.

The notice loop writes them down, the interruption loop acts on them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final

from advisor.ec2.interruptions import Notice, NoticeKind
from advisor.files.state_file import StateFile
from advisor.service.state.records import Interruptions

_MAX_INSTANCES: Final = 20_000
_MAX_JOBS: Final = 100_000
_SETTLING_SECONDS: Final = 300.0
_GIVEN_UP: Final = "given_up"  # not of EC2's: its node was powered down


class InterruptionRecord:
    """Notices by instance, interruptions by job. Thread-safe.

    Unreadable state counts as empty: at worst a job is signalled twice, or is interrupted once more before it
    gets on-demand capacity.
    """

    def __init__(self, state: StateFile[Interruptions]) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._kept = state.read()
        self.totals = self._kept.totals
        self._ended_at: dict[str, float] = {}  # by EC2's clock; the poll of spot requests tells it anew

    def note(self, notices: Iterable[Notice], now: float) -> list[Notice]:
        """Remember notices; returns the new ones (EC2 sends messages more than once)."""
        news = []
        with self._lock:
            for notice in notices:
                if notice.kind is NoticeKind.ENDED and notice.time:
                    self._ended_at.setdefault(notice.instance_id, min(notice.time, now))
                kinds = self._kept.notices.setdefault(notice.instance_id, {})
                if notice.kind.value in kinds:
                    continue
                kinds[notice.kind.value] = now
                self._count(notice.kind.value)
                news.append(notice)
            while len(self._kept.notices) > _MAX_INSTANCES:
                del self._kept.notices[next(iter(self._kept.notices))]
            if news:
                self._save()
        return news

    def said(self, instance_id: str, *kinds: NoticeKind) -> bool:
        """Whether EC2 sent a notice of one of these kinds about an instance."""
        with self._lock:
            known = self._kept.notices.get(instance_id, {})
            return any(kind.value in known for kind in kinds)

    def ended_at(self, instance_id: str) -> float | None:
        """When an instance ended by EC2's own word, epoch seconds; None if this process was not told."""
        with self._lock:
            return self._ended_at.get(instance_id)

    def given_up(self, instance_ids: Iterable[str], now: float) -> None:
        """Note that these instances' nodes were powered down: their notices concern no node any more."""
        with self._lock:
            known = [name for name in instance_ids if name in self._kept.notices]
            for name in known:
                self._kept.notices[name].setdefault(_GIVEN_UP, now)
            if known:
                self._save()

    def concerns_its_node(self, instance_id: str) -> bool:
        """Whether an instance's notices still concern its node, which may have a newer instance."""
        with self._lock:
            known = self._kept.notices.get(instance_id, {})
            return _GIVEN_UP not in known and NoticeKind.ENDED.value not in known

    def notices(self) -> dict[str, dict[str, float]]:
        """Instance to kind of notice to time (epoch seconds)."""
        with self._lock:
            return {instance: dict(kinds) for instance, kinds in self._kept.notices.items()}

    def warn_once(self, instance_id: str, job_id: int) -> bool:
        """Whether a job has not been warned about this instance yet."""
        with self._lock:
            return f"{instance_id}/{job_id}" not in self._kept.warned

    def warned(self, instance_id: str, job_id: int) -> None:
        """A job has been warned."""
        with self._lock:
            self._kept.warned.add(f"{instance_id}/{job_id}")
            self._count("jobs_warned")
            self._save()

    def interrupted(self, job_ids: Iterable[int], instance_id: str) -> None:
        """Count jobs that lost their node to EC2, each once for an instance, whichever loop notices it."""
        with self._lock:
            news = [job_id for job_id in job_ids if f"{instance_id}/{job_id}" not in self._kept.counted]
            if not news:
                return
            for job_id in news:
                self._kept.counted.add(f"{instance_id}/{job_id}")
                self._kept.jobs[job_id] = self._kept.jobs.get(job_id, 0) + 1
                self._kept.to_place.add(job_id)
                self._count("jobs_interrupted")
            while len(self._kept.jobs) > _MAX_JOBS:
                del self._kept.jobs[next(iter(self._kept.jobs))]
            self._save()

    def leaves(self, job_id: int) -> None:
        """Note a job that gives its node up for one on spot, which is no interruption."""
        with self._lock:
            self._kept.to_place.add(job_id)
            self._count("jobs_back_to_spot")
            self._save()

    def interruptions_of(self, job_id: int) -> int:
        """How often EC2 took a job's node."""
        with self._lock:
            return self._kept.jobs.get(job_id, 0)

    def to_place(self) -> frozenset[int]:
        """Jobs that lost their node and have not got another one yet."""
        with self._lock:
            return frozenset(self._kept.to_place)

    def placed(self, job_ids: Collection[int]) -> None:
        """Note jobs that have a node again, or have left."""
        with self._lock:
            if self._kept.to_place & set(job_ids):
                self._kept.to_place -= set(job_ids)
                for job_id in job_ids:
                    self._kept.own_exclusions.pop(job_id, None)
                self._save()

    def own_exclusions(self, job_id: int, ask: Callable[[int], str]) -> str:
        """The nodes that a job's user excludes; asked for before the first change, when they stand alone.

        Raises:
            OSError: They cannot be written: after a restart others would be taken for them.
        """
        with self._lock:
            known = self._kept.own_exclusions.get(job_id)
        if known is not None:
            return known
        found = ask(job_id)
        with self._lock:
            self._kept.own_exclusions[job_id] = found
            try:
                self._state.write(self._kept)
            except OSError:
                del self._kept.own_exclusions[job_id]
                raise
        return found

    def warned_about(self, instance_id: str) -> frozenset[int]:
        """Jobs that were warned about an instance."""
        with self._lock:
            pairs = (text.partition("/") for text in self._kept.warned)
            return frozenset(int(job) for name, _, job in pairs if name == instance_id and job.isdigit())

    def forget(self, *, instances_left: Collection[str], jobs_left: Collection[int], now: float) -> None:
        """Drop what concerns instances that EC2 no longer lists and jobs that have left the queue.

        Notices of the last minutes stay: EC2 may not list their instances yet (F06).
        """
        instances, jobs = set(instances_left), set(jobs_left)
        with self._lock:
            notices = {
                name: kinds
                for name, kinds in self._kept.notices.items()
                if name in instances or abs(now - max(kinds.values(), default=0.0)) < _SETTLING_SECONDS
            }
            self._ended_at = {name: time for name, time in self._ended_at.items() if name in notices}
            counted = {text for text in self._kept.counted if text.partition("/")[0] in instances}
            # between its end on one node and its next place a job may not be in the queue for a moment
            jobs |= {int(job) for text in counted if (job := text.partition("/")[2]).isdigit()}
            counts = {job: count for job, count in self._kept.jobs.items() if job in jobs}
            warned = {text for text in self._kept.warned if text.partition("/")[0] in instances}
            if (notices, counts, warned) != (self._kept.notices, self._kept.jobs, self._kept.warned):
                self._kept.notices, self._kept.jobs, self._kept.warned = notices, counts, warned
                self._kept.counted = counted
                self._kept.to_place &= jobs
                for left in self._kept.own_exclusions.keys() - self._kept.to_place:
                    del self._kept.own_exclusions[left]
                self._save()

    def _count(self, name: str) -> None:
        self.totals[name] = self.totals.get(name, 0) + 1

    def _save(self) -> None:
        self._state.keep(self._kept, "interruptions.not_saved")
