"""What idle nodes are worth to jobs that may come, and what busy ones cost them: by hand."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.simulate.portfolio.arrivals import ExpectedJob, Hindrance, rate_of
from advisor.simulate.portfolio.online import OnlineSimulator, Situation, empty_jobs
from advisor.simulate.portfolio.policies import (
    JobOrder,
    NodeChoice,
    Provisioning,
    Release,
    RentingPolicy,
)
from advisor.simulate.portfolio.state import NODE, Rules

HOUR = 3600.0
DAY = 86_400.0


def rules(release: Release = Release.HOUR) -> Rules:
    return Rules(max_nodes=4, boot=120.0, tick=20.0, release=int(release), runtimes=1, checkpoint=HOUR)


def test_rate_is_of_the_last_hours_and_a_little_of_the_last_day() -> None:
    assert rate_of(np.array([]), 0.0) == 0.0
    # 24 jobs within the day, evenly: one an hour by either measure
    evenly = np.arange(24) * HOUR
    assert rate_of(evenly, 24 * HOUR) == pytest.approx(1.0 / HOUR)
    # all of them long ago on the same day: a fifth of the day's rate is left
    assert rate_of(np.zeros(24), DAY) == pytest.approx(0.2 * 24 / DAY)
    # all of them now: four fifths of 24 in two hours, and that fifth
    assert rate_of(np.r_[0.0, np.full(23, DAY)], DAY) == pytest.approx(0.8 * 23 / 7200.0 + 0.2 * 24 / DAY)


@pytest.mark.parametrize(
    ("release", "charged"),
    [
        # one node for 60 s: 3,540 s of the hour; two nodes for 3,600 s: boot included a second hour of each
        (Release.HOUR, [0.0, 3540.0 / 3, (3540.0 + 2 * 3600.0) / 3]),
        # by the second it is the boot that is not paid
        (Release.SECOND, [0.0, 120.0 / 3, (120.0 + 2 * 120.0) / 3]),
    ],
)
def test_what_idle_nodes_spare_the_next_job(release: Release, charged: list[float]) -> None:
    """A third of the jobs each: a minute on one node, an hour on two, and one too wide for the cloud."""
    job = ExpectedJob.of(np.array([1, 2, 5]), np.array([60.0, 3600.0, 5.0]), rules(release))
    assert job.charged[:3] == pytest.approx(charged)
    assert job.charged[4] == job.charged[2]  # more idle nodes than it needs spare it nothing more
    assert job.slowdown[:3] == pytest.approx([0.0, 2.0 / 3, (2.0 + 120.0 / 3600.0) / 3])
    assert job.at(0.5).slowdown == pytest.approx(0.5 * job.slowdown)


def waiting_job_beside_an_idle_node(order: JobOrder, *, backfill: bool, waited: float) -> float:
    """Node-seconds spared where a job on two nodes waits, one node is idle and one gets idle after 600 s."""
    profile = np.zeros(2, NODE)
    profile["since"], profile["begun"] = -1000.0, -1000.0
    profile["ready"], profile["estimate"] = [0.0, 600.0], [1000.0, 1600.0]
    jobs = empty_jobs(1)
    jobs["submit"], jobs["processors"] = -waited, 2
    jobs["run"] = jobs["estimate"] = 1000.0
    expected = ExpectedJob.of(np.array([1]), np.array([100.0]), rules())
    policy = RentingPolicy(
        provisioning=Provisioning.ODB, order=order, choice=NodeChoice.FIRST, backfill=backfill
    )
    situation = Situation(now=0.0, profile=profile, jobs=jobs, ready=expected.at(0.01))
    spared = OnlineSimulator([policy], rules()).simulate(situation, np.array([0])).spared_charged[0]
    return float(spared)


# a job a hundred seconds is expected; one of 100 s on an idle node is spared 3,500 node-seconds; for 600 s
# one node is idle because the one that waits needs two
ALL = 0.01 * 3500.0 * 600.0


def test_an_idle_node_saves_jobs_that_may_pass_the_blocked_one() -> None:
    assert waiting_job_beside_an_idle_node(JobOrder.LXF, backfill=False, waited=20.0) == pytest.approx(ALL)
    assert waiting_job_beside_an_idle_node(JobOrder.FCFS, backfill=True, waited=20.0) == pytest.approx(ALL)


def test_an_idle_node_behind_a_blocked_job_saves_nothing() -> None:
    assert waiting_job_beside_an_idle_node(JobOrder.FCFS, backfill=False, waited=20.0) == 0.0
    # its slowdown is above what a job of 100 s has after five minutes
    assert waiting_job_beside_an_idle_node(JobOrder.LXF, backfill=False, waited=5000.0) == 0.0


def test_a_plan_that_gives_warm_nodes_back_pays_to_rent_others() -> None:
    """Two warm nodes are idle, a job takes one of them for ten minutes; the champion keeps two warm."""
    profile = np.zeros(2, NODE)
    profile["since"], profile["begun"], profile["estimate"] = -1000.0, -1000.0, 120.0
    profile["ready"] = -880.0
    jobs = empty_jobs(1)
    jobs["processors"], jobs["run"], jobs["estimate"] = 1, 600.0, 600.0
    situation = Situation(now=0.0, profile=profile, jobs=jobs)
    bare = RentingPolicy(provisioning=Provisioning.ODA, order=JobOrder.FCFS, choice=NodeChoice.FIRST)
    warm = RentingPolicy(
        provisioning=Provisioning.ODA, order=JobOrder.FCFS, choice=NodeChoice.FIRST, headroom=2
    )
    simulator = OnlineSimulator([bare, warm], rules())
    both = np.array([0, 1])
    # after itself the bare one rents nothing; the warm one has one node fewer than it wants, and rents it
    assert (simulator.simulate(situation, both).charged / HOUR).tolist() == [0.0, 1.0]
    # before the warm one it has given one node back, and two are rented after five minutes
    assert (simulator.simulate(situation, both, 1, 300.0).charged / HOUR).tolist() == [2.0, 1.0]
    # before the bare one its own two are idle in vain
    assert (simulator.simulate(situation, both, 0, 300.0).charged / HOUR).tolist() == [0.0, 1.0]


def test_nothing_is_spared_where_no_job_is_expected() -> None:
    situation = Situation(now=0.0, profile=np.zeros(0, NODE), jobs=empty_jobs(0))
    policy = RentingPolicy(
        provisioning=Provisioning.ODA, order=JobOrder.FCFS, choice=NodeChoice.FIRST, headroom=2
    )
    outcome = OnlineSimulator([policy], rules()).simulate(situation, np.array([0]))
    assert outcome.spared_charged[0] == outcome.spared_slowdown[0] == 0.0


def test_classes_are_powers_of_two_and_hurt_by_the_shortness_of_their_jobs() -> None:
    """Within two days: one node 10 and 5 s (bound 10 s), three nodes 100 s, four 1,000 s, five: too many."""
    found = Hindrance.of(
        np.array([1, 3, 1, 4, 5]), np.array([10.0, 100.0, 5.0, 1000.0, 1.0]), 2 * DAY, max_nodes=4
    )
    assert found.width.tolist() == [1, 4]
    assert found.harm * 2 * DAY == pytest.approx([0.2, 0.011])
    # jobs of an hour do not come so often all day
    assert Hindrance.of(np.array([2]), np.array([10.0]), HOUR, 4).harm == pytest.approx(0.1 / DAY)


def hindered(width: int, waiting: tuple[int, float] | None = None) -> float:
    """Slowdown per harm on four nodes, busy for 100, 100, 300 and 600 s, with a job of 20 s that waits."""
    profile = np.zeros(4, NODE)
    profile["since"] = profile["begun"] = -1000.0
    profile["ready"] = [600.0, 100.0, 300.0, 100.0]
    profile["estimate"] = profile["ready"] + 1000.0
    jobs = empty_jobs(0 if waiting is None else 1)
    if waiting is not None:
        jobs["processors"], jobs["run"] = waiting
        jobs["estimate"] = jobs["run"]
    ready = ExpectedJob.of(np.array([9]), np.array([20.0]), rules()).at(
        1.0, Hindrance(np.array([width]), np.array([1.0]))
    )
    policy = RentingPolicy(provisioning=Provisioning.ODB, order=JobOrder.LXF, choice=NodeChoice.FIRST)
    situation = Situation(now=0.0, profile=profile, jobs=jobs, ready=ready)
    outcome = OnlineSimulator([policy], rules()).simulate(situation, np.array([0]))
    assert outcome.spared_charged[0] == 0.0
    return -float(outcome.spared_slowdown[0])


@pytest.mark.parametrize(("width", "wait"), [(1, 100.0), (2, 100.0), (3, 300.0), (4, 600.0)])
def test_jobs_that_come_to_a_full_cloud_wait_for_the_running_ones(width: int, wait: float) -> None:
    """The queue is empty: a job that comes after t seconds waits for the rest of ``wait``."""
    assert hindered(width) == pytest.approx(wait**2 / 2)


def test_a_plan_is_charged_for_the_nodes_that_expected_jobs_lack() -> None:
    """Two nodes for 800 s at second 100: then both others are idle at 600, the last two at 900."""
    assert hindered(2, (2, 800.0)) == pytest.approx(100.0**2 / 2 + 500.0**2 / 2)
    # before that start three would be idle at 300, afterwards at 900
    assert hindered(3, (2, 800.0)) == pytest.approx(100.0 * 250.0 + 800.0**2 / 2)


def test_nodes_that_cannot_be_rented_save_nothing() -> None:
    """All four nodes are rented, one is idle beside a job on two: it saves no boot and no hour."""
    profile = np.zeros(4, NODE)
    profile["since"] = profile["begun"] = -1000.0
    profile["ready"], profile["estimate"] = [0.0, 600.0, 600.0, 600.0], 1600.0
    jobs = empty_jobs(1)
    jobs["processors"], jobs["run"], jobs["estimate"] = 2, 1000.0, 1000.0
    expected = ExpectedJob.of(np.array([1]), np.array([100.0]), rules())
    policy = RentingPolicy(provisioning=Provisioning.ODB, order=JobOrder.LXF, choice=NodeChoice.FIRST)
    situation = Situation(now=0.0, profile=profile, jobs=jobs, ready=expected.at(0.01))
    outcome = OnlineSimulator([policy], rules()).simulate(situation, np.array([0]))
    assert outcome.spared_charged[0] == outcome.spared_slowdown[0] == 0.0
