"""Nodes that last, on a real slurmctld: long jobs land there, and the acquirer's exchange disturbs nobody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.matching import NODES, MatchingSite, matching_site, summary
from tests.slurm.steps import cancel_all

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]


@pytest.fixture(scope="module")
def site_of_all() -> Iterator[MatchingSite]:
    with matching_site(enabled=True, generator=np.random.default_rng(5)) as site:
        yield site


@pytest.fixture
def lasting(site_of_all: MatchingSite) -> MatchingSite:
    """Without what a test that failed has left."""
    cancel_all(site_of_all.site.lab)
    return site_of_all


def test_long_jobs_land_on_the_nodes_that_stay(lasting: MatchingSite) -> None:
    """Three nodes of six stay: by chance it would be half of the jobs.

    Where an answer comes late, as on a busy machine, a job lands by chance: ten rounds judge then, not five.
    """
    landed = []
    for number in range(10):
        landed += lasting.round(waiting=number % 2 == 1, reclaims=number == 2)
        if number >= 4 and summary(landed)["on_steady_share"] >= 0.8:
            break
    found = summary(landed)
    assert found["on_steady_share"] >= 0.8, [(item.on_steady, item.had_waited) for item in landed]
    assert found["on_steady_share_of_those_that_waited"] >= 0.75, landed
    assert found["interrupted"] <= sum(not item.on_steady for item in landed)


def test_an_admin_sees_and_undoes_all_of_it_and_a_reconfigure_ends_it(lasting: MatchingSite) -> None:
    lasting.make_ready()
    lab = lasting.site.lab
    blockers = [lasting.submit("--time=15") for _ in range(NODES)]
    lasting.site.wait_until("all nodes are busy", lambda: all(map(lasting.node_of, blockers)))
    # what the user says of himself is left alone
    own = lab.sbatch(
        "--partition=burst", "--ntasks=1", "--time=60", "--prefer=cloud", script="sleep 600"
    ).job_id
    job = lasting.submit("--time=60")
    lasting.site.wait_until("it is steered", lambda: lab.job(job).get("Prefer") == "steady")
    assert lab.job(own)["Prefer"] == "cloud"
    lab.run("scontrol", "reconfigure")  # every node has the feature again, for a moment
    lasting.site.wait_until("nodes are marked again", lambda: len(lasting.holders()) == NODES // 2)
    lab.run("scontrol", "update", f"jobid={job}", "prefer=")
    lasting.cancel([*blockers, job, own])


def acquirer(site: MatchingSite) -> dict[str, Any]:
    status = json.loads(site.site.advisor("status", "--format", "json").stdout)
    return dict(status["control"]["acquirer"])


def test_the_acquirer_retires_a_shaky_node_and_its_job_ends_in_peace(tmp_path: Path) -> None:
    """A site of its own, with nodes to spare and an hour of seconds; no pool of it has been empty before."""
    often: dict[str, dict[str, Any]] = {
        "cluster": {"policy": "price"},  # the published policy exchanges the newest node
        "loops": {"acquire_seconds": 3.0},
        "acquirer": {"kept_nodes": 3},
    }
    generator = np.random.default_rng(5)
    with matching_site(enabled=True, generator=generator, settings=often, steady_room=0) as site:
        lab, go = site.site.lab, tmp_path / "go"
        site.site.wait_until("three nodes are up", lambda: len(site.idle_nodes()) == NODES // 2)
        script = f"while [ ! -e {go} ]; do sleep 0.2; done"
        asked = ("--partition=burst", "--ntasks=1", "--time=15")
        jobs = [lab.sbatch(*asked, script=script).job_id for _ in range(2)]
        site.site.wait_until("they run", lambda: all(map(site.node_of, jobs)))
        site.room(shaky=0, steady=4)
        site.forget_empty_pools()
        site.site.wait_until("a node is retired", lambda: acquirer(site)["nodes_retired"] >= 1)
        site.site.wait_until(
            "one with a job, too", lambda: bool(retiring(site) & set(map(site.node_of, jobs)))
        )
        assert [lab.job(job)["JobState"] for job in jobs] == ["RUNNING"] * 2
        go.touch()
        assert set(lab.wait_for_jobs(jobs, seconds=180.0).values()) == {"COMPLETED"}
        assert [lab.job(job)["Restarts"] for job in jobs] == ["0"] * 2
        site.site.wait_until(
            "what is kept is steady", lambda: set(site.pool_of_nodes().values()) == {"steady"}
        )


def retiring(site: MatchingSite) -> set[str]:
    rows = json.loads(site.site.advisor("nodes", "--format", "json").stdout)["nodes"]
    return {row["node"] for row in rows if row["retiring"]}
