"""Finding D2: slurm.conf drops what the last look saw, while `advisor control` is away.

A slurmctld without a hook takes each of these jobs; with the hook each is taken as well, as submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from advisor.decide.explanation.admin_comment import parse_admin_comment
from advisor.testing.lab import LabOptions
from tests.slurm.submit_site import LONG, Site, advised_site

pytestmark = pytest.mark.slurm

OPTIONS = LabOptions(nodes=1, burst_features=("cloud", "x86", "spot"), extra=("# end",))
JOBS = (
    (LONG,), (LONG, "--constraint=x86"), (LONG, "--mem=3000"), (LONG, "--no-requeue"), (LONG, "--ntasks=8"),
    ("--time=UNLIMITED",),
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with advised_site(tmp_path_factory.mktemp("s"), options=OPTIONS) as site:
        yield site


def without_feature(conf: str) -> str:
    return conf.replace(",spot", "").replace(",on-demand", "")


def without_partition(conf: str) -> str:
    return "".join(line for line in conf.splitlines(keepends=True) if "PartitionName=burst" not in line)


def with_fewer_nodes(conf: str) -> str:
    return conf.replace("Nodes=burst[1-3]", "Nodes=burst1")


def without_nodes(conf: str) -> str:
    lines = with_fewer_nodes(conf).splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("NodeName=burst2", "NodeName=burst3")))


def with_small_nodes(conf: str) -> str:
    return conf.replace("RealMemory=4000 Feature=cloud", "RealMemory=1000 Feature=cloud")


def with_limits(conf: str) -> str:
    return conf.replace("Nodes=burst[1-3] MaxTime=INFINITE", "Nodes=burst[1-3] MaxTime=30")


CHANGES = (without_feature, without_partition, with_fewer_nodes, with_small_nodes, with_limits)


@pytest.mark.parametrize(
    ("by", "change"),
    [
        *(("reconfigure", change) for change in CHANGES),
        *(("restart", change) for change in (*CHANGES, without_nodes)),  # 22.05 dies of it when reconfigured
        ("reconfigure twice", without_feature),
    ],
)
def test_d2_nothing_is_rejected_that_slurm_conf_has_dropped(
    site: Site, by: str, change: Callable[[str], str]
) -> None:
    text = site.lab.conf.read_text()
    site.look_until_advised()
    assert change(text) != text
    site.lab.conf.write_text(change(text))
    try:
        if by == "restart":
            site.lab.restart_slurmctld()
        else:
            for _ in range(2 if "twice" in by else 1):
                site.lab.run("scontrol", "reconfigure")
        for options in JOBS:  # one that is rejected raises
            for _ in range(2):
                job, message = site.submit(*options)
                assert (job["Partition"], message) == ("onprem", "")
    finally:
        site.lab.conf.write_text(text)
        site.lab.restart_slurmctld()
    job, _ = site.ask(LONG)
    recorded = parse_admin_comment(job["AdminComment"])
    assert recorded is not None
    assert (job["Partition"], recorded.reason) == ("onprem", "turnaround.state_unknown")
    site.look_until_advised()
