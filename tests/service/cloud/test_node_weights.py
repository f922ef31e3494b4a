"""Weights of nodes: ours come and go, the site's own stay known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.files.state_file import StateFile
from advisor.model.cluster import Node
from advisor.model.errors import RetryLater
from advisor.service.cloud.node_weights import NodeWeights
from advisor.service.state.records import OwnWeights
from advisor.service.state.state_files import NODE_WEIGHTS
from advisor.testing.memory_slurm import MemorySlurm
from tests.service.doubles import make_node


class Weighing(MemorySlurm):
    """Nodes with weights, as slurmctld has them."""

    def __init__(self, **own: int) -> None:
        super().__init__(now=lambda: 0.0)
        self.show([make_node(name, weight=weight) for name, weight in own.items()])

    @property
    def weights(self) -> dict[str, int]:
        return {name: node.weight for name, node in self.nodes.items()}

    @property
    def seen(self) -> list[Node]:
        return [make_node(name, weight=weight) for name, weight in self.weights.items()]


@pytest.fixture
def file(tmp_path: Path) -> StateFile[OwnWeights]:
    return NODE_WEIGHTS.at(tmp_path)


def test_added_to_what_slurm_conf_says_and_taken_back(file: StateFile[OwnWeights]) -> None:
    slurm = Weighing(burst1=100, burst2=100, burst3=500, onprem1=1)
    weights = NodeWeights(slurm, file)
    weights.apply(slurm.seen, {"burst1": 3, "burst2": 3, "burst3": 10})
    assert slurm.weights == {"burst1": 103, "burst2": 103, "burst3": 510, "onprem1": 1}
    assert len(slurm.told) == 2  # nodes of one weight in one call
    weights.apply(slurm.seen, {"burst1": 3, "burst2": 3, "burst3": 10})
    assert len(slurm.told) == 2
    again = NodeWeights(slurm, file)  # another process
    again.apply(slurm.seen, {"burst1": 4})
    assert slurm.weights == {"burst1": 104, "burst2": 100, "burst3": 500, "onprem1": 1}
    again.apply(slurm.seen, {})
    again.apply(slurm.seen, {})
    assert slurm.weights["burst1"] == 100
    assert again.count == 0


def test_a_reconfigure_and_an_admins_own_weight_are_the_sites(file: StateFile[OwnWeights]) -> None:
    slurm = Weighing(burst1=100)
    weights = NodeWeights(slurm, file)
    weights.apply(slurm.seen, {"burst1": 7})
    slurm.nodes["burst1"].weight = 100  # scontrol reconfigure
    weights.apply(slurm.seen, {"burst1": 7})
    assert slurm.weights["burst1"] == 107
    slurm.nodes["burst1"].weight = 40  # the admin
    weights.apply(slurm.seen, {"burst1": 7})
    assert slurm.weights["burst1"] == 47
    weights.apply(slurm.seen, {})
    assert slurm.weights["burst1"] == 40


def test_what_slurmctld_refused_is_tried_again(file: StateFile[OwnWeights]) -> None:
    slurm = Weighing(burst1=100)
    weights = NodeWeights(slurm, file)
    slurm.fail("never-arrives")
    with pytest.raises(RetryLater):
        weights.apply(slurm.seen, {"burst1": 7})
    weights.apply(slurm.seen, {"burst1": 7})
    assert slurm.weights["burst1"] == 107


def test_where_slurm_shows_no_weight_nothing_is_done(file: StateFile[OwnWeights]) -> None:
    slurm = Weighing()
    NodeWeights(slurm, file).apply([make_node("burst1")], {"burst1": 7})
    assert slurm.told == []


@given(looks=st.lists(st.tuples(st.integers(-3, 15), st.booleans()), max_size=12))
@settings(deadline=None, max_examples=50)
def test_old_looks_never_let_a_weight_drift(tmp_path_factory, looks: list[tuple[int, bool]]) -> None:
    slurm = Weighing(burst1=100)
    weights = NodeWeights(slurm, NODE_WEIGHTS.at(tmp_path_factory.mktemp("w")))
    seen = slurm.seen
    for number, is_old in looks:
        seen = seen if is_old else slurm.seen
        weights.apply(seen, {"burst1": number})
        assert 100 <= slurm.weights["burst1"] <= 110
    weights.apply(slurm.seen, {})
    assert slurm.weights["burst1"] == 100
