"""The lines of slurm.conf for the classes of nodes."""

from __future__ import annotations

import pytest

from advisor.ec2.slurm_lines import slurm_lines
from advisor.model.settings import Settings

BIG = {
    "nodes": "big[1-2]",
    "instance_types": ["c5.9xlarge"],
    "cores": 32,
    "memory_mb": 60000,
    "on_demand_usd_per_hour": 1.6,
    "features": ["avx512"],
}
SMALL = {**BIG, "nodes": "small[1-9]", "cores": 4, "on_demand_usd_per_hour": 0.2, "features": []}


def lines(**classes):
    return slurm_lines(Settings.model_validate({"ec2": {"classes": classes}})).splitlines()


def test_cheap_nodes_come_first():
    assert lines(big=BIG, small=SMALL) == [
        "NodeName=small[1-9] CPUs=4 RealMemory=60000 Feature=small Weight=100 State=CLOUD",
        "NodeSet=small Feature=small",
        "NodeName=big[1-2] CPUs=32 RealMemory=60000 Feature=big,avx512 Weight=200 State=CLOUD",
        "NodeSet=big Feature=big",
        "PartitionName=burst Nodes=small,big State=UP",
    ]


def test_gpus_are_declared():
    found = lines(gpu={**BIG, "gpus": 4, "gpu_type": "a10"})
    assert found[0] == "GresTypes=gpu"
    assert " Gres=gpu:a10:4 " in found[1]


def test_a_job_can_ask_for_nodes_close_together_and_for_efa():
    found = lines(mpi={**BIG, "placement_group": True, "efa": True})
    assert " Feature=mpi,placement,efa,avx512 " in found[0]


def test_without_classes_there_is_nothing():
    assert lines() == []


@pytest.mark.parametrize("name", ["spot", "on-demand", "a b", "1st"])
def test_a_name_that_slurm_or_we_cannot_use_is_refused(name):
    with pytest.raises(ValueError, match=r"classes"):
        lines(**{name: BIG})
