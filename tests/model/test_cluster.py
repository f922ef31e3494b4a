"""Named predicates of nodes: Slurm's words as a real slurmctld shows them, and words nobody knows."""

from __future__ import annotations

import pytest

from advisor.model import Node, NodePower


def node(*states: str) -> Node:
    return Node(name="burst1", states=frozenset(states), processors=4, memory_mb=4000)


@pytest.mark.parametrize(
    ("states", "power"),
    [
        (("IDLE", "CLOUD"), NodePower.UP),
        (("MIXED", "CLOUD"), NodePower.UP),
        (("IDLE", "CLOUD", "POWERED_DOWN"), NodePower.DOWN),
        (("IDLE", "CLOUD", "POWER_DOWN"), NodePower.DOWN),
        (("ALLOCATED", "CLOUD", "POWER_DOWN"), NodePower.UP),  # will go down after its job
        (("ALLOCATED", "CLOUD", "POWERING_UP"), NodePower.POWERING_UP),
        (("IDLE", "CLOUD", "POWERING_DOWN"), NodePower.POWERING_DOWN),
        (("DOWN", "CLOUD"), NodePower.UNKNOWN),
        (("LEVITATING",), NodePower.UNKNOWN),
        ((), NodePower.UNKNOWN),
    ],
)
def test_power(states: tuple[str, ...], power: NodePower) -> None:
    assert node(*states).power is power


@pytest.mark.parametrize(
    ("states", "predicates"),
    [
        (("IDLE",), set()),
        (("IDLE", "CLOUD"), {"is_cloud"}),
        (("IDLE", "DRAIN"), {"is_draining"}),
        (("DOWN", "DRAIN", "NOT_RESPONDING"), {"is_down", "is_draining"}),
        (("FAIL", "CLOUD"), {"is_down", "is_cloud"}),
        (("ERROR",), {"is_down"}),
        (("ALLOCATED",), {"is_busy"}),
        (("MIXED", "DRAIN"), {"is_busy", "is_draining"}),
        (("IDLE", "COMPLETING"), {"is_busy"}),
        (("LEVITATING",), set()),
    ],
)
def test_what_a_node_is(states: tuple[str, ...], predicates: set[str]) -> None:
    asked = ("is_cloud", "is_down", "is_draining", "is_busy")
    assert {name for name in asked if getattr(node(*states), name)} == predicates
