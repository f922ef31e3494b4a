"""A real slurmctld with the hook and a real `advisor serve` behind it, taught by a few hundred jobs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.history.models import ModelStore
from advisor.model.job import Job, JobOutcome
from advisor.model.settings import Policy, Settings
from advisor.predict.knn.features import Encoder, FeatureSchema
from advisor.predict.knn.parameters import KnnParameters
from advisor.predict.knn.predictor import Predictor
from advisor.service.exchange import snapshot
from advisor.service.submit.models import PREDICTOR_KIND
from advisor.testing.lab import Lab, LabOptions
from tests.hooks.slurm_double import HOOK
from tests.service.processes import ServeProcess
from tests.service.site import make_cluster, make_settings, make_snapshot

LONG, SHORT = "--time=120", "--time=1"  # jobs like these waited two hours, and not at all
NARROW = ("--time=1", "--ntasks=2")  # a minute's job of two processors waited two hours as well
CLOUD_SLOWNESS = 1.5
BUDGET_SECONDS = 0.5  # so long the hook waits for an answer


def teach(settings: Settings) -> None:
    """A history in which long jobs and those of two processors waited for two hours, and others did not."""
    encoder = Encoder(FeatureSchema("test", ("user", "requested_time", "processors")))
    untuned = KnnParameters.untuned(encoder.schema, k=8)
    predictor = Predictor(untuned, untuned, encoder=encoder)
    now = time.time()
    for number in range(200):
        minutes, wait, processors = ((120, 7200.0, 1), (1, 0.0, 1), (1, 7200.0, 2))[number % 3]
        submit = now - 86400 - 60 * number
        job = Job(
            job_id=number + 1,
            submit_time=submit,
            processors=processors,
            user="root",
            queue="onprem",
            requested_time=60.0 * minutes,
        )
        outcome = JobOutcome(job=job, start_time=submit + wait, end_time=submit + wait + 30.0 * minutes)
        predictor.learn(outcome, make_cluster(time=submit))
    arrays, meta = predictor.to_arrays()
    settings.paths.state.chmod(0o755)
    ModelStore(folder=settings.paths.models).save(PREDICTOR_KIND, arrays, meta)


@dataclass
class Site:
    """A lab with an advisor."""

    lab: Lab
    advisor: ServeProcess
    settings: Settings
    runners: dict[str, int] = field(default_factory=dict)

    def submit(self, *options: str, script: str = "true") -> tuple[dict[str, str], str]:
        """Submit a held job; what Slurm shows of it and what the user was told."""
        done = self.lab.sbatch("--hold", *options, script=script)
        return self.lab.job(done.job_id), done.message

    def ask(self, *options: str, script: str = "true") -> tuple[dict[str, str], str]:
        """The same, of a job that the advisor has answered for: the hook waits for none that is late."""
        for _ in range(100):
            job, message = self.submit(*options, script=script)
            if "AdminComment" in job:
                return job, message
            self.lab.run("scancel", job["JobId"])
            threading.Event().wait(0.1)
        raise AssertionError(f"the advisor's word is not heard: {job}")

    def until_advised(self) -> None:
        for _ in range(100):
            job, _ = self.submit(LONG)
            if is_advised(job):
                return
            threading.Event().wait(0.05)
        raise AssertionError(f"the advisor's word is not heard: {job.get('AdminComment')}")

    def together(self, number: int, *options: str) -> list[dict[str, str]]:
        """Submit so many held jobs at once."""
        with ThreadPoolExecutor(number) as pool:
            done = list(pool.map(lambda _: self.lab.sbatch("--hold", *options), range(number)))
        return [self.lab.job(each.job_id) for each in done]

    def look(self, *, features: tuple[str, ...] = ("cloud", "spot", "x86"), later: float = 0.0) -> None:
        """What `advisor control` does every few seconds, with what it would have seen."""
        now = time.time() + later
        snapshot.write(self.settings.paths.snapshot, make_snapshot(now=now, features=features))

    def look_until_advised(self) -> None:
        """`advisor control` is back: it looks again and again, until a look is believed."""
        for _ in range(100):
            self.look()
            threading.Event().wait(0.3)  # the server looks for a new one every quarter of a second
            if is_advised(self.submit(LONG)[0]):
                return
        raise AssertionError("no look is believed")

    def use_script(self, text: str) -> None:
        """Another job_submit.lua: slurmctld takes it at the next submission, by its time in whole seconds.

        The script is never older than a module that an earlier test wrote, of which doctor warns.
        """
        script = self.lab.conf.with_name("job_submit.lua")
        stamp = max(int(script.stat().st_mtime) + 2, int(time.time()) + 1)
        script.write_text(text)
        os.utime(script, (stamp, stamp))


def is_advised(job: dict[str, str]) -> bool:
    """Whether a long job was answered from a snapshot: it moves, or the policy moves none."""
    comment = job.get("AdminComment", "")
    is_classed = '"size":"small"' in comment or '"size":"large"' in comment
    return job["Partition"] == "burst" or ("policy_moves_nothing" in comment and is_classed)


@contextmanager
def advised_site(
    folder: Path,
    *,
    options: LabOptions | None = None,
    config: str = "",
    policy: Policy = "cunha2017",
    **hook_settings: str,
) -> Iterator[Site]:
    """A site whose last look is fresh for an hour, and is made by :meth:`Site.look` only."""
    settings = make_settings(folder, policy=policy, submit={"snapshot_max_age_seconds": 3600.0})
    teach(settings)
    told = {
        "socket": str(settings.paths.submit_socket),
        "budget_ms": f"{1000 * BUDGET_SECONDS:g}",
        **hook_settings,
    }
    options = options or LabOptions(nodes=1, burst_features=("cloud", "x86", "spot"))
    file = folder / "advisor.toml"
    file.write_text(f"[placement]\nbaseline = {CLOUD_SLOWNESS}\n[rules]\nmove_deferred = true\n{config}")
    lab_options = replace(options, hook=options.hook or HOOK, hook_settings=told)
    with ServeProcess(settings, config=file) as advisor, Lab.temporary(lab_options) as lab:
        advisor.start()
        site = Site(lab, advisor, settings)
        site.look(later=1800.0)
        site.until_advised()
        yield site
        assert advisor.stop() == 0
