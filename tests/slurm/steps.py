"""What several files of tests do to a site: right on a machine that is slow, or busy with other tests."""

from __future__ import annotations

import getpass
import time

from advisor.model.errors import TellAdmin
from advisor.testing.lab import Lab, Submission
from advisor.testing.lab_processes import wait_until
from advisor.testing.site import Site

_TRIES = 20


def cancel_all(lab: Lab) -> None:
    """End every job, whatever a test that has failed has left; over when none is in the queue."""
    lab.run("scancel", "--full", f"--user={getpass.getuser()}")
    wait_until(lambda: not lab.run("squeue", "-h").stdout.strip(), seconds=240, what="the queue is empty")


def moved(site: Site, *options: str, script: str = "true", release: bool = True) -> Submission:
    """Submit a job that the advice sends to the cloud; it starts when that is so, never before.

    One submission may stay: the hook does not wait for an advisor that is late, and the last look at the
    cluster may still show what the test before has left. Then the job is cancelled and sent again.
    With ``release=False`` it is still held when it is given back.
    """
    stayed = ""
    for _ in range(_TRIES):
        try:
            job = site.lab.sbatch("--hold", *options, script=script)
        except TellAdmin as error:  # slurmctld refuses a job that fits nowhere but in the cloud
            stayed = str(error)
        else:
            shown = site.lab.job(job.job_id)
            if shown["Partition"] == "burst":
                if release:
                    site.lab.run("scontrol", "release", str(job.job_id))
                return job
            stayed = str(shown)
            site.lab.run("scancel", str(job.job_id))
        time.sleep(1.0)
    log = (site.lab.folder / "log" / "slurmctld.log").read_text(encoding="utf-8", errors="replace")
    hook = [line for line in log.splitlines() if "advisor hook" in line][-10:]
    raise AssertionError(f"it stayed: {stayed}; {hook}; {site.advisor('status', check=False).stdout}")
