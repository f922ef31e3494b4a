"""Schedules and bills computed by hand: every provisioning, order, fit and billing of the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest

from advisor.model.errors import BadInput
from advisor.simulate.portfolio import _tick
from advisor.simulate.portfolio.cluster import Cloud, RentedCluster, Runtimes
from advisor.simulate.portfolio.online import OnlineSimulator, Situation, empty_jobs
from advisor.simulate.portfolio.policies import (
    PUBLISHED,
    JobOrder,
    NodeChoice,
    Provisioning,
    Release,
    RentingPolicy,
)
from advisor.simulate.portfolio.state import NODE, Rules
from tests.simulate.portfolio import oracle

ODA, ODB, ODE, ODM, ODX = Provisioning
FCFS, LXF, WFP3, UNICEF, _ = JobOrder
FIRST, BEST, WORST = NodeChoice
CLOUD = Cloud(max_nodes=8, boot_seconds=120.0, tick_seconds=20.0)


def run(jobs, provisioning=ODA, order=FCFS, choice=FIRST, cloud=CLOUD, **more):
    """Starts, hours charged."""
    policy = RentingPolicy(provisioning=provisioning, order=order, choice=choice, **more)
    cluster = RentedCluster(jobs, cloud, Runtimes.ACTUAL, [policy])
    cluster.advance(chooses=False)
    return cluster.state.job["start"].tolist(), cluster.totals().charged_seconds / 3600.0


def test_sixty_policies():
    assert len({policy.name for policy in PUBLISHED}) == 60


# Two jobs come while a long one runs on two nodes, of 600 s on one node and of 1,200 s on three.
BUSY = [(0, 3000, 2), (200, 600, 1), (200, 1200, 3)]


@pytest.mark.parametrize(
    ("provisioning", "starts", "hours"),
    [
        # four nodes more at 200, up at 320; done at 920 and 1,520: 2 + 1 + 3 hours
        (ODA, [120.0, 320.0, 320.0], 6.0),
        # four waited for, two rented: two more at 200. The narrow one starts at 320, the wide one waits until
        # the long job ends at 3,120. The first two and one more are held to 4,320, the fourth to 3,120
        (ODB, [120.0, 320.0, 3120.0], 7.0),
        # ceil((600 + 3,600) / 3,600) = 2 nodes, there are two: none is rented. The long one ends at 3,120,
        # nothing runs: the wide one's three are wanted, one more is rented. The narrow one takes one of the
        # two, and the wide one has its three when that is done
        (ODE, [120.0, 3120.0, 3720.0], 5.0),
        # the widest wants three: up at 320. The narrow one goes first; at the next tick there is one idle
        # node less than the wide one wants: another is rented at 340, up at 460
        (ODM, [120.0, 320.0, 460.0], 6.0),
    ],
)
def test_provisioning(by_hand, provisioning, starts, hours):
    assert run(by_hand(BUSY), provisioning) == (starts, hours)


def test_odx_rents_when_the_slowdown_reaches_two(by_hand):
    """A job of 300 s gets its node after 300 s of waiting, a second-long one after 10 s: at the next tick."""
    assert run(by_hand([(0, 300, 1), (2000, 1, 1)]), ODX) == ([420.0, 2140.0], 2.0)


# Four jobs queue behind one that holds all eight nodes until 1,120.
QUEUE = [(0, 1000, 8), (130, 400, 1), (300, 100, 8), (500, 100, 1), (520, 60, 4)]


@pytest.mark.parametrize(
    ("order", "sequence"),
    [
        (FCFS, [1, 2, 3, 4]),
        # waits of 990, 820, 620, 600 s over run times: 2.475, 8.2, 6.2, 10
        (LXF, [4, 2, 3, 1]),
        # cubes of those times processors: 15.2, 4,411, 238, 4,000
        (WFP3, [2, 4, 3, 1]),
        # 2.475 / 1, 8.2 / 3, 6.2 / 1, 10 / 2 (one processor counts as two)
        (UNICEF, [3, 4, 2, 1]),
    ],
)
def test_orders(by_hand, order, sequence):
    """The order in which they would start one by one, at 1,120."""
    jobs = by_hand(QUEUE)
    rows = sorted(
        sequence,
        key=lambda row: (
            -(1120.0 - jobs.submit[row]) * _tick.weight_of(int(order), jobs.run[row], jobs.processors[row])
        ),
    )
    assert rows == sequence
    starts, _ = run(jobs, ODM, order)
    first = sequence[0]
    assert starts[first] == 1120.0
    assert all(starts[first] <= starts[later] for later in sequence)


def test_head_blocks_and_backfilling_does_not(by_hand):
    """Six nodes free behind a wide job: a short one may pass it only with backfilling, a long one never."""
    jobs = by_hand([(0, 1000, 4), (0, 600, 4), (200, 500, 8), (210, 300, 1), (220, 900, 1)])
    blocked, _ = run(jobs, ODA)
    assert blocked == [120.0, 120.0, 1120.0, 1620.0, 1620.0]
    passed, _ = run(jobs, ODA, backfill=True)
    assert passed == [120.0, 120.0, 1120.0, 720.0, 1620.0]


@pytest.mark.parametrize(
    ("length", "choice", "since"),
    [
        # leaves 560 s of the first one's hour and 2,560 s of the other's
        (400, FIRST, 0.0),
        (400, BEST, 0.0),
        (400, WORST, 2000.0),
        # ends in the first one's second hour, which has 3,360 s left then, and the other's first has 1,760
        (1200, FIRST, 0.0),
        (1200, BEST, 2000.0),
        (1200, WORST, 0.0),
    ],
)
def test_fits(by_hand, length, choice, since):
    """Kept nodes of 0 and 2,000 are idle at 2,640, when a job comes."""
    jobs = by_hand([(0, 2500, 1), (2000, 500, 1), (2640, length, 1)])
    policy = RentingPolicy(provisioning=ODA, order=FCFS, choice=choice)
    life = oracle.live(jobs, Cloud(release=Release.HOUR_KEPT, max_nodes=2), Runtimes.ACTUAL, policy)
    assert [node.since for node in life.nodes if life.jobs[2] in node.ran] == [since]
    cluster = RentedCluster(jobs, Cloud(release=Release.HOUR_KEPT, max_nodes=2), Runtimes.ACTUAL, [policy])
    cluster.advance(chooses=False)
    node = cluster.state.node
    assert [float(one["since"]) for one in node if one["begun"] == 2640.0] == [since]


@pytest.mark.parametrize(
    ("release", "hours"),
    [
        # two jobs of 1,800 s on a node each, given back at 1,920 and 3,320; a third comes at 3,400
        (Release.HOUR, 3.0),
        # the first node is kept to 3,600 - 20 and the second beyond 3,400: the third job runs there
        (Release.HOUR_KEPT, 2.0),
        # 1,920 each, and the last one to its end
        (Release.SECOND, (1920.0 + 1920.0 + 220.0) / 3600.0),
    ],
)
def test_billing(by_hand, release, hours):
    cloud = Cloud(release=release, max_nodes=8)
    jobs = by_hand([(0, 1800, 1), (1400, 1800, 1), (3400, 100, 1)])
    assert run(jobs, cloud=cloud)[1] == pytest.approx(hours)


@pytest.mark.parametrize(
    ("held", "hour", "second"),
    [
        (0.5, 3600.0, 60.0),
        (60.0, 3600.0, 60.0),
        (60.5, 3600.0, 61.0),
        (3600.0, 3600.0, 3600.0),
        (3600.5, 7200.0, 3601.0),
    ],
)
def test_charge(held, hour, second):
    assert _tick.charge(held, int(Release.HOUR)) == hour
    assert _tick.charge(held, int(Release.HOUR_KEPT)) == hour
    assert _tick.charge(held, int(Release.SECOND)) == second


@pytest.mark.parametrize(
    ("alpha", "beta", "utility"),
    [
        # 1,800 + 2 x 5 s worked of three hours charged; slowdowns (120 + 1,800) / 1,800 and (120 + 5) / 10
        (1.0, 1.0, 100.0 * (1810.0 / 10_800.0) / ((1920.0 / 1800.0 + 12.5) / 2.0)),
        (0.0, 1.0, 100.0 / 6.783333333333333),
        (1.0, 0.0, 16.75925925925926),
        (2.0, 0.5, 100.0 * (1810.0 / 10_800.0) ** 2 / 6.783333333333333**0.5),
    ],
)
def test_utility(by_hand, alpha, beta, utility):
    """Section 2; run times below 10 s count as 10 in the slowdown, and as they are in the work."""
    policy = RentingPolicy(provisioning=ODA, order=FCFS, choice=FIRST)
    cluster = RentedCluster(by_hand([(0, 1800, 1), (0, 5, 2)]), CLOUD, Runtimes.ACTUAL, [policy])
    cluster.advance(chooses=False)
    assert cluster.totals().utility(alpha, beta) == pytest.approx(utility)


def test_utility_of_a_queue_by_itself():
    """The paper's score: a job of 1,800 s that has waited 60 s, and boots 120 s; it is charged an hour."""
    policy = RentingPolicy(provisioning=ODA, order=FCFS, choice=FIRST)
    waiting = empty_jobs(1)
    waiting["submit"], waiting["run"], waiting["estimate"], waiting["processors"] = 940.0, 1800.0, 1800.0, 1
    queue = Situation(now=1000.0, profile=np.zeros(0, NODE), jobs=waiting)
    rules = Rules(max_nodes=8, boot=120.0, tick=20.0, release=0, runtimes=0, checkpoint=3600.0)
    outcomes = OnlineSimulator([policy], rules).simulate(queue, np.array([0]))
    assert outcomes.utility(queue).tolist() == pytest.approx([100.0 * 0.5 / (1980.0 / 1800.0)])
    assert outcomes.utility(queue, alpha=2.0, beta=0.0).tolist() == pytest.approx([25.0])


def test_headroom_is_there_for_the_next_job(by_hand):
    """One warm node: the second job does not wait for a boot, and a node more is paid for."""
    jobs = by_hand([(0, 60, 1), (1000, 60, 1)])
    assert run(jobs)[0] == [120.0, 1120.0]
    assert run(jobs, headroom=1)[0] == [120.0, 1000.0]


@pytest.mark.parametrize(
    ("order", "exact"),
    [
        (LXF, lambda q, t, _: (q + t) / t),
        (WFP3, lambda q, t, n: (q / t) ** 3 * n),
        (UNICEF, lambda q, t, n: q / (math.log2(max(n, 2)) * t)),
    ],
)
def test_weights_order_as_the_formulas_do(order, exact):
    generator = np.random.default_rng(1)
    wait, run_time = generator.uniform(1, 9000, 200), generator.uniform(1, 9000, 200)
    width = generator.integers(1, 64, 200)
    ours = [q * _tick.weight_of(int(order), t, n) for q, t, n in zip(wait, run_time, width, strict=True)]
    paper = [exact(q, t, n) for q, t, n in zip(wait, run_time, width, strict=True)]
    assert np.argsort(ours).tolist() == np.argsort(paper).tolist()


def test_jobs_that_could_never_start_are_refused(by_hand):
    with pytest.raises(BadInput):
        run(by_hand([(0, 60, 9)]))
