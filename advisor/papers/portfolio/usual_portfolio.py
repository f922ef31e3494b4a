"""The portfolio that is replayed by default, by what is known of run times and how nodes are paid."""

from __future__ import annotations

from advisor.decide.portfolio.portfolio_options import CHAMPION
from advisor.simulate.portfolio.cluster import Runtimes
from advisor.simulate.portfolio.policies import BEYOND, PUBLISHED, Release, RentingPolicy


def usual_policies(release: Release) -> tuple[RentingPolicy, ...]:
    """The paper's sixty policies and ours; no warm nodes where idle nodes are released at once."""
    return PUBLISHED + tuple(
        policy for policy in BEYOND if release is not Release.HOUR or policy.headroom == 0
    )


def usual_first_leader(runtimes: Runtimes, release: Release) -> int:
    """The first leader: the selection where run times are exact and no node is kept warm, else the champion.

    There the selection is a third better than the champion on each synthetic workload of the prior.
    """
    return 0 if runtimes is Runtimes.ACTUAL and release is Release.HOUR else CHAMPION
