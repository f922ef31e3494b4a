"""The waiting burst jobs in the policy's order, by Slurm's site factor; and back again.

What a job's factor was is on disk before it is changed, and a factor that somebody else has set meanwhile is
left alone from then on. Left behind by a process that died, factors order jobs that run one after the other
anyway: nobody is held, nobody is lowered.
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
    """A job's site factor before us, and those it may have by us.

    ``possible`` are two while nobody knows whether slurmctld has heard of the last change.
    """

    before: int
    possible: tuple[int, ...]

    def is_ours(self, factor: int) -> bool:
        """Whether nobody else has set it.

        Seen in effect, a change is the only possible one: whoever sets what was before it then means it.
        """
        return factor in self.possible


class OrderedJobs:
    """Orders waiting jobs. Used by one thread.

    Parameters
    ----------
    steering : BurstSteering
        Told.
    state : StateFile of SiteFactors
        Where claims are kept.
    partition : str
        Where they wait.
    most : int
        So many jobs are ordered; those behind keep Slurm's order.
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
        """Whether Slurm's priorities have site factors; RetryLater when it does not answer."""
        return self._steering.knows_site_factors

    def apply(self, order: Sequence[int], waiting: Collection[int], queue: Collection[int]) -> None:
        """Put jobs in order.

        Parameters
        ----------
        order : sequence of int
            Waiting burst jobs, the next first.
        waiting : collection of int
            All jobs that wait in the burst partition and nowhere else, in order or not.
        queue : collection of int
            All jobs of the cluster.

        Raises
        ------
        RetryLater
            slurmctld did not take something; the next call does it.
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
        self._tell(changes, before)

    def let_go(self) -> None:
        """Give each job its own factor back, unless somebody else has set it since.

        Raises
        ------
        RetryLater
            slurmctld did not take it; what is left is remembered.
        """
        if not self._claims:
            return
        before = dict(self._claims)
        seen = self._steering.priorities(jobs=before) if self.is_possible else {}
        changes: dict[int, list[int]] = {}
        for job_id, claim in before.items():
            if job_id not in seen or seen[job_id].site_factor == claim.before:
                continue
            if claim.is_ours(seen[job_id].site_factor):
                changes.setdefault(claim.before, []).append(job_id)
        for_each(sorted(changes.items()), self._set)
        self._claims.clear()
        self._save()
        log.info("portfolio.order_undone", jobs=sum(map(len, changes.values())))

    def _review(self, seen: Mapping[int, Priority], queue: Collection[int]) -> None:
        for job_id, claim in list(self._claims.items()):
            if job_id not in queue:
                del self._claims[job_id]
            elif job_id in seen and not claim.is_ours(seen[job_id].site_factor):
                # an admin, or whoever brings the job back on-premise: it is theirs now
                del self._claims[job_id]
                self._left_alone.add(job_id)

    def _wanted(
        self, ranked: Sequence[int], seen: Mapping[int, Priority], waiting: Collection[int]
    ) -> dict[int, int]:
        """Factor of each job: of those in order, and its own again for any other that we changed."""
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
        """Priority without what we added."""
        return seen[job_id].own + self._before(job_id, seen)

    def _tell(self, changes: Mapping[int, list[int]], before: Mapping[int, Claim]) -> None:
        while len(self._claims) > _MAX_CLAIMS:
            self._claims.pop(next(iter(self._claims)))
        if self._claims != before:
            self._save()  # a factor of ours must never be taken for the site's
        for_each(sorted(changes.items()), self._set)

    def _set(self, change: tuple[int, list[int]]) -> None:
        value, job_ids = change
        self._steering.set_site_factor(job_ids, value)

    def _save(self) -> None:
        claims = {job_id: [claim.before, *claim.possible] for job_id, claim in self._claims.items()}
        self._state.write(SiteFactors(claims=claims))
