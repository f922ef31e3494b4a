"""A whole site under everything at once: reclaims, refusals, throttling, crashes. Does every job end once?

Real slurmctld, slurmdbd and slurmds, the real daemons, the EC2 emulator; time is compressed by short jobs,
boots and notices. Nothing is judged here: the figures say what happened.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from advisor.ec2.clients import client
from advisor.ec2.tags import node_of
from advisor.model.errors import AdvisorError
from advisor.testing.lab import LabOptions
from advisor.testing.site import Site, SiteOptions
from benchmarks.soak_past import write_the_past

_JOB: Final = "sleep {seconds:.1f}; echo $SLURM_JOB_ID >>{done}"
_SPOT_CALL: Final = {"InstanceMarketOptions.MarketType": "spot"}
_NOTICE_SECONDS: Final = 3.0
_SAVED_AFTER_SECONDS: Final = 6.0  # slurmctld has its jobs on the disk five seconds later: no bug of ours
_ALIVE: Final = ("pending", "running")


@dataclass(slots=True)
class _Seen:
    """What was seen on the way."""

    reclaimed: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    doubles: set[str] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    most_nodes: int = 0


def run(
    *,
    jobs: int = 300,
    reclaims: int = 20,
    kills: int = 3,
    refused: float = 0.3,
    longest_seconds: float = 1800.0,
    seed: int = 1,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run the soak.

    Args:
        jobs: Jobs that the advisor sends to the cloud.
        reclaims: Instances EC2 takes back under running jobs.
        kills: How often slurmctld, and how often `advisor control`, are killed.
        refused: Share of spot launches that EC2 has no capacity for.
        longest_seconds: After so long the soak is given up; jobs not ended by then are counted as lost.
        seed: Of everything that is drawn.
        tell: Told what is being done.
    """
    drawn = random.Random(seed)  # noqa: S311 -- a test's dice
    lab = LabOptions(
        nodes=1, burst_nodes=12, database=True, suspend_seconds=4, suspend_timeout_seconds=2,
        resume_timeout_seconds=40, min_job_age_seconds=900,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        site = Site(folder, SiteOptions(lab=lab, settings=_settings(), boot_seconds=1.2))
        tell("starting a site")
        with site:
            write_the_past(site, processors=4)
            site.ec2.faults(_faults(refused, seed))
            site.start_advisor()
            return _soak(site, _Plan(jobs, reclaims, kills, longest_seconds, drawn), tell)


@dataclass(frozen=True, slots=True)
class _Plan:
    jobs: int
    reclaims: int
    kills: int
    longest_seconds: float
    drawn: random.Random


def _settings() -> dict[str, dict[str, Any]]:
    return {
        "placement": {"boot_seconds": 5.0},
        "estimator": {"kernel_width": 5.0, "neighbours": 8},
        "loops": {"orphan_grace_seconds": 20.0},
    }


def _faults(refused: float, seed: int) -> list[dict[str, Any]]:
    run_instances = {"service": "ec2", "action": "RunInstances"}
    return [
        {
            **run_instances, "params": _SPOT_CALL, "prob": refused, "seed": seed,
            "error": {"code": "InsufficientInstanceCapacity"},
        },
        {**run_instances, "throttle": {"burst": 5, "rate": 2}},
        {"service": "ec2", "action": "DescribeInstances", "prob": 0.05, "seed": seed,
         "http": {"status": 500, "body": "<html>no"}},
        {**run_instances, "prob": 0.05, "seed": seed, "reset": "after"},
    ]  # fmt: skip


def _soak(site: Site, plan: _Plan, tell: Callable[[str], None]) -> dict[str, Any]:
    began = time.monotonic()
    done = site.folder / "done"
    seen = _Seen()
    submitted: list[int] = []
    ended = 0
    share = max(1, plan.jobs // (plan.kills + 1))
    while time.monotonic() - began < plan.longest_seconds:
        if len(submitted) < plan.jobs:
            submitted += _submit(site, min(6, plan.jobs - len(submitted)), done, plan.drawn)
        _take_one(site, plan, seen, progress=ended / plan.jobs)
        _watch(site, seen)
        _kill(site, plan, seen, len(submitted) // share)
        ended = _ended(site, submitted)
        tell(f"{ended} of {plan.jobs} jobs ended, {seen.reclaimed} instances taken back")
        if ended == plan.jobs:
            break
        time.sleep(0.5)
    return _figures(site, submitted, seen, time.monotonic() - began, done)


def _submit(site: Site, number: int, done: Path, drawn: random.Random) -> list[int]:
    ids = []
    for _ in range(number):
        script = _JOB.format(seconds=drawn.uniform(1.0, 8.0), done=done)
        try:
            ids.append(site.lab.sbatch("--time=30", "--ntasks=4", script=script).job_id)
        except AdvisorError:  # slurmctld is away just now: a user would try again as well
            break
    return ids


def _take_one(site: Site, plan: _Plan, seen: _Seen, *, progress: float) -> None:
    """Take an instance back; evenly spread over the soak, spot ones first."""
    if seen.reclaimed >= plan.reclaims * min(1.0, 1.2 * progress + 0.05) or site.hypervisor is None:
        return
    booted = site.hypervisor.booted
    alive = [item for item in site.ec2.instances() if item["state"] == "running" and item["id"] in booted]
    spot = [item for item in alive if item["option"] == "spot"] or alive
    if spot:
        site.ec2.reclaim(plan.drawn.choice(spot)["id"], notice_s=_NOTICE_SECONDS)
        seen.reclaimed += 1


def _watch(site: Site, seen: _Seen) -> None:
    nodes = Counter(
        node_of(item["tags"], item["launch_index"])
        for item in site.ec2.instances()
        if item["state"] in _ALIVE
    )
    seen.doubles |= {str(node) for node, number in nodes.items() if number > 1}
    seen.most_nodes = max(seen.most_nodes, sum(nodes.values()))


def _kill(site: Site, plan: _Plan, seen: _Seen, due: int) -> None:
    """Kill slurmctld and the control process in turns, as a crash would."""
    if seen.kills["slurmctld"] < min(due, plan.kills):
        seen.kills["slurmctld"] += 1
        time.sleep(_SAVED_AFTER_SECONDS)
        before = _in_queue(site)
        site.lab.restart_slurmctld(kill=True)
        seen.forgotten |= before - _in_queue(site) - _written(site.folder / "done").keys()
    elif seen.kills["control"] < min(due, plan.kills):
        seen.kills["control"] += 1
        site.control.kill()
        site.control.start()


def _ended(site: Site, submitted: list[int]) -> int:
    try:
        waiting = _in_queue(site)
    except AdvisorError:  # slurmctld is away just now
        return 0
    return len([job for job in submitted if job not in waiting])


def _in_queue(site: Site) -> set[int]:
    return set(map(int, site.lab.run("squeue", "-h", "-a", "-o", "%i").stdout.split()))


def _written(done: Path) -> Counter[int]:
    """How often each job has written that it came to its end."""
    return Counter(map(int, done.read_text().split())) if done.exists() else Counter()


def _figures(site: Site, submitted: list[int], seen: _Seen, seconds: float, done: Path) -> dict[str, Any]:
    ends = _ends(site, submitted)
    wrote = _written(done)
    orphans = _left_over(site)
    calls = Counter((call["action"], bool(call.get("fault"))) for call in site.ec2.calls())
    report = site.advisor("pools", "--format", "json", check=False)
    spend = site.advisor("spend", "--format", "json", check=False)
    ec2 = client("ec2", site.ec2.settings())
    listed = sum(
        len(group["Instances"])
        for page in ec2.get_paginator("describe_instances").paginate()
        for group in page["Reservations"]
    )
    return {
        "jobs": len(submitted),
        "completed_once": sum(ends[job]["COMPLETED"] == 1 for job in submitted),
        "completed_twice": sum(ends[job]["COMPLETED"] > 1 for job in submitted),
        "not_completed": sorted(
            job for job in submitted if not ends[job]["COMPLETED"] and job not in seen.forgotten
        ),
        "forgotten_by_killed_slurmctld": sorted(seen.forgotten),
        "interrupted_ends": dict(sum((ends[job] for job in submitted), Counter())),
        "wrote_twice": sum(number > 1 for number in wrote.values()),
        "reclaimed": seen.reclaimed,
        "killed": dict(seen.kills),
        "instances_launched": listed,
        "most_nodes_at_once": seen.most_nodes,
        "nodes_with_two_instances": sorted(seen.doubles),
        "orphans_at_the_end": orphans,
        "calls": {
            f"{action}{' (fault)' if fault else ''}": number for (action, fault), number in calls.items()
        },
        "counters": _json(report.stdout).get("counters", {}),
        "spent_usd": _json(spend.stdout).get("spent_today_usd"),
        "seconds": seconds,
    }


def _json(text: str) -> dict[str, Any]:
    return dict(json.loads(text)) if text.strip() else {}


def _ends(site: Site, submitted: list[int]) -> dict[int, Counter[str]]:
    """How often each job ended how, by the accounting; its last words take a moment."""
    time.sleep(3.0)
    ends: dict[int, Counter[str]] = {job: Counter() for job in submitted}
    listed = ",".join(map(str, submitted))
    shown = site.lab.run("sacct", "-X", "-n", "-P", "-D", "-o", "jobid,state", "-j", listed, check=False)
    for line in shown.stdout.splitlines():
        job, _, state = line.partition("|")
        ends[int(job)][state.split()[0]] += 1
    return ends


def _left_over(site: Site) -> list[str]:
    """Instances that still live when nobody has needed one for a minute and more."""
    end = time.monotonic() + 90.0
    while True:
        alive = [item["id"] for item in site.ec2.instances() if item["state"] in _ALIVE]
        if not alive or time.monotonic() > end:
            return alive
        time.sleep(1.0)
