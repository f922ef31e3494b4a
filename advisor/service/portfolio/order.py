"""The policy's order of waiting burst jobs, by Slurm's site factor; and how it is undone.

A job's own factor is on disk before it is changed; a factor that the site has set meanwhile is left alone
from then on. The factors of a process that died only change the order of jobs: no job is held or lowered.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from advisor.decide.portfolio.job_order import raising_factors
from advisor.files.state_file import StateFile
from advisor.service.running.isolating import for_each
from advisor.service.state.records import SiteFactors
from advisor.slurm.steering import BurstSteering, Priority

log = structlog.get_logger(__name__)

_MAX_CLAIMS: Final = 5000


@dataclass(frozen=True, slots=True)
class Claim:
    """A job's site factor before our change, and the factors that it may have because of us.

    ``possible`` has two factors while it is unknown whether slurmctld took the last change. Once that is seen
    in effect, only its factor is ours: the factor before it would be set by the site.
    """

    before: int
    possible: tuple[int, ...]


class OrderedJobs:
    """Orders the first ``most`` waiting jobs of a partition; the others keep Slurm's order.

    Used by one thread.
    """

    def __init__(
        self, steering: BurstSteering, state: StateFile[SiteFactors], *, partition: str, most: int
    ) -> None:
        self._steering = steering
        self._partition = partition
        self._state = state
        self._most = most
        self._claims = {
            job_id: Claim(before, tuple(possible))
            for job_id, (before, *possible) in state.read().claims.items()
        }
        self._left_alone: set[int] = set()

    def __len__(self) -> int:
        return len(self._claims)

    @property
    def is_possible(self) -> bool:
        """Whether Slurm's priorities have site factors; RetryLater if slurmctld does not answer."""
        return self._steering.knows_site_factors

    def apply(self, order: Sequence[int], waiting: Collection[int], queue: Collection[int]) -> None:
        """Put jobs in order.

        Args:
            order: Waiting burst jobs, the next first.
            waiting: All jobs that wait in the burst partition and in no other.

        Raises:
            RetryLater: slurmctld refused a change; the next call tries again.
        """
        if not self.is_possible or not (order or self._claims):
            return
        seen = self._steering.priorities(self._partition, [j for j in self._claims if j in queue])
        before = dict(self._claims)
        self._left_alone.intersection_update(queue)
        self._review(seen, queue)
        ranked = [
            job_id for job_id in dict.fromkeys(order) if job_id in seen and job_id not in self._left_alone
        ][: self._most]
        wanted = self._wanted(ranked, seen, waiting)
        changes: dict[int, list[int]] = {}
        for job_id, value in wanted.items():
            if value == self._before(job_id, seen) == seen[job_id].site_factor:
                self._claims.pop(job_id, None)
            else:
                possible = tuple(dict.fromkeys((seen[job_id].site_factor, value)))
                self._claims[job_id] = Claim(self._before(job_id, seen), possible)
            if seen[job_id].site_factor != value:
                changes.setdefault(value, []).append(job_id)
        self._change(changes, before)

    def restore(self) -> None:
        """Restore each job's own factor, unless the site has set another one since.

        Raises:
            RetryLater: slurmctld refused; the rest is remembered.
        """
        if not self._claims:
            return
        before = dict(self._claims)
        seen = self._steering.priorities(jobs=before) if self.is_possible else {}
        changes: dict[int, list[int]] = {}
        for job_id, claim in before.items():
            if job_id not in seen or seen[job_id].site_factor == claim.before:
                continue
            if seen[job_id].site_factor in claim.possible:
                changes.setdefault(claim.before, []).append(job_id)
        for_each(sorted(changes.items()), self._set)
        self._claims.clear()
        self._save()
        log.info("portfolio.order_undone", jobs=sum(map(len, changes.values())))

    def _review(self, seen: Mapping[int, Priority], queue: Collection[int]) -> None:
        for job_id, claim in list(self._claims.items()):
            if job_id not in queue:
                del self._claims[job_id]
            elif job_id in seen and seen[job_id].site_factor not in claim.possible:
                # set by an admin or by a job's return on-premise: we leave it alone
                del self._claims[job_id]
                self._left_alone.add(job_id)

    def _wanted(
        self, ranked: Sequence[int], seen: Mapping[int, Priority], waiting: Collection[int]
    ) -> dict[int, int]:
        """The factor of each job: by its place in the order, or its own for any other job that we changed."""
        places = set(ranked)
        wanted = {
            job_id: claim.before
            for job_id, claim in self._claims.items()
            if job_id in seen and job_id not in places
        }
        behind = [job_id for job_id in waiting if job_id in seen and job_id not in places]
        floor = max((self._bare(job_id, seen) for job_id in behind), default=0)
        own = [self._bare(job_id, seen) for job_id in ranked]
        present = [seen[job_id].site_factor - self._before(job_id, seen) for job_id in ranked]
        factors = raising_factors(own, present, floor)
        wanted |= {
            job_id: self._before(job_id, seen) + factor
            for job_id, factor in zip(ranked, factors, strict=True)
        }
        return wanted

    def _before(self, job_id: int, seen: Mapping[int, Priority]) -> int:
        claim = self._claims.get(job_id)
        return claim.before if claim is not None else seen[job_id].site_factor

    def _bare(self, job_id: int, seen: Mapping[int, Priority]) -> int:
        """Priority without our part."""
        return seen[job_id].own + self._before(job_id, seen)

    def _change(self, changes: Mapping[int, list[int]], before: Mapping[int, Claim]) -> None:
        while len(self._claims) > _MAX_CLAIMS:
            self._claims.pop(next(iter(self._claims)))
        if self._claims != before:
            self._save()  # first: a factor of ours must never be taken for the site's
        for_each(sorted(changes.items()), self._set)

    def _set(self, change: tuple[int, list[int]]) -> None:
        value, job_ids = change
        self._steering.set_site_factor(job_ids, value)

    def _save(self) -> None:
        claims = {job_id: [claim.before, *claim.possible] for job_id, claim in self._claims.items()}
        self._state.write(SiteFactors(claims=claims))
