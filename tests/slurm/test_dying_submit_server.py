"""The submit server dies while jobs come in: all of them run, and those after it as if there were none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from advisor.testing.lab import Submission
from advisor.testing.site import Site
from tests.slurm.test_whole_site import LONG, all_completed_once, moves, ran_on, whole_site

pytestmark = [pytest.mark.slurm, pytest.mark.ec2]


def test_submit_server_killed_in_the_middle_of_a_stream(database_template: Path) -> None:
    with whole_site(database_template) as site:
        site.wait_until("the advisor's word counts", lambda: moves(site))
        _killed(site)


def _killed(site: Site) -> None:
    def submit(number: int) -> Submission:
        if number == 10:
            site.serve.kill()
        return site.lab.sbatch(LONG)

    with ThreadPoolExecutor(3) as pool:
        jobs = list(pool.map(submit, range(24)))
    after = site.lab.sbatch(LONG)
    assert site.lab.job(after.job_id)["Partition"] == "onprem"
    assert "AdminComment" not in site.lab.job(after.job_id)
    all_completed_once(site, [*jobs, after])
    places = {ran_on(site, job)[:5] for job in jobs}
    assert places == {"burst", "onpre"}
