"""F30 and finding D6: `advisor serve` hangs while ten submit at once; the hook has its default settings."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from advisor.testing.lab import Lab, LabOptions
from tests.hooks.slurm_double import HOOK
from tests.service.processes import ServeProcess
from tests.service.site import make_settings
from tests.slurm.submit_site import LONG, Site, teach

pytestmark = pytest.mark.slurm


def test_d6_ten_at_once_wait_for_two_timeouts_together(tmp_path: Path) -> None:
    """It hangs from the first question on, so a slow machine does not change the count."""
    settings = make_settings(tmp_path, submit={"snapshot_max_age_seconds": 3600.0})
    teach(settings)
    options = LabOptions(nodes=1, hook=HOOK, hook_settings={"socket": str(settings.paths.submit_socket)})
    with ServeProcess(settings) as advisor, Lab.temporary(options) as lab:
        advisor.start()
        site = Site(lab, advisor, settings)
        advisor.freeze()
        jobs = site.together(10, LONG) + site.together(10, LONG)
        assert [job["Partition"] for job in jobs] == ["onprem"] * 20
        assert not any("AdminComment" in job for job in jobs)
        log = (lab.folder / "log" / "slurmctld.log").read_text()
        assert re.findall(r"advisor hook: no advice \((.*)\n", log) == [
            "timeout), failure 1 in a row",
            "timeout), failure 2 in a row, breaker open",
        ]
        os.kill(advisor.pid, signal.SIGCONT)
        # a question is left ten seconds after the breaker opened; its answer closes it
        assert "AdminComment" in site.ask(LONG)[0]
        assert "advisor answers again" in (lab.folder / "log" / "slurmctld.log").read_text()
